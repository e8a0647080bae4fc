"""A fitted mixture, and the model made from it with its prior for a new user's parameters.

The prior variance of the model's mean rewards is the sum of two parts: the estimation error of a
state's mean (`information`), and the variation of users within a state. The second part is given by
a strength nu in rewards: users' parameters have the family's prior around the state's, worth nu
rewards. An infinite nu means no variation.
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
    """One mixture (R = 1), states sorted by falling share, with both parts of its uncertainty."""

    family: Family
    mixture: Mixture
    elbo: float
    log_evidence: float  # the ELBO corrected for overlapping states (`evidence`)
    estimation: FloatArray  # (S, A): variance of the estimate of each mean reward
    strength: float = inf  # nu: strength, in rewards, of the prior for the variation within a state

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
        """Return the family's model, with both parts in its prior variance."""
        variance = self.estimation + self.within
        shares = self.mixture.state_prior()[0]
        return self.family.model(self.mixture.phi[0], variance, shares, self.mixture.noise[0])

    def with_strength(self, strength: float) -> FittedArms:
        return replace(self, strength=strength)

    def widened(self, variance: FloatArray) -> FittedArms:
        """Return a copy whose estimation variance is at least `variance` (S, A)."""
        return replace(self, estimation=np.maximum(self.estimation, variance))


def finish(problem: Problem, climbed: Climbed, *, most_users: int = MOST_USERS) -> FittedArms:
    """Measure the estimation error and the evidence of a climbed mixture.

    The loss of information from unknown labels is measured on at most `most_users` users.
    """
    mixture = climbed.mixture
    elbo = float(climbed.elbo[0])
    information = observed(problem, mixture, most_users=most_users)
    evidence = log_evidence(problem.family, elbo, information)
    return FittedArms(problem.family, mixture, elbo, evidence, information.variance)
