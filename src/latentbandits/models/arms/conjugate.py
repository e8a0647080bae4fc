"""Independent actions whose rewards have a conjugate prior: the exponential families (Appendix A).

A family states its sufficient statistic, its log normaliser, and samplers of parameters and
rewards. Evidence, predictive density and posterior follow from these, here for all families.
Learning reads the same statement (`learnable`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike

from latentbandits.lazy import cached_property
from latentbandits.models import checks
from latentbandits.models.arms.learnable import Learnable
from latentbandits.models.checks import BoolArray, FloatArray, IntArray
from latentbandits.models.numerics import dirichlet, gamma
from latentbandits.models.numerics.arrays import map_leaves, rows
from latentbandits.models.numerics.laws import (
    REALS,
    Component,
    Counts,
    Interval,
    Law,
    Normal,
    OneOf,
)
from latentbandits.models.protocol import Context, StationaryModel


class ArmTotals(NamedTuple):
    """Sums of a session's sufficient statistics, the same for every state and in any order."""

    totals: FloatArray  # (n_sessions, n_actions, n_statistics)


class ConjugateArms(StationaryModel, Learnable):
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

    prior_fields: ClassVar[tuple[str, ...]]

    # Methods that each family implements. Arrays of hyperparameters are (..., n_statistics).

    @abstractmethod
    def sample(self, phi: FloatArray, rng: np.random.Generator) -> Any:
        """Draw theta for every phi."""

    @abstractmethod
    def point(self, phi: FloatArray) -> Any:
        """Return the point estimate of theta; its mean reward is the mean of `moments`."""

    @abstractmethod
    def mean_reward(self, theta: Any) -> FloatArray:
        """Return the mean of p(r | theta)."""

    @abstractmethod
    def log_density(self, theta: Any, reward: FloatArray) -> FloatArray:
        """Return log p(r | theta)."""

    @abstractmethod
    def draw(self, theta: Any, rng: np.random.Generator) -> FloatArray:
        """Draw a reward for every theta."""

    @abstractmethod
    def vague(self) -> Self:
        """Return one state, whose prior is as wide as all states and actions together."""

    @property
    @abstractmethod
    def noise(self) -> float: ...

    # Methods of a family that can be learned.

    def distribution(self, phi: FloatArray, reward: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return P(R <= reward) and P(R > reward) for a reward R of theta ~ phi."""
        raise NotImplementedError(self._not_learnable)

    def atoms(self, reward: FloatArray) -> BoolArray:
        """Mark the rewards that have a probability, and not a density."""
        support = self.support
        if isinstance(support, Interval):
            return np.isin(reward, support.atoms)
        return np.full(reward.shape, isinstance(support, (Counts, OneOf)))

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

    def sample_means(self, phi: FloatArray, rng: np.random.Generator) -> FloatArray:
        """Draw the mean reward for every phi."""
        return self.mean_reward(self.sample(phi, rng))

    def with_actions(self, means: FloatArray, variances: FloatArray) -> Self:
        """Return this model with m more actions at the end.

        The prior of their mean rewards has `means` and `variances`, both `(n_states, m)`. Means
        beyond those of the actions that the model has, and variances that the family cannot have,
        are replaced by the nearest possible ones.
        """
        inside = means
        if self.support is not REALS:
            inside = np.clip(means, self._means.min(), self._means.max())
        added = self._priors_of(inside, np.maximum(variances, 1e-12))
        mine = self._prior_arrays()
        fields = {name: np.concatenate([mine[name], added[name]], axis=1) for name in mine}
        return self._replace(fields, self.state_prior)

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

    @property
    def n_states(self) -> int:
        return int(self.prior_hyperparameters.shape[1])

    @property
    def n_actions(self) -> int:
        return int(self.prior_hyperparameters.shape[2])

    @cached_property
    def n_sessions(self) -> int | None:
        phi = self._hyperparameters()
        return phi.shape[0] if phi.ndim == 4 else None

    @cached_property
    def spread_bound(self) -> float:
        return float(np.sqrt(self.moments(self.prior_hyperparameters)[1].max()))

    def check_context(self, context: ArrayLike | None, n_sessions: int) -> Context:
        checks.no_context(type(self).__name__, context)
        return None

    def expected_rewards(self, context: Context, state: IntArray | None = None) -> FloatArray:
        if state is None:
            return self._means
        return rows(self._means, state)

    def log_likelihood(self, context: Context, action: IntArray, reward: FloatArray) -> FloatArray:
        phi = rows(self._prior_by_action, action)
        return self.log_density(self.point(phi), reward[:, None])

    def parameters(self, n_sessions: int) -> ArmTotals:
        n = checks.session_count(n_sessions, self.n_sessions)
        return ArmTotals(np.zeros((n, self.n_actions, self.prior_hyperparameters.shape[3])))

    def condition(
        self, parameters: ArmTotals, context: Context, action: IntArray, reward: FloatArray
    ) -> tuple[FloatArray, ArmTotals]:
        prior, statistic = rows(self._prior_by_action, action), self.statistic(reward)
        before = rows(parameters.totals, action)
        log_predictive = self.log_normaliser_step(prior, before[:, None], statistic[:, None])
        base = self.log_base_measure(reward)
        log_predictive += base if isinstance(base, float) else base[:, None]
        totals = parameters.totals.copy()
        totals[np.arange(len(action)), action] = before + statistic
        return log_predictive, ArmTotals(totals)

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
        self,
        parameters: ArmTotals,
        context: Context,
        state: IntArray,
        rng: np.random.Generator,
    ) -> FloatArray:
        phi = rows(self.prior_hyperparameters, state)
        phi += parameters.totals[:, None]
        return self.sample_means(phi, rng)

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

    def select(self, session: IntArray | None, state: IntArray) -> Self:
        if session is None:
            return self._replace({name: a[state] for name, a in self._prior_arrays().items()})
        index = (0 if self.n_sessions is None else session), state
        return self._replace(
            {
                name: array.reshape(-1, self.n_states, *array.shape[self._axis + 1 :])[index][
                    :, None
                ]
                for name, array in self._prior_arrays().items()
            }
        )

    def with_state(self, other: Self, probability: float) -> Self:
        mine, others = self._prior_arrays(), other._prior_arrays()
        return self._replace(
            {
                name: np.concatenate(
                    [array, np.broadcast_to(others[name], checks.one_state(array, self._axis))],
                    axis=self._axis,
                )
                for name, array in mine.items()
            },
            checks.extended_prior(self.state_prior, probability),
        )

    def _replace(
        self, arrays: Mapping[str, FloatArray], state_prior: FloatArray | None = None
    ) -> Self:
        kept = {name: getattr(self, name) for name in self._kept_fields()}
        made: Any = type(self)
        model: Self = made(**arrays, **kept, state_prior=state_prior)
        return model

    def _kept_fields(self) -> tuple[str, ...]:
        """Return the names of fields that are the same in every state."""
        return ()

    def _overall(self) -> tuple[FloatArray, FloatArray]:
        """Return mean and deviation of the mean reward over all states and actions."""
        mean, variance = self.moments(self.prior_hyperparameters)
        both = (
            mean.mean(axis=(1, 2), keepdims=True),
            np.sqrt(
                variance.mean(axis=(1, 2), keepdims=True) + mean.var(axis=(1, 2), keepdims=True)
            ),
        )
        centre, deviation = (self._one_state(array) for array in both)
        return centre, deviation

    def _one_state(self, array: FloatArray) -> FloatArray:
        """Return `array` (1 or n_sessions, 1, 1 or n_actions, ...) in the shape of a field."""
        shape = (len(array), 1, self.n_actions, *array.shape[3:])
        full = np.broadcast_to(array, shape)
        return full[0] if self.n_sessions is None else full

    def _prior_arrays(self) -> dict[str, FloatArray]:
        return {name: getattr(self, name) for name in self.prior_fields}

    @property
    def _axis(self) -> int:
        """The axis of states in the prior's fields."""
        return 0 if self.n_sessions is None else 1

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


class DirichletArms(ConjugateArms):
    """Base class of rewards with finitely many values; phi counts how often each was seen."""

    smoothing: ClassVar[float | tuple[float, ...]] = 0.5

    def log_normaliser(self, phi: FloatArray) -> FloatArray:
        return dirichlet.log_normaliser(phi)

    def log_normaliser_step(
        self, prior: FloatArray, totals: FloatArray, statistic: FloatArray
    ) -> FloatArray:
        return dirichlet.log_normaliser_step(prior, totals, statistic)

    def log_base_measure(self, reward: FloatArray) -> FloatArray | float:
        return 0.0

    def expected(self, phi: FloatArray) -> FloatArray:
        return dirichlet.expected_log(phi)

    def within(self, phi: FloatArray, strength: float) -> FloatArray:
        return self.reward_variance(phi) / (strength + 1)


class GammaArms(ConjugateArms):
    """Base class of rewards with one parameter that has a gamma prior; phi is shape and rate."""

    def log_normaliser(self, phi: FloatArray) -> FloatArray:
        return gamma.log_normaliser(phi)

    def expected(self, phi: FloatArray) -> FloatArray:
        return gamma.expected(phi)

    def vague(self) -> Self:
        vague: Self = type(self).from_means(*self._overall())  # type: ignore[attr-defined]
        return vague
