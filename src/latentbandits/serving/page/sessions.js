// The list of recent sessions. It stands still while someone points at it or tabs through it.

import { element } from "./dom.js";
import { ago, amount, count, percent } from "./format.js";
import { chosen, sessionLink } from "./session.js";
import { stateName, stateStyle } from "./states.js";

const ROWS = 14;

export class SessionsCard {
  #place;
  #latest = null;
  #body = element("tbody");

  constructor(place) {
    this.#place = place;
    const head = ["Session", "Group", "Round", "Reward", "Believed state", "Seen"];
    place.append(element("table", { class: "list" },
      element("thead", {}, element("tr", {}, ...head.map((text) => element("th", { scope: "col" }, text)))),
      this.#body));
    for (const event of ["pointerleave", "focusout"]) {
      place.addEventListener(event, () => setTimeout(() => this.#draw()));
    }
    window.addEventListener("hashchange", () => this.#mark());
    this.#fill([]);
  }

  update(overview) {
    this.#latest = overview;
    this.#draw();
  }

  #draw() {
    const held = this.#body.matches(":hover, :has(:focus-visible)") && this.#body.querySelector("a") !== null;
    if (held || this.#latest === null) return;
    const { recent, time } = this.#latest;
    this.#fill(recent.slice(0, ROWS).map((one) => row(one, time)));
    this.#mark();
  }

  /** Always as many rows, so that nothing below moves. */
  #fill(rows) {
    const missing = Array.from({ length: ROWS - rows.length }, () =>
      element("tr", { class: "blank" }, element("td", { colspan: 6 }, "\u00a0")));
    this.#body.replaceChildren(...rows, ...missing);
  }

  #mark() {
    for (const link of this.#body.querySelectorAll("a")) {
      const current = link.dataset.session === chosen();
      link.closest("tr").classList.toggle("chosen", current);
      if (current) link.setAttribute("aria-current", "true");
      else link.removeAttribute("aria-current");
    }
  }
}

function row(one, time) {
  const link = element("a", { href: sessionLink(one.session), "data-session": one.session, title: one.session }, one.session);
  return element("tr", {},
    element("th", { scope: "row" }, link),
    element("td", { class: "group" }, one.group),
    element("td", { class: "number" }, count(one.round)),
    element("td", { class: "number reward" }, amount(one.mean_reward)),
    element("td", {}, one.state === null || one.group === "holdout" && one.state_probability === 1 ? element("span", { class: "mini" }, "–") : belief(one)),
    element("td", { class: "number seen" }, ago(Math.max(0, time - one.seen))));
}

function belief({ state, state_probability: p }) {
  const bar = element("span", { class: `bar ${stateStyle(state)}` });
  bar.style.width = `${p * 100}%`;
  return element("span", { class: "mini" },
    element("span", { class: "mini-name" }, stateName(state)),
    element("span", { class: "track", "aria-hidden": "true" }, bar),
    element("span", { class: "mini-share" }, percent(p)));
}
