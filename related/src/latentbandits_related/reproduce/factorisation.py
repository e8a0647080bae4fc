"""Table iv: 50 users and 60 items of rank 3; particle Thompson sampling and related policies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from latentbandits.environments import Population
from latentbandits.environments.population import Crowd
from latentbandits.learning.linear.completion import complete
from latentbandits.models.checks import FloatArray
from latentbandits.models.linear.gaussian import LinearGaussian
from latentbandits.policies import TS, UCB1, mmTS
from latentbandits.policies.protocol import AnyPolicy
from latentbandits_related.nmf import NMFBandit
from latentbandits_related.particle_mf import Factor, ParticleMF
from latentbandits_related.per_user import PerUser
from latentbandits_related.reproduce.table import Column, Reference, RelatedTable, Row, always

USERS, ITEMS, RANK, NOISE, ROUNDS = 50, 60, 3, 0.25, 10_000
CONCENTRATIONS, REFERENCE_RUNS = (0.5, 0.1), 3
KNOWN = "TS, item factors known"
MOMENTS = "TS, item factors and moments of users known"

Pair = tuple[tuple[float, float] | None, tuple[float, float] | None]
"""Mean and standard error of the reference, by concentration."""


@dataclass(frozen=True, eq=False)
class PrintedParticleMF(ParticleMF):
    """Particle Thompson sampling with the printed weights, of variance 1 / sigma^2 + V' L V."""

    def _variance(self, factor: Factor, spread: FloatArray, row: FloatArray) -> FloatArray:
        quadratic = (row[..., None, :] @ factor.precision @ row[..., None])[..., 0, 0]
        return 1 / self.noise**2 + quadratic


@dataclass(frozen=True, eq=False)
class RidgeALS(NMFBandit):
    """Epsilon-greedy on a completion of all cells by alternating ridge regressions.

    Epsilon and the times of refits are as in `NMFBandit`, but every user explores all items, and
    the estimate uses all cells, weighted by how often they were played.
    """

    ridge: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "_probe_users", np.arange(self.n_users))

    def _fit(self, counts: FloatArray, sums: FloatArray) -> FloatArray:
        user, item = np.nonzero(counts)
        played = counts[user, item]
        fit = complete(
            user,
            item,
            sums[user, item] / played,
            rank=self.rank,
            reg=self.ridge,
            weights=played,
            n_users=self.n_users,
            n_actions=self.n_items,
            threads=1,
        )
        return np.asarray(fit.user_vectors @ fit.action_vectors.T, np.float64)


def columns(quick: bool) -> list[Column]:
    runs, rounds = (2, 40) if quick else (6, ROUNDS)
    return [_column(place, runs, rounds) for place in range(len(CONCENTRATIONS))]


def _column(place: int, runs: int, rounds: int) -> Column:
    concentration = CONCENTRATIONS[place]

    def users(n_runs: int, rng: np.random.Generator) -> Crowd:
        return Crowd(rng.dirichlet(np.full(RANK, concentration), size=(n_runs, USERS)))

    def items(n_runs: int, rng: np.random.Generator) -> FloatArray:
        return rng.random((n_runs, ITEMS, RANK))

    ts = TS(ITEMS, NOISE, 0.5, (1 / 12) ** 0.5)
    particles: dict[str, Any] = dict(
        rank=RANK, noise=NOISE, centre=0.5, user_spread=0.5, item_spread=0.5
    )
    # The prior of a user's weights in the reference is assumed to be N(0, I), the default of
    # particle Thompson sampling. A prior with the moments of the Dirichlet does better.
    plain = LinearGaussian(np.zeros((1, RANK)), NOISE, np.eye(RANK)[None])
    moment = (np.eye(RANK) - 1 / RANK) / RANK / (RANK * concentration + 1) + 1e-9 * np.eye(RANK)
    factors = LinearGaussian(np.full((1, RANK), 1 / RANK), NOISE, moment[None])
    policies: dict[str, tuple[AnyPolicy, Pair | None]] = {
        "UCB per cell": (PerUser(UCB1(ITEMS, NOISE), USERS), ((2812, 50), None)),
        "TS per cell": (PerUser(ts, USERS), ((2184, 31), (2036, 26))),
        "TS, one for all": (PerUser(ts, USERS, shared=True), ((486, 69), (765, 225))),
        "ParticleMF": (ParticleMF(USERS, ITEMS, **particles), ((508, 14), (523, 91))),
        "ParticleMF, weights as printed": (
            PrintedParticleMF(USERS, ITEMS, **particles), ((561, 50), (682, 62))),
        "NMFBandit": (NMFBandit(USERS, ITEMS, RANK), None),
        "ridge ALS": (RidgeALS(USERS, ITEMS, RANK), ((954, 80), (914, 26))),
        KNOWN: (PerUser(mmTS(plain), USERS), ((358, 17), (323, 23))),
        MOMENTS: (PerUser(mmTS(factors), USERS), None),
    }  # fmt: skip
    rows = {}
    for name, (policy, pair) in policies.items():
        world = Population(users, items, NOISE, item_ids=name not in (KNOWN, MOMENTS))
        value = None if pair is None else pair[place]
        reference = None if value is None else Reference(*value, REFERENCE_RUNS)
        rows[name] = Row(world, always(policy), reference)
    return Column(f"c={concentration:g}", rows, runs, rounds)


TABLE = RelatedTable("iv", "Users times items: 50 x 60, rank 3", columns, True)
