"""k-means: seeds far apart, steps of Lloyd's algorithm, and clusterings by scikit-learn."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from latentbandits.models.checks import FloatArray, IntArray


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
    """Make steps of Lloyd's algorithm; return the centres and the clusters that they are means of.

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
    label: IntArray = _fitted(vectors, n_clusters, restarts, seed, None).labels_.astype(np.int64)
    return label


def centres_of(
    vectors: FloatArray, n_clusters: int, restarts: int, seed: int, weights: FloatArray
) -> FloatArray:
    """Return the centres of weighted vectors, `(n_clusters, d)`, by scikit-learn."""
    centres: FloatArray = _fitted(vectors, n_clusters, restarts, seed, weights).cluster_centers_
    return centres


def _fitted(
    vectors: FloatArray, n_clusters: int, restarts: int, seed: int, weights: FloatArray | None
) -> Any:
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings():  # fewer distinct vectors than clusters: callers check sizes
        warnings.simplefilter("ignore", ConvergenceWarning)
        fit = KMeans(n_clusters, n_init=restarts, random_state=seed)
        return fit.fit(vectors, sample_weight=weights)
