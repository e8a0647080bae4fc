"""A fitted mixture and the model that is made of it: where a new user's parameters may lie.

The prior of the model's mean rewards has two parts, which add as variances: the estimation error
of a state's mean (`information`), and the variation of users within a state. The second is a
strength nu in rewards: users' parameters have the family's prior around the state's, worth nu
rewards; infinity is no variation.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf

import numpy as np

from latentbandits.learning.arms.climb import Climbed, Problem
from latentbandits.learning.arms.families.family import ArmsModel, Family
from latentbandits.learning.arms.information import estimation_variance
from latentbandits.learning.arms.mixture import Mixture
from latentbandits.models.checks import FloatArray


@dataclass(frozen=True, eq=False)
class FittedArms:
    """One mixture (R = 1), states by falling share, with both parts of its uncertainty."""

    family: Family
    mixture: Mixture
    elbo: float
    estimation: FloatArray  # (S, A): variance of the estimate of each mean reward
    strength: float = inf  # nu: rewards that the variation within a state is worth

    @property
    def within(self) -> FloatArray:
        """Variance of users' mean rewards within a state, `(S, A)`."""
        if self.strength == inf:
            return np.zeros_like(self.estimation)
        return self.family.within(self.mixture.phi[0], self.mixture.noise[0], self.strength)

    @property
    def means(self) -> FloatArray:
        """Mean rewards, `(S, A)`."""
        return self.family.moments(self.mixture.phi[0])[0]

    def model(self) -> ArmsModel:
        """The family's own model, whose prior has both parts."""
        variance = self.estimation + self.within
        shares = self.mixture.state_prior()[0]
        return self.family.model(self.mixture.phi[0], variance, shares, self.mixture.noise[0])

    def with_strength(self, strength: float) -> FittedArms:
        return replace(self, strength=strength)

    def widened(self, variance: FloatArray) -> FittedArms:
        """The same with an estimation error of at least this `variance` (S, A)."""
        return replace(self, estimation=np.maximum(self.estimation, variance))


def finish(problem: Problem, climbed: Climbed, *, exact: bool = True) -> FittedArms:
    """Measure the estimation error of a climbed mixture.

    Without `exact` it is the variational posterior's own, which is quicker and too small where
    states overlap.
    """
    mixture = climbed.mixture
    if exact:
        variance = estimation_variance(problem, mixture)
    else:
        variance = problem.family.moments(mixture.phi[0])[1]
    return FittedArms(problem.family, mixture, float(climbed.elbo[0]), variance)
