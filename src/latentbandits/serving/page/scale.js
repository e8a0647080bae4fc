// From data to pixels, and the round numbers in between.

export function linear([low, high], [from, to]) {
  const factor = high === low ? 0 : (to - from) / (high - low);
  return (value) => from + (value - low) * factor;
}

/** Round numbers from low to high, about `wanted` of them, a 1, 2 or 5 apart. */
export function ticks(low, high, wanted, whole = false) {
  if (!(high > low)) return [low];
  const rough = (high - low) / Math.max(1, wanted);
  const power = 10 ** Math.floor(Math.log10(rough));
  const times = [1, 2, 5, 10].find((n) => n * power >= rough * 0.999);
  const step = whole ? Math.max(1, Math.round(times * power)) : times * power;
  const found = [];
  for (let n = Math.ceil(low / step - 1e-9); n * step <= high + step * 1e-9; n += 1) {
    found.push(Number((n * step).toPrecision(12)));
  }
  return found;
}

/** Ticks written with as many digits as tell them apart. */
export function tickFormat(values) {
  const digits = Math.max(...values.map((value) => (String(value).split(".")[1] ?? "").length));
  return (value) =>
    value
      .toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits })
      .replace("-", "−");
}

/** A domain around the values, with some air, and `floor` where that is close. */
export function around(values, { air = 0.08, floor = null } = {}) {
  const known = values.filter((value) => value !== null);
  if (known.length === 0) return [0, 1];
  let [low, high] = [Math.min(...known), Math.max(...known)];
  if (floor !== null) low = Math.min(low, floor);
  const size = high - low || Math.abs(high) || 1;
  high += size * air;
  return [low === floor ? low : low - size * air, high];
}

export function nearest(values, wanted) {
  let best = 0;
  values.forEach((value, i) => {
    if (Math.abs(value - wanted) < Math.abs(values[best] - wanted)) best = i;
  });
  return best;
}
