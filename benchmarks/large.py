"""Logs larger than memory: passes over partitions on disk, their growth with the log, and Spark.

`LATENTBANDITS_LARGE` names the sizes in millions of rewards (default: 10,20,100),
`LATENTBANDITS_PASSES` how many passes a mean is of (default 20), and `LATENTBANDITS_SCRATCH` the
folder for generated logs (default: the system's), in which a hundred million rewards take about
5 GB. `LATENTBANDITS_SPARK=0` leaves Spark out.
"""

from __future__ import annotations

import multiprocessing
import os
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from benchmarks.report import Report, Table, Target
from latentbandits.learning.backends.out_of_core import Partitions

N_ACTIONS, N_STATES, PER_USER, RANK = 1_000, 5, 50, 10
PASSES = int(os.environ.get("LATENTBANDITS_PASSES", "20"))
FILE = 5_000_000  # rows
TURNS = 20


class Measured(NamedTuple):
    """Processor seconds of one size."""

    n: int
    partitions: float
    arms: float  # a pass
    completion: float  # a pass
    peak: float  # GiB
    disk: float  # GB
    made: Partitions


def main() -> Report:
    sizes = [int(float(n) * 1e6) for n in _setting("LATENTBANDITS_LARGE", "10,20,100").split(",")]
    context = multiprocessing.get_context("spawn")
    results: list[Measured] = []
    notes = [f"a pass is the mean of {PASSES} passes; 20 passes are 20 times that mean"]
    with tempfile.TemporaryDirectory(dir=os.environ.get("LATENTBANDITS_SCRATCH")) as above:
        for n in sizes:
            folder = Path(above) / str(n)
            folder.mkdir()
            with context.Pool(1) as pool:
                pool.apply(generate, (folder / "log", n))
            with context.Pool(1) as pool:  # a process of its own, so that its peak is its own
                results.append(pool.apply(measure, (str(folder), n)))
            shutil.rmtree(folder / "log")
            print(results[-1][:-1], file=sys.stderr, flush=True)  # noqa: T201
        smallest, largest = results[0], results[-1]
        with context.Pool(1) as pool:
            completion_growth = pool.apply(growth_in_turns, (smallest.made, largest.made))
    spark = driver = None
    if _setting("LATENTBANDITS_SPARK", "1") == "1":
        spark, driver = _beside_spark(min(20_000_000, largest.n), notes)
    else:
        notes.append("Spark was NOT measured: LATENTBANDITS_SPARK=0")
    scale = largest.n / 1e6
    growth = (largest.arms / largest.n) / (smallest.arms / smallest.n)
    minutes = (largest.partitions + 20 * largest.arms) / 60
    targets = (
        Target(f"{scale:g}M rewards: partitions and 20 passes of arms", minutes,
               at_most=20 * largest.n / 100e6, unit="min"),
        Target("  peak memory", largest.peak, at_most=2, unit="GiB"),
        Target(f"  a pass per reward, over that of {smallest.n / 1e6:g}M", growth, at_most=1.3),
        Target("completion, rank 10: a pass per 20M rewards",
               largest.completion * 20e6 / largest.n, at_most=60, unit="s"),
        Target(f"  a bucket per reward, over one of {smallest.n / 1e6:g}M, in turns",
               completion_growth, at_most=1.3),
        Target("Spark local[2] / out of core, a pass", spark, at_most=10),
        Target("  peak memory of the driver, over that with a tenth of the rows", driver,
               at_most=1.1),
    )  # fmt: skip
    rows = tuple(
        (f"{m.n / 1e6:g}M", m.partitions, m.arms, m.completion, m.peak, m.disk) for m in results
    )
    columns = ("rewards", "partitions, s", "pass of arms, s", "pass of completion, s",
               "peak, GiB", "disk, GB")  # fmt: skip
    title = f"out of core, processor seconds: {N_ACTIONS:,} actions, {N_STATES} states"
    return Report("logs larger than memory", (Table(title, columns, rows),), targets, tuple(notes))


