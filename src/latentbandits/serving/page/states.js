// How latent states are named, coloured and shown as bars. People count them from 1.

import { element } from "./dom.js";
import { itemName, listed, percent } from "./format.js";

const COLOURS = 16;

let names = [];

/** Use these names, as the service gives them, from now on. */
export function nameStates(given) {
  names = given;
}

export function stateName(state) {
  return names[state] ?? `State ${state + 1}`;
}

/** How a sentence names a state and its users: by number, or by the name that it was given. */
export function inWords(state) {
  const name = stateName(state);
  return name === `State ${state + 1}`
    ? { name: name.toLowerCase(), member: `in ${name.toLowerCase()}`, users: `Users in ${name.toLowerCase()}` }
    : { name: `“${name}”`, member: `a “${name}” user`, users: `“${name}” users` };
}

/** Why there is nothing to show of a session's states: the model has one, or the policy asks none. */
export function noStates(nStates) {
  return nStates === 1
    ? "The model has one state: it expects the same of every user, and learns from this one’s rewards."
    : "This session’s policy keeps no belief about states.";
}

/** The class that carries a state's colour; it is never the only sign of the state. */
export function stateStyle(state) {
  return `state-${state % COLOURS}`;
}

/** One bar for each state; the mark on it is what was expected beforehand. */
export class StateBars {
  #rows = [];
  #named = "";
  node = element("ol", { class: "state-bars" });

  update(shares, priors = null, favours = null) {
    if (this.#rows.length !== shares.length || this.#named !== names.join()) this.#build(shares.length);
    const top = Math.max(...shares);
    shares.forEach((share, state) => {
      const row = this.#rows[state];
      row.node.classList.toggle("top", share === top && share > 0);
      row.share.textContent = percent(share);
      row.bar.style.width = `${share * 100}%`;
      row.mark.hidden = priors === null;
      if (priors !== null) {
        row.mark.style.left = `${priors[state] * 100}%`;
        row.mark.title = `learned offline: ${percent(priors[state])}`;
      }
      row.favours.textContent = favours?.[state]?.length ? `favours ${listed(favours[state].map(itemName))}` : "";
    });
  }

  #build(n) {
    this.#named = names.join();
    this.#rows = Array.from({ length: n }, (_, state) => {
      const parts = {
        share: element("span", { class: "share" }),
        bar: element("span", { class: `bar ${stateStyle(state)}` }),
        mark: element("span", { class: "mark" }),
        favours: element("span", { class: "favours" }),
      };
      parts.node = element("li", { "data-state": state },
        element("span", { class: "state-name" },
          element("span", { class: `chip ${stateStyle(state)}`, "aria-hidden": "true" }), stateName(state)),
        element("span", { class: "track", "aria-hidden": "true" }, parts.bar, parts.mark),
        parts.share, parts.favours);
      return parts;
    });
    this.node.replaceChildren(...this.#rows.map(({ node }) => node));
  }
}
