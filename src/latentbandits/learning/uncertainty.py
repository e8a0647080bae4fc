"""How wrong a fit may be: what changes when other users had been logged.

The bootstrap draws as many users as there are, with replacement, and learns the model again. What
the fits disagree on widens the model's prior, and says what epsilon and delta of Theorem 2 are:
with probability 1 - delta, |mu_hat - mu| <= epsilon for all states and actions at once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from latentbandits.learning.alignment import align
from latentbandits.learning.learners import Learned, Learner
from latentbandits.learning.logs import Log
from latentbandits.learning.progress import Progress, Silent
from latentbandits.models.arms.gaussian import GaussianArms
from latentbandits.models.checks import BoolArray, FloatArray, IntArray
from latentbandits.models.linear.gaussian import LinearGaussian

DELTAS = (0.5, 0.2, 0.1, 0.05)

_ATTEMPTS = 5


@dataclass(frozen=True, eq=False)
class Disagreement:
    """Fits to resampled users, less the fit to all of them, state by state."""

    rewards: FloatArray  # (n_fits, n_states, n_actions); NaN where a resample never saw the action
    shares: FloatArray  # (n_fits, n_states)
    weights: FloatArray | None  # (n_fits, n_states, n_features) for a linear model

    def epsilon(self, delta: float, among: BoolArray | None = None) -> float:
        """The error that all states and actions (`among` these) stay within, but for a share
        `delta` of fits.
        """
        chosen = self.rewards if among is None else self.rewards[:, :, among]
        largest = np.abs(_or_zero(chosen)).max(axis=(1, 2))
        return float(np.quantile(largest, 1 - delta, method="higher"))

    def typical(self, counts: IntArray) -> float:
        """The root mean square error over the states and over actions as often as they occur."""
        known = ~np.isnan(self.rewards)
        weights = np.broadcast_to(counts, self.rewards.shape) * known
        squares = np.where(known, self.rewards, 0.0) ** 2
        return float(np.sqrt((weights * squares).sum() / weights.sum()))


def bootstrap(
    learner: Learner,
    log: Log,
    learned: Learned,
    rank: int | None,
    n_fits: int,
    *,
    seed: int = 0,
    progress: Progress | None = None,
) -> Disagreement:
    """Learn again from `n_fits` resamples of the users, and align every fit with `learned`."""
    report = Silent() if progress is None else progress
    report.start("bootstrap", n_fits)
    reference = learned.rewards()
    rewards, shares, weights = [], [], []
    for i in range(n_fits):
        rng = np.random.default_rng([seed, i])
        again = _learn_again(learner, log, learned, rank, rng)
        order = align(again.rewards(), reference, learned.counts.astype(np.float64))
        difference = again.rewards()[order] - reference
        difference[:, again.counts == 0] = np.nan
        rewards.append(difference)
        shares.append(again.model.state_prior[order] - learned.model.state_prior)
        if learned.features is not None:
            weights.append(_in_coordinates(learned, again, order))
        report.advance(1)
    return Disagreement(np.array(rewards), np.array(shares), np.array(weights) if weights else None)


def widen(learned: Learned, found: Disagreement) -> Learned:
    """The model with its prior widened by what the fits disagree on.

    The spread of a mean of arms already says how sure the data leave us if the mixture is true; it
    becomes the fits' own where that is larger. A covariance of users within their state says
    nothing of the state's mean, so the variance of that mean is added to it.
    """
    model = learned.model
    if isinstance(model, GaussianArms):
        seen = np.sqrt(np.mean(_or_zero(found.rewards) ** 2, axis=0))
        spread = np.maximum(model.spread, seen)
        wide: GaussianArms | LinearGaussian = GaussianArms(
            model.means, model.noise, spread, model.state_prior
        )
    else:
        assert found.weights is not None
        moved = np.einsum("bsi,bsj->sij", found.weights, found.weights) / len(found.weights)
        wide = LinearGaussian(
            model.weights, model.noise, model.covariances + moved, model.state_prior
        )
    return Learned(wide, learned.features, learned.counts, learned.shrinkage)


def prior_errors(
    learned: Learned, among: BoolArray, *, n_draws: int = 400, seed: int = 0
) -> FloatArray:
    """For draws of the parameters from the model's own prior, the largest distance from its means
    over all states and actions (`among` these): `(n_draws,)`. Its 1 - delta quantile is the
    epsilon that the model itself claims.
    """
    rng = np.random.default_rng(seed)
    model = learned.model
    if isinstance(model, GaussianArms):
        errors = model.spread * rng.standard_normal((n_draws, *model.spread.shape))
        largest: FloatArray = np.abs(errors[:, :, among]).max(axis=(1, 2))
        return largest
    assert learned.features is not None
    draws = rng.standard_normal((n_draws, model.n_states, model.n_features, 1))
    theta = (_roots(model) @ draws)[..., 0]
    seen = learned.features[among].T
    return np.array([np.abs(one @ seen).max() for one in theta])


def _learn_again(
    learner: Learner, log: Log, learned: Learned, rank: int | None, rng: np.random.Generator
) -> Learned:
    """A fit to resampled users; who lack a cluster are resampled again, a few times."""
    attempt = 1
    while True:
        resample = log.of_users(np.sort(rng.integers(log.n_users, size=log.n_users)))
        seed = int(rng.integers(2**31))
        try:
            prepared = learner.prepare(resample, rank, seed)
            return learner.learn(prepared, learned.model.n_states, seed, near=learned)
        except ValueError:
            if attempt == _ATTEMPTS:
                raise
            attempt += 1


def _in_coordinates(learned: Learned, again: Learned, order: IntArray) -> FloatArray:
    """The other fit's state means less our own, in our features: least squares over the actions."""
    assert learned.features is not None
    both = (learned.counts > 0) & (again.counts > 0)
    root = np.sqrt(learned.counts[both].astype(np.float64))[:, None]
    difference = (again.rewards()[order] - learned.rewards())[:, both]
    solution = np.linalg.lstsq(learned.features[both] * root, difference.T * root, rcond=None)[0]
    return solution.T.astype(np.float64)


def _or_zero(values: FloatArray) -> FloatArray:
    return np.nan_to_num(values)


def _roots(model: LinearGaussian) -> FloatArray:
    values, vectors = np.linalg.eigh(model.covariances)
    roots: FloatArray = vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :]
    return roots
