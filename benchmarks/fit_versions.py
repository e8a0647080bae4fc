"""`python -m benchmarks.fit_versions`: the processor seconds of `fit` beside an earlier commit's.

Both learn from the same logs, in turns: `examples/data/drinks.csv`, generated clicks, and the
ratings of MovieLens latest-small with `--data FOLDER`. The earlier `fit` has its defaults; this one
has them too, and `--quick`.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from pathlib import Path

import numpy as np
from evidence.reward_logs import generate_family

from benchmarks._commands import measure_command
from benchmarks.throughput import old_source

OLD = "136f829"
_ROOT = Path(__file__).parents[1]


def compare_versions() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--commit", default=OLD, help=f"the earlier commit, {OLD}")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--data", type=Path, help="folder with ml-latest-small")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        old = old_source(folder, arguments.commit)
        for name, words in _logs(folder, arguments.data).items():
            kinds = {"before": (old, []), "now": (None, []), "quick": (None, ["--quick"])}
            seconds: dict[str, list[float]] = {kind: [] for kind in kinds}
            for _ in range(arguments.turns):
                for kind, (source, options) in kinds.items():
                    command = ["fit", *words, *options, "--out", str(folder / kind)]
                    seconds[kind].append(measure_command(command, source)[0])
            costs = {kind: statistics.median(values) for kind, values in seconds.items()}
            sys.stdout.write(
                f"{name}: {costs['before']:.1f} s at {arguments.commit}; {costs['now']:.1f} s now, "
                f"{costs['now'] / costs['before']:.2f} times; {costs['quick']:.1f} s with --quick, "
                f"{costs['quick'] / costs['before']:.2f} times\n"
            )
    return 0


def _logs(folder: Path, data: Path | None) -> dict[str, list[str]]:
    """Return the words of `fit` that name each log and its columns."""

    def words(path: Path, *columns: str) -> list[str]:
        named = zip(("--user", "--action", "--reward"), columns, strict=True)
        return [str(path), *(word for pair in named for word in pair)]

    clicks = folder / "clicks.csv"
    log = generate_family("bernoulli", 3_000, 40, 3, 12, seed=0).log
    rows = np.column_stack([log.users, log.actions, log.rewards])
    np.savetxt(clicks, rows, "%d", ",", header="user,action,reward", comments="")
    logs = {
        "drinks": words(_ROOT / "examples/data/drinks.csv", "customer", "drink", "stars"),
        "clicks": words(clicks, "user", "action", "reward"),
    }
    if data is not None:
        ratings = data / "ml-latest-small/ratings.csv"
        logs["ml-latest-small"] = words(ratings, "userId", "movieId", "rating")
    return logs


if __name__ == "__main__":
    raise SystemExit(compare_versions())
