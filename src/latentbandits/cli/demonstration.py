"""The demonstration of `serve --demo`: a model of generated ratings, and simulated visitors."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from latentbandits.learning.generate import GeneratedRatings, generate_ratings
from latentbandits.learning.linear.clusters import lloyd, seeds, usable_covariance
from latentbandits.models import LinearGaussian
from latentbandits.models.artefacts import Catalogue
from latentbandits.models.checks import FloatArray
from latentbandits.serving.engine.engine import Engine
from latentbandits.serving.engine.values import DecisionRequest, RewardReport
from latentbandits.serving.errors import Refused
from latentbandits.serving.http.service import Service

_N_STATES, _N_USERS, _RANK = 4, 400, 4
_FIRST = ("Silent", "Golden", "Last", "Electric", "Paper", "Crimson", "Hidden", "Northern", "Lost",
          "Broken")  # fmt: skip
_SECOND = ("Harbour", "Orchard", "Signal", "Mountain", "Carnival", "Letters")
_TITLES = [f"{first} {second}" for first, second in product(_FIRST, _SECOND)]
_ROUNDS = 30  # rounds of a visitor's session
_OFFERED = 12  # films offered per round
_TOGETHER = 4  # visitors at a time


@dataclass(frozen=True, eq=False)
class Demonstration:
    """A model and its catalogue, and the truth that they were learned from."""

    model: LinearGaussian
    catalogue: Catalogue
    truth: GeneratedRatings

    def visitors(self, service: Service, rate: float) -> Callable[[], Coroutine[Any, Any, None]]:
        """Return a coroutine of simulated visitors, who ask for `rate` decisions a second."""

        async def visit(rng: np.random.Generator) -> None:
            truth = self.truth.model
            while True:
                state = rng.choice(truth.n_states, p=truth.state_prior)
                taste = rng.multivariate_normal(truth.weights[state], truth.covariances[state])
                name = f"visitor-{rng.integers(10**9):09d}"
                for _ in range(_ROUNDS):
                    await asyncio.sleep(float(rng.exponential(_TOGETHER / rate)))
                    try:
                        await service.writer.run(partial(_round, self, name, taste, rng))
                    except Refused:
                        await asyncio.sleep(1.0)

        async def together() -> None:
            await asyncio.gather(*(visit(np.random.default_rng()) for _ in range(_TOGETHER)))

        return together


def demonstration(seed: int = 0) -> Demonstration:
    """Return a model of generated film ratings: matrix completion, then clusters as states."""
    truth = generate_ratings(
        _N_USERS, len(_TITLES), _N_STATES, density=0.4, separation=1.5, seed=seed
    )
    completion = truth.complete(rank=_RANK)
    users = completion.user_vectors
    _, label = lloyd(users, seeds(users, _N_STATES, np.random.default_rng(seed)), steps=20)
    groups = [users[label == s] for s in range(_N_STATES)]
    model = LinearGaussian(
        np.stack([group.mean(axis=0) for group in groups]),
        completion.noise,
        np.stack([usable_covariance(group)[0] for group in groups]),
        np.array([len(group) for group in groups]) / len(users),
    )
    ids = [title.lower().replace(" ", "-") for title in _TITLES]
    return Demonstration(model, Catalogue(ids, _TITLES, completion.action_vectors), truth)


def _round(
    demo: Demonstration, name: str, taste: FloatArray, rng: np.random.Generator, engine: Engine
) -> None:
    """Play one round of a visitor: offer some films, decide, and report the rating."""
    offered = rng.choice(len(demo.catalogue), _OFFERED, replace=False)
    request = DecisionRequest(name, actions=[demo.catalogue.ids[i] for i in offered])
    decided = engine.decide(request)
    mean = taste @ demo.truth.action_vectors[offered[decided.index]]
    value = float(rng.normal(mean, demo.truth.model.noise))
    engine.reward(RewardReport(decided.decision_id, value))
