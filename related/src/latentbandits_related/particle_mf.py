"""Particle Thompson sampling for matrix factorisation (Kawale et al. 2015), with the right weights.

Rewards are N(U_i'V_j, sigma^2) for user i and item j, with priors U_i ~ N(0, s_u^2 I) and
V_j ~ N(0, s_v^2 I). Each particle has all U and V; cell counts and sums are shared.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from latentbandits.beliefs import joint
from latentbandits.models import checks, history
from latentbandits.models.checks import FloatArray, IntArray
from latentbandits.models.numerics.arrays import Keys, log_normal_density
from latentbandits.models.visit import Visit, check_visit
from latentbandits.policies.checked import Outcome
from latentbandits.policies.shared.base import SampledPopulation, invert


class ParticleBelief(NamedTuple):
    """Cells that all particles share, and each particle's factors."""

    rounds: FloatArray  # (B,)
    counts: FloatArray  # (B, n_users, n_items)
    sums: FloatArray  # (B, n_users, n_items), of rewards less the centre
    users: FloatArray  # (B, D, n_users, k)
    items: FloatArray  # (B, D, n_items, k)
    user_variance: FloatArray  # (B, D): s_u^2
    keys: Keys  # (B,): the hash of the history, for the randomness of `update`


class Factor(NamedTuple):
    """The conditional posterior N(precision^-1 information, precision^-1) of one factor."""

    precision: FloatArray  # (B, D, k, k)
    information: FloatArray  # (B, D, k)


