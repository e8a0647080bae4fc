"""Table iv: 50 users and 60 items of rank 3; particle Thompson sampling and related policies."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from latentbandits.environments import Population
from latentbandits.environments.population import Crowd
from latentbandits.models.checks import FloatArray
from latentbandits.models.linear.gaussian import LinearGaussian
from latentbandits.policies import TS, UCB1, mmTS
from latentbandits.policies.protocol import AnyPolicy
from latentbandits_related.nmf import NMFBandit
from latentbandits_related.particle_mf import Factor, ParticleMF
from latentbandits_related.per_user import PerUser
from latentbandits_related.reproduce.baselines import RidgeALS
from latentbandits_related.reproduce.table import Column, Reference, RelatedTable, Row, always

USERS, ITEMS, RANK, NOISE, ROUNDS = 50, 60, 3, 0.25, 10_000
KNOWN = "TS, item factors known"
MOMENTS = "TS, item factors and moments of users known"


@dataclass(frozen=True, eq=False)
class PrintedParticleMF(ParticleMF):
    """Particle Thompson sampling with the printed weights, of variance 1 / sigma^2 + V' L V."""

    def _variance(self, factor: Factor, spread: FloatArray, row: FloatArray) -> FloatArray:
        quadratic = (row[..., None, :] @ factor.precision @ row[..., None])[..., 0, 0]
        return 1 / self.noise**2 + quadratic


def columns(quick: bool) -> list[Column]:
    runs, rounds = (2, 40) if quick else (6, ROUNDS)
    return [
        _column(0.5, runs, rounds, {
            "UCB per cell": Reference(2812, 50, 3),
            "TS per cell": Reference(2184, 31, 3),
            "TS, one for all": Reference(486, 69, 3),
            "ParticleMF": Reference(508, 14, 3),
            "ParticleMF, weights as printed": Reference(561, 50, 3),
            "ridge ALS": Reference(954, 80, 3),
            KNOWN: Reference(358, 17, 3),
        }),
        _column(0.1, runs, rounds, {
            "TS per cell": Reference(2036, 26, 3),
            "TS, one for all": Reference(765, 225, 3),
            "ParticleMF": Reference(523, 91, 3),
            "ParticleMF, weights as printed": Reference(682, 62, 3),
            "ridge ALS": Reference(914, 26, 3),
            KNOWN: Reference(323, 23, 3),
        }),
    ]  # fmt: skip


def _column(
    concentration: float, runs: int, rounds: int, references: dict[str, Reference]
) -> Column:
    def users(n_runs: int, rng: np.random.Generator) -> Crowd:
        return Crowd(rng.dirichlet(np.full(RANK, concentration), size=(n_runs, USERS)))

    def items(n_runs: int, rng: np.random.Generator) -> FloatArray:
        return rng.random((n_runs, ITEMS, RANK))

    ts = TS(ITEMS, NOISE, 0.5, (1 / 12) ** 0.5)
    particles = dict(rank=RANK, noise=NOISE, centre=0.5, user_spread=0.5, item_spread=0.5)
    # The prior of a user's weights in the reference is assumed to be N(0, I), the default of
    # particle Thompson sampling. A prior with the moments of the Dirichlet does better.
    plain = LinearGaussian(np.zeros((1, RANK)), NOISE, np.eye(RANK)[None])
    moment = (np.eye(RANK) - 1 / RANK) / RANK / (RANK * concentration + 1) + 1e-9 * np.eye(RANK)
    factors = LinearGaussian(np.full((1, RANK), 1 / RANK), NOISE, moment[None])
    policies: dict[str, AnyPolicy] = {
        "UCB per cell": PerUser(UCB1(ITEMS, NOISE), USERS),
        "TS per cell": PerUser(ts, USERS),
        "TS, one for all": PerUser(ts, USERS, shared=True),
        "ParticleMF": ParticleMF(USERS, ITEMS, **particles),  # type: ignore[arg-type]
        "ParticleMF, weights as printed": PrintedParticleMF(USERS, ITEMS, **particles),  # type: ignore[arg-type]
        "NMFBandit": NMFBandit(USERS, ITEMS, RANK),
        "ridge ALS": RidgeALS(USERS, ITEMS, RANK),
        KNOWN: PerUser(mmTS(plain), USERS),
        MOMENTS: PerUser(mmTS(factors), USERS),
    }
    rows = {}
    for name, policy in policies.items():
        world = Population(users, items, NOISE, item_ids=name not in (KNOWN, MOMENTS))
        rows[name] = Row(world, always(policy), references.get(name))
    return Column(f"c={concentration:g}", rows, runs, rounds)


TABLE = RelatedTable("iv", "Users times items: 50 x 60, rank 3", columns, True)
