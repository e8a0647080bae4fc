"""Table iii: clicks with one good row and column; elimination compared with policies on pairs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from latentbandits.environments.protocol import Round
from latentbandits.models.arms.dirichlet import BernoulliArms
from latentbandits.models.checks import FloatArray
from latentbandits.policies import UCB1, mmTS
from latentbandits.policies.protocol import AnyPolicy
from latentbandits_related.rank1 import Rank1Elim, Rank1ElimKL
from latentbandits_related.reproduce.baselines import KLUCB, FactorTS
from latentbandits_related.reproduce.table import Column, Reference, RelatedTable, Row, always

BASE, SPIKE = 0.25, 0.75
FACTORS = "TS on the factors"


@dataclass(frozen=True)
class RankOneClicks:
    """Clicks with probability u_i v_j; one row and one column have `SPIKE`, all others `BASE`."""

    n_rows: int
    n_columns: int

    def start(self, n_runs: int, horizon: int, rng: np.random.Generator) -> RankOneInstances:
        sides = []
        for size in (self.n_rows, self.n_columns):
            side = np.full((n_runs, size), BASE)
            side[np.arange(n_runs), rng.integers(size, size=n_runs)] = SPIKE
            sides.append(side)
        means = sides[0][:, :, None] * sides[1][:, None, :]
        return RankOneInstances(means.reshape(n_runs, -1))


@dataclass(frozen=True, eq=False)
class RankOneInstances:
    """Runs of the problem, with the click probability of every pair."""

    means: FloatArray  # (n_runs, n_rows * n_columns)
    model: None = None

    def round(self, t: int, rng: np.random.Generator) -> Round:
        clicks = (rng.random(self.means.shape) < self.means).astype(np.float64)
        return Round(None, self.means, clicks)


def columns(quick: bool) -> list[Column]:
    if quick:
        return [_column(4, 400, 2, {})]
    return [
        _column(16, 60_000, 4, {
            "UCB1 on pairs": Reference(8200, 93, 2),
            "KL-UCB on pairs": Reference(4049, 53, 2),
            "TS on pairs": Reference(1979, 6, 2),
            "Rank1Elim": Reference(29018, 11, 2),
            "Rank1ElimKL": Reference(26030, 2501, 2),
            FACTORS: None,
        }),
        _column(48, 60_000, 4, {
            "UCB1 on pairs": Reference(29494, 2, 2),
            "KL-UCB on pairs": Reference(28695, 132, 2),
            "Rank1Elim": Reference(29659, 3, 2),
            "Rank1ElimKL": Reference(29659, 3, 2),
            FACTORS: None,
        }),
        _column(32, 500_000, 4, {
            "UCB1 on pairs": Reference(40156, 131, 2),
            "Rank1Elim": Reference(113733, 7848, 2),
            "Rank1ElimKL": Reference(93224, 10956, 2),
        }),
    ]  # fmt: skip


def _column(
    size: int, rounds: int, runs: int, references: Mapping[str, Reference | None]
) -> Column:
    pairs = size * size
    policies: dict[str, AnyPolicy] = {
        "UCB1 on pairs": UCB1(pairs, scale=0.75**0.5),  # mean + sqrt(1.5 ln t / N)
        "KL-UCB on pairs": KLUCB(pairs),
        "TS on pairs": mmTS(BernoulliArms(np.ones((1, pairs)), 1.0)),
        "Rank1Elim": Rank1Elim(size, size, rounds),
        "Rank1ElimKL": Rank1ElimKL(size, size, rounds),
        FACTORS: FactorTS(size, size),
    }
    world = RankOneClicks(size, size)
    rows = {
        name: Row(world, always(policy), references.get(name))
        for name, policy in policies.items()
        if not references or name in references
    }
    return Column(f"{size} x {size}, n={rounds}", rows, runs, rounds)


TABLE = RelatedTable("iii", "Rank 1: a row and a column are chosen, rewards are clicks", columns)
