"""Policies that learn across users: cost per round of one population, and how it grows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from tests.reference.population import (
    TextbookCLUB,
    TextbookDynUCB,
    TextbookGrouped,
    TextbookParticleMF,
    TextbookSCLUB,
)

from benchmarks.report import Report
from benchmarks.timing import Comparison, Contestant, race, report
from latentbandits import LinearGaussian, LinUCB, mmTS
from latentbandits.models.visit import Visit
from latentbandits.policies.decision import Decision
from latentbandits.policies.shared import HierTS, Phased
from latentbandits_related import CLUB, SCLUB, DynUCB, ParticleMF
from latentbandits_related.per_user import GroupedLinUCB

D, K, NOISE, CLUSTERS = 10, 20, 0.3, 10
FEW, MANY = 200, 20_000
WARM_UP, ROUNDS, SLOW_ROUNDS, SIDE_BY_SIDE = 1000, 200, 20, 8
REPEATS = 5

Array = np.ndarray[Any, np.dtype[np.float64]]


def main() -> Report:
    contestants = [
        *(_ours(f"{name}, {FEW} users", make, FEW, 1) for name, make in POLICIES.items()),
        *(_ours(f"{name}, {MANY} users", make, MANY, 1) for name, make in POLICIES.items()),
        *(
            _ours(f"{name}, {SIDE_BY_SIDE} populations", make, FEW, SIDE_BY_SIDE)
            for name, make in POLICIES.items()
        ),
        *_textbooks(),
        *_particles(),
    ]
    per_user = f"LinUCB per user, {FEW} users"
    comparisons = [
        Comparison(f"CLUB, {FEW} users", per_user, at_most=3),
        Comparison(f"DynUCB, {FEW} users", per_user, at_most=3),
        Comparison(f"SCLUB, {FEW} users", per_user, at_most=10),
        *(
            Comparison(f"{name}, {MANY} users", f"{name}, {FEW} users", at_most=bound)
            for name, bound in GROWTH.items()
        ),
        *(
            Comparison(f"{name}, {SIDE_BY_SIDE} populations", f"{name}, {FEW} users", at_most=1)
            for name in POLICIES
        ),
        *(Comparison(f"textbook {name}", f"{name}, {FEW} users") for name in TEXTBOOKS),
        Comparison("ParticleMF, 50 x 60", "textbook ParticleMF, 50 x 60", at_most=1),
    ]
    title = f"population: d={D}, K={K}, one round of one population after {WARM_UP} rounds"
    return report(title, race(contestants, REPEATS), comparisons)


def _phased(n: int) -> Phased:
    rng = np.random.default_rng(2)
    weights = rng.standard_normal((15, D)) / np.sqrt(D)
    model = LinearGaussian(weights, NOISE, np.tile(0.01 * np.eye(D), (15, 1, 1)))
    return Phased(LinUCB(D), lambda sums: model, mmTS, n, D, first=10, factor=1e9)


POLICIES: dict[str, Callable[[int], Any]] = {
    "LinUCB per user": lambda n: GroupedLinUCB(D, np.arange(n)),
    "CLUB": lambda n: CLUB(n, D, graph="sparse"),
    "SCLUB": lambda n: SCLUB(n, D),
    "DynUCB": lambda n: DynUCB(n, D),
    "HierTS": lambda n: HierTS(n, D, NOISE),
    "Phased": _phased,
}
GROWTH = {"CLUB": 100.0, "SCLUB": 100.0, "DynUCB": 1.5, "HierTS": 1.5, "Phased": 1.5}
"""From 200 to 20,000 users: linear is 100 times, flat is the same within the noise of a timing."""


def _visits(
    n_users: int, n_populations: int, n_rounds: int, seed: int
) -> list[tuple[Visit, Array]]:
    """Visits and the reward of every action, of users in clusters."""
    rng = np.random.default_rng(seed)
    centres = rng.standard_normal((CLUSTERS, D)) / np.sqrt(D)
    results = []
    for _ in range(n_rounds):
        user = rng.integers(n_users, size=n_populations)
        x = rng.standard_normal((n_populations, K, D)) / np.sqrt(D)
        means = (x @ centres[user % CLUSTERS][:, :, None])[:, :, 0]
        results.append((Visit(user, x), means + NOISE * rng.standard_normal(means.shape)))
    return results


def _ours(name: str, make: Callable[[int], Any], n_users: int, n_populations: int) -> Contestant:
    """Rounds of populations that have seen `WARM_UP` rounds; time is per round and population."""
    policy = make(n_users)
    population = np.arange(n_populations)

    def play(belief: Any, visits: list[tuple[Visit, Array]], rng: np.random.Generator) -> Any:
        for visit, rewards in visits:
            decision = policy.decide(belief, visit, rng, propensity=False)
            reward = rewards[population, decision.action]
            belief = policy.update(belief, visit, decision, reward)
        return belief

    warm: list[Any] = []

    def prepare() -> Callable[[], object]:
        if not warm:
            start = _visits(n_users, n_populations, WARM_UP, 1)
            warm.append(play(policy.init(n_populations), start, np.random.default_rng(1)))
            warm.append(_visits(n_users, n_populations, ROUNDS, 3))
        return lambda: play(warm[0], warm[1], np.random.default_rng(4))

    return Contestant(name, ROUNDS * n_populations, prepare)


TEXTBOOKS: dict[str, Callable[[], Any]] = {
    "LinUCB per user": lambda: TextbookGrouped(range(FEW), D, 0.1),
    "CLUB": lambda: TextbookCLUB(FEW, D, 0.1, 1.0, _pairs()),
    "SCLUB": lambda: TextbookSCLUB(FEW, D, 0.1, 1.0, 2**0.5),
    "DynUCB": lambda: TextbookDynUCB(np.arange(FEW) % 20, D, 20, 0.1),
}


def _pairs() -> set[tuple[int, int]]:
    graph = CLUB(FEW, D, graph="sparse")._graph
    source, neighbour, _ = graph.edges(np.arange(FEW))
    return set(zip(source.tolist(), neighbour.tolist(), strict=True))


def _textbooks() -> list[Contestant]:
    """The papers' loops, from the start: they have no state to copy."""

    def contestant(name: str, make: Callable[[], Any]) -> Contestant:
        visits = _visits(FEW, 1, SLOW_ROUNDS, 3)

        def prepare() -> Callable[[], object]:
            policy = make()

            def play() -> None:
                for visit, rewards in visits:
                    user, x = int(visit.user[0]), visit.features[0]  # type: ignore[index]
                    action = int(policy.indices(user, x).argmax())
                    policy.update(user, x[action], rewards[0, action])

            return play

        return Contestant(f"textbook {name}", SLOW_ROUNDS, prepare)

    return [contestant(name, make) for name, make in TEXTBOOKS.items()]


