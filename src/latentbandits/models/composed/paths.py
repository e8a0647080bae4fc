"""Uncertain parameters of a state that moves: a filter over paths of states.

A reward tells about theta of the state that was current in its round, so P(theta) depends on the
path of states. Given a path it is the model's own conjugate posterior. Every path is followed
while there are few: then the filter is exact. Later the weighted paths are thinned without bias
to `n_paths` for every current state. This is a Rao-Blackwellised particle filter: paths are
sampled, parameters are not.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

import latentbandits.models.history as history
from latentbandits.models import checks
from latentbandits.models.checks import BoolArray, FloatArray, IntArray
from latentbandits.models.history import Keys
from latentbandits.models.numerics.laws import Component, join_states
from latentbandits.models.numerics.log_weights import log_sum, normalise, sample
from latentbandits.models.numerics.resampling import thin
from latentbandits.models.protocol import Context, Model, Parameters, Selectable, reward_laws
from latentbandits.models.trees import map_leaves


class Paths(NamedTuple):
    """Weighted paths of states, grouped by their current state, and their parameters.

    The leaves of `learned` are `(n_sessions, n_states, n_paths, n_states, ...)`: for every current
    state and path, the parameters of each state.
    """

    log_weights: FloatArray  # (n_sessions, n_states, n_paths): log P(path, next state | rewards)
    learned: Parameters
    keys: Keys  # (n_sessions,)


class PathFilter:
    """P(theta | s) for the current state s of a Markov chain over the states of `model`."""

    def __init__(
        self, model: Model, transition: FloatArray, n_paths: int, log_state_prior: FloatArray
    ) -> None:
        if not isinstance(model, Selectable):
            raise TypeError(
                f"Markov cannot follow the uncertain parameters of a {type(model).__name__}: "
                "give it a conjugate model, or one whose parameters are certain"
            )
        self._model: Selectable = model
        self._log_state_prior = log_state_prior
        self._n_sessions = model.n_sessions
        self._has_features = model.n_features is not None
        self._shared: tuple[Model, ...] = ()
        if model.n_sessions is None:
            self._shared = tuple(model.select(None, np.array([s])) for s in range(model.n_states))
        self._n_paths = n_paths
        with np.errstate(divide="ignore"):
            self._log_transition = np.log(transition)

    def parameters(self, n_sessions: int) -> Paths:
        n = checks.session_count(n_sessions, self._n_sessions)
        s, h = len(self._log_transition), self._n_paths
        log_weights = np.full((n, s, h), -np.inf)
        log_weights[:, :, 0] = self._log_state_prior
        priors = [self._state_model(state, np.arange(n)).parameters(n) for state in range(s)]

        def repeated(*leaves: FloatArray) -> FloatArray:
            leaf = np.stack(leaves, axis=1)[:, None, None]
            return np.broadcast_to(leaf, (n, s, h, *leaf.shape[3:]))

        return Paths(log_weights, map_leaves(repeated, *priors), history.start(n))

    def condition(
        self, parameters: Paths, context: Context, action: IntArray, reward: FloatArray
    ) -> tuple[FloatArray, Paths]:
        n, s, h = parameters.log_weights.shape
        played, features = action, context
        if context is not None and self._has_features:  # features of the played action only
            played, features = np.zeros(n, np.int64), checks.played(context, action)[:, None]
        wide = None if features is None else np.repeat(features, h, axis=0)
        outcomes = [
            self._state_model(state, np.repeat(np.arange(n), h)).condition(
                _flat(parameters.learned, state), wide, np.repeat(played, h), np.repeat(reward, h)
            )
            for state in range(s)
        ]
        log_density = np.stack([density.reshape(n, h) for density, _ in outcomes], axis=1)
        joint = parameters.log_weights + log_density
        before, after = log_sum(parameters.log_weights), log_sum(joint)
        # The predictive density of an impossible state is undefined; it is set to 1.
        log_predictive = after - np.where(np.isneginf(before), 0.0, before)
        log_predictive[np.isneginf(before)] = 0.0
        keys = history.advance(parameters.keys, action, reward)
        ancestor, log_weights = self._move(joint, keys)
        learned = map_leaves(
            lambda old, *new: _follow(old, np.stack(new, axis=1), ancestor),
            parameters.learned,
            *(map_leaves(lambda leaf: leaf.reshape(n, h, *leaf.shape[1:]), p) for _, p in outcomes),
        )
        return log_predictive, Paths(log_weights, learned, keys)

    def posterior_rewards(
        self, parameters: Paths, context: Context
    ) -> tuple[FloatArray, FloatArray]:
        n, s, h = parameters.log_weights.shape
        wide = None if context is None else np.repeat(context, h, axis=0)
        moments = [
            self._state_model(state, np.repeat(np.arange(n), h)).posterior_rewards(
                _flat(parameters.learned, state), wide
            )
            for state in range(s)
        ]
        means = np.stack([mean.reshape(n, h, -1) for mean, _ in moments], axis=1)
        variances = np.stack([variance.reshape(n, h, -1) for _, variance in moments], axis=1)
        share = np.exp(self._log_shares(parameters))[..., None]
        mean = (share * means).sum(axis=2)
        return mean, (share * (variances + (means - mean[:, :, None]) ** 2)).sum(axis=2)

    def reward_laws(self, parameters: Paths, context: Context) -> tuple[Component, ...]:
        """Return the laws of every path, each with the path's probability given the state."""
        n, s, h = parameters.log_weights.shape
        wide = None if context is None else np.repeat(context, h, axis=0)
        session = np.repeat(np.arange(n), h)
        by_state = [
            reward_laws(self._state_model(state, session), _flat(parameters.learned, state), wide)
            for state in range(s)
        ]
        path_shares = np.exp(self._log_shares(parameters))
        components = []
        for path in range(h):
            rows = np.arange(path, n * h, h)
            for parts in zip(*by_state, strict=True):
                shares = [1.0 if part.share is None else part.share for part in parts]
                share = [np.broadcast_to(one, (n * h, 1))[rows] for one in shares]
                components.append(
                    Component(
                        path_shares[:, :, path] * np.concatenate(share, axis=1),
                        join_states([part.law for part in parts], rows, n * h),
                    )
                )
        return tuple(components)

    def sample_rewards(
        self,
        parameters: Paths,
        context: Context,
        state: IntArray,
        rng: np.random.Generator,
    ) -> FloatArray:
        session = np.broadcast_to(np.arange(len(state))[:, None], state.shape)
        path = sample(self._log_shares(parameters)[session, state], rng)
        taught = map_leaves(lambda leaf: leaf[session, state, path, state], parameters.learned)
        parts: list[tuple[BoolArray, FloatArray]] = []
        for current in np.unique(state):
            chosen = state == current
            rows = session[chosen]
            draws = self._state_model(int(current), rows).sample_rewards(
                map_leaves(lambda leaf, chosen=chosen: leaf[chosen], taught),
                None if context is None else context[rows],
                np.zeros((len(rows), 1), np.int64),
                rng,
            )
            parts.append((chosen, draws[:, 0]))
        rewards = np.empty((*state.shape, parts[0][1].shape[1]))
        for chosen, draws in parts:
            rewards[chosen] = draws
        return rewards

    def probability_best(
        self,
        parameters: Paths,
        context: Context,
        eligible: BoolArray | None,
        weights: FloatArray,
    ) -> None:
        """Return None: a mixture over paths has no formula, so draws are counted."""
        return

    def _state_model(self, state: int, session: IntArray) -> Model:
        """Return the model of one state whose i-th instance is that of `session[i]`."""
        if self._shared:
            return self._shared[state]
        return self._model.select(session, np.full(len(session), state))

    def _log_shares(self, parameters: Paths) -> FloatArray:
        """Return log P(path | s), `(n_sessions, n_states, n_paths)`; equal if s is impossible."""
        equal = np.full(parameters.log_weights.shape[-1], -np.log(self._n_paths))
        return normalise(parameters.log_weights, equal)[1]

    def _move(self, joint: FloatArray, keys: Keys) -> tuple[IntArray, FloatArray]:
        """Choose the paths that reach each state in the next round.

        Returns their ancestors, (n, s, h) indices into (s, h), and their log weights.
        """
        n, s, h = joint.shape
        top = joint.max(axis=(1, 2), keepdims=True)
        joint = joint - np.where(np.isneginf(top), 0.0, top)
        candidates = joint[:, None] + self._log_transition.T[:, :, None]
        uniform = history.uniforms(keys, s)
        ancestor, log_weights = thin(candidates.reshape(n * s, s * h), h, uniform.ravel())
        return ancestor.reshape(n, s, h), log_weights.reshape(n, s, h)


def _flat(learned: Any, state: int) -> Any:
    """Return the parameters of `state` on all paths that are in it, sessions and paths as rows."""
    return map_leaves(
        lambda leaf: leaf[:, state, :, state].reshape(
            leaf.shape[0] * leaf.shape[2], *leaf.shape[4:]
        ),
        learned,
    )


def _follow(old: FloatArray, new: FloatArray, ancestor: IntArray) -> FloatArray:
    """Advance each path's parameters: copy the ancestor's, with those of its state conditioned.

    `old` is (n, s, h, s, ...), `new` (n, s, h, ...) and `ancestor` (n, s, h) indices into (s, h).
    """
    n, s, h = ancestor.shape
    rest = old.shape[4:]
    session = np.arange(n)[:, None]
    before = ancestor.reshape(n, s * h)
    followed = old.reshape(n, s * h, s, *rest)[session, before]
    followed[session, np.arange(s * h), before // h] = new.reshape(n, s * h, *rest)[session, before]
    return followed.reshape(n, s, h, s, *rest)
