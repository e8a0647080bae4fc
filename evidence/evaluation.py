"""Off-policy estimators on generated logs with a known true value."""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from latentbandits.beliefs import joint
from latentbandits.evaluation import DecisionLog, evaluate
from latentbandits.evaluation.estimators import ESTIMATORS
from latentbandits.experiments.experiment import Experiment, Figures, Work
from latentbandits.models import GaussianArms
from latentbandits.models.checks import FloatArray, IntArray
from latentbandits.options import Option, positive
from latentbandits.policies import mTS
from latentbandits.policies.decision import draw
from latentbandits.report import drawing
from latentbandits.report.report import Claim, Estimate, Report, Table

# Generated logs of a problem in which the value of the candidate policy is known.

MEANS = np.array([[0.9, 0.5, 0.4, 0.1], [0.1, 0.9, 0.4, 0.5], [0.5, 0.1, 0.9, 0.4]])
NOISE = 0.5
N_ROUNDS = 8
TRUE_MODEL = GaussianArms(MEANS, NOISE)
WRONG_MODEL = GaussianArms(MEANS + 0.05 * np.array([1, -1, 1, -1]), NOISE)
"""The reward model of DR, whose every mean is wrong by .05."""

LOGGERS = ("uniform", "learning")
TEMPER = 0.3
UNIFORM_SHARE = 0.3
"""The learning logger plays Thompson sampling on WRONG_MODEL with log weights multiplied by TEMPER,
and a uniformly random action with probability UNIFORM_SHARE.
"""


def generate(logger: str, n_sessions: int, rng: np.random.Generator) -> DecisionLog:
    """Return a log of `n_sessions` sessions with exact propensities."""
    state = rng.integers(len(MEANS), size=n_sessions)
    log_weights = np.zeros((n_sessions, len(MEANS)))
    shape = (n_sessions, N_ROUNDS)
    action, reward, chance = np.empty(shape, np.int64), np.empty(shape), np.empty(shape)
    rows = np.arange(n_sessions)
    for t in range(N_ROUNDS):
        pi = _logging_probabilities(logger, log_weights)
        action[:, t] = draw(pi, rng)
        reward[:, t] = MEANS[state, action[:, t]] + NOISE * rng.standard_normal(n_sessions)
        chance[:, t] = pi[rows, action[:, t]]
        log_weights += WRONG_MODEL.log_likelihood(None, action[:, t], reward[:, t])
    return DecisionLog(action, reward, np.full(n_sessions, N_ROUNDS), MEANS.shape[1], chance)


def true_value(n_sessions: int, rng: np.random.Generator) -> FloatArray:
    """Return the rewards of simulated sessions of the candidate, mTS with the true model."""
    state = rng.integers(len(MEANS), size=n_sessions)
    log_weights = np.zeros((n_sessions, len(MEANS)))
    earned = np.zeros(n_sessions)
    best = MEANS.argmax(axis=1)
    for _ in range(N_ROUNDS):
        action: IntArray = best[joint.sample(log_weights, rng)]
        means = MEANS[state, action]
        earned += means
        reward = means + NOISE * rng.standard_normal(n_sessions)
        log_weights += TRUE_MODEL.log_likelihood(None, action, reward)
    return earned


def _logging_probabilities(logger: str, log_weights: FloatArray) -> FloatArray:
    n_actions = MEANS.shape[1]
    if logger == "uniform":
        return np.full((len(log_weights), n_actions), 1 / n_actions)
    plays = np.eye(n_actions)[WRONG_MODEL.means.argmax(axis=1)]
    sampled = joint.probabilities(TEMPER * log_weights) @ plays
    mixture: FloatArray = (1 - UNIFORM_SHARE) * sampled + UNIFORM_SHARE / n_actions
    return mixture


# Bias and standard deviation over 200 logs of 5,000 sessions, by an independent implementation.


EXPECTED = {
    "uniform": {
        "IPS": (-0.07, 0.78), "SNIPS": (-0.06, 0.25), "DR": (-0.03, 0.48), "SNDR": (-0.04, 0.25),
    },
    "learning": {
        "IPS": (0.0, 0.145), "SNIPS": (0.0, 0.058), "DR": (0.0, 0.108), "SNDR": (0.0, 0.057),
    },
}  # fmt: skip


# Measure the bias, spread and coverage of the off-policy estimators over many logs.

LOGS = 1000
SESSIONS = 5000
TRUTH_SESSIONS = 1_000_000


class Outcome(NamedTuple):
    """The value and interval of each estimator on one log; effective sample sizes by round."""

    estimates: Mapping[str, tuple[float, float, float]]
    sizes: Sequence[float]


_LOGS = {"uniform": "log of random actions", "learning": "log of a policy that learns"}


