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

from latentbandits.learning.arms.coordinate_ascent import Climbed, Problem
from latentbandits.learning.arms.families import ArmsModel
from latentbandits.learning.arms.mixture import Mixture
from latentbandits.learning.arms.standard_errors import MOST_USERS, Observed, observed
from latentbandits.models.arms.learnable import Learnable
from latentbandits.models.checks import FloatArray

# The log evidence of a mixture, used to choose the number of states.
#
# The ELBO treats the users' states as independent of the parameters. If states overlap, it is too
# low, and the gap grows with the number of states, so a smaller number of states would be chosen.
# Laplace's method at the same maximum uses the observed information I (Louis 1982); the ELBO uses
# the information of labelled rewards:
#
#     log p(rewards) = ELBO + 1/2 log(det I_labelled / det I_observed) - centre
#
# The last term is the same correction for the mean m_a of the pooled prior, which is estimated from
# the same log. With a prior on m_a worth one reward, and n[s, a] rewards of a state,
#
#     centre = 1/2 sum_a d log(1 + sum_s kappa n[s, a] / (kappa + n[s, a])),
#
# with d the number of free parameters of an action. Without this term a model of one state would
# pay no penalty for its means, because they equal m_a. If states do not overlap, the first
# correction vanishes. The S! permutations of the states are not counted, because that would reward
# states that are identical.


def log_evidence(family: Learnable, elbo: float, information: Observed) -> float:
    """Return the log evidence of a mixture with this ELBO and this observed information."""
    kappa, n = information.strength, information.counts
    known = 1.0 + (kappa * n / (kappa + n)).sum(axis=0)
    centre = 0.5 * family.n_parameters * float(np.log(known).sum())
    return elbo + information.missing - centre


@dataclass(frozen=True, eq=False)
class FittedArms:
    """One mixture (R = 1), states sorted by falling share, with both parts of its uncertainty."""

    family: Learnable
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
        return self._settled.within(self.mixture.phi[0], self.strength)

    @property
    def means(self) -> FloatArray:
        """Mean rewards, `(S, A)`."""
        return self._settled.moments(self.mixture.phi[0])[0]

    @property
    def log_actions(self) -> FloatArray | None:
        """Log probabilities of actions `(S, A)`; None if states do not tell which are chosen."""
        return self.family.log_actions(self.mixture.phi[0])

    @property
    def _settled(self) -> Learnable:
        """The family with the noise of this mixture."""
        return self.family.at_noise(self.mixture.noise[0])

    def model(self) -> ArmsModel:
        """Return the family's model, with both parts in its prior variance."""
        variance = self.estimation + self.within
        shares = self.mixture.state_prior()[0]
        model: ArmsModel = self._settled.learned(self.mixture.phi[0], variance, shares)
        return model

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
