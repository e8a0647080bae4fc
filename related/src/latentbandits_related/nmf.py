"""NMF-Bandit after Sen et al. (2017): epsilon-greedy on a non-negative factorisation.

A reconstruction: the design of the exploration, its constants and the factorisation are ours.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from latentbandits.models import checks
from latentbandits.models.checks import FloatArray, IntArray
from latentbandits.models.visit import Visit, check_visit
from latentbandits.policies import decision
from latentbandits.policies.checked import Asked, Choice, Outcome
from latentbandits.policies.decision import ActionProbabilities
from latentbandits.policies.shared.base import PopulationPolicy


def factorise(matrix: ArrayLike, rank: int, max_sweeps: int = 50) -> tuple[FloatArray, FloatArray]:
    """Return non-negative A `(n, rank)` and W `(rank, m)` with A W near the matrix.

    The first W is `rank` rows that lie far apart (successive projection, exact where every factor
    has a pure row); then non-negative least squares for A and W in turn.

    >>> a, w = factorise([[1.0, 0.0], [0.0, 2.0], [0.5, 1.0]], rank=2)
    >>> (a @ w).round(6)
    array([[1. , 0. ],
           [0. , 2. ],
           [0.5, 1. ]])
    """
    from scipy.optimize import nnls

    values = checks.finite_array("matrix", matrix, (2,))
    if (values < 0).any():
        where = tuple(int(i) for i in np.argwhere(values < 0)[0])
        raise ValueError(
            f"a non-negative factorisation needs means of at least zero; matrix{list(where)} is "
            f"{values[where]}: add a constant to the rewards"
        )
    if not 1 <= rank <= min(values.shape):
        raise ValueError(f"rank must be from 1 to {min(values.shape)}; got {rank}")
    w = values[_pure_rows(values, rank)]
    before = np.inf
    for _ in range(max_sweeps):
        a = np.stack([nnls(w.T, row)[0] for row in values])
        error = float(((a @ w - values) ** 2).sum())
        if before - error <= 1e-9 * max(float((values**2).sum()), 1e-300):
            break
        before = error
        w = np.stack([nnls(a, column)[0] for column in values.T], axis=1)
    return a, w


def complete_from_blocks(
    columns: FloatArray, rows: FloatArray, row: IntArray, rank: int
) -> FloatArray:
    """Return the matrix from some of its columns and some of its rows.

    `columns` `(n, |S|)` are factorised as A W_S; W follows by least squares from the `rows`
    `(|R|, m)`, which are those of index `row`, on A_R; the matrix is A W.
    """
    a, _ = factorise(columns, rank)
    w = np.linalg.lstsq(a[row], rows, rcond=None)[0]
    return np.asarray(a @ w, np.float64)


def _pure_rows(values: FloatArray, rank: int) -> list[int]:
    """Return rows that lie far apart: the longest row, then the longest residual, and so on."""
    rest, chosen = values.copy(), []
    for _ in range(rank):
        squares = (rest * rest).sum(axis=1)
        chosen.append(int(squares.argmax()))
        direction = rest[chosen[-1]] / np.sqrt(max(squares.max(), 1e-300))
        rest = rest - np.outer(rest @ direction, direction)
    return chosen


class NMFBelief(NamedTuple):
    """Cells, and the estimate of their means since the last fit."""

    rounds: FloatArray  # (B,)
    counts: FloatArray  # (B, n_users, n_items)
    sums: FloatArray  # (B, n_users, n_items)
    estimate: FloatArray  # (B, n_users, n_items)
    next_refit: FloatArray  # (B,)


@dataclass(frozen=True, eq=False)
class NMFBandit(PopulationPolicy[NMFBelief]):
    """NMF-Bandit after Sen et al. (2017): means = A W, non-negative, of rank m.

    With probability min(1, exploration n m / t) explore: users of a small random set R (of
    `n_probes` users) try any item, all others only items of a small random set S. Else play the
    best item of the estimate. It is refitted when the rounds double: the columns S are factorised,
    and the rows R give W by least squares on A_R. Cells that were never tried are the average of
    their row's set, and means below zero are clipped. `exploration`, `n_probes`, `first`
    and the refits are chosen here.

    Args:
        n_users: number of users of the population.
        n_items: number of items.
        rank: rank m of the factorisation.
        exploration: factor of the probability of exploring.
        n_probes: size of the sets R and S; None is 3 m.
        first: rounds before the first fit.
        seed: of the sets R and S.

    >>> policy = NMFBandit(n_users=8, n_items=6, rank=2)
    >>> policy.decide(policy.init(), Visit(np.array([1])), np.random.default_rng(0)).action.shape
    (1,)
    """

    order_free: ClassVar[bool] = False

    n_users: int
    n_items: int
    rank: int = 3
    exploration: float = 1.0
    n_probes: int | None = None
    first: int = 500
    seed: int = 0
    _probe_users: IntArray = field(init=False, repr=False)
    _probe_items: IntArray = field(init=False, repr=False)

    def __post_init__(self) -> None:
        for name in ("n_users", "n_items", "rank", "first"):
            checks.positive_count(name, getattr(self, name))
        checks.positive_number("exploration", self.exploration)
        size = 3 * self.rank if self.n_probes is None else self.n_probes
        checks.positive_count("n_probes", size)
        if size < self.rank:
            raise ValueError(f"n_probes must be at least the rank {self.rank}; got {size}")
        rng = np.random.default_rng(self.seed)
        for name, total in (("_probe_users", self.n_users), ("_probe_items", self.n_items)):
            chosen = np.sort(rng.permutation(total)[: min(size, total)])
            object.__setattr__(self, name, chosen)
        if self.rank > min(len(self._probe_users), len(self._probe_items)):
            raise ValueError(
                f"rank {self.rank} is more than the {self.n_users} users or {self.n_items} items"
            )

    def init(self, n_sessions: int = 1) -> NMFBelief:
        n = checks.session_count(n_sessions, None)
        cells = np.zeros((n, self.n_users, self.n_items))
        return NMFBelief(np.zeros(n), cells, cells, cells, np.full(n, float(self.first)))

    def checked_context(self, context: Any, n_sessions: int) -> tuple[Any, int]:
        user, _ = check_visit(context, n_sessions, self.n_users, None)
        return Visit(user), self.n_items

    def _probabilities(self, belief: NMFBelief, asked: Asked) -> ActionProbabilities:
        population = np.arange(len(asked.context.user))
        probing = np.isin(asked.context.user, self._probe_users)
        tried = np.zeros((len(population), self.n_items), np.bool_)
        tried[:, self._probe_items] = True
        tried |= probing[:, None]
        if asked.eligible is not None:
            tried &= asked.eligible
            tried |= ~tried.any(axis=1, keepdims=True) & asked.eligible
        scores = decision.restrict(belief.estimate[population, asked.context.user], asked.eligible)
        greedy = decision.shares(decision.best(scores))
        rounds = np.maximum(belief.rounds, 1)
        epsilon = np.minimum(1.0, self.exploration * self.n_users * self.rank / rounds)[:, None]
        values = epsilon * decision.shares(tried) + (1 - epsilon) * greedy
        return ActionProbabilities(values, "exact")

    def _choose(self, belief: NMFBelief, asked: Asked, propensity: bool) -> Choice:
        chance = self._probabilities(belief, asked).values
        action = decision.draw(chance, asked.rng)
        state = np.zeros(len(action), np.int64)
        if not propensity:
            return Choice(action, state, None, "none")
        return Choice(action, state, decision.at(chance, action), "exact")

    def _learn(self, belief: NMFBelief, outcome: Outcome) -> NMFBelief:
        cell = np.arange(len(outcome.action)), outcome.context.user, outcome.action
        counts, sums = belief.counts.copy(), belief.sums.copy()
        counts[cell] += 1
        sums[cell] += outcome.reward
        rounds, next_refit = belief.rounds + 1, belief.next_refit
        estimate = belief.estimate
        due = rounds >= next_refit
        if due.any():
            estimate = estimate.copy()
            for b in np.flatnonzero(due).tolist():
                estimate[b] = self._fit(counts[b], sums[b])
            next_refit = np.where(due, 2 * next_refit, next_refit)
        return NMFBelief(rounds, counts, sums, estimate, next_refit)

    def _fit(self, counts: FloatArray, sums: FloatArray) -> FloatArray:
        """Return the estimate of all means from the two blocks that were explored."""
        overall = sums.sum() / max(counts.sum(), 1.0)
        rows = (sums.sum(axis=1) + overall) / (counts.sum(axis=1) + 1)
        means = np.where(counts > 0, sums / np.maximum(counts, 1), rows[:, None])
        means = np.maximum(means, 0.0)
        return complete_from_blocks(
            means[:, self._probe_items], means[self._probe_users], self._probe_users, self.rank
        )
