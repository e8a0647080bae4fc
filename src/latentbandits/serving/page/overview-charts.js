// From the overview to the views of its three charts.

import { amount, count, rate } from "./format.js";
import { lines } from "./lines.js";
import { around } from "./scale.js";

const SPAN = 300; // seconds
const STYLES = { policy: "one", holdout: "two" };
const byRound = { xTitle: "round", reading: (round) => `Round ${round}` };

export function armName({ arm, policy }) {
  return arm === "holdout" ? `holdout (${policy})` : policy;
}

export function rewardView({ arms }) {
  const series = arms.map((one) => ({
    name: armName(one),
    style: STYLES[one.arm],
    points: one.rounds.filter(({ reward }) => reward !== null)
      .map(({ round, reward }) => ({ x: round, y: reward.mean, low: reward.low, high: reward.high })),
  }));
  const means = series.flatMap(({ points }) => points.map(({ y }) => y));
  return lines(series, {
    ...byRound,
    format: amount,
    y: around(means, { air: 0.25 }), // the few sessions of a late round would squeeze the rest
    summary: arms.map((one) => `${armName(one)} ${amount(one.reward?.mean)}`).join(", "),
  });
}

export function doubtView({ arms, states }) {
  const prior = states.reduce((sum, { prior: p }) => sum - (p > 0 ? p * Math.log2(p) : 0), 0);
  const series = arms.map((one) => ({
    name: armName(one),
    style: STYLES[one.arm],
    points: one.rounds.filter(({ entropy }) => entropy !== null)
      .map(({ round, entropy }) => ({ x: round, y: entropy })),
  }));
  const all = series.flatMap(({ points }) => points.map(({ y }) => y));
  return lines(series, {
    ...byRound,
    format: (bits) => `${amount(bits)} bits`,
    y: [0, Math.max(prior, ...all) * 1.15],
    references: [{ y: prior, name: "before the first round" }],
    summary: series.filter(({ points }) => points.length).map(({ name, points }) =>
      `${name} from ${amount(points[0].y)} bits in round 1 to ${amount(points.at(-1).y)} in round ${points.length}`).join(", "),
  });
}

/** Whole seconds only: the one under way would always look like a drop. */
export function rateView({ rates, time }) {
  if (rates.seconds.length === 0) return null;
  const now = Math.floor(time);
  const seen = new Map(rates.seconds.map((second) => [second.time, second]));
  const first = Math.max(rates.seconds[0].time, now - SPAN);
  const moments = Array.from({ length: Math.max(0, now - first) }, (_, i) => first + i);
  const points = (what) => moments.map((at) => ({ x: at - now, y: seen.get(at)?.[what] ?? 0 }));
  const both = [
    { name: "decisions", style: "one", points: points("decisions") },
    { name: "rewards", style: "two", points: points("rewards") },
  ];
  const highest = Math.max(1, ...both.flatMap((one) => one.points.map(({ y }) => y)));
  return lines(both, {
    xTitle: "time",
    x: [-SPAN, 0],
    y: [0, highest * 1.1],
    xTicks: [-300, -240, -180, -120, -60, 0],
    xFormat: (at) => (at === 0 ? "now" : at % 60 === 0 ? `${at / 60} min`.replace("-", "−") : `${at} s`.replace("-", "−")),
    reading: (at) => `${-at} s ago`,
    format: count,
    summary: `${rate(rates.decisions_per_second)} decisions and ${rate(rates.rewards_per_second)} rewards per second`,
  });
}
