"""Matrix completion beside Spark MLlib's and at scale, and the MovieLens experiment by the clock.

The real data are looked for where LATENTBANDITS_DATA says, then in ../shared/data/ml-1m.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.report import Report, Table, Target
from latentbandits.experiments.movielens import halves
from latentbandits.experiments.movielens_data import FILES, keep_active, load
from latentbandits.learning.generate import GeneratedRatings, generate_ratings
from latentbandits.learning.linear.completion import Completion, complete

RANK, REG, SWEEPS = 10, 0.1, 10
TOLERANCE = 0.01  # beside Spark: enough when a sweep lowers the objective by less than a hundredth
TURNS = 5
BESIDE = Path(__file__).resolve().parents[2] / "shared" / "data" / "ml-1m"

Mask = np.ndarray[Any, np.dtype[np.bool_]]


def main() -> Report:
    folder = Path(os.environ.get("LATENTBANDITS_DATA") or BESIDE)
    there = all((folder / name).is_file() for name in FILES)
    notes = (
        [] if there else [f"there is no MovieLens 1M in {folder}: its targets were NOT measured"]
    )
    half = _filtered_half(folder) if there else None
    ratio, weighed_ratio, excess, rows = _beside_spark(notes)
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:  # a process of its own, so that its peak of memory is its own
        n, seconds, peak = pool.apply(_twenty_million)
    rows.append((f"ours, {n:,} generated ratings, {SWEEPS} sweeps", seconds, "-"))
    paper, default = (_reproduce(folder, o) if there else None for o in (["--users", "100"], []))
    targets = (
        Target("filtered MovieLens half, rank 20, 20 sweeps", half, at_most=3, unit="s"),
        Target("1M generated ratings: Spark MLlib ALS / ours", ratio, at_least=20),
        Target("  ours with intercepts and weights, as many rewards", weighed_ratio, at_least=20),
        Target("  our held-out RMSE less Spark's", excess, at_most=0, unit=""),
        Target("20M generated ratings, rank 10, 10 sweeps", seconds, at_most=180, unit="s"),
        Target("  peak memory, making the ratings included", peak, at_most=3, unit="GiB"),
        Target("reproduce movielens --users 100, once loaded", paper, at_most=30, unit="s"),
        Target("reproduce movielens, defaults, once loaded", default, at_most=300, unit="s"),
    )
    table = Table(
        f"completion, rank {RANK}, at most {SWEEPS} sweeps, ridge weighted by counts",
        ("who", "seconds", "held-out RMSE"),
        tuple(rows),
    )
    return Report("completion and the MovieLens experiment", (table,), targets, tuple(notes))


def _filtered_half(folder: Path) -> float:
    """The train half of the experiment: 229k ratings."""
    data = keep_active(load(folder), 200)
    half, _ = halves(len(data.ratings), 0, 0)
    ratings = data.users[half], data.movies[half], data.ratings[half]
    return min(_seconds(lambda: complete(*ratings, rank=20, sweeps=20)) for _ in range(TURNS))


def _beside_spark(
    notes: list[str],
) -> tuple[float | None, float | None, float | None, list[tuple[str, float, float | str]]]:
    """The same objective, rank and ridge on the same ratings, in turns. Spark makes its ten
    sweeps, which it cannot end early; ours end once they change little.

    Completion with intercepts and weights gets half of the pairs, with 1 to 3 rewards each: about
    as many rewards as Spark, which has no weights, reads as rows of their own.
    """
    made = generate_ratings(6040, 3706, 8, density=0.046, n_features=10, seed=0)
    held = np.random.default_rng(1).random(len(made.rewards)) < 0.1
    fits: list[Completion] = []
    train = made.users[~held], made.actions[~held], made.rewards[~held]

    rng = np.random.default_rng(2)
    half = rng.random(len(train[0])) < 0.5
    pairs = tuple(column[half] for column in train)
    counts = rng.integers(1, 4, len(pairs[0])).astype(np.float64)
    weighed_seconds: list[float] = []

    def ours() -> None:
        fits.append(_complete(made, *train))

    def weighed() -> None:
        _complete(made, *pairs, biases=True, weights=counts)

    name = f"{int((~held).sum()):,} generated ratings"
    reason = _no_spark()
    if reason is not None:
        notes.append(f"{reason}: the comparison with Spark was NOT measured")
        seconds = min(_seconds(ours) for _ in range(TURNS))
        return None, None, None, [(f"ours, {name}", seconds, _error(fits[-1], made, held))]

    def both() -> float:
        weighed_seconds.append(_rested(weighed))
        return _rested(ours)

    seconds, theirs, their_error = _in_turns_with_spark(both, made, held)
    our_error = _error(fits[-1], made, held)
    rows: list[tuple[str, float, float | str]] = [
        (f"ours, {name}, {len(fits[-1].history)} sweeps", seconds, our_error),
        (f"ours with intercepts, {len(counts):,} pairs of {counts.sum():,.0f} rewards",
         min(weighed_seconds), "-"),
        (f"Spark MLlib, {name}", theirs, their_error),
    ]  # fmt: skip
    return theirs / seconds, theirs / min(weighed_seconds), our_error - their_error, rows


def _complete(
    made: GeneratedRatings, users: Any, actions: Any, rewards: Any, **more: Any
) -> Completion:
    return complete(
        users,
        actions,
        rewards,
        rank=RANK,
        reg=REG,
        weighting="counts",  # what Spark's ALS minimises
        sweeps=SWEEPS,
        tolerance=TOLERANCE,
        n_users=len(made.state),
        n_actions=len(made.action_vectors),
        **more,
    )


def _error(fit: Completion, made: GeneratedRatings, held: Mask) -> float:
    residual = fit.predict(made.users[held], made.actions[held]) - made.rewards[held]
    return float(np.sqrt(np.mean(residual**2)))


def _no_spark() -> str | None:
    if shutil.which("java") is None:
        return "there is no Java on this machine"
    try:
        import pyspark  # noqa: F401
    except ImportError as error:
        return f"pyspark could not be imported ({error})"
    return None


def _in_turns_with_spark(
    ours: Callable[[], float], made: GeneratedRatings, held: Mask
) -> tuple[float, float, float]:
    """Best seconds that `ours` returns, and of Spark's fit, warm and on cached data; its RMSE."""
    import polars
    from pyspark.ml.recommendation import ALS
    from pyspark.sql import SparkSession

    with tempfile.TemporaryDirectory() as scratch:
        for part, rows in (("train", ~held), ("held", held)):
            columns = {
                "user": made.users[rows].astype(np.int32),
                "item": made.actions[rows].astype(np.int32),
                "rating": made.rewards[rows].astype(np.float32),
            }
            polars.DataFrame(columns).write_parquet(f"{scratch}/{part}.parquet")
        builder = SparkSession.builder.master("local[*]")
        for key, value in (
            ("spark.driver.memory", "4g"),
            ("spark.log.level", "ERROR"),
            ("spark.ui.enabled", "false"),
            ("spark.ui.showConsoleProgress", "false"),
        ):
            builder = builder.config(key, value)
        session = builder.getOrCreate()
        try:
            train = session.read.parquet(f"{scratch}/train.parquet").repartition(4).cache()
            train.count()
            als = ALS(rank=RANK, regParam=REG, userCol="user", itemCol="item", ratingCol="rating",
                      seed=0, coldStartStrategy="drop")  # fmt: skip
            als.setMaxIter(2).fit(train)  # warms the JVM up
            als.setMaxIter(SWEEPS)
            models = []

            def theirs() -> None:
                models.append(als.fit(train))
                models[-1].userFactors.count()
                models[-1].itemFactors.count()

            turns = [(ours(), _rested(theirs)) for _ in range(TURNS)]
            scored = models[-1].transform(session.read.parquet(f"{scratch}/held.parquet"))
            error = scored.selectExpr("sqrt(avg(pow(prediction - rating, 2)))").first()[0]
            return min(turn[0] for turn in turns), min(turn[1] for turn in turns), float(error)
        finally:
            session.stop()


def _twenty_million() -> tuple[int, float, float]:
    made = generate_ratings(138_000, 27_000, 8, density=0.0054, n_features=10, seed=0)
    seconds = _seconds(lambda: made.complete(rank=RANK, reg=REG, weighting="counts", sweeps=SWEEPS))
    unit = 2**30 if sys.platform == "darwin" else 2**20
    return len(made.rewards), seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


def _reproduce(folder: Path, options: list[str]) -> float:
    """The command as a user runs it; its clock starts when the ratings are loaded."""
    with tempfile.TemporaryDirectory() as out:
        program = "import sys; from latentbandits.cli import main; sys.exit(main(sys.argv[1:]))"
        command = [sys.executable, "-c", program, "reproduce", "movielens"]
        command += ["--data", str(folder), "--out", out, *options]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        return float(json.loads((Path(out) / "results.json").read_text())["seconds"])


def _rested(work: Callable[[], object]) -> float:
    """Seconds, after a moment in which the other can finish what it left undone."""
    time.sleep(1.0)
    return _seconds(work)


def _seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started