@dataclass(frozen=True, eq=False)
class ParticleMF(SampledPopulation[ParticleBelief]):
    """Particle Thompson sampling of Kawale et al. (2015), with a corrected particle weight.

    decide: a particle at random, U_i drawn given its V (Rao-Blackwell), argmax_j U_i'V_j. update:
    particles are weighed by the predictive density of the reward,
    N(r; V_j' L^-1 z, sigma^2 + V_j' L^-1 V_j) with L and z the precision and information of U_i
    before r, and resampled (systematic); then U_i and V_j are drawn anew in each (Gibbs moves). The
    paper prints the variance as 1 / sigma^2 + V_j' L V_j. Actions are item ids; contexts have no
    features. `centre` is subtracted from rewards, since the prior has mean 0. `learn_spread` draws
    s_u^2 from its inverse gamma posterior in each round (PTS-B). `noise`, `rank` and the spreads
    are chosen here. The draws of `update` are a function of `seed` and of the history.

    Args:
        n_users: number of users of the population.
        n_items: number of items.
        rank: dimension of U_i and V_j.
        n_particles: number of particles.
        noise: standard deviation of a reward.
        user_spread: prior deviation of each entry of U_i.
        item_spread: prior deviation of each entry of V_j.
        centre: subtracted from rewards.
        learn_spread: whether s_u is drawn in each round (PTS-B).
        propensity_draws: posterior draws that are counted for a propensity; 0: none.
        seed: of the draws of `update`.

    >>> policy = ParticleMF(n_users=4, n_items=3, n_particles=5)
    >>> visit = Visit(np.array([1, 3]))
    >>> policy.decide(policy.init(2), visit, np.random.default_rng(0)).action.shape
    (2,)
    """

    order_free: ClassVar[bool] = False

    n_users: int
    n_items: int
    rank: int = 2
    n_particles: int = 30
    noise: float = 0.5**0.5
    user_spread: float = 1.0
    item_spread: float = 1.0
    centre: float = 0.0
    learn_spread: bool = False
    propensity_draws: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("n_users", "n_items", "rank", "n_particles"):
            checks.positive_count(name, getattr(self, name))
        for name in ("noise", "user_spread", "item_spread"):
            checks.positive_number(name, getattr(self, name))
        if not np.isfinite(self.centre):
            raise ValueError(f"centre must be finite; got {self.centre}")

    def init(self, n_sessions: int = 1) -> ParticleBelief:
        n = checks.session_count(n_sessions, None)
        rng = np.random.default_rng(self.seed)
        size, cells = (self.n_particles, self.rank), (n, self.n_users, self.n_items)
        users = self.user_spread * rng.standard_normal((size[0], self.n_users, size[1]))
        items = self.item_spread * rng.standard_normal((size[0], self.n_items, size[1]))
        return ParticleBelief(
            np.zeros(n),
            np.zeros(cells),
            np.zeros(cells),
            np.tile(users, (n, 1, 1, 1)),
            np.tile(items, (n, 1, 1, 1)),
            np.full((n, self.n_particles), self.user_spread**2),
            history.start(n, self.seed),
        )

    def checked_context(self, context: Any, n_sessions: int) -> tuple[Any, int]:
        user, _ = check_visit(context, n_sessions, self.n_users, None)
        return Visit(user), self.n_items

    def _user_factor(self, belief: ParticleBelief, user: IntArray) -> Factor:
        """Return the conditional posterior of U_i given V in every particle."""
        population = np.arange(len(user))
        prior = 1 / belief.user_variance
        cells = belief.counts[population, user], belief.sums[population, user]
        return self._factor(belief.items, *cells, prior)

    def _factor(
        self, others: FloatArray, counts: FloatArray, sums: FloatArray, prior: FloatArray
    ) -> Factor:
        """Return the posterior of one side's factor given the other's, `others` (B, D, m, k)."""
        weighed = others * counts[:, None, :, None]
        precision = weighed.swapaxes(2, 3) @ others / self.noise**2
        precision += prior[..., None, None] * np.eye(self.rank)
        information = (sums[:, None, None, :] @ others)[:, :, 0] / self.noise**2
        return Factor(precision, information)

    def log_weights(
        self, belief: ParticleBelief, user: IntArray, item: IntArray, reward: FloatArray
    ) -> FloatArray:
        """Return the log predictive density of the reward in every particle, `(B, D)`."""
        factor = self._user_factor(belief, user)
        row = belief.items[np.arange(len(item)), :, item]
        return self._log_weights(factor, invert(factor.precision), row, reward - self.centre)

    def _log_weights(
        self, factor: Factor, covariance: FloatArray, row: FloatArray, reward: FloatArray
    ) -> FloatArray:
        gain = (covariance @ row[..., None])[..., 0]
        mean = (gain * factor.information).sum(axis=2)
        variance = self._variance(factor, (gain * row).sum(axis=2), row)
        return log_normal_density(reward[:, None] - mean, variance)

    def _variance(self, factor: Factor, spread: FloatArray, row: FloatArray) -> FloatArray:
        """Return the predictive variance sigma^2 + V' L^-1 V; `spread` is V' L^-1 V."""
        return self.noise**2 + spread

    def _draw(
        self, belief: ParticleBelief, visit: Visit, n_draws: int, rng: np.random.Generator
    ) -> FloatArray:
        """Draw mean rewards of every item, `(B, n_draws, n_items)`."""
        n = len(visit.user)
        particle = rng.integers(self.n_particles, size=(n, n_draws))
        population = np.arange(n)
        rewards = np.empty((n, n_draws, self.n_items))
        for draw in range(n_draws):
            items = belief.items[population, particle[:, draw]]
            prior = 1 / belief.user_variance[population, particle[:, draw]]
            factor = self._factor(
                items[:, None],
                belief.counts[population, visit.user],
                belief.sums[population, visit.user],
                prior[:, None],
            )
            normals = rng.standard_normal((n, 1, self.rank))
            rewards[:, draw] = (items @ _sample(factor, normals)[:, 0, :, None])[:, :, 0]
        return rewards

    def _learn(self, belief: ParticleBelief, outcome: Outcome) -> ParticleBelief:
        population, user = np.arange(len(outcome.action)), outcome.context.user
        keys = history.advance(belief.keys, outcome.action + self.n_items * user, outcome.reward)
        uniform, normals, gammas = self._randomness(keys)
        centred = outcome.reward - self.centre
        factor = self._user_factor(belief, user)
        row = belief.items[population, :, outcome.action]
        log_weights = self._log_weights(factor, invert(factor.precision), row, centred)
        chosen = (
            population[:, None],
            joint.systematic(log_weights, self.n_particles, uniform[:, None]),
        )

        counts, sums = belief.counts.copy(), belief.sums.copy()
        counts[population, user, outcome.action] += 1
        sums[population, user, outcome.action] += centred
        users, items = belief.users[chosen], belief.items[chosen]
        variance = belief.user_variance[chosen]
        row = row[chosen]
        after = Factor(
            factor.precision[chosen] + row[..., :, None] * row[..., None, :] / self.noise**2,
            factor.information[chosen] + row * centred[:, None, None] / self.noise**2,
        )
        users[population, :, user] = _sample(after, normals[:, 0])
        item = self._factor(
            users,
            counts[population, :, outcome.action],
            sums[population, :, outcome.action],
            np.full((len(outcome.action), self.n_particles), 1 / self.item_spread**2),
        )
        items[population, :, outcome.action] = _sample(item, normals[:, 1])
        if self.learn_spread:
            squares = (users * users).sum(axis=(2, 3)) / 2
            variance = (squares + self.user_spread**2) / gammas
        return ParticleBelief(belief.rounds + 1, counts, sums, users, items, variance, keys)

    def _randomness(self, keys: Keys) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return the numbers that one update needs: uniforms, normals and gammas per particle."""
        size, shape = (2, self.n_particles, self.rank), 1 + self.n_users * self.rank / 2
        streams = [history.generator(key) for key in keys]
        normals = np.stack([stream.standard_normal(size) for stream in streams])
        gammas = np.ones((len(keys), self.n_particles))
        if self.learn_spread:
            gammas = np.stack([s.standard_gamma(shape, self.n_particles) for s in streams])
        return history.uniforms(keys, 1)[:, 0], normals, gammas


def _sample(factor: Factor, normals: FloatArray) -> FloatArray:
    """Draw from N(L^-1 z, L^-1), with the Cholesky factor of the precision L."""
    root = np.linalg.cholesky(factor.precision)
    mean = np.linalg.solve(factor.precision, factor.information[..., None])
    noise = np.linalg.solve(root.swapaxes(-1, -2), normals[..., None])
    return np.asarray((mean + noise)[..., 0], np.float64)
