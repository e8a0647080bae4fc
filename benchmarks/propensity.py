"""What a propensity costs, and that not asking for one costs nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks import ours
from benchmarks.report import Report
from benchmarks.timing import Comparison, Contestant, race, report
from latentbandits import GaussianArms, mmTS, mTS
from latentbandits.beliefs import joint
from latentbandits.beliefs.joint import JointBelief
from latentbandits.policies import decision

K, S, NOISE, SPREAD = 10, 5, 0.5, 0.2
SESSIONS, BATCH_ROUNDS, SINGLE_ROUNDS = 1000, 10, 200

Array = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True)
class WithoutTheFeature:
    """Steps of mmTS and nothing else: what `decide` would cost if propensities did not exist."""

    policy: mmTS

    def play(self, rewards: Array) -> JointBelief:
        n_rounds, n_sessions, _ = rewards.shape
        policy, model = self.policy, self.policy.model
        belief, rng = policy.init(n_sessions), np.random.default_rng(0)
        sessions = np.arange(n_sessions)
        for t in range(n_rounds):
            state = joint.sample(belief.log_weights, rng)
            draws = model.sample_rewards(belief.parameters, None, state[:, None], rng)
            action = decision.pick_best(draws[:, 0], None, rng)
            log_predictive, parameters = model.condition(
                belief.parameters, None, action, rewards[t][sessions, action]
            )
            belief = JointBelief(belief.log_weights + log_predictive, parameters)
        return belief

    def contestant(self, name: str, rewards: Array) -> Contestant:
        def prepare() -> Callable[[], object]:
            return lambda: self.play(rewards)

        return Contestant(name, rewards.shape[0] * rewards.shape[1], prepare)


def main() -> Report:
    rng = np.random.default_rng(1)
    means = rng.random((S, K))
    batch = means[0] + NOISE * rng.standard_normal((BATCH_ROUNDS, SESSIONS, K))
    single = means[0] + NOISE * rng.standard_normal((SINGLE_ROUNDS, 1, K))
    known, unsure = mTS(GaussianArms(means, NOISE)), mmTS(GaussianArms(means, NOISE, SPREAD))
    plain = WithoutTheFeature(unsure)
    contestants = []
    for where, rewards in (("1000 sessions", batch), ("one session", single)):
        contestants += [
            plain.contestant(f"mmTS's steps alone, {where}", rewards),
            ours.contestant(f"mmTS, {where}", unsure, rewards),
            ours.contestant(f"mmTS with quadrature, {where}", unsure, rewards, propensity=True),
            ours.contestant(f"mTS, {where}", known, rewards),
            ours.contestant(f"mTS with exact propensity, {where}", known, rewards, propensity=True),
        ]
    comparisons = [
        Comparison("mmTS, 1000 sessions", "mmTS's steps alone, 1000 sessions", at_most=1.1),
        Comparison("mmTS, one session", "mmTS's steps alone, one session"),
        Comparison("mmTS with quadrature, 1000 sessions", "mmTS, 1000 sessions"),
        Comparison("mmTS with quadrature, one session", "mmTS, one session"),
        Comparison("mTS with exact propensity, 1000 sessions", "mTS, 1000 sessions"),
        Comparison("mTS with exact propensity, one session", "mTS, one session"),
    ]
    title = f"propensities: K={K}, S={S}; a check of every input is part of decide and update"
    return report(title, race(contestants), comparisons)
