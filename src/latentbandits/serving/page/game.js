// The game behind /play, without the page. The service plays it anew from its seed at every request:
// nothing is stored there, so a request that failed can simply be sent again.

import { get, post } from "./api.js";
import { itemName } from "./format.js";
import { nameStates, noStates } from "./states.js";

const MOST_PICKS = 50; // as many as the service accepts

export class NothingToOffer extends Error {}

export class Game {
  moments = []; // what was believed before each pick, and now: [{round, probabilities, told}]
  picks = []; // [{taken, guess}] as items
  offer = []; // items
  nextList = []; // names of what the policy would show now, in order
  #seed = crypto.getRandomValues(new Uint32Array(1))[0];
  #places = []; // of the picks in their offers
  #items = new Map();

  get probabilities() {
    return this.moments.at(-1)?.probabilities ?? [];
  }

  get over() {
    return this.#places.length >= MOST_PICKS;
  }

  async start() {
    this.catalogue = await get("v1/catalogue");
    nameStates(this.catalogue.states);
    for (const item of this.catalogue.items) {
      item.name = itemName(item.name);
      this.#items.set(item.action, item);
    }
    await this.#play([]);
    if (this.probabilities.length < 2) {
      throw new NothingToOffer(`${noStates(this.catalogue.favours.length)} There is nothing to watch.`);
    }
  }

  /** The visitor takes the item at this place of the offer. */
  take(place) {
    return this.#play([...this.#places, place]);
  }

  async #play(places) {
    const game = await post("v1/play", { model: this.catalogue.model, seed: this.#seed, picks: places });
    const item = (action) => this.#items.get(action);
    this.#places = places;
    this.offer = game.offer.map(item);
    this.nextList = game.next_list.map((action) => item(action)?.name ?? itemName(action));
    this.picks = game.taken.map((action, i) => ({ taken: item(action), guess: item(game.guesses[i]) }));
    this.moments = game.state_probabilities.map((probabilities, round) => ({
      round,
      probabilities,
      told: round === 0 ? "At first" : `After pick ${round}`,
    }));
  }
}
