"""The functions of a reward family p(r | theta) that learning needs.

With t(r) the statistics of a reward, log p(r | theta) = log b(r) + t(r) . eta(theta). A conjugate
prior on theta[s, a] has hyperparameters phi, to which the statistics of rewards are added, and a
log normaliser log Z(phi). Then, under q = prior(phi),

    E[eta] = grad log Z(phi),
    KL(q(phi) || q(phi0)) = (phi - phi0) . E[eta] - log Z(phi) + log Z(phi0).

A family therefore states its statistics, log Z and the gradient of log Z. Arrays of
hyperparameters have the shape (..., n_states, n_actions, n_hyperparameters). R below counts
mixtures that are fitted side by side.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike

from latentbandits.lazy import cached_property
from latentbandits.models import checks
from latentbandits.models.checks import BoolArray, FloatArray, IntArray
from latentbandits.models.numerics.arrays import map_leaves, rows
from latentbandits.models.numerics.laws import (
    REALS,
    Component,
    Law,
    Normal,
)
from latentbandits.models.protocol import ConjugateModel, Context, FromTotals

STRENGTHS = (1e-2, 1e7)
"""Bounds of the strength of the pooled prior, in rewards."""


class RewardFacts(Protocol):
    """The facts about a log's rewards that a family needs (`logs.rows.RewardSummary`)."""

    @property
    def values(self) -> FloatArray:
        """Distinct rewards: all, or many and, for each family, one outside its support if any."""

    @property
    def mean(self) -> float: ...

    @property
    def deviation(self) -> float: ...

    @property
    def end_shares(self) -> tuple[float, float]:
        """The shares of rewards that equal the least and the largest one."""


