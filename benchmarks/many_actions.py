"""Thousands of actions: IDS beside its draws, linear policies beside one product of the catalogue.

Memory is the peak of what one decision allocates (tracemalloc), beside the catalogue itself.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.report import Report, Table, Target
from benchmarks.timing import Contestant, race
from latentbandits import (
    GaussianArms,
    LinearGaussian,
    mIDS,
    mmBayesUCB,
    mmGreedy,
    mmIDS,
    mmTS,
    mUCB,
)

STATES, NOISE, SPREAD, DRAWS = 5, 0.5, 0.2, 100
SIZES = (1_000, 10_000)
CATALOGUE, FEATURES = 100_000, 20


def main() -> Report:
    rng = np.random.default_rng(1)
    contestants: list[Contestant] = []
    for k in SIZES:
        model = GaussianArms(rng.random((STATES, k)), NOISE, SPREAD)
        state = np.sort(rng.integers(STATES, size=(1, DRAWS)), axis=1)
        parameters = model.parameters(1)
        contestants += [
            _calls(f"draws, K={k}", lambda m=model, p=parameters, s=state: m.sample_rewards(
                p, None, s, rng)),
            *(_decides(f"{policy.name}, K={k}", policy, None, rng)
              for policy in (mUCB(model), mIDS(model), mmIDS(model), mmBayesUCB(model))),
        ]  # fmt: skip
    items = rng.standard_normal((1, CATALOGUE, FEATURES)) / np.sqrt(FEATURES)
    weights = rng.standard_normal((STATES, FEATURES))
    linear = LinearGaussian(weights, NOISE, np.tile(0.1 * np.eye(FEATURES), (STATES, 1, 1)))
    contestants.append(_calls("product, K=100000", lambda: weights @ items[0].T))
    policies: dict[str, Any] = {"linear mmGreedy": mmGreedy(linear), "linear mmTS": mmTS(linear)}
    contestants += [
        _decides(f"{name}, K=100000", policy, items, rng) for name, policy in policies.items()
    ]
    timings = race(contestants, repeats=7)
    table = Table(
        "µs per decision",
        ("contestant", "best", "median"),
        tuple((name, timing.best, timing.median) for name, timing in timings.items()),
    )

    def ratio(slow: str, fast: str, at_most: float) -> Target:
        value = timings[slow].best / timings[fast].best
        return Target(f"{slow} / {fast}", value, at_most=at_most)

    targets = [
        *(ratio(f"mmIDS, K={k}", f"draws, K={k}", 2) for k in SIZES),
        *(ratio(f"mIDS, K={k}", f"mUCB, K={k}", 3) for k in SIZES),
        *(ratio(f"{name}, K=100000", "product, K=100000", 3) for name in policies),
        *(
            Target(f"{name}: MB that a decision allocates", _megabytes(policy, items, rng),
                   at_most=200)
            for name, policy in policies.items()
        ),
    ]  # fmt: skip
    return Report("many actions, one session", (table,), tuple(targets))


def _calls(name: str, call: Callable[[], object]) -> Contestant:
    return Contestant(name, 1, lambda: call)


def _decides(name: str, policy: Any, context: Any, rng: np.random.Generator) -> Contestant:
    belief = policy.init()
    return _calls(name, lambda: policy.decide(belief, context, rng, propensity=False))


def _megabytes(policy: Any, context: Any, rng: np.random.Generator) -> float:
    belief = policy.init()
    tracemalloc.start()
    policy.decide(belief, context, rng, propensity=False)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / 1e6
