"""Dirichlet distributions, and rewards with finitely many values that have them as priors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from latentbandits.lazy import cached_property
from latentbandits.models import checks
from latentbandits.models.arms.conjugate import ConjugateArms, RewardFacts
from latentbandits.models.checks import BoolArray, FloatArray, IntArray
from latentbandits.models.numerics.laws import BINARY, Beta, Interval, OneOf, Summary, Support

Floats = np.ndarray[Any, np.dtype[np.float32]]

_UNDERFLOWS = 0.05  # a gamma draw of a smaller shape can be zero in floating point
_FEWEST = 4000  # for fewer draws numpy's own sampler is faster
_SMALLEST, _LARGEST = 0.4, 1e6  # shapes with few rejections, for which float32 suffices
_LEFTMOST, _QUARTIC = -0.5, 1.28  # h(y) <= 1.28 y^4 for y >= -0.5, as h(y) / y^4 falls with y


def log_normaliser(phi: FloatArray) -> FloatArray:
    """Return the log of prod_c Gamma(phi_c) / Gamma(sum phi).

    >>> log_normaliser(np.array([1.0, 1.0]))
    np.float64(0.0)
    """
    from scipy.special import gammaln

    log_z: FloatArray = gammaln(phi).sum(axis=-1) - gammaln(phi.sum(axis=-1))
    return log_z


def expected_log(phi: FloatArray) -> FloatArray:
    """Return E[log p_c] under Dirichlet(phi), the gradient of `log_normaliser`.

    >>> expected_log(np.array([1.0, 1.0]))
    array([-1., -1.])
    """
    from scipy.special import digamma

    expected: FloatArray = digamma(phi) - digamma(phi.sum(axis=-1, keepdims=True))
    return expected


def divergence(after: FloatArray, before: FloatArray) -> FloatArray:
    """Return KL(Dirichlet(after) || Dirichlet(before)).

    >>> divergence(np.array([1.0, 1.0]), np.array([1.0, 1.0]))
    np.float64(0.0)
    """
    gain = ((after - before) * expected_log(after)).sum(axis=-1)
    kl: FloatArray = gain - log_normaliser(after) + log_normaliser(before)
    return kl


def log_normaliser_step(prior: FloatArray, totals: FloatArray, statistic: FloatArray) -> FloatArray:
    """Return log Z(phi + statistic) - log Z(phi) = log(phi_c / sum phi).

    `statistic` is 1 for the category c and 0 for the others; phi is prior + totals, (..., C). The
    Gamma functions cancel. Sums are taken first because all states share the totals.

    >>> prior, totals, statistic = np.array([[2.0, 1.0], [1.0, 0.0], [1.0, 0.0]])
    >>> float(np.exp(log_normaliser_step(prior, totals, statistic)))
    0.75
    """
    step: FloatArray = np.einsum("...c,...c->...", prior, statistic)
    step += np.einsum("...c,...c->...", totals, statistic)
    step /= np.einsum("...c->...", prior) + np.einsum("...c->...", totals)
    return np.log(step)


def unnormalised(phi: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Draw a vector proportional to Dirichlet(phi) for every phi; its sum is not zero.

    >>> bool((unnormalised(np.full((5, 2), 1e-6), np.random.default_rng(0)).sum(axis=1) > 0).all())
    True
    """
    if phi.min() >= _UNDERFLOWS:
        return gamma_draws(phi, rng)
    log_draws = np.log(gamma_draws(phi + 1, rng))  # log G(a) = log G(a + 1) + log(U) / a
    log_draws -= rng.standard_exponential(phi.shape) / phi
    draws: FloatArray = np.exp(log_draws - log_draws.max(axis=-1, keepdims=True))
    return draws


