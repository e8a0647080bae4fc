"""A latent state that moves between rounds (the paper's conclusion), for any model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self, cast

import numpy as np
from numpy.typing import ArrayLike

import latentbandits.models.history as history
from latentbandits.lazy import cached_property
from latentbandits.models import checks
from latentbandits.models.checks import BoolArray, FloatArray, IntArray
from latentbandits.models.composed.known import Known, Wrapping
from latentbandits.models.numerics.arrays import Keys, log_sum, map_leaves, normalise, sample, thin
from latentbandits.models.numerics.laws import Component, Summary, join_states
from latentbandits.models.protocol import (
    Context,
    KnownModel,
    Model,
    Parameters,
    Selectable,
    with_defaults,
)


@dataclass(frozen=True, eq=False, init=False, repr=False)
class Markov(Wrapping):
    """A model whose state moves after every round: P(s' | s) = transition[s, s'].

    The belief is the filter of a hidden Markov model: condition on the reward, then predict the
    next round's state. Uncertain parameters do not change while the state moves. They are followed
    along `n_paths` paths of states for each current state, which is exact until there are more
    paths.

    Args:
        model: what the rewards of each state are.
        transition: P(s' | s), `(n_states, n_states)`; rows sum to one.
        n_paths: paths of states per current state, where parameters are uncertain; 0: the mean
            rewards of `model` are taken as known, and only the state is learned.
        state_prior: P1(s) of the first round, `(n_states,)` or `(n_sessions, n_states)`; None is
            the prior of `model`.
        returning: P(s' | s) across a pause, `(n_states, n_states)`; None: a pause changes nothing.
            The state of a user who returns moves by it once more, before the first decision.
        session_gap: seconds between two decisions above which a user returns after a pause.

    >>> from latentbandits import GaussianArms, mTS
    >>> model = Markov(GaussianArms([[1.0], [0.0]], noise=0.1), [[0.9, 0.1], [0.3, 0.7]])
    >>> policy = mTS(model)
    >>> decision = policy.decide(policy.init(), None, np.random.default_rng(0))
    >>> policy.state_probabilities(policy.update(policy.init(), None, decision, [1.0])).round(3)
    array([[0.9, 0.1]])
    """

    summary: ClassVar[Summary] = Summary(
        "any, and users change",
        "Markov(model, transition)",
        "that of the model",
        "how the state moves",
    )

    model: KnownModel
    transition: FloatArray
    n_paths: int
    state_prior: FloatArray | None
    returning: FloatArray | None
    session_gap: float | None

    def __init__(
        self,
        model: KnownModel,
        transition: ArrayLike,
        n_paths: int = 16,
        state_prior: ArrayLike | None = None,
        returning: ArrayLike | None = None,
        session_gap: float | None = None,
    ) -> None:
        if model.transition is not None:
            raise ValueError("this model moves already: give Markov the model that it was made of")
        moves = checks.transition_matrix(transition, model.n_states)
        prior = None
        if state_prior is not None:
            lead = () if model.n_sessions is None else (model.n_sessions,)
            prior = checks.state_prior(state_prior, np.empty((*lead, model.n_states, 1)))
        n_paths = checks.count("n_paths", n_paths)
        checks.set_fields(self, model=model, transition=moves, n_paths=n_paths, state_prior=prior)
        self._set_pause(returning, session_gap)
        _ = self._learner  # raises now, not at the first decision, if the model is not Selectable

    def _set_pause(self, returning: ArrayLike | None, session_gap: float | None) -> None:
        """Set how the state moves across a pause, and how long a pause is."""
        if (returning is None) != (session_gap is None):
            raise ValueError("give returning and session_gap together, or neither")
        after = None
        if returning is not None and session_gap is not None:
            session_gap = checks.positive_number("session_gap", session_gap)
            after = checks.transition_matrix(returning, self.n_states, "returning")
            if not self.is_certain:
                raise ValueError(
                    "returning needs mean rewards that are taken as known: give n_paths=0"
                )
            if not (self.transition > 0).all():
                raise ValueError("returning needs a transition without zeros")
        checks.set_fields(self, returning=after, session_gap=session_gap)

    @classmethod
    def switching(cls, model: KnownModel, probability: float, n_paths: int = 16) -> Self:
        """Return a model whose state moves to one of the others with this total probability.

        >>> from latentbandits import GaussianArms
        >>> Markov.switching(GaussianArms([[1.0], [0.0], [0.5]], noise=0.1), 0.2).transition
        array([[0.8, 0.1, 0.1],
               [0.1, 0.8, 0.1],
               [0.1, 0.1, 0.8]])
        """
        return cls(model, switching_matrix(model.n_states, probability), n_paths)

    @classmethod
    def restarting(cls, model: KnownModel, probability: float, n_paths: int = 16) -> Self:
        """Return a model of change points: with this probability the state is drawn from P1(s).

        >>> from latentbandits import GaussianArms
        >>> Markov.restarting(GaussianArms([[1.0], [0.0]], noise=0.1), 0.2).transition
        array([[0.9, 0.1],
               [0.1, 0.9]])
        """
        prior = np.exp(model.log_state_prior)
        if (prior != prior[0]).any():
            raise ValueError("restarting needs a state_prior that all sessions share")
        again = _probability(probability)
        return cls(model, (1 - again) * np.eye(model.n_states) + again * prior[0], n_paths)

    @cached_property
    def log_state_prior(self) -> FloatArray:
        if self.state_prior is None:
            return self.model.log_state_prior
        return checks.log_prior(self.state_prior)

    @property
    def is_certain(self) -> bool:
        return self.n_paths == 0 or self.model.is_certain

    @cached_property
    def at_rest(self) -> Markov:
        """The model whose state stays where it is."""
        return Markov(self.model, np.eye(self.n_states), self.n_paths, self.state_prior)

    @property
    def spread_bound(self) -> float:
        return 0.0 if self.is_certain else cast(Model, self.model).spread_bound

    def parameters(self, n_sessions: int) -> Parameters:
        return self._learner.parameters(n_sessions)

    def condition(
        self, parameters: Any, context: Context, action: IntArray, reward: FloatArray
    ) -> tuple[FloatArray, Parameters]:
        return self._learner.condition(parameters, context, action, reward)

    def posterior_rewards(self, parameters: Any, context: Context) -> tuple[FloatArray, FloatArray]:
        return self._learner.posterior_rewards(parameters, context)

    def reward_laws(self, parameters: Any, context: Context) -> tuple[Component, ...]:
        return self._learner.reward_laws(parameters, context)

    def reward_tails(
        self, parameters: Any, context: Context, action: IntArray, reward: FloatArray
    ) -> tuple[FloatArray, BoolArray] | None:
        """Return the tails of the model that moves, at the prior of its parameters."""
        return with_defaults(self.model).reward_tails(None, context, action, reward)

    def sample_rewards(
        self, parameters: Any, context: Context, state: IntArray, rng: np.random.Generator
    ) -> FloatArray:
        return self._learner.sample_rewards(parameters, context, state, rng)

    def probability_best(
        self, parameters: Any, context: Context, eligible: BoolArray | None, weights: FloatArray
    ) -> FloatArray | None:
        """Return None for uncertain parameters: a mixture over paths has no formula."""
        if isinstance(self._learner, PathFilter):
            return None
        return self._learner.probability_best(parameters, context, eligible, weights)

    @cached_property
    def _learner(self) -> Known | PathFilter:
        """The filter over parameters; a certain model needs none."""
        if self.is_certain:
            return Known(self.model)
        return PathFilter(
            cast(Model, self.model), self.transition, self.n_paths, self.log_state_prior
        )


def switching_matrix(n_states: int, probability: float) -> FloatArray:
    """Return the matrix of a state that moves with this probability, to all others equally often.

    >>> switching_matrix(2, 0.2)
    array([[0.8, 0.2],
           [0.2, 0.8]])
    """
    away = _probability(probability) / max(n_states - 1, 1)
    rows = np.full((n_states, n_states), away) + (1 - away * n_states) * np.eye(n_states)
    return rows if n_states > 1 else np.ones((1, 1))


def _probability(value: float) -> float:
    if not 0 <= value <= 1:
        raise ValueError(f"a probability must be in [0, 1]; got {value}")
    return float(value)


# Uncertain parameters of a state that moves: a filter over paths of states.


class Paths(NamedTuple):
    """Weighted paths of states, grouped by their current state, and their parameters.

    The leaves of `learned` are `(n_sessions, n_states, n_paths, n_states, ...)`: for every current
    state and path, the parameters of each state.
    """

    log_weights: FloatArray  # (n_sessions, n_states, n_paths): log P(path, next state | rewards)
    learned: Parameters
    keys: Keys  # (n_sessions,)


class PathFilter:
    """P(theta | s) for the current state s of a Markov chain over the states of `model`.

    A reward tells about theta of the state that was current in its round, so P(theta) depends on
    the path of states. Given a path it is the model's own conjugate posterior. While there are few
    paths, every one is followed, and the filter is exact. Later the weighted paths are thinned
    without bias to `n_paths` for every current state. This is a Rao-Blackwellised particle filter:
    paths are sampled, parameters are not. The model of each state is selected once, here: nothing
    is cached between calls, so that threads can share the filter.
    """

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
        n, _, h = parameters.log_weights.shape
        played, features = action, context
        if context is not None and self._has_features:  # features of the played action only
            played, features = np.zeros(n, np.int64), checks.played(context, action)[:, None]
        wide, states = self._on_paths(parameters, features)
        played, told = np.repeat(played, h), np.repeat(reward, h)
        outcomes = [model.condition(learned, wide, played, told) for model, learned in states]
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
        n, _, h = parameters.log_weights.shape
        wide, states = self._on_paths(parameters, context)
        moments = [model.posterior_rewards(learned, wide) for model, learned in states]
        means = np.stack([mean.reshape(n, h, -1) for mean, _ in moments], axis=1)
        variances = np.stack([variance.reshape(n, h, -1) for _, variance in moments], axis=1)
        share = np.exp(self._log_shares(parameters))[..., None]
        mean = (share * means).sum(axis=2)
        return mean, (share * (variances + (means - mean[:, :, None]) ** 2)).sum(axis=2)

    def reward_laws(self, parameters: Paths, context: Context) -> tuple[Component, ...]:
        """Return the laws of every path, each with the path's probability given the state."""
        n, _, h = parameters.log_weights.shape
        wide, states = self._on_paths(parameters, context)
        by_state = [with_defaults(model).reward_laws(learned, wide) for model, learned in states]
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
        self, parameters: Paths, context: Context, state: IntArray, rng: np.random.Generator
    ) -> FloatArray:
        session = np.broadcast_to(np.arange(len(state))[:, None], state.shape)
        path = sample(self._log_shares(parameters)[session, state], rng)
        taught = map_leaves(lambda leaf: leaf[session, state, path, state], parameters.learned)
        rewards: Any = None
        for current in np.unique(state):
            chosen = state == current
            rows = session[chosen]
            draws = self._state_model(int(current), rows).sample_rewards(
                map_leaves(lambda leaf, chosen=chosen: leaf[chosen], taught),
                None if context is None else context[rows],
                np.zeros((len(rows), 1), np.int64),
                rng,
            )
            if rewards is None:
                rewards = np.empty((*state.shape, draws.shape[2]))
            rewards[chosen] = draws[:, 0]
        result: FloatArray = rewards
        return result

    def _on_paths(
        self, parameters: Paths, context: Context
    ) -> tuple[Context, list[tuple[Model, Any]]]:
        """Return the context, and model and parameters of each state: a row for each path."""
        n, s, h = parameters.log_weights.shape
        wide = None if context is None else np.repeat(context, h, axis=0)
        session = np.repeat(np.arange(n), h)
        models = [self._state_model(state, session) for state in range(s)]
        return wide, [(model, _flat(parameters.learned, i)) for i, model in enumerate(models)]

    def _state_model(self, state: int, session: IntArray) -> Model:
        """Return the model of one state; its i-th instance belongs to `session[i]`."""
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
