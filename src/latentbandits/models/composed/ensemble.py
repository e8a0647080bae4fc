"""Several models of which one is right: uncertainty without conjugacy (Section 3.4)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, cast

import numpy as np
from numpy.typing import ArrayLike

from latentbandits.lazy import cached_property
from latentbandits.models import checks
from latentbandits.models.checks import BoolArray, FloatArray, IntArray
from latentbandits.models.composed.known import Known
from latentbandits.models.numerics.arrays import log_sum, normalise, rows, sample
from latentbandits.models.numerics.laws import Component, Summary, Support
from latentbandits.models.protocol import (
    Context,
    Generative,
    KnownModel,
    Model,
    Parameters,
    Selectable,
    StationaryModel,
    is_order_free,
    with_defaults,
)


class EnsemblePosterior(NamedTuple):
    """P(member | s, rewards), and the parameters of each member."""

    log_weights: FloatArray  # (n_sessions, n_states, n_members), normalised over members
    members: tuple[Parameters, ...]


@dataclass(frozen=True, eq=False, init=False, repr=False)
class Ensemble(StationaryModel):
    """A model whose uncertain parameters include which of its members is right.

    The posterior over (member, state) is exact. Refits on bootstrap samples are such members. An
    uncertain member is conditioned on rewards, a certain one is taken as it is.

    Args:
        models: the members, which agree on states and actions.
        weights: their prior probabilities, `(n_members,)` or `(n_sessions, n_members)`; None is
            equal.
        state_prior: P1(s), `(n_states,)` or `(n_sessions, n_states)`; None is the weighted mean of
            the members' own. P1(member | s) follows from the weights and the members' priors.

    >>> from latentbandits import GaussianArms
    >>> members = [GaussianArms([[0.9, 0.1]], noise=0.1), GaussianArms([[0.2, 0.8]], noise=0.1)]
    >>> model = Ensemble(members)
    >>> _, posterior = model.condition(model.parameters(1), None, np.array([0]), np.array([0.9]))
    >>> model.member_probabilities(posterior).round(3)
    array([[[1., 0.]]])
    """

    summary: ClassVar[Summary] = Summary(
        "any, with several models of them",
        "Ensemble([models], weights)",
        "over the members",
        "refits on bootstrap samples, say",
    )

    models: tuple[KnownModel, ...]
    weights: FloatArray
    state_prior: FloatArray

    def __init__(
        self,
        models: Sequence[KnownModel],
        weights: ArrayLike | None = None,
        state_prior: ArrayLike | None = None,
    ) -> None:
        members = tuple(models)
        if not members:
            raise ValueError("an Ensemble needs at least one model")
        for i, member in enumerate(members):
            for name in ("n_states", "n_actions", "n_sessions"):
                first, other = getattr(members[0], name), getattr(member, name)
                if first != other:
                    raise ValueError(
                        f"the models of an Ensemble must agree; {name} of model 0 is {first}, "
                        f"of model {i} {other}"
                    )
            if member.transition is not None:
                raise ValueError(f"model {i} is a Markov model: give Markov the Ensemble instead")
        lead = () if members[0].n_sessions is None else (members[0].n_sessions,)
        shares = checks.state_prior(weights, np.empty((*lead, len(members), 1)), "weights")
        if state_prior is None:
            priors = np.stack([np.exp(m.log_state_prior) for m in members], axis=-1)
            prior = (priors @ shares[..., None])[..., 0]
            prior = prior if lead else prior[0]
        else:
            prior = checks.state_prior(state_prior, np.empty((*lead, members[0].n_states, 1)))
        checks.set_fields(self, models=members, weights=shares, state_prior=prior)

    @property
    def order_free(self) -> bool:
        return all(is_order_free(member) for member in self.models)

    @property
    def n_actions(self) -> int | None:
        return self.models[0].n_actions

    @property
    def n_features(self) -> int | None:
        """The number that the members with features expect."""
        return next((m.n_features for m in self.models if m.n_features is not None), None)

    @property
    def n_sessions(self) -> int | None:
        return self.models[0].n_sessions

    @property
    def support(self) -> Support:
        """The rewards that the first member allows; `check_reward` checks all members."""
        return with_defaults(self.models[0]).support

    @property
    def inner_models(self) -> tuple[KnownModel, ...]:
        return self.models

    @property
    def is_certain(self) -> bool:
        """True for a single certain member; with several members it is unknown which is right."""
        return len(self.models) == 1 and self.models[0].is_certain

    @property
    def noise(self) -> float:
        return max(member.noise for member in self.models)

    @cached_property
    def spread_bound(self) -> float:
        """The largest bound of a member, and without context also the spread between members."""
        within = max(member.spread_bound for member in self._members)
        if self.n_actions is None:
            return within
        means = np.stack([member.expected_rewards(None) for member in self.models], axis=-1)
        share = np.exp(self._log_weights)[:, :, None]
        mean = (share * means).sum(axis=-1, keepdims=True)
        between = (share * (means - mean) ** 2).sum(axis=-1)
        return float(np.sqrt(within**2 + between.max()))

    def check_context(self, context: ArrayLike | None, n_sessions: int) -> Context:
        valid: Context = None
        for member in self.models:
            valid = member.check_context(context, n_sessions)
        return valid

    def check_reward(self, reward: FloatArray) -> None:
        for member in self.models:
            member.check_reward(reward)

    def expected_rewards(self, context: Context, state: IntArray | None = None) -> FloatArray:
        means = np.stack([m.expected_rewards(context, state) for m in self.models], axis=-1)
        share = np.exp(self._log_weights)
        if state is not None:
            share = rows(share, state)
        mixed: FloatArray = (share[..., None, :] * means).sum(axis=-1)
        return mixed

    def log_likelihood(self, context: Context, action: IntArray, reward: FloatArray) -> FloatArray:
        """Return the log density of the mixture over members, as if each round drew a new one."""
        densities = [m.log_likelihood(context, action, reward) for m in self.models]
        return log_sum(np.stack(densities, axis=-1) + self._log_weights)

    def parameters(self, n_sessions: int) -> EnsemblePosterior:
        n = checks.session_count(n_sessions, self.n_sessions)
        weights = np.broadcast_to(self._log_weights, (n, self.n_states, len(self.models)))
        return EnsemblePosterior(weights, tuple(m.parameters(n) for m in self._members))

    def condition(
        self, parameters: EnsemblePosterior, context: Context, action: IntArray, reward: FloatArray
    ) -> tuple[FloatArray, EnsemblePosterior]:
        outcomes = [
            member.condition(learned, context, action, reward)
            for member, learned in zip(self._members, parameters.members, strict=True)
        ]
        joint = np.stack([density for density, _ in outcomes], axis=-1) + parameters.log_weights
        log_predictive, log_weights = normalise(joint, parameters.log_weights)
        return log_predictive, EnsemblePosterior(log_weights, tuple(p for _, p in outcomes))

    def member_probabilities(self, parameters: EnsemblePosterior) -> FloatArray:
        """Return P(member | s, rewards): `(n_sessions, n_states, n_members)`."""
        return np.exp(parameters.log_weights)

    def posterior_rewards(
        self, parameters: EnsemblePosterior, context: Context
    ) -> tuple[FloatArray, FloatArray]:
        """Return mean and variance by the law of total variance over members."""
        weights = self.member_probabilities(parameters)
        moments = [
            member.posterior_rewards(learned, context)
            for member, learned in zip(self._members, parameters.members, strict=True)
        ]
        means = np.stack([mean for mean, _ in moments], axis=-1)
        variances = np.stack([variance for _, variance in moments], axis=-1)
        share = weights[:, :, None]
        mean = (share * means).sum(axis=-1)
        return mean, (share * (variances + (means - mean[..., None]) ** 2)).sum(axis=-1)

    def reward_laws(self, parameters: EnsemblePosterior, context: Context) -> tuple[Component, ...]:
        """Return the members' laws, each with its member's probability."""
        weights = self.member_probabilities(parameters)
        return tuple(
            Component(weights[:, :, i] if share is None else weights[:, :, i] * share, law)
            for i, member in enumerate(self._members)
            for share, law in with_defaults(member).reward_laws(parameters.members[i], context)
        )

    def sample_rewards(
        self,
        parameters: EnsemblePosterior,
        context: Context,
        state: IntArray,
        rng: np.random.Generator,
    ) -> FloatArray:
        session = np.arange(len(state))[:, None]
        member = sample(parameters.log_weights[session, state], rng)  # (n, m)
        draws = {
            i: self._members[i].sample_rewards(parameters.members[i], context, state, rng)
            for i in np.unique(member).tolist()
        }
        return _choose(member, draws)

    def draw_theta(self, state: IntArray, rng: np.random.Generator) -> tuple[Any, ...]:
        """Draw the member of each user, and parameters of every member."""
        member = sample(rows(self._log_weights, state), rng)
        return member, *(generative(m).draw_theta(state, rng) for m in self.models)

    def _users(self, theta: tuple[Any, ...]) -> Iterator[tuple[Generative, Any]]:
        """Return every member with its parameters of the users."""
        return zip(map(generative, self.models), theta[1:], strict=True)

    def mean_rewards(self, theta: tuple[Any, ...], context: Context) -> FloatArray:
        means = [m.mean_rewards(t, context) for m, t in self._users(theta)]
        return _choose(theta[0], dict(enumerate(means)))

    def draw_rewards(
        self, theta: tuple[Any, ...], context: Context, rng: np.random.Generator
    ) -> FloatArray:
        draws = [m.draw_rewards(t, context, rng) for m, t in self._users(theta)]
        return _choose(theta[0], dict(enumerate(draws)))

    def log_reward_density(
        self, theta: tuple[Any, ...], context: Context, action: IntArray, reward: FloatArray
    ) -> FloatArray:
        members = self._users(theta)
        densities = [m.log_reward_density(t, context, action, reward) for m, t in members]
        chosen: FloatArray = np.stack(densities)[theta[0], np.arange(len(action))]
        return chosen

    def probability_best(
        self,
        parameters: EnsemblePosterior,
        context: Context,
        eligible: BoolArray | None,
        weights: FloatArray,
    ) -> FloatArray | None:
        shares = self.member_probabilities(parameters)
        total: FloatArray | float = 0.0
        for i, (member, learned) in enumerate(zip(self._members, parameters.members, strict=True)):
            share = shares[:, :, i]
            best = member.probability_best(learned, context, eligible, weights * share)
            if best is None:
                return None
            total = total + share[..., None] * best
        return np.asarray(total)

    def select(self, session: IntArray | None, state: IntArray) -> Ensemble:
        """Return the Ensemble of the members' single states, with P1(member | s) as weights."""
        parts = []
        for i, member in enumerate(self.models):
            if not isinstance(member, Selectable):
                raise TypeError(
                    f"model {i}, a {type(member).__name__}, has no method to select one state"
                )
            parts.append(member.select(session, state))
        weights = np.exp(self._log_weights)
        if session is None:
            return Ensemble(parts, weights[0, state[0]])
        return Ensemble(parts, weights[(0 if self.n_sessions is None else session), state])

    @cached_property
    def _log_weights(self) -> FloatArray:
        """Log P1(member | s), `(1 or n_sessions, n_states, n_members)`."""
        priors = np.stack([member.log_state_prior for member in self.models], axis=-1)
        log_weights = checks.log_prior(self.weights)[:, None]
        return normalise(priors + log_weights, log_weights)[1]

    @cached_property
    def _members(self) -> tuple[Model, ...]:
        """The members; a certain member has no posterior over parameters."""
        return tuple(Known(m) if m.is_certain else cast(Model, m) for m in self.models)


def generative(member: KnownModel) -> Generative:
    """Return `member`; TypeError if users cannot be drawn from it."""
    if not isinstance(member, Generative):
        raise TypeError(f"users cannot be drawn from a {type(member).__name__}")
    return member


def _choose(member: IntArray, draws: Mapping[int, FloatArray]) -> FloatArray:
    """Return (..., n_actions): each row is taken from the array of its `member`."""
    first = next(iter(draws.values()))
    chosen = np.empty(np.broadcast_shapes(first.shape, (*member.shape, 1)))
    for i, rewards in draws.items():
        np.copyto(chosen, rewards, where=(member == i)[..., None])
    return chosen
