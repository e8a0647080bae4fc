"""Starting points of the variational mixture: clusters of users that lie far apart.

A user's mean rewards, shrunk to the action's mean, are noisy if rewards are sparse; their leading
principal components are less noisy. Users are clustered in those by k-means++ and a few steps of
k-means, and the summed statistics of the clusters are a start.
"""

from __future__ import annotations

import numpy as np

from latentbandits.learning.arms.cells import Totals
from latentbandits.learning.arms.families.family import Family
from latentbandits.learning.arms.mixture import Mixture
from latentbandits.models.checks import FloatArray, IntArray

SAMPLE = 4_000
"""The number of users from which starts are made."""

_LLOYD = 5
_FIRST_STRENGTH = 20.0  # of the pooled prior, in rewards; the ascent updates it


def grouped_starts(
    family: Family,
    sample: FloatArray,
    totals: Totals,
    centre: FloatArray,
    n_states: int,
    n_starts: int,
    rng: np.random.Generator,
) -> Mixture:
    """Return `n_starts` mixtures of `n_states` states, made from a `sample` (n, K, A) of users."""
    points = _points(family, sample, totals)
    n_users, n_actions = float(totals.n_users[0]), totals.statistics.shape[1]
    shape = (n_starts, n_states, family.n_statistics, n_actions)
    sums, shares = np.zeros(shape), np.zeros((n_starts, n_states))
    components = _principal(points, min(n_states + 1, points.shape[1], len(points)))
    for i in range(n_starts):
        # Half of the starts use fewer components, to leave out noise.
        n_components = max(1, n_states - 1) if i % 2 == 0 else components.shape[1]
        group = _groups(components[:, :n_components], n_states, rng)
        for s in range(n_states):
            sums[i, s] = sample[group == s].sum(axis=0)
            shares[i, s] = (group == s).sum()
    scale = n_users / len(sample)
    noise = family.first_noise(totals.statistics[0], n_starts)
    strength = np.full(n_starts, _FIRST_STRENGTH)
    phi = family.posterior(family.prior(centre, strength), scale * sums.swapaxes(2, 3), noise)
    return Mixture(phi, 1.0 + scale * shares, strength, noise)


def joined(*mixtures: Mixture) -> Mixture:
    """Join mixtures with the same number of states along the axis R."""
    return Mixture(*(np.concatenate(parts) for parts in zip(*mixtures, strict=True)))


def _points(family: Family, sample: FloatArray, totals: Totals) -> FloatArray:
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


def _groups(points: FloatArray, n_states: int, rng: np.random.Generator) -> IntArray:
    """Cluster by k-means++ seeds (Arthur & Vassilvitskii 2007), then a few steps of k-means."""
    chosen = [int(rng.integers(len(points)))]
    distance = ((points - points[chosen[0]]) ** 2).sum(axis=1)
    while len(chosen) < n_states:
        total = distance.sum()
        weights = distance / total if total > 0 else np.full(len(points), 1 / len(points))
        chosen.append(int(rng.choice(len(points), p=weights)))
        distance = np.minimum(distance, ((points - points[chosen[-1]]) ** 2).sum(axis=1))
    centres = points[chosen]
    group = _nearest(points, centres)
    for _ in range(_LLOYD):
        counts = np.bincount(group, minlength=n_states)
        sums = np.stack(
            [np.bincount(group, column, minlength=n_states) for column in points.T], axis=1
        )
        centres = np.where(counts[:, None] > 0, sums / np.maximum(counts, 1)[:, None], centres)
        group = _nearest(points, centres)
    return group


def _nearest(points: FloatArray, centres: FloatArray) -> IntArray:
    distance = (centres**2).sum(axis=1) - 2 * points @ centres.T
    nearest: IntArray = distance.argmin(axis=1)
    return nearest
