"""k-means of users' vectors as a fold: the latent states of a completion on any engine.

k-means starts from the centres of a sample of users and continues over all users: a pass returns
the count, the sum and the outer products of each cluster. No users' vectors outside the sample are
collected.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from latentbandits.learning.kmeans import centres_of, nearest
from latentbandits.learning.linear.clusters import (
    SMALLEST_CLUSTER,
    PrepareVectors,
    Vectors,
    click_model,
    too_many_states,
    usable,
)
from latentbandits.learning.linear.folded import Folded
from latentbandits.learning.user_hash import Keys
from latentbandits.models.checks import FloatArray, positive_count, positive_number
from latentbandits.models.linear.gaussian import LinearGaussian
from latentbandits.models.linear.logistic import LogisticLinear

SAMPLE = 20_000
"""The number of users whose vectors give the first centres."""

_PASSES = 10
_STILL = 1e-4  # convergence: centres move less than this fraction of the mean variance


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
        state = nearest(part.tastes, centres)
        n_states, d = len(centres), part.vectors.shape[1]
        counts, tastes = np.zeros(n_states), np.zeros(centres.shape)
        sums, outer = np.zeros((n_states, d)), np.zeros((n_states, d, d))
        moved = part.vectors - self.shift
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


@dataclass(frozen=True, eq=False)
class _Sampled:
    parts: tuple[Vectors, ...]

    def __add__(self, other: _Sampled) -> _Sampled:
        return _Sampled(self.parts + other.parts)

    def joined(self) -> Vectors:
        """Join the sampled vectors, sorted by the users' keys."""
        keys = np.concatenate([part.keys for part in self.parts])
        order = np.argsort(keys, kind="stable")
        vectors, tastes, weights = (
            np.concatenate(column)[order] for column in list(zip(*self.parts, strict=True))[:3]
        )
        return Vectors(vectors, tastes, weights, keys[order])


@dataclass(frozen=True, eq=False)
class SamplePass:
    """A pass that returns the vectors of the users with the given keys; None means all users."""

    prepare: PrepareVectors
    keys: Keys | None

    def summarise(self, part: Vectors, parameters: None) -> _Sampled:
        if self.keys is None:
            return _Sampled((part,))
        chosen = np.isin(part.keys, self.keys)
        return _Sampled((part.select(chosen),))


class FoldedClusters(NamedTuple):
    """The model made from clusters of users, with their sizes and shrinkage."""

    model: LinearGaussian | LogisticLinear
    sizes: FloatArray  # (n_states,)
    shrinkage: FloatArray  # (n_states,)


def cluster_fold(
    folded: Folded,
    n_states: int,
    *,
    noise: float | None = None,
    smallest: int = SMALLEST_CLUSTER,
    restarts: int = 10,
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
    sample = engine.fold(SamplePass(prepare, keys), None).joined()
    if n_states > len(sample.keys):
        raise ValueError(f"n_states is {n_states}, but only {len(sample.keys)} users have ratings")
    centres = centres_of(sample.tastes, n_states, restarts, seed, sample.weights)
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
            too_many_states(sample.tastes, n_states, sums.counts, smallest, restarts, seed, total)
        )
    offsets = sums.vectors / sums.counts[:, None]
    shrunk = [
        usable(_covariance(n, total, outer))
        for n, total, outer in zip(sums.counts, sums.vectors, sums.outer, strict=True)
    ]
    means, covariances = shift + offsets, np.stack([one for one, _ in shrunk])
    prior = sums.counts / sums.counts.sum()
    model: LinearGaussian | LogisticLinear
    if folded.settings.link == "logit":
        model = click_model(means, covariances, prior, offset=folded.settings.biases)
    else:
        deviation = folded.noise if noise is None else positive_number("noise", noise)
        model = LinearGaussian(means, deviation, covariances, prior)
    shrinkage = np.array([amount for _, amount in shrunk])
    return FoldedClusters(model, sums.counts, shrinkage)


def _centres(sums: ClusterSums, centres: FloatArray) -> FloatArray:
    """Return the mean taste vector of each cluster; an empty cluster keeps its centre."""
    counts = sums.counts[:, None]
    moved: FloatArray = np.where(counts > 0, sums.tastes / np.maximum(counts, 1e-12), centres)
    return moved


def _covariance(n: float, total: FloatArray, outer: FloatArray) -> FloatArray:
    """Return the covariance of n rows from their sum and outer products; exactly 0 if constant."""
    spread = (outer - np.outer(total, total) / n) / max(n - 1, 1)
    constant = np.diag(spread) <= 1e-12 * (np.diag(outer) / n + 1e-300)
    spread[constant] = 0.0
    spread[:, constant] = 0.0
    covariance: FloatArray = spread
    return covariance