def gamma_draws(shape: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Draw from Gamma(shape, 1) for every element; large arrays to the resolution of float32.

    These are the draws of Marsaglia & Tsang (2000) in array operations, in half the time of numpy:
    with d = shape - 1/3, x normal and y = x / (3 sqrt(d)), the proposal d (1 + y)^3 is kept with
    probability exp(-d h(y)), where h(y) = 3 y - 3 y^2 / 2 + y^3 - 3 log(1 + y); never if y <= -1.
    As h' = 3 y^3 / (1 + y), h is nowhere negative: this is right for all shapes above 1/3, not
    only for those above 1. As 1 - exp(-d h) <= d h, a bound on h keeps most without a logarithm.
    numpy draws the few that are rejected: a rejected proposal is independent of the next draw.

    >>> draws = gamma_draws(np.full(100_000, 9.0), np.random.default_rng(0))
    >>> float(draws.mean().round()), float(draws.var().round())
    (9.0, 9.0)
    """
    if shape.size < _FEWEST:
        return rng.standard_gamma(shape)
    shapes = shape.ravel()
    d = shapes.astype(np.float32)
    unusual = (d < _SMALLEST) | (d > _LARGEST)
    d[unusual] = 1  # numpy draws these below
    d -= 1 / 3
    y = _normals(d.size, rng)
    y /= 3 * np.sqrt(d)
    uniform = rng.random(d.size, dtype=np.float32)
    square = np.square(y)
    unsure = (y < _LEFTMOST) | (_QUARTIC * d * square * square >= 1 - uniform)
    rejected = _rejected(d, y, uniform, np.flatnonzero(unsure))
    y += 1
    d *= y
    d *= np.square(y)
    draws = d.astype(np.float64)
    again = np.concatenate([np.flatnonzero(unusual), rejected])
    draws[again] = rng.standard_gamma(shapes[again])
    return draws.reshape(shape.shape)


def _normals(n: int, rng: np.random.Generator) -> Floats:
    """Draw normals by Box & Muller (1958), in half the time of numpy's generator."""
    half = (n + 1) // 2
    radius = np.sqrt(2 * rng.standard_exponential(half, dtype=np.float32))
    angle = rng.random(half, dtype=np.float32) * np.float32(2 * np.pi)
    return np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])[:n]


def _rejected(d: Floats, y: Floats, uniform: Floats, unsure: IntArray) -> IntArray:
    """Return which of the proposals that the bound on h cannot decide are rejected."""
    y = np.maximum(y[unsure].astype(np.float64), -1)
    with np.errstate(divide="ignore"):  # log 0 at y = -1, where the acceptance probability is zero
        h = y * (3 + y * (y - 1.5)) - 3 * np.log(1 + y)
    rejected: IntArray = unsure[uniform[unsure] >= np.exp(-d[unsure] * h)]
    return rejected


# Rewards with finitely many values and Dirichlet priors: clicks, stars, priced outcomes.


class DirichletArms(ConjugateArms):
    """Base class of rewards with finitely many values; phi counts how often each was seen."""

    smoothing: ClassVar[float | tuple[float, ...]] = 0.5

    log_normaliser = staticmethod(log_normaliser)
    log_normaliser_step = staticmethod(log_normaliser_step)
    expected = staticmethod(expected_log)

    def log_base_measure(self, reward: FloatArray) -> FloatArray | float:
        return 0.0

    def within(self, phi: FloatArray, strength: float) -> FloatArray:
        return self.reward_variance(phi) / (strength + 1)


