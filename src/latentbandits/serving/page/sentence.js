// What the service believes, in plain words.

import { itemName, listed, percent } from "./format.js";
import { noStates, stateName } from "./states.js";
import { ranked } from "./unfolding.js";

/** who: {whom, are}; favours[state]: what the state likes more than others do. */
export function sentence(probabilities, { rounds, who, favours = null }) {
  if (probabilities.length < 2) return noStates(favours?.length);
  if (rounds === 0) return `Nothing is known of ${who.whom} yet: these are the shares learned offline.`;
  const [first, second] = ranked(probabilities);
  const name = stateName(first.state).toLowerCase();
  const share = percent(first.p);
  const other = `${stateName(second.state).toLowerCase()} (${percent(second.p)})`;
  if (first.p < 0.5) return `It cannot tell yet: perhaps ${who.are} in ${name} (${share}), perhaps in ${other}.`;
  if (first.p < 0.7) return `It leans towards ${name} (${share}), with ${other} next.`;
  const sure = first.p < 0.95 ? "It believes that" : "Almost certainly";
  const liked = favours?.[first.state] ?? [];
  const why = liked.length ? ` Users in ${name} like ${listed(liked.map(itemName))} more than others do.` : "";
  return `${sure} ${who.are} in ${name} (${share}).${why}`;
}

export const VISITOR = { whom: "you", are: "you are" };
export const SESSION = { whom: "this session", are: "this session is" };
