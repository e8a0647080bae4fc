"""Print the mutation score of a seeded sample of mutants, which mutmut makes and runs.

    python -m tools.mutation --mutants 500 --seed 1

mutmut (pyproject.toml has its settings) keeps outcomes in `mutants/`: an interrupted run goes on
from there, and a function that changed is tried again. A mutant that no test can notice is listed
in `equivalent_mutants.txt` with the reason; it does not count.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

FOLDER = Path("mutants")
EQUIVALENT = Path(__file__).with_name("equivalent_mutants.txt")
LEAST = 0.9
"""The command fails below this score."""
FIRST = "latentbandits.policies.decision.*"
"""Mutants of a small module: mutmut makes those of all modules, and checks the tests, with them."""
OUTCOMES = {None: "left", 0: "survived", 5: "uncovered", 33: "uncovered"} | dict.fromkeys(
    (24, -24, 36, 152, 255), "timeout"
)
"""The meaning of mutmut's exit codes; all others are of a test that failed."""


def outcomes(folder: Path = FOLDER) -> dict[str, str]:
    """Return the outcome of every mutant that mutmut made; "left" if it was not run."""
    codes: dict[str, int | None] = {}
    for path in folder.rglob("*.meta"):
        codes |= json.loads(path.read_text())["exit_code_by_key"]
    return {name: OUTCOMES.get(code, "killed") for name, code in codes.items()}


def sample(names: Iterable[str], n: int, seed: int) -> list[str]:
    """Return the `n` names whose hashes with the seed are the smallest.

    A change of the source therefore replaces few of them.
    """
    return sorted(names, key=lambda name: hashlib.sha256(f"{seed} {name}".encode()).digest())[:n]


def equivalents(text: str) -> dict[str, str]:
    """Return the reasons of equivalent mutants, by function and changed line."""
    entries = [block.splitlines() for block in text.split("\n\n") if not block.startswith("#")]
    return {"\n".join(lines[:3]): lines[3].strip() for lines in entries if lines}


def described(name: str) -> str:
    """Return the description of a mutant, as `equivalent_mutants.txt` has it."""
    return describe(name, _mutmut("show", name, captured=True))


def describe(name: str, difference: str) -> str:
    """Return the description of a mutant from the difference that mutmut shows."""
    function = name.rpartition("__mutmut_")[0].rpartition(".")[2]
    plain = ".".join(part for part in function.split("ǁ")[1:]) or function.removeprefix("x_")
    lines = difference.splitlines()
    path = next(line[4:] for line in lines if line.startswith("--- "))
    signs = {sign: [line[1:].strip() for line in lines
                    if line.startswith(sign) and not line.startswith(3 * sign)]
             for sign in "-+"}  # fmt: skip
    before, after = (" ".join(signs[sign]) for sign in "-+")
    return f"{path}::{plain}\n- {before}\n+ {after}"


def _mutmut(*words: str, captured: bool = False) -> str:
    command = [str(Path(sys.executable).with_name("mutmut")), *words]
    done = subprocess.run(command, check=False, text=True, capture_output=captured)
    if done.returncode:
        sys.exit(f"mutmut {words[0]} failed: {done.stderr or 'see above'}")
    return done.stdout or ""


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tools.mutation",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--mutants", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--processes", type=int, default=2)
    arguments = parser.parse_args()
    processes = ("--max-children", str(arguments.processes))
    _mutmut("run", *processes, FIRST)
    wanted = sample(outcomes(), arguments.mutants, arguments.seed)
    left = [name for name in wanted if outcomes()[name] == "left"]
    if left:
        _mutmut("run", *processes, *left)
    return summarise({name: outcomes()[name] for name in wanted})


def summarise(found: dict[str, str]) -> int:
    """Print the mutants that no test noticed, and the score; return the exit code."""
    reasons = equivalents(EQUIVALENT.read_text())
    for name, outcome in found.items():
        if outcome in ("survived", "uncovered"):
            text = described(name)
            found[name] = "equivalent" if text in reasons else outcome
            if text not in reasons:
                sys.stdout.write(f"{outcome}: {text}\n\n")
    counts = Counter(found.values())
    decided = len(found) - counts["equivalent"]
    noticed = counts["killed"] + counts["timeout"]
    sys.stdout.write(
        f"{dict(counts)}\nmutation score {noticed / max(decided, 1):.1%}: {noticed} of {decided} "
        f"noticed, {counts['equivalent']} equivalent mutants not counted\n"
    )
    if noticed < LEAST * decided:
        sys.stdout.write(
            f"the score is below {LEAST:.0%}: kill the survivors with a test, or list them in "
            f"{EQUIVALENT.name} with the reason why no test can notice them\n"
        )
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
