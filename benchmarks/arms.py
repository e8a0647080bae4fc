"""K = 10 arms without context: against river, MABWiser and a compiled loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks import ours
from benchmarks.report import Report
from benchmarks.timing import Comparison, Contestant, optional, race, report
from latentbandits import TS, UCB1, GaussianArms, mmTS, mTS

K, S, NOISE, SPREAD = 10, 5, 0.5, 0.2
SESSIONS, BATCH_ROUNDS, SINGLE_ROUNDS = 1000, 50, 500

Array = np.ndarray[Any, np.dtype[np.float64]]


def main() -> Report:
    rng = np.random.default_rng(1)
    means = rng.random((S, K))
    batch = means[0] + NOISE * rng.standard_normal((BATCH_ROUNDS, SESSIONS, K))
    single = means[0] + NOISE * rng.standard_normal((SINGLE_ROUNDS, 1, K))
    policies: dict[str, Any] = {
        "UCB1": UCB1(n_actions=K),
        "TS": TS(n_actions=K, noise=NOISE, prior_mean=0.5),
        "mTS": mTS(GaussianArms(means, NOISE)),
        "mmTS": mmTS(GaussianArms(means, NOISE, SPREAD)),
    }
    notes: list[str] = []
    contestants = [
        *(ours.contestant(f"{name}, 1000 sessions", p, batch) for name, p in policies.items()),
        *(ours.contestant(f"{name}, one session", p, single) for name, p in policies.items()),
        *optional("river", lambda: _river(single), notes),
        *optional("mabwiser", lambda: _mabwiser(single), notes),
        *optional("numba", lambda: _compiled(batch, policies["mTS"], policies["mmTS"]), notes),
    ]
    comparisons = [
        Comparison("river UCB", "UCB1, 1000 sessions", at_least=15),
        Comparison("river TS", "TS, 1000 sessions", at_least=15),
        Comparison("river TS", "mTS, 1000 sessions", at_least=15),
        Comparison("river TS", "mmTS, 1000 sessions", at_least=15),
        Comparison("MABWiser UCB1", "UCB1, 1000 sessions", at_least=150),
        Comparison("MABWiser TS", "TS, 1000 sessions", at_least=150),
        Comparison("MABWiser TS", "mmTS, 1000 sessions", at_least=150),
        Comparison("mTS, 1000 sessions", "compiled loop mTS", at_most=2),
        Comparison("mmTS, 1000 sessions", "compiled loop mmTS", at_most=2),
        Comparison("mTS, one session", "river TS", at_most=3),
        Comparison("mmTS, one session", "MABWiser TS", at_most=1),
    ]
    return report(f"arms: K={K}, S={S}", race(contestants), comparisons, notes)


def _river(rewards: Array) -> list[Contestant]:
    """`pull` and `update`, with rewards as Python floats; TS with river's Gaussian rewards."""
    from river import bandit, proba

    table = rewards[:, 0].tolist()

    def contestant(name: str, make: Callable[[], Any]) -> Contestant:
        def prepare() -> Callable[[], object]:
            policy, arms = make(), list(range(K))

            def play() -> None:
                for row in table:
                    arm = policy.pull(arms)
                    policy.update(arm, row[arm])

            return play

        return Contestant(name, len(table), prepare)

    return [
        contestant("river UCB", lambda: bandit.UCB(delta=1.0, seed=1)),
        contestant("river TS", lambda: bandit.ThompsonSampling(proba.Gaussian(), seed=1)),
    ]


def _mabwiser(rewards: Array) -> list[Contestant]:
    """`predict` and `partial_fit`; its TS is for rewards of 0 and 1, so it is given those."""
    from mabwiser.mab import MAB, LearningPolicy

    table = rewards[:, 0].tolist()
    binary = (rewards[:, 0] > 0.5).astype(int).tolist()

    def contestant(name: str, policy: Any, table: list[list[Any]]) -> Contestant:
        def prepare() -> Callable[[], object]:
            bandit = MAB(list(range(K)), policy, seed=1)
            bandit.fit(list(range(K)), table[0])

            def play() -> None:
                for row in table:
                    arm = bandit.predict()
                    bandit.partial_fit([arm], [row[arm]])

            return play

        return Contestant(name, len(table), prepare)

    return [
        contestant("MABWiser UCB1", LearningPolicy.UCB1(alpha=1.0), table),
        contestant("MABWiser TS", LearningPolicy.ThompsonSampling(), binary),
    ]


def _compiled(rewards: Array, known: mTS, unsure: mmTS) -> list[Contestant]:
    """The loops of mTS and mmTS, after a check that they are the same algorithms as ours."""
    from benchmarks import _compiled as compiled

    model: Any = unsure.model
    variances = model.spread**2

    def play_mts(rewards: Array, log_weights: Array, actions: Any) -> None:
        rng = np.random.default_rng(0)
        compiled.play_mts(rewards, model.means, NOISE, log_weights, actions, rng)

    def play_mmts(rewards: Array, log_weights: Array, actions: Any) -> None:
        rng = np.random.default_rng(0)
        counts, sums = np.zeros((2, len(log_weights), K))
        compiled.play_mmts(
            rewards, model.means, variances, NOISE, log_weights, counts, sums, actions, rng
        )

    def contestant(name: str, play: Callable[..., None], policy: mTS | mmTS) -> Contestant:
        few = np.ascontiguousarray(rewards[:, :20])
        log_weights, actions = np.zeros((20, S)), np.zeros(few.shape[:2], np.int64)
        play(few, log_weights, actions)
        ours.check_same_posterior(policy, log_weights, actions, few)

        def prepare() -> Callable[[], object]:
            log_weights, actions = np.zeros((SESSIONS, S)), np.zeros(rewards.shape[:2], np.int64)
            return lambda: play(rewards, log_weights, actions)

        return Contestant(name, rewards.shape[0] * rewards.shape[1], prepare)

    return [
        contestant("compiled loop mTS", play_mts, known),
        contestant("compiled loop mmTS", play_mmts, unsure),
    ]
