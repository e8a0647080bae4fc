"""Check a results.json of the benchmark: `python -m evidence.bench.submission FILE...`.

Submissions are kept in docs/figures/results/submissions; a test checks every one.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from evidence.bench.contestants import POPULARITY
from evidence.bench.problems import PROBLEMS
from evidence.bench.protocol import FIRST

FOLDER = Path(__file__).parents[2] / "docs" / "figures" / "results" / "submissions"

NUMBERS = tuple(
    f"{key}_{what}{end}"
    for key in ("first", "all")
    for what in ("reward", "gain")
    for end in ("", "_stderr")
)
"""The numbers of a row: rewards and gains over popularity, with their standard errors."""

_ROUNDING = 1e-4  # relative; submissions may be rounded to six digits


def errors(results: Any) -> list[str]:
    """Return what is wrong with the content of a results.json; empty if nothing is.

    >>> errors({"experiment": "drift"})
    ["experiment must be 'bench'; got 'drift'"]
    """
    if not isinstance(results, Mapping):
        return [f"a results.json is an object; got {type(results).__name__}"]
    if results.get("experiment") != "bench":
        return [f"experiment must be 'bench'; got {results.get('experiment')!r}"]
    settings, rows = results.get("settings"), results.get("policies")
    if not isinstance(settings, Mapping) or not isinstance(rows, list) or not rows:
        return ["settings must be an object, and policies a list of rows"]
    found = [
        f"settings has no {name}" for name in ("seed", "short", "results") if name not in settings
    ]
    for place, row in enumerate(rows):
        found += [f"row {place}: {error}" for error in _row_errors(row)]
    return found or list(_across_rows(rows))


def _row_errors(row: Any) -> Iterator[str]:
    if not isinstance(row, Mapping):
        yield "must be an object"
        return
    problem = PROBLEMS.get(row.get("setting", ""))
    if problem is None:
        yield f"there is no problem {row.get('setting')!r}"
        return
    if row.get("form") not in problem.forms:
        yield f"{problem.name} has no form {row.get('form')!r}"
    if not isinstance(row.get("policy"), str) or not row.get("policy"):
        yield "policy must be the contestant's text"
    if row.get("all_rounds") != problem.horizon:
        yield f"all_rounds must be {problem.horizon}; got {row.get('all_rounds')!r}"
    if row.get("first_rounds") != min(FIRST, problem.horizon):
        yield f"first_rounds must be {min(FIRST, problem.horizon)}; got {row.get('first_rounds')!r}"
    for name in (*NUMBERS, "microseconds"):
        value: Any = row.get(name)
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not (number and math.isfinite(value)):
            yield f"{name} must be a finite number; got {value!r}"
        elif (name.endswith("_stderr") or name == "microseconds") and value < 0:
            yield f"{name} must not be negative; got {value!r}"


def _across_rows(rows: list[Mapping[str, Any]]) -> Iterator[str]:
    """Yield errors of rows that contradict each other."""
    seen = set()
    popular = {(r["setting"], r["form"]): r for r in rows if r["policy"] == POPULARITY}
    for row in rows:
        key = row["setting"], row["form"]
        if (*key, row["policy"]) in seen:
            yield f"{row['policy']} is there twice on {key[0]}, {key[1]}"
        seen.add((*key, row["policy"]))
        if key not in popular:
            yield f"{key[0]}, {key[1]} has no row of {POPULARITY}"
            return
        for part in ("first", "all"):
            gain = row[f"{part}_reward"] - popular[key][f"{part}_reward"]
            room = _ROUNDING * (1 + abs(row[f"{part}_reward"]))
            if abs(gain - row[f"{part}_gain"]) > room:
                yield (
                    f"{row['policy']} on {key[0]}, {key[1]}: {part}_gain is "
                    f"{row[f'{part}_gain']:g}, but the rewards differ by {gain:g}"
                )


def main() -> int:
    """Check the files that are named, or all submissions; return 2 if one is not valid."""
    files = [Path(name) for name in sys.argv[1:]] or sorted(FOLDER.glob("*.json"))
    bad = 0
    for file in files:
        try:
            wrong = errors(json.loads(file.read_text(encoding="utf-8")))
        except (OSError, ValueError) as error:
            wrong = [f"it cannot be read: {error}"]
        sys.stdout.write(f"{file}: {'valid' if not wrong else '; '.join(wrong)}\n")
        bad += bool(wrong)
    return 2 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
