"""Estimate the errors of a fit by fitting resampled users (bootstrap).

The bootstrap resamples the users and learns the model again. The variance between the fits widens
the model's prior. It also gives epsilon and delta of Theorem 2: with probability 1 - delta,
|mu_hat - mu| <= epsilon for all states and actions at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from latentbandits.learning.backends.backend import AnyLog
from latentbandits.learning.logs.summary import LogSummary
from latentbandits.learning.selection import Learned, Learner
from latentbandits.models.arms.gaussian import GaussianArms
from latentbandits.models.checks import BoolArray, FloatArray, IntArray
from latentbandits.models.linear.gaussian import LinearGaussian
from latentbandits.report.report import Progress, Silent

# Match the states of two fits by their mean rewards, because labels of states are arbitrary.


def align(
    rewards: FloatArray, reference: FloatArray, weights: FloatArray | None = None
) -> IntArray:
    """Return the state of `rewards` (n_states, n_actions) that matches each state of `reference`.

    The assignment has the least total squared distance; `weights` are the weights of actions.

    >>> align(np.array([[0.0, 1.0], [1.0, 0.0]]), np.array([[0.9, 0.1], [0.1, 0.9]]))
    array([1, 0])
    """
    from scipy.optimize import linear_sum_assignment

    scale = np.ones(rewards.shape[1]) if weights is None else np.sqrt(weights)
    a, b = reference * scale, rewards * scale
    distance = (a**2).sum(axis=1)[:, None] - 2 * a @ b.T + (b**2).sum(axis=1)
    state: IntArray = linear_sum_assignment(distance)[1]
    return state


DELTAS = (0.5, 0.2, 0.1, 0.05)

LARGEST_RATIO = 1.25
"""Limit on the standard deviation of a new user's reward, relative to that of logged rewards."""

_FEW_REWARDS = 30  # an action with fewer rewards is compared with all rewards
_SCALES = (1.0, 0.5, 0.25, 0.1)


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

    def scaled(self, factor: float) -> Disagreement:
        """Return the differences times `factor`."""
        weights = None if self.weights is None else factor * self.weights
        return Disagreement(factor * self.rewards, factor * self.shares, weights)

    def in_features(self, learned: Learned) -> FloatArray:
        """Return the covariance of a linear model's mean weights over fits, `(n_states, d, d)`.

        Completion determines weights and features only up to an invertible map. So differences of
        mean rewards D are mapped back to weights, by the regression whose prior is the state's
        covariance C of users: w = (X'NX / s^2 + C^-1)^-1 X'N D / s^2, with X the features, N the
        counts and s the noise. In directions in which the features express nothing, w is zero. The
        error of a state's mean is at most the spread of its users: the covariance of w is bounded
        by C. Coefficients that C holds as known stay known.
        """
        assert learned.features is not None
        model = learned.model
        seen = ~np.isnan(self.rewards).any(axis=1) * learned.counts  # (n_fits, n_actions)
        differences = np.nan_to_num(self.rewards)
        added: FloatArray = np.zeros_like(model.covariances)
        for s, covariance in enumerate(model.covariances):
            varying = np.flatnonzero(np.diag(covariance) > 0)
            if not len(varying):
                continue
            # In the coordinates in which C is the identity.
            root = np.linalg.cholesky(covariance[np.ix_(varying, varying)])
            x = learned.features[:, varying] @ root
            gram = np.einsum("ba,ai,aj->bij", seen, x, x, optimize=True)
            gram += model.noise**2 * np.eye(len(varying))
            target = (seen * differences[:, s]) @ x
            moved = np.linalg.solve(gram, target[..., None])[..., 0]
            values, axes = np.linalg.eigh(moved.T @ moved / len(moved))
            scaled = root @ (axes * np.sqrt(np.minimum(values, 1.0).clip(0.0)))
            added[s][np.ix_(varying, varying)] = scaled @ scaled.T
        return added


