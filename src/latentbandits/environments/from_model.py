"""Users drawn from a model's own prior, for any model: the problem for which the model is true."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from latentbandits.environments.protocol import Round
from latentbandits.models.arms.gaussian import GaussianArms
from latentbandits.models.attributes.columns import Row
from latentbandits.models.attributes.parts import part
from latentbandits.models.checks import FloatArray, IntArray, positive_count
from latentbandits.models.numerics.laws import BINARY
from latentbandits.models.protocol import Context, Generative, KnownModel, inner_models, support_of

Contexts: TypeAlias = NDArray[Any]
"""A catalogue, `(n_items, n_features)`, of which each round offers some items; or contexts,
`(n_contexts, ...)` with more than two axes, of which each round shows one."""


@dataclass(frozen=True, eq=False)
class UsersOfModel:
    """Each run is a user: a state of P1(s), then parameters of that state's prior.

    Users of a model with a gate have attributes, drawn from those that the gate keeps, and a state
    of P1(s | z); policies are told the attributes unless `told` is False.

    Args:
        model: any model of the library; with instances for `n` sessions it serves n runs.
        contexts: for models with features: a catalogue or a pool of contexts (see `Contexts`).
        offered: items of the catalogue that a round offers, drawn with replacement.
        told: whether policies are told the attributes of users, where the model has a gate.
        estimates: the share of users for whom the means of a `GaussianArms` are estimates with
            standard errors `spread`, and users do not vary (`regress`). Other users vary around the
            model's means.

    >>> from latentbandits import BernoulliArms
    >>> users = UsersOfModel(BernoulliArms([[2.0, 1.0]], 1.0))
    >>> runs = users.start(4, horizon=10, rng=np.random.default_rng(0))
    >>> runs.round(0, np.random.default_rng(0)).rewards.shape
    (4, 2)
    """

    model: KnownModel
    contexts: ArrayLike | None = None
    offered: int = 20
    told: bool = True
    estimates: float = 0.0

    def __post_init__(self) -> None:
        positive_count("offered", self.offered)
        if not hasattr(self.model, "log_state_prior"):
            raise ValueError(f"users are drawn from a model; got a {type(self.model).__name__}")
        object.__setattr__(self, "contexts", check_contexts(self.model, self.contexts))

    @property
    def is_generative(self) -> bool:
        """Whether the model draws rewards itself; otherwise they are drawn around its means."""
        return isinstance(_inner(self.model), Generative)

    def start(self, n_runs: int, horizon: int, rng: np.random.Generator) -> UserInstances:
        log_prior, users = self.model.log_state_prior, None
        gate = part(self.model, "gate")
        if gate is not None and gate.sample:
            chosen = rng.integers(len(gate.sample), size=n_runs)
            users = tuple(gate.sample[i] for i in chosen)
            log_prior = gate.log_prior(users, log_prior)
        prior = np.exp(log_prior)
        state = (rng.random((n_runs, 1)) >= prior.cumsum(axis=1)[:, :-1]).sum(axis=1)
        drawn: tuple[Any, ...]
        if self.model.transition is not None:  # each state has fixed parameters
            inner = _inner(self.model)
            every = (np.full(n_runs, s) for s in range(self.model.n_states))
            drawn = tuple(_draw(inner, one_state, rng) for one_state in every)
            path = _path(self.model.transition, state, horizon, rng)
        else:
            generative, theta = _draw(self.model, state, rng)
            if self.estimates > 0 and isinstance(self.model, GaussianArms):
                among = rng.random((n_runs, 1)) < self.estimates
                theta = np.where(among, regress(self.model, state, theta), theta)
            drawn, path = ((generative, theta),), None
        pool: Any = self.contexts
        known = users if self.told else None
        return UserInstances(self.model, drawn, path, pool, self.offered, n_runs, known)


@dataclass(frozen=True, eq=False)
class UserInstances:
    """Runs under way: the parameters of each, and its states if they move."""

    model: KnownModel
    drawn: tuple[tuple[Generative, Any], ...]  # model and theta: one, or one for every state
    path: IntArray | None  # (n_runs, horizon): the state of every round, if it moves
    contexts: Contexts | None
    offered: int
    n_runs: int
    user_features: tuple[Row, ...] | None = None  # attributes of each run's user

    @property
    def repeats(self) -> bool:
        """Whether an action's rewards are draws of one distribution in all rounds of a run."""
        return self.contexts is None and self.path is None

    def round(self, t: int, rng: np.random.Generator) -> Round:
        shown = self._context(rng)
        context = self.model.check_context(shown, self.n_runs)
        rounds = [
            (model.mean_rewards(theta, context), model.draw_rewards(theta, context, rng))
            for model, theta in self.drawn
        ]
        if self.path is None:
            means, rewards = rounds[0]
        else:
            run, state = np.arange(self.n_runs), self.path[:, t]
            means, rewards = (np.stack(kind)[state, run] for kind in zip(*rounds, strict=True))
        return Round(shown, means, rewards)

    def _context(self, rng: np.random.Generator) -> Context:
        if self.contexts is None:
            return None
        if self.contexts.ndim == 2 and self.model.n_features is not None:
            chosen = rng.integers(len(self.contexts), size=(self.n_runs, self.offered))
        else:
            chosen = rng.integers(len(self.contexts), size=self.n_runs)
        return self.contexts[chosen]


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


