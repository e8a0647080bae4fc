"""Any function as a model: a mean reward for every state, and how rewards spread around it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from latentbandits.models import checks
from latentbandits.models.checks import FloatArray, IntArray
from latentbandits.models.composed.known import CertainModel, OneState
from latentbandits.models.numerics.arrays import log_normal_density
from latentbandits.models.numerics.laws import Summary
from latentbandits.models.protocol import Context, StationaryModel

Mean = Callable[[Any, IntArray], ArrayLike]
"""mean(context, action): `(n, n_states, m)` for `action` (n, m) and the context of n sessions."""

LogDensity = Callable[[Any, IntArray, FloatArray], ArrayLike]
"""log_density(context, action, reward): `(n, n_states)` for `action` and `reward` (n,)."""


@dataclass(frozen=True, eq=False, init=False, repr=False)
class FunctionModel(CertainModel, StationaryModel):
    """mu_hat(a, x, s) = mean(x, a)[s], for any callable and a context of any shape.

    `mean(context, action)` gets the context as it came (sessions first) and actions `(n, m)`, and
    returns `(n, n_states, m)`. Rewards are N(mean, noise^2), or of `log_density(context, action,
    reward)`, which returns `(n, n_states)`; then `noise`, their sub-Gaussian scale, is needed by
    mUCB and mmUCB only. Without `n_actions` the second axis of the context counts the actions.
    A `context_shape`, the shape of one session's context, is checked; None takes any.

    Args:
        mean: mean rewards of every state, for a context and actions.
        noise: standard deviation, or sub-Gaussian scale, of a reward.
        log_density: log density of rewards under every state; None is normal.
        n_states: number of latent states.
        n_actions: number of actions; None if the context counts them.
        context_shape: shape of one session's context; None takes any.
        state_prior: P1(s), `(n_states,)`; None is uniform.

    >>> model = FunctionModel(
    ...     lambda x, action: np.stack([x[:, None] * action, x[:, None] - action], axis=1),
    ...     noise=0.5, n_states=2, n_actions=3, context_shape=())
    >>> model.expected_rewards(np.array([2.0]))[0]
    array([[0., 2., 4.],
           [2., 1., 0.]])
    """

    summary: ClassVar[Summary] = Summary(
        "any, by a function of yours",
        "FunctionModel(mean, noise or log_density, n_states=...)",
        "none: taken as true",
        "any callable",
    )

    mean: Mean
    log_density: LogDensity | None
    context_shape: tuple[int, ...] | None
    state_prior: FloatArray
    _noise: float | None
    _n_states: int
    _n_actions: int | None

    def __init__(
        self,
        mean: Mean,
        noise: float | None = None,
        log_density: LogDensity | None = None,
        *,
        n_states: int,
        n_actions: int | None = None,
        context_shape: tuple[int, ...] | None = None,
        state_prior: ArrayLike | None = None,
    ) -> None:
        if noise is None and log_density is None:
            raise ValueError(
                "FunctionModel needs noise (rewards are Gaussian around the mean) or log_density"
            )
        states = np.empty((checks.positive_count("n_states", n_states), 1))
        checks.set_fields(
            self,
            mean=mean,
            log_density=log_density,
            context_shape=context_shape,
            state_prior=checks.state_prior(state_prior, states),
            _noise=None if noise is None else checks.positive_number("noise", noise),
            _n_states=n_states,
            _n_actions=None if n_actions is None else checks.positive_count("n_actions", n_actions),
        )

    @property
    def n_actions(self) -> int | None:
        return self._n_actions

    @property
    def n_features(self) -> int | None:
        """The last axis of a `context_shape` of two axes, (n_actions, n_features); else None."""
        shape = self.context_shape
        return shape[1] if shape is not None and len(shape) == 2 else None

    @property
    def noise(self) -> float:
        if self._noise is None:
            raise ValueError(
                "this FunctionModel was made from log_density alone: mUCB and mmUCB also need "
                "the scale of rewards, FunctionModel(mean, noise, log_density, ...)"
            )
        return self._noise

    @property
    def has_normal_noise(self) -> bool:
        return self.log_density is None

    def check_context(self, context: ArrayLike | None, n_sessions: int) -> Context:
        if context is None:
            if self.context_shape is not None or self._n_actions is None:
                raise ValueError(f"this FunctionModel needs a context of {n_sessions} sessions")
            return None
        array = np.asarray(context)
        if array.ndim == 0 or len(array) != n_sessions:
            raise ValueError(
                f"context must have n_sessions={n_sessions} as its first axis; got {array.shape}"
            )
        if self.context_shape is not None and array.shape[1:] != self.context_shape:
            raise ValueError(
                f"context must be of shape (n_sessions={n_sessions}, "
                f"{', '.join(map(str, self.context_shape))}); got {array.shape}"
            )
        if self._n_actions is None and array.ndim < 2:
            raise ValueError(
                "without n_actions, the second axis of the context counts the actions; "
                f"got the shape {array.shape}"
            )
        return array

    def expected_rewards(self, context: Context, state: IntArray | None = None) -> FloatArray:
        n = 1 if context is None else len(context)
        if context is None and state is not None:
            n = len(state)
        n_actions = self._n_actions if self._n_actions is not None else np.asarray(context).shape[1]
        action = np.broadcast_to(np.arange(n_actions), (n, n_actions))
        means = self._means(context, action)
        return means if state is None else means[np.arange(n), state]

    def log_likelihood(self, context: Context, action: IntArray, reward: FloatArray) -> FloatArray:
        if self.log_density is None:
            means = self._means(context, action[:, None])[:, :, 0]
            return log_normal_density(reward[:, None] - means, self.noise**2)
        density = np.asarray(self.log_density(context, action, reward), np.float64)
        shape = (len(action), self.n_states)
        _check_shape("log_density(context, action, reward)", density, shape)
        wrong = np.isnan(density) | (density == np.inf)
        if wrong.any():
            session, state = (int(i) for i in np.argwhere(wrong)[0])
            raise ValueError(
                f"log_density returned {density[session, state]} for session {session}, "
                f"action {action[session]}, state {state}, reward {reward[session]:g}"
            )
        return density

    def point_theta(self, state: IntArray) -> IntArray:
        """Return the parameters of users in `state` (n,): the states themselves."""
        return state

    def draw_theta(self, state: IntArray, rng: np.random.Generator) -> IntArray:
        return state

    def mean_rewards(self, theta: IntArray, context: Context) -> FloatArray:
        return self.expected_rewards(context, theta)

    def draw_rewards(
        self, theta: IntArray, context: Context, rng: np.random.Generator
    ) -> FloatArray:
        if self.log_density is not None:
            raise TypeError("a FunctionModel with a log_density has no sampler of rewards")
        means = self.mean_rewards(theta, context)
        return means + self.noise * rng.standard_normal(means.shape)

    def log_reward_density(
        self, theta: IntArray, context: Context, action: IntArray, reward: FloatArray
    ) -> FloatArray:
        densities = self.log_likelihood(context, action, reward)
        return densities[np.arange(len(theta)), theta]

    def select(self, session: IntArray | None, state: IntArray) -> OneState:
        if session is not None:
            raise TypeError("a FunctionModel is one instance for all sessions")
        return OneState(self, int(state[0]))

    def _means(self, context: Context, action: IntArray) -> FloatArray:
        n, m = action.shape
        means = np.asarray(self.mean(context, action), np.float64)
        _check_shape("mean(context, action)", means, (n, self.n_states, m))
        if not np.isfinite(means).all():
            session, state, place = (int(i) for i in np.argwhere(~np.isfinite(means))[0])
            raise ValueError(
                f"mean(context, action) returned {means[session, state, place]} for session "
                f"{session}, action {action[session, place]}, state {state}"
            )
        return means


def _check_shape(what: str, array: FloatArray, shape: tuple[int, ...]) -> None:
    if array.shape != shape:
        names = ("n_sessions", "n_states", "n_actions")
        expected = ", ".join(f"{name}={size}" for name, size in zip(names, shape, strict=False))
        raise ValueError(f"{what} must return an array ({expected}); it returned {array.shape}")
