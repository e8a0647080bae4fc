"""Checks of a model's densities: normalised, with the right mean, followed by the model's draws.

Integrals over continuous rewards use the trapezoidal rule after a substitution that reaches far
into the tails, x = centre + scale * sinh(t) on the real line and x = low + scale * exp(t) on a
half-line. They are exact to about 1e-8 for smooth densities, and to about 1e-4 for densities with
a kink, such as Laplace's.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from latentbandits.models.checks import Context, FloatArray, IntArray
from latentbandits.models.numerics.arrays import map_leaves
from latentbandits.models.numerics.laws import Counts, Interval, OneOf, Support
from latentbandits.models.protocol import Generative, KnownModel, Model, with_defaults

TOLERANCE = 1e-3  # of an integral over rewards
N_DRAWS = 20_000
KOLMOGOROV = 3.0  # sqrt(n) times the largest difference: exceeded with probability 3e-8
ERRORS = 6.0  # standard errors: exceeded with probability 2e-9
N_PRIOR_DRAWS = 20_000
N_EVIDENCE_ROUNDS = 3
HEAVY = 30.0  # kurtosis above which the error of a variance is not normal
FEWEST_EFFECTIVE = 100  # prior draws that an average must effectively rest on

_N_POINTS = 801
_REACH = 14.0  # in t: sinh(14) = 600,000 scales
_COUNTED = 1e-10  # probability of all counts that are left out
_MOST_COUNTS = 100_000

LogDensity = Callable[[FloatArray], FloatArray]
"""log_density(rewards): the log density of each reward, `(n,)` for `rewards` (n,)."""


def scale_of(model: KnownModel) -> float:
    """Return the noise of the model as the scale of an integral; 1 if it does not tell."""
    try:
        return model.noise
    except ValueError:
        return 1.0


class Density:
    """A density on the points of a support, with the weights of an integral over it."""

    def __init__(
        self, log_density: LogDensity, support: Support, centre: float, scale: float
    ) -> None:
        self.discrete = isinstance(support, (Counts, OneOf))
        if isinstance(support, OneOf):
            self.points, weights = np.array(support.values), np.ones(len(support.values))
        elif isinstance(support, Counts):
            self.points = _enough_counts(log_density, centre)
            weights = np.ones(len(self.points))
        else:
            assert isinstance(support, Interval), f"a support of type {type(support).__name__}"
            self.points, weights = _nodes(support, centre, scale)
        self.atoms = np.full(len(self.points), self.discrete)
        if isinstance(support, Interval) and support.atoms:
            order = np.argsort(np.append(support.atoms, self.points), kind="stable")
            self.atoms = np.append(np.ones(len(support.atoms), bool), self.atoms)[order]
            self.points = np.append(support.atoms, self.points)[order]
            weights = np.append(np.ones(len(support.atoms)), weights)[order]
        log_values = log_density(self.points)
        assert log_values.shape == self.points.shape, f"a log density of {log_values.shape}"
        assert not np.isnan(log_values).any(), "a log density is NaN"
        with np.errstate(over="ignore"):  # then it does not integrate to one
            self.masses: FloatArray = weights * np.exp(log_values)

    def check(self, mean: float, what: str) -> None:
        """Assert that the density integrates to one and has this mean."""
        total = float(self.masses.sum())
        assert abs(total - 1) < TOLERANCE, f"{what} integrates to {total:.6g} instead of 1"
        average = float(self.masses @ self.points)
        spread = float(np.sqrt(self.masses @ (self.points - mean) ** 2))
        off = abs(average - mean)
        assert off < TOLERANCE * (spread + abs(mean)), (
            f"{what} has the mean {average:.6g} instead of {mean:.6g}"
        )

    def check_draws(self, draws: FloatArray, what: str) -> None:
        """Assert that `draws` have the mean and variance of the density, and its distribution.

        The distribution is compared by the test of Kolmogorov and Smirnov. A variance is compared
        where the density has a fourth moment.
        """
        mean = self.masses @ self.points
        variance, fourth = (self.masses @ (self.points - mean) ** power for power in (2, 4))
        error = np.sqrt(variance / len(draws)) + 1e-9
        off = abs(draws.mean() - mean) / error
        assert off < ERRORS, f"{what}: their mean is {off:.1f} standard errors off"
        if fourth < HEAVY * variance**2:
            error = np.sqrt((fourth - variance**2) / len(draws)) + 1e-9
            off = abs(((draws - mean) ** 2).mean() - variance) / error
            assert off < ERRORS, f"{what}: their variance is {off:.1f} standard errors off"
        below = self.masses.cumsum()
        # Half of a trapezoid lies on either side of its point; an atom lies on it.
        below -= np.where(self.atoms, 0.0, self.masses / 2)
        sample = np.sort(draws)
        counted = np.searchsorted(sample, self.points, side="right") / len(sample)
        largest = float(np.abs(counted - below / below[-1]).max() * np.sqrt(len(sample)))
        assert largest < KOLMOGOROV, (
            f"{what} do not follow their density: the largest difference between their "
            f"distribution functions is {largest / np.sqrt(len(sample)):.3f}"
        )


def _nodes(support: Interval, centre: float, scale: float) -> tuple[FloatArray, FloatArray]:
    """Return points and weights of an integral over an interval."""
    if support.bounds is not None:
        nodes, weights = np.polynomial.legendre.leggauss(_N_POINTS)
        half = (support.high - support.low) / 2
        return support.low + half * (1 + nodes), half * weights
    t, step = np.linspace(-_REACH, _REACH, _N_POINTS, retstep=True)
    if support.low == -np.inf:
        return centre + scale * np.sinh(t), scale * np.cosh(t) * float(step)
    return support.low + scale * np.exp(t), scale * np.exp(t) * float(step)


def _enough_counts(log_density: LogDensity, centre: float) -> FloatArray:
    """Return the counts 0, 1, 2, ... up to where next to no probability is left."""
    n = int(2 * centre) + 32
    while n < _MOST_COUNTS:
        counts = np.arange(float(n))
        with np.errstate(over="ignore"):
            tail = np.exp(log_density(counts[-16:])).sum()
        if tail < _COUNTED:
            break
        n *= 2
    return np.arange(float(n))


def check_likelihood(model: KnownModel, context: Context, support: Support) -> None:
    """Check log p(r | a, x, s) of the first session in every state and action.

    It integrates to one and its mean is `expected_rewards`.
    """

    def log_density(s: int, a: int, r: FloatArray) -> FloatArray:
        return model.log_likelihood(_repeat(context, len(r)), _all(a, r), r)[:, s]

    means = model.expected_rewards(context)[0]
    _check_densities(log_density, support, means, scale_of(model), "likelihood")


def _check_densities(
    log_density: Callable[[int, int, FloatArray], FloatArray],
    support: Support,
    means: FloatArray,
    scale: float,
    what: str,
) -> None:
    """Check a density in every state and action, whose `means` are (n_states, n_actions)."""
    for s, a in np.ndindex(means.shape):
        mean = float(means[s, a])
        density = Density(partial(log_density, s, a), support, mean, scale)
        density.check(mean, f"the {what} of action {a} in state {s}")


def check_predictive(model: Model, parameters: Any, context: Context, support: Support) -> None:
    """Check the predictive density of the first session in every state and action.

    The density integrates to one, and its mean is the mean of `posterior_rewards`. If the model is
    certain, the density equals the likelihood.
    """

    def log_density(s: int, a: int, r: FloatArray) -> FloatArray:
        learned = map_leaves(lambda leaf: np.repeat(leaf[:1], len(r), axis=0), parameters)
        wide = _repeat(context, len(r))
        density = model.condition(learned, wide, _all(a, r), r)[0][:, s]
        if model.is_certain:
            likelihood = model.log_likelihood(wide, _all(a, r), r)[:, s]
            np.testing.assert_allclose(
                density, likelihood, rtol=1e-9, err_msg="predictive of a certain model"
            )
        return density

    means = model.posterior_rewards(parameters, context)[0][0]
    _check_densities(log_density, support, means, scale_of(model), "predictive density")


def check_users(
    model: KnownModel, generative: Generative, context: Context, support: Support
) -> None:
    """Check users drawn from the prior: their densities, mean rewards, draws and moments."""

    def log_density(theta: Any, a: int, r: FloatArray) -> FloatArray:
        same = map_leaves(lambda leaf: np.repeat(leaf, len(r), axis=0), theta)
        return generative.log_reward_density(same, _repeat(context, len(r)), _all(a, r), r)

    rng = np.random.default_rng(37)
    for s in range(model.n_states):
        theta = generative.draw_theta(np.array([s]), rng)
        many = map_leaves(lambda leaf: np.repeat(leaf, N_DRAWS, axis=0), theta)
        means = generative.mean_rewards(theta, _repeat(context, 1))[0]
        draws = generative.draw_rewards(many, _repeat(context, N_DRAWS), rng)
        assert support.contains(draws).all(), f"a reward drawn in state {s} is outside the support"
        for a, mean in enumerate(means):
            what = f"of action {a} for a user in state {s}"
            density = Density(partial(log_density, theta, a), support, float(mean), scale_of(model))
            density.check(float(mean), f"the density {what}")
            density.check_draws(draws[:, a], f"the rewards {what}")


def check_point(model: KnownModel, context: Context, action: IntArray, reward: FloatArray) -> None:
    """Check that the likelihood is the density of users with the point estimate."""
    if not isinstance(model, Generative):
        return
    density = model.log_likelihood(context, action, reward)
    for s in range(model.n_states):
        theta = with_defaults(model).point_theta(np.full(len(action), s))
        if theta is None:
            return
        log_density = model.log_reward_density(theta, context, action, reward)
        np.testing.assert_allclose(
            log_density, density[:, s], rtol=1e-9, atol=1e-9, err_msg=f"the likelihood in state {s}"
        )


def check_evidence(
    model: Model, generative: Generative, history: list[Any], draws_rewards: bool
) -> None:
    """Check that the evidence of a history is its average likelihood under the prior.

    This says, for every round, that the predictive density is the average of the likelihood under
    the posterior: the evidence is the product of the predictive densities. Rewards are drawn from a
    user of the state, if the model can draw them. Other rewards can be too unlikely for an average
    over draws; then nothing is checked.
    """
    rng = np.random.default_rng(41)
    rounds = [
        (_repeat(context, 1), action[:1], reward[:1])
        for context, action, reward in history[:N_EVIDENCE_ROUNDS]
    ]
    for s in range(model.n_states):
        if draws_rewards:
            user = generative.draw_theta(np.array([s]), rng)
            rounds = [(x, a, generative.draw_rewards(user, x, rng)[:, a[0]]) for x, a, _ in rounds]
        parameters, log_evidence = model.parameters(1), 0.0
        for context, action, reward in rounds:
            log_predictive, parameters = model.condition(parameters, context, action, reward)
            log_evidence += float(log_predictive[0, s])
        theta = generative.draw_theta(np.full(N_PRIOR_DRAWS, s), rng)
        log_likelihood = np.zeros(N_PRIOR_DRAWS)
        for context, action, reward in rounds:
            log_likelihood += generative.log_reward_density(
                theta,
                _repeat(context, N_PRIOR_DRAWS),
                np.repeat(action, N_PRIOR_DRAWS),
                np.repeat(reward, N_PRIOR_DRAWS),
            )
        weights = np.exp(log_likelihood - log_likelihood.max())
        if weights.sum() ** 2 < FEWEST_EFFECTIVE * (weights**2).sum():
            continue
        ratio = np.exp(log_likelihood - log_evidence)
        error = ratio.std() / np.sqrt(_sample_size(model)) + 1e-9
        off = abs(ratio.mean() - 1) / error
        assert off < ERRORS, (
            f"the evidence of {len(rounds)} rewards in state {s} is {1 / ratio.mean():.3f} times "
            f"their average likelihood under the prior ({off:.0f} standard errors off)"
        )


def check_prior(model: Model, generative: Generative, context: Context) -> None:
    """Check that users drawn from the prior have the mean rewards of `posterior_rewards`."""
    rng = np.random.default_rng(43)
    moments = model.posterior_rewards(model.parameters(1), _repeat(context, 1))
    for s in range(model.n_states):
        theta = generative.draw_theta(np.full(N_PRIOR_DRAWS, s), rng)
        means = generative.mean_rewards(theta, _repeat(context, N_PRIOR_DRAWS))
        mean, variance = (moment[0, s] for moment in moments)
        check_moments(means, mean, variance, f"users of state {s}", _sample_size(model))


def _sample_size(model: Model) -> int:
    """Return the number of draws that decides an error: a model's particles are draws too."""
    return min(N_PRIOR_DRAWS, with_defaults(model).n_particles or N_PRIOR_DRAWS)


def check_moments(
    draws: FloatArray,
    mean: FloatArray,
    variance: FloatArray,
    what: str,
    sample_size: int | None = None,
) -> None:
    """Assert that draws (n, n_actions) have this mean and variance, to `ERRORS` errors.

    The error is computed for `sample_size` draws, by default n.
    """
    n = len(draws) if sample_size is None else sample_size
    for name, values, expected in (
        ("mean", draws, mean),
        ("variance", (draws - mean) ** 2, variance),
    ):
        error = values.std(axis=0) / np.sqrt(n) + 1e-9
        off = float((np.abs(values.mean(axis=0) - expected) / error).max())
        assert off < ERRORS, f"{what}: their {name} is {off:.1f} standard errors off"


def _repeat(context: Context, n: int) -> Context:
    """Return the context of the first session for each of n sessions."""
    return None if context is None else np.repeat(context[:1], n, axis=0)


def _all(action: int, rewards: FloatArray) -> IntArray:
    return np.full(len(rewards), action)
