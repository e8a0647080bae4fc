"""Clusters of the completed users' vectors, which are the latent states of a model (Section 5.2).

The model of a state is N(mean, covariance) of the users in its cluster, and the state's prior
probability is its cluster's share of the users.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from latentbandits.learning.backends.backend import Collected
from latentbandits.learning.linear.alternating import (
    CompletionSettings,
    Factors,
    Folded,
    joined,
    sum_pairs,
    users_of,
)
from latentbandits.learning.linear.completion import Completion
from latentbandits.learning.linear.variational import Uncertain, posterior_of_users
from latentbandits.learning.logs.rows import Log
from latentbandits.learning.user_hash import Keys
from latentbandits.models.checks import (
    BoolArray,
    FloatArray,
    IntArray,
    positive_count,
    positive_number,
)
from latentbandits.models.linear.gaussian import LinearGaussian
from latentbandits.models.linear.logistic import LogisticLinear

SAMPLE = 20_000
"""The number of users whose vectors give the first centres."""

_PASSES = 10
_STILL = 1e-4  # convergence: centres move less than this fraction of the mean variance
SMALLEST_CLUSTER = 10
LARGEST_CONDITION = 1e4
RESTARTS = 10  # of k-means


@dataclass(frozen=True, eq=False)
class FoldedClusters:
    """The model made from clusters of users, with their sizes and shrinkage."""

    model: LinearGaussian | LogisticLinear
    sizes: FloatArray | IntArray  # (n_states,)
    shrinkage: FloatArray  # (n_states,), weight w of each covariance's shrinkage towards a sphere


@dataclass(frozen=True, eq=False)
class Clusters(FoldedClusters):
    """The cluster of each user, and the model of these clusters."""

    state: IntArray  # (n_users,), the cluster of each user; -1 for a user without ratings


def cluster_users(
    completion: Completion,
    n_states: int,
    *,
    noise: float | None = None,
    smallest: int = SMALLEST_CLUSTER,
    restarts: int = RESTARTS,
    seed: int = 0,
) -> Clusters:
    """Cluster the users of a completion by k-means into the states of a linear model.

    The model is a LinearGaussian, or a LogisticLinear for a completion of clicks. Users without
    ratings are left out.

    Args:
        completion: a completed user x action matrix.
        n_states: number of clusters.
        noise: standard deviation of a reward; None: estimated from the completion's residuals.
        smallest: least number of users of a state; ValueError if a cluster has fewer.
        restarts: starts of k-means, of which the best counts.
        seed: seed of the starts.

    >>> from latentbandits.learning.generate import generate_ratings
    >>> made = generate_ratings(n_users=200, n_actions=50, n_states=3, density=0.5, seed=0)
    >>> fit = made.complete(rank=4)
    >>> bool(cluster_users(fit, n_states=3).sizes.sum() == (fit.user_counts > 0).sum())
    True
    """
    positive_count("n_states", n_states)
    positive_count("smallest", smallest)
    rated = np.flatnonzero(completion.user_counts > 0)
    vectors, tastes = completion.user_vectors[rated], completion.tastes[rated]
    no_keys = np.zeros(len(rated), np.uint64)
    part = Vectors(vectors, tastes, np.ones(len(rated)), no_keys)
    centres = first_centres(part, n_states, restarts, seed)
    shift = vectors.mean(axis=0)
    sums = cluster_sums(part, centres, shift)
    if sums.counts.min() < smallest:
        raise ValueError(too_many_states(tastes, n_states, sums.counts, smallest, restarts, seed))
    found = _clusters(sums, shift, completion, noise)
    state = np.full(len(completion.users), -1, np.int64)
    state[rated] = nearest(tastes, centres)
    return Clusters(found.model, found.sizes.astype(np.int64), found.shrinkage, state)


def _model(
    means: FloatArray,
    covariances: FloatArray,
    sizes: FloatArray | IntArray,
    completion: Completion | Folded,
    noise: float | None,
) -> LinearGaussian | LogisticLinear:
    """Return the model of clusters with these moments of users' vectors.

    In the model of clicks, an action's popularity, if there is one, is a known offset.
    """
    prior = sizes / sizes.sum()
    if completion.link == "identity":
        deviation = completion.noise if noise is None else positive_number("noise", noise)
        return LinearGaussian(means, deviation, covariances, prior)
    offset = completion.biases
    d = means.shape[1] - offset
    plain = covariances[:, :d, :d]
    least = 1e-6 * np.trace(plain, axis1=1, axis2=2).max() / d + 1e-12
    return LogisticLinear(means[:, :d], plain + least * np.eye(d), state_prior=prior, offset=offset)


def usable_covariance(
    vectors: FloatArray, largest_condition: float = LARGEST_CONDITION
) -> tuple[FloatArray, float]:
    """Return the covariance of the rows after the least shrinkage that bounds its condition.

    With fewer users than dimensions, the covariance is singular, and a state would be known
    exactly in some directions. The result is (1 - w) C + w (tr C / d) I with the least w that
    brings the condition number to `largest_condition`; w is returned too, and may be zero.
    Columns that are constant over the rows are known, and keep zero variance.

    >>> usable_covariance(np.array([[0.0, 1.0], [2.0, 3.0], [0.0, 3.0], [2.0, 1.0]]))[1]
    0.0
    """
    centred = vectors - vectors.mean(axis=0)
    outer = centred.T @ centred
    return usable(_covariance(len(vectors), centred.sum(axis=0), outer), largest_condition)


def usable(
    matrix: FloatArray, largest_condition: float = LARGEST_CONDITION
) -> tuple[FloatArray, float]:
    """Shrink a covariance in the same way; rows and columns of known coefficients are zero."""
    covariance = np.zeros_like(matrix)
    varying = np.flatnonzero(np.diag(matrix) > 0)
    if len(varying) == 0:
        return covariance, 0.0
    seen = matrix[np.ix_(varying, varying)]
    values = np.linalg.eigvalsh(seen)
    level = float(values.mean())
    missing = max(float(values[-1]) / largest_condition - float(values[0]), 0.0)
    w = missing / (missing + level * (1 - 1 / largest_condition)) if missing > 0 else 0.0
    seen = (1 - w) * seen + w * level * np.eye(len(varying))
    covariance[np.ix_(varying, varying)] = seen
    return covariance, w


def too_many_states(
    vectors: FloatArray,
    n_states: int,
    sizes: FloatArray | IntArray,
    smallest: int,
    restarts: int,
    seed: int,
    n_users: int | None = None,
) -> str:
    """Return an error message that names the largest number of states that works.

    `vectors` may be a sample of the `n_users`.
    """
    share = 1.0 if n_users is None else len(vectors) / n_users
    usable = 0
    for fewer in range(min(n_states - 1, int(len(vectors) / share) // smallest), 0, -1):
        label = clusters_of(vectors, fewer, restarts, seed)
        if np.bincount(label, minlength=fewer).min() >= share * smallest:
            usable = fewer
            break
    message = (
        f"with {n_states} states the smallest cluster has {sizes.min():.0f} of "
        f"{len(vectors) / share:.0f} users, "
        f"and a covariance needs at least {smallest}"
    )
    if usable == 0:
        return f"{message}: there are too few users for a single state"
    return f"{message}: the largest usable number of states is {usable}"


# The vectors of a partition's users, computed from the actions' vectors when they are needed.


class Vectors(NamedTuple):
    """Vectors of a partition's users with ratings."""

    vectors: FloatArray  # (n, d): their products with the actions' features are rewards
    tastes: FloatArray  # (n, rank): their distances measure how much rewards differ
    weights: FloatArray  # (n,): weight of each user
    keys: Keys
    covariances: FloatArray | None = None  # (n, d, d): posterior covariances

    def select(self, chosen: BoolArray) -> Vectors:
        """Return the vectors of the users marked in `chosen`."""
        covariances = None if self.covariances is None else self.covariances[chosen]
        vectors, tastes = self.vectors[chosen], self.tastes[chosen]
        return Vectors(vectors, tastes, self.weights[chosen], self.keys[chosen], covariances)


