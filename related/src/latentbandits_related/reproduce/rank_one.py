"""Table iii: clicks with one good row and column; elimination compared with policies on pairs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from latentbandits.environments.protocol import Round
from latentbandits.models import checks
from latentbandits.models.arms.dirichlet import BernoulliArms
from latentbandits.models.arms.gaussian import ArmStatistics
from latentbandits.models.checks import FloatArray
from latentbandits.models.protocol import Context
from latentbandits.policies import UCB1, decision, mmTS
from latentbandits.policies.checked import Asked, CheckedPolicy, Choice, Outcome
from latentbandits.policies.protocol import AnyPolicy
from latentbandits_related.rank1 import Rank1Elim, Rank1ElimKL
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


# Ordinary baselines, and one that is not published.

_NEWTON_STEPS = 6


@dataclass(frozen=True, eq=False)
class KLUCB(UCB1):
    """KL-UCB (Garivier & Cappé 2011) for clicks.

    The index is the largest q with N kl(mean, q) <= f(t), where f(t) = ln t + 3 ln ln t as in the
    theorem; N and the mean are those of the action.
    """

    def _scores(self, belief: ArmStatistics, asked: Asked) -> FloatArray:
        untried = belief.counts == 0
        counts = np.where(untried, 1.0, belief.counts)
        rounds = np.maximum(belief.counts.sum(axis=1, keepdims=True), 1.0)
        exploration = np.log(rounds) + 3 * np.log(np.maximum(np.log(rounds), 1.0))
        index = upper_click_rate(belief.sums / counts, exploration / counts)
        return np.where(untried, np.inf, index)


def upper_click_rate(mean: FloatArray, level: FloatArray) -> FloatArray:
    """Return the largest q with kl(mean, q) <= level, for Bernoulli rewards.

    kl is convex in q and increases to the right of the mean. Newton's method, started at a bound to
    the right of the root, therefore decreases towards it. The start is the least of the bounds of
    Pinsker and of Bernstein, and of the bound that drops -mean ln q.

    >>> upper_click_rate(np.array([0.0, 0.5]), np.array([0.1, 0.1])).round(3)
    array([0.095, 0.713])
    """
    p = np.clip(mean, 1e-12, 1 - 1e-12)
    entropy = -p * np.log(p) - (1 - p) * np.log1p(-p)
    q = np.minimum(p + np.sqrt(level / 2), p + level + np.sqrt(level * level + 2 * p * level))
    q = np.minimum(np.minimum(q, -np.expm1(-(level + entropy) / (1 - p))), 1 - 1e-13)
    for _ in range(_NEWTON_STEPS):
        excess = -entropy - p * np.log(q) - (1 - p) * np.log1p(-q) - level
        slope = np.maximum((q - p) / (q * (1 - q)), 1e-12)
        q = np.clip(q - excess / slope, p, 1 - 1e-13)
    return np.asarray(q, np.float64)


class FactorBelief(NamedTuple):
    """Beta distributions of u and v, as pseudo-counts of ones and zeros."""

    rows: FloatArray  # (n, n_rows, 2)
    columns: FloatArray  # (n, n_columns, 2)


@dataclass(frozen=True, eq=False)
class FactorTS(CheckedPolicy[FactorBelief]):
    """Mean-field Thompson sampling of the factors of a rank-1 click problem; not published.

    A click is the product of two hidden bits with probabilities u_i and v_j, both with the prior
    Beta(1, 1). After a click both bits were 1. Without one, the bit of u_i was 1 with probability
    u (1 - v) / (1 - u v) at the posterior means of u and v; this probability is added to the count.

    >>> policy = FactorTS(n_rows=4, n_columns=3)
    >>> policy.decide(policy.init(), None, np.random.default_rng(0), propensity=False).action.shape
    (1,)
    """

    order_free: ClassVar[bool] = False

    n_rows: int
    n_columns: int

    def init(self, n_sessions: int = 1) -> FactorBelief:
        n = checks.session_count(n_sessions, None)
        return FactorBelief(np.ones((n, self.n_rows, 2)), np.ones((n, self.n_columns, 2)))

    def checked_context(self, context: ArrayLike | None, n_sessions: int) -> tuple[Context, int]:
        checks.no_context(self.name, context)
        return None, self.n_rows * self.n_columns

    def _choose(self, belief: FactorBelief, asked: Asked, propensity: bool) -> Choice:
        u, v = (asked.rng.beta(side[..., 0], side[..., 1]) for side in belief)
        products = (u[:, :, None] * v[:, None, :]).reshape(len(u), -1)
        action = decision.pick_best(products, asked.eligible, asked.rng)
        return Choice(action, np.zeros(len(action), np.int64), None, "none")

    def _learn(self, belief: FactorBelief, outcome: Outcome) -> FactorBelief:
        sides = [side.copy() for side in belief]
        session, lines = np.arange(len(outcome.action)), np.divmod(outcome.action, self.n_columns)
        u, v = (
            side[session, line, 0] / side[session, line].sum(axis=1)
            for side, line in zip(sides, lines, strict=True)
        )
        for side, line, mine, other in ((sides[0], lines[0], u, v), (sides[1], lines[1], v, u)):
            one = np.where(outcome.reward > 0, 1.0, mine * (1 - other) / (1 - u * v))
            side[session, line, 0] += one
            side[session, line, 1] += 1 - one
        return FactorBelief(*sides)


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
