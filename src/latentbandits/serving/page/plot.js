// The frame that all charts share: size, axes, a reading line by pointer or arrow keys, and the
// numbers as a table. What is inside comes as a view: see lines.js and unfolding.js.

import { element, shape } from "./dom.js";
import { linear, nearest, tickFormat, ticks } from "./scale.js";

const TOP = 12;
const RIGHT = 16;
const BOTTOM = 38;
let plots = 0;

export class Plot {
  #view = null;
  #at = null; // the index in view.xs that is being read
  #clip = `clip-${(plots += 1)}`;
  #svg = shape("svg", { "aria-hidden": "true" });
  #empty = element("p", { class: "empty" });
  #legend = element("div", { class: "legend" });
  #readout = element("p", { class: "readout" });
  #stage;
  #table = element("div", { class: "table-scroll", tabindex: "0" });
  #numbers;

  constructor({ name, empty }) {
    this.#empty.textContent = empty;
    this.#stage = element("div", { class: "stage", tabindex: "0", role: "img" }, this.#svg, this.#empty);
    this.#numbers = element("details", { class: "numbers" },
      element("summary", {}, "Numbers"), this.#table);
    this.name = name;
    this.node = element("figure", { class: "chart" },
      this.#legend, this.#stage, element("div", { class: "under" }, this.#readout, this.#numbers));
    this.#table.setAttribute("aria-label", `${name}, as a table`);
    new ResizeObserver(() => this.#draw()).observe(this.#stage);
    this.#stage.addEventListener("pointermove", (event) => this.#point(event));
    this.#stage.addEventListener("pointerleave", () => this.#read(null));
    this.#stage.addEventListener("blur", () => this.#read(null));
    this.#stage.addEventListener("keydown", (event) => this.#step(event));
    this.#numbers.addEventListener("toggle", () => this.#tabulate());
    this.update(null);
  }

  /** `empty` says why there is nothing. view: {x, y: domains, xs, marks(x, y), dots(i, x, y), reading(i), legend, summary, table,
   * xTitle, xTicks?, xFormat?, yTicks?, yFormat?}, or null. */
  update(view, empty = this.#empty.textContent) {
    this.#view = view;
    this.#empty.textContent = empty;
    if (view !== null && this.#at !== null) this.#at = Math.min(this.#at, view.xs.length - 1);
    this.#empty.hidden = view !== null;
    this.#stage.setAttribute("aria-label", `${this.name}: ${view?.summary ?? this.#empty.textContent}`);
    this.#numbers.classList.toggle("absent", view === null);
    this.#legend.replaceChildren(...(view?.legend ?? []).map(({ name, style }) =>
      element("span", { class: "key" },
        shape("svg", { class: `swatch ${style}`, viewBox: "0 0 18 10", "aria-hidden": "true" },
          shape("path", { class: "line", d: "M1 5H17" }), shape("rect", { class: "area", x: 3, width: 12, height: 10, rx: 2 })),
        name)));
    this.#draw();
    this.#tabulate();
    this.#say();
  }

  #draw() {
    const { width, height } = this.#stage.getBoundingClientRect();
    if (width === 0) return;
    this.#svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    if (this.#view === null) {
      this.#svg.replaceChildren();
      return;
    }
    const view = this.#view;
    const yTicks = view.yTicks ?? ticks(...view.y, Math.max(2, Math.floor(height / 52)));
    const yFormat = view.yFormat ?? tickFormat(yTicks);
    const left = 12 + 7.2 * Math.max(...yTicks.map((tick) => yFormat(tick).length));
    const x = linear(view.x, [left, width - RIGHT]);
    const y = linear(view.y, [height - BOTTOM, TOP]);
    const xTicks = view.xTicks ?? ticks(...view.x, Math.max(2, Math.floor(width / 80)), true);
    const xFormat = view.xFormat ?? tickFormat(xTicks);
    const box = { x: left, y: TOP - 4, width: width - RIGHT - left, height: height - BOTTOM - TOP + 8 };
    this.#span = [left, width - RIGHT];
    this.#svg.replaceChildren(
      shape("clipPath", { id: this.#clip }, shape("rect", box)),
      ...yTicks.map((tick) => shape("path", { class: "grid", d: `M${left} ${y(tick)}H${width - RIGHT}` })),
      shape("g", { "clip-path": `url(#${this.#clip})` }, ...view.marks(x, y)),
      ...yTicks.map((tick) => label(left - 8, y(tick) + 4, yFormat(tick), "end")),
      ...xTicks.map((tick) => label(x(tick), height - BOTTOM + 18, xFormat(tick), "middle")),
      label((left + width - RIGHT) / 2, height - 2, view.xTitle, "middle", "axis-title"),
      ...this.#cursor(x, y, height),
    );
  }

  #span = [0, 1];

  #cursor(x, y, height) {
    if (this.#at === null) return [];
    const at = x(this.#view.xs[this.#at]);
    return [
      shape("path", { class: "cursor", d: `M${at} ${TOP}V${height - BOTTOM}` }),
      ...this.#view.dots(this.#at, x, y),
    ];
  }

  #point(event) {
    if (this.#view === null) return;
    const offset = event.clientX - this.#stage.getBoundingClientRect().left;
    const wanted = linear(this.#span, this.#view.x)(offset);
    this.#read(nearest(this.#view.xs, wanted));
  }

  #step(event) {
    const steps = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity };
    if (this.#view === null || !(event.key in steps)) return;
    event.preventDefault();
    this.#readout.setAttribute("aria-live", "polite");
    const last = this.#view.xs.length - 1;
    const from = this.#at ?? (steps[event.key] > 0 ? -1 : last + 1);
    this.#read(Math.max(0, Math.min(last, from + steps[event.key])));
  }

  #read(index) {
    if (index === null) this.#readout.removeAttribute("aria-live");
    this.#at = index;
    this.#draw();
    this.#say();
  }

  #say() {
    this.#readout.textContent =
      this.#view !== null && this.#at !== null ? this.#view.reading(this.#at) : "";
  }

  #tabulate() {
    if (!this.#numbers.open || this.#view === null) return;
    this.#table.replaceChildren(table(this.#view.table()));
  }
}

export function table({ head, rows }) {
  return element("table", { class: "plain" },
    element("thead", {}, element("tr", {}, ...head.map((text) => element("th", { scope: "col" }, text)))),
    element("tbody", {}, ...rows.map((row) => element("tr", {}, ...row.map((text) => element("td", {}, text))))));
}

function label(x, y, text, anchor, style = "tick") {
  return shape("text", { x, y, class: style, "text-anchor": anchor }, text);
}