@dataclass(frozen=True, eq=False, init=False, repr=False)
class BernoulliArms(DirichletArms):
    """Rewards are 0 or 1 with P(1) = theta[s, a], and theta[s, a] ~ Beta(alpha[s, a], beta[s, a]).

    Args:
        alpha: the number of ones that the prior is worth, `(n_states, n_actions)` or with a session
            axis first.
        beta: the number of zeros, like `alpha`; one of the two may be a single number.
        state_prior: P1(s), `(n_states,)` or `(n_sessions, n_states)`; None is uniform.

    >>> model = BernoulliArms(alpha=[[9.0, 1.0], [2.0, 8.0]], beta=[[1.0, 9.0], [8.0, 2.0]])
    >>> model.expected_rewards(None)[0]
    array([[0.9, 0.1],
           [0.2, 0.8]])
    """

    summary: ClassVar[Summary] = Summary(
        "0 or 1: clicks, sales",
        "BernoulliArms(alpha, beta)",
        "beta",
        "ones and zeros that the prior is worth",
        sub_gaussian=True,
    )

    support = BINARY
    noise = 0.5  # rewards in [0, 1] are 1/2-sub-Gaussian
    family_name: ClassVar[str] = "bernoulli"
    prior_fields: ClassVar[tuple[str, ...]] = ("alpha", "beta")

    alpha: FloatArray
    beta: FloatArray
    state_prior: FloatArray

    def __init__(
        self, alpha: ArrayLike, beta: ArrayLike, state_prior: ArrayLike | None = None
    ) -> None:
        checks.set_positive(self, state_prior, alpha=alpha, beta=beta)

    @classmethod
    def random(cls, rng: np.random.Generator, *shape: int) -> Self:
        """Return a random problem of shape ([n_sessions,] n_states, n_actions)."""
        means = rng.uniform(0.05, 0.95, shape)
        return cls.from_means(means, 0.1)

    @classmethod
    def from_means(
        cls, means: ArrayLike, spread: ArrayLike, state_prior: ArrayLike | None = None
    ) -> Self:
        """Return the model whose beta priors have these means and standard deviations.

        >>> BernoulliArms.from_means([[0.5]], spread=(1 / 12) ** 0.5).alpha.round(6)
        array([[1.]])
        """
        mean, deviation = np.broadcast_arrays(np.asarray(means, float), np.asarray(spread, float))
        variance = deviation**2
        widest = mean * (1 - mean)
        if not ((widest > 0) & (variance > 0) & (variance < widest)).all():
            raise ValueError(
                "a beta prior needs means inside (0, 1) and a spread inside "
                f"(0, sqrt(mean (1 - mean))); got means from {mean.min()} to {mean.max()}, "
                f"spread from {deviation.min()} to {deviation.max()}"
            )
        strength = widest / variance - 1
        return cls(mean * strength, (1 - mean) * strength, state_prior)

    def statistic(self, reward: FloatArray) -> FloatArray:
        return np.stack([reward, 1 - reward], axis=-1)

    @property
    def counts_and_sums(self) -> tuple[FloatArray, FloatArray]:
        return np.array([1.0, 1.0]), np.array([1.0, 0.0])

    def allowed_means(self, means: FloatArray) -> FloatArray:
        return np.clip(means, 1e-6, 1 - 1e-6)

    def moments(self, phi: FloatArray) -> tuple[FloatArray, FloatArray]:
        alpha, strength = phi[..., 0], phi[..., 0] + phi[..., 1]
        mean = alpha / strength
        return mean, mean * (phi[..., 1] / strength) / (strength + 1)

    def reward_variance(self, phi: FloatArray) -> FloatArray:
        mean = self.moments(phi)[0]
        return mean * (1 - mean)

    def distribution(self, phi: FloatArray, reward: FloatArray) -> tuple[FloatArray, FloatArray]:
        above = np.where(reward < 1, self.moments(phi)[0], 0.0)
        above = np.where(reward < 0, 1.0, above)
        return 1 - above, above

    def law(self, phi: FloatArray) -> Beta:
        return Beta(phi[..., 0], phi[..., 1])

    def sample(self, phi: FloatArray, rng: np.random.Generator) -> FloatArray:
        draws = unnormalised(phi, rng)
        return draws[..., 0] / (draws[..., 0] + draws[..., 1])

    def log_density(self, theta: FloatArray, reward: FloatArray) -> FloatArray:
        with np.errstate(divide="ignore"):
            return np.log(np.where(reward == 1, theta, 1 - theta))

    def draw(self, theta: FloatArray, rng: np.random.Generator) -> FloatArray:
        return (rng.random(theta.shape) < theta).astype(np.float64)

    def vague(self) -> Self:
        mean, deviation = self._overall()
        widest = np.sqrt(mean * (1 - mean))
        return type(self).from_means(mean, np.minimum(deviation, 0.99 * widest))


# Categorical rewards with Dirichlet priors: star ratings, outcomes with a value each.

MOST_VALUES = 20
"""Most different rewards from which the family is learned."""

_FULL_SCORE = 0.01  # share of rewards that equal the largest one, so that it is a full score
_FURTHEST = 0.25  # distance of a full score from the next reward, as a part of the range
_BINS = (2, 4, 8, 16)
_TINY = np.finfo(np.float64).tiny


