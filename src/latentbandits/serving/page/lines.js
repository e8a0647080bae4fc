// A view for Plot: lines over a common x, each with a confidence band where it has one.

import { shape } from "./dom.js";
import { around } from "./scale.js";

/** series: [{name, style, points: [{x, y, low?, high?}]}] with the same x in all that have it. */
export function lines(series, { reading, format, ...frame }) {
  const shown = series.filter(({ points }) => points.some(({ y }) => y !== null));
  if (shown.length === 0) return null;
  const xs = [...new Set(shown.flatMap(({ points }) => points.map(({ x }) => x)))].sort((a, b) => a - b);
  const byX = shown.map(({ points }) => new Map(points.map((point) => [point.x, point])));
  const at = (i) => shown.map((one, n) => ({ ...one, point: byX[n].get(xs[i]) ?? null }))
    .filter(({ point }) => point !== null && point.y !== null);
  return {
    x: [xs[0], Math.max(xs.at(-1), xs[0] + 1)],
    y: around(shown.flatMap(({ points }) => points.map(({ y }) => y))),
    xs,
    legend: shown,
    marks: (x, y) => [
      ...(frame.references ?? []).flatMap((reference) => rule(reference, x, y, frame.x ?? [xs[0], xs.at(-1)])),
      ...shown.map(({ style, points }) => shape("path", { class: `band ${style}`, d: band(points, x, y) })),
      ...shown.map(({ style, points }) => shape("path", { class: `line ${style}`, d: path(points, x, y) })),
      ...shown.filter(({ points }) => points.length === 1).flatMap(({ style, points: [only] }) => alone(only, style, x, y)),
    ],
    dots: (i, x, y) => at(i).map(({ style, point }) =>
      shape("circle", { class: `dot ${style}`, cx: x(point.x), cy: y(point.y), r: 4 })),
    reading: (i) => `${reading(xs[i])}: ${at(i).map(({ name, point }) => `${name} ${said(point, format)}`).join(", ")}`,
    table: () => ({
      head: [frame.xTitle, ...shown.map(({ name }) => name)],
      rows: xs.map((x, i) => [
        (frame.xFormat ?? String)(x),
        ...shown.map((_, n) => (byX[n].has(xs[i]) ? said(byX[n].get(xs[i]), format) : "–")),
      ]),
    }),
    ...frame,
  };
}

function said({ y, low = null, high = null }, format) {
  return low === null ? format(y) : `${format(y)} (${format(low)} to ${format(high)})`;
}

function path(points, x, y) {
  let pen = "M";
  let drawn = "";
  for (const point of points) {
    if (point.y === null) {
      pen = "M";
    } else {
      drawn += `${pen}${x(point.x).toFixed(1)} ${y(point.y).toFixed(1)}${pen === "M" ? "h0" : ""}`; // a point alone is a dot
      pen = "L";
    }
  }
  return drawn;
}

/** A line of one point is a dot, with its interval. */
function alone({ x: at, y: value, low = null, high = null }, style, x, y) {
  const dot = shape("circle", { class: `dot ${style}`, cx: x(at), cy: y(value), r: 4 });
  if (low === null) return [dot];
  return [shape("path", { class: `line ${style}`, d: `M${x(at).toFixed(1)} ${y(low).toFixed(1)}V${y(high).toFixed(1)}` }), dot];
}

/** The area between low and high; it is interrupted where a point has no band. */
function band(points, x, y) {
  const runs = [[]];
  for (const point of points) {
    if (point.low === null || point.low === undefined) runs.push([]);
    else runs.at(-1).push(point);
  }
  return runs.map((run) => area(run, x, y)).join("");
}

function area(wide, x, y) {
  if (wide.length < 2) return "";
  const above = wide.map((point) => `${x(point.x).toFixed(1)} ${y(point.high).toFixed(1)}`);
  const below = wide.map((point) => `${x(point.x).toFixed(1)} ${y(point.low).toFixed(1)}`);
  return `M${above.join("L")}L${below.reverse().join("L")}Z`;
}

function rule({ y: value, name }, x, y, [from, to]) {
  return [
    shape("path", { class: "reference", d: `M${x(from)} ${y(value)}H${x(to)}` }),
    shape("text", { class: "tick", x: x(to), y: y(value) - 6, "text-anchor": "end" }, name),
  ];
}