def regress(model: GaussianArms, state: IntArray, theta: FloatArray) -> FloatArray:
    """Return draws of means, shrunk as if the model's means were estimates with errors.

    Estimates m = mu + N(0, spread^2) vary more than the true means: Var(m) = Var(mu) + spread^2. By
    empirical Bayes mu given m is N(c + (1 - B)(m - c), (1 - B) spread^2), where c is the average of
    all m and B = spread^2 / Var(m), at most 1 (Efron & Morris 1973). A draw m + e becomes
    c + (1 - B)(m - c) + sqrt(1 - B) e, so that its variance is Var(mu).

    Args:
        model: of one session, or of as many as there are draws.
        state: `(n,)`, the state of every draw.
        theta: `(n, n_actions)`, drawn around the means of these states.

    >>> model = GaussianArms([[1.0, -1.0]], noise=1.0, spread=0.5)  # Var(m) = 1, B = 1/4
    >>> regress(model, np.array([0]), np.array([[1.0, -1.0]]))
    array([[ 0.75, -0.75]])
    """
    means = np.broadcast_to(model.means, (len(theta), *model.means.shape[-2:]))
    variance = np.mean(np.broadcast_to(model.spread, model.means.shape) ** 2, axis=(-2, -1))
    centre = means.mean(axis=(1, 2))[:, None]
    share = np.minimum(variance / np.maximum(model.means.var(axis=(-2, -1)), 1e-300), 1.0)
    kept = 1.0 - np.broadcast_to(share, (len(theta),))[:, None]
    user_means = means[np.arange(len(theta)), state]
    result: FloatArray = (
        centre + kept * (user_means - centre) + np.sqrt(kept) * (theta - user_means)
    )
    return result


def _inner(model: Any) -> Any:
    """Return the model whose parameters are drawn: of a `Markov`, the model inside it."""
    inner = inner_models(model)
    return inner[0] if inner and model.transition is not None else model


def _draw(model: KnownModel, state: IntArray, rng: np.random.Generator) -> tuple[Generative, Any]:
    """Draw the parameters of users with these states `(n_runs,)`."""
    if isinstance(model, Generative):
        generative: Generative = model
    elif hasattr(model, "sample_rewards") and model.n_actions is not None:
        generative = _AroundMeans(model)
    else:
        generative = _AtPoint(model)
    return generative, generative.draw_theta(state, rng)


class _AtPoint:
    """A model that cannot draw parameters: its point estimates are true.

    Rewards are 0 or 1 if the model allows no others, else Gaussian with its noise.
    """

    def __init__(self, model: KnownModel) -> None:
        self.model = model

    def draw_theta(self, state: IntArray, rng: np.random.Generator) -> IntArray:
        return state

    def mean_rewards(self, theta: IntArray, context: Context) -> FloatArray:
        return self.model.expected_rewards(context, theta)

    def draw_rewards(
        self, theta: IntArray, context: Context, rng: np.random.Generator
    ) -> FloatArray:
        means = self.mean_rewards(theta, context)
        if support_of(self.model) == BINARY:
            return (rng.random(means.shape) < means).astype(np.float64)
        return means + self.model.noise * rng.standard_normal(means.shape)

    def log_reward_density(
        self, theta: IntArray, context: Context, action: IntArray, reward: FloatArray
    ) -> FloatArray:
        density = self.model.log_likelihood(context, action, reward)
        return density[np.arange(len(theta)), theta]


class _AroundMeans(_AtPoint):
    """A model that draws the mean rewards of its fixed actions, and no rewards around them."""

    def draw_theta(self, state: IntArray, rng: np.random.Generator) -> Any:
        model: Any = self.model
        return model.sample_rewards(model.parameters(len(state)), None, state[:, None], rng)[:, 0]

    def mean_rewards(self, theta: Any, context: Context) -> FloatArray:
        means: FloatArray = theta
        return means


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
