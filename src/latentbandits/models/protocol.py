"""The protocol that every model satisfies, and that beliefs and policies are written against.

`StationaryModel` has the properties that most models share.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from latentbandits.lazy import cached_property
from latentbandits.models import checks
from latentbandits.models.checks import BoolArray, FloatArray, IntArray
from latentbandits.models.checks import Context as Context
from latentbandits.models.numerics.laws import REALS, Component, Normal, Support
from latentbandits.models.shown import ShownModel

if TYPE_CHECKING:
    from latentbandits.models.arms.conjugate import Learnable


Parameters: TypeAlias = "NDArray[Any] | tuple[Parameters, ...]"
"""P(theta | s, rewards) of some sessions: arrays with sessions first, or nested tuples of them.

Each model has a NamedTuple of its own. Beliefs only pass it back to the model that made it, so
methods take it as `Any`: a method that accepts only its own model's NamedTuple would not satisfy
a protocol that promises to accept every tree.
"""


class KnownModel(Protocol):
    """A model as the m-policies use it: a mean reward and a likelihood for every state."""

    @property
    def n_states(self) -> int: ...

    @property
    def n_actions(self) -> int | None:
        """The number of actions; None if it comes with the context."""

    @property
    def n_features(self) -> int | None:
        """The number of features of an action; None if actions have none (arms)."""

    @property
    def n_sessions(self) -> int | None:
        """The number of sessions that the arrays have instances for; None: one for all."""

    @property
    def is_certain(self) -> bool:
        """Whether the parameters are known, so that a session can only learn its state.

        A spread of zero does not say so: weights can be certain while the noise is not.
        """

    @property
    def noise(self) -> float:
        """The standard deviation of a reward (sigma, its sub-Gaussian scale)."""

    @property
    def log_state_prior(self) -> FloatArray:
        """Log P1(s), `(1 or n_sessions, n_states)`."""

    @property
    def transition(self) -> FloatArray | None:
        """P(next state | state), `(n_states, n_states)`; None if the state does not move."""

    def check_context(self, context: ArrayLike | None, n_sessions: int) -> Context:
        """Return the context as the other methods take it; ValueError if it is unusable."""

    def check_reward(self, reward: FloatArray) -> None:
        """Raise ValueError if a finite reward of `reward` (n,) is impossible in this model."""

    def expected_rewards(self, context: Context, state: IntArray | None = None) -> FloatArray:
        """Return mu_hat(a, x, s), the mean of `log_likelihood`.

        The shape is `(1 or n, n_states, n_actions)`, or `(n, n_actions)` for `state` (n,).
        """

    def log_likelihood(self, context: Context, action: IntArray, reward: FloatArray) -> FloatArray:
        """Return log p(r | a, x, s) at the point estimate of the parameters: `(n, n_states)`."""


class Model(KnownModel, Protocol):
    """A model as the mm-policies use it: also a prior over parameters, to condition on rewards."""

    @property
    def spread_bound(self) -> float:
        """v: an upper bound on the standard deviation of mu(a, x, s, theta) under the prior."""

    def parameters(self, n_sessions: int) -> Parameters:
        """Return P1(theta | s) for sessions without rewards."""

    def condition(
        self, parameters: Any, context: Context, action: IntArray, reward: FloatArray
    ) -> tuple[FloatArray, Parameters]:
        """Return the log predictive density of each reward under every state, `(n, n_states)`,
        and P(theta | s) after that reward.
        """

    def posterior_rewards(self, parameters: Any, context: Context) -> tuple[FloatArray, FloatArray]:
        """Return mean and variance of mu(a, x, s, theta): both `(n, n_states, n_actions)`."""

    def sample_rewards(
        self, parameters: Any, context: Context, state: IntArray, rng: np.random.Generator
    ) -> FloatArray:
        """Return mu(a, x, s, theta_s) with theta_s drawn from P(theta | s).

        The shape is `(n, m, n_actions)` for `state` (n, m): one draw for each of its entries.
        """

    def probability_best(
        self, parameters: Any, context: Context, eligible: BoolArray | None, weights: FloatArray
    ) -> FloatArray | None:
        """Return P(a is the best eligible action | s), `(n, n_states, n_actions)`.

        Its average with P(s) = `weights` (n, n_states) is exact to 1e-6. None means that the
        model has no formula for it, so that draws must be counted.
        """


@runtime_checkable
class Generative(Protocol):
    """A model from which users and their rewards can be drawn.

    `simulate` and `tune` play policies against such users, and `check_model` compares the draws
    with the densities. `theta` stands for the parameters of n users: a tree of arrays, users
    first, which only the model that made it reads.
    """

    def draw_theta(self, state: IntArray, rng: np.random.Generator) -> Any:
        """Draw theta_s from the prior for users whose states are `state` (n,).

        If the model has `n_sessions` instances, user i has the i-th of them.
        """

    def mean_rewards(self, theta: Any, context: Context) -> FloatArray:
        """Return mu(a, x, theta) of every action: `(n, n_actions)`."""

    def draw_rewards(self, theta: Any, context: Context, rng: np.random.Generator) -> FloatArray:
        """Draw a reward of every action: `(n, n_actions)`."""

    def log_reward_density(
        self, theta: Any, context: Context, action: IntArray, reward: FloatArray
    ) -> FloatArray:
        """Return log p(r | a, x, theta): `(n,)` for `action` and `reward` (n,)."""


@runtime_checkable
class Selectable(Protocol):
    """A model of which single states can be taken: `Markov` needs it of an uncertain model."""

    def select(self, session: IntArray | None, state: IntArray) -> Model:
        """Return a model of one state.

        It has len(session) instances: instance i is this model's `state[i]` in session
        `session[i]`. With None it is one instance for all sessions, of the state `state` (1,);
        this model must then be one instance for all sessions too.
        """


@runtime_checkable
class FromNormals(Protocol):
    """A model whose draws of mean rewards are functions of standard normal draws.

    Many sessions can then share the same normals, in one call.
    """

    @property
    def n_normals(self) -> int:
        """Number of standard normals that one draw of all mean rewards takes."""

    def rewards_from_normals(
        self, parameters: Any, context: Context, state: IntArray, normals: FloatArray
    ) -> FloatArray:
        """Return `sample_rewards` with the given normals, `(1 or n, m, n_normals)`."""


@runtime_checkable
class Extendable(Protocol):
    """A model that can get a state "none of these": `mmTS(model, catch_all=True)` needs it."""

    def vague(self) -> Model:
        """Return a model of one state, whose prior is as wide as all states and actions."""

    def with_state(self, other: Any, probability: float) -> Model:
        """Return this model with the state of `other` added, of the given prior probability.

        `other` is a model of the same class with one state.
        """


# What a model may say of itself, with a default for a class of somebody else that does not.


def support_of(model: KnownModel) -> Support:
    """Return the rewards that a model allows; all numbers if it does not say."""
    return getattr(model, "support", REALS)


def inner_models(model: KnownModel) -> tuple[KnownModel, ...]:
    """Return the models that a composed model is made of; none if it does not say."""
    return getattr(model, "inner_models", ())


def average_rewards(model: Any, weights: FloatArray, parameters: Any, context: Any) -> FloatArray:
    """Return sum_s w_s E[mu(a, x, s, theta) | s], `(n, n_actions)`, for weights (n, S).

    A model that can do so without variances has a method `average_rewards`.
    """
    if hasattr(model, "average_rewards"):
        result: FloatArray = model.average_rewards(weights, parameters, context)
        return result
    mean: FloatArray = model.posterior_rewards(parameters, context)[0]
    return (weights[:, None, :] @ mean)[:, 0]


def reward_laws(model: Any, parameters: Any, context: Context) -> tuple[Component, ...]:
    """Return P(mu(a, x, s, theta) | s) as a mixture of laws `(1 or n, n_states, n_actions)`.

    Bayes-UCB reads it. A model without a method `reward_laws` has normals of its posterior moments.
    """
    if hasattr(model, "reward_laws"):
        result: tuple[Component, ...] = model.reward_laws(parameters, context)
        return result
    mean, variance = model.posterior_rewards(parameters, context)
    return (Component(None, Normal(mean, np.sqrt(variance))),)


def untransformed(model: Any) -> Any:
    """Return the model of transformed rewards that a model wraps; `model` itself if it does not."""
    return getattr(model, "untransformed", model)


def at_rest(model: Model) -> Model:
    """Return the model with a state that stays where it is: within a list, time stands still."""
    return getattr(model, "at_rest", model)


def is_order_free(model: KnownModel) -> bool:
    """Tell whether the order of a session's rewards does not matter to its posterior.

    It matters where the state moves. It also matters to particles, whose class has
    `order_free = False`; a model without this attribute is taken as exact.
    """
    return model.transition is None and bool(getattr(model, "order_free", True))


# Properties that most models share.


class StationaryModel(ShownModel):
    """Base class of models whose latent state does not move.

    A subclass sets `state_prior`, P1(s) of shape `(n_states,)` or `(n_sessions, n_states)`.
    Parameters are uncertain, actions have no features and rewards are any numbers, unless a
    subclass says otherwise.
    """

    order_free: ClassVar[bool] = True
    """Whether the order of a session's rewards does not matter to its posterior: it is exact.

    A posterior whose numbers, and so the draws from it, depend on the order all the same says so
    by `draws_depend_on_order` (see `LinearPosterior`)."""
    state_prior: FloatArray

    @classmethod
    def reward_family(cls) -> type[Learnable] | None:
        """Return the family of rewards by which `fit` learns this model; None: it does not."""
        return None

    @property
    def n_states(self) -> int:
        return int(self.state_prior.shape[-1])

    @property
    def n_sessions(self) -> int | None:
        return None

    @property
    def transition(self) -> None:
        return None

    @property
    def is_certain(self) -> bool:
        return False

    @property
    def n_features(self) -> int | None:
        return None

    @property
    def support(self) -> Support:
        return REALS

    @property
    def reward_bounds(self) -> tuple[float, float] | None:
        """The least and the largest reward; None if rewards are unbounded."""
        return self.support.bounds

    @cached_property
    def log_state_prior(self) -> FloatArray:
        return checks.log_prior(self.state_prior)

    def probability_best(
        self, parameters: Any, context: Context, eligible: BoolArray | None, weights: FloatArray
    ) -> FloatArray | None:
        """Return None: without a formula draws are counted.

        Rewards that share parameters have no one-dimensional form, and the distribution functions
        of most families cost more than counted draws.
        """
        return None

    def check_reward(self, reward: FloatArray) -> None:
        """Raise ValueError if a reward is not in the support."""
        support = self.support
        if support is REALS:
            return
        inside = support.contains(reward)
        if not inside.all():
            session = int(inside.argmin())
            raise ValueError(
                f"{type(self).__name__} takes rewards that are {support}; "
                f"session {session} has {reward[session]:g}"
            )


class ArraysByState(StationaryModel):
    """Base class of models whose prior is arrays with a row for every state.

    The fields named in `prior_fields` are `(n_states, ...)`, or have a session axis first; the
    first of them then has three axes. All other fields but `state_prior` are the same in all
    states.
    """

    prior_fields: ClassVar[tuple[str, ...]]

    @property
    def n_sessions(self) -> int | None:
        first: FloatArray = getattr(self, self.prior_fields[0])
        return len(first) if first.ndim == 3 else None

    def with_state(self, other: Self, probability: float) -> Self:
        mine, others = self._prior_arrays(), other._prior_arrays()
        axis = 0 if self.n_sessions is None else 1
        more = {name: checks.with_one_more(mine[name], others[name], axis) for name in mine}
        return self._replace(more, checks.extended_prior(self.state_prior, probability))

    def _prior_arrays(self) -> dict[str, FloatArray]:
        return {name: getattr(self, name) for name in self.prior_fields}

    def _replace(
        self, arrays: Mapping[str, FloatArray], state_prior: FloatArray | None = None
    ) -> Self:
        """Return the model with other values of its `prior_fields`; a prior of None is uniform."""
        made: Any = self
        values = {field.name: getattr(self, field.name) for field in fields(made)}
        result: Self = type(made)(**(values | dict(arrays) | {"state_prior": state_prior}))
        return result


class ConjugateModel(ArraysByState):
    """Base class of models with conjugate priors: single states of them can be taken."""

    def select(self, session: IntArray | None, state: IntArray) -> Self:
        arrays = self._prior_arrays()
        if session is None:
            return self._replace({name: array[state] for name, array in arrays.items()})
        chosen: Any = state if self.n_sessions is None else (session, state)
        return self._replace({name: array[chosen][:, None] for name, array in arrays.items()})
