"""A mixture over users of conjugate arms, by variational Bayes (Bishop 2006, section 10.2).

Every user has one hidden state s ~ pi, pi ~ Dirichlet(1), and all their rewards for action a come
from p(r | theta[s, a]). theta[s, a] has a pooled prior: its mean is the action's mean over all
users, and its strength kappa is shared. With N[u, a] a user's statistics and phi the
hyperparameters of q(theta),

    log r[u, s] = E[log pi_s] + sum_a N[u, a] . E[eta(theta[s, a])] - normaliser_u
    phi[s, a] = phi0[a] + sum_u r[u, s] N[u, a],        w[s] = 1 + sum_u r[u, s]
    ELBO = sum_u normaliser_u - sum_{s, a} KL(q(theta) || prior) - KL(Dirichlet(w) || Dirichlet(1))

A pass calls `summarise` on every partition, adds the sums, and takes one `step`. The ELBO never
falls: each step raises it in q(theta) and q(pi), then in the noise, then in kappa.

Several mixtures are fitted at once: starts, or bootstrap replicates. They form the leading axis R.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from latentbandits.learning import user_hash
from latentbandits.learning.logs.rows import Log
from latentbandits.learning.user_hash import Keys
from latentbandits.models.arms.learnable import STRENGTHS, Learnable
from latentbandits.models.checks import FloatArray, IntArray
from latentbandits.models.numerics import dirichlet

# Sufficient statistics of every (user, action) pair, in partitions of whole users.
#
# The rewards of a pair are summed, not averaged, so 200 impressions have the weight of 200. Each
# pass of the learner reads only partitions. The users of one hash bucket (`user_hash`) form one
# partition, so sums are identical on every engine.

_DENSE = 0.1  # fraction of nonzero entries above which a dense array is faster than a sparse one


@dataclass(frozen=True, eq=False)
class Partition:
    """Statistics of some users, `(n_users, n_statistics * n_actions)`, as a dense or sparse array.

    The columns of a statistic are adjacent: column k * n_actions + a is statistic k of action a.
    `weights` (n_users, n_replicates) are the users' bootstrap weights.
    """

    statistics: Any  # FloatArray or scipy.sparse.csr_array
    squares: FloatArray  # (n_actions,): sums of `family.squares` of rewards
    log_base: float  # sum of log b(r)
    keys: Keys  # (n_users,)
    n_actions: int
    weights: FloatArray | None = None
    weighted_squares: FloatArray | None = None  # (n_replicates, n_actions)

    @property
    def n_users(self) -> int:
        return len(self.keys)

    def dense(self) -> FloatArray:
        """Return the statistics as a dense array `(n_users, n_statistics, n_actions)`."""
        full = self.statistics if isinstance(self.statistics, np.ndarray) else (
            self.statistics.toarray()
        )  # fmt: skip
        return full.reshape(len(full), -1, self.n_actions)


class Totals(NamedTuple):
    """Sums over the whole log."""

    statistics: FloatArray  # (R, n_actions, n_statistics); R = 1, or the bootstrap replicates
    squares: FloatArray  # (R, n_actions)
    n_users: FloatArray  # (R,)
    log_base: float


@dataclass(frozen=True, eq=False)
class Prepare:
    """A callable that turns a bucket's log into the partition that every pass reads.

    With `n_replicates`, every user gets that many bootstrap weights.
    """

    family: Learnable
    n_replicates: int = 0
    seed: int = 0

    def __call__(self, log: Log) -> Partition:
        family = self.family
        rewards = family.outcomes(np.asarray(log.rewards), log.positions)
        squares = family.squares(rewards)
        weights = weighted = None
        if self.n_replicates:
            weights = user_hash.bootstrap_weights(log.keys, self.n_replicates, self.seed)
            weighted = np.stack(
                [_by_action(log, squares * weight[log.users]) for weight in weights.T]
            )
        base = family.log_base_measure(rewards)
        return Partition(
            _statistics(log, family.summed(rewards)),
            _by_action(log, squares),
            float(np.broadcast_to(base, rewards.shape).sum()),
            log.keys,
            log.n_actions,
            weights,
            weighted,
        )


@dataclass(frozen=True, eq=False)
class TotalsPass:
    """The first pass over a log, which sums statistics over all users."""

    prepare: Prepare

    def summarise(self, partition: Partition, parameters: None) -> Totals:
        shape = (-1, self.prepare.family.n_statistics, partition.n_actions)
        if partition.weights is None:
            summed = np.asarray(partition.statistics.sum(axis=0)).reshape(shape)
            squares, n_users = partition.squares[None], np.array([float(partition.n_users)])
        else:
            assert partition.weighted_squares is not None
            summed = np.asarray((partition.statistics.T @ partition.weights).T).reshape(shape)
            squares, n_users = partition.weighted_squares, partition.weights.sum(axis=0)
        return Totals(summed.swapaxes(1, 2), squares, n_users, partition.log_base)


def _by_action(log: Log, values: FloatArray) -> FloatArray:
    return np.bincount(log.actions, values, minlength=log.n_actions).astype(np.float64)


def _statistics(log: Log, statistics: FloatArray) -> Any:
    from scipy.sparse import csr_array

    n_columns = statistics.shape[1] * log.n_actions
    present = statistics != 0
    event, which = np.nonzero(present)
    column = which * log.n_actions + log.actions[event]
    values = statistics[present]
    if len(values) >= _DENSE * log.n_users * n_columns:
        cell = log.users[event] * n_columns + column
        full = np.bincount(cell, values, minlength=log.n_users * n_columns)
        return full.reshape(log.n_users, n_columns)
    sparse = csr_array((values, (log.users[event], column)), shape=(log.n_users, n_columns))
    sparse.sum_duplicates()
    return sparse


_LOG_STRENGTH_STEP = 2.0  # largest change of log kappa in a step


class Mixture(NamedTuple):
    """q(theta) and q(pi) of R mixtures, and their point estimates (strength and noise)."""

    phi: FloatArray  # (R, S, A, K): hyperparameters of q(theta)
    shares: FloatArray  # (R, S): w, the parameters of q(pi)
    strength: FloatArray  # (R,): kappa
    noise: FloatArray  # (R, A): variances of rewards; ones for families without noise

    def take(self, chosen: IntArray) -> Mixture:
        """Return the mixtures with the indices `chosen`."""
        return Mixture(*(part[chosen] for part in self))

    def state_prior(self) -> FloatArray:
        """Return E[pi], `(R, S)`."""
        prior: FloatArray = self.shares / self.shares.sum(axis=1, keepdims=True)
        return prior


class Broadcast(NamedTuple):
    """The parameters that a pass needs; they are small, and the same for every partition."""

    log_shares: FloatArray  # (R, S): E[log pi]; with a gate (n_users, R, S), one per user
    coefficients: FloatArray  # (K * A, R * S): E[eta], in the order of a partition's columns


class Sums(NamedTuple):
    """The sums that a pass returns; the sums of partitions are added."""

    statistics: FloatArray  # (R, S, A, K): users' statistics, weighted by responsibility
    shares: FloatArray  # (R, S): expected number of users in each state
    log_normaliser: FloatArray  # (R,)


def broadcast(family: Learnable, mixture: Mixture) -> Broadcast:
    """Return the parameters of a mixture that `summarise` needs."""
    coefficients = family.coefficients(mixture.phi, mixture.noise)
    columns = coefficients.transpose(3, 2, 0, 1)  # (K, A, R, S)
    n_columns = columns.shape[0] * columns.shape[1]
    log_shares = dirichlet.expected_log(mixture.shares)
    return Broadcast(log_shares, np.ascontiguousarray(columns.reshape(n_columns, -1)))


def responsibilities(partition: Partition, current: Broadcast) -> tuple[FloatArray, FloatArray]:
    """Return P(s | the user's rewards) `(n_users, R, S)` and log normalisers `(n_users, R)`."""
    weights = partition.statistics @ current.coefficients
    weights = weights.reshape(partition.n_users, *current.log_shares.shape[-2:])
    weights += current.log_shares
    top = weights.max(axis=2, keepdims=True)
    weights -= top
    np.exp(weights, out=weights)
    total = weights.sum(axis=2, keepdims=True)
    weights /= total
    log_normaliser: FloatArray = (top + np.log(total))[:, :, 0]
    return weights, log_normaliser


def summarise(partition: Partition, current: Broadcast) -> Sums:
    """Sum the statistics of a partition's users, weighted by responsibility: the E step."""
    return weighted_sums(partition, *responsibilities(partition, current))


def weighted_sums(partition: Partition, taken: FloatArray, log_normaliser: FloatArray) -> Sums:
    """Sum the statistics of a partition's users, weighted by `taken` (n_users, R, S)."""
    if partition.weights is not None:
        taken *= partition.weights[:, :, None]
        log_normaliser = log_normaliser * partition.weights
    flat = taken.reshape(len(taken), -1)
    if isinstance(partition.statistics, np.ndarray):
        summed = flat.T @ partition.statistics
    else:
        summed = (partition.statistics.T @ flat).T
    summed = summed.reshape(*taken.shape[1:], -1, partition.n_actions).swapaxes(2, 3)
    return Sums(np.ascontiguousarray(summed), taken.sum(axis=0), log_normaliser.sum(axis=0))


@dataclass(frozen=True, eq=False)
class MixturePass:
    """A pass of the ascent over a log."""

    prepare: Prepare

    def summarise(self, partition: Partition, current: Broadcast) -> Sums:
        return summarise(partition, current)


def step(
    family: Learnable, mixture: Mixture, sums: Sums, totals: Totals, centre: FloatArray
) -> Mixture:
    """Return the mixture that maximises the ELBO given the sums of a pass over the current one."""
    prior = family.prior(centre, mixture.strength)
    phi = family.posterior(prior, sums.statistics, mixture.noise)
    noise = family.update_noise(phi, sums.statistics, totals.squares, mixture.noise)
    strength = _update_strength(family, centre, mixture.strength, phi)
    return Mixture(phi, 1.0 + sums.shares, strength, noise)


def elbo(
    family: Learnable, mixture: Mixture, sums: Sums, totals: Totals, centre: FloatArray
) -> FloatArray:
    """Return the evidence lower bound `(R,)`; `sums` come from a pass over the same mixture."""
    bound = bound_of_arms(family, mixture, sums, totals, centre)
    return bound - dirichlet.divergence(mixture.shares, np.ones_like(mixture.shares))


def bound_of_arms(
    family: Learnable, mixture: Mixture, sums: Sums, totals: Totals, centre: FloatArray
) -> FloatArray:
    """Return the ELBO without the divergence of the shares, `(R,)`."""
    bound = sums.log_normaliser + totals.log_base
    bound = bound + family.log_constant(totals.statistics, totals.squares, mixture.noise)
    bound -= family.divergence(mixture.phi, family.prior(centre, mixture.strength))
    return bound


def _update_strength(
    family: Learnable, centre: FloatArray, strength: FloatArray, phi: FloatArray
) -> FloatArray:
    """Move log kappa by one safeguarded Newton step on E_q[log prior], which never falls."""

    def objective(log_strength: FloatArray) -> FloatArray:
        return family.expected_log_prior(centre, np.exp(log_strength), phi)

    now, h = np.log(strength), 0.05
    middle, below, above = objective(now), objective(now - h), objective(now + h)
    slope, curvature = (above - below) / (2 * h), (above - 2 * middle + below) / h**2
    with np.errstate(divide="ignore", invalid="ignore"):
        move = np.where(curvature < 0, -slope / curvature, np.sign(slope) * _LOG_STRENGTH_STEP)
    move = np.clip(np.nan_to_num(move), -_LOG_STRENGTH_STEP, _LOG_STRENGTH_STEP)
    proposed = np.clip(now + move, *np.log(STRENGTHS))
    better = objective(proposed) >= middle
    return np.where(better, np.exp(proposed), strength)
