"""`fit` on two million rewards, by processor time and memory; a mixture beside StepMix.

A sweep of completion as a fold over users (`fit`) is timed beside `complete`, in one piece.

StepMix (latent class models with missing values) is the peer: the same starts, the same tolerance,
its own task, 20,000 users x 100 yes-or-no answers of which a third are missing.
"""

from __future__ import annotations

import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from evidence.reward_logs import generate_family

from benchmarks._commands import measure_command
from benchmarks.report import Report, Table, Target
from latentbandits.learning.backends.backend import MemoryEngine
from latentbandits.learning.generate import generate_ratings
from latentbandits.learning.linear.alternating import CompletionSettings, complete_fold
from latentbandits.learning.logs.rows import Log
from latentbandits.learning.mixture import fit_mixture

USERS, ROUNDS, ACTIONS, STATES = 20_000, 100, 100, 5
STARTS = 3
RANKS = (5, 10, 20)
TURNS = 5
TOLERANCE = 1e-5  # nats of a user: a pass that gains less ends the climb


def main() -> Report:
    notes: list[str] = []
    plain, plain_peak = _fit(["--states", str(STATES), "--bootstrap", "0"])
    whole, whole_peak = _fit(["--states", "auto", "--bootstrap", "20"])
    ours, theirs = _beside_stepmix(notes)
    rows = (
        (f"fit, {STATES} states, no bootstrap", plain, plain_peak),
        ("fit, --states auto --bootstrap 20", whole, whole_peak),
        (f"fit_mixture, bernoulli, {STARTS} starts", ours, None),
        (f"StepMix, binary_nan, {STARTS} starts", theirs, None),
    )
    ratio = None if theirs is None else theirs / ours
    sweeps = [_sweeps(rank) for rank in RANKS]
    folds = tuple((rank, fold, piece) for rank, (fold, piece) in zip(RANKS, sweeps, strict=True))
    return Report(
        "Learning",
        (
            Table("2,000,000 rewards", ("", "processor s", "peak GiB"), rows),
            Table(
                "a sweep over 1,000,000 ratings, processor s",
                ("rank", "fold over users", "one piece"),
                folds,
            ),
        ),
        (
            Target("2M rewards, 5 states, no bootstrap", plain, at_most=30, unit="s"),
            Target("  peak memory", plain_peak, at_most=1, unit="GiB"),
            Target("2M rewards, --states auto --bootstrap 20", whole, at_most=300, unit="s"),
            Target("20,000 x 100 answers: StepMix / ours", ratio, at_least=1),
            *(
                Target(f"sweep of rank {rank}: fold / one piece", fold / piece, at_most=1.1)
                for rank, fold, piece in folds
            ),
        ),
        tuple(notes),
    )


def _fit(options: list[str]) -> tuple[float, float]:
    """Run the command on a generated log; processor seconds and peak memory of its process."""
    import polars

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log.parquet"
        log = generate_family("gaussian", USERS, ROUNDS, STATES, ACTIONS, seed=0).log
        columns = {"user": log.users, "action": log.actions, "reward": log.rewards}
        polars.DataFrame(columns).write_parquet(path)
        del log, columns
        words = ["fit", str(path), "--kind", "arms", *options]
        return measure_command([*words, "--out", str(Path(folder) / "model")])


def _sweeps(rank: int) -> tuple[float, float]:
    """Return the processor seconds of a sweep as a fold and in one piece, least of several turns.

    Both are differences of seven sweeps and two, so that preparation is left out.
    """
    made = generate_ratings(6040, 3706, 8, density=0.046, n_features=10, seed=0)
    users, actions = (
        tuple(map(str, range(n))) for n in (len(made.state), len(made.action_vectors))
    )
    engine = MemoryEngine(Log(made.users, made.actions, made.rewards, users, actions))

    def fold(sweeps: int) -> None:
        complete_fold(engine, CompletionSettings(rank, 0.1, "counts", True, sweeps=sweeps))

    def piece(sweeps: int) -> None:
        made.complete(rank=rank, reg=0.1, weighting="counts", biases=True, sweeps=sweeps)

    def sweep(work: Callable[[int], None]) -> float:
        return (_processor_seconds(work, 7) - _processor_seconds(work, 2)) / 5

    work = (fold, piece)
    for one in work:
        one(1)
    turns = [[sweep(one) for one in work] for _ in range(TURNS)]
    folded, whole = (min(turn[i] for turn in turns) for i in range(2))
    return folded, whole


def _processor_seconds(work: Callable[[int], None], sweeps: int) -> float:
    start = time.process_time()
    work(sweeps)
    return time.process_time() - start


def _beside_stepmix(notes: list[str]) -> tuple[float, float | None]:
    """Processor seconds of ours and of StepMix on the same answers."""
    rng = np.random.default_rng(0)
    rates = rng.beta(2, 2, (STATES, ACTIONS))
    state = rng.integers(STATES, size=USERS)
    answers = (rng.random((USERS, ACTIONS)) < rates[state]).astype(np.float64)
    missing = rng.random(answers.shape) < 1 / 3
    users, actions = np.nonzero(~missing)
    ids = tuple(str(u) for u in range(USERS)), tuple(str(a) for a in range(ACTIONS))
    log = Log(users, actions, answers[~missing], *ids)
    start = time.process_time()
    fit_mixture(log, STATES, rewards="bernoulli", n_restarts=STARTS, tolerance=TOLERANCE * USERS)
    ours = time.process_time() - start
    try:
        from stepmix.stepmix import StepMix
    except ImportError as error:
        notes.append(
            f"stepmix could not be imported ({error}): its target was NOT measured. Install the "
            "peers with: python -m pip install --group bench"
        )
        return ours, None
    answers[missing] = np.nan
    model: Any = StepMix(
        n_components=STATES, measurement="binary_nan", n_init=STARTS, abs_tol=TOLERANCE,
        rel_tol=0.0, max_iter=1000, random_state=0, progress_bar=0, verbose=0,
    )  # fmt: skip
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(answers)
    return ours, time.process_time() - start
