"""Fit one mixture of arms with a given number of states, without model selection or report."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from latentbandits.learning.arms.coordinate_ascent import TOLERANCE, Climbed, Problem, best_of
from latentbandits.learning.arms.families import ArmsModel, Rewards, make_family
from latentbandits.learning.arms.fitted import FittedArms, finish
from latentbandits.learning.arms.learner import check_size
from latentbandits.learning.arms.mixture import Mixture
from latentbandits.learning.logs.rows import Log


@dataclass(frozen=True, eq=False)
class MixtureFit:
    """The mixture of the highest ELBO: states by falling share, means with their uncertainty."""

    model: ArmsModel
    fitted: FittedArms
    elbo: float
    elbos: tuple[float, ...]  # of every pass; they never fall
    converged: bool

    @property
    def n_passes(self) -> int:
        return len(self.elbos)


def fit_mixture(
    log: Log,
    n_states: int,
    *,
    rewards: Rewards = "gaussian",
    noise: float | None = None,
    n_restarts: int = 10,
    tolerance: float = TOLERANCE,
    seed: int = 0,
    progress: Callable[[int], None] | None = None,
) -> MixtureFit:
    """Fit a variational mixture of `n_states` states (`learning/arms/mixture.py`).

    States with a share below half a percent are dropped. The model's prior covers the estimation
    error of the means only; `fit` also estimates the variation of users within a state.

    Args:
        log: users, actions and rewards.
        n_states: number of states S.
        rewards: family of the rewards.
        noise: standard deviation of Gaussian rewards; None: estimated.
        n_restarts: number of starts.
        tolerance: gain of the ELBO, in nats, below which passes end.
        seed: of the starts; the result is deterministic given it.
        progress: called with the number of passes done.

    >>> from latentbandits.learning.logs.rows import read_log
    >>> log = read_log({"u": [1, 1, 2, 2], "a": list("xyxy"), "r": [1, 0, 0, 1.2]}, "u", "a", "r")
    >>> fit_mixture(log, 2, noise=0.1).model.means.round(1)
    array([[1. , 0. ],
           [0. , 1.2]])
    """
    problem = mixture_problem(log, n_states, rewards, noise)
    if n_restarts < 1:
        raise ValueError(f"n_restarts must be at least 1; got {n_restarts}")
    climbed = best_of(
        problem, n_states, n_starts=n_restarts, tolerance=tolerance, seed=seed, progress=progress
    )
    return finished(problem, climbed)


def mixture_problem(log: Log, n_states: int, rewards: Rewards, noise: float | None) -> Problem:
    """Return the log as sufficient statistics; LogError if it cannot have so many states."""
    check_size(log, n_states)
    family = make_family(rewards, log.rewards, noise)
    return Problem.from_log(family, log)


def fit_from(problem: Problem, start: Mixture) -> MixtureFit:
    """Maximise the ELBO from one start only."""
    n_states = start.shares.shape[1]
    return finished(problem, best_of(problem, n_states, n_starts=0, extra=start))


def finished(problem: Problem, climbed: Climbed) -> MixtureFit:
    fitted = finish(problem, climbed)
    return MixtureFit(fitted.model(), fitted, fitted.elbo, climbed.elbos, climbed.converged)
