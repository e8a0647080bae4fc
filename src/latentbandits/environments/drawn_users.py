"""Users drawn from a model's own prior, for any model: where the model is right about itself."""

from __future__ import annotations

from dataclasses import dataclass
from functools import singledispatch
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from latentbandits.environments.protocol import Round
from latentbandits.models.arms.conjugate import ConjugateArms
from latentbandits.models.arms.gaussian import GaussianArms
from latentbandits.models.checks import FloatArray, IntArray, positive_count
from latentbandits.models.composed.ensemble import Ensemble
from latentbandits.models.composed.markov import Markov
from latentbandits.models.composed.particle_model import ParticleModel
from latentbandits.models.linear.gaussian import LinearGaussian
from latentbandits.models.linear.gaussian_unknown_noise import LinearGaussianUnknownNoise
from latentbandits.models.numerics.rows import rows
from latentbandits.models.protocol import Context, KnownModel
from latentbandits.models.support import BINARY

Contexts: TypeAlias = NDArray[Any]
"""A catalogue, `(n_items, n_features)`, of which each round offers some items; or contexts,
`(n_contexts, ...)` with more than two axes, of which each round shows one."""


class Truth(Protocol):
    """Users with fixed parameters: one per run."""

    def means(self, context: Context) -> FloatArray:
        """Return the true mean reward of every action, `(n_runs, n_actions)`."""

    def rewards(self, means: FloatArray, rng: np.random.Generator) -> FloatArray:
        """Return a reward of every action, `(n_runs, n_actions)`."""


@dataclass(frozen=True, eq=False)
class DrawnUsers:
    """Each run is a user: a state of P1(s), then parameters of that state's prior.

    Args:
        model: any model of the library; with instances for `n` sessions it serves n runs.
        contexts: for models with features: a catalogue or a pool of contexts (see `Contexts`).
        offered: items of the catalogue that a round offers, drawn with replacement.

    >>> from latentbandits import BernoulliArms
    >>> users = DrawnUsers(BernoulliArms([[2.0, 1.0]], 1.0))
    >>> runs = users.start(4, horizon=10, rng=np.random.default_rng(0))
    >>> runs.round(0, np.random.default_rng(0)).rewards.shape
    (4, 2)
    """

    model: KnownModel
    contexts: ArrayLike | None = None
    offered: int = 20

    def __post_init__(self) -> None:
        positive_count("offered", self.offered)
        object.__setattr__(self, "contexts", check_contexts(self.model, self.contexts))

    def start(self, n_runs: int, horizon: int, rng: np.random.Generator) -> DrawnInstances:
        prior = np.exp(self.model.log_state_prior)
        state = (rng.random((n_runs, 1)) >= prior.cumsum(axis=1)[:, :-1]).sum(axis=1)
        if isinstance(self.model, Markov):
            truths = _every_state(self.model.model, n_runs, rng)
            path = _path(self.model.transition, state, horizon, rng)
        else:
            truths, path = (draw_truth(self.model, state, rng),), None
        pool: Any = self.contexts
        return DrawnInstances(self.model, truths, path, pool, self.offered, n_runs)


@dataclass(frozen=True, eq=False)
class DrawnInstances:
    """Runs under way: the parameters of each, and its states if they move."""

    model: KnownModel
    truths: tuple[Truth, ...]  # one, or one for every state
    path: IntArray | None  # (n_runs, horizon): the state of every round, if it moves
    contexts: Contexts | None
    offered: int
    n_runs: int

    def round(self, t: int, rng: np.random.Generator) -> Round:
        context = self.model.check_context(self._context(rng), self.n_runs)
        drawn = []
        for truth in self.truths:
            means = truth.means(context)
            drawn.append((means, truth.rewards(means, rng)))
        if self.path is None:
            means, rewards = drawn[0]
        else:
            run, state = np.arange(self.n_runs), self.path[:, t]
            means, rewards = (np.stack(kind)[state, run] for kind in zip(*drawn, strict=True))
        shown = context if self.contexts is not None else None
        return Round(shown, means, rewards)

    def _context(self, rng: np.random.Generator) -> Context:
        if self.contexts is None:
            return None
        if self.contexts.ndim == 2 and self.model.n_features is not None:
            chosen = rng.integers(len(self.contexts), size=(self.n_runs, self.offered))
        else:
            chosen = rng.integers(len(self.contexts), size=self.n_runs)
        context: FloatArray = self.contexts[chosen]
        return context


