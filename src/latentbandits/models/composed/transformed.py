"""Heavy-tailed rewards: a model of transformed rewards that acts on expected original rewards.

A model with normal posteriors is learned for f(r), f = log(1 + r) or sqrt(r). Rewards that arrive
are transformed; decisions are made on the mean of the ORIGINAL reward. With theta the mean of
f(r) and e its error, that mean is

    log1p:  E[exp(theta + e)] - 1 = c exp(theta) - 1,   c = E[exp(e)]
    sqrt:   E[(theta + e)^2]      = theta^2 + c,        c = E[e^2]

c, the `smearing`, is estimated from the log (Duan 1983) for every action, because residuals are
seldom normal; by default c is the value for normal errors. An order by E[f(r)] would rank actions
by their typical reward, not by their mean reward.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from latentbandits.models import checks
from latentbandits.models.checks import BoolArray, FloatArray, IntArray
from latentbandits.models.composed.known import Wrapping
from latentbandits.models.numerics.laws import Interval, Summary
from latentbandits.models.protocol import Context, Model, Parameters, is_order_free

_LARGEST_EXPONENT = 300.0


@dataclass(frozen=True, eq=False, init=False, repr=False)
class TransformedRewards(Wrapping, ABC):
    """A `model` of f(r) as a model of r.

    Subclasses state f, and the mean of r given the mean of f(r).

    `smearing` is one number, or one for each action of a model of arms. `level` is the average f(r)
    of the log, at which noise and spread are converted to original units (delta method).
    """

    transform: ClassVar[str]
    least: ClassVar[float]  # the least reward for which f is finite
    transition = None
    model: Model
    smearing: FloatArray
    level: float

    def __init__(
        self, model: Model, smearing: ArrayLike | None = None, level: float | None = None
    ) -> None:
        if model.transition is not None:
            raise ValueError(
                "give a model whose state does not move, and wrap the result in Markov"
            )
        c = self._normal_smearing(model.noise) if smearing is None else smearing
        factors = checks.finite_array("smearing", c, (0, 1))
        if factors.ndim == 1 and factors.shape != (model.n_actions,):
            raise ValueError(
                f"smearing must be one number, or one for each of the model's {model.n_actions} "
                f"actions; got {len(factors)}"
            )
        if level is None:
            level = 0.0 if model.n_actions is None else model.expected_rewards(None).mean()
        checks.set_fields(self, model=model, smearing=factors, level=float(level))

    # Methods that each transform implements.

    @staticmethod
    @abstractmethod
    def forward(reward: FloatArray) -> FloatArray:
        """Return f(r)."""

    @abstractmethod
    def backward(self, level: FloatArray) -> FloatArray:
        """Return the r whose f(r) is `level`."""

    @abstractmethod
    def log_slope(self, reward: FloatArray) -> FloatArray:
        """Return log f'(r), which turns a log density of f(r) into one of r."""

    @staticmethod
    @abstractmethod
    def outside(reward: FloatArray) -> BoolArray:
        """Mark the rewards for which f is not defined."""

    @abstractmethod
    def mean(self, theta: FloatArray, smearing: FloatArray | float) -> FloatArray:
        """Return the mean of r for the mean `theta` of f(r)."""

    @abstractmethod
    def level_of(self, mean: FloatArray, smearing: FloatArray | float) -> FloatArray:
        """Return the theta whose mean of r is `mean`: the inverse of `mean`."""

    @staticmethod
    @abstractmethod
    def moments(
        mean: FloatArray, variance: FloatArray, smearing: FloatArray | float
    ) -> tuple[FloatArray, FloatArray]:
        """Return mean and variance of the mean of r where theta is N(mean, variance)."""

    @staticmethod
    @abstractmethod
    def smearing_of(rewards: FloatArray, unsmeared: FloatArray) -> FloatArray:
        """Return c from average rewards, where the mean without smearing is `unsmeared`."""

    @abstractmethod
    def _slope(self) -> float:
        """Return the derivative of `mean` in theta, at `level`."""

    @abstractmethod
    def _normal_smearing(self, noise: float) -> float: ...

    # Methods derived from the transform's methods.

    @property
    def is_certain(self) -> bool:
        return self.model.is_certain

    @property
    def untransformed(self) -> Model:
        """The model of f(r)."""
        return self.model

    @property
    def order_free(self) -> bool:
        return is_order_free(self.model)

    def in_units(self, reward: FloatArray) -> FloatArray:
        return self.forward(np.maximum(reward, self.least))

    def mean_of_moments(
        self, mean: FloatArray, variance: FloatArray, action: IntArray
    ) -> FloatArray:
        c = self.smearing if self.smearing.ndim == 0 else self.smearing[action][:, None]
        return self.moments(mean, variance, c)[0]

    @property
    def state_prior(self) -> FloatArray:
        prior: FloatArray = np.exp(self.log_state_prior)
        return prior[0] if self.n_sessions is None else prior

    @property
    def noise(self) -> float:
        return self._slope() * self.model.noise

    @property
    def spread_bound(self) -> float:
        return self._slope() * self.model.spread_bound

    def check_reward(self, reward: FloatArray) -> None:
        outside = self.outside(reward)
        if outside.any():
            session = int(outside.argmax())
            raise ValueError(
                f"this model transforms rewards by {self.transform}, which cannot take "
                f"{reward[session]:g} (session {session})"
            )

    def expected_rewards(self, context: Context, state: IntArray | None = None) -> FloatArray:
        return self.mean(self.model.expected_rewards(context, state), self.smearing)

    def log_likelihood(self, context: Context, action: IntArray, reward: FloatArray) -> FloatArray:
        density = self.model.log_likelihood(context, action, self.forward(reward))
        return density + self.log_slope(reward)[:, None]

    def parameters(self, n_sessions: int) -> Parameters:
        return self.model.parameters(n_sessions)

    def condition(
        self, parameters: Any, context: Context, action: IntArray, reward: FloatArray
    ) -> tuple[FloatArray, Parameters]:
        density, after = self.model.condition(parameters, context, action, self.forward(reward))
        return density + self.log_slope(reward)[:, None], after

    def posterior_rewards(self, parameters: Any, context: Context) -> tuple[FloatArray, FloatArray]:
        return self.moments(*self.model.posterior_rewards(parameters, context), self.smearing)

    def sample_rewards(
        self, parameters: Any, context: Context, state: IntArray, rng: np.random.Generator
    ) -> FloatArray:
        draws = self.model.sample_rewards(parameters, context, state, rng)
        return self.mean(draws, self.smearing)

    def probability_best(
        self, parameters: Any, context: Context, eligible: BoolArray | None, weights: FloatArray
    ) -> FloatArray | None:
        """Estimate by counting draws, because mean rewards are not ordered as theta."""
        return None

    @property
    def _inner(self) -> Any:
        """The model of f(r) with the methods that not every `Model` has."""
        return self.model

    def draw_theta(self, state: IntArray, rng: np.random.Generator) -> Any:
        return self._inner.draw_theta(state, rng)

    def mean_rewards(self, theta: Any, context: Context) -> FloatArray:
        return self.mean(self._inner.mean_rewards(theta, context), self.smearing)

    def draw_rewards(self, theta: Any, context: Context, rng: np.random.Generator) -> FloatArray:
        return self.backward(self._inner.draw_rewards(theta, context, rng))

    def log_reward_density(
        self, theta: Any, context: Context, action: IntArray, reward: FloatArray
    ) -> FloatArray:
        units = self.forward(reward)
        density: FloatArray = self._inner.log_reward_density(theta, context, action, units)
        return density + self.log_slope(reward)

    def select(self, session: IntArray | None, state: IntArray) -> Self:
        return self._of(self._inner.select(session, state))

    def vague(self) -> Self:
        return self._of(self._inner.vague())

    def with_state(self, other: Self, probability: float) -> Self:
        return self._of(self._inner.with_state(other.model, probability))

    def _of(self, model: Model) -> Self:
        """Return another model with the same transform."""
        return type(self)(model, self.smearing, self.level)


