// What the service believes, in plain words.

import { itemName, listed, percent } from "./format.js";
import { inWords, noStates } from "./states.js";
import { ranked } from "./unfolding.js";

/** who: {whom, are}; favours[state]: what the state likes more than others do. */
export function sentence(probabilities, { rounds, who, favours = null }) {
  if (probabilities.length < 2) return noStates(favours?.length);
  if (rounds === 0) return `Nothing is known of ${who.whom} yet: these are the shares learned offline.`;
  const [first, second] = ranked(probabilities);
  const { name, member, users } = inWords(first.state);
  const next = inWords(second.state);
  const [share, other] = [percent(first.p), percent(second.p)];
  if (first.p < 0.5) return `It is not sure yet: perhaps ${who.are} ${member} (${share}), perhaps ${next.member} (${other}).`;
  if (first.p < 0.7) return `It leans towards ${name} (${share}), with ${next.name} (${other}) next.`;
  const sure = first.p < 0.95 ? "It believes that" : "Almost certainly";
  const liked = favours?.[first.state] ?? [];
  const why = liked.length ? ` ${users} like ${listed(liked.map(itemName))} more than others do.` : "";
  return `${sure} ${who.are} ${member} (${share}).${why}`;
}

export const VISITOR = { whom: "you", are: "you are" };
export const SESSION = { whom: "this session", are: "this session is" };
