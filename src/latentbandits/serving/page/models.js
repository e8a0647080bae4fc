// The models that the service has, what each has earned, and when each was activated.

import { element, find } from "./dom.js";
import { amount, count, moment, policyName } from "./format.js";
import { table } from "./plot.js";

const SWAPS = 8;

export class ModelsCard {
  #place;
  #shown = "";

  constructor(place) {
    this.#place = place;
  }

  update({ models, series, relearnings, counts }) {
    find("fit").textContent = `Sessions that no state explains: ${count(counts.unexplained)} of ${count(counts.started)}. ` +
      "If the model is right, at most one in twenty.";
    const content = JSON.stringify([models, series, relearnings]);
    if (content === this.#shown) return;
    this.#shown = content;
    const names = new Map(models.models.map(({ id, name }) => [id, name]));
    const unique = new Set(names.values()).size === names.size;
    const title = (id) => (unique ? names.get(id) : `${names.get(id)} ${id.slice(0, 6)}`);
    this.#place.replaceChildren(
      block("Models", {
        head: ["Name", "Id", "Kind", "States", "Actions", ""],
        rows: models.models.map((one) => [one.name, one.id.slice(0, 6), one.kind, count(one.n_states), actions(one), one.active ? "active" : ""]),
      }),
      block("Swaps", {
        head: ["When", "To", "Sessions under way"],
        rows: models.swaps.slice(-SWAPS).reverse().map(({ time, model, mode }, i, all) =>
          [moment(time), title(model), i === all.length - 1 && models.swaps.length <= SWAPS ? "the first model" : mode]),
      }),
      block("Earned", {
        head: ["Policy", "Model", "Decisions", "Rewards", "Mean reward", "Predicted, received"],
        rows: series.map((one) => [
          policyName(one.policy), title(one.model), count(one.decisions), count(one.rewards), amount(one.mean_reward), calibration(one)]),
      }, "block whole"),
      ...(relearnings.length ? [timeline(relearnings)] : []));
  }
}

/** The rewards of a sample of decisions: as predicted before they came, and as they were. */
function calibration({ calibration: one }) {
  if (one === null) return "";
  return `${amount(one.predicted)}, ${amount(one.received, one.predicted)} ± ${amount(one.error)}`;
}

function timeline(relearnings) {
  return block("Relearning", {
    head: ["When", "Decision", "Difference per session", "Why"],
    rows: relearnings.map(({ started, decision, outcome, verdict, why }) => [
      moment(Date.parse(started) / 1000),
      outcome === "done" ? decision : `${decision} (${outcome})`,
      verdict.low === null ? "" : `${amount(verdict.low)} to ${amount(verdict.high)}`,
      why,
    ]),
  }, "block whole");
}

function actions({ n_actions: own, n_features: features }) {
  return own === null ? `by ${count(features)} features` : count(own);
}

function block(name, content, kind = "block") {
  return element("div", { class: kind }, element("h3", {}, name),
    element("div", { class: "table-scroll", tabindex: "0", role: "region", "aria-label": name }, table(content)));
}
