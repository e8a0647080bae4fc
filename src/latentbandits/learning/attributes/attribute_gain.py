"""Measure the gain of users' attributes on held-out users: nats and reward by round."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from latentbandits.learning.assess.replay import PolicyPlayer, playable_rounds, replay
from latentbandits.learning.attributes.encoding import UserAttributes
from latentbandits.learning.attributes.evidence import state_evidence
from latentbandits.learning.attributes.gate import (
    GateChoice,
    GatePartition,
    PrepareGate,
    choose_gate,
    learn_weights,
    no_effect,
    refine,
    user_evidence,
    with_ones,
)
from latentbandits.learning.backends.backend import AnyLog
from latentbandits.learning.learners import Learned, Step, rows_as_actions, try_step
from latentbandits.learning.logs.rows import Log
from latentbandits.models.attributes.parts import Gate, part, with_parts
from latentbandits.models.checks import FloatArray
from latentbandits.models.composed.particle_model import ParticleModel
from latentbandits.policies.registry import Inputs, build
from latentbandits.report.report import Estimate

ROUNDS = (1, 2, 5)
"""The rounds that the report states."""

_MOST_USERS, _MOST_USERS_OF_PARTICLES = 2_000, 200


class LearnedGate(NamedTuple):
    """The models of the kept users and of all users with their gates, and the report on them."""

    candidate: Learned
    learned: Learned
    report: dict[str, Any]
    step: Step


def learn_gate(
    attributes: UserAttributes,
    candidate: Learned,
    learned: Learned,
    kept: AnyLog,
    held_out: Log,
    log: AnyLog,
) -> LearnedGate:
    """Choose the ridge by cross-fitting, and learn the gates of both models.

    States of arms and the gate are refined together unless the held-out evidence rejects that. The
    gate is left out if the evidence is clearly lower with it.

    Args:
        attributes: of all users of the log.
        candidate: the model of the kept users, with which the choice is made.
        learned: the model of all users.
        kept: users whose `attributes` the choice is learned from.
        held_out: users on whom the choice is evaluated.
        log: all users.
    """
    choice = choose_gate(candidate, kept, held_out)
    n_attributes = len(attributes.encoder)
    nothing = no_effect(candidate, n_attributes).weights
    without = user_evidence(PrepareGate(candidate)(held_out), nothing)
    step = try_step("gate of users' attributes", without, choice.by_user)
    if not step.used:
        choice = GateChoice(candidate, nothing, np.inf, choice.rows, False, without)
    if choice.grouped:
        learned, of_all = replace(learned, fitted=choice.learned.fitted), choice.weights
    else:
        of_all = learn_weights(learned, log, n_attributes, choice.ridge)
    if choice.refined:
        learned, of_all = refine(learned, log, of_all, choice.ridge)
    report = {
        "columns": list(attributes.encoder.names),
        "labels": list(attributes.encoder.labels),
        "users_whose_attributes_change": attributes.n_changed,
        "users_without_attributes": attributes.n_missing,
        "taken": "the first value by time of each user",
        "used": choice.used,
        "ridge": choice.ridge if choice.used else None,
        "ridges": [row._asdict() for row in choice.rows],
        "states_refined_with_the_gate": choice.refined,
        "states_grouped_by_attributes": choice.grouped,
        "weights": of_all.tolist(),
    }

    def gated(one: Learned, weights: FloatArray) -> Learned:
        gate = Gate(attributes.encoder, weights, attributes.sample)
        return replace(one, model=with_parts(one.model, gate=gate))

    return LearnedGate(gated(choice.learned, choice.weights), gated(learned, of_all), report, step)


def worth(learned: Learned, held_out: Log, policy: str, seed: int) -> list[dict[str, Any]]:
    """Return the gain of attributes in each of `ROUNDS`, with standard errors.

    Nats: the mean log predictive density of the user's t-th reward, with the gate minus without.
    Reward: the policy's reward in the t-th round of replay, with the gate minus without. Both are
    None if no user has t rows.
    """
    weights = part(learned.model, "gate").weights
    nats = _nats(learned, weights, held_out)
    rewards = _rewards(learned, weights, held_out, policy, seed)
    return [{"round": t, **nats[t], **rewards[t]} for t in ROUNDS]


def _first_rows(log: Log, n_rows: int) -> Log:
    return log.of_events(np.arange(log.n_events) - log.starts[log.users] < n_rows)


def _nats(learned: Learned, weights: FloatArray, log: Log) -> dict[int, dict[str, Any]]:
    z = with_ones(log)
    average = no_effect(learned, z.shape[1] - 1).weights
    lengths = np.diff(log.starts)

    def gain(n_rows: int) -> FloatArray:
        if n_rows == 0:
            return np.zeros(log.n_users)
        part = GatePartition(z, state_evidence(learned, _first_rows(log, n_rows)))
        return user_evidence(part, weights) - user_evidence(part, average)

    nats: dict[int, dict[str, Any]] = {}
    for t in ROUNDS:
        there = lengths >= t
        if not there.any():
            nats[t] = {"nats": None, "nats_stderr": None, "users": 0}
            continue
        lead = Estimate.from_values((gain(t) - gain(t - 1))[there])
        nats[t] = {"nats": lead.mean, "nats_stderr": lead.stderr, "users": int(there.sum())}
    return nats


def _rewards(
    learned: Learned, weights: FloatArray, log: Log, policy: str, seed: int
) -> dict[int, dict[str, Any]]:
    nothing: dict[str, Any] = {"reward": None, "reward_stderr": None, "players": 0}
    if log.features is None:
        log = log.of_events(learned.counts[log.actions] > 0)
    is_slow = isinstance(learned.model, ParticleModel)
    most = _MOST_USERS_OF_PARTICLES if is_slow else _MOST_USERS
    log = log.of_users(np.arange(min(most, log.n_users)))
    if not playable_rounds(log).any():
        return dict.fromkeys(ROUNDS, nothing)
    scores = with_ones(log) @ weights.T
    if log.features is not None:
        learned, log = rows_as_actions(learned, log)
    built = build(policy, Inputs(learned.model, horizon=max(ROUNDS), items=learned.features))
    options = built, log.n_actions, learned.features
    # Both have the same name, because the random numbers of a player depend on its name.
    told, untold = (
        replay({policy: player}, log, most_rounds=max(ROUNDS), seed=seed).rewards[policy]
        for player in (PolicyPlayer(*options, log_prior=scores), PolicyPlayer(*options))
    )
    lead = told - untold
    rewards = {}
    for t in ROUNDS:
        leads = lead[:, t - 1] if t <= lead.shape[1] else np.zeros(0)
        leads = leads[~np.isnan(leads)]
        if len(leads) < 2:
            rewards[t] = nothing
            continue
        estimate = Estimate.from_values(leads)
        rewards[t] = {
            "reward": estimate.mean,
            "reward_stderr": estimate.stderr,
            "players": len(leads),
        }
    return rewards