def check_contexts(model: KnownModel, contexts: ArrayLike | None) -> Contexts | None:
    """Return a catalogue or a pool of contexts; ValueError if the model cannot use it."""
    if contexts is None:
        if model.n_actions is None:
            raise ValueError(
                "this model's actions have features, so contexts are needed: the features of a "
                f"catalogue, (n_items, n_features={model.n_features}), or contexts to draw from, "
                f"(n_contexts, n_actions, n_features={model.n_features})"
            )
        return None
    pool = np.asarray(contexts)
    if model.n_features is not None:
        try:
            pool = pool.astype(np.float64)
        except (TypeError, ValueError) as error:
            raise ValueError(f"contexts must be an array of numbers: {error}") from None
        if pool.ndim not in (2, 3) or pool.shape[-1] != model.n_features or 0 in pool.shape:
            raise ValueError(
                f"contexts must be of shape (n_items, n_features={model.n_features}) or "
                f"(n_contexts, n_actions, n_features={model.n_features}); got {pool.shape}"
            )
        if not np.isfinite(pool).all():
            raise ValueError("contexts must be finite")
        return pool
    if pool.ndim == 0 or len(pool) == 0:
        raise ValueError(f"contexts must have contexts as its first axis; got {pool.shape}")
    model.check_context(pool[:1], 1)
    return pool


class _Means(NamedTuple):
    """Fixed mean rewards, and rewards around them."""

    values: FloatArray
    model: Any

    def means(self, context: Context) -> FloatArray:
        return self.values

    def rewards(self, means: FloatArray, rng: np.random.Generator) -> FloatArray:
        return _around(self.model, means, rng)


class _Arms(NamedTuple):
    theta: Any
    model: ConjugateArms

    def means(self, context: Context) -> FloatArray:
        return self.model.mean_reward(self.theta)

    def rewards(self, means: FloatArray, rng: np.random.Generator) -> FloatArray:
        return self.model.draw(self.theta, rng)


class _Linear(NamedTuple):
    theta: FloatArray  # (n_runs, n_features)
    noise: FloatArray  # (n_runs,)

    def means(self, context: Context) -> FloatArray:
        assert context is not None
        means: FloatArray = (context @ self.theta[:, :, None])[:, :, 0]
        return means

    def rewards(self, means: FloatArray, rng: np.random.Generator) -> FloatArray:
        return means + self.noise[:, None] * rng.standard_normal(means.shape)


class _Particle(NamedTuple):
    theta: FloatArray  # (n_runs, n_parameters)
    model: ParticleModel

    def means(self, context: Context) -> FloatArray:
        assert context is not None
        return self.model._mean_rewards(self.theta[:, None], context)[:, 0]

    def rewards(self, means: FloatArray, rng: np.random.Generator) -> FloatArray:
        return _around(self.model, means, rng)


class _OfState(NamedTuple):
    """A model whose parameters are certain."""

    model: KnownModel
    state: IntArray

    def means(self, context: Context) -> FloatArray:
        return self.model.expected_rewards(context, self.state)

    def rewards(self, means: FloatArray, rng: np.random.Generator) -> FloatArray:
        return _around(self.model, means, rng)


class _Chosen(NamedTuple):
    """For every run the truth of one member of an ensemble."""

    truths: tuple[Truth, ...]
    member: IntArray

    def means(self, context: Context) -> FloatArray:
        run = np.arange(len(self.member))
        means: FloatArray = np.stack([t.means(context) for t in self.truths])[self.member, run]
        return means

    def rewards(self, means: FloatArray, rng: np.random.Generator) -> FloatArray:
        run = np.arange(len(self.member))
        drawn = np.stack([truth.rewards(means, rng) for truth in self.truths])
        rewards: FloatArray = drawn[self.member, run]
        return rewards


