"""Predict the reward of every action from a session's history: the q of DR and DM."""

from __future__ import annotations

from typing import Any

import numpy as np

from latentbandits.beliefs import joint
from latentbandits.evaluation.follow import Learner, UnevenBeliefsError, learn_before
from latentbandits.evaluation.log import DecisionLog
from latentbandits.models.checks import FloatArray
from latentbandits.models.composed.known import Known
from latentbandits.policies.decision import Decision
from latentbandits.policies.greedy import mmGreedy


def predict(model: Any, log: DecisionLog) -> FloatArray:
    """Return q_t(a) = E[r | a, the session's logged history before t], `(n, T, K)`.

    The history's posterior under `model` gives it in closed form: sum_s P(s) E[mu(a, s, theta)].
    Entries past a session's end are 0.
    """
    learner_policy = mmGreedy(model if hasattr(model, "posterior_rewards") else Known(model))
    try:
        return _predict(learner_policy, log)
    except UnevenBeliefsError:
        rows = [_predict(learner_policy, log.take(np.array([i]))) for i in range(log.n_sessions)]
        return np.concatenate(rows)


def _predict(policy: mmGreedy, log: DecisionLog) -> FloatArray:
    n, n_rounds = log.action.shape
    q = np.zeros((n, n_rounds, log.n_actions))
    learner = Learner(policy.init(n))
    decisions: list[Decision] = []
    for t in range(n_rounds):
        learn_before(t, policy, learner, log, decisions)
        rows = np.flatnonzero(log.lengths > t)
        context = log.round(t, rows).context
        q[rows, t] = joint.mean_rewards(policy.model, learner.take(rows, n), context)
        decisions.append(Decision.logged(np.maximum(log.action[:, t], 0)))
    return q
