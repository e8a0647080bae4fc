"""Print the mutation score of a seeded sample of mutants.

    python -m tools.mutation --mutants 500 --seed 1

Results are appended to `--out`/results.jsonl as they come: an interrupted run goes on from there.
A later run tries new and changed tests on the mutants that survived.
A mutant that no test can notice is listed in `equivalent.txt` with the reason; it does not count.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy  # noqa: F401  (imported once here, not in every process that runs a mutant)
import scipy.integrate
import scipy.special
import scipy.stats  # noqa: F401

from tools.mutation.covering import Coverage, record, source_files
from tools.mutation.mutants import Mutant, key, mutants
from tools.mutation.run import WarmTests, chosen, cold

Run = Callable[[Mutant, list[str], dict[str, float]], tuple[str, str]]
LEAST = 0.9
"""The command fails below this score."""
EQUIVALENT = Path(__file__).with_name("equivalent.txt")


def sample(n: int, seed: int) -> list[Mutant]:
    """Return a random sample of all mutants of the packages.

    These are the mutants whose hashes of seed and name are the smallest, so that a change of the
    source replaces few of them.
    """
    files = source_files()
    everything = [mutant for path in files for mutant in mutants(path)]
    picked = sorted(everything, key=lambda mutant: _hash(f"{seed} {mutant.name}"))[:n]
    say(f"{len(picked)} of {len(everything)} mutants of {len(files)} files, seed {seed}")
    return picked


def _hash(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


def equivalents() -> dict[str, str]:
    """Return the reasons of `equivalent.txt` by the name of the mutant."""
    lines = [line for line in EQUIVALENT.read_text().splitlines() if line and line[0] != "#"]
    return {name: reason.strip() for name, reason in zip(lines[::2], lines[1::2], strict=True)}


class Results:
    """The outcomes so far, in a file that each outcome is appended to."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known: dict[str, dict[str, Any]] = {}
        if path.exists():
            *lines, unfinished = path.read_text().split("\n")
            for line in lines:
                entry = json.loads(line)
                self._known[entry["key"]] = entry
            if unfinished:  # the process ended while it wrote this line
                path.write_text("".join(line + "\n" for line in lines))

    def find(self, mutant: Mutant, tests: list[str]) -> str | None:
        """Return the outcome of a mutant that one of these tests noticed; None if none did."""
        entry = self._known.get(key(mutant))
        if entry is None or entry["outcome"] == "survived":
            return None
        return str(entry["outcome"]) if not entry["test"] or entry["test"] in tests else None

    def passed(self, mutant: Mutant) -> list[str]:
        """Return the tests that did not notice a mutant, with the versions of their files."""
        return list(self._known.get(key(mutant), {}).get("passed", []))

    def outcome(self, mutant: Mutant) -> str | None:
        """Return the outcome of a mutant that was run."""
        entry = self._known.get(key(mutant))
        return None if entry is None else str(entry["outcome"])

    def add(self, mutant: Mutant, outcome: str, test: str, passed: list[str]) -> None:
        """Keep an outcome."""
        entry = {"key": key(mutant), "name": mutant.name, "outcome": outcome, "test": test,
                 "passed": passed if outcome == "survived" else []}  # fmt: skip
        self._known[key(mutant)] = entry
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
    started = time.monotonic()
    say("recording which test runs which line: some minutes, unless a record is kept")
    record(arguments.out / "coverage")
    say(f"recorded after {(time.monotonic() - started) / 60:.1f} min")
    coverage = Coverage(arguments.out / "coverage")
    results = Results(arguments.out / "results.jsonl")
    reasons = equivalents()
    wanted = sample(arguments.mutants, arguments.seed)
    say(f"{len(coverage.seconds)} tests meet them; a mutant meets at most {arguments.budget:g} s")
    outcomes = {mutant: "equivalent" for mutant in wanted if mutant.name in reasons}
    warm_ones: dict[Mutant, list[str]] = {}
    cold_ones: dict[Mutant, list[str]] = {}
    for mutant in wanted:
        if mutant in outcomes:
            continue
        warm = mutant.in_function
        tests = coverage.tests(mutant) if warm else coverage.tests_of_module(mutant.path)
        known, passed = results.find(mutant, tests), set(results.passed(mutant))
        picked = chosen(tests, coverage.seconds, arguments.budget)
        left = [test for test in picked if coverage.versioned(test) not in passed]
        if known is not None:
            outcomes[mutant] = known
        elif left:
            (warm_ones if warm else cold_ones)[mutant] = left
        else:
            outcomes[mutant] = "survived" if passed else "uncovered"

    def run(kind: str, mutants: dict[Mutant, list[str]], outcome: Run) -> None:
        began = time.monotonic()
        for number, (mutant, tests) in enumerate(mutants.items(), 1):
            if time.monotonic() - began > 60 * arguments.minutes:
                return
            outcomes[mutant], test = outcome(mutant, tests, coverage.seconds)
            passed = [*results.passed(mutant), *map(coverage.versioned, tests)]
            results.add(mutant, outcomes[mutant], test, passed)
            if number % 20 == 0 or number == len(mutants):
                spent = time.monotonic() - began
                left = spent / number * (len(mutants) - number)
                say(f"{number} of {len(mutants)} {kind}: {dict(Counter(outcomes.values()))}; "
                    f"{spent / 60:.1f} min, about {left / 60:.1f} min left")  # fmt: skip

    def run_warm(warm: WarmTests) -> None:
        check_harness(warm, coverage)
        run("mutants of functions", warm_ones, warm.outcome)

    if warm_ones:
        WarmTests(run_warm).run()
        results = Results(arguments.out / "results.jsonl")
        result = {mutant: results.outcome(mutant) for mutant in warm_ones}
        outcomes |= {mutant: outcome for mutant, outcome in result.items() if outcome}
    run("mutants of constants and defaults", cold_ones, cold)
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
    if noticed < LEAST * decided:
        say(f"the score is below {LEAST:.0%}: kill the survivors with a test, or list them in "
            f"{EQUIVALENT.name} with the reason why no test can notice them")  # fmt: skip
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
