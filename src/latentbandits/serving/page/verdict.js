// Is it working? One sentence: the policy against the sessions that are held out.

import { find } from "./dom.js";
import { amount, signed, withMargin } from "./format.js";

export function showVerdict({ differences, groups }) {
  const node = find("verdict");
  const { text, kind } = verdict(differences.find(({ group }) => group === "holdout"), groups);
  if (node.textContent !== text) node.textContent = text;
  node.dataset.kind = kind;
}

function verdict(difference, groups) {
  const [policy] = groups;
  const holdout = groups.find(({ group }) => group === "holdout");
  if (holdout === undefined) {
    return said("Is it working? Nobody is held out, so nothing can be compared. Start the service with --holdout-share 0.1 to find out.");
  }
  if (difference === undefined) return said("Is it working? Both groups need rewards first: the policy’s, and the holdout’s.");
  const against = `${withMargin(difference, { like: policy.reward.mean, written: signed })} a decision against the holdout group`;
  if (difference.low === null) return said(`${against}; too few sessions to be sure.`);
  const interval = `95%: ${amount(difference.low, policy.reward.mean)} to ${amount(difference.high, policy.reward.mean)}`;
  if (difference.low > 0) return said(`It works: ${against} (${interval}).`, "good");
  if (difference.high < 0) return said(`It harms: ${against} (${interval}).`, "bad");
  return said(`Not certain yet: ${against} (${interval}).`);
}

function said(text, kind = "open") {
  return { text, kind };
}
