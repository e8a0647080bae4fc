"""The demonstration: a model learned from generated ratings, and visitors who use the service."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import numpy as np

from latentbandits.models import GaussianArms
from latentbandits.models.checks import FloatArray
from latentbandits.serving.engine import Engine
from latentbandits.serving.errors import Refused
from latentbandits.serving.library import ServedModel
from latentbandits.serving.messages import DecideRequest, RewardRequest
from latentbandits.serving.service import Service

_N_STATES, _N_ACTIONS, _N_USERS = 4, 12, 400
_NOISE, _SPREAD = 0.7, 0.3
_ROUNDS = 30  # of a visitor's session


def learn_model(seed: int = 0) -> GaussianArms:
    """Ratings of generated users, clustered by k-means: their clusters are the states."""
    rng = np.random.default_rng(seed)
    centres = rng.uniform(2.0, 4.5, (_N_STATES, _N_ACTIONS))
    state = rng.integers(_N_STATES, size=_N_USERS)
    users = centres[state] + _SPREAD * rng.standard_normal((_N_USERS, _N_ACTIONS))
    ratings = users + _NOISE / 2 * rng.standard_normal(users.shape)  # four ratings of each
    label = _k_means(ratings, _N_STATES, rng)
    groups = [ratings[label == s] for s in range(_N_STATES)]
    return GaussianArms(
        np.stack([group.mean(axis=0) for group in groups]),
        noise=_NOISE,
        spread=np.stack([group.std(axis=0) for group in groups]),
        state_prior=np.array([len(group) for group in groups]) / _N_USERS,
    )


def _k_means(rows: FloatArray, k: int, rng: np.random.Generator) -> Any:
    """Lloyd's iterations from the farthest of random rows; the groups here lie far apart."""
    centres = rows[rng.integers(len(rows), size=1)]
    while len(centres) < k:
        distance = ((rows[:, None] - centres) ** 2).sum(axis=2).min(axis=1)
        centres = np.vstack([centres, rows[distance.argmax()]])
    for _ in range(20):
        label = ((rows[:, None] - centres) ** 2).sum(axis=2).argmin(axis=1)
        centres = np.stack([rows[label == s].mean(axis=0) for s in range(k)])
    return label


def play(
    service: Service, served: ServedModel, rate: float
) -> Callable[[], Coroutine[Any, Any, None]]:
    """Visitors drawn from the model, a few at a time, each with a taste of its own."""

    async def visitors() -> None:
        rng = np.random.default_rng()
        n = 0
        while True:
            n += 1
            state = rng.choice(served.model.n_states, p=served.model.state_prior)
            taste = rng.normal(served.model.means[state], served.model.spread[state])
            await _visit(service, f"visitor-{rng.integers(10**9):09d}", taste, rate, rng)

    async def together() -> None:
        await asyncio.gather(*(visitors() for _ in range(4)))

    return together


def _round(name: str, taste: FloatArray, rng: np.random.Generator, engine: Engine) -> None:
    decided = engine.decide(DecideRequest(name))
    value = float(rng.normal(taste[decided.index], _NOISE))
    engine.reward(RewardRequest(decided.decision_id, value))


async def _visit(
    service: Service, name: str, taste: FloatArray, rate: float, rng: np.random.Generator
) -> None:
    for _ in range(_ROUNDS):
        await asyncio.sleep(float(rng.exponential(4 / rate)))
        try:
            await service.writer.run(partial(_round, name, taste, rng))
        except Refused:
            await asyncio.sleep(1.0)
