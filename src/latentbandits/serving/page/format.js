// Numbers and times as people read them. A missing value is a dash.

const NONE = "–";
const MINUS = "−";

function fixed(value, digits) {
  const text = Math.abs(value).toLocaleString("en", {
    minimumFractionDigits: digits,
    maximumFractionDigits: digits,
  });
  return value < 0 && Number(value.toFixed(digits)) !== 0 ? MINUS + text : text;
}

export function count(value) {
  return value === null ? NONE : fixed(value, 0);
}

/** Per second: 0.3, 7.5, 120. */
export function rate(value) {
  return value === null ? NONE : fixed(value, value < 99.95 ? 1 : 0);
}

/** A reward or entropy: about three digits that mean something; as many as `like` would have. */
export function amount(value, like = value) {
  if (value === null || value === undefined) return NONE;
  const size = Math.abs(like);
  return fixed(value, size >= 999.5 ? 0 : size >= 99.95 ? 1 : size >= 0.995 ? 2 : 3);
}

export function signed(value, like = value) {
  return value === null ? NONE : (value > 0 ? "+" : "") + amount(value, like);
}

export function interval(low, high, like) {
  return low === null ? "no band yet" : `95%: ${amount(low, like)} to ${amount(high, like)}`;
}

/** Actions without names are numbered: a bare number says too little. */
export function itemName(name) {
  return /^\d+$/.test(name) ? `item ${name}` : name;
}

/** An exploring policy as people read it: "mIDS, 10% at random". */
export function policyName(text) {
  const [, policy, share] = /^Exploring\(policy='?(.*?)'?, e=([\d.]+)\)$/.exec(text) ?? [];
  return policy === undefined ? text : `${policy}, ${percent(Number(share))} at random`;
}

/** Never 0% or 100% for what is merely close to it. */
export function percent(share) {
  if (share === null || share === undefined) return NONE;
  if (share > 0 && share < 0.005) return "<1%";
  if (share < 1 && share >= 0.995) return ">99%";
  return `${fixed(share * 100, 0)}%`;
}

export function ago(seconds) {
  if (seconds < 2) return "now";
  if (seconds < 60) return `${Math.floor(seconds)} s ago`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ago`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ago`;
  return `${Math.floor(seconds / 86400)} d ago`;
}

export function moment(seconds) {
  return new Date(seconds * 1000).toLocaleString("en-GB", {
    day: "numeric",
    month: "short",
    hour: "2-digit",
    minute: "2-digit",
    second: "2-digit",
  });
}

/** A day of the calendar, from milliseconds since 1970 (UTC): 18 Nov. */
export function dayName(milliseconds) {
  return new Date(milliseconds).toLocaleDateString("en-GB", { day: "numeric", month: "short", timeZone: "UTC" });
}

/** A mean with half of its 95% interval, 4.00 ±0.31, with as many digits as `like` would have. */
export function withMargin({ mean, low, high }, { like = mean, written = amount } = {}) {
  return low === null ? written(mean, like) : `${written(mean, like)} ±${amount((high - low) / 2, like)}`;
}

/** "a", "a and b", "a, b and c". */
export function listed(words) {
  if (words.length < 2) return words.join("");
  return `${words.slice(0, -1).join(", ")} and ${words.at(-1)}`;
}
