// The page at /: asks for the overview every second and shows it.

import { showActions } from "./actions.js";
import { address, get, hasKey, KeyNeeded, Unreachable, useKey } from "./api.js";
import { find } from "./dom.js";
import { askKey } from "./key.js";
import { ModelsCard } from "./models.js";
import { dayView, doubtView, rateView, rewardView } from "./overview-charts.js";
import { Plot } from "./plot.js";
import { SessionCard } from "./session.js";
import { SessionsCard } from "./sessions.js";
import { nameStates, StateBars } from "./states.js";
import { Status } from "./status.js";
import { showTiles } from "./tiles.js";
import { showVerdict } from "./verdict.js";

const EVERY = 1000; // milliseconds
const SLOWLY = 30000; // between two looks at what actions earn, which reads the log
const PATIENT = 2500; // between tries while the service is away

const status = new Status();
const charts = {
  day: new Plot({ name: "Mean reward by day", empty: "No rewards yet" }),
  reward: new Plot({ name: "Mean reward by round", empty: "No rewards yet" }),
  doubt: new Plot({ name: "Entropy by round", empty: "No beliefs about states yet" }),
  rate: new Plot({ name: "Decisions and rewards per second", empty: "Quiet" }),
};
for (const [name, chart] of Object.entries(charts)) find(`${name}-chart`).append(chart.node);
const bars = new StateBars();
find("states").append(bars.node);
const sessions = new SessionsCard(find("sessions"));
const session = new SessionCard();
const models = new ModelsCard(find("models"));
let catalogue = null;
let looked = { at: -Infinity, model: null, decisions: null }; // the last look at the actions

async function poll() {
  try {
    const overview = await get("v1/overview");
    if (catalogue?.model !== overview.models.active) catalogue = await get("v1/catalogue");
    show(overview);
    await followActions(overview);
    status.live(overview.time);
    await session.follow(overview, catalogue);
    return EVERY;
  } catch (error) {
    if (error instanceof KeyNeeded) {
      status.locked();
      await askKey(error.message, "read");
      return 0;
    }
    status.away(error);
    if (error instanceof Unreachable) return PATIENT;
    return EVERY;
  }
}

/** Ask what actions earn at times, and where that can have changed. */
async function followActions({ models: { active }, counts }) {
  const now = { at: performance.now(), model: active, decisions: counts.decisions + counts.applied + counts.replaced };
  const same = now.model === looked.model && now.decisions === looked.decisions;
  if (same || (now.model === looked.model && now.at - looked.at < SLOWLY)) return;
  looked = now;
  showActions(await get("v1/actions"));
}

function show(overview) {
  const fresh = overview.counts.decisions === 0;
  find("fresh").hidden = !fresh;
  find("forget-key").hidden = !hasKey();
  for (const link of document.querySelectorAll(".to-play")) link.hidden = !overview.play;
  find("footer-store").textContent = `Store: ${overview.store}`;
  find("report").hidden = !overview.report || hasKey(); // a link cannot carry the key
  showVerdict(overview);
  showTiles(overview);
  charts.day.update(dayView(overview));
  charts.reward.update(rewardView(overview));
  charts.doubt.update(doubtView(overview));
  charts.rate.update(rateView(overview));
  nameStates(overview.states.map(({ name }) => name));
  bars.update(overview.states.map(({ share }) => share), overview.states.map(({ prior }) => prior), catalogue?.favours);
  sessions.update(overview);
  models.update(overview);
}

async function forever() {
  for (;;) {
    const wait = document.hidden ? EVERY : await poll();
    await new Promise((resolve) => setTimeout(resolve, wait));
  }
}

find("fresh-command").textContent = `curl ${address("v1/decide")} -H 'content-type: application/json' \\
     -d '{"session": "ann"}'
curl ${address("v1/reward")} -H 'content-type: application/json' \\
     -d '{"decision_id": "…", "value": 1.0}'`;
find("forget-key").addEventListener("click", () => {
  useKey(null);
  location.reload();
});
forever();
