// The four figures at the top.

import { find } from "./dom.js";
import { amount, count, interval, rate, signed } from "./format.js";
import { armName } from "./overview-charts.js";

export function showTiles({ rates, counts, arms, difference, states }) {
  put("rate", rate(rates.decisions_per_second), `${rate(rates.rewards_per_second)} rewards per second`);
  put("sessions", count(counts.open), `${count(counts.started)} begun, ${count(counts.decisions)} decisions`);
  rewardTile(arms, difference);
  halfTile(arms, states);
}

function rewardTile(arms, difference) {
  const [policy, holdout] = arms;
  if (difference !== null) {
    find("tile-reward-name").textContent = "Reward above the holdout";
    put("reward", signed(difference.mean), `${policy.policy} ${amount(policy.reward.mean)}, ${armName(holdout)} ${amount(holdout.reward.mean)}`);
    find("tile-reward").title = `95% confidence: ${interval(difference.low, difference.high)}`;
    find("tile-reward").dataset.band = interval(difference.low, difference.high);
  } else {
    find("tile-reward-name").textContent = "Mean reward";
    const band = policy.reward === null ? "no rewards yet" : interval(policy.reward.low, policy.reward.high);
    put("reward", amount(policy.reward?.mean), policy.reward === null ? band : `95%: ${band}`);
    delete find("tile-reward").dataset.band;
  }
}

/** The first round whose entropy is at most half of the first's. */
function halfTile([policy]) {
  const known = policy.rounds.filter(({ entropy }) => entropy !== null);
  const start = known[0]?.entropy;
  const half = known.find(({ entropy }) => entropy <= start / 2);
  if (start === undefined) put("half", "–", "this policy keeps no belief, or nothing came yet");
  else if (half === undefined) put("half", "–", `${amount(start)} bits at first, ${amount(known.at(-1).entropy)} now`);
  else put("half", `round ${half.round}`, `from ${amount(start)} to ${amount(half.entropy)} bits`);
}

function put(name, value, note) {
  find(`tile-${name}`).textContent = value;
  find(`tile-${name}-note`).textContent = note;
}
