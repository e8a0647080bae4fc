"""Print the mutation score of a seeded sample of mutants.

    python -m tools.mutation --mutants 500 --seed 1

Results are appended to `--out`/results.jsonl as they come: an interrupted run goes on from there.
A later run repeats the mutants that survived if their tests changed.
A mutant that no test can notice is listed in `equivalent.txt` with the reason; it does not count.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy  # noqa: F401  (imported once here, not in every process that runs a mutant)
import scipy.integrate
import scipy.special
import scipy.stats  # noqa: F401

from tools.mutation.covering import Coverage, record, source_files
from tools.mutation.mutants import Mutant, key, mutants
from tools.mutation.run import WarmTests, chosen, cold

Run = Callable[[Mutant, list[str], dict[str, float]], tuple[str, str]]
EQUIVALENT = Path(__file__).with_name("equivalent.txt")


def sample(n: int, seed: int) -> list[Mutant]:
    """Return a random sample of all mutants of the packages."""
    files = source_files()
    everything = [mutant for path in files for mutant in mutants(path)]
    picked = random.Random(seed).sample(everything, min(n, len(everything)))
    say(f"{len(picked)} of {len(everything)} mutants of {len(files)} files, seed {seed}")
    return picked


def equivalents() -> dict[str, str]:
    """Return the reasons of `equivalent.txt` by the name of the mutant."""
    lines = [line for line in EQUIVALENT.read_text().splitlines() if line and line[0] != "#"]
    return {name: reason.strip() for name, reason in zip(lines[::2], lines[1::2], strict=True)}


class Results:
    """The outcomes so far, in a file that each outcome is appended to."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known: dict[str, dict[str, str]] = {}
        if path.exists():
            for line in path.read_text().splitlines():
                entry = json.loads(line)
                self._known[entry["key"]] = entry

    def find(self, mutant: Mutant, tests: list[str], version: str) -> str | None:
        """Return the outcome if it still holds: its test or tests are as they were."""
        entry = self._known.get(key(mutant))
        if entry is None:
            return None
        if entry["outcome"] in ("killed", "timeout"):
            return entry["outcome"] if not entry["test"] or entry["test"] in tests else None
        return entry["outcome"] if entry["tests"] == version else None

    def outcomes(self, mutants: list[Mutant]) -> dict[Mutant, str]:
        """Return the outcomes of mutants that were run."""
        known = {mutant: self._known.get(key(mutant)) for mutant in mutants}
        return {mutant: entry["outcome"] for mutant, entry in known.items() if entry}

    def add(self, mutant: Mutant, outcome: str, test: str, version: str) -> None:
        """Keep an outcome."""
        entry = {"key": key(mutant), "name": mutant.name, "outcome": outcome, "test": test,
                 "tests": version}  # fmt: skip
        self._known[entry["key"]] = entry
        with self._path.open("a") as file:
            file.write(json.dumps(entry) + "\n")


def check_harness(warm: WarmTests, coverage: Coverage) -> None:
    """Exit if the tests fail without any change: every mutant would then seem to be noticed."""
    tests = sorted(coverage.seconds, key=lambda test: coverage.seconds[test])
    for part in range(2):
        quickest = chosen(tests[part::2], coverage.seconds, 4.0)
        outcome, test = warm.outcome(None, quickest, coverage.seconds)
        if outcome != "survived":
            sys.exit(f"a test fails on the unchanged source: {test or outcome}")


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tools.mutation",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--mutants", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--budget", type=float, default=10, help="seconds of tests for a mutant")
    parser.add_argument("--minutes", type=float, default=1e9, help="stop then; run again to go on")
    parser.add_argument("--out", type=Path, default=Path("out/mutation"))
    arguments = parser.parse_args()
    record(arguments.out / "coverage")
    coverage = Coverage(arguments.out / "coverage")
    results = Results(arguments.out / "results.jsonl")
    reasons = equivalents()
    wanted = sample(arguments.mutants, arguments.seed)
    started = time.monotonic()
    outcomes = {mutant: "equivalent" for mutant in wanted if mutant.name in reasons}
    warm_ones: dict[Mutant, tuple[list[str], str]] = {}
    cold_ones: dict[Mutant, tuple[list[str], str]] = {}
    for mutant in wanted:
        if mutant in outcomes:
            continue
        warm = mutant.in_function
        tests = coverage.tests(mutant) if warm else coverage.tests_of_module(mutant.path)
        picked = chosen(tests, coverage.seconds, arguments.budget)
        names = "\n".join(f"{test} {coverage.version[test]}" for test in picked)
        version = hashlib.sha256(names.encode()).hexdigest()[:16]
        known = results.find(mutant, tests, version)
        if known is not None:
            outcomes[mutant] = known
        elif not picked:
            outcomes[mutant] = "uncovered"
        else:
            (warm_ones if warm else cold_ones)[mutant] = picked, version

    def run(mutants: dict[Mutant, tuple[list[str], str]], outcome: Run) -> None:
        began = time.monotonic()
        for number, (mutant, (picked, version)) in enumerate(mutants.items(), 1):
            if time.monotonic() - began > 60 * arguments.minutes:
                return
            outcomes[mutant], test = outcome(mutant, picked, coverage.seconds)
            results.add(mutant, outcomes[mutant], test, version)
            if number % 20 == 0:
                say(f"{number} of {len(mutants)}: {dict(Counter(outcomes.values()))}, "
                    f"{time.monotonic() - started:.0f} s")  # fmt: skip

    def run_warm(warm: WarmTests) -> None:
        check_harness(warm, coverage)
        run(warm_ones, warm.outcome)

    if warm_ones:
        WarmTests(run_warm).run()
        outcomes |= Results(arguments.out / "results.jsonl").outcomes(list(warm_ones))
    run(cold_ones, cold)
    return summarise(wanted, outcomes, time.monotonic() - started)


def summarise(wanted: list[Mutant], outcomes: dict[Mutant, str], seconds: float) -> int:
    """Print the mutants that no test noticed, and the score."""
    left = len(wanted) - len(outcomes)
    if left:
        say(f"{left} of {len(wanted)} mutants are left: run the command again to go on")
        return 1
    for mutant in wanted:
        if outcomes[mutant] in ("survived", "uncovered"):
            say(f"{outcomes[mutant]}: line {mutant.line} of {mutant.name}")
    counts = Counter(outcomes.values())
    decided = len(wanted) - counts["equivalent"]
    noticed = counts["killed"] + counts["timeout"]
    say(f"{dict(counts)}; {seconds:.0f} s")
    say(f"mutation score {noticed / max(decided, 1):.1%}: {noticed} of {decided} noticed, "
        f"{counts['equivalent']} equivalent mutants not counted")  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
