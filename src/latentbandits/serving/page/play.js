// The page at /play: shows the game and hands on the visitor's picks.

import { KeyNeeded, Refused } from "./api.js";
import { element, find } from "./dom.js";
import { Game, NothingToOffer } from "./game.js";
import { askKey } from "./key.js";
import { Plot, table } from "./plot.js";
import { sentence, VISITOR } from "./sentence.js";
import { StateBars } from "./states.js";
import { Status } from "./status.js";
import { unfolding } from "./unfolding.js";

const PLACES = 4;
const PATIENT = 3000; // milliseconds
const status = new Status();
const bars = new StateBars();
const plot = new Plot({ name: "Probability of each state after each pick", empty: "Pick something first" });
const buttons = Array.from({ length: PLACES }, (_, place) => {
  const button = element("button", { class: "offer", "data-place": place },
    element("kbd", { "aria-hidden": "true" }, String(place + 1)), element("span", { class: "offer-name" }, "\u00a0"));
  button.addEventListener("click", () => pick(place));
  return button;
});
let game = null;
let busy = true;

find("shelf").append(...buttons);
find("bars").append(bars.node);
find("unfold").append(plot.node);
find("again").addEventListener("click", () => begin());
document.addEventListener("keydown", (event) => {
  const place = Number(event.key) - 1;
  const typing = event.target instanceof HTMLInputElement || event.ctrlKey || event.metaKey || event.altKey;
  if (!typing && place in buttons) pick(place);
});

async function begin() {
  setBusy(true);
  game = null;
  find("outcome").textContent = "\u00a0";
  const fresh = new Game();
  for (;;) {
    try {
      await fresh.start();
      break;
    } catch (error) {
      if (error instanceof KeyNeeded) {
        status.locked();
        await askKey(error.message, "read");
      } else if (error instanceof NothingToOffer || error instanceof Refused) {
        status.unable(error);
        return;
      } else {
        status.away(error);
        await new Promise((resolve) => setTimeout(resolve, PATIENT));
      }
    }
  }
  game = fresh;
  show();
}

async function pick(place) {
  if (busy || game === null || game.over || place >= game.offer.length) return;
  setBusy(true);
  try {
    await game.take(place);
    const { taken, guess } = game.picks.at(-1);
    find("outcome").textContent = taken === guess
      ? `You took ${taken.name}, as the service had guessed.`
      : `You took ${taken.name}. The service had guessed ${guess.name}.`;
    show();
  } catch (error) {
    if (error instanceof KeyNeeded || error instanceof Refused) status.unable(error);
    else status.lost(error);
    setBusy(false);
  }
}

function show() {
  const { catalogue, picks, probabilities } = game;
  status.live();
  find("round").textContent = picks.length + 1;
  buttons.forEach((button, place) => {
    button.hidden = place >= game.offer.length;
    button.disabled = game.over;
    if (!button.hidden) {
      button.dataset.action = game.offer[place].action;
      button.querySelector(".offer-name").textContent = game.offer[place].name;
    }
  });
  bars.update(probabilities, catalogue.prior, catalogue.favours);
  find("belief").textContent =
    sentence(probabilities, { rounds: picks.length, who: VISITOR, favours: catalogue.favours });
  find("next-list").textContent = game.nextList.join(", ");
  plot.update(picks.length === 0 ? null : unfolding(game.moments, { xTitle: "picks" }));
  const hits = picks.filter(({ taken, guess }) => taken === guess).length;
  const end = game.over ? " This game is over: start again." : "";
  find("score").textContent = picks.length === 0 ? "\u00a0" : `Guessed right ${hits} of ${picks.length} times.${end}`;
  find("picks-about").textContent = picks.length === 0 ? "None yet." : "The latest first.";
  find("picks").replaceChildren(table({
    head: ["Round", "You took", "It had guessed"],
    rows: picks.map(({ taken, guess }, i) => [String(i + 1), taken.name, taken === guess ? "✓ the same" : guess.name]).reverse(),
  }));
  find("footer-note").textContent = "Nothing of this game is stored: it is no session, and no statistics count it.";
  setBusy(false);
}

function setBusy(value) {
  busy = value;
  find("shelf").setAttribute("aria-busy", String(value));
}

begin();
