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
from latentbandits.learning.arms.evidence import log_evidence
from latentbandits.learning.arms.families.family import ArmsModel, Family
from latentbandits.learning.arms.information import MOST_USERS, observed
from latentbandits.learning.arms.mixture import Mixture
from latentbandits.models.checks import FloatArray


@dataclass(frozen=True, eq=False)
class FittedArms:
    """One mixture (R = 1), states by falling share, with both parts of its uncertainty."""

    family: Family
    mixture: Mixture
    elbo: float
    log_evidence: float  # the ELBO without what it loses where states overlap (`evidence`)
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


def finish(problem: Problem, climbed: Climbed, *, most_users: int = MOST_USERS) -> FittedArms:
    """Measure the estimation error and the evidence of a climbed mixture.

    What unknown labels cost is measured on `most_users` users at most.
    """
    mixture = climbed.mixture
    elbo = float(climbed.elbo[0])
    information = observed(problem, mixture, most_users=most_users)
    evidence = log_evidence(problem.family, elbo, information)
    return FittedArms(problem.family, mixture, elbo, evidence, information.variance)
