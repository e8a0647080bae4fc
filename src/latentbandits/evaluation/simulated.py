"""Simulate a candidate on its reward model: the direct method for sessions of several rounds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from latentbandits.environments.from_model import UsersOfModel
from latentbandits.evaluation.log import DecisionLog
from latentbandits.models.checks import FloatArray
from latentbandits.policies.choice import at
from latentbandits.policies.protocol import AnyPolicy

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
