"""Test on logs of growing size the n^-1/2 rate of the moments, and their agreement with EM."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from typing import TYPE_CHECKING

import numpy as np

from latentbandits.experiments.spectral.measure import METHODS, Job, Outcome, measure, slope
from latentbandits.options import positive
from latentbandits.report.estimate import Estimate
from latentbandits.report.progress import Progress
from latentbandits.report.report import Claim, Report, Table

if TYPE_CHECKING:
    import polars

SIZES = (2_500, 5_000, 10_000, 20_000)
LOGS = 10
TOLERANCE = 0.1
"""The largest accepted difference of the fitted power from -1/2."""


class SpectralExperiment:
    """Test that epsilon and delta shrink with the amount of offline data (Section 4.2)."""

    name = "spectral"
    help = "learning the model by moments and by EM: how errors fall with the data"

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--logs", type=positive, default=LOGS, help=f"of each size (default {LOGS})"
        )
        sizes = ", ".join(str(size) for size in SIZES)
        parser.add_argument(
            "--sizes", type=positive, nargs="+", default=list(SIZES), metavar="USERS",
            help=f"users of a log (default {sizes})",
        )  # fmt: skip

    def check(self, arguments: argparse.Namespace) -> None:
        if len(set(arguments.sizes)) < 2:
            raise ValueError("give at least two different --sizes to fit a slope")

    def run(
        self, arguments: argparse.Namespace, executor: Executor | None, progress: Progress
    ) -> Report:
        from latentbandits.experiments.spectral.figure import draw

        started = time.perf_counter()
        jobs = [
            Job(size, arguments.seed + i)
            for size in sorted(set(arguments.sizes))
            for i in range(arguments.logs)
        ]
        progress.start("spectral", len(jobs))
        outcomes = []
        for outcome in _run(jobs, executor):
            outcomes.append(outcome)
            progress.advance(1)
        return Report(
            experiment=self.name,
            settings={
                "sizes": arguments.sizes,
                "logs": arguments.logs,
                "seed": arguments.seed,
                "errors": _rows(outcomes),
            },
            seconds=time.perf_counter() - started,
            policies=[],
            claims=_claims(outcomes),
            tables=[_table(outcomes)],
            frames={"errors": _frame(outcomes)},
        ).drawn_by(draw)


def _run(jobs: Sequence[Job], executor: Executor | None) -> Iterator[Outcome]:
    return map(measure, jobs) if executor is None else executor.map(measure, jobs)


def _claims(outcomes: Sequence[Outcome]) -> list[Claim]:
    sizes = np.array([float(outcome.n_users) for outcome in outcomes])
    seeds = np.array([outcome.seed for outcome in outcomes])
    claims = []
    for what in ("means", "shares"):
        errors = np.array([getattr(outcome, what)[0] for outcome in outcomes])
        power = slope(sizes, errors, seeds)
        claims.append(
            Claim(
                f"spectral-{what}",
                f"the error of the moments' {what} falls with the data as about n^-1/2",
                f"power -0.5 to within {TOLERANCE:g}",
                f"power {power}",
                _near(power, -0.5),
            )
        )
    ratios = np.array([outcome.means[1] / outcome.means[2] for outcome in outcomes])
    claims.append(
        Claim(
            "spectral-em",
            "EM started at the moments ends at the same point as EM with restarts",
            "the same error of the means to within 1% in every log",
            f"ratio of errors {ratios.min():.3f} to {ratios.max():.3f}",
            bool(np.abs(ratios - 1).max() < 0.01),
        )
    )
    allowed = np.array([outcome.means[2] / outcome.means[3] for outcome in outcomes])
    claims.append(
        Claim(
            "em-allowed",
            "the error of EM is close to that of an oracle with the true labels",
            "an error of the means below 1.5 times the oracle's in every log",
            f"{Estimate.from_values(allowed)} times on average, {allowed.max():.2f} at most",
            bool(allowed.max() < 1.5),
        )
    )
    return claims


def _near(power: Estimate, expected: float) -> bool | None:
    """Return whether the power is within the tolerance; None if its error leaves this open."""
    distance = abs(power.mean - expected)
    if distance <= TOLERANCE:
        return True
    return None if distance - 2 * power.stderr <= TOLERANCE else False


def _rows(outcomes: Sequence[Outcome]) -> list[dict[str, float | str]]:
    rows: list[dict[str, float | str]] = []
    for size in sorted({outcome.n_users for outcome in outcomes}):
        of_size = [outcome for outcome in outcomes if outcome.n_users == size]
        for i, method in enumerate(METHODS):
            means = Estimate.from_values(np.array([outcome.means[i] for outcome in of_size]))
            shares = Estimate.from_values(np.array([outcome.shares[i] for outcome in of_size]))
            rows.append(
                {"users": size, "method": method, "means": means.mean, "shares": shares.mean,
                 "means_stderr": means.stderr, "shares_stderr": shares.stderr}
            )  # fmt: skip
    return rows


def _table(outcomes: Sequence[Outcome]) -> Table:
    rows = _rows(outcomes)
    body = []
    for size in dict.fromkeys(row["users"] for row in rows):
        of_size = [row for row in rows if row["users"] == size]
        cells = [f"{row['means']:.4f} ±{row['means_stderr']:.4f}" for row in of_size]
        body.append(
            (f"{size:,}", *cells, f"{of_size[0]['shares']:.4f}", f"{of_size[2]['shares']:.4f}")
        )
    columns = ("users", *(f"means: {method}" for method in METHODS), "shares: moments", "em")
    return Table("Root mean square errors, 5 states, 10 actions, 30 rounds", columns, body)


def _frame(outcomes: Sequence[Outcome]) -> polars.DataFrame:
    import polars

    return polars.DataFrame(
        [
            {"users": o.n_users, "seed": o.seed, "method": method, "means": o.means[i],
             "shares": o.shares[i]}
            for o in outcomes
            for i, method in enumerate(METHODS)
        ]
    )  # fmt: skip