def bootstrap(
    learner: Learner,
    log: AnyLog,
    learned: Learned,
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
    for again in learner.replicates(log, learned, n_fits, seed):
        order = align(again.rewards, reference, weights)
        if again.moved is not None:
            order = np.arange(len(reference))
            moved.append(again.moved)
        difference = again.rewards[order] - reference
        difference[:, again.counts == 0] = np.nan
        rewards.append(difference)
        shares.append(again.shares[order] - prior)
        report.advance(1)
    return Disagreement(np.array(rewards), np.array(shares), np.array(moved) if moved else None)


def widened(
    learner: Learner, learned: Learned, disagreement: Disagreement, log: LogSummary
) -> tuple[Learned, dict[str, float]]:
    """Widen a model by the bootstrap, by as much as logged rewards allow, and report on it.

    The predictive standard deviation of a new user's reward for an action must stay within
    `LARGEST_RATIO` times that of the action's logged rewards, or that before widening if it is
    larger (models share one noise between actions). Differences between fits are scaled down until
    it does. The report has the scale, and the largest ratio before and after widening.
    """
    logged = logged_variance(log)
    before = predictive_variance(learned)
    limit = LARGEST_RATIO**2 * np.maximum(logged, before)
    scale, wide = 0.0, learned
    for factor in _SCALES:
        candidate = learner.widened(learned, disagreement.scaled(factor))
        if (predictive_variance(candidate) <= limit).all():
            scale, wide = factor, candidate
            break
    varied = logged > 0
    ratios = [
        float(np.sqrt((variance[varied] / logged[varied]).max(initial=0.0)))
        for variance in (before, predictive_variance(wide))
    ]
    return wide, {"scale": scale, "ratio_before": ratios[0], "ratio_after": ratios[1]}


def mean_variance(learned: Learned) -> FloatArray:
    """Return the prior variance of a new user's mean reward for every action, `(n_actions,)`.

    It is over states and parameters.
    """
    model = learned.model
    context = None if learned.features is None else learned.features[None]
    mean, variance = (part[0] for part in model.posterior_rewards(model.parameters(1), context))
    prior = np.exp(model.log_state_prior[0])
    total: FloatArray = prior @ (variance + (mean - prior @ mean) ** 2)
    return total


def predictive_variance(learned: Learned) -> FloatArray:
    """Return the variance of a new user's reward for every action, `(n_actions,)`.

    Models of Gaussian rewards add their noise to the variance of the mean; that of other families
    depends on the mean, and is left out.
    """
    model, total = learned.model, mean_variance(learned)
    return total + model.noise**2 if isinstance(model, (GaussianArms, LinearGaussian)) else total


def excess_spread(learned: Learned, log: LogSummary, action_ids: Sequence[str]) -> str:
    """Say whether new users' rewards vary more by the model than in the log; empty if not.

    The predictive standard deviation may be `LARGEST_RATIO` times that of the logged rewards, over
    all rewards and for every action. Actions share the noise of a model, so that the part without
    noise is compared for each of them.
    """
    logged = logged_variance(log)
    seen = (log.action_counts > 0) & (logged > 0)
    if not seen.any():
        return ""
    limit = LARGEST_RATIO**2
    ratio = np.where(seen, mean_variance(learned) / np.where(seen, logged, 1.0), 0.0)
    worst = int(ratio.argmax())
    if ratio[worst] > limit:
        return (
            f"the model expects rewards for {action_ids[worst]} to differ between users "
            f"{np.sqrt(ratio[worst]):.3g} times as much as those in the log do"
        )
    pooled = float(log.rewards.deviation**2)
    whole = float(np.average(predictive_variance(learned), weights=log.action_counts))
    if whole > limit * pooled:
        return (
            f"the model expects rewards to vary {np.sqrt(whole / pooled):.3g} times as much as "
            "those in the log do"
        )
    return ""


def logged_variance(log: LogSummary) -> FloatArray:
    """Return the variance of every action's logged rewards; of all rewards if it has few."""
    counts = np.maximum(log.action_counts, 1)
    variance = log.action_squares / counts - (log.action_sums / counts) ** 2
    few = log.action_counts < _FEW_REWARDS
    pooled: FloatArray = np.where(few, log.rewards.deviation**2, np.maximum(variance, 0.0))
    return pooled


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
