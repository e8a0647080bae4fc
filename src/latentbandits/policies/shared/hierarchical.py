"""Hierarchical Thompson sampling: users' parameters share an unknown mean.

theta_i ~ N(m, S0) with m ~ N(m_q, S_q), rewards linear with noise sigma. With G = sum xx'/sigma^2,
B = sum xr/sigma^2 and P0 = S0^-1, user i's message about m is
A = G - G (P0 + G)^-1 G and c = B - G (P0 + G)^-1 B, and m given everything is N(Q^-1 h, Q^-1) with
Q = S_q^-1 + sum A_i and h = S_q^-1 m_q + sum c_i: exact, and the order of rewards does not matter.
"""

from __future__ import annotations

from abc import ABC
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, NamedTuple

import numpy as np

from latentbandits.models import checks
from latentbandits.models.checks import FloatArray, IntArray
from latentbandits.models.visit import Visit
from latentbandits.policies.checked import Asked, Outcome
from latentbandits.policies.shared import chunks
from latentbandits.policies.shared.base import (
    PopulationPolicy,
    SampledPopulation,
    ScoredPopulation,
    Sums,
    add_to_sums,
    empty_sums,
    invert,
    played_features,
)


class HierBelief(NamedTuple):
    """The sums of every user, and the precision and information of the mean m."""

    rounds: FloatArray  # (B,)
    users: tuple[Sums, ...]  # chunks of users: sum xx' and sum xr
    precision: FloatArray  # (B, d, d): Q
    information: FloatArray  # (B, d): h


class NormalVector(NamedTuple):
    """N(mean, covariance) for each of B populations."""

    mean: FloatArray  # (B, d)
    covariance: FloatArray  # (B, d, d)


@dataclass(frozen=True, eq=False)
class _Hierarchical(PopulationPolicy[HierBelief], ABC):
    """The exact belief over the common mean, and over a user's parameters given it."""

    order_free: ClassVar[bool] = True

    n_users: int
    n_features: int
    noise: float = 1.0
    prior_spread: float = 1.0
    hyper_spread: float = 1.0

    def __post_init__(self) -> None:
        checks.positive_count("n_users", self.n_users)
        checks.positive_count("n_features", self.n_features)
        checks.positive_number("noise", self.noise)
        checks.positive_number("prior_spread", self.prior_spread)
        checks.positive_number("hyper_spread", self.hyper_spread)

    def init(self, n_sessions: int = 1) -> HierBelief:
        n, d = checks.session_count(n_sessions, None), self.n_features
        return HierBelief(
            np.zeros(n),
            chunks.repeat(empty_sums(d), n, self.n_users),
            np.broadcast_to(np.eye(d) / self.hyper_spread**2, (n, d, d)),
            np.zeros((n, d)),
        )

    @cached_property
    def _prior_precision(self) -> FloatArray:
        return np.eye(self.n_features) / self.prior_spread**2

    def mean_posterior(self, belief: HierBelief) -> NormalVector:
        """Return the posterior of the common mean m."""
        covariance = invert(belief.precision)
        return NormalVector((covariance @ belief.information[:, :, None])[:, :, 0], covariance)

    def user_posterior(self, belief: HierBelief, user: IntArray) -> NormalVector:
        """Return the posterior of theta_i of one user in each population, m integrated out."""
        conditional, common = self._given_mean(belief, user), self.mean_posterior(belief)
        gain = conditional.covariance / self.prior_spread**2
        mean = conditional.mean + (gain @ common.mean[:, :, None])[:, :, 0]
        return NormalVector(
            mean, conditional.covariance + gain @ common.covariance @ gain.swapaxes(1, 2)
        )

    def _given_mean(self, belief: HierBelief, user: IntArray) -> NormalVector:
        """Return theta_i | m ~ N(mean + covariance P0 m, covariance): the part without m."""
        sums = chunks.take(belief.users, user)
        covariance = invert(self._prior_precision + sums.gram / self.noise**2)
        mean = (covariance @ sums.products[:, :, None])[:, :, 0] / self.noise**2
        return NormalVector(mean, covariance)

    def _message(self, sums: Sums) -> tuple[FloatArray, FloatArray]:
        """Return the message of the user's rewards about m: precision A and information c."""
        gram, products = sums.gram / self.noise**2, sums.products / self.noise**2
        columns = np.concatenate([gram, products[:, :, None]], axis=2)
        solved = np.linalg.solve(self._prior_precision + gram, columns)
        taken = gram @ solved
        return gram - taken[:, :, :-1], products - taken[:, :, -1]

    def _learn(self, belief: HierBelief, outcome: Outcome) -> HierBelief:
        x = played_features(outcome)
        before = chunks.take(belief.users, outcome.context.user)
        after = add_to_sums(before, x, outcome.reward)
        both = Sums(*(np.concatenate(pair) for pair in zip(before, after, strict=True)))
        precision, information = self._message(both)
        n = len(outcome.action)
        return HierBelief(
            belief.rounds + outcome.moves,
            chunks.put(belief.users, outcome.context.user, after),
            belief.precision + (precision[n:] - precision[:n]),
            belief.information + (information[n:] - information[:n]),
        )


