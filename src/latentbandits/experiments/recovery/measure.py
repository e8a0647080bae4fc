"""One generated log, from which a model is learned and compared with the truth."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from latentbandits.models.checks import FloatArray

LEVEL = 0.9
_DRAWS = 1_000


class StatesJob(NamedTuple):
    """The choice of the number of states of a well-separated mixture."""

    rewards: Any
    n_states: int
    seed: int


class CalibrationJob(NamedTuple):
    """The fit of a mixture with a known number of states."""

    rewards: Any
    separation: float
    seed: int


class Calibration(NamedTuple):
    """Coverage of 90% intervals, for one kind of rewards and one separation."""

    rewards: str
    separation: float
    means: float  # share of true means inside their 90% intervals
    new_rewards: float  # share of held-out users' rewards inside their 90% intervals


def count_states(job: StatesJob) -> int:
    """Return the chosen number of states."""
    from latentbandits.learning.arms.families import make_family
    from latentbandits.learning.arms.learner import ArmsLearner
    from latentbandits.learning.fitting import split_users
    from latentbandits.learning.generate_arms import generate_family
    from latentbandits.report.progress import Silent

    log = generate_family(job.rewards, n_states=job.n_states, seed=job.seed).log
    learner = ArmsLearner(make_family(job.rewards, log.rewards))
    selection = learner.select(*split_users(log, job.seed), None, job.seed, Silent())
    return selection.chosen.n_states


def calibrate(job: CalibrationJob) -> Calibration:
    """Learn 3 states without the bootstrap, and measure the coverage of 90% intervals."""
    from latentbandits.learning.alignment import align
    from latentbandits.learning.arms.families import make_family
    from latentbandits.learning.arms.learner import ArmsLearner
    from latentbandits.learning.fitting import split_users
    from latentbandits.learning.generate_arms import generate_family
    from latentbandits.report.progress import Silent

    truth = generate_family(job.rewards, separation=job.separation, seed=job.seed)
    kept, held_out = split_users(truth.log, job.seed)
    learner = ArmsLearner(make_family(job.rewards, truth.log.rewards))
    selection = learner.select(kept, held_out, (len(truth.means),), job.seed, Silent())
    learned = selection.learner.learn(truth.log, selection.chosen, job.seed)
    means = learned.rewards()
    held = float("nan")
    if means.shape == truth.means.shape:
        low, high = intervals(learned.model, job.seed)
        order = align(means, truth.means)
        held = float(((low[order] <= truth.means) & (truth.means <= high[order])).mean())
    return Calibration(job.rewards, job.separation, held, selection.judged.coverage(LEVEL))


def intervals(model: Any, seed: int) -> tuple[FloatArray, FloatArray]:
    """Return central 90% intervals of the mean rewards under the model's prior, `(S, A)` each."""
    n = model.n_states
    state = np.repeat(np.arange(n), _DRAWS)[None]
    rng = np.random.default_rng(seed)
    draws = model.sample_rewards(model.parameters(1), None, state, rng)[0]
    tail = (1 - LEVEL) / 2
    low, high = np.quantile(draws.reshape(n, _DRAWS, -1), [tail, 1 - tail], axis=1)
    return low, high
