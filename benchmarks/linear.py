"""Actions with d = 20 features, K = 20: against Vowpal Wabbit, coba, MABWiser, a compiled loop."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks import ours
from benchmarks.report import Report
from benchmarks.timing import Comparison, Contestant, optional, race, report
from latentbandits import LinearGaussian, LinTS, LinUCB, mmTS

D, K, S, NOISE = 20, 20, 5, 0.5
SESSIONS, BATCH_ROUNDS, SINGLE_ROUNDS = 1000, 5, 200

Array = np.ndarray[Any, np.dtype[np.float64]]


def main() -> Report:
    rng = np.random.default_rng(1)
    weights = rng.standard_normal((S, D)) / np.sqrt(D)
    model = LinearGaussian(weights, NOISE, np.tile(0.1 * np.eye(D) / D, (S, 1, 1)))
    batch = _problem(weights[0], BATCH_ROUNDS, SESSIONS, rng)
    single = _problem(weights[0], SINGLE_ROUNDS, 1, rng)
    policies: dict[str, Any] = {
        "LinUCB": LinUCB(D),
        "LinTS": LinTS(D, NOISE),
        "linear mmTS": mmTS(model),
    }
    notes: list[str] = []
    contestants = [
        *(ours.contestant(f"{name}, 1000 sessions", p, *batch) for name, p in policies.items()),
        *(ours.contestant(f"{name}, one session", p, *single) for name, p in policies.items()),
        *optional("vowpalwabbit", lambda: _vowpal_wabbit(*single), notes),
        *optional("coba", lambda: _coba(*single), notes),
        *optional("mabwiser", lambda: _mabwiser(*single), notes),
        *optional("numba", lambda: _compiled(*batch, policies["linear mmTS"]), notes),
    ]
    comparisons = [
        Comparison("Vowpal Wabbit", "LinUCB, 1000 sessions", at_least=20),
        Comparison("Vowpal Wabbit", "LinTS, 1000 sessions", at_least=20),
        Comparison("Vowpal Wabbit", "linear mmTS, 1000 sessions", at_least=20),
        Comparison("coba LinUCB", "LinUCB, 1000 sessions"),
        Comparison("coba LinTS", "LinTS, 1000 sessions"),
        Comparison("MABWiser LinUCB", "LinUCB, 1000 sessions", at_least=100),
        Comparison("MABWiser LinTS", "LinTS, 1000 sessions", at_least=100),
        Comparison("linear mmTS, 1000 sessions", "compiled loop linear mmTS", at_most=4),
        Comparison("linear mmTS, one session", "Vowpal Wabbit", at_most=1),
    ]
    title = f"linear: d={D}, K={K}, S={S} for mmTS and 1 for the rest"
    return report(title, race(contestants), comparisons, notes)


def _problem(
    theta: Array, n_rounds: int, n_sessions: int, rng: np.random.Generator
) -> tuple[Array, Array]:
    """Rewards `(T, n, K)` and contexts `(T, n, K, d)`."""
    contexts = rng.standard_normal((n_rounds, n_sessions, K, D))
    rewards = contexts @ theta
    return rewards + NOISE * rng.standard_normal(rewards.shape), contexts


def _vowpal_wabbit(rewards: Array, contexts: Array) -> list[Contestant]:
    """cb_explore_adf with its default epsilon-greedy exploration, the cheapest it has.

    Features come as numbers, so they are written as text and parsed: once per round, the same
    examples serve to predict and to learn.
    """
    import vowpalwabbit

    rows, table = contexts[:, 0].tolist(), rewards[:, 0].tolist()
    line = "| " + " ".join(f"{j}:%.6g" for j in range(D))

    def prepare() -> Callable[[], object]:
        workspace = vowpalwabbit.Workspace("--cb_explore_adf --quiet --random_seed 1")
        label, rng, actions = vowpalwabbit.LabelType.CONTEXTUAL_BANDIT, random.Random(1), range(K)

        def play() -> None:
            for row, reward in zip(rows, table, strict=True):
                examples = workspace.parse([line % tuple(x) for x in row], label)
                chances = workspace.predict(examples)
                action = rng.choices(actions, chances)[0]
                examples[action].set_label_string(f"0:{-reward[action]}:{chances[action]}")
                workspace.learn(examples)
                workspace.finish_example(examples)

        return play

    return [Contestant("Vowpal Wabbit", len(rows), prepare)]


def _coba(rewards: Array, contexts: Array) -> list[Contestant]:
    """`predict` and `learn` on the action features alone; actions as tuples."""
    import coba

    rows = [[tuple(x) for x in row] for row in contexts[:, 0].tolist()]
    table = rewards[:, 0].tolist()

    def contestant(name: str, make: Callable[..., Any]) -> Contestant:
        def prepare() -> Callable[[], object]:
            learner = make(features=["a"])

            def play() -> None:
                for row, reward in zip(rows, table, strict=True):
                    action, probability = learner.predict(None, row)[:2]
                    learner.learn(None, action, reward[row.index(action)], probability)

            return play

        return Contestant(name, len(rows), prepare)

    return [
        contestant("coba LinUCB", coba.LinUCBLearner),
        contestant("coba LinTS", coba.LinTSLearner),
    ]


def _mabwiser(rewards: Array, contexts: Array) -> list[Contestant]:
    """One context of d features per round and a model for each arm: its linear policies."""
    from mabwiser.mab import MAB, LearningPolicy

    n_rounds = 60
    shared, table = contexts[:, 0, 0], rewards[:, 0]

    def contestant(name: str, policy: Any) -> Contestant:
        def prepare() -> Callable[[], object]:
            bandit = MAB(list(range(K)), policy, seed=1)
            bandit.fit(np.arange(K), table[0], shared[:K])

            def play() -> None:
                for t in range(n_rounds):
                    arm = bandit.predict(shared[t : t + 1])
                    bandit.partial_fit(np.array([arm]), table[t, arm : arm + 1], shared[t : t + 1])

            return play

        return Contestant(name, n_rounds, prepare)

    return [
        contestant("MABWiser LinUCB", LearningPolicy.LinUCB(alpha=1.0, l2_lambda=1.0)),
        contestant("MABWiser LinTS", LearningPolicy.LinTS(alpha=1.0, l2_lambda=1.0)),
    ]


def _compiled(rewards: Array, contexts: Array, policy: mmTS) -> list[Contestant]:
    """The loop of mmTS, after a check that it is the same algorithm as ours."""
    from benchmarks import _compiled as compiled

    def prepare(n_sessions: int) -> tuple[Callable[[], None], Array, Any]:
        prior, rng = policy.model.parameters(n_sessions), np.random.default_rng(0)
        log_weights, mean, factor = (
            np.zeros((n_sessions, S)),
            prior.mean.copy(),
            prior.factor.copy(),
        )
        some = np.ascontiguousarray(contexts[:, :n_sessions]), rewards[:, :n_sessions].copy()
        actions = np.zeros(some[1].shape[:2], np.int64)

        def play() -> None:
            compiled.play_linear_mmts(*some, NOISE, log_weights, mean, factor, actions, rng)

        return play, log_weights, actions

    play, log_weights, actions = prepare(20)
    play()
    ours.check_same_posterior(policy, log_weights, actions, rewards[:, :20], contexts[:, :20])
    rounds = rewards.shape[0] * rewards.shape[1]
    return [Contestant("compiled loop linear mmTS", rounds, lambda: prepare(SESSIONS)[0])]