@dataclass(frozen=True, eq=False)
class PrepareVectors:
    """A callable that computes the vectors of a partition's users from the actions' vectors."""

    settings: CompletionSettings
    start: Factors  # the users are solved for given these
    centre: FloatArray  # (rank,)
    root: FloatArray  # (rank, rank): the metric of the actions
    uncertain: Uncertain | None = None  # set by a variational factorisation

    def __call__(self, log: Log) -> Vectors:
        settings = self.settings
        part = sum_pairs(log)
        spread = None
        if self.uncertain is None:
            z = joined(users_of(part, self.start, settings))
        else:
            z, spread = posterior_of_users(part, self.uncertain)
        weigh = settings.weigh(part.keys)
        weigh = np.ones(len(z)) if weigh is None else weigh
        there = (part.totals > 0) & (weigh > 0)
        z, weigh, keys = z[there], weigh[there], part.keys[there]
        spread = None if spread is None else spread[there]
        if not settings.biases:
            return Vectors(z, z, weigh, keys, spread)
        centred = z[:, :-1] - self.centre
        level = self.start.mean + z[:, -1]
        vectors = np.column_stack([centred, level, np.ones(len(z))])
        if spread is not None:  # the coefficient of an action's popularity is known
            spread = np.pad(spread, ((0, 0), (0, 1), (0, 1)))
        return Vectors(vectors, centred @ self.root, weigh, keys, spread)


