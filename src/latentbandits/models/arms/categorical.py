"""Categorical rewards with Dirichlet priors: star ratings, outcomes with a value each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from latentbandits.lazy import cached_property
from latentbandits.models import checks
from latentbandits.models.arms.conjugate import DirichletArms
from latentbandits.models.checks import BoolArray, FloatArray
from latentbandits.models.numerics import dirichlet
from latentbandits.models.numerics.laws import Beta
from latentbandits.models.support import OneOf, Summary, Support

MOST_VALUES = 20
"""Most different rewards from which the family is learned."""

_TINY = np.finfo(np.float64).tiny


@dataclass(frozen=True, eq=False, init=False)
class CategoricalArms(DirichletArms):
    """Rewards are one of `values`, with probabilities theta[s, a] ~ Dirichlet(concentration[s, a]).

    Args:
        concentration: the number of rewards of each category that the prior is worth, `(n_states,
            n_actions, n_categories)` or with a session axis first.
        values: the reward of each category, `(n_categories,)`, in increasing order.
        state_prior: P1(s), `(n_states,)` or `(n_sessions, n_states)`; None is uniform.

    >>> model = CategoricalArms([[[1.0, 1.0, 8.0], [8.0, 1.0, 1.0]]], values=[1.0, 2.0, 3.0])
    >>> model.expected_rewards(None)[0]
    array([[2.7, 1.3]])
    """

    summary: ClassVar[Summary] = Summary(
        "stars, or one of some outcomes with a value each",
        "CategoricalArms(concentration, values)",
        "Dirichlet",
        "how often each was seen",
        sub_gaussian=True,
    )

    family_name: ClassVar[str] = "categorical"
    prior_fields: ClassVar[tuple[str, ...]] = ("concentration",)

    concentration: FloatArray
    values: FloatArray
    state_prior: FloatArray

    def __init__(
        self, concentration: ArrayLike, values: ArrayLike, state_prior: ArrayLike | None = None
    ) -> None:
        counts = checks.finite_array("concentration", concentration, (3, 4))
        checks.above("concentration", counts, 0, "as a Dirichlet prior must be")
        categories = checks.finite_array("values", values, (1,))
        if len(categories) != counts.shape[-1] or (np.diff(categories) <= 0).any():
            raise ValueError(
                f"values must be {counts.shape[-1]} numbers in increasing order, one for every "
                f"category of concentration; got {categories.tolist()}"
            )
        prior = checks.state_prior(state_prior, counts[..., 0])
        checks.set_fields(self, concentration=counts, values=categories, state_prior=prior)

    @classmethod
    def random(cls, rng: np.random.Generator, *shape: int) -> Self:
        """Return a random problem of five-star ratings; the prior is worth twenty ratings."""
        shares = rng.dirichlet(np.ones(5), shape)
        return cls(20 * shares + 0.1, values=[1, 2, 3, 4, 5])

    @classmethod
    def for_rewards(cls, rewards: FloatArray) -> Self:
        values = np.unique(rewards)
        if len(values) > MOST_VALUES:
            raise ValueError(
                f"--rewards categorical takes {cls.takes()}; the log has {len(values):,}, from "
                f"{values[0]:g} to {values[-1]:g}: choose another family, or --rewards auto"
            )
        return cls(np.ones((1, 1, len(values))), values)

    @classmethod
    def outside(cls, rewards: FloatArray) -> BoolArray:
        return np.zeros(rewards.shape, np.bool_)

    @classmethod
    def takes(cls) -> str:
        return f"at most {MOST_VALUES} different values"

    def learned(self, phi: FloatArray, variance: FloatArray, shares: FloatArray) -> Self:
        strength = np.maximum(np.maximum(self.reward_variance(phi), 1e-300) / variance - 1, 1.0)
        return self._replace({"concentration": strength[..., None] * self.point(phi)}, shares)

    @cached_property
    def support(self) -> Support:
        return OneOf(tuple(self.values.tolist()))

    @property
    def noise(self) -> float:
        """Rewards in an interval are half-its-length-sub-Gaussian."""
        return float(self.values[-1] - self.values[0]) / 2

    def _hyperparameters(self) -> FloatArray:
        return self.concentration

    def _kept_fields(self) -> tuple[str, ...]:
        return ("values",)

    def _priors_of(self, means: FloatArray, variances: FloatArray) -> dict[str, FloatArray]:
        """Return the average action's probabilities, tilted by exp(t value) to have these means."""
        average = self.point(self.concentration).mean(axis=1)  # (n_states, n_categories)
        tilt = np.zeros_like(means)
        offsets = (self.values - self.values[0]) / (self.values[-1] - self.values[0])
        wanted = (means - self.values[0]) / np.ptp(self.values)
        for _ in range(50):  # Newton's method on a convex function of t
            weights = average[:, None] * np.exp(np.clip(tilt, -50, 50)[..., None] * offsets)
            shares = weights / weights.sum(axis=-1, keepdims=True)
            mean = shares @ offsets
            variance = np.maximum(shares @ offsets**2 - mean**2, 1e-6)
            tilt = tilt + np.clip((wanted - mean) / variance, -2.0, 2.0)
        scaled = variance * np.ptp(self.values) ** 2
        strength = np.maximum(scaled / variances - 1, 1.0)
        return {"concentration": np.maximum(strength[..., None] * shares, 1e-6)}

    def statistic(self, reward: FloatArray) -> FloatArray:
        return self._one_hot.take(self.values.searchsorted(reward), axis=0)

    @property
    def counts_and_sums(self) -> tuple[FloatArray, FloatArray]:
        return np.ones(len(self.values)), self.values

    def moments(self, phi: FloatArray) -> tuple[FloatArray, FloatArray]:
        strength = phi.sum(axis=-1)
        mean, variance = self._of_a_reward(phi, strength)
        return mean + self.values[0], variance / (strength + 1)

    def reward_variance(self, phi: FloatArray) -> FloatArray:
        return self._of_a_reward(phi, phi.sum(axis=-1))[1]

    def _of_a_reward(self, phi: FloatArray, strength: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return mean, less the least value, and variance of a reward at the mean of phi."""
        mean = phi @ self._offsets / strength
        square = phi @ self._offsets**2 / strength
        return mean, np.maximum(square - mean**2, 0.0)

    def distribution(self, phi: FloatArray, reward: FloatArray) -> tuple[FloatArray, FloatArray]:
        which = np.broadcast_to(self.values.searchsorted(reward, "right"), phi.shape[:-1])
        taken = np.arange(len(self.values)) < which[..., None]
        below = np.where(taken, self.point(phi), 0.0).sum(axis=-1)
        return below, 1 - below

    def law(self, phi: FloatArray) -> Beta:
        """Return the beta law of the same mean, variance and range; of two categories, exactly.

        The weighted mean of Dirichlet probabilities has no closed form for more categories.
        """
        mean, variance = self.moments(phi)
        low, width = float(self.values[0]), float(self.values[-1] - self.values[0])
        share = (mean - low) / width
        strength = np.maximum(share * (1 - share) * width**2 / np.maximum(variance, _TINY) - 1, 0)
        floor = 1e-9  # lower bound for a category of probability almost 0 or 1
        return Beta(
            np.maximum(share * strength, floor),
            np.maximum((1 - share) * strength, floor),
            low,
            width,
        )

    def sample(self, phi: FloatArray, rng: np.random.Generator) -> FloatArray:
        draws = dirichlet.unnormalised(phi, rng)
        draws /= draws.sum(axis=-1, keepdims=True)
        return draws

    def sample_means(self, phi: FloatArray, rng: np.random.Generator) -> FloatArray:
        """Draw mean rewards; one product gives the sums of values and of the unnormalised draws."""
        flat = dirichlet.unnormalised(phi, rng).reshape(-1, len(self.values))
        both = flat @ np.stack([self.values, np.ones_like(self.values)], axis=1)
        means: FloatArray = both[:, 0] / both[:, 1]
        return means.reshape(phi.shape[:-1])

    def point(self, phi: FloatArray) -> FloatArray:
        probabilities: FloatArray = phi / phi.sum(axis=-1, keepdims=True)
        return probabilities

    def mean_reward(self, theta: FloatArray) -> FloatArray:
        mean: FloatArray = theta @ self.values
        return mean

    def log_density(self, theta: FloatArray, reward: FloatArray) -> FloatArray:
        with np.errstate(divide="ignore"):
            density: FloatArray = np.log((theta * self.statistic(reward)).sum(axis=-1))
        return density

    def draw(self, theta: FloatArray, rng: np.random.Generator) -> FloatArray:
        upper = theta.cumsum(axis=-1)[..., :-1]
        rewards: FloatArray = self.values[(rng.random((*theta.shape[:-1], 1)) > upper).sum(axis=-1)]
        return rewards

    def vague(self) -> Self:
        """Return one state with the mean probabilities, as strong as their spread allows."""
        share = self._one_state(
            self.point(self.prior_hyperparameters).mean(axis=(1, 2), keepdims=True)
        )
        variance = 2 * self.moments(share)[1]  # of the values; a strength of one halves it
        strength = np.maximum(variance / self._overall()[1] ** 2 - 1, 0.1)
        return self._replace({"concentration": share * strength[..., None]})

    @cached_property
    def _offsets(self) -> FloatArray:
        offsets: FloatArray = self.values - self.values[0]
        return offsets

    @cached_property
    def _one_hot(self) -> FloatArray:
        return np.eye(len(self.values))