@dataclass(frozen=True, eq=False, init=False, repr=False)
class Log1pRewards(TransformedRewards):
    """A `model` of log(1 + r): counts, amounts and durations with a heavy tail; r > -1.

    Args:
        model: of log(1 + r), with normal posteriors.
        smearing: c, one number or `(n_actions,)`; None is the value for normal errors.
        level: f(r) at which noise and spread are stated in original units; None: the mean.

    >>> from latentbandits import GaussianArms
    >>> model = Log1pRewards(GaussianArms([[0.0, 1.0]], noise=0.5))
    >>> model.expected_rewards(None).round(3)  # exp(theta + 0.5^2 / 2) - 1
    array([[[0.133, 2.08 ]]])
    """

    summary: ClassVar[Summary] = Summary(
        "amounts and durations with a heavy tail",
        "Log1pRewards(model, smearing)",
        "that of the model",
        "a model of log(1 + reward)",
    )
    transform: ClassVar[str] = "log1p"
    least: ClassVar[float] = -1 + 1e-9
    support: ClassVar[Interval] = Interval(low=-1.0, low_is_open=True)

    def __init__(
        self, model: Model, smearing: ArrayLike | None = None, level: float | None = None
    ) -> None:
        super().__init__(model, smearing, level)
        checks.above("smearing", self.smearing, 0, "as a mean of exponentials is")

    @staticmethod
    def forward(reward: FloatArray) -> FloatArray:
        return np.log1p(reward)

    def backward(self, level: FloatArray) -> FloatArray:
        return np.expm1(np.minimum(level, _LARGEST_EXPONENT))

    def log_slope(self, reward: FloatArray) -> FloatArray:
        return -np.log1p(reward)

    @staticmethod
    def outside(reward: FloatArray) -> BoolArray:
        return reward <= -1

    def mean(self, theta: FloatArray, smearing: FloatArray | float) -> FloatArray:
        return smearing * np.exp(np.minimum(theta, _LARGEST_EXPONENT)) - 1

    def level_of(self, mean: FloatArray, smearing: FloatArray | float) -> FloatArray:
        return np.log(np.maximum(mean + 1, 1e-12) / smearing)

    @staticmethod
    def moments(
        mean: FloatArray, variance: FloatArray, smearing: FloatArray | float
    ) -> tuple[FloatArray, FloatArray]:
        grown = smearing * np.exp(np.minimum(mean + variance / 2, _LARGEST_EXPONENT))
        return grown - 1, grown**2 * np.expm1(np.minimum(variance, _LARGEST_EXPONENT))

    @staticmethod
    def smearing_of(rewards: FloatArray, unsmeared: FloatArray) -> FloatArray:
        return (1 + rewards) / (1 + unsmeared)

    def _slope(self) -> float:
        return float(np.mean(self.smearing)) * float(np.exp(min(self.level, _LARGEST_EXPONENT)))

    def _normal_smearing(self, noise: float) -> float:
        return float(np.exp(noise**2 / 2))


