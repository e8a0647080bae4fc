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

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from latentbandits.learning import user_hash
from latentbandits.learning.backends.backend import AnyLog, LogEngine, engine_of
from latentbandits.learning.linear.clusters import lloyd, nearest, seeds
from latentbandits.learning.logs.rows import Log
from latentbandits.learning.logs.tables import LogError
from latentbandits.learning.user_hash import Keys
from latentbandits.models.arms import dirichlet
from latentbandits.models.arms.conjugate import STRENGTHS, Learnable
from latentbandits.models.artefacts import Catalogue
from latentbandits.models.checks import BoolArray, FloatArray, IntArray
from latentbandits.models.protocol import with_defaults

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
                [log.by_action(squares * weight[log.users]) for weight in weights.T]
            )
        base = family.log_base_measure(rewards)
        return Partition(
            _statistics(log, family.summed(rewards)),
            log.by_action(squares),
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


# Coordinate ascent on the ELBO: all starts take a few passes, then only the best continue.

TOLERANCE = 1e-3
"""ELBO gain of a pass, in nats, below which the ascent stops."""

SMALLEST_SHARE = 0.005
"""Minimal share of users of a state; smaller states are dropped."""

_BURN_IN = 15  # passes of every start, before only the best continue
_FINALISTS = 2
_MAX_PASSES = 1_000


class Problem(NamedTuple):
    """A log on its engine, and the totals of the first pass over it."""

    family: Learnable
    engine: LogEngine
    prepare: Prepare
    totals: Totals
    centre: FloatArray  # (A, ...): the mean of the pooled prior for every action
    strength: float | None = None  # kappa, if it is held; None: learned

    @classmethod
    def from_log(
        cls,
        family: Learnable,
        log: AnyLog,
        *,
        n_replicates: int = 0,
        seed: int = 0,
        strength: float | None = None,
    ) -> Problem:
        """Sum the log once; with `n_replicates`, give every user that many bootstrap weights."""
        engine, prepare = engine_of(log), Prepare(family, n_replicates, seed)
        sums = engine.fold(TotalsPass(prepare), None)
        centre = family.centre(sums.statistics.mean(axis=0))
        return cls(family, engine, prepare, sums, centre, strength)

    def sums(self, mixture: Mixture) -> Sums:
        return self.engine.fold(MixturePass(self.prepare), broadcast(self.family, mixture))

    def sample(self, size: int, seed: int) -> FloatArray:
        """Return the statistics `(size, n_statistics, n_actions)` of users sampled by hash."""
        return Prepare(self.family)(self.engine.sample(size, seed)).dense()

    def elbo(self, mixture: Mixture, sums: Sums) -> FloatArray:
        """Return the evidence lower bound `(R,)`; `sums` come from a pass over the same mixture."""
        bound = self.bound_of_arms(mixture, sums)
        return bound - dirichlet.divergence(mixture.shares, np.ones_like(mixture.shares))

    def bound_of_arms(self, mixture: Mixture, sums: Sums) -> FloatArray:
        """Return the ELBO without the divergence of the shares, `(R,)`."""
        family, totals = self.family, self.totals
        bound = sums.log_normaliser + totals.log_base
        bound = bound + family.log_constant(totals.statistics, totals.squares, mixture.noise)
        bound -= family.divergence(mixture.phi, family.prior(self.centre, mixture.strength))
        return bound

    def step(self, mixture: Mixture, sums: Sums) -> Mixture:
        """Return the mixture that maximises the ELBO given the sums of a pass over `mixture`."""
        family, squares = self.family, self.totals.squares
        prior = family.prior(self.centre, mixture.strength)
        phi = family.posterior(prior, sums.statistics, mixture.noise)
        noise = family.update_noise(phi, sums.statistics, squares, mixture.noise)
        strength = _update_strength(family, self.centre, mixture.strength, phi)
        return self.held(Mixture(phi, 1.0 + sums.shares, strength, noise))

    def held(self, mixture: Mixture) -> Mixture:
        """Return the mixture with the problem's strength, if that is held."""
        if self.strength is None:
            return mixture
        return mixture._replace(strength=np.full_like(mixture.strength, self.strength))


class Ascent(NamedTuple):
    """The final mixtures of an ascent, and the best ELBO after every pass."""

    mixture: Mixture
    elbo: FloatArray  # (R,)
    elbos: tuple[float, ...]  # of the best mixture so far, one per pass
    converged: bool


def start_at(problem: Problem, means: FloatArray, shares: FloatArray) -> Mixture:
    """Return a mixture whose states have the given `means` (S, A) and `shares` (S,) of users.

    Raise LogError if means do not determine the family's parameters.
    """
    family, totals = problem.family, problem.totals
    counting, _ = family.counts_and_sums
    counts = shares[:, None] * (totals.statistics[0] @ counting)
    try:
        sums = family.statistics_of_means(counts, means)[None]
    except ValueError as error:
        raise LogError(str(error)) from error
    noise = family.first_noise(totals.statistics[0], 1)
    strength = np.ones(1)
    phi = family.posterior(family.prior(problem.centre, strength), sums, noise)
    return Mixture(phi, 1.0 + shares[None] * totals.n_users[0], strength, noise)


def ascend(
    problem: Problem,
    start: Mixture,
    *,
    tolerance: float = TOLERANCE,
    max_passes: int = _MAX_PASSES,
    finalists: int | None = None,
) -> Ascent:
    """Repeat passes until no mixture gains more than `tolerance`.

    With `finalists`, all mixtures take a few passes, and then only the best `finalists` continue.
    """
    current, before = problem.held(start), np.full(len(start.strength), -np.inf)
    history: list[float] = []
    converged = False
    for n_passes in range(1, max_passes + 1):
        sums = problem.sums(current)
        bound = problem.elbo(current, sums)
        history.append(float(bound.max()))
        converged = bool((bound - before < tolerance).all())
        if converged:
            break
        current, before = problem.step(current, sums), bound
        if n_passes == _BURN_IN and finalists is not None and len(bound) > finalists:
            kept = np.sort(_best_first(current, bound)[:finalists])
            current, before = current.take(kept), bound[kept]
    return Ascent(current, bound, tuple(history), converged)


def best_of(
    problem: Problem,
    n_states: int,
    *,
    n_starts: int = 6,
    extra: Mixture | None = None,
    tolerance: float = TOLERANCE,
    seed: int = 0,
) -> Ascent:
    """Return the mixture with the highest ELBO over the starts: grouped users, and `extra`.

    A mixture that keeps all its states ranks above one that loses a state, whatever their ELBOs:
    the latter is a candidate for a smaller number of states. If no mixture keeps all its states,
    the states with less than half a percent of the users are dropped and the ascent is repeated.
    """
    starts = [] if extra is None else [extra]
    if n_starts:
        sample = problem.sample(SAMPLE, seed)
        rng = np.random.default_rng(seed)
        starts.append(grouped_starts(problem, sample, n_states, n_starts, rng))
    ascent = ascend(problem, joined(*starts), tolerance=tolerance, finalists=_FINALISTS)
    first = _best_first(ascent.mixture, ascent.elbo)[:1]
    best = _by_share(ascent.mixture.take(first))
    kept = _kept(best)[0]
    if kept.all():
        return ascent._replace(mixture=best, elbo=ascent.elbo[first])
    fewer = int(kept.sum())
    best = best._replace(phi=best.phi[:, :fewer], shares=best.shares[:, :fewer])
    again = ascend(problem, best, tolerance=tolerance)
    return again._replace(mixture=_by_share(again.mixture))


def _kept(mixture: Mixture) -> BoolArray:
    """Mark the states whose share is large enough to keep, `(R, S)`."""
    least = min(SMALLEST_SHARE, 1 / mixture.shares.shape[1])
    kept: BoolArray = mixture.state_prior() >= least
    return kept


def _best_first(mixture: Mixture, bound: FloatArray) -> IntArray:
    """Return the indices of the R mixtures by falling ELBO; mixtures that lose states come last."""
    return np.lexsort((-bound, ~_kept(mixture).all(axis=1)))


def _by_share(mixture: Mixture) -> Mixture:
    """Return a single mixture with its states sorted by falling share."""
    order = np.argsort(-mixture.shares[0], kind="stable")
    return mixture._replace(phi=mixture.phi[:, order], shares=mixture.shares[:, order])


# Starting points of the variational mixture: clusters of users that lie far apart.
#
# A user's mean rewards, shrunk to the action's mean, are noisy if rewards are sparse; their leading
# principal components are less noisy. Users are clustered in those by k-means++ and a few steps of
# k-means, and the summed statistics of the clusters are a start.

SAMPLE = 4_000
"""The number of users from which starts are made."""

_STEPS = 5  # of k-means for each start
_FIRST_STRENGTH = 20.0  # of the pooled prior, in rewards; the ascent updates it


def grouped_starts(
    problem: Problem,
    sample: FloatArray,
    n_states: int,
    n_starts: int,
    rng: np.random.Generator,
    attributes: FloatArray | None = None,
) -> Mixture:
    """Return `n_starts` mixtures of `n_states` states, made from a `sample` (n, K, A) of users.

    With `attributes` (n, d), users are clustered by the mean rewards that attributes predict.
    """
    family, totals = problem.family, problem.totals
    points = _points(family, sample, totals)
    if attributes is not None:
        points = attributes @ np.linalg.lstsq(attributes, points, rcond=None)[0]
    n_users, n_actions = float(totals.n_users[0]), totals.statistics.shape[1]
    shape = (n_starts, n_states, family.n_statistics, n_actions)
    sums, shares = np.zeros(shape), np.zeros((n_starts, n_states))
    components = _principal(points, min(n_states + 1, points.shape[1], len(points)))
    for i in range(n_starts):
        # Half of the starts use fewer components, to leave out noise.
        n_components = max(1, n_states - 1) if i % 2 == 0 else components.shape[1]
        shown = components[:, :n_components]
        centres, _ = lloyd(shown, seeds(shown, n_states, rng), _STEPS)
        group = nearest(shown, centres)
        for s in range(n_states):
            sums[i, s] = sample[group == s].sum(axis=0)
            shares[i, s] = (group == s).sum()
    scale = n_users / len(sample)
    noise = family.first_noise(totals.statistics[0], n_starts)
    strength = np.full(n_starts, _FIRST_STRENGTH)
    phi = family.posterior(
        family.prior(problem.centre, strength), scale * sums.swapaxes(2, 3), noise
    )
    return Mixture(phi, 1.0 + scale * shares, strength, noise)


def joined(*mixtures: Mixture) -> Mixture:
    """Join mixtures with the same number of states along the axis R."""
    return Mixture(*(np.concatenate(parts) for parts in zip(*mixtures, strict=True)))


def _points(family: Learnable, sample: FloatArray, totals: Totals) -> FloatArray:
    """Return users' centred mean rewards, divided by their deviation and shrunk, `(n, A)`."""
    counting, paying = family.counts_and_sums
    counts = np.einsum("nka,k->na", sample, counting)
    sums = np.einsum("nka,k->na", sample, paying)
    n_rewards = np.maximum(totals.statistics[0] @ counting, 1e-12)
    means = totals.statistics[0] @ paying / n_rewards
    residual = sums - counts * means
    spread = np.sqrt((residual**2).sum(axis=0) / np.maximum(counts.sum(axis=0), 1.0))
    spread = np.where(spread > 0, spread, 1.0)
    scaled: FloatArray = residual / spread / (counts + 1.0)
    return scaled


def _principal(points: FloatArray, n: int) -> FloatArray:
    """Return the users' coordinates along the `n` leading principal components."""
    centred = points - points.mean(axis=0)
    _, vectors = np.linalg.eigh(centred.T @ centred)
    coordinates: FloatArray = centred @ vectors[:, ::-1][:, :n]
    return coordinates


# An earlier model as a start of the next fit.


class Earlier(NamedTuple):
    """Mean rewards of an earlier model's states, for the actions of a log."""

    means: FloatArray  # (S, A)
    shares: FloatArray  # (S,)


def earlier_means(model: Any, catalogue: Catalogue | None, actions: Sequence[str]) -> Earlier:
    """Return an earlier model's means for `actions`; a new action gets the state's average mean.

    If the model is of transformed rewards, the means are transformed too. The actions of a model
    without a catalogue are called "0", "1", ...

    >>> from latentbandits import GaussianArms
    >>> earlier_means(GaussianArms([[0.2, 0.6]], noise=1.0), None, ["1", "new"]).means
    array([[0.6, 0.4]])
    """
    inner = with_defaults(model).untransformed
    features = None if catalogue is None else catalogue.features
    means = inner.expected_rewards(None if features is None else features[None])[0]
    ids = [str(i) for i in range(means.shape[1])] if catalogue is None else catalogue.ids
    places = {name: i for i, name in enumerate(ids)}
    average = means.mean(axis=1)
    columns = [means[:, places[name]] if name in places else average for name in actions]
    return Earlier(np.stack(columns, axis=1), np.exp(model.log_state_prior[0]))