@dataclass(frozen=True, eq=False, init=False, repr=False)
class CategoricalArms(DirichletArms):
    """Rewards are one of `values`, with probabilities theta[s, a] ~ Dirichlet(concentration[s, a]).

    Args:
        concentration: the number of rewards of each category that the prior is worth, `(n_states,
            n_actions, n_categories)` or with a session axis first.
        values: the reward of each category, `(n_categories,)`, in increasing order.
        state_prior: P1(s), `(n_states,)` or `(n_sessions, n_states)`; None is uniform.
        edges: for rewards that are numbers in an interval, `(n_categories + 1,)`: category c has
            the rewards from edges[c] to edges[c + 1], all equally likely, and `values` are the
            middles. Two equal edges are a single reward, such as a full score. None: rewards are
            the `values` alone.

    >>> model = CategoricalArms([[[1.0, 1.0, 8.0], [8.0, 1.0, 1.0]]], values=[1.0, 2.0, 3.0])
    >>> model.expected_rewards(None)[0]
    array([[2.7, 1.3]])
    >>> scores = CategoricalArms([[[1.0, 2.0, 1.0]]], [0.0, 0.5, 1.0], edges=[0.0, 0.0, 1.0, 1.0])
    >>> scores.statistic(np.array([0.0, 0.3, 1.0]))
    array([[1., 0., 0.],
           [0., 1., 0.],
           [0., 0., 1.]])
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
    edges: FloatArray | None

    def __init__(
        self,
        concentration: ArrayLike,
        values: ArrayLike,
        state_prior: ArrayLike | None = None,
        edges: ArrayLike | None = None,
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
        ends = None
        if edges is not None:
            ends = checks.finite_array("edges", edges, (1,))
            if len(ends) != len(categories) + 1 or not np.allclose(_middles(ends), categories):
                raise ValueError(
                    f"edges must be {len(categories) + 1} numbers, and values the middles between "
                    f"two of them; got edges {ends.tolist()} and values {categories.tolist()}"
                )
        checks.set_fields(
            self, concentration=counts, values=categories, state_prior=prior, edges=ends
        )

    @classmethod
    def random(cls, rng: np.random.Generator, *shape: int) -> Self:
        """Return a random problem of five-star ratings; the prior is worth twenty ratings."""
        shares = rng.dirichlet(np.ones(5), shape)
        return cls(20 * shares + 0.1, values=[1, 2, 3, 4, 5])

    @classmethod
    def for_rewards(cls, rewards: FloatArray) -> Self:
        values = np.unique(rewards)
        ends = (float((rewards == value).mean()) for value in (values[0], values[-1]))
        return cls._for_values(values, *ends)

    @classmethod
    def for_facts(cls, facts: RewardFacts) -> Self:
        return cls._for_values(facts.values, *facts.end_shares)

    @classmethod
    def _for_values(cls, values: FloatArray, share_least: float, share_most: float) -> Self:
        """Return the family of these values; of bins, if many are bounded by a full score."""
        if len(values) <= MOST_VALUES:
            return cls(np.ones((1, 1, len(values))), values)
        beyond = (values[-1] - values[-2]) / (values[-1] - values[0])
        if share_most < _FULL_SCORE or beyond > _FURTHEST:
            raise ValueError(
                f"--rewards categorical takes {cls.takes()}; the log has {len(values):,}, from "
                f"{values[0]:g} to {values[-1]:g}, and {share_most:.1%} of the rewards are the "
                f"largest one, {beyond:.0%} of the range above the next: choose another family, "
                "or --rewards auto"
            )
        ends = float(values[0]), float(values[-1])
        return cls._in_bins(_BINS[1], *ends, has_floor=share_least >= _FULL_SCORE)

    @classmethod
    def _in_bins(cls, n_bins: int, low: float, high: float, *, has_floor: bool) -> Self:
        edges = np.append(np.linspace(low, high, n_bins + 1), high)
        edges = np.append(low, edges) if has_floor else edges
        return cls(np.ones((1, 1, len(edges) - 1)), _middles(edges), edges=edges)

    def tuned(self, rewards: FloatArray) -> Self:
        """Choose the number of bins by the likelihood of each reward given all others."""
        if self.edges is None:
            return self
        low, high = float(self.edges[0]), float(self.edges[-1])
        has_floor = self.edges[1] == low
        inside = rewards[(rewards < high) & ((rewards > low) | (not has_floor))]

        def log_score(n_bins: int) -> float:
            counts = np.histogram(inside, n_bins, (low, high))[0]
            others = (np.maximum(counts - 1, 0) + 0.5) / (len(inside) - 1 + 0.5 * n_bins)
            return float(counts @ np.log(n_bins * others))

        if len(inside) < 2:
            return self
        return self._in_bins(max(_BINS, key=log_score), low, high, has_floor=has_floor)

    @classmethod
    def outside(cls, rewards: FloatArray) -> BoolArray:
        return np.zeros(rewards.shape, np.bool_)

    @classmethod
    def takes(cls) -> str:
        return f"at most {MOST_VALUES} different values, or scores with a full score"

    def learned(self, phi: FloatArray, variance: FloatArray, shares: FloatArray) -> Self:
        strength = np.maximum(np.maximum(self.reward_variance(phi), 1e-300) / variance - 1, 1.0)
        return self._replace({"concentration": strength[..., None] * self.point(phi)}, shares)

    @cached_property
    def support(self) -> Support:
        if self.edges is None:
            return OneOf(tuple(self.values.tolist()))
        points = self.values[np.diff(self.edges) == 0]
        return Interval(float(self.edges[0]), float(self.edges[-1]), tuple(points.tolist()))

    @property
    def noise(self) -> float:
        """Rewards in an interval are half-its-length-sub-Gaussian."""
        return float(self.values[-1] - self.values[0]) / 2

    def _hyperparameters(self) -> FloatArray:
        return self.concentration

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
        return self._one_hot.take(self._category(reward), axis=0)

    def _category(self, reward: FloatArray) -> IntArray:
        if self.edges is None:
            return self.values.searchsorted(reward)
        # A single reward is its own category, and not an end of the bin beside it.
        which: IntArray = self.edges[1:].searchsorted(reward)
        return np.where(reward >= self.edges[-2], len(self.values) - 1, which)

    def log_base_measure(self, reward: FloatArray) -> FloatArray | float:
        """Return less the log of the width of the reward's bin."""
        if self.edges is None:
            return 0.0
        width = np.diff(self.edges)[self._category(reward)]
        return -np.log(np.where(width > 0, width, 1.0))

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
        """Return a reward's mean above the least value, and its variance, at the mean of phi."""
        mean = phi @ self._offsets / strength
        square = phi @ self._offsets**2 / strength
        return mean, np.maximum(square - mean**2, 0.0)

    def distribution(self, phi: FloatArray, reward: FloatArray) -> tuple[FloatArray, FloatArray]:
        lower, upper = self.values, self.values
        if self.edges is not None:
            lower, upper = self.edges[:-1], self.edges[1:]
        width = np.where(upper > lower, upper - lower, 1.0)
        into = np.where(
            upper > lower, (reward[..., None] - lower) / width, reward[..., None] >= upper
        )
        below = (np.clip(into, 0.0, 1.0) * self.point(phi)).sum(axis=-1)
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
        draws = unnormalised(phi, rng)
        draws /= np.einsum("...c->...", draws)[..., None]
        return draws

    def point(self, phi: FloatArray) -> FloatArray:
        probabilities: FloatArray = phi / phi.sum(axis=-1, keepdims=True)
        return probabilities

    def mean_reward(self, theta: FloatArray) -> FloatArray:
        return theta @ self.values

    def log_density(self, theta: FloatArray, reward: FloatArray) -> FloatArray:
        with np.errstate(divide="ignore"):
            density: FloatArray = np.log((theta * self.statistic(reward)).sum(axis=-1))
        return density + self.log_base_measure(reward)

    def draw(self, theta: FloatArray, rng: np.random.Generator) -> FloatArray:
        upper = theta.cumsum(axis=-1)[..., :-1]
        which = (rng.random((*theta.shape[:-1], 1)) > upper).sum(axis=-1)
        rewards: FloatArray = self.values[which]
        if self.edges is not None:
            rewards = rewards + np.diff(self.edges)[which] * (rng.random(which.shape) - 0.5)
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


def _middles(edges: FloatArray) -> FloatArray:
    return (edges[1:] + edges[:-1]) / 2