@dataclass(frozen=True, eq=False, init=False, repr=False)
class SqrtRewards(TransformedRewards):
    """A `model` of sqrt(r): counts and amounts, whose variance grows with their mean; r >= 0.

    Args:
        model: of sqrt(r), with normal posteriors.
        smearing: c, one number or `(n_actions,)`; None is the value for normal errors.
        level: f(r) at which noise and spread are stated in original units; None: the mean.

    >>> from latentbandits import GaussianArms
    >>> SqrtRewards(GaussianArms([[1.0, 2.0]], noise=0.5)).expected_rewards(None)
    array([[[1.25, 4.25]]])
    """

    summary: ClassVar[Summary] = Summary(
        "counts and amounts whose variance grows with their mean",
        "SqrtRewards(model, smearing)",
        "that of the model",
        "a model of sqrt(reward)",
    )
    transform: ClassVar[str] = "sqrt"
    least: ClassVar[float] = 0.0
    support: ClassVar[Interval] = Interval(low=0.0)

    @staticmethod
    def forward(reward: FloatArray) -> FloatArray:
        return np.sqrt(reward)

    def backward(self, level: FloatArray) -> FloatArray:
        return level**2

    def log_slope(self, reward: FloatArray) -> FloatArray:
        """Return -log(2 sqrt r); a reward of zero, where f' is infinite, counts as one of 1e-6."""
        slope: FloatArray = -np.log(2 * np.sqrt(np.maximum(reward, 1e-6)))
        return slope

    @staticmethod
    def outside(reward: FloatArray) -> BoolArray:
        return reward < 0

    def mean(self, theta: FloatArray, smearing: FloatArray | float) -> FloatArray:
        return theta**2 + smearing

    def level_of(self, mean: FloatArray, smearing: FloatArray | float) -> FloatArray:
        return np.sqrt(np.maximum(mean - smearing, 0.0))

    @staticmethod
    def moments(
        mean: FloatArray, variance: FloatArray, smearing: FloatArray | float
    ) -> tuple[FloatArray, FloatArray]:
        return mean**2 + variance + smearing, 4 * mean**2 * variance + 2 * variance**2

    @staticmethod
    def smearing_of(rewards: FloatArray, unsmeared: FloatArray) -> FloatArray:
        return np.maximum(rewards - unsmeared, 0.0)

    def _slope(self) -> float:
        return 2 * abs(self.level)

    def _normal_smearing(self, noise: float) -> float:
        return noise**2