class EvaluationExperiment(Experiment):
    """Test the bias of off-policy estimates and the coverage of their intervals."""

    name = "evaluation"
    help = "off-policy estimators on logs whose answer is known: bias, spread, coverage"
    options = (
        Option("logs", "of each logger", LOGS, positive),
        Option("sessions", "a log", SESSIONS, positive),
    )

    def check(self, arguments: argparse.Namespace) -> None:
        if arguments.logs < 2:
            raise ValueError("give at least 2 --logs to measure the spread of estimates")

    def measure(self, work: Work) -> Report:
        options = work.options
        earned = true_value(TRUTH_SESSIONS, np.random.default_rng([options.seed, 9]))
        truth = Estimate.from_values(earned)
        jobs = {
            logger: [(logger, options.sessions, (options.seed, i, k)) for k in range(options.logs)]
            for i, logger in enumerate(LOGGERS)
        }
        outcomes = work.map_groups(self.name, measure, jobs)
        rows = [row for logger in outcomes for row in _rows(logger, outcomes[logger], truth.mean)]
        return Report(
            settings={"true_value": truth.mean},
            policies=rows,
            claims=_claims(rows, truth, options),
            tables=[_table(rows, truth)],
        )

    def draw(self, results: Mapping[str, Any]) -> Figures:
        """Draw a panel for each log: mean estimates, and one standard deviation."""
        loggers = list(dict.fromkeys(row["setting"] for row in results["policies"]))
        truth = results["settings"]["true_value"]
        logs, sessions = (results["settings"][key] for key in ("logs", "sessions"))
        title = f"{logs:,} logs of {sessions:,} sessions: mean and standard deviation"
        figure = drawing.new_figure(5.2, title, drawing.NARROW)
        panels = figure.subplots(len(loggers), 1, sharex=True, sharey=True)
        for axes, logger in zip(panels, loggers, strict=True):
            rows = [row for row in results["policies"] if row["setting"] == logger]
            values, spreads = ([row[key] for row in rows] for key in ("bias", "deviation"))
            places = range(len(rows))
            axes.errorbar([truth + bias for bias in values], places, xerr=spreads, fmt="o",
                          color=drawing.BLUE, ms=6, lw=1.8, capsize=3)  # fmt: skip
            axes.axvline(truth, color=drawing.ORANGE, lw=1.4)
            x = "estimated reward per session" if axes is panels[-1] else ""
            drawing.plain(axes, x=x, title=_LOGS.get(logger, logger))
            axes.set_yticks(places, [row["estimator"] for row in rows])
            axes.set_ylim(len(rows) - 0.4, -0.9)
            axes.annotate(" true reward", (truth, -0.8), color=drawing.ORANGE,
                          fontsize=drawing.SMALL, va="top")  # fmt: skip
        return {"evaluation": figure}


def measure(logger: str, n_sessions: int, seed: tuple[int, ...]) -> Outcome:
    """Generate one log and evaluate the candidate on it."""
    log = generate(logger, n_sessions, np.random.default_rng(seed))
    evaluation = evaluate(
        {"mTS": mTS(TRUE_MODEL)}, log, model=WRONG_MODEL, horizon=N_ROUNDS,
        estimators=list(ESTIMATORS),
    )  # fmt: skip
    estimates = {
        row["estimator"]: (row["value"], row["low"], row["high"])
        for row in evaluation.estimates
        if row["policy"] == "mTS"
    }
    sizes = [
        r["ess"] for r in evaluation.rounds if r["policy"] == "mTS" and r["estimator"] == "IPS"
    ]
    return Outcome(estimates, sizes)


def _rows(logger: str, outcomes: Sequence[Outcome], truth: float) -> list[dict[str, Any]]:
    sizes = np.mean([outcome.sizes for outcome in outcomes], axis=0)
    rows = []
    for name in ESTIMATORS:
        value, low, high = np.array([outcome.estimates[name] for outcome in outcomes]).T
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
        bias, deviation = EXPECTED[row["setting"]][row["estimator"]]
        sizes = ", ".join(f"{size:.0f}" for size in row["ess_rounds_1_4_8"])
        measured = str(Estimate(row["bias"], row["bias_stderr"])), f"{row['deviation']:.3f}"
        reference = f"{bias:+.2f}, {deviation:.3f}"
        held = f"{100 * row['coverage']:.0f}%"
        body.append((row["setting"], row["estimator"], *measured, reference, held, sizes))
    columns = ("log", "estimator", "bias", "sd", "reference", "95% holds", "ESS at 1, 4, 8")
    return Table(f"mTS over {N_ROUNDS} rounds; true value {truth}", columns, body)


def _claims(
    rows: Sequence[Mapping[str, Any]], truth: Estimate, options: argparse.Namespace
) -> list[Claim]:
    by_name = {row["estimator"]: row for row in rows if row["setting"] == "learning"}
    worst = max(
        abs(row["bias"]) / math.hypot(row["bias_stderr"], truth.stderr) for row in by_name.values()
    )
    ratios = [row["deviation"] / EXPECTED["learning"][name][1] for name, row in by_name.items()]
    gain = by_name["IPS"]["deviation"] / by_name["SNDR"]["deviation"]
    last = {row["setting"]: row["ess_rounds_1_4_8"][-1] for row in rows}
    enough = options.logs >= 400 and options.sessions == SESSIONS

    def judged(holds: bool, clear: bool = enough) -> bool | None:
        return bool(holds) if clear else None

    return [
        Claim("OPE1", "on a log with exploration no estimator is biased",
              "within 3 standard errors of 0", f"at most {worst:.1f} standard errors",
              judged(worst < 3)),
        Claim("OPE2", "their spread is that of an independent implementation", "ratio .8 to 1.2",
              f"{min(ratios):.2f} to {max(ratios):.2f}",
              judged(min(ratios) > 0.8 and max(ratios) < 1.2)),
        *(
            Claim(f"OPE3-{name}", f"95% intervals of {name} hold on a log with exploration",
                  "93% to 97%", f"{100 * by_name[name]['coverage']:.1f}%",
                  judged(0.93 <= by_name[name]["coverage"] <= 0.97, options.logs >= 1000))
            for name in ("IPS", "DR", "SNDR")
        ),
        Claim("OPE4", "self-normalising pays", "sd of IPS at least 1.5 times that of SNDR",
              f"{gain:.1f} times", judged(gain > 1.5)),
        Claim("OPE5", "after 8 rounds a uniform log says nothing about a policy that learns",
              "effective sample size below 100 (uniform), above 100 (exploring)",
              f"{last['uniform']:.0f}, {last['learning']:.0f}",
              judged(last["uniform"] < 100 < last["learning"])),
    ]  # fmt: skip
