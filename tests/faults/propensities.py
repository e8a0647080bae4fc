"""The frequency of actions agrees with the propensities that the service states."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from latentbandits import save
from tests.faults.load import arms
from tests.faults.table import Result
from tests.processes.http import Connection
from tests.processes.service import RunningService

EXACT = ("mTS", "mUCB", "mmUCB", "mIDS", "mmGreedy", "EXP4", "UCB1", "uniform", "mmTS", "TS")
"""Policies that state an exact propensity, or one by quadrature, exact to 1e-6."""

LEVEL = 0.001


def run(folder: Path, full: bool) -> list[Result]:
    decisions = 100_000 if full else 3_000
    policies = EXACT if full else ("mTS", "EXP4", "mmTS")
    save(arms(0), folder / "models" / "arms")
    results = []
    for policy in policies:
        service = RunningService(
            folder / "models" / "arms", "--policy", policy, "--propensity", "policy", folder=folder
        )
        with service:
            p, kinds = asyncio.run(_test(service, decisions))
            if p <= LEVEL:  # one in a thousand does by chance; one in a million does so twice
                p, kinds = asyncio.run(_test(service, decisions))
        results.append(
            Result(f"propensities of {policy} ({', '.join(sorted(kinds))})",
                   f"{decisions} decisions, chi-square p = {p:.3f}", p > LEVEL)
        )  # fmt: skip
    return results


async def _test(service: RunningService, decisions: int) -> tuple[float, set[str]]:
    connection = Connection(service.port)
    rng = np.random.default_rng(5)
    for _ in range(6):
        reply = await connection.post("/v1/decide", {"session": "x"})
        told = {"decision_id": reply.json()["decision_id"], "value": float(rng.normal(0.5, 0.5))}
        await connection.post("/v1/reward", told)
    answers: list[dict[str, Any]] = []
    for _ in range(decisions // 100):
        reply = await connection.post("/v1/decide", [{"session": "x"}] * 100)
        answers += reply.json()
    connection.close()
    return chi_square(answers), {answer["propensity_kind"] for answer in answers}


def chi_square(answers: list[dict[str, Any]]) -> float:
    """The p-value of the counts of actions, given the chance that was stated with each.

    The belief does not change in between, so an action's chance is the same every time; what is
    left to one is the chance of all actions that were never played.
    """
    counts = Counter(answer["action"] for answer in answers)
    chances = {answer["action"]: answer["propensity"] for answer in answers}
    spread = max(abs(a["propensity"] - chances[a["action"]]) for a in answers)
    if spread > 1e-9 or sum(chances.values()) > 1 + 1e-6:
        return 0.0
    observed = [*counts.values(), 0]
    expected = [len(answers) * chances[action] for action in counts]
    expected.append(max(len(answers) - sum(expected), 0.0))
    if expected[-1] < 1e-3:  # none is left
        observed, expected = observed[:-1], expected[:-1]
    if len(observed) == 1:
        return 1.0
    scale = sum(observed) / sum(expected)
    return float(stats.chisquare(observed, [e * scale for e in expected]).pvalue)
