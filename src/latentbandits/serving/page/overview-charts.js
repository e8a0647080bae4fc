// From the overview to the views of its four charts.

import { amount, dayName, policyName, rate } from "./format.js";
import { lines } from "./lines.js";
import { around } from "./scale.js";

const LONGEST = 300; // seconds
const SHORTEST = 60;
const WINDOW = 5;
const DAY = 86400000; // milliseconds
const FEW = 0.05; // of the rewards of the round that has most
const STYLES = ["one", "two", "three", "four"]; // by the place of a group
const byRound = { xTitle: "round", reading: (round) => `Round ${round}` };

export function groupName({ group, policy }) {
  const name = policyName(policy);
  return group === "policy" ? name : `${group} (${name})`;
}

/** Rounds that few sessions reached are left out: their wide bands would squeeze the rest. */
export function rewardView({ groups }) {
  const series = groups.map((one, place) => {
    const known = one.rounds.filter(({ reward }) => reward !== null);
    const most = Math.max(...known.map(({ rewards }) => rewards));
    return {
      name: groupName(one),
      style: STYLES[place % STYLES.length],
      points: known.filter(({ rewards }) => rewards >= FEW * most)
        .map(({ round, reward }) => ({ x: round, y: reward.mean, low: reward.low, high: reward.high })),
    };
  });
  return rewardLines(series, groups, byRound);
}

/** Days are counted since 1970; one without sessions is a gap. */
export function dayView({ groups }) {
  const days = groups.flatMap((one) => one.days.map(({ day }) => Date.parse(day) / DAY));
  if (days.length === 0) return null;
  const [first, last] = [Math.min(...days), Math.max(...days)];
  const series = groups.map((one, place) => ({
    name: groupName(one),
    style: STYLES[place % STYLES.length],
    points: dayPoints(one.days, first, last),
  }));
  const step = Math.max(1, Math.ceil((last - first) / 4));
  const air = Math.max(0.5, 0.04 * (last - first));
  return rewardLines(series, groups, {
    xTitle: "day",
    x: [first - air, last + air],
    xTicks: every(step, last - first).map((back) => last + back),
    xFormat: (at) => dayName(at * DAY),
    reading: (at) => dayName(at * DAY),
  });
}

function dayPoints(days, first, last) {
  const known = new Map(days.map(({ day, reward }) => [Date.parse(day) / DAY, reward]));
  return Array.from({ length: last - first + 1 }, (_, n) => {
    const reward = known.get(first + n) ?? { mean: null, low: null, high: null };
    return { x: first + n, y: reward.mean, low: reward.low, high: reward.high };
  });
}

function rewardLines(series, groups, frame) {
  const drawn = series.flatMap(({ points }) => points.flatMap(({ y, low, high }) => [y, low, high]));
  return lines(series, {
    ...frame,
    format: amount,
    y: around(drawn),
    summary: groups.map((one) => `${groupName(one)} ${amount(one.reward?.mean)}`).join(", "),
  });
}

export function doubtView({ groups, states }) {
  const prior = states.reduce((sum, { prior: p }) => sum - (p > 0 ? p * Math.log2(p) : 0), 0);
  const series = groups.map((one, place) => ({
    name: groupName(one),
    style: STYLES[place % STYLES.length],
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
  const now = Math.floor(time);
  const first = Math.max(rates.seconds[0]?.time ?? now, now - LONGEST);
  if (now - first < WINDOW) return null;
  const both = ["decisions", "rewards"].map((what, i) => ({
    name: what,
    style: ["one", "two"][i],
    points: averaged(rates.seconds, what, first, now),
  }));
  const highest = Math.max(1, ...both.flatMap((one) => one.points.map(({ y }) => y)));
  const span = Math.max(SHORTEST, now - first);
  const step = span > 150 ? 60 : span > 75 ? 30 : 15;
  return lines(both, {
    xTitle: "",
    x: [-span, 0],
    y: [0, highest * 1.15],
    xTicks: every(step, span),
    xFormat: (at) => before(at, step),
    reading: (at) => (at === 0 ? "Now" : `${-at} s ago`),
    format: rate,
    summary: `${rate(rates.decisions_per_second)} decisions and ${rate(rates.rewards_per_second)} rewards per second`,
  });
}

/** At each second the mean of the few before it. */
function averaged(seconds, what, first, now) {
  const seen = new Map(seconds.map((second) => [second.time, second[what]]));
  return Array.from({ length: now - first - WINDOW + 1 }, (_, i) => {
    const end = first + i + WINDOW;
    let sum = 0;
    for (let at = end - WINDOW; at < end; at += 1) sum += seen.get(at) ?? 0;
    return { x: end - now, y: sum / WINDOW };
  });
}

function every(step, span) {
  return Array.from({ length: Math.floor(span / step) + 1 }, (_, n) => -n * step);
}

function before(at, step) {
  if (at === 0) return "now";
  return step === 60 && at % 60 === 0 ? `−${-at / 60} min` : `−${-at} s`;
}
