// The four figures at the top.

import { find } from "./dom.js";
import { amount, count, interval, rate, signed } from "./format.js";
import { groupName } from "./overview-charts.js";

export function showTiles({ rates, counts, groups, differences, states }) {
  put("rate", rate(rates.decisions_per_second), `${rate(rates.rewards_per_second)} rewards per second`);
  put("sessions", count(counts.open), `${count(counts.started)} begun, ${count(counts.decisions)} decisions`);
  rewardTile(groups, differences);
  halfTile(groups, states);
}

/** With one other group the difference; with more, the one that comes closest to the policy. */
function rewardTile(groups, differences) {
  const [policy] = groups;
  if (differences.length) {
    const closest = differences.reduce((least, one) => (one.mean < least.mean ? one : least));
    const others = differences.map((one) => groups.find(({ group }) => group === one.group));
    find("tile-reward-name").textContent =
      differences.length === 1 && closest.group === "holdout" ? "Reward above the holdout" : `Reward above ${closest.group}`;
    const like = policy.reward.mean;
    const told = others.map((one) => `${groupName(one)} ${amount(one.reward.mean, like)}`).join(", ");
    put("reward", signed(closest.mean, like), `${groupName(policy)} ${amount(like)}, ${told}`);
    find("tile-reward").dataset.band = interval(closest.low, closest.high, like);
  } else {
    find("tile-reward-name").textContent = "Mean reward";
    const { mean, low, high } = policy.reward ?? { mean: null };
    put("reward", amount(mean), mean === null ? "no rewards yet" : interval(low, high, mean));
    delete find("tile-reward").dataset.band;
  }
}

/** The first round whose entropy is at most half of the first's. */
function halfTile([policy], states) {
  if (states.length === 1) return put("half", "–", "the model has one state: there is nothing to tell apart");
  const known = policy.rounds.filter(({ entropy }) => entropy !== null);
  const start = known[0]?.entropy;
  const half = known.find(({ entropy }) => entropy <= start / 2);
  if (start === undefined) put("half", "–", "this policy keeps no belief, or nothing came yet");
  else if (half === undefined) put("half", "–", `${amount(start)} bits at first, ${amount(known.at(-1).entropy, start)} at last`);
  else put("half", `round ${half.round}`, `from ${amount(start)} to ${amount(half.entropy, start)} bits`);
}

function put(name, value, note) {
  find(`tile-${name}`).textContent = value;
  find(`tile-${name}-note`).textContent = note;
}
