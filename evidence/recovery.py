"""Generated mixtures of every reward family: number of states and calibration."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from evidence.reward_logs import generate_family
from latentbandits.experiments.experiment import Experiment, Work
from latentbandits.learning.arms.learner import ArmsLearner
from latentbandits.learning.learners import align
from latentbandits.learning.logs.rows import make_family
from latentbandits.learning.reading import split_users
from latentbandits.models.checks import FloatArray
from latentbandits.options import Option, positive
from latentbandits.report.report import Claim, Report, Table

# One generated log, from which a model is learned and compared with the truth.

LEVEL = 0.9
_DRAWS = 1_000


class Calibration(NamedTuple):
    """Coverage of 90% intervals."""

    means: float  # share of true means inside their 90% intervals
    new_rewards: float  # share of held-out users' rewards inside their 90% intervals


def count_states(rewards: Any, n_states: int, seed: int) -> int:
    """Return the number of states that is chosen for a well-separated mixture."""
    log = generate_family(rewards, n_states=n_states, seed=seed).log
    learner = ArmsLearner(make_family(rewards, log.rewards))
    selection = learner.select(split_users(log, seed), None)
    return selection.chosen.n_states


def calibrate(rewards: Any, separation: float, seed: int) -> Calibration:
    """Learn 3 states without the bootstrap, and measure the coverage of 90% intervals."""
    truth = generate_family(rewards, separation=separation, seed=seed)
    learner = ArmsLearner(make_family(rewards, truth.log.rewards))
    selection = learner.select(split_users(truth.log, seed), (len(truth.means),))
    learned = selection.learner.learn(truth.log, selection.chosen, seed)
    means = learned.rewards()
    held = float("nan")
    if means.shape == truth.means.shape:
        low, high = intervals(learned.model, seed)
        order = align(means, truth.means)
        held = float(((low[order] <= truth.means) & (truth.means <= high[order])).mean())
    return Calibration(held, selection.judged.coverage(LEVEL))


def intervals(model: Any, seed: int) -> tuple[FloatArray, FloatArray]:
    """Return central 90% intervals of the mean rewards under the model's prior, `(S, A)` each."""
    n = model.n_states
    state = np.repeat(np.arange(n), _DRAWS)[None]
    rng = np.random.default_rng(seed)
    draws = model.sample_rewards(model.parameters(1), None, state, rng)[0]
    tail = (1 - LEVEL) / 2
    low, high = np.quantile(draws.reshape(n, _DRAWS, -1), [tail, 1 - tail], axis=1)
    return low, high


# `python -m evidence recovery`: recovery of generated mixtures, and coverage of intervals.

FAMILIES = ("gaussian", "bernoulli", "poisson", "exponential", "categorical")
STATES = (1, 2, 3, 5, 8)
SEEDS, CALIBRATION_SEEDS = 20, 100
SEPARATIONS = {"well separated": 25.0, "overlapping": 5.0}


class RecoveryExperiment(Experiment):
    """Test the chosen number of states and the calibration of mixtures of every reward family."""

    name = "recovery"
    help = "generated mixtures of every reward family: number of states and calibration"
    options = (
        Option("seeds", "logs for each number of states", SEEDS, positive),
        Option("calibration-seeds", "logs for calibration", CALIBRATION_SEEDS, positive),
        Option("families", "only these; by default all", several=True, metavar="FAMILY"),
    )

    def choices(self, arguments: argparse.Namespace) -> Mapping[str, Iterable[str]]:
        return {"families": FAMILIES}

    def measure(self, work: Work) -> Report:
        options = work.options
        families = options.families
        seeds = range(options.seed, options.seed + options.seeds)
        more = range(options.seed, options.seed + options.calibration_seeds)
        counting = {
            (family, n): [(family, n, i) for i in seeds]
            for family in families for n in STATES
        }  # fmt: skip
        calibrating = {
            (family, nats): [(family, nats, i) for i in more]
            for family in families for nats in SEPARATIONS.values()
        }  # fmt: skip
        chosen = work.map_groups("recovery, states", count_states, counting)
        calibrations = work.map_groups("recovery, calibration", calibrate, calibrating)
        return Report(
            claims=[
                claim for family in families for claim in _claims(family, chosen, calibrations)
            ],
            tables=[_states_table(families, chosen), _calibration_table(families, calibrations)],
        )


Chosen = Mapping[tuple[str, int], Sequence[int]]
Calibrations = Mapping[tuple[str, float], Sequence[Calibration]]


def _claims(family: str, chosen: Chosen, calibrations: Calibrations) -> list[Claim]:
    least = min(float(np.mean([n == s for n in chosen[family, s]])) for s in STATES)
    beyond = max(n - s for s in STATES for n in chosen[family, s])
    both = [one for nats in SEPARATIONS.values() for one in calibrations[family, nats]]
    means, rewards = _coverage(both)
    return [
        Claim(f"states-{family}", f"the number of states of {family} mixtures is found",
              "in at least 90% of logs for every number, never more than one too many",
              f"at least {least:.0%}; at most {max(beyond, 0)} too many",
              least >= 0.9 and beyond <= 1),
        Claim(f"means-{family}", f"90% intervals of learned {family} means are honest",
              "they hold 80 to 95%", f"{means:.1%}", 0.80 <= means <= 0.95),
        Claim(f"rewards-{family}", f"90% intervals of new users' {family} rewards are honest",
              "they hold 87 to 93%", f"{rewards:.1%}", 0.87 <= rewards <= 0.93),
    ]  # fmt: skip


def _coverage(calibrations: Sequence[Calibration]) -> tuple[float, float]:
    means, rewards = np.transpose(calibrations)
    return float(np.nanmean(means)), float(rewards.mean())


def _states_table(families: Sequence[str], chosen: Chosen) -> Table:
    def cell(family: str, s: int) -> str:
        found = chosen[family, s]
        wrong = sorted({n for n in found if n != s})
        text = f"{sum(n == s for n in found)} of {len(found)}"
        return text + (f" (else {', '.join(map(str, wrong))})" if wrong else "")

    rows = [(family, *(cell(family, s) for s in STATES)) for family in families]
    title = "Logs whose number of states is found, by the true number"
    return Table(title, ("family", *(f"S = {s}" for s in STATES)), rows)


def _calibration_table(families: Sequence[str], calibrations: Calibrations) -> Table:
    rows = []
    for family in families:
        cells = (_coverage(calibrations[family, nats]) for nats in SEPARATIONS.values())
        rows.append((family, *(f"{share:.1%}" for pair in cells for share in pair)))
    columns = [f"{name}: {what}" for name in SEPARATIONS for what in ("means", "new rewards")]
    return Table("Truths inside 90% intervals (no bootstrap)", ("family", *columns), rows)
