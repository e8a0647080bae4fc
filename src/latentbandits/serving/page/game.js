// The game behind /play, without the page: offers, guesses, picks, and what the service learns.

import { get, post } from "./api.js";
import { itemName } from "./format.js";
import { nameStates, noStates } from "./states.js";

const OFFERED = 4;
const TRIES = 20;

/** What a pick says about an item, on the model's scale: its worth, on average, to those states
 * that would have picked the same from this offer, or come closest to it. */
export function worth(item, taken, offer) {
  const states = item.expected.map((_, state) => state);
  const missed = states.map((state) =>
    Math.max(...offer.map(({ expected }) => expected[state])) - taken.expected[state]);
  const least = Math.min(...missed);
  const alike = states.filter((state) => missed[state] === least);
  return alike.reduce((sum, state) => sum + item.expected[state], 0) / alike.length;
}

export class NothingToOffer extends Error {}

export class Game {
  moments = []; // what was believed before each pick, and now: [{round, probabilities, told}]
  picks = []; // [{taken, guess}] as items
  offer = [];
  #guess = null; // the decision that the service made about the offer
  #random;

  constructor(random = Math.random) {
    this.#random = random;
  }

  get probabilities() {
    return this.moments.at(-1)?.probabilities ?? [];
  }

  async start() {
    this.catalogue = await get("v1/catalogue");
    nameStates(this.catalogue.states);
    for (const item of this.catalogue.items) item.name = itemName(item.name);
    if (this.catalogue.items.length < 2) {
      throw new NothingToOffer(
        "The active model has no catalogue of actions: its callers bring features with each request, so there is nothing to offer here.",
      );
    }
    for (let attempt = 1; attempt <= TRIES; attempt += 1) {
      this.session = `play-${crypto.getRandomValues(new Uint32Array(1))[0].toString(36)}`;
      await this.#deal();
      if (this.probabilities.length > 1) return; // else this session was held out
      this.moments = [];
    }
    throw new NothingToOffer(`${noStates(this.catalogue.favours?.length)} There is nothing to watch.`);
  }

  /** The visitor takes the item at this place of the offer. Where that fails half way, taking the
   * same again is the same pick: the service knows its requests by their ids. */
  async take(place) {
    if (this.#guess !== null) await this.#tell(this.offer[place], this.offer[this.#guess.index]);
    await this.#deal();
  }

  async #tell(taken, guess) {
    await this.#reward(this.#guess, worth(guess, taken, this.offer));
    if (taken !== guess) {
      const own = await post("v1/decide", {
        session: this.session,
        actions: [taken.action],
        request_id: `${this.#guess.decision_id}-taken`,
      });
      await this.#reward(own, worth(taken, taken, this.offer));
    }
    this.picks.push({ taken, guess });
    this.#guess = null; // told: what is missing is the next offer
  }

  async #deal() {
    const offer = sample(this.catalogue.items, OFFERED, this.#random);
    this.#guess = await post("v1/decide", {
      session: this.session,
      actions: offer.map(({ action }) => action),
    });
    this.offer = offer;
    const round = this.picks.length;
    this.moments.push({
      round,
      probabilities: this.#guess.state_probabilities,
      told: round === 0 ? "At first" : `After pick ${round}`,
    });
  }

  #reward({ decision_id: id }, value) {
    return post("v1/reward", { decision_id: id, value, event_id: `${id}-pick` });
  }
}

function sample(items, n, random) {
  const left = [...items];
  return Array.from({ length: Math.min(n, left.length) }, () =>
    left.splice(Math.floor(random() * left.length), 1)[0]);
}
