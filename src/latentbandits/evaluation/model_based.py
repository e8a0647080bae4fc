"""Predict the reward of every action from a session's history: the q of DR and DM."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from latentbandits.beliefs import joint
from latentbandits.environments.from_model import UsersOfModel
from latentbandits.evaluation.follow import walk
from latentbandits.evaluation.log import DecisionLog, LoggedRound
from latentbandits.models.checks import FloatArray, IntArray
from latentbandits.models.composed.known import Known
from latentbandits.policies.choice import at
from latentbandits.policies.decision import Decision
from latentbandits.policies.latent.bayes_ucb import mmGreedy
from latentbandits.policies.protocol import AnyPolicy


def predict(model: Any, log: DecisionLog) -> FloatArray:
    """Return q_t(a) = E[r | a, the session's logged history before t], `(n, T, K)`.

    The history's posterior under `model` gives it in closed form: sum_s P(s) E[mu(a, s, theta)].
    Entries past a session's end are 0.
    """
    policy = mmGreedy(model if hasattr(model, "posterior_rewards") else Known(model))
    q = np.zeros((*log.action.shape, log.n_actions))

    def step(t: int, rows: IntArray, round_: LoggedRound, belief: Any) -> Decision:
        q[rows, t] = joint.mean_rewards(policy.model, belief, round_.context)
        return Decision.logged(round_.action)

    walk(policy, log, step)
    return q


# Simulate a candidate on its reward model: the direct method for sessions of several rounds.

Simulator = Callable[[AnyPolicy, int, int], FloatArray]
"""From a policy, a number of sessions and a horizon to mean rewards `(n_sessions, horizon)`."""


def simulator(model: Any, log: DecisionLog, seed: int = 0) -> Simulator | None:
    """Return a function that plays a policy on users drawn from `model`.

    Simulated sessions are as long as the logged ones; a session that ended earns 0. None where
    rounds have contexts or eligible actions of their own, or where users cannot be drawn.
    """
    if log.has_context or log.eligible is not None:
        return None
    try:
        users = UsersOfModel(model)
    except ValueError:
        return None

    def play(policy: AnyPolicy, n_sessions: int, horizon: int) -> FloatArray:
        rng = np.random.default_rng([seed, 17])
        instances = users.start(n_sessions, horizon, rng)
        belief = policy.init(n_sessions)
        earned = np.zeros((n_sessions, horizon))
        for t in range(horizon):
            round_ = instances.round(t, rng)
            decision = policy.decide(belief, round_.context, rng, propensity=False)
            earned[:, t] = at(round_.means, decision.action)
            reward = at(round_.rewards, decision.action)
            belief = policy.update(belief, round_.context, decision, reward)
        return np.where(log.active[:, :horizon], earned, 0.0)

    return play
