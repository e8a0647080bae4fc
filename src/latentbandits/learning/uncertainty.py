"""Estimate the errors of a fit by fitting resampled users (bootstrap).

The bootstrap resamples the users and learns the model again. The variance between the fits widens
the model's prior. It also gives epsilon and delta of Theorem 2: with probability 1 - delta,
|mu_hat - mu| <= epsilon for all states and actions at once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from latentbandits.learning.alignment import align
from latentbandits.learning.engines.engine import AnyLog
from latentbandits.learning.learners import Learned, Learner
from latentbandits.learning.selection import Candidate
from latentbandits.models.checks import BoolArray, FloatArray, IntArray
from latentbandits.report.progress import Progress, Silent

DELTAS = (0.5, 0.2, 0.1, 0.05)


@dataclass(frozen=True, eq=False)
class Disagreement:
    """Differences of the fits to resampled users from the fit to all users, state by state."""

    rewards: FloatArray  # (n_fits, n_states, n_actions); NaN where a resample never saw the action
    shares: FloatArray  # (n_fits, n_states)
    weights: FloatArray | None = None  # (n_fits, n_states, n_features): of regressions

    def epsilon(self, delta: float, among: BoolArray | None = None) -> float:
        """Return the largest error over states and actions at its 1 - `delta` quantile over fits.

        `among` restricts the actions.
        """
        chosen = self.rewards if among is None else self.rewards[:, :, among]
        largest = np.abs(np.nan_to_num(chosen)).max(axis=(1, 2))
        return float(np.quantile(largest, 1 - delta, method="higher"))

    def typical(self, counts: IntArray) -> float:
        """Return the root mean square error over states and actions, weighted by `counts`."""
        known = ~np.isnan(self.rewards)
        weights = np.broadcast_to(counts, self.rewards.shape) * known
        squares = np.where(known, self.rewards, 0.0) ** 2
        return float(np.sqrt((weights * squares).sum() / weights.sum()))

    def variance(self) -> FloatArray:
        """Return the mean squared difference of every mean reward, `(n_states, n_actions)`."""
        mean: FloatArray = np.mean(np.nan_to_num(self.rewards) ** 2, axis=0)
        return mean

    def of_more_users(self, learned: Learned, other: Learned, share: float) -> Disagreement:
        """Return the disagreement about `other`, a fit to more users than `learned`.

        `share` is the fraction of users that `learned` was learned from: errors fall with its root.
        States are put in the order of `other`.
        """
        scale = float(np.sqrt(share))
        if self.weights is None:
            order = align(learned.rewards(), other.rewards(), other.counts.astype(np.float64))
        else:
            order = align(
                learned.model.weights, other.model.weights, np.ones(self.weights.shape[2])
            )
        return Disagreement(
            scale * self.rewards[:, order],
            scale * self.shares[:, order],
            None if self.weights is None else scale * self.weights[:, order],
        )

    def in_features(self, learned: Learned) -> FloatArray:
        """Return the differences of a linear model's weights, `(n_fits, n_states, n_features)`.

        They are fitted to the differences of mean rewards by least squares over the actions,
        weighted by their counts.
        """
        assert learned.features is not None
        weights = []
        for difference in self.rewards:
            known = (learned.counts > 0) & ~np.isnan(difference).any(axis=0)
            root = np.sqrt(learned.counts[known].astype(np.float64))[:, None]
            features = learned.features[known] * root
            target = difference[:, known].T * root
            weights.append(np.linalg.lstsq(features, target, rcond=None)[0].T)
        return np.array(weights)


def bootstrap(
    learner: Learner,
    log: AnyLog,
    learned: Learned,
    chosen: Candidate,
    n_fits: int,
    *,
    seed: int = 0,
    progress: Progress | None = None,
) -> Disagreement:
    """Learn again from `n_fits` resamples of the users, and align every fit with `learned`."""
    report = Silent() if progress is None else progress
    report.start("bootstrap", n_fits)
    reference = learned.rewards()
    prior = np.exp(learned.model.log_state_prior[0])
    weights = learned.counts.astype(np.float64)
    rewards, shares, moved = [], [], []
    for again in learner.replicates(log, learned, chosen, n_fits, seed, report):
        order = align(again.rewards, reference, weights)
        if again.moved is not None:
            order = np.arange(len(reference))
            moved.append(again.moved)
        difference = again.rewards[order] - reference
        difference[:, again.counts == 0] = np.nan
        rewards.append(difference)
        shares.append(again.shares[order] - prior)
    return Disagreement(np.array(rewards), np.array(shares), np.array(moved) if moved else None)


def prior_errors(
    learned: Learned, among: BoolArray, *, n_draws: int = 400, seed: int = 0
) -> FloatArray:
    """Return the largest error over states and actions of draws from the prior, `(n_draws,)`.

    `among` marks the actions. The 1 - delta quantile of these errors is epsilon under the model's
    own prior.
    """
    rng = np.random.default_rng(seed)
    model = learned.model
    means = learned.rewards()[:, among]
    features = None if learned.features is None else learned.features[None, among]
    parameters = model.parameters(1)
    errors = np.zeros(n_draws)
    for s in range(model.n_states):
        for start in range(0, n_draws, 50):  # blocks bound the memory for large catalogues
            n = min(50, n_draws - start)
            state = np.full((1, n), s)
            draws = model.sample_rewards(parameters, features, state, rng)[0]
            columns = draws[:, among] if features is None else draws
            largest = np.abs(columns - means[s]).max(axis=1)
            errors[start : start + n] = np.maximum(errors[start : start + n], largest)
    return errors