def metric_root(actions: FloatArray, counts: FloatArray) -> FloatArray:
    """Return the square root of the mean of v v' over actions, weighted by `counts`."""
    weights = counts / counts.sum()
    values, axes = np.linalg.eigh(actions.T @ (weights[:, None] * actions))
    root: FloatArray = axes * np.sqrt(np.maximum(values, 0.0)) @ axes.T
    return root


# k-means as a fold. It starts from the centres of a sample of users and continues over all users: a
# pass returns the count, the sum and the outer products of each cluster. No users' vectors outside
# the sample are collected.


class ClusterSums(NamedTuple):
    """Sums of each cluster, over vectors minus a common shift."""

    counts: FloatArray  # (n_states,)
    tastes: FloatArray  # (n_states, rank)
    vectors: FloatArray  # (n_states, d)
    outer: FloatArray  # (n_states, d, d)


@dataclass(frozen=True, eq=False)
class ClusterPass:
    """A pass of k-means, which sums over the users nearest to each centre."""

    prepare: PrepareVectors
    shift: FloatArray  # (d,)

    def summarise(self, part: Vectors, centres: FloatArray) -> ClusterSums:
        return cluster_sums(part, centres, self.shift)


def cluster_sums(part: Vectors, centres: FloatArray, shift: FloatArray) -> ClusterSums:
    """Return the sums over the users nearest to each centre, of their vectors minus `shift`."""
    state = nearest(part.tastes, centres)
    n_states, d = len(centres), part.vectors.shape[1]
    counts, tastes = np.zeros(n_states), np.zeros(centres.shape)
    sums, outer = np.zeros((n_states, d)), np.zeros((n_states, d, d))
    moved = part.vectors - shift
    for s in range(n_states):
        members = np.flatnonzero(state == s)
        weights = part.weights[members]
        counts[s] = weights.sum()
        tastes[s] = weights @ part.tastes[members]
        sums[s] = weights @ moved[members]
        outer[s] = moved[members].T @ (weights[:, None] * moved[members])
        if part.covariances is not None:  # users' vectors have posterior covariances
            outer[s] += np.tensordot(weights, part.covariances[members], axes=1)
    return ClusterSums(counts, tastes, sums, outer)


def by_key(parts: Sequence[Vectors]) -> Vectors:
    """Join vectors, sorted by the users' keys, without their covariances."""
    keys = np.concatenate([part.keys for part in parts])
    order = np.argsort(keys, kind="stable")
    vectors, tastes, weights = (
        np.concatenate(column)[order] for column in list(zip(*parts, strict=True))[:3]
    )
    return Vectors(vectors, tastes, weights, keys[order])


@dataclass(frozen=True, eq=False)
class SamplePass:
    """A pass that returns the vectors of the users with the given keys; None means all users."""

    prepare: PrepareVectors
    keys: Keys | None

    def summarise(self, part: Vectors, parameters: None) -> Collected:
        chosen = part if self.keys is None else part.select(np.isin(part.keys, self.keys))
        return Collected((chosen,))


def cluster_fold(
    folded: Folded,
    n_states: int,
    *,
    noise: float | None = None,
    smallest: int = SMALLEST_CLUSTER,
    seed: int = 0,
) -> FoldedClusters:
    """Cluster the users of a completion by k-means into the states of a linear model.

    This is `cluster_users` for users' vectors that are not in memory; a log of at most `SAMPLE`
    users is clustered as a whole.
    """
    positive_count("n_states", n_states)
    positive_count("smallest", smallest)
    engine, prepare = folded.engine, folded.vectors
    whole = engine.n_users <= SAMPLE
    keys = None if whole else engine.chosen_keys(SAMPLE, seed)
    sample = by_key(engine.fold(SamplePass(prepare, keys), None).parts)
    centres = first_centres(sample, n_states, RESTARTS, seed)
    shift = sample.vectors.mean(axis=0)
    fold = ClusterPass(prepare, shift)
    sums = engine.fold(fold, centres)
    if not whole and n_states > 1:
        still = _STILL * float(sample.tastes.var(axis=0).mean())
        for _ in range(_PASSES):
            before, centres = centres, _centres(sums, centres)
            sums = engine.fold(fold, centres)
            if float(((centres - before) ** 2).sum()) <= still:
                break
    if sums.counts.min() < smallest:
        total = int(sums.counts.sum())
        raise ValueError(
            too_many_states(sample.tastes, n_states, sums.counts, smallest, RESTARTS, seed, total)
        )
    return _clusters(sums, shift, folded, noise)


