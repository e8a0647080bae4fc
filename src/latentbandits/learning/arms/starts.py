"""Starting points of the variational mixture: clusters of users that lie far apart.

A user's mean rewards, shrunk to the action's mean, are noisy if rewards are sparse; their leading
principal components are less noisy. Users are clustered in those by k-means++ and a few steps of
k-means, and the summed statistics of the clusters are a start.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from latentbandits.learning.arms.cells import Totals
from latentbandits.learning.arms.mixture import Mixture
from latentbandits.learning.kmeans import lloyd, nearest, seeds
from latentbandits.models.arms.learnable import Learnable
from latentbandits.models.artefacts.catalogue import Catalogue
from latentbandits.models.checks import FloatArray

SAMPLE = 4_000
"""The number of users from which starts are made."""

_STEPS = 5  # of k-means for each start
_FIRST_STRENGTH = 20.0  # of the pooled prior, in rewards; the ascent updates it


def grouped_starts(
    family: Learnable,
    sample: FloatArray,
    totals: Totals,
    centre: FloatArray,
    n_states: int,
    n_starts: int,
    rng: np.random.Generator,
    attributes: FloatArray | None = None,
) -> Mixture:
    """Return `n_starts` mixtures of `n_states` states, made from a `sample` (n, K, A) of users.

    With `attributes` (n, d), users are clustered by the mean rewards that these predict.
    """
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
    phi = family.posterior(family.prior(centre, strength), scale * sums.swapaxes(2, 3), noise)
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
    inner = model.model if hasattr(model, "transform") else model
    features = None if catalogue is None else catalogue.features
    means = inner.expected_rewards(None if features is None else features[None])[0]
    ids = [str(i) for i in range(means.shape[1])] if catalogue is None else catalogue.ids
    places = {name: i for i, name in enumerate(ids)}
    average = means.mean(axis=1)
    columns = [means[:, places[name]] if name in places else average for name in actions]
    return Earlier(np.stack(columns, axis=1), np.exp(model.log_state_prior[0]))