@singledispatch
def draw_truth(model: Any, state: IntArray, rng: np.random.Generator) -> Truth:
    """Draw the parameters of users with these states `(n_runs,)` from the model's prior.

    A model of your own is added by `draw_truth.register`; without that its point estimates count.
    """
    return _OfState(model, state)


@draw_truth.register
def _(model: GaussianArms, state: IntArray, rng: np.random.Generator) -> Truth:
    shape = (-1, model.n_states, model.n_actions)
    means = rows(model.means.reshape(shape), state)
    spread = rows(model.spread.reshape(shape), state)
    return _Means(means + spread * rng.standard_normal(means.shape), model)


@draw_truth.register
def _(model: ConjugateArms, state: IntArray, rng: np.random.Generator) -> Truth:
    return _Arms(model.sample(rows(model.prior_hyperparameters, state), rng), model)


@draw_truth.register
def _(model: LinearGaussian, state: IntArray, rng: np.random.Generator) -> Truth:
    return _Linear(_weights(model, state, rng), np.full(len(state), model.noise))


@draw_truth.register
def _(model: LinearGaussianUnknownNoise, state: IntArray, rng: np.random.Generator) -> Truth:
    scale, count = (
        np.broadcast_to(v.reshape(-1, model.n_states), (len(state), model.n_states))[
            np.arange(len(state)), state
        ]
        for v in (model.noise_scale, model.noise_count)
    )
    noise = scale * np.sqrt(count / rng.chisquare(count))
    unit = LinearGaussian(model.weights, 1.0, model.covariances, model.state_prior)
    centre = rows(model.weights.reshape(-1, *model.weights.shape[-2:]), state)
    offset = _weights(unit, state, rng) - centre
    return _Linear(centre + noise[:, None] * offset, noise)


@draw_truth.register
def _(model: ParticleModel, state: IntArray, rng: np.random.Generator) -> Truth:
    theta = model._draw_prior(len(state), rng)[state, np.arange(len(state))]
    return _Particle(theta, model)


@draw_truth.register
def _(model: Ensemble, state: IntArray, rng: np.random.Generator) -> Truth:
    posterior = model.parameters(len(state))
    chances = model.member_probabilities(posterior)[np.arange(len(state)), state]
    member = (rng.random((len(state), 1)) >= chances.cumsum(axis=1)[:, :-1]).sum(axis=1)
    return _Chosen(tuple(draw_truth(m, state, rng) for m in model.models), member)


def _weights(model: LinearGaussian, state: IntArray, rng: np.random.Generator) -> FloatArray:
    posterior = model.parameters(model.n_sessions or 1)
    mean, factor = (np.asarray(array) for array in posterior)
    normals = rng.standard_normal((len(state), model.n_features, 1))
    theta: FloatArray = rows(mean, state) + (rows(factor, state) @ normals)[:, :, 0]
    return theta


def _around(model: Any, means: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Return rewards of these means: 0 or 1 if the model has no others, else Gaussian."""
    if getattr(model, "support", None) == BINARY:
        return (rng.random(means.shape) < means).astype(np.float64)
    rewards: FloatArray = means + model.noise * rng.standard_normal(means.shape)
    return rewards


def _every_state(model: KnownModel, n_runs: int, rng: np.random.Generator) -> tuple[Truth, ...]:
    """Draw the parameters of every state for each run: a moving state comes back to its own."""
    return tuple(draw_truth(model, np.full(n_runs, s), rng) for s in range(model.n_states))


def _path(
    transition: FloatArray, state: IntArray, horizon: int, rng: np.random.Generator
) -> IntArray:
    """Return the state of every round, `(n_runs, horizon)`."""
    upper = transition.cumsum(axis=1)[:, :-1]
    path = np.empty((len(state), horizon), np.int64)
    for t in range(horizon):
        path[:, t] = state
        state = (rng.random((len(state), 1)) >= upper[state]).sum(axis=1)
    return path
