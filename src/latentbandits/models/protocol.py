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
from latentbandits.models.numerics.laws import (
    REALS,
    Component,
    Counts,
    Interval,
    Normal,
    OneOf,
    Support,
)
from latentbandits.models.shown import ShownModel

if TYPE_CHECKING:
    from latentbandits.models.arms.conjugate import Learnable
    from latentbandits.models.clicks import ClickModel


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


@runtime_checkable
class WithPrior(Protocol):
    """A model with a prior over its parameters, to condition on rewards."""

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


class Model(KnownModel, WithPrior, Protocol):
    """A model as the mm-policies use it: also a prior over parameters."""

    @property
    def spread_bound(self) -> float:
        """v: an upper bound on the standard deviation of mu(a, x, s, theta) under the prior."""

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


class Prediction(Protocol):
    """The predictive distributions of n rewards given each state."""

    def log_density(self, reward: FloatArray, statistic: FloatArray) -> FloatArray:
        """Return log p(r | s), `(n, n_states)`, for rewards (n,) with these statistics."""

    def moments(self) -> tuple[FloatArray, FloatArray]:
        """Return mean and variance of the mean reward, both `(n, n_states)`."""

    def tails(self, reward: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return P(R <= r | s) and P(R > r | s), both `(n, n_states)`, for rewards (n, 1)."""


@runtime_checkable
class FromTotals(Protocol):
    """A model of arms whose posterior follows from sums over an action's rewards.

    Learning then predicts all rewards of a log at once. The methods with a body are right for
    models to which positions in a list do not matter.
    """

    @property
    def support(self) -> Support:
        """The rewards that the model allows."""

    def statistic(self, reward: FloatArray) -> FloatArray:
        """Return what a posterior sums over rewards, `(n, n_statistics)`."""

    def predicted(self, action: IntArray, totals: FloatArray) -> Prediction:
        """Return the distributions of rewards of actions (n,).

        `totals` (n, n_statistics) sums the statistics of the user's earlier rewards of the action.
        """

    def outcomes(self, reward: FloatArray, position: IntArray | None) -> FloatArray:
        """Return rewards with their positions in a list, counted from 0, as one number each."""
        return reward

    def mean_at(self, mean: FloatArray, position: IntArray | None) -> FloatArray:
        """Return the mean rewards (n,) of actions that are shown at these positions."""
        return mean

    def atoms(self, reward: FloatArray) -> BoolArray:
        """Mark the rewards that have a probability, and not a density."""
        support = self.support
        if isinstance(support, Interval):
            return np.isin(reward, support.atoms)
        return np.full(reward.shape, isinstance(support, (Counts, OneOf)))


@runtime_checkable
class FromUserSums(Protocol):
    """A linear model whose posterior follows from sums over a user's rounds."""

    def condition_on_sums(self, sums: Any) -> tuple[FloatArray, Any]:
        """Return the log marginal likelihood of each user's rewards `(n, S)`, and the posterior.

        `sums` are `models.linear.gaussian.UserSums`.
        """


@runtime_checkable
class Extendable(Protocol):
    """A model that can get a state "none of these": `mmTS(model, catch_all=True)` needs it."""

    def vague(self) -> Model:
        """Return a model of one state, whose prior is as wide as all states and actions."""

    def with_state(self, other: Any, probability: float) -> Model:
        """Return this model with the state of `other` added, of the given prior probability.

        `other` is a model of the same class with one state.
        """


@runtime_checkable
class Growable(Protocol):
    """A model of arms that can get more actions."""

    def with_actions(self, means: FloatArray, variances: FloatArray) -> Any:
        """Return this model with m more actions at the end; both arguments `(n_states, m)`."""


# What a model may say of itself.

if TYPE_CHECKING:
    default = property
else:

    class default:
        """A property that a field, an attribute or a method of the same name replaces."""

        def __init__(self, compute):
            self.compute, self.__doc__ = compute, compute.__doc__

        def __get__(self, model, kind=None):
            return self if model is None else self.compute(model)


class OptionalMembers:
    """The members that a model may have beside those of `KnownModel` and `Model`.

    Every member has a default. The models of the library inherit it from here, through
    `StationaryModel` or `Wrapping`. A model of your own may define any member, and need not
    inherit: whoever takes a model reads `with_defaults(model)`.
    """

    # Its rewards.

    @default
    def support(self) -> Support:
        """The rewards that the model allows."""
        return REALS

    @default
    def reward_bounds(self) -> tuple[float, float] | None:
        """The least and the largest reward; None if rewards are unbounded."""
        return self.support.bounds

    @default
    def has_normal_noise(self) -> bool:
        """Whether a reward is its mean plus a normal error of the known deviation `noise`."""
        return False

    @default
    def click_model(self) -> ClickModel | None:
        """The click model of lists that the model was learned with; None: no lists."""
        return None

    @default
    def learns_unseen(self) -> bool:
        """Whether it learns from positions that the user may not have looked at."""
        return self.is_certain

    def at_looks(
        self, reward: FloatArray, looked: FloatArray
    ) -> tuple[FloatArray, FloatArray | None]:
        """Return rewards as `condition` takes them, and what it does not know of `looked`.

        `looked` (n,) is the probability that the action was looked at, None where `condition`
        knows it from the reward.
        """
        return reward, looked

    # How its actions and its parameters are described.

    @default
    def n_features(self) -> int | None:
        """The number of features of an action; None if actions have none (arms)."""
        return None

    @default
    def covariances(self) -> FloatArray | None:
        """The covariances of the weights in each state; None if no weights are uncertain."""
        return None

    @default
    def covariance_units(self) -> FloatArray:
        """The variance that one unit of `covariances` is in each state, `(n_states,)`."""
        model: Any = self
        return np.ones(model.n_states)

    @default
    def offset(self) -> bool:
        """Whether the last feature is added to the log-odds of a reward as it is."""
        return False

    @default
    def inner_models(self) -> tuple[KnownModel, ...]:
        """The models that it is made of."""
        return ()

    # Its state.

    @default
    def at_rest(self) -> Any:
        """The model with a state that stays where it is: within a list, time stands still."""
        return self

    @default
    def returning(self) -> FloatArray | None:
        """P(next state | state) across a pause, `(n_states, n_states)`; None: as without one."""
        return None

    @default
    def session_gap(self) -> float | None:
        """Seconds between two decisions above which a user returns after a pause; None: never."""
        return None

    # Its posterior.

    @default
    def is_certain(self) -> bool:
        """Whether the parameters are known, so that a session can only learn its state."""
        return False

    @default
    def order_free(self) -> bool | None:
        """Whether the order of rewards does not matter where the state stands still.

        It matters to particles. None: unknown. A posterior whose numbers, and so the draws from
        it, depend on the order all the same says so itself (see `LinearPosterior`).
        """
        return None

    @default
    def n_particles(self) -> int | None:
        """The number of particles of each state's posterior; None: posteriors are formulas."""
        return None

    @property
    def is_sampled(self) -> bool:
        """Whether posteriors are particles, which are many times as slow as formulas."""
        return self.n_particles is not None

    @default
    def without_particles(self) -> Any:
        """The model with approximate posteriors that are quick, where its own are particles.

        Learning scores thousands of users by it.
        """
        return self

    def average_rewards(self, weights: FloatArray, parameters: Any, context: Context) -> FloatArray:
        """Return sum_s w_s E[mu(a, x, s, theta) | s], `(n, n_actions)`, for weights (n, S).

        A model that can do so without variances overrides it.
        """
        model: Any = self
        mean: FloatArray = model.posterior_rewards(parameters, context)[0]
        return (weights[:, None, :] @ mean)[:, 0]

    def reward_laws(self, parameters: Any, context: Context) -> tuple[Component, ...]:
        """Return P(mu(a, x, s, theta) | s) as a mixture of laws `(1 or n, n_states, n_actions)`.

        Bayes-UCB reads it. By default it is a normal with the posterior's moments.
        """
        model: Any = self
        mean, variance = model.posterior_rewards(parameters, context)
        return (Component(None, Normal(mean, np.sqrt(variance))),)

    def reward_tails(
        self, parameters: Any, context: Context, action: IntArray, reward: FloatArray
    ) -> tuple[FloatArray, BoolArray] | None:
        """Return P(R <= reward | s), `(n, n_states)`, and which rewards have a probability.

        Parameters of None are those of sessions without rewards. The answer None says that R is
        about normal, with the moments of `posterior_rewards` and the deviation `noise`.
        """
        return None

    # Users that are drawn from it.

    def point_theta(self, state: IntArray) -> Any:
        """Return the parameters that `log_likelihood` takes for users in `state` (n,).

        None: it takes no such parameters.
        """
        return None

    def regressed(self, state: IntArray, theta: Any) -> Any:
        """Return drawn parameters as they are if the model's own are estimates with errors.

        Such estimates vary more than the true parameters. Without a formula nothing is changed.
        """
        return theta

    # The transform f of its rewards: `TransformedRewards` is a model of f(r).

    @default
    def untransformed(self) -> Any:
        """The model of f(r) that it wraps; the model itself if f(r) = r."""
        return self

    def in_units(self, reward: FloatArray) -> FloatArray:
        """Return f(r), of the nearest reward for which it is finite."""
        return reward

    def log_slope(self, reward: FloatArray) -> FloatArray | float:
        """Return log f'(r), which turns a log density of f(r) into one of r."""
        return 0.0

    def mean_of_moments(
        self, mean: FloatArray, variance: FloatArray, action: IntArray
    ) -> FloatArray:
        """Return the mean of r for moments `(n, n_states)` of the mean of f(r) of each action."""
        return mean


class _Adopted(OptionalMembers):
    """A model of a class that is no `OptionalMembers`, with the defaults of what it lacks."""

    def __init__(self, model: Any) -> None:
        self._model = model
        members = [name for name in vars(OptionalMembers) if not name.startswith("_")]
        vars(self).update({n: getattr(model, n) for n in members if hasattr(model, n)})
        for itself in ("at_rest", "without_particles", "untransformed"):
            vars(self).setdefault(itself, model)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)


def with_defaults(model: Any) -> OptionalMembers:
    """Return the model with all optional members: those that it lacks have their defaults.

    None, the model of a policy that has none, has the defaults alone.

    >>> from types import SimpleNamespace
    >>> with_defaults(SimpleNamespace(session_gap=60.0)).session_gap
    60.0
    >>> with_defaults(SimpleNamespace()).session_gap is None
    True
    """
    return model if isinstance(model, OptionalMembers) else _Adopted(model)


def is_order_free(model: KnownModel) -> bool:
    """Tell whether the order of a session's rewards does not matter to its posterior.

    It matters where the state moves. A model that does not say is taken as exact.
    """
    return model.transition is None and with_defaults(model).order_free is not False


# Properties that most models share.


class StationaryModel(OptionalMembers, ShownModel):
    """Base class of models whose latent state does not move.

    A subclass sets `state_prior`, P1(s) of shape `(n_states,)` or `(n_sessions, n_states)`.
    Parameters are uncertain, unless a subclass says otherwise.
    """

    state_prior: FloatArray

    @default
    def order_free(self) -> bool:
        return True

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
