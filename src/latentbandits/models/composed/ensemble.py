"""Several models, one of which may be right: uncertainty without conjugacy (Section 3.4)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, cast

import numpy as np
from numpy.typing import ArrayLike

from latentbandits.lazy import cached_property
from latentbandits.models import checks
from latentbandits.models.checks import BoolArray, FloatArray, IntArray
from latentbandits.models.composed.known import Known
from latentbandits.models.numerics.laws import Component
from latentbandits.models.protocol import (
    Context,
    KnownModel,
    Model,
    Parameters,
    Selectable,
    reward_laws,
)
from latentbandits.models.stationary import StationaryModel


class EnsemblePosterior(NamedTuple):
    """P(member | s, rewards), and what each member has learned."""

    log_weights: FloatArray  # (n_sessions, n_states, n_members), normalised over members
    members: tuple[Parameters, ...]


@dataclass(frozen=True, eq=False, init=False)
class Ensemble(StationaryModel):
    """The posterior over (member, state), exact: the member is part of the uncertain parameters.

    `models` agree on states and actions; `weights` are their prior probabilities, None: equal.
    `state_prior` is P1(s), None: the members' own, averaged. A member with a spread of its own is
    conditioned, one without is taken as it is. Refits on bootstrap samples are such members.

    >>> from latentbandits import GaussianArms
    >>> members = [GaussianArms([[0.9, 0.1]], noise=0.1), GaussianArms([[0.2, 0.8]], noise=0.1)]
    >>> model = Ensemble(members)
    >>> _, posterior = model.condition(model.parameters(1), None, np.array([0]), np.array([0.9]))
    >>> model.member_probabilities(posterior).round(3)
    array([[[1., 0.]]])
    """

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
        object.__setattr__(self, "models", members)
        shares = checks.state_prior(weights, np.empty((len(members), 1)), "weights")
        if state_prior is None:
            priors = np.stack([np.exp(m.log_state_prior) for m in members])
            prior = np.tensordot(shares, priors, axes=1)
            prior = prior if members[0].n_sessions is not None else prior[0]
        else:
            lead = () if members[0].n_sessions is None else (members[0].n_sessions,)
            prior = checks.state_prior(state_prior, np.empty((*lead, members[0].n_states, 1)))
        checks.set_fields(self, weights=shares, state_prior=prior)

    @property
    def n_states(self) -> int:
        return self.models[0].n_states

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
    def is_certain(self) -> bool:
        """A single certain member is certain; of several the right one is unknown."""
        return len(self.models) == 1 and self.models[0].is_certain

    @property
    def noise(self) -> float:
        return max(member.noise for member in self.models)

    @cached_property
    def spread_bound(self) -> float:
        """Of members without context: how far they differ, and what each adds of its own."""
        own = max(member.spread_bound for member in self._members)
        if self.n_actions is None:
            return own
        means = np.stack([member.expected_rewards(None) for member in self.models])
        between = self._mix(means**2) - self._mix(means) ** 2
        return float(np.sqrt(own**2 + max(between.max(), 0.0)))

    def check_context(self, context: ArrayLike | None, n_sessions: int) -> Context:
        checked: Context = None
        for member in self.models:
            checked = member.check_context(context, n_sessions)
        return checked

    def check_reward(self, reward: FloatArray) -> None:
        for member in self.models:
            member.check_reward(reward)

    def expected_rewards(self, context: Context, state: IntArray | None = None) -> FloatArray:
        return self._mix(np.stack([m.expected_rewards(context, state) for m in self.models]))

    def log_likelihood(self, context: Context, action: IntArray, reward: FloatArray) -> FloatArray:
        """Of the mixture, as if every round drew its member anew; `condition` tells them apart."""
        densities = [m.log_likelihood(context, action, reward) for m in self.models]
        mixture, _ = _log_mean(np.stack(densities, axis=-1), self._log_weights)
        return mixture

    def parameters(self, n_sessions: int) -> EnsemblePosterior:
        n = checks.session_count(n_sessions, self.n_sessions)
        weights = np.broadcast_to(self._log_weights, (n, self.n_states, len(self.models)))
        return EnsemblePosterior(weights, tuple(m.parameters(n) for m in self._members))

    def condition(
        self, parameters: EnsemblePosterior, context: Context, action: IntArray, reward: FloatArray
    ) -> tuple[FloatArray, EnsemblePosterior]:
        found = [
            member.condition(learned, context, action, reward)
            for member, learned in zip(self._members, parameters.members, strict=True)
        ]
        densities = np.stack([density for density, _ in found], axis=-1)
        log_predictive, log_weights = _log_mean(densities, parameters.log_weights)
        return log_predictive, EnsemblePosterior(log_weights, tuple(p for _, p in found))

    def member_probabilities(self, parameters: EnsemblePosterior) -> FloatArray:
        """P(member | s, rewards): `(n_sessions, n_states, n_members)`."""
        return np.exp(parameters.log_weights)

    def posterior_rewards(
        self, parameters: EnsemblePosterior, context: Context
    ) -> tuple[FloatArray, FloatArray]:
        """The law of total variance over members."""
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
            for share, law in reward_laws(member, parameters.members[i], context)
        )

    def sample_rewards(
        self,
        parameters: EnsemblePosterior,
        context: Context,
        state: IntArray,
        rng: np.random.Generator,
    ) -> FloatArray:
        session = np.arange(len(state))[:, None]
        log_weights = parameters.log_weights[session, state]  # (n, m, n_members)
        clocks = rng.standard_exponential(log_weights.shape)
        drawn = (log_weights - np.log(clocks)).argmax(axis=-1)
        rewards: FloatArray | None = None
        for i in np.unique(drawn):
            own = self._members[i].sample_rewards(parameters.members[i], context, state, rng)
            if rewards is None:
                rewards = np.array(own)
            else:
                np.copyto(rewards, own, where=(drawn == i)[..., None])
        assert rewards is not None
        return rewards

    def probability_best(
        self,
        parameters: EnsemblePosterior,
        context: Context,
        eligible: BoolArray | None,
        weights: FloatArray,
    ) -> FloatArray | None:
        shares = self.member_probabilities(parameters)
        total: FloatArray | None = None
        for i, (member, learned) in enumerate(zip(self._members, parameters.members, strict=True)):
            own = member.probability_best(learned, context, eligible, weights * shares[:, :, i])
            if own is None:
                return None
            part = shares[:, :, i, None] * own
            total = part if total is None else total + part
        return total

    def select(self, session: IntArray, state: IntArray) -> Ensemble:
        parts = []
        for i, member in enumerate(self.models):
            if not isinstance(member, Selectable):
                raise TypeError(f"model {i}, a {type(member).__name__}, cannot be taken apart")
            parts.append(member.select(session, state))
        return Ensemble(parts, self.weights)

    def _mix(self, arrays: FloatArray) -> FloatArray:
        mixed: FloatArray = np.tensordot(self.weights, arrays, axes=1)
        return mixed

    @cached_property
    def _log_weights(self) -> FloatArray:
        """Log P1(member | s), `(1 or n_sessions, n_states, n_members)`."""
        priors = np.stack([member.log_state_prior for member in self.models], axis=-1)
        joint = priors + checks.log_prior(self.weights)
        equal = np.full(len(self.models), -np.log(len(self.models)))
        return _log_mean(joint, equal)[1]

    @cached_property
    def _members(self) -> tuple[Model, ...]:
        return tuple(_as_model(member) for member in self.models)


def _as_model(member: KnownModel) -> Model:
    """Return `member`; a certain one without the posterior that it need not keep."""
    return Known(member) if member.is_certain else cast(Model, member)


def _log_mean(log_values: FloatArray, log_weights: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Log of the weighted mean over the last axis, and the log weights given it."""
    terms = log_values + log_weights
    top = terms.max(axis=-1, keepdims=True)
    np.copyto(top, 0.0, where=np.isneginf(top))
    with np.errstate(divide="ignore", invalid="ignore"):
        total = top + np.log(np.exp(terms - top).sum(axis=-1, keepdims=True))
        posterior: FloatArray = np.where(np.isneginf(total), log_weights, terms - total)
    return total[..., 0], posterior