def _clusters(
    sums: ClusterSums, shift: FloatArray, completion: Completion | Folded, noise: float | None
) -> FoldedClusters:
    """Return the model of clusters with these sums of users' vectors minus `shift`."""
    offsets = sums.vectors / sums.counts[:, None]
    shrunk = [
        usable(_covariance(n, total, outer))
        for n, total, outer in zip(sums.counts, sums.vectors, sums.outer, strict=True)
    ]
    means, covariances = shift + offsets, np.stack([one for one, _ in shrunk])
    model = _model(means, covariances, sums.counts, completion, noise)
    shrinkage = np.array([amount for _, amount in shrunk])
    return FoldedClusters(model, sums.counts, shrinkage)


def _centres(sums: ClusterSums, centres: FloatArray) -> FloatArray:
    """Return the mean taste vector of each cluster; an empty cluster keeps its centre."""
    counts = sums.counts[:, None]
    return np.where(counts > 0, sums.tastes / np.maximum(counts, 1e-12), centres)


def _covariance(n: float, total: FloatArray, outer: FloatArray) -> FloatArray:
    """Return the covariance of n rows from their sum and outer products; exactly 0 if constant."""
    spread = (outer - np.outer(total, total) / n) / max(n - 1, 1)
    constant = np.diag(spread) <= 1e-12 * (np.diag(outer) / n + 1e-300)
    spread[constant] = 0.0
    spread[:, constant] = 0.0
    return spread


# k-means: seeds far apart, steps of Lloyd's algorithm, and clusterings by scikit-learn.


def seeds(points: FloatArray, n_centres: int, rng: np.random.Generator) -> FloatArray:
    """Choose centres among the points `(n, d)` by k-means++ (Arthur & Vassilvitskii 2007).

    Each next point is drawn with the squared distance to the nearest centre so far as weight.

    >>> seeds(np.array([[0.0], [0.0], [5.0]]), 2, np.random.default_rng(0)).ravel()
    array([5., 0.])
    """
    n = len(points)
    chosen = [int(rng.integers(n))]
    distance = ((points - points[chosen[0]]) ** 2).sum(axis=1)
    while len(chosen) < n_centres:
        total = distance.sum()
        weights = distance / total if total > 0 else np.full(n, 1 / n)
        chosen.append(int(rng.choice(n, p=weights)))
        distance = np.minimum(distance, ((points - points[chosen[-1]]) ** 2).sum(axis=1))
    return points[chosen]


def nearest(points: FloatArray, centres: FloatArray) -> IntArray:
    """Return the index of the nearest centre of every point, `(n,)`."""
    distance = (centres**2).sum(axis=1) - 2 * points @ centres.T
    label: IntArray = distance.argmin(axis=1)
    return label


def lloyd(points: FloatArray, centres: FloatArray, steps: int) -> tuple[FloatArray, IntArray]:
    """Make steps of Lloyd's algorithm; return the centres and the cluster of each point.

    An empty cluster keeps its centre.

    >>> lloyd(np.array([[0.0], [1.0], [5.0]]), np.array([[0.0], [5.0]]), steps=1)
    (array([[0.5],
           [5. ]]), array([0, 0, 1]))
    """
    n_centres = len(centres)
    for _ in range(steps):
        label = nearest(points, centres)
        counts = np.bincount(label, minlength=n_centres)
        sums = np.stack(
            [np.bincount(label, column, minlength=n_centres) for column in points.T], axis=1
        )
        centres = np.where(counts[:, None] > 0, sums / np.maximum(counts, 1)[:, None], centres)
    return centres, label


def clusters_of(vectors: FloatArray, n_clusters: int, restarts: int, seed: int) -> IntArray:
    """Return the cluster of each vector, `(n,)`, by scikit-learn: the best of several restarts."""
    label: IntArray = _fitted(vectors, n_clusters, restarts, seed).labels_.astype(np.int64)
    return label


def first_centres(part: Vectors, n_states: int, restarts: int, seed: int) -> FloatArray:
    """Return the centres of the users' tastes, `(n_states, rank)`; ValueError for too few users."""
    if n_states > len(part.keys):
        raise ValueError(f"n_states is {n_states}, but only {len(part.keys)} users have ratings")
    if n_states == 1:
        return np.average(part.tastes, axis=0, weights=part.weights)[None]
    centres: FloatArray = _fitted(
        part.tastes, n_states, restarts, seed, part.weights
    ).cluster_centers_
    return centres


def _fitted(
    vectors: FloatArray,
    n_clusters: int,
    restarts: int,
    seed: int,
    weights: FloatArray | None = None,
) -> Any:
    """Return k-means of weighted vectors by scikit-learn: the best of several restarts."""
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings():  # fewer distinct vectors than clusters: callers check sizes
        warnings.simplefilter("ignore", ConvergenceWarning)
        fit = KMeans(n_clusters, n_init=restarts, random_state=seed)
        return fit.fit(vectors, sample_weight=weights)
