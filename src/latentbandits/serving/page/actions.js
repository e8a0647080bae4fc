// What each action earned, from all sessions and by the state that was believed likeliest.

import { find } from "./dom.js";
import { count, itemName, moment, withMargin } from "./format.js";
import { table } from "./plot.js";

export function showActions({ actions, decisions, since, states }) {
  find("actions-about").textContent = since === null
    ? "No decisions by this model yet."
    : `The active model’s latest ${count(decisions)} decisions, since ${moment(since)}. Columns of states count by the state believed likeliest; ± is half of the 95% interval.`;
  const kinds = states.length > 1 ? states : [];
  find("actions").replaceChildren(table({
    head: ["Action", "Shown", "Mean reward", ...kinds],
    rows: actions.map(({ name, total, states: byState }) => [
      itemName(name), count(total.decisions), earned(total), ...kinds.map((_, state) => earned(byState[state]))]),
  }));
}

function earned({ reward }) {
  return reward === null ? "–" : withMargin(reward);
}
