// One session, chosen by the address (#session=...): its belief, round by round.

import { get, Refused } from "./api.js";
import { element, find } from "./dom.js";
import { amount, count, itemName, percent, policyName } from "./format.js";
import { table, Plot } from "./plot.js";
import { sentence, SESSION } from "./sentence.js";
import { ranked, unfolding } from "./unfolding.js";
import { noStates, stateName } from "./states.js";

const MARK = "#session=";

export function sessionLink(name) {
  return MARK + encodeURIComponent(name);
}

export function chosen() {
  return location.hash.startsWith(MARK) ? decodeURIComponent(location.hash.slice(MARK.length)) : null;
}

export class SessionCard {
  #plot = new Plot({ name: "Probability of each state by round", empty: "" });
  #shown = null; // {session, round, rewards} as last drawn
  #catalogue = null;

  constructor() {
    find("session-chart").append(this.#plot.node);
    window.addEventListener("hashchange", () => this.#choose());
    this.#clear("Nothing is chosen.");
  }

  /** Ask again where the overview says that something happened in it. */
  async follow(overview, catalogue) {
    this.#catalogue = catalogue;
    const name = chosen();
    if (name === null) return;
    const now = overview.recent.find(({ session }) => session === name);
    const same = this.#shown?.session === name
      && (now === undefined || (now.round === this.#shown.round && now.rewards === this.#shown.rewards));
    if (!same) await this.#fetch(name);
  }

  async #choose() {
    const name = chosen();
    if (name === null) {
      this.#shown = null;
      this.#clear("Nothing is chosen.");
      return;
    }
    find("session").classList.remove("vacant"); // at once: what moves is then the answer to a click
    try {
      await this.#fetch(name);
    } catch {
      return; // the next poll says what is wrong
    }
    const card = find("session");
    if (card.getBoundingClientRect().top > innerHeight * 0.8) card.scrollIntoView({ block: "start" });
  }

  async #fetch(name) {
    try {
      const view = await get(`v1/sessions/${encodeURIComponent(name)}`);
      if (chosen() === name) this.#show(view);
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      this.#shown = { session: name, round: null, rewards: null };
      this.#clear(`${name}: ${error.message}`);
    }
  }

  #show(view) {
    this.#shown = { session: view.session, round: view.round, rewards: view.rewards };
    find("session-title").textContent = view.session;
    find("session-about").textContent =
      `${policyName(view.policy)}, ${view.group === "holdout" ? "held out" : "policy group"} · ${count(view.round)} rounds · mean reward ${amount(view.mean_reward)}`;
    const favours = this.#catalogue?.model === view.model ? this.#catalogue.favours : null;
    this.#plot.update(unfolding(moments(view)), noStates(favours?.length));
    find("session-belief").textContent =
      sentence(view.state_probabilities, { rounds: view.rewards, who: SESSION, favours });
    find("session-rounds").replaceChildren(table(rounds(view, this.#catalogue)));
  }

  #clear(text) {
    find("session").classList.toggle("vacant", chosen() === null); // a narrow page then hides it
    find("session-title").textContent = "One session";
    find("session-about").textContent = text;
    find("session-belief").textContent = "\u00a0";
    find("session-rounds").replaceChildren(element("p", { class: "empty" }));
    this.#plot.update(null, "Choose a session in the list");
  }
}

/** What was believed at each decision under the present model, and what is believed now. */
function moments({ history, state_probabilities: now, model, round }) {
  const past = history
    .filter((event) => event.model === model && event.state_probabilities.length === now.length)
    .filter((event) => (event.list_position ?? 1) === 1)
    .map((event) => ({ round: event.round, probabilities: event.state_probabilities, told: `Round ${event.round}` }));
  return [...past, { round: round + 1, probabilities: now, told: "Now" }];
}

function rounds({ history }, catalogue) {
  const names = new Map(catalogue?.items.map(({ action, name }) => [action, name]));
  return {
    head: ["Round", "Action", "Propensity", "Reward", "Believed"],
    rows: latestFirst(history).map((event) => {
      const [first] = ranked(event.state_probabilities);
      const believed = event.state_probabilities.length > 1 ? `${stateName(first.state)}, ${percent(first.p)}` : "–";
      const place = event.list_position === undefined ? "" : `, position ${event.list_position}`;
      return [count(event.round) + place, itemName(names.get(event.action) ?? event.action), percent(event.propensity), amount(event.reward), believed];
    }),
  };
}

/** The latest round first, each list from its top. */
function latestFirst(history) {
  const rounds = [];
  for (const event of history) {
    if (event.list_position > 1) rounds.at(-1).push(event);
    else rounds.push([event]);
  }
  return rounds.reverse().flat();
}
