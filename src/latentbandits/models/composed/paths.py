"""Uncertain parameters of a state that moves: a filter over paths of states.

A reward teaches theta of the state that was current when it came, so what is known of theta
depends on the path of states. Given a path it is the model's own conjugate posterior. Every path
is followed as long as there are few: then the filter is exact. Later the weighted paths are
thinned without bias, `n_paths` for every state that may be current (a Rao-Blackwellised particle
filter: paths are sampled, parameters never are).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from latentbandits.models import history
from latentbandits.models.checks import BoolArray, FloatArray, IntArray, session_count
from latentbandits.models.history import Keys
from latentbandits.models.numerics.laws import Component
from latentbandits.models.numerics.resampling import thin
from latentbandits.models.protocol import Context, Model, Parameters, Selectable, reward_laws
from latentbandits.models.trees import map_leaves


class Paths(NamedTuple):
    """Paths of states by the state that they have reached, and what each has learned.

    `learned` holds for every path the parameters of each of its states: `(n_sessions, n_states,
    n_paths, n_states, ...)`, where the last n_states are those whose parameters they are.
    """

    log_weights: FloatArray  # (n_sessions, n_states, n_paths): log P(path, next state | rewards)
    learned: Parameters
    keys: Keys  # (n_sessions,)


class PathFilter:
    """P(theta | s) for the current state s of a Markov chain, from a model that stands still."""

    def __init__(self, model: Model, transition: FloatArray, n_paths: int) -> None:
        if not isinstance(model, Selectable):
            raise TypeError(
                f"Markov cannot follow the uncertain parameters of a {type(model).__name__}: "
                "give it a conjugate model, or one whose parameters are certain"
            )
        self.model = model
        self.n_paths = n_paths
        with np.errstate(divide="ignore"):
            self._log_transition = np.log(transition)
        self._states = model.n_states
        self._last: tuple[int, Model] | None = None

    def parameters(self, n_sessions: int) -> Paths:
        n, s, h = session_count(n_sessions, self.model.n_sessions), self._states, self.n_paths
        log_weights = np.full((n, s, h), -np.inf)
        log_weights[:, :, 0] = self.model.log_state_prior
        fresh = self._one(n).parameters(n * s)

        def spread(leaf: FloatArray) -> FloatArray:
            rest = leaf.shape[1:]
            return np.broadcast_to(leaf.reshape(n, 1, 1, s, *rest), (n, s, h, s, *rest))

        return Paths(log_weights, map_leaves(spread, fresh), history.start(n))

    def condition(
        self, parameters: Paths, context: Context, action: IntArray, reward: FloatArray
    ) -> tuple[FloatArray, Paths]:
        n, s, h = parameters.log_weights.shape
        one = self._one(n)
        if context is not None:  # only the features of the action that was played
            context = np.repeat(context[np.arange(n), action][:, None], s, axis=0)
            played = np.zeros(n * s, np.int64)
        else:
            played = np.repeat(action, s)
        rewards = np.repeat(reward, s)
        current = [
            one.condition(self._current(parameters, path), context, played, rewards)
            for path in range(h)
        ]
        log_density = np.stack([density.reshape(n, s) for density, _ in current], axis=-1)
        joint = parameters.log_weights + log_density
        log_predictive = _log_sum(joint) - _log_sum(parameters.log_weights)
        log_predictive[np.isnan(log_predictive)] = 0.0  # a state that cannot be: nothing to say
        keys = history.advance(parameters.keys, action, reward)
        ancestor, log_weights = self._move(joint, keys)
        learned = map_leaves(
            lambda old, *new: _follow(old, np.stack(new, axis=1), ancestor, (n, s, h)),
            parameters.learned,
            *(taught for _, taught in current),
        )
        return log_predictive, Paths(log_weights, learned, keys)

    def posterior_rewards(
        self, parameters: Paths, context: Context
    ) -> tuple[FloatArray, FloatArray]:
        n, s, h = parameters.log_weights.shape
        shares = self._shares(parameters)
        wide = None if context is None else np.repeat(context, s, axis=0)
        moments = [
            self._one(n).posterior_rewards(self._current(parameters, path), wide)
            for path in range(h)
        ]
        means = np.stack([mean.reshape(n, s, -1) for mean, _ in moments], axis=-1)
        variances = np.stack([variance.reshape(n, s, -1) for _, variance in moments], axis=-1)
        mean = (shares[:, :, None] * means).sum(axis=-1)
        variance = shares[:, :, None] * (variances + (means - mean[..., None]) ** 2)
        return mean, variance.sum(axis=-1)

    def reward_laws(self, parameters: Paths, context: Context) -> tuple[Component, ...]:
        """Return the laws of every path, each with the path's probability given the state."""
        n, s, h = parameters.log_weights.shape
        shares = self._shares(parameters)
        wide = None if context is None else np.repeat(context, s, axis=0)
        return tuple(
            Component(
                shares[:, :, path] if share is None else shares[:, :, path] * share.reshape(n, s),
                law.reshaped(n, s),
            )
            for path in range(h)
            for share, law in reward_laws(self._one(n), self._current(parameters, path), wide)
        )

    def sample_rewards(
        self,
        parameters: Paths,
        context: Context,
        state: IntArray,
        rng: np.random.Generator,
    ) -> FloatArray:
        n, s, _ = parameters.log_weights.shape
        session = np.arange(n)
        wide = None if context is None else np.repeat(context, s, axis=0)
        upper = self._shares(parameters).cumsum(axis=-1)
        draws = []
        for column in state.T:
            path = (rng.random((n, s, 1)) >= upper[:, :, :-1]).sum(axis=-1)
            taught = self._current(parameters, path.ravel())
            means = self._one(n).sample_rewards(taught, wide, np.zeros((n * s, 1), np.int64), rng)
            draws.append(means.reshape(n, s, -1)[session, column])
        return np.stack(draws, axis=1)

    def probability_best(
        self,
        parameters: Paths,
        context: Context,
        eligible: BoolArray | None,
        weights: FloatArray,
    ) -> None:
        """A mixture over paths: its draws are counted."""
        return

    def _one(self, n_sessions: int) -> Model:
        """Sessions (i, s), each with the one state s of session i; the last one is kept."""
        if self._last is None or self._last[0] != n_sessions:
            assert isinstance(self.model, Selectable)
            session = np.repeat(np.arange(n_sessions), self._states)
            state = np.tile(np.arange(self._states), n_sessions)
            self._last = n_sessions, self.model.select(session, state)
        return self._last[1]

    def _current(self, parameters: Paths, path: int | IntArray) -> Any:
        """The parameters of the state that a path has reached, for sessions (i, s)."""
        n, s, _ = parameters.log_weights.shape
        session, state = np.repeat(np.arange(n), s), np.tile(np.arange(s), n)
        return map_leaves(lambda leaf: leaf[session, state, path, state], parameters.learned)

    def _shares(self, parameters: Paths) -> FloatArray:
        """P(path | s), `(n_sessions, n_states, n_paths)`; any path where s cannot be."""
        top = parameters.log_weights.max(axis=-1, keepdims=True)
        weights = np.exp(parameters.log_weights - np.where(np.isneginf(top), 0.0, top))
        total = weights.sum(axis=-1, keepdims=True)
        equal = np.full_like(weights, 1 / weights.shape[-1])
        shares: FloatArray = np.divide(weights, total, out=equal, where=total > 0)
        return shares

    def _move(self, joint: FloatArray, keys: Keys) -> tuple[IntArray, FloatArray]:
        """The paths that reach each state in the next round: (n, s, h) indices into (s, h)."""
        n, s, h = joint.shape
        joint = joint - joint.max(axis=(1, 2), keepdims=True)
        candidates = joint[:, None] + self._log_transition.T[:, :, None]
        uniform = history.uniforms(keys, s)
        ancestor, log_weights = thin(candidates.reshape(n * s, s * h), h, uniform.ravel())
        return ancestor.reshape(n, s, h), log_weights.reshape(n, s, h)


def _follow(
    old: FloatArray, new: FloatArray, ancestor: IntArray, shape: tuple[int, int, int]
) -> FloatArray:
    """What the next round's paths know: their ancestors', with the state then current updated.

    `old` is (n, s, h, s, ...), `new` (n * s, h, ...) for the current states.
    """
    n, s, h = shape
    rest = old.shape[4:]
    session = np.arange(n)[:, None]
    before = ancestor.reshape(n, s * h)
    followed = old.reshape(n, s * h, s, *rest)[session, before]
    was = before // h
    place = np.arange(s * h)[None, :]
    followed[session, place, was] = new.reshape(n, s * h, *rest)[session, before]
    return followed.reshape(n, s, h, s, *rest)


def _log_sum(log_values: FloatArray) -> FloatArray:
    top = log_values.max(axis=-1, keepdims=True)
    safe = np.where(np.isneginf(top), 0.0, top)
    with np.errstate(divide="ignore", invalid="ignore"):
        total: FloatArray = np.log(np.exp(log_values - safe).sum(axis=-1)) + safe[..., 0]
    return total
