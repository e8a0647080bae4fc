"""Off-policy estimators on generated logs with a known true value."""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from evidence import evaluation_expected as expected
from evidence import evaluation_problem as problem
from latentbandits.evaluation import evaluate
from latentbandits.evaluation.estimators import ESTIMATORS
from latentbandits.models.checks import FloatArray
from latentbandits.options import positive
from latentbandits.policies import mTS
from latentbandits.report.drawing import BLUE, ORANGE, SMALL, WIDTH, plain
from latentbandits.report.report import Claim, Estimate, Progress, Report, Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["EvaluationExperiment"]


# Measure the bias, spread and coverage of the off-policy estimators over many logs.

LOGS = 1000
SESSIONS = 5000
TRUTH_SESSIONS = 1_000_000


class Job(NamedTuple):
    logger: str
    n_sessions: int
    seed: tuple[int, ...]


class Outcome(NamedTuple):
    """The value and interval of each estimator on one log; effective sample sizes by round."""

    estimates: Mapping[str, tuple[float, float, float]]
    sizes: Sequence[float]


class EvaluationExperiment:
    """Test the bias of off-policy estimates and the coverage of their intervals."""

    name = "evaluation"
    help = "off-policy estimators on logs whose answer is known: bias, spread, coverage"

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--logs", type=positive, default=LOGS, help=f"of each logger (default {LOGS})"
        )
        parser.add_argument(
            "--sessions", type=positive, default=SESSIONS, help=f"a log (default {SESSIONS})"
        )

    def check(self, arguments: argparse.Namespace) -> None:
        if arguments.logs < 2:
            raise ValueError("give at least 2 --logs to measure the spread of estimates")

    def run(
        self, arguments: argparse.Namespace, executor: Executor | None, progress: Progress
    ) -> Report:

        started = time.perf_counter()
        earned = problem.true_value(TRUTH_SESSIONS, np.random.default_rng([arguments.seed, 9]))
        truth = Estimate.from_values(earned)
        outcomes: dict[str, list[Outcome]] = {}
        for i, logger in enumerate(problem.LOGGERS):
            jobs = [
                Job(logger, arguments.sessions, (arguments.seed, i, k))
                for k in range(arguments.logs)
            ]
            progress.start(f"{self.name}, {logger} log", len(jobs))
            outcomes[logger] = []
            for outcome in _run(jobs, executor):
                outcomes[logger].append(outcome)
                progress.advance(1)
        rows = [row for logger in outcomes for row in _rows(logger, outcomes[logger], truth.mean)]
        return Report(
            experiment=self.name,
            settings=dict(
                logs=arguments.logs,
                sessions=arguments.sessions,
                seed=arguments.seed,
                true_value=truth.mean,
            ),
            seconds=time.perf_counter() - started,
            policies=rows,
            claims=_claims(rows, outcomes, truth, arguments),
            tables=[_table(rows, truth)],
        ).drawn_by(draw)


def measure(job: Job) -> Outcome:
    """Generate one log and evaluate the candidate on it."""
    log = problem.generate(job.logger, job.n_sessions, np.random.default_rng(job.seed))
    evaluation = evaluate(
        {"mTS": mTS(problem.TRUE_MODEL)},
        log,
        model=problem.WRONG_MODEL,
        horizon=problem.N_ROUNDS,
        estimators=list(ESTIMATORS),
    )
    estimates = {
        row["estimator"]: (row["value"], row["low"], row["high"])
        for row in evaluation.estimates
        if row["policy"] == "mTS"
    }
    sizes = [
        r["ess"] for r in evaluation.rounds if r["policy"] == "mTS" and r["estimator"] == "IPS"
    ]
    return Outcome(estimates, sizes)


def _run(jobs: Sequence[Job], executor: Executor | None) -> Iterator[Outcome]:
    if executor is None:
        return map(measure, jobs)
    return executor.map(measure, jobs, chunksize=10)


def _values(outcomes: Sequence[Outcome], estimator: str) -> FloatArray:
    return np.array([outcome.estimates[estimator] for outcome in outcomes])


def _rows(logger: str, outcomes: Sequence[Outcome], truth: float) -> list[dict[str, Any]]:
    sizes = np.mean([outcome.sizes for outcome in outcomes], axis=0)
    rows = []
    for name in ESTIMATORS:
        value, low, high = _values(outcomes, name).T
        n = len(value)
        covered = (low <= truth) & (truth <= high)
        rows.append(
            {
                "policy": "mTS",
                "setting": logger,
                "estimator": name,
                "bias": float(value.mean() - truth),
                "bias_stderr": float(value.std(ddof=1) / math.sqrt(n)),
                "deviation": float(value.std(ddof=1)),
                "coverage": float(covered.mean()),
                "ess_rounds_1_4_8": [float(sizes[t]) for t in (0, 3, 7)],
            }
        )
    return rows


