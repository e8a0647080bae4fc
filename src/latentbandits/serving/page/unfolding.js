// A view for Plot: the probabilities of the states round by round, stacked to one.

import { shape } from "./dom.js";
import { percent } from "./format.js";
import { stateName, stateStyle } from "./states.js";

/** moments: [{round, probabilities, told}]; `told` says what happened there. */
export function unfolding(moments, { xTitle = "round", xFormat } = {}) {
  if (moments.length === 0 || moments[0].probabilities.length < 2) return null;
  const states = moments[0].probabilities.map((_, state) => state);
  const xs = moments.map(({ round }) => round);
  const below = (i, state) => moments[i].probabilities.slice(0, state).reduce((sum, p) => sum + p, 0);
  const edge = (state, x, y) => moments.map(({ round }, i) => `${x(round).toFixed(1)} ${y(below(i, state)).toFixed(2)}`);
  const last = moments.at(-1).probabilities;
  const top = last.indexOf(Math.max(...last));
  return {
    x: [xs[0], Math.max(xs.at(-1), xs[0] + 1)],
    y: [0, 1],
    xs,
    xTitle,
    xFormat,
    yTicks: [0, 0.25, 0.5, 0.75, 1],
    yFormat: (share) => `${share * 100}%`,
    legend: states.map((state) => ({ name: stateName(state), style: `${stateStyle(state)} filled` })),
    marks: (x, y) => states.map((state) =>
      shape("path", {
        class: `area ${stateStyle(state)}`,
        d: `M${edge(state, x, y).join("L")}L${edge(state + 1, x, y).reverse().join("L")}Z`,
      })),
    dots: () => [],
    reading: (i) => `${moments[i].told}: ${ranked(moments[i].probabilities).slice(0, 3)
      .map(({ state, p }) => `${stateName(state).toLowerCase()} ${percent(p)}`).join(", ")}`,
    summary: `${moments.length} moments; at the end ${stateName(top)} has ${percent(last[top])}`,
    table: () => ({
      head: [xTitle, ...states.map(stateName)],
      rows: moments.map(({ round, probabilities }) => [(xFormat ?? String)(round), ...probabilities.map(percent)]),
    }),
  };
}

export function ranked(probabilities) {
  return probabilities.map((p, state) => ({ state, p })).sort((a, b) => b.p - a.p);
}