class Learnable(ABC):
    """Rewards of one family, as learning sees them. Instances are made by `for_rewards`."""

    family_name: ClassVar[str] = ""
    """The name in `--rewards`; a family without one cannot be learned."""

    smoothing: ClassVar[float | tuple[float, ...]] = 0.0
    """Statistics that are added to those of the whole log, so that no probability is zero."""

    # The rewards of a log.

    @classmethod
    @abstractmethod
    def for_rewards(cls, rewards: FloatArray) -> Self:
        """Return the family for a log's rewards; raise ValueError if it cannot take them."""

    @classmethod
    def for_facts(cls, facts: RewardFacts) -> Self:
        """Return the family for rewards that are too many to look at."""
        return cls.for_rewards(facts.values)

    def tuned(self, rewards: FloatArray) -> Self:
        """Return the family with its settings chosen on a sample of the rewards."""
        return self

    @classmethod
    @abstractmethod
    def outside(cls, rewards: FloatArray) -> BoolArray:
        """Mark the rewards that are outside the support."""

    @classmethod
    @abstractmethod
    def takes(cls) -> str:
        """Return the rewards that the family takes, in words."""

    def outcomes(self, reward: FloatArray, position: IntArray | None) -> FloatArray:
        """Return rewards with their positions in a list, counted from 0, as one number each.

        Here they are the rewards: in most families positions do not matter.
        """
        return reward

    @abstractmethod
    def statistic(self, reward: FloatArray) -> FloatArray:
        """Return t(r): `(..., n_statistics)`."""

    @abstractmethod
    def log_base_measure(self, reward: FloatArray) -> FloatArray | float:
        """Return log b(r)."""

    def summed(self, reward: FloatArray) -> FloatArray:
        """Return what learning sums over the rewards of a user for an action: t(r)."""
        return self.statistic(reward)

    def squares(self, reward: FloatArray) -> FloatArray:
        """Return what `update_noise` needs of each reward beside its statistics: r^2."""
        return reward**2

    @property
    def counts_and_sums(self) -> tuple[FloatArray, FloatArray]:
        """The coefficients of the statistics that give the count and the sum of rewards."""
        raise NotImplementedError(self._not_learnable)

    @property
    def _not_learnable(self) -> str:
        return (
            f"{type(self).__name__} cannot be learned from a log: it needs counts_and_sums, "
            "expected, reward_variance and distribution"
        )

    @property
    def n_statistics(self) -> int:
        return len(self.counts_and_sums[0])

    @property
    def n_parameters(self) -> int:
        """Number of free parameters of a state's action."""
        return self.n_statistics - 1

    def statistics_of_means(self, counts: FloatArray, means: FloatArray) -> FloatArray:
        """Return the statistics `(S, A, K)` of `counts` rewards with the given `means`.

        Raise ValueError if means do not determine the family's parameters.
        """
        counting, paying = self.counts_and_sums
        if self.n_statistics != 2:
            raise ValueError("--method spectral learns only means, which do not determine "
                             f"{self.family_name} rewards: use --method em")  # fmt: skip
        solve = np.linalg.inv(np.stack([counting, paying]))
        allowed = self.allowed_means(means)
        return np.stack([counts, counts * allowed], axis=-1) @ solve.T

    def allowed_means(self, means: FloatArray) -> FloatArray:
        """Return means in the units of the statistics, clipped to the inside of the support."""
        return np.maximum(means, 1e-6)

    # The prior and posterior of theta.

    def centre(self, totals: FloatArray) -> FloatArray:
        """Return every action's mean statistics over all users, `(n_actions, n_statistics)`.

        `totals`, of the same shape, are the summed statistics. One reward with the overall mean
        statistics is added to each action.
        """
        counting, _ = self.counts_and_sums
        overall = totals.sum(axis=0) + self.smoothing
        smoothed: FloatArray = totals + overall / (overall @ counting)
        return smoothed / (smoothed @ counting)[:, None]

    def prior(self, centre: FloatArray, strength: FloatArray) -> FloatArray:
        """Return phi0 `(R, 1, A, K)` of the pooled prior at `centre`, worth `strength` rewards."""
        return strength[:, None, None, None] * centre

    @abstractmethod
    def log_normaliser(self, phi: FloatArray) -> FloatArray:
        """Return log Z(phi)."""

    def expected(self, phi: FloatArray) -> FloatArray:
        """Return E[eta] = grad log Z(phi)."""
        raise NotImplementedError(self._not_learnable)

    def coefficients(self, phi: FloatArray, noise: FloatArray) -> FloatArray:
        """Return the coefficients of the statistics in E[log p] of a reward, `(R, S, A, K)`."""
        return self.expected(phi)

    def posterior(self, prior: FloatArray, sums: FloatArray, noise: FloatArray) -> FloatArray:
        """Return phi after rewards whose statistics sum to `sums` (R, S, A, K)."""
        return prior + sums

    def divergence(self, phi: FloatArray, prior: FloatArray) -> FloatArray:
        """Return KL(q(phi) || prior), summed over states and actions, `(R,)`."""
        gain = ((phi - prior) * self.expected(phi)).sum(axis=-1)
        kl = gain - self.log_normaliser(phi) + self.log_normaliser(prior)
        total: FloatArray = kl.sum(axis=(-2, -1))
        return total

    def expected_log_prior(
        self, centre: FloatArray, strength: FloatArray, phi: FloatArray
    ) -> FloatArray:
        """Return E_q[log prior] as a function of the strength, up to a constant, `(R,)`."""
        prior = self.prior(centre, strength)
        inner = (prior[:, 0] * self.expected(phi).sum(axis=1)).sum(axis=(-2, -1))
        total: FloatArray = inner - phi.shape[1] * self.log_normaliser(prior[:, 0]).sum(axis=-1)
        return total

    # The noise, a parameter that all states share. Most families have none.

    known: float | None = None
    """The standard deviation of rewards, if it was given."""

    @property
    def noise_is_free(self) -> bool:
        """Whether the noise is estimated, so that one noise for each action can be tried."""
        return False

    def with_noise(self, known: float | None) -> Self:
        """Return the family with a known standard deviation of rewards; None: estimated."""
        raise ValueError(f"noise is for gaussian rewards; these are {self.family_name}")

    def with_noise_by_action(self) -> Self:
        """Return the family with one noise for each action."""
        raise ValueError(f"noise is for gaussian rewards; these are {self.family_name}")

    def first_noise(self, totals: FloatArray, n_starts: int) -> FloatArray:
        """Return the initial noise variances `(R, A)`; ones for families without noise."""
        return np.ones((n_starts, totals.shape[0]))

    def update_noise(
        self, phi: FloatArray, sums: FloatArray, squares: FloatArray, noise: FloatArray
    ) -> FloatArray:
        """Return the noise `(R, A)` that maximises the ELBO given q.

        `squares` (R, A) are the sums of `squares` of rewards.
        """
        return noise

    def log_constant(
        self, totals: FloatArray, squares: FloatArray, noise: FloatArray
    ) -> FloatArray | float:
        """Return the terms of the ELBO `(R,)` that depend on no state, except the base measure.

        `totals` (R, A, K) are the statistics, summed over all users.
        """
        return 0.0

    def at_noise(self, noise: FloatArray) -> Self:
        """Return the family with the estimated noise `(A,)`, for the methods below."""
        return self

    # Means.

    @property
    def unit(self) -> float:
        """The size, in rewards, of one unit of the statistics."""
        return 1.0

    def mean_statistic(self, phi: FloatArray) -> FloatArray:
        """Return the mean reward in the units of the statistics."""
        return self.moments(phi)[0]

    @abstractmethod
    def moments(self, phi: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return mean and variance of the mean reward under theta ~ phi."""

    def prior_variance(self, prior: FloatArray) -> FloatArray:
        """Return the variance of the mean reward under the pooled prior; finite in any case."""
        return self.moments(prior)[1]

    def reward_variance(self, phi: FloatArray) -> FloatArray:
        """Return V, the variance of a reward at the mean parameter of q, `(..., S, A)`."""
        raise NotImplementedError(self._not_learnable)

    def within(self, phi: FloatArray, strength: float) -> FloatArray:
        """Return the variance of users' means within a state, for a prior worth `strength` rewards.

        An infinite strength gives zero.
        """
        return self.reward_variance(phi) / strength

    def log_actions(self, phi: FloatArray) -> FloatArray | None:
        """Return log probabilities of actions `(S, A)`, if states tell which are chosen."""
        return None

    @abstractmethod
    def learned(self, phi: FloatArray, variance: FloatArray, shares: FloatArray) -> Any:
        """Return the model with q's mean parameters `phi` (S, A, K).

        `variance` (S, A) is the prior variance of the model's mean rewards.
        """


# Independent actions whose rewards have a conjugate prior: the exponential families (Appendix A).
#
# A family states its sufficient statistic, its log normaliser, and samplers of parameters and
# rewards. Evidence, predictive density and posterior follow from these, here for all families.
# Learning reads the same statement (`Learnable`).


class ArmTotals(NamedTuple):
    """Sums of a session's sufficient statistics, the same for every state and in any order."""

    totals: FloatArray  # (n_sessions, n_actions, n_statistics)


class FamilyPrediction(NamedTuple):
    """The predictive distributions of n rewards of a family given each state (`Prediction`)."""

    family: ConjugateArms
    prior: FloatArray  # phi of the prior, (n, n_states, n_statistics)
    totals: FloatArray  # of earlier rewards, (n, 1, n_statistics)

    def log_density(self, reward: FloatArray, statistic: FloatArray) -> FloatArray:
        density = self.family.log_normaliser_step(self.prior, self.totals, statistic[:, None])
        base = self.family.log_base_measure(reward)
        density += base if isinstance(base, float) else base[:, None]
        return density

    def moments(self) -> tuple[FloatArray, FloatArray]:
        return self.family.moments(self.prior + self.totals)

    def tails(self, reward: FloatArray) -> tuple[FloatArray, FloatArray]:
        return self.family.distribution(self.prior + self.totals, reward)


class Arms(ConjugateModel, FromTotals):
    """Base class of models whose actions have no features."""

    @cached_property
    def _means(self) -> FloatArray:
        """Prior means of the rewards, `(1 or n_sessions, n_states, n_actions)`."""
        raise NotImplementedError

    def _longer(self, added: Mapping[str, FloatArray]) -> Self:
        """Return this model with more actions at the end, whose prior fields are `added`."""
        mine = self._prior_arrays()
        fields = {name: np.concatenate([mine[name], added[name]], axis=1) for name in mine}
        return self._replace(fields, self.state_prior)

    @property
    def n_states(self) -> int:
        return int(self._means.shape[1])

    @property
    def n_actions(self) -> int:
        return int(self._means.shape[2])

    def check_context(self, context: ArrayLike | None, n_sessions: int) -> Context:
        checks.no_context(type(self).__name__, context)
        return None

    def expected_rewards(self, context: Context, state: IntArray | None = None) -> FloatArray:
        if state is None:
            return self._means
        return rows(self._means, state)


class ConjugateArms(Arms, Learnable):
    """Base class of a family: p(r | theta) = b(r) exp(t(r) . eta(theta)), prior Z(phi)^-1 exp(...).

    The hyperparameters phi hold phi_0 and m_0 of Appendix A in one vector, to which a reward adds
    its statistic t(r); log Z = -log H. The rewards of one action have the evidence
    Z(phi_0 + sum t) / Z(phi_0) (erratum E5) times the base measures. Each round adds the
    difference of log Z. The differences telescope, so that their rounding errors cancel.

    Subclasses are frozen dataclasses; every field of `prior_fields` is an array
    `(n_states, n_actions, ...)`, or with a leading session axis.

    A family with a `family_name` can be learned as well. It also has `expected`,
    `counts_and_sums`, `reward_variance` and `distribution`, and `from_means` (or `for_rewards` and
    `learned`). Learning keeps an instance for the methods alone, and not for its prior.
    """

    # Methods that each family implements. Arrays of hyperparameters are (..., n_statistics).

    @abstractmethod
    def sample(self, phi: FloatArray, rng: np.random.Generator) -> Any:
        """Draw theta for every phi."""

    def point(self, phi: FloatArray) -> Any:
        """Return the point estimate of theta; its mean reward is the mean of `moments`.

        This and `mean_reward` are for families whose theta is the mean reward.
        """
        return self.moments(phi)[0]

    def mean_reward(self, theta: Any) -> FloatArray:
        """Return the mean of p(r | theta)."""
        means: FloatArray = theta
        return means

    @abstractmethod
    def log_density(self, theta: Any, reward: FloatArray) -> FloatArray:
        """Return log p(r | theta)."""

    @abstractmethod
    def draw(self, theta: Any, rng: np.random.Generator) -> FloatArray:
        """Draw a reward for every theta."""

    def vague(self) -> Self:
        """Return one state, whose prior is as wide as all states and actions together."""
        vague: Self = type(self).from_means(*self._overall())  # type: ignore[attr-defined]
        return vague

    @property
    @abstractmethod
    def noise(self) -> float: ...

    # Methods of a family that can be learned.

    def distribution(self, phi: FloatArray, reward: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return P(R <= reward) and P(R > reward) for a reward R of theta ~ phi."""
        raise NotImplementedError(self._not_learnable)

    @classmethod
    def reward_family(cls) -> type[Learnable] | None:
        return cls if cls.family_name else None

    @classmethod
    def _any(cls) -> Self:
        """Return some instance, for the methods that use no field."""
        any_: Self = cls.from_means([[0.5]], 0.1)  # type: ignore[attr-defined]
        return any_

    @classmethod
    def for_rewards(cls, rewards: FloatArray) -> Self:
        outside = cls.outside(rewards)
        if outside.any():
            raise ValueError(
                f"{cls.family_name} rewards are {cls.takes()}; {int(outside.sum()):,} of "
                f"{len(rewards):,} are not, such as {rewards[outside][0]:g}"
            )
        return cls._any()

    @classmethod
    def outside(cls, rewards: FloatArray) -> BoolArray:
        return ~cls._any().support.contains(rewards)

    @classmethod
    def takes(cls) -> str:
        return str(cls._any().support)

    def learned(self, phi: FloatArray, variance: FloatArray, shares: FloatArray) -> Self:
        return self._replace(self._priors_of(self.moments(phi)[0], variance), shares)

    # Methods derived from the family's methods.

    def _hyperparameters(self) -> FloatArray:
        """Return phi of the prior: the shape of the fields and one more axis, of statistics."""
        return np.stack(list(self._prior_arrays().values()), axis=-1)

    def with_actions(self, means: FloatArray, variances: FloatArray) -> Self:
        """Return this model with m more actions at the end.

        The prior of their mean rewards has `means` and `variances`, both `(n_states, m)`. Means
        are clipped to the range of the model's own actions, and variances to what the family can
        have.
        """
        inside = means
        if self.support is not REALS:
            inside = np.clip(means, self._means.min(), self._means.max())
        return self._longer(self._priors_of(inside, np.maximum(variances, 1e-12)))

    def with_prior(self, means: FloatArray, variances: FloatArray) -> Self:
        """Return the family with priors of mean rewards with these means and variances.

        Both are `(n_states, n_actions)`. Variances that the family cannot have are replaced by the
        nearest possible ones.
        """
        return self._replace(self._priors_of(means, variances))

    def _priors_of(self, means: FloatArray, variances: FloatArray) -> dict[str, FloatArray]:
        """Return the prior fields whose mean rewards have these means and variances."""
        most: FloatArray | float = np.inf
        if self.reward_bounds is not None:
            low, high = self.reward_bounds
            # At least one pseudo-observation in total is left.
            most = 0.5 * np.maximum((means - low) * (high - means), 1e-12)
        prior = type(self).from_means(means, np.sqrt(np.minimum(variances, most)))  # type: ignore[attr-defined]
        arrays: dict[str, FloatArray] = prior._prior_arrays()
        return arrays

    def log_normaliser_step(
        self, prior: FloatArray, totals: FloatArray, statistic: FloatArray
    ) -> FloatArray:
        """Return log Z of the posterior after one more reward, less log Z before it.

        A family overrides it if its Gamma functions cancel in the difference.
        """
        after = self.log_normaliser(prior + (totals + statistic))
        after -= self.log_normaliser(prior + totals)
        return after

    @cached_property
    def n_sessions(self) -> int | None:
        phi = self._hyperparameters()
        return phi.shape[0] if phi.ndim == 4 else None

    @cached_property
    def spread_bound(self) -> float:
        return float(np.sqrt(self.moments(self.prior_hyperparameters)[1].max()))

    def log_likelihood(self, context: Context, action: IntArray, reward: FloatArray) -> FloatArray:
        phi = rows(self._prior_by_action, action)
        return self.log_density(self.point(phi), reward[:, None])

    def parameters(self, n_sessions: int) -> ArmTotals:
        n = checks.session_count(n_sessions, self.n_sessions)
        return ArmTotals(np.zeros((n, self.n_actions, self.prior_hyperparameters.shape[3])))

    def condition(
        self, parameters: ArmTotals, context: Context, action: IntArray, reward: FloatArray
    ) -> tuple[FloatArray, ArmTotals]:
        statistic, before = self.statistic(reward), rows(parameters.totals, action)
        log_predictive = self.predicted(action, before).log_density(reward, statistic)
        totals = parameters.totals.copy()
        totals[np.arange(len(action)), action] = before + statistic
        return log_predictive, ArmTotals(totals)

    def predicted(self, action: IntArray, totals: FloatArray) -> FamilyPrediction:
        """Return the distributions of rewards of actions (n,) after rewards that sum to `totals`.

        `totals` is `(n, n_statistics)`.
        """
        return FamilyPrediction(self, rows(self._prior_by_action, action), totals[:, None])

    def reward_tails(
        self, parameters: ArmTotals | None, context: Context, action: IntArray, reward: FloatArray
    ) -> tuple[FloatArray, BoolArray]:
        phi = rows(self._prior_by_action, action)
        if parameters is not None:
            phi = phi + rows(parameters.totals, action)[:, None]
        return self.distribution(phi, reward[:, None])[0], self.atoms(reward)

    def log_evidence(self, parameters: ArmTotals) -> FloatArray:
        """Return log Z(phi_t) / Z(phi_0) summed over actions (erratum E5): `(n, n_states)`.

        The base measures, which are the same in every state, are left out.
        """
        after = self.log_normaliser(self.prior_hyperparameters + parameters.totals[:, None])
        evidence: FloatArray = (after - self.log_normaliser(self.prior_hyperparameters)).sum(axis=2)
        return evidence

    def posterior_rewards(
        self, parameters: ArmTotals, context: Context
    ) -> tuple[FloatArray, FloatArray]:
        return self.moments(self.prior_hyperparameters + parameters.totals[:, None])

    def law(self, phi: FloatArray) -> Law:
        """Return the posterior of the mean reward: a normal law, unless a family overrides it."""
        mean, variance = self.moments(phi)
        return Normal(mean, np.sqrt(variance))

    def reward_laws(self, parameters: ArmTotals, context: Context) -> tuple[Component, ...]:
        phi = self.prior_hyperparameters + parameters.totals[:, None]
        return (Component(None, self.law(phi)),)

    def sample_rewards(
        self, parameters: ArmTotals, context: Context, state: IntArray, rng: np.random.Generator
    ) -> FloatArray:
        phi = rows(self.prior_hyperparameters, state)
        phi += parameters.totals[:, None]
        return self.mean_reward(self.sample(phi, rng))

    def point_theta(self, state: IntArray) -> Any:
        """Return the parameters that `log_likelihood` takes for users in `state` (n,)."""
        return self.point(rows(self.prior_hyperparameters, state))

    def draw_theta(self, state: IntArray, rng: np.random.Generator) -> Any:
        return self.sample(rows(self.prior_hyperparameters, state), rng)

    def mean_rewards(self, theta: Any, context: Context) -> FloatArray:
        return self.mean_reward(theta)

    def draw_rewards(self, theta: Any, context: Context, rng: np.random.Generator) -> FloatArray:
        return self.draw(theta, rng)

    def log_reward_density(
        self, theta: Any, context: Context, action: IntArray, reward: FloatArray
    ) -> FloatArray:
        played = map_leaves(lambda leaf: leaf[np.arange(len(action)), action], theta)
        return self.log_density(played, reward)

    def _overall(self) -> tuple[FloatArray, FloatArray]:
        """Return mean and deviation of the mean reward over all states and actions."""
        mean, variance = self.moments(self.prior_hyperparameters)
        total = variance.mean(axis=(1, 2), keepdims=True) + mean.var(axis=(1, 2), keepdims=True)
        centre = mean.mean(axis=(1, 2), keepdims=True)
        return self._one_state(centre), self._one_state(np.sqrt(total))

    def _one_state(self, array: FloatArray) -> FloatArray:
        """Return `array` (1 or n_sessions, 1, 1 or n_actions, ...) in the shape of a field."""
        shape = (len(array), 1, self.n_actions, *array.shape[3:])
        full = np.broadcast_to(array, shape)
        return full[0] if self.n_sessions is None else full

    @cached_property
    def prior_hyperparameters(self) -> FloatArray:
        """(1 or n_sessions, n_states, n_actions, n_statistics)."""
        phi = self._hyperparameters()
        return phi[None] if phi.ndim == 3 else phi

    @cached_property
    def _prior_by_action(self) -> FloatArray:
        return np.ascontiguousarray(self.prior_hyperparameters.swapaxes(1, 2))

    @cached_property
    def _means(self) -> FloatArray:
        return self.moments(self.prior_hyperparameters)[0]
