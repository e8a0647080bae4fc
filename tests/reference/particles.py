"""A particle model of any prior and likelihood: it checks `ParticleModel` beside exact answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from latentbandits.lazy import cached_property
from latentbandits.models import checks
from latentbandits.models.checks import FloatArray, IntArray
from latentbandits.models.composed.particle_model import ParticleModel
from latentbandits.models.protocol import Context

PriorSampler = Callable[[np.random.Generator, int], ArrayLike]
"""prior_sampler(rng, n): n draws of theta for every state, `(n_states, n, n_parameters)`."""

LogLikelihood = Callable[[FloatArray, FloatArray, FloatArray], ArrayLike]
"""log_likelihood(theta, features, reward): `(n, m, t)` for theta `(n, m, n_parameters)`, the
features `(n, t, n_features)` of the actions that were played and their rewards `(n, t)`."""

MeanReward = Callable[[FloatArray, FloatArray], ArrayLike]
"""mean(theta, features): `(n, m, k)` for theta `(n, m, n_parameters)`, features `(n, k, d)`."""

LogPrior = Callable[[FloatArray, IntArray], ArrayLike]
"""log_prior(theta, state): `(k, m)` for theta `(k, m, n_parameters)` and state `(k,)`, up to a
constant of the state."""


@dataclass(frozen=True, eq=False, init=False)
class Particles(ParticleModel):
    """theta_s from `prior_sampler`, rewards of `log_likelihood`, mean rewards of `mean`.

    All are functions on arrays (see the aliases above for their shapes). With `n_actions` there
    is no context, and the features of an action are its row of the identity; without it the context
    has `n_features` features, any number if that is None. Without `log_prior` particles cannot
    move. `noise`, the sub-Gaussian scale of
    rewards, is needed by mUCB and mmUCB only.

    Args:
        prior_sampler: draws of theta from the prior of every state.
        log_likelihood: log density of a reward given theta and features.
        n_particles: particles of each session and state.
        mean: mean reward given theta and features.
        log_prior: log prior density of theta, up to a constant; None if unknown.
        n_actions: number of actions of a model without context.
        n_features: number of features of a context; None takes any.
        noise: sub-Gaussian scale of a reward; None if unknown.
        n_moves: Markov chain steps after a resampling.
        seed: of the particles of the prior and of their moves.
        state_prior: P1(s), `(n_states,)`; None is uniform.

    >>> def prior_sampler(rng, n):  # one parameter per action, in two states
    ...     return np.array([[[2.0, -2.0]], [[-2.0, 2.0]]]) + rng.standard_normal((2, n, 2))
    >>> def mean(theta, x):
    ...     return theta @ x.swapaxes(1, 2)
    >>> def log_likelihood(theta, x, reward):
    ...     return -np.abs(reward[:, None] - mean(theta, x))  # Laplace, up to a constant
    >>> model = Particles(prior_sampler, log_likelihood, 64, mean=mean, n_actions=2)
    >>> model.n_states
    2
    """

    prior_sampler: PriorSampler
    log_likelihood_function: LogLikelihood
    mean: MeanReward
    log_prior: LogPrior | None
    n_particles: int
    n_moves: int
    seed: int
    state_prior: FloatArray
    _n_actions: int | None
    _n_features: int | None
    _noise: float | None

    def __init__(
        self,
        prior_sampler: PriorSampler,
        log_likelihood: LogLikelihood,
        n_particles: int = 256,
        *,
        mean: MeanReward,
        log_prior: LogPrior | None = None,
        n_actions: int | None = None,
        n_features: int | None = None,
        noise: float | None = None,
        n_moves: int = 1,
        seed: int = 0,
        state_prior: ArrayLike | None = None,
    ) -> None:
        values: dict[str, Any] = {
            "prior_sampler": prior_sampler,
            "log_likelihood_function": log_likelihood,
            "mean": mean,
            "log_prior": log_prior,
            "n_particles": checks.positive_count("n_particles", n_particles),
            "n_moves": checks.positive_count("n_moves", n_moves),
            "seed": int(seed),
            "_n_actions": None
            if n_actions is None
            else checks.positive_count("n_actions", n_actions),
            "_n_features": None
            if n_features is None
            else checks.positive_count("n_features", n_features),
            "_noise": None if noise is None else checks.positive_number("noise", noise),
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)
        trial = self._draws(2, np.random.default_rng(self.seed))
        checks.set_fields(
            self, state_prior=checks.state_prior(state_prior, np.empty((len(trial), 1)))
        )

    @property
    def n_actions(self) -> int | None:
        return self._n_actions

    @property
    def n_features(self) -> int | None:
        return self._n_features

    @property
    def noise(self) -> float:
        if self._noise is None:
            raise ValueError("mUCB and mmUCB need the scale of rewards: Particles(..., noise=...)")
        return self._noise

    @cached_property
    def spread_bound(self) -> float:
        """The largest standard deviation over prior particles, of a model without context."""
        if self._n_actions is None:
            raise ValueError(
                "how far rewards may be off depends on the features: mmUCB(model, slack=...)"
            )
        features = self._features(None, self.n_states)
        return float(self._mean_rewards(self._prior_particles, features).std(axis=1).max())

    def check_context(self, context: ArrayLike | None, n_sessions: int) -> Context:
        if self._n_actions is not None:
            checks.no_context("Particles with n_actions", context)
            return None
        n_features = self.n_features
        if n_features is None:  # any number of features is valid
            shape = np.shape(context) if context is not None else ()
            n_features = shape[2] if len(shape) == 3 else 1
        return checks.features(context, n_sessions, n_features)

    def _features(self, context: Context, n_sessions: int) -> FloatArray:
        if self._n_actions is None:
            return checks.required(context)
        return np.broadcast_to(np.eye(self._n_actions), (n_sessions, *[self._n_actions] * 2))

    @cached_property
    def _point(self) -> FloatArray:
        point: FloatArray = self._prior_particles.mean(axis=1)
        return point

    def _draws(self, n: int, rng: np.random.Generator) -> FloatArray:
        theta = np.asarray(self.prior_sampler(rng, n), np.float64)
        if theta.ndim != 3 or theta.shape[1] != n or not np.isfinite(theta).all():
            raise ValueError(
                f"prior_sampler(rng, {n}) must return finite draws (n_states, {n}, n_parameters); "
                f"it returned an array of shape {theta.shape}"
            )
        return theta

    def _draw_prior(self, n: int, rng: np.random.Generator) -> FloatArray:
        return self._draws(n, rng)

    def draw_rewards(
        self, theta: FloatArray, context: Context, rng: np.random.Generator
    ) -> FloatArray:
        raise TypeError("Particles have no sampler of rewards")

    def _log_prior(self, theta: FloatArray, state: IntArray) -> FloatArray:
        assert self.log_prior is not None, "moves need a prior density"
        density = np.asarray(self.log_prior(theta, state), np.float64)
        return _shaped("log_prior(theta, state)", density, theta.shape[:2])

    def _log_density(
        self, theta: FloatArray, features: FloatArray, reward: FloatArray
    ) -> FloatArray:
        density = np.array(self.log_likelihood_function(theta, features, reward), np.float64)
        shape = (*theta.shape[:2], reward.shape[1])
        return _shaped("log_likelihood(theta, features, reward)", density, shape)

    def _mean_rewards(self, theta: FloatArray, features: FloatArray) -> FloatArray:
        rewards = np.asarray(self.mean(theta, features), np.float64)
        return _shaped("mean(theta, features)", rewards, (*theta.shape[:2], features.shape[1]))


def _shaped(what: str, array: FloatArray, shape: tuple[int, ...]) -> FloatArray:
    if array.shape != shape:
        raise ValueError(f"{what} must return an array of shape {shape}; it returned {array.shape}")
    return array
