"""What each policy costs on the paper's synthetic problem, batched and for one session."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks import ours
from benchmarks.report import Report, Table
from benchmarks.timing import race
from latentbandits import (
    EXP4,
    TS,
    UCB1,
    GaussianArms,
    mIDS,
    mmGreedy,
    mmIDS,
    mmTS,
    mmUCB,
    mTS,
    mUCB,
)

K, S, NOISE, SPREAD, HORIZON = 10, 5, 0.5, 0.2, 500
SESSIONS, BATCH_ROUNDS, SINGLE_ROUNDS = 500, 10, 100


def main() -> Report:
    rng = np.random.default_rng(1)
    means = rng.random((SESSIONS, S, K))
    batch = means[:, 0] + NOISE * rng.standard_normal((BATCH_ROUNDS, SESSIONS, K))
    single = means[0, 0] + NOISE * rng.standard_normal((SINGLE_ROUNDS, 1, K))
    many = _policies(GaussianArms(means, NOISE, SPREAD))
    one = _policies(GaussianArms(means[0], NOISE, SPREAD))
    timings = race(
        [
            *(ours.contestant(f"{name} many", policy, batch) for name, policy in many.items()),
            *(ours.contestant(f"{name} one", policy, single) for name, policy in one.items()),
        ]
    )
    rows = [(name, timings[f"{name} many"].best, timings[f"{name} one"].best) for name in many]
    columns = ("policy", f"{SESSIONS} sessions, each with its own model", "one session")
    table = Table("µs per decision-and-update", columns, tuple(rows))
    return Report(f"every policy on arms: K={K}, S={S}, without propensities", (table,))


def _policies(model: GaussianArms) -> dict[str, Any]:
    return {
        "UCB1": UCB1(K),
        "TS": TS(K, NOISE, prior_mean=0.5),
        "EXP4": EXP4(model, horizon=HORIZON),
        "mUCB": mUCB(model, horizon=HORIZON),
        "mmUCB": mmUCB(model, horizon=HORIZON),
        "mTS": mTS(model),
        "mmTS": mmTS(model),
        "mIDS": mIDS(model),
        "mmIDS": mmIDS(model),
        "mmGreedy": mmGreedy(model),
    }