def _table(rows: Sequence[Mapping[str, Any]], truth: Estimate) -> Table:
    body: list[tuple[str, ...]] = []
    for row in rows:
        reference = expected.ESTIMATORS[row["setting"]][row["estimator"]]
        sizes = ", ".join(f"{size:.0f}" for size in row["ess_rounds_1_4_8"])
        body.append(
            (
                row["setting"],
                row["estimator"],
                str(Estimate(row["bias"], row["bias_stderr"])),
                f"{row['deviation']:.3f}",
                f"{reference.bias:+.2f}, {reference.deviation:.3f}",
                f"{100 * row['coverage']:.0f}%",
                sizes,
            )
        )
    columns = ("log", "estimator", "bias", "sd", "reference", "95% holds", "ESS at 1, 4, 8")
    return Table(f"mTS over {problem.N_ROUNDS} rounds; true value {truth}", columns, body)


def _claims(
    rows: Sequence[Mapping[str, Any]],
    outcomes: Mapping[str, Sequence[Outcome]],
    truth: Estimate,
    arguments: argparse.Namespace,
) -> list[Claim]:
    learning = [row for row in rows if row["setting"] == "learning"]
    claims = []
    enough = arguments.logs >= 400 and arguments.sessions == SESSIONS
    worst = max(abs(row["bias"]) / math.hypot(row["bias_stderr"], truth.stderr) for row in learning)
    claims.append(
        Claim(
            "OPE1",
            "on a log with exploration no estimator is biased",
            "within 3 standard errors of 0",
            f"at most {worst:.1f} standard errors",
            bool(worst < 3) if enough else None,
        )
    )
    ratios = [
        row["deviation"] / expected.ESTIMATORS["learning"][row["estimator"]].deviation
        for row in learning
    ]
    claims.append(
        Claim(
            "OPE2",
            "their spread is that of an independent implementation",
            "ratio .8 to 1.2",
            f"{min(ratios):.2f} to {max(ratios):.2f}",
            bool(min(ratios) > 0.8 and max(ratios) < 1.2) if enough else None,
        )
    )
    by_name = {row["estimator"]: row for row in learning}
    for name in ("IPS", "DR", "SNDR"):
        cover = by_name[name]["coverage"]
        claims.append(
            Claim(
                f"OPE3-{name}",
                f"95% intervals of {name} hold on a log with exploration",
                "93% to 97%",
                f"{100 * cover:.1f}%",
                bool(0.93 <= cover <= 0.97) if arguments.logs >= 1000 else None,
            )
        )
    gain = by_name["IPS"]["deviation"] / by_name["SNDR"]["deviation"]
    claims.append(
        Claim(
            "OPE4",
            "self-normalising pays",
            "sd of IPS at least 1.5 times that of SNDR",
            f"{gain:.1f} times",
            bool(gain > 1.5) if enough else None,
        )
    )
    last = {
        logger: np.mean([o.sizes[-1] for o in logger_outcomes])
        for logger, logger_outcomes in outcomes.items()
    }
    claims.append(
        Claim(
            "OPE5",
            "after 8 rounds a uniform log says nothing about a policy that learns",
            "effective sample size below 100 (uniform), above 100 (exploring)",
            f"{last['uniform']:.0f}, {last['learning']:.0f}",
            bool(last["uniform"] < 100 < last["learning"]) if enough else None,
        )
    )
    return claims


# The figure of every estimator's bias and spread, for each kind of log.


def draw(results: Mapping[str, Any]) -> dict[str, Figure]:
    """Draw a panel for each log: mean estimates, and one standard deviation."""
    from matplotlib.figure import Figure

    loggers = list(dict.fromkeys(row["setting"] for row in results["policies"]))
    truth = results["settings"]["true_value"]
    figure = Figure(figsize=(WIDTH, 3.2), layout="constrained")
    panels = figure.subplots(1, len(loggers), sharex=True, sharey=True)
    for axes, logger in zip(panels, loggers, strict=True):
        rows = [row for row in results["policies"] if row["setting"] == logger]
        values, spreads = ([row[key] for row in rows] for key in ("bias", "deviation"))
        places = range(len(rows))
        axes.errorbar([truth + bias for bias in values], places, xerr=spreads, fmt="o", color=BLUE,
                      ms=6, lw=1.8, capsize=3)  # fmt: skip
        axes.axvline(truth, color=ORANGE, lw=1.4)
        plain(axes)
        axes.set_yticks(places, [row["estimator"] for row in rows])
        axes.set_ylim(len(rows) - 0.4, -0.9)
        axes.annotate(" true value", (truth, -0.8), color=ORANGE, fontsize=SMALL, va="top")
        axes.set_title(f"{logger} log", fontsize=10)
        axes.set_xlabel("estimated reward of a session", fontsize=SMALL)
    logs, sessions = (results["settings"][key] for key in ("logs", "sessions"))
    figure.suptitle(f"{logs:,} logs of {sessions:,} sessions: mean and deviation of each estimator",
                    fontsize=11)  # fmt: skip
    return {"evaluation": figure}
