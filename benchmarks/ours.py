"""This library as a contestant: a batch of sessions, or one session at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.timing import Contestant
from latentbandits import Decision
from latentbandits.policies.protocol import AnyPolicy

Actions = np.ndarray[Any, np.dtype[np.int64]]
Array = np.ndarray[Any, np.dtype[np.float64]]


def contestant(
    name: str,
    policy: AnyPolicy,
    rewards: Array,
    contexts: Array | None = None,
    *,
    propensity: bool = False,
) -> Contestant:
    """Decide and update for all sessions of `rewards` (T, n, K), round after round."""
    n_rounds, n_sessions, _ = rewards.shape
    sessions = np.arange(n_sessions)

    def prepare() -> Callable[[], object]:
        rng, belief = np.random.default_rng(0), policy.init(n_sessions)

        def play() -> object:
            nonlocal belief
            for t in range(n_rounds):
                context = None if contexts is None else contexts[t]
                decision = policy.decide(belief, context, rng, propensity=propensity)
                reward = rewards[t][sessions, decision.action]
                belief = policy.update(belief, context, decision, reward)
            return belief

        return play

    return Contestant(name, n_rounds * n_sessions, prepare)


def check_same_posterior(
    policy: AnyPolicy,
    log_weights: Array,
    actions: Actions,
    rewards: Array,
    contexts: Array | None = None,
) -> None:
    """Another program's `log_weights`, found by playing `actions`, must be what `policy` finds."""
    n_rounds, n_sessions, _ = rewards.shape
    belief, sessions = policy.init(n_sessions), np.arange(n_sessions)
    prior = np.array(belief.log_weights)
    for t in range(n_rounds):
        context = None if contexts is None else contexts[t]
        reward = rewards[t][sessions, actions[t]]
        belief = policy.update(belief, context, Decision.logged(actions[t]), reward)
    np.testing.assert_allclose(log_weights, belief.log_weights - prior, rtol=1e-9, atol=1e-9)