@dataclass(frozen=True, eq=False)
class HierTS(SampledPopulation[HierBelief], _Hierarchical):
    """Hierarchical Thompson sampling (Hong et al. 2022), exact: draw m, then theta_i given m.

    `prior_spread` is the deviation of a user from the mean (S0 = prior_spread^2 I), and
    `hyper_spread` the deviation of the mean from 0 (S_q). As `hyper_spread` goes to 0 this is LinTS
    per user, and as `prior_spread` goes to 0 one LinTS for all. Unit vectors as features make K
    Gaussian actions.

    Args:
        n_users: number of users of the population.
        n_features: number of features of an action.
        noise: standard deviation of a reward.
        prior_spread: deviation of a user's weights from their mean (S0 = prior_spread^2 I).
        hyper_spread: deviation of that mean from 0 (S_q = hyper_spread^2 I).
        propensity_draws: posterior draws that are counted for a propensity; 0: none.

    >>> from latentbandits import Decision
    >>> policy = HierTS(n_users=3, n_features=2, noise=0.5)
    >>> visit = Visit(np.array([2]), np.array([[[1.0, 0.0], [0.0, 2.0]]]))
    >>> belief = policy.update(policy.init(), visit, Decision.logged([1]), [1.0])
    >>> policy.mean_posterior(belief).mean.round(3)
    array([[0.   , 0.242]])
    """

    propensity_draws: int = 0

    def _draw(
        self, belief: HierBelief, visit: Visit, n_draws: int, rng: np.random.Generator
    ) -> FloatArray:
        """Draw mean rewards of every action, `(B, n_draws, K)`."""
        assert visit.features is not None
        posterior = self.user_posterior(belief, visit.user)
        factor = np.linalg.cholesky(posterior.covariance)
        draws = rng.standard_normal((len(visit.user), n_draws, self.n_features))
        theta = posterior.mean[:, None] + draws @ factor.swapaxes(1, 2)
        return theta @ visit.features.swapaxes(1, 2)


@dataclass(frozen=True, eq=False)
class HierUCB(ScoredPopulation[HierBelief], _Hierarchical):
    """The posterior of `HierTS`, played by its mean plus `width` standard deviations.

    Where contexts vary by themselves, one standard deviation explores enough and Thompson sampling,
    which draws all d dimensions, explores too much (docs/evidence/related-systems-measured.md, ii).

    Args:
        n_users: number of users of the population.
        n_features: number of features of an action.
        noise: standard deviation of a reward.
        prior_spread: deviation of a user's weights from their mean (S0 = prior_spread^2 I).
        hyper_spread: deviation of that mean from 0 (S_q = hyper_spread^2 I).
        width: standard deviations that are added to the posterior mean.

    >>> policy = HierUCB(n_users=3, n_features=2, noise=0.5)
    >>> visit = Visit(np.array([2]), np.array([[[1.0, 0.0], [0.0, 2.0]]]))
    >>> policy.decide(policy.init(), visit, np.random.default_rng(0)).action
    array([1])
    """

    width: float = 1.0

    def _scores(self, belief: HierBelief, asked: Asked) -> FloatArray:
        posterior = self.user_posterior(belief, asked.context.user)
        mean = (asked.context.features @ posterior.mean[:, :, None])[:, :, 0]
        variance = ((asked.context.features @ posterior.covariance) * asked.context.features).sum(
            axis=2
        )
        score: FloatArray = mean + self.width * np.sqrt(variance)
        return score
