"""Click models: how a user looks at a list, which rewards are observed, and the list's value.

A list has one reward per position, `(n_sessions, length)`. NaN is a reward that was not observed.
See Chuklin, Markov & de Rijke (2015), Click Models for Web Search.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Self, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from latentbandits.models import checks
from latentbandits.models.arms.conjugate import ArmTotals, Learnable
from latentbandits.models.arms.dirichlet import BernoulliArms
from latentbandits.models.checks import BoolArray, FloatArray, IntArray
from latentbandits.models.numerics.arrays import rows
from latentbandits.models.numerics.laws import Beta, Summary
from latentbandits.models.protocol import Context
from latentbandits.names import one_of


class ClickModel(ABC):
    """The base class: a value that knows what is observed of a list and what the list is worth."""

    name: ClassVar[str]
    unrolled: ClassVar[bool] = False
    """Whether a position is seen only if nothing above it was clicked."""
    for_clicks: ClassVar[bool] = True
    """Whether rewards must be 0 or 1."""

    @property
    def text(self) -> str:
        """The name, with all that `as_click_model` needs to return an equal click model."""
        return self.name

    def looked(self, length: int) -> FloatArray | None:
        """Return P(the user looks at each position), `(length,)`; None: it is observed."""
        return None

    def check_length(self, length: int) -> None:  # noqa: B027 - most allow every length
        """Raise ValueError if lists cannot be so long."""

    def observed(self, rewards: FloatArray) -> FloatArray:
        """Return the rewards that were observed, and NaN for others.

        ValueError for reactions that the click model rules out.
        """
        if self.for_clicks:
            wrong = ~((rewards == 0) | (rewards == 1) | np.isnan(rewards))
            if wrong.any():
                raise ValueError(
                    f"rewards of the click model {self.name!r} are 1 for a click, 0 for none, or "
                    f"NaN where nothing was observed; {_at(wrong, rewards)}"
                )
        return rewards

    def react(self, attractions: FloatArray, uniform: FloatArray) -> FloatArray:
        """Return the observed rewards of lists whose actions would have these rewards if looked at.

        `uniform` (n, length) are uniform random numbers, for users who may not look.
        """
        return attractions

    @abstractmethod
    def value(self, means: FloatArray) -> FloatArray:
        """Return the expected value of lists whose actions have these mean rewards: `(n,)`."""

    def best_value(self, means: FloatArray, length: int) -> FloatArray:
        """Return the value of the best list of `length` actions; a mean of -inf is not eligible.

        >>> Cascade().best_value(np.array([[0.5, 0.1, 0.2]]), 2)
        array([0.6])
        """
        return self.value(-np.sort(-means, axis=1)[:, :length])


@dataclass(frozen=True)
class Each(ClickModel):
    """The user reacts to every action: the value is the sum of the rewards.

    >>> Each().value(np.array([[0.5, 0.2]]))
    array([0.7])
    """

    name: ClassVar[str] = "each"
    for_clicks: ClassVar[bool] = False

    def value(self, means: FloatArray) -> FloatArray:
        total: FloatArray = means.sum(axis=1)
        return total


@dataclass(frozen=True)
class Cascade(ClickModel):
    """The user reads from the top, clicks the first attractive action, and stops.

    The value is P(click) = 1 - prod_l (1 - mu_l) (Craswell et al. 2008, Kveton et al. 2015).

    >>> Cascade().react(np.array([[0.0, 1.0, 1.0]]), np.zeros((1, 3)))
    array([[ 0.,  1., nan]])
    """

    name: ClassVar[str] = "cascade"
    unrolled: ClassVar[bool] = True

    def observed(self, rewards: FloatArray) -> FloatArray:
        super().observed(rewards)
        twice = (rewards == 1).sum(axis=1) > 1
        if twice.any():
            raise ValueError(
                "in a cascade the user stops at the first click, so a list has at most one; "
                f"this one{_of_session(twice, int(twice.argmax()))} has "
                f"{rewards[twice][0].tolist()}"
            )
        told = self.react(rewards, rewards)
        missing = np.isnan(told) & ~_below_click(rewards)
        gap = missing[:, :-1] & ~np.isnan(told[:, 1:])
        if gap.any():
            session, position = np.argwhere(gap)[0]
            raise ValueError(
                "in a cascade the user reads from the top, so every position above one that was "
                f"seen has a reward; position {position}{_of_session(gap, session)} has none"
            )
        return told

    def react(self, attractions: FloatArray, uniform: FloatArray) -> FloatArray:
        return np.where(_below_click(attractions), np.nan, attractions)

    def value(self, means: FloatArray) -> FloatArray:
        clicked: FloatArray = 1 - np.prod(1 - means, axis=1)
        return clicked


@dataclass(frozen=True)
class Positions(ClickModel):
    """The user looks at position l with probability e_l, and clicks there if attracted.

    P(click at l) = e_l mu_l, and the value is sum_l e_l mu_l; whether a position was looked at is
    hidden (the position-based model, Richardson et al. 2007).

    Args:
        examination: e_l of every position, in (0, 1]; e_1 = 1 fixes the scale.

    >>> Positions((1.0, 0.5)).value(np.array([[0.5, 0.2]]))
    array([0.6])
    """

    examination: tuple[float, ...]
    name: ClassVar[str] = "positions"

    def __init__(self, examination: Sequence[float] | ArrayLike) -> None:
        values = np.asarray(examination, np.float64)
        if values.ndim != 1 or len(values) == 0 or not ((values > 0) & (values <= 1)).all():
            raise ValueError(
                "examination must be the probabilities of looking at each position, above 0 and "
                f"at most 1; got {examination!r}"
            )
        if values[0] != 1:
            raise ValueError(
                "the first position is always looked at: examination must begin with 1; got "
                f"{values[0]:g}"
            )
        object.__setattr__(self, "examination", tuple(values.tolist()))

    @property
    def text(self) -> str:
        return f"{self.name}({', '.join(map(repr, self.examination))})"

    def looked(self, length: int) -> FloatArray:
        self.check_length(length)
        return np.array(self.examination[:length])

    def check_length(self, length: int) -> None:
        if length > len(self.examination):
            raise ValueError(
                f"examination has {len(self.examination)} positions, so lists cannot have {length}"
            )

    def react(self, attractions: FloatArray, uniform: FloatArray) -> FloatArray:
        return np.where(uniform < self.looked(attractions.shape[1]), attractions, 0.0)

    def value(self, means: FloatArray) -> FloatArray:
        return means @ self.looked(means.shape[1])

    def best_value(self, means: FloatArray, length: int) -> FloatArray:
        best = -np.sort(-means, axis=1)[:, :length]
        return best @ -np.sort(-self.looked(length))


AnyClickModel: TypeAlias = ClickModel | str


def as_click_model(model: AnyClickModel) -> ClickModel:
    """Return the click model of this name or text, or the click model itself.

    >>> as_click_model("cascade"), as_click_model("positions(1, 0.6)")
    (Cascade(), Positions(examination=(1.0, 0.6)))
    """
    if isinstance(model, ClickModel):
        return model
    examination = re.fullmatch(r"positions\((.*)\)", model)
    if examination is not None:
        try:
            return Positions([float(part) for part in examination[1].split(",")])
        except ValueError as error:
            raise ValueError(f"the click model {model!r}: {error}") from None
    if model == Positions.name:
        raise ValueError(
            "the click model 'positions' needs the probabilities of looking at each position: "
            "Positions([1, 0.6, 0.4]), or the text positions(1, 0.6, 0.4)"
        )
    return {"each": Each, "cascade": Cascade}[one_of("click model", model, ("each", "cascade"))]()


def _below_click(rewards: FloatArray) -> BoolArray:
    """Mark the positions below the first click."""
    clicks = (rewards == 1).cumsum(axis=1)
    below: BoolArray = (clicks - (rewards == 1)) > 0
    return below


def _at(wrong: BoolArray, rewards: FloatArray) -> str:
    session, position = np.argwhere(wrong)[0]
    place = f"position {position}{_of_session(wrong, session)}"
    return f"{place} has {rewards[session, position]:g}"


def _of_session(marked: BoolArray, session: int) -> str:
    """Name the session of a list; a single one needs no name."""
    return f" of session {session}" if len(marked) > 1 else ""


# Clicks at the positions of a list, where nobody knows which positions were looked at.
#
# A user looks at position l with probability e_l, and clicks with probability mu if they look. A
# click at l has the probability e_l mu, and no click 1 - e_l mu. With C clicks and n_l views
# without a click at position l, the posterior of mu is proportional to
#
#     mu^(alpha - 1 + C) (1 - mu)^(beta - 1) prod_l (1 - e_l mu)^(n_l).
#
# It depends on counts alone, so that the order of clicks does not matter. Its normaliser and
# moments are integrals in one dimension, by quadrature.

_STEP = 0.1  # of the trapezoid rule
_GRID = _STEP * np.arange(-85, 86)
_NEWTON_STEPS = 12


class ClickPosterior(NamedTuple):
    """Quadrature nodes mu of posteriors, and their probabilities: `(..., n_nodes)`."""

    log_mu: FloatArray
    log_rest: FloatArray  # log(1 - mu)
    weights: FloatArray
    log_normaliser: FloatArray  # (...,)

    @property
    def mu(self) -> FloatArray:
        return np.exp(self.log_mu)

    def mean(self, values: FloatArray) -> FloatArray:
        average: FloatArray = (self.weights * values).sum(axis=-1)
        return average


def log_not_clicked(log_rest: FloatArray, looked: float) -> FloatArray:
    """Return log(1 - e mu), from log(1 - mu), which loses no digits as mu comes near 1."""
    if looked == 1:
        return log_rest
    return np.log1p(looked * np.expm1(log_rest))


def quadrature(
    clicks: FloatArray, unclicked: FloatArray, examination: FloatArray
) -> ClickPosterior:
    """Integrate mu^(C - 1) (1 - mu)^(n_1 - 1) prod_{l > 1} (1 - e_l mu)^(n_l) over mu.

    The integrand in x = log(mu / (1 - mu)) has one maximum m. With x = m + s sinh(t), s the scale
    at the maximum, both tails fall doubly exponentially in t, where the trapezoid rule converges
    fastest (Takahasi & Mori 1974).

    Args:
        clicks: C, `(...)`, above 0.
        unclicked: n_l, `(..., n_positions)`, the first above 0.
        examination: e_l, `(n_positions,)`, the first 1.

    >>> flat = quadrature(np.array(2.0), np.array([1.0]), np.array([1.0]))  # Beta(2, 1)
    >>> round(float(flat.mean(flat.mu)), 9)
    0.666666667
    """
    a, n = clicks[..., None], unclicked
    mode = a / (a + n[..., :1])
    for _ in range(_NEWTON_STEPS):  # monotone: the function below is concave and falls
        odds = examination / (1 - examination * mode)
        slope = (n * odds / (1 - examination * mode)).sum(axis=-1, keepdims=True)
        mode = mode + (a - mode * (n * odds).sum(axis=-1, keepdims=True)) / slope
        mode = np.clip(mode, 1e-15, 1 - 1e-15)
    curvature = (n * examination / (1 - examination * mode) ** 2).sum(axis=-1, keepdims=True)
    # A scale below 1 keeps the nodes close where mu changes from near 0 to near 1.
    scale = np.minimum(1 / np.sqrt(mode * (1 - mode) ** 2 * curvature), 1.0)
    x = np.log(mode / (1 - mode)) + scale * np.sinh(_GRID)
    log_rest = -np.logaddexp(0, x)
    log_mu = x + log_rest
    log_weights = a * log_mu + np.log(scale * np.cosh(_GRID) * _STEP)
    for position, looked in enumerate(examination):
        log_weights += n[..., position, None] * log_not_clicked(log_rest, looked)
    top = log_weights.max(axis=-1, keepdims=True)
    weights = np.exp(log_weights - top)
    total = weights.sum(axis=-1, keepdims=True)
    return ClickPosterior(log_mu, log_rest, weights / total, (top + np.log(total))[..., 0])


@dataclass(frozen=True, eq=False, init=False, repr=False)
class PositionClicks(BernoulliArms):
    """Clicks on actions of a list, whose position l is looked at with probability e_l.

    An action is clicked with probability theta[s, a] if it is looked at, and theta[s, a] ~
    Beta(alpha[s, a], beta[s, a]). A reward of a single action is a click at the first position.

    Evidence, means and variances are exact. Draws and quantiles of theta are those of the beta
    distribution with the posterior's mean and variance.

    Args:
        alpha: the number of clicks that the prior is worth, as for `BernoulliArms`.
        beta: the number of looks without a click.
        examination: e_l of every position; e_1 = 1.
        state_prior: P1(s), `(n_states,)` or `(n_sessions, n_states)`; None is uniform.

    >>> model = PositionClicks([[9.0, 1.0]], [[1.0, 9.0]], examination=[1.0, 0.5])
    >>> no_click = model.outcomes(np.array([0.0]), np.array([1]))  # at the second position
    >>> log_density, _ = model.condition(model.parameters(1), None, np.array([0]), no_click)
    >>> np.exp(log_density)  # 1 - 0.5 * 0.9
    array([[0.55]])
    """

    summary: ClassVar[Summary] = Summary(
        "0 or 1, in lists",
        "PositionClicks(alpha, beta, examination)",
        "beta",
        "clicks, and looks without one, that the prior is worth",
        sub_gaussian=True,
    )

    examination: FloatArray

    def __init__(
        self,
        alpha: ArrayLike,
        beta: ArrayLike,
        state_prior: ArrayLike | None = None,
        examination: ArrayLike = (1.0,),
    ) -> None:
        super().__init__(alpha, beta, state_prior)
        checks.set_fields(self, examination=np.array(Positions(examination).examination))

    @classmethod
    def reward_family(cls) -> type[Learnable] | None:
        """Return None: `fit --click-model positions` learns it, and no reward family alone."""
        return None

    @property
    def click_model(self) -> Positions:
        """The click model of its lists."""
        return Positions(self.examination)

    @property
    def learns_unseen(self) -> bool:
        return True

    def at_looks(self, reward: FloatArray, looked: FloatArray) -> tuple[FloatArray, None]:
        """Return clicks with the positions that are looked at with these probabilities."""
        return self.outcomes(reward, self.position_of(looked)), None

    def mean_at(self, mean: FloatArray, position: IntArray | None) -> FloatArray:
        return mean if position is None else mean * self.examination[position]

    def with_examination(self, examination: ArrayLike) -> Self:
        """Return the model with another examination."""
        return type(self)(self.alpha, self.beta, self.state_prior, examination)

    def outcomes(self, reward: FloatArray, position: IntArray | None) -> FloatArray:
        """Return clicks with their positions, counted from 0, as one number each.

        A click at position l (0, 1, ...) is l + 1, and no click is -l: without positions, rewards
        of 0 and 1 belong to the first position.
        """
        if position is None:
            return reward
        return np.where(reward == 1, position + 1.0, -1.0 * position)

    def position_of(self, looked: FloatArray) -> IntArray:
        """Return the position that is looked at with each probability; ValueError if none is."""
        places: IntArray = np.abs(self.examination - looked[:, None]).argmin(axis=1)
        if not np.allclose(self.examination[places], looked, atol=1e-12):
            raise ValueError(
                f"the model was learned with the examination {self.examination.tolist()}, and "
                f"positions with {np.unique(looked).tolist()} are none of its: take its click_model"
            )
        return places

    def statistic(self, reward: FloatArray) -> FloatArray:
        """Return the counts of clicks by position, and of no clicks by position."""
        places = np.arange(len(self.examination))
        clicked, not_clicked = reward[..., None] == places + 1, reward[..., None] == -places
        return np.concatenate([clicked, not_clicked], axis=-1).astype(np.float64)

    @property
    def counts_and_sums(self) -> tuple[FloatArray, FloatArray]:
        """Views count as expected looks, so that clicks per count are theta."""
        ones = np.ones(len(self.examination))
        return np.tile(self.examination, 2), np.concatenate([ones, 0 * ones])

    @property
    def n_parameters(self) -> int:
        return 1

    def centre(self, totals: FloatArray) -> FloatArray:
        """Return clicks and no clicks at the first position in proportion to each action's mean."""
        counting, paying = self.counts_and_sums
        clicks, looks = totals @ paying, totals @ counting
        overall = (clicks.sum() + 0.5) / (looks.sum() + 1)
        mean = np.clip((clicks + overall) / (looks + 1), 1e-6, 1 - 1e-6)
        found = np.zeros_like(totals)
        found[:, 0], found[:, len(self.examination)] = mean, 1 - mean
        return found

    def log_normaliser(self, phi: FloatArray) -> FloatArray:
        of_looks: FloatArray = phi[..., : len(self.examination)] @ np.log(self.examination)
        return self.posterior_of(phi).log_normaliser + of_looks

    def log_normaliser_step(
        self, prior: FloatArray, totals: FloatArray, statistic: FloatArray
    ) -> FloatArray:
        """Return the log of the predictive probability, e_l E[mu] or 1 - e_l E[mu]."""
        return self._log_chance(self.moments(prior + totals)[0], statistic)

    def _log_chance(self, mean: FloatArray, statistic: FloatArray) -> FloatArray:
        n = len(self.examination)
        looked = (statistic[..., :n] + statistic[..., n:]) @ self.examination
        clicked = statistic[..., :n].sum(axis=-1)
        with np.errstate(divide="ignore"):
            return np.log(np.where(clicked == 1, looked * mean, 1 - looked * mean))

    def expected(self, phi: FloatArray) -> FloatArray:
        posterior = self.posterior_of(phi)
        log_mu = posterior.mean(posterior.log_mu)
        clicked = [log_mu + np.log(e) for e in self.examination]
        not_clicked = [
            posterior.mean(log_not_clicked(posterior.log_rest, e)) for e in self.examination
        ]
        return np.stack(clicked + not_clicked, axis=-1)

    def moments(self, phi: FloatArray) -> tuple[FloatArray, FloatArray]:
        n = len(self.examination)
        clicks, unclicked = phi[..., :n].sum(axis=-1), phi[..., n:]
        mean, variance = super().moments(np.stack([clicks, unclicked[..., 0]], axis=-1))
        lower = (unclicked[..., 1:] > 0).any(axis=-1)  # elsewhere the posterior is a beta
        if lower.any():
            posterior = quadrature(clicks[lower], unclicked[lower], self.examination)
            found = posterior.mean(posterior.mu)
            mean[lower] = found
            variance[lower] = posterior.mean((posterior.mu - found[:, None]) ** 2)
        return mean, variance

    def distribution(self, phi: FloatArray, reward: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return P(R <= r) and P(R > r) of the click R at the position of each outcome."""
        looked = self.statistic(reward) @ np.tile(self.examination, 2)
        above = np.where(reward > 0, 0.0, looked * self.moments(phi)[0])
        return 1 - above, above

    def law(self, phi: FloatArray) -> Beta:
        return Beta(*self._beta(phi))

    def sample(self, phi: FloatArray, rng: np.random.Generator) -> FloatArray:
        return super().sample(np.stack(self._beta(phi), axis=-1), rng)

    def sample_rewards(
        self, parameters: ArmTotals, context: Context, state: IntArray, rng: np.random.Generator
    ) -> FloatArray:
        """Draw as the base class does, with one integral for each state and not for each draw."""
        phi = self.prior_hyperparameters + parameters.totals[:, None]
        fitted = np.stack(self._beta(phi), axis=-1)
        return super().sample(rows(fitted, state), rng)

    def log_density(self, theta: FloatArray, reward: FloatArray) -> FloatArray:
        return self._log_chance(theta, self.statistic(reward))

    def _beta(self, phi: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the beta distribution with the mean and variance of the posterior."""
        mean, variance = self.moments(phi)
        strength = mean * (1 - mean) / variance - 1
        return mean * strength, (1 - mean) * strength

    def posterior_of(self, phi: FloatArray) -> ClickPosterior:
        """Return the posterior of mu for every phi, by quadrature."""
        n = len(self.examination)
        return quadrature(phi[..., :n].sum(axis=-1), phi[..., n:], self.examination)

    def _hyperparameters(self) -> FloatArray:
        n = len(self.examination)
        phi = np.zeros((*self.alpha.shape, 2 * n))
        phi[..., 0], phi[..., n] = self.alpha, self.beta
        return phi

    def vague(self) -> Self:
        return self._replace(super().vague()._prior_arrays())
