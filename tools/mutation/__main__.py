"""Print the mutation score of a seeded sample of mutants.

    python -m tools.mutation --mutants 500 --seed 1

Results are appended to `--out`/results.jsonl as they come: an interrupted run goes on from there.
A mutant that no test can notice is listed in `equivalent.txt` with the reason; it does not count.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from pathlib import Path

from tools.mutation.covering import PACKAGES, SOURCE, Coverage, record
from tools.mutation.mutants import Mutant, key, mutants

EQUIVALENT = Path(__file__).with_name("equivalent.txt")


def sample(n: int, seed: int) -> list[Mutant]:
    """Return a random sample of all mutants of the packages."""
    files = sorted(
        str(path) for package in PACKAGES for path in Path(SOURCE, package).rglob("*.py")
    )
    everything = [mutant for path in files for mutant in mutants(path)]
    chosen = random.Random(seed).sample(everything, min(n, len(everything)))
    say(f"{len(chosen)} of {len(everything)} mutants of {len(files)} files, seed {seed}")
    return chosen


def equivalents() -> dict[str, str]:
    """Return the reasons of `equivalent.txt` by the name of the mutant."""
    if not EQUIVALENT.exists():
        return {}
    pairs: dict[str, str] = {}
    lines = [line for line in EQUIVALENT.read_text().splitlines() if line and line[0] != "#"]
    for name, reason in zip(lines[::2], lines[1::2], strict=True):
        pairs[name] = reason.strip()
    return pairs


def check_harness(coverage: Coverage) -> None:
    """Exit if the tests fail without any change: every mutant would then seem to be noticed."""
    from tools.mutation.run import outcome

    tests = sorted(coverage.seconds, key=lambda test: coverage.seconds[test])[::10][:40]
    unchanged = Mutant(f"{SOURCE}/models/checks.py", -1, 0, "", "", "")
    if outcome(unchanged, tests, coverage.seconds) != "survived":
        sys.exit("the tests fail on the unchanged source: record the coverage again (--record)")


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.mutation", description=__doc__)
    parser.add_argument("--mutants", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("out/mutation"))
    parser.add_argument("--part", default="0/1", help="this part of so many, to run side by side")
    parser.add_argument("--record", action="store_true", help="record the coverage and stop")
    arguments = parser.parse_args()
    part, parts = (int(number) for number in arguments.part.split("/"))
    if arguments.record or not list(arguments.out.glob("coverage-*.json")):
        record(arguments.out / f"coverage-{part}.json", part, parts)
        if arguments.record:
            return 0
    coverage = Coverage(sorted(arguments.out.glob("coverage-*.json")))
    from tools.mutation.run import chosen, outcome, preload

    preload()
    results_file = arguments.out / "results.jsonl"
    known = _read(results_file)
    reasons = equivalents()
    wanted = sample(arguments.mutants, arguments.seed)
    check_harness(coverage)
    started = time.monotonic()
    counts = {"killed": 0, "survived": 0, "timeout": 0, "uncovered": 0, "equivalent": 0}
    left: list[str] = []
    for number, mutant in enumerate(wanted):
        if number % parts != part:
            continue
        if mutant.name in reasons:
            counts["equivalent"] += 1
            continue
        identity = key(mutant)
        result = known.get(identity)
        tests = coverage.tests(mutant.path, mutant.line, bool(mutant.function))
        if result in (None, "survived", "uncovered"):
            picked = chosen(tests, coverage.seconds)
            signature = f"{identity}:{len(tests)}"
            if result is None or known.get(signature) is None:
                result = outcome(mutant, picked, coverage.seconds) if picked else "uncovered"
                _append(results_file, {identity: result, signature: result, "name": mutant.name})
        counts[result] += 1
        if result in ("survived", "uncovered"):
            left.append(f"{result}: line {mutant.line} of {mutant.name}")
        done = sum(counts.values())
        if done % 20 == 0:
            say(f"{done}: {counts}, {time.monotonic() - started:.0f} s")
    say("\n".join(left))
    decided = sum(counts.values()) - counts["equivalent"]
    noticed = counts["killed"] + counts["timeout"]
    say(f"{counts}; {time.monotonic() - started:.0f} s")
    say(f"mutation score {noticed / max(decided, 1):.1%}: {noticed} of {decided} noticed, "
        f"{counts['equivalent']} equivalent mutants not counted")  # fmt: skip
    return 0


def _read(path: Path) -> dict[str, str]:
    known: dict[str, str] = {}
    if path.exists():
        for line in path.read_text().splitlines():
            entry = json.loads(line)
            entry.pop("name", None)
            known |= entry
    return known


def _append(path: Path, entry: dict[str, str]) -> None:
    with path.open("a") as file:
        file.write(json.dumps(entry) + "\n")


if __name__ == "__main__":
    sys.exit(main())