def _particles() -> list[Contestant]:
    """30 particles on 50 users and 60 items, and the same as a loop over particles."""
    n_users, n_items, n_rounds = 50, 60, 50
    rng = np.random.default_rng(5)
    rounds = list(
        zip(
            rng.integers(n_users, size=n_rounds).tolist(),
            rng.normal(size=(n_rounds, n_items)),
            strict=True,
        )
    )
    policy = ParticleMF(n_users, n_items)

    def ours() -> Callable[[], object]:
        def play() -> None:
            belief, own = policy.init(), np.random.default_rng(6)
            for user, rewards in rounds:
                visit = Visit(np.array([user]))
                decision: Decision = policy.decide(belief, visit, own, propensity=False)
                belief = policy.update(belief, visit, decision, rewards[decision.action])

        return play

    def textbook() -> Callable[[], object]:
        loop = TextbookParticleMF(n_users, n_items, 30, 2, 0.5**0.5, np.random.default_rng(6))

        def play() -> None:
            for user, rewards in rounds:
                item = loop.decide(user)
                loop.update(user, item, rewards[item])

        return play

    return [
        Contestant("ParticleMF, 50 x 60", n_rounds, ours),
        Contestant("textbook ParticleMF, 50 x 60", n_rounds, textbook),
    ]