def generate(folder: Path, n: int) -> None:
    """Write a log of `n` rewards, `PER_USER` of each user, in files of shuffled rows."""
    folder.mkdir()
    rng = np.random.default_rng(0)
    means = rng.standard_normal((N_STATES, N_ACTIONS)).astype(np.float32)
    for i, start in enumerate(range(0, n, FILE)):
        size = min(FILE, n - start)
        users = rng.permutation(np.repeat(np.arange(size // PER_USER), PER_USER))
        state = rng.integers(0, N_STATES, size // PER_USER)[users]
        actions = rng.integers(0, N_ACTIONS, len(users))
        rewards = means[state, actions] + rng.standard_normal(len(users), np.float32)
        pl.DataFrame(
            {
                "user": users + start // PER_USER,
                "action": actions.astype(np.int32),
                "reward": rewards.astype(np.float64),
            }
        ).write_parquet(folder / f"{i:03}.parquet", compression="lz4")


def measure(folder: str, n: int) -> Measured:
    """Partition the log, climb a mixture of arms and sweep a completion, out of core."""
    from latentbandits.learning.backends.opening import size_of
    from latentbandits.learning.backends.out_of_core import (
        OutOfCoreEngine,
        write_partitions,
    )
    from latentbandits.learning.logs.rows import LogColumns
    from latentbandits.learning.logs.tables import DETECTED
    from latentbandits.report.report import Silent

    parts = Path(folder) / "parts"
    parts.mkdir()
    columns = LogColumns("user", "action", "reward", None, DETECTED)
    made, partitions = _timed(lambda: write_partitions(f"{folder}/log", columns, parts, Silent()))
    engine = OutOfCoreEngine(made)
    arms = arms_pass(engine)
    _, completion = _timed(lambda: engine.fold(*_sweep()))
    return Measured(n, partitions, arms, completion, _peak(), size_of(parts) / 1e9, made)


def growth_in_turns(small: Partitions, large: Partitions) -> float:
    """Return the cost per reward of completion on a bucket of a large log over one of a small log.

    Buckets of both are summed in turns, so that the load of the machine is the same for both. The
    result is the median of the ratios.
    """
    sweep, items = _sweep()

    def cost(partitions: Partitions, number: int) -> float:
        log, load = _timed(lambda: partitions.load(number))
        _, work = _timed(lambda: sweep.summarise(sweep.prepare(log), items))
        return (load + work) / log.n_events

    turns = range(min(TURNS, small.n_buckets, large.n_buckets))
    return float(np.median([cost(large, i) / cost(small, i) for i in turns]))


def _sweep() -> tuple[Any, Any]:
    """Return a pass of completion and the vectors of the actions that it begins with."""
    from latentbandits.learning.linear.alternating import (
        CompletionSettings,
        SweepPass,
        first_items,
    )

    settings = CompletionSettings(RANK, biases=True)
    return SweepPass(settings), first_items(N_ACTIONS, settings, 0.0)


def arms_pass(
    engine: Any, clock: Callable[[], float] = time.process_time, passes: int = PASSES
) -> float:
    """Seconds of a pass of one mixture of arms."""
    from latentbandits.learning.arms.mixture import SAMPLE, Problem, ascend, grouped_starts
    from latentbandits.models.arms.gaussian import Gaussian

    problem = Problem.from_log(Gaussian(), engine)
    sample = problem.sample(SAMPLE, 0)
    start = grouped_starts(problem, sample, N_STATES, 1, np.random.default_rng(0))
    actual, seconds = _timed(
        lambda: ascend(problem, start, tolerance=-1.0, max_passes=passes), clock
    )
    assert len(actual.elbos) == passes
    return seconds / passes


def _beside_spark(n: int, notes: list[str]) -> tuple[float | None, float | None]:
    """Return two ratios: a pass on Spark over one out of core, and the driver's peak memory."""
    if shutil.which("java") is None:
        notes.append("there is no Java on this machine: Spark was NOT measured")
        return None, None
    context = multiprocessing.get_context("spawn")
    peaks: list[float] = []
    with tempfile.TemporaryDirectory(dir=os.environ.get("LATENTBANDITS_SCRATCH")) as folder:
        for size in (n // 10, n):
            log = Path(folder) / str(size)
            with context.Pool(1) as pool:
                pool.apply(generate, (log, size))
            with context.Pool(1) as pool:
                peaks.append(pool.apply(_driver_peak, (str(log),)))
        notes.append(f"the driver on Spark: {peaks[0]:.3f} and {peaks[1]:.3f} GiB at its peak")
        with context.Pool(1) as pool:
            ratio: float = pool.apply(_spark_ratio, (str(log),))
    return ratio, peaks[1] / peaks[0]


def _spark_ratio(log: str) -> float:
    """Wall time of a pass on Spark over that of the out-of-core engine, on the same machine."""
    seconds = []
    for engine, master in (("out_of_core", None), ("spark", "local[2]")):
        with _opened(log, engine, master) as outcome:
            arms_pass(outcome.engine, time.perf_counter)  # warm
            seconds.append(arms_pass(outcome.engine, time.perf_counter))
    return seconds[1] / seconds[0]


def _driver_peak(log: str) -> float:
    """Peak memory in GiB of a driver that sums arms and completion on Spark.

    It is that of the Python process: in local mode the Java process is the executor too.
    """
    with _opened(log, "spark", "local[2]") as outcome:
        arms_pass(outcome.engine, passes=2)
        outcome.engine.fold(*_sweep())
    return _peak()


def _opened(log: str, engine: Any, master: str | None) -> Any:
    from latentbandits.learning.backends.opening import Opening, opened
    from latentbandits.report.report import Silent

    opening = Opening(engine=engine, master=master, scratch=str(Path(log).parent))
    return opened(log, opening, Silent())


def _peak() -> float:
    """Peak memory of this process, in GiB."""
    unit = 2**30 if sys.platform == "darwin" else 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


def _timed(
    work: Callable[[], Any], clock: Callable[[], float] = time.process_time
) -> tuple[Any, float]:
    started = clock()
    result = work()
    return result, clock() - started


def _setting(name: str, default: str) -> str:
    return os.environ.get(name) or default
