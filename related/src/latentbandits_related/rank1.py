"""Rank-1 bandits (Katariya et al. 2017a, b): one learner picks a row and a column, E r = u_i v_j.

This is not a problem of users and items, because both row and column are chosen. It is of
historical interest: on the problems of docs/concepts/related-systems.md, Thompson sampling on the
pairs has converged long before the first row is eliminated.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from latentbandits.models import checks
from latentbandits.models.checks import BoolArray, FloatArray, IntArray
from latentbandits.models.protocol import Context
from latentbandits.policies import decision
from latentbandits.policies.checked import Asked, CheckedPolicy, Choice, Outcome
from latentbandits.policies.decision import ActionProbabilities

ROW, COLUMN = 0, 1


class Rank1Belief(NamedTuple):
    """The representative of each row and column, sums of rewards, and the place in the sweep."""

    stage: IntArray  # (n,)
    row_of: IntArray  # (n, K): h_U, the representative of each row
    column_of: IntArray  # (n, L): h_V
    row_sums: FloatArray  # (n, K)
    column_sums: FloatArray  # (n, L)
    sweeps: IntArray  # (n,): number of complete sweeps
    place: IntArray  # (n,): position in this sweep; rows come first
    fixed: IntArray  # (n,): the column of this row sweep, or the row of this column sweep


@dataclass(frozen=True, eq=False)
class _Rank1(CheckedPolicy[Rank1Belief], ABC):
    """Sweeps over rows with a random column, and over columns with a random row."""

    order_free: ClassVar[bool] = False
    _constant: ClassVar[float]  # the c of n_l = ceil(c ln n / gap_l^2)

    n_rows: int
    n_columns: int
    horizon: int

    def __post_init__(self) -> None:
        checks.positive_count("n_rows", self.n_rows)
        checks.positive_count("n_columns", self.n_columns)
        checks.positive_count("horizon", self.horizon)
        if self.horizon < 3:
            raise ValueError(f"horizon must be at least 3, for ln ln n; got {self.horizon}")

    @abstractmethod
    def _bounds(self, means: FloatArray, n_plays: int) -> tuple[FloatArray, FloatArray]:
        """Return lower and upper confidence bounds of means of `n_plays` rewards."""

    def sweeps_until(self, stage: int) -> int:
        """Return n_l, the number of sweeps in all when stage l ends: gap_l = 2^-l."""
        return math.ceil(self._constant * math.log(self.horizon) * 4.0**stage)

    def init(self, n_sessions: int = 1) -> Rank1Belief:
        n = checks.session_count(n_sessions, None)
        zero = np.zeros(n, np.int64)
        return Rank1Belief(
            zero,
            np.tile(np.arange(self.n_rows), (n, 1)),
            np.tile(np.arange(self.n_columns), (n, 1)),
            np.zeros((n, self.n_rows)),
            np.zeros((n, self.n_columns)),
            zero,
            zero,
            zero,
        )

    def checked_context(self, context: ArrayLike | None, n_sessions: int) -> tuple[Context, int]:
        checks.no_context(self.name, context)
        return None, self.n_rows * self.n_columns

    def _check_reward(self, reward: FloatArray) -> None:
        if (reward < 0).any() or (reward > 1).any():
            bad = reward[(reward < 0) | (reward > 1)][0]
            raise ValueError(f"{self.name} takes rewards in [0, 1]; got {bad}: rescale them")

    def _plan(self, belief: Rank1Belief) -> tuple[IntArray, IntArray, BoolArray]:
        """Return the next play, each `(n,)`: its side, its row or column, and whether the other
        one is still to be drawn.
        """
        rows, columns = _survivors(belief.row_of), _survivors(belief.column_of)
        n_rows = rows.sum(axis=1)
        side = (belief.place >= n_rows).astype(np.int64)
        inside = belief.place - side * n_rows
        line = np.where(side == ROW, _nth(rows, inside), _nth(columns, inside))
        return side, line, inside == 0

    def _probabilities(self, belief: Rank1Belief, asked: Asked) -> ActionProbabilities:
        """Return the planned pairs; where none of them is eligible, all eligible ones equally."""
        side, line, fresh = self._plan(belief)
        pairs = np.zeros((len(line), self.n_rows, self.n_columns))
        for b, (of_side, i, drawn) in enumerate(zip(side, line, fresh, strict=True)):
            view = pairs[b, i] if of_side == ROW else pairs[b, :, i]
            if drawn:
                stands = belief.column_of[b] if of_side == ROW else belief.row_of[b]
                np.add.at(view, stands, 1 / len(stands))
            else:
                view[belief.fixed[b]] = 1.0
        values = pairs.reshape(len(line), -1)
        if asked.eligible is not None:
            values = np.where(asked.eligible, values, 0.0)
            total = values.sum(axis=1, keepdims=True)
            some = total > 0
            values = np.where(
                some, values / np.where(some, total, 1.0), decision.shares(asked.eligible)
            )
        return ActionProbabilities(values, "exact")

    def _choose(self, belief: Rank1Belief, asked: Asked, propensity: bool) -> Choice:
        state = np.zeros(len(belief.stage), np.int64)
        if propensity or asked.eligible is not None:
            chance = self._probabilities(belief, asked).values
            action = decision.draw(chance, asked.rng)
            if propensity:
                return Choice(action, state, decision.at(chance, action), "exact")
            return Choice(action, state, None, "none")
        side, line, fresh = self._plan(belief)
        session = np.arange(len(line))
        column = belief.column_of[session, asked.rng.integers(self.n_columns, size=len(line))]
        row = belief.row_of[session, asked.rng.integers(self.n_rows, size=len(line))]
        other = np.where(fresh, np.where(side == ROW, column, row), belief.fixed)
        action = np.where(side == ROW, line * self.n_columns + other, other * self.n_columns + line)
        return Choice(action, state, None, "none")

    def _learn(self, belief: Rank1Belief, outcome: Outcome) -> Rank1Belief:
        side, line, fresh = self._plan(belief)
        row, column = np.divmod(outcome.action, self.n_columns)
        session = np.arange(len(outcome.action))
        played = np.where(side == ROW, row, column)
        other = np.where(side == ROW, column, row)
        stands = np.where(
            side == ROW,
            belief.column_of[session, column] == column,
            belief.row_of[session, row] == row,
        )
        planned = (played == line) & np.where(fresh, stands, other == belief.fixed)
        row_sums, column_sums = belief.row_sums.copy(), belief.column_sums.copy()
        by_row, by_column = planned & (side == ROW), planned & (side == COLUMN)
        row_sums[session[by_row], row[by_row]] += outcome.reward[by_row]
        column_sums[session[by_column], column[by_column]] += outcome.reward[by_column]
        place = belief.place + planned
        n_lines = _survivors(belief.row_of).sum(axis=1) + _survivors(belief.column_of).sum(axis=1)
        done = place == n_lines
        after = belief._replace(
            row_sums=row_sums,
            column_sums=column_sums,
            place=np.where(done, 0, place),
            fixed=np.where(planned & fresh, other, belief.fixed),
            sweeps=belief.sweeps + done,
        )
        for b in np.flatnonzero(done).tolist():
            if after.sweeps[b] == self.sweeps_until(int(after.stage[b])):
                after = self._end_stage(after, b)
        return after

    def _end_stage(self, belief: Rank1Belief, b: int) -> Rank1Belief:
        """Replace rows and columns by the best one where that is surely better; halve the gap."""
        n_plays = int(belief.sweeps[b])
        row_of, column_of = belief.row_of.copy(), belief.column_of.copy()
        row_of[b] = self._eliminate(row_of[b], belief.row_sums[b] / n_plays, n_plays)
        column_of[b] = self._eliminate(column_of[b], belief.column_sums[b] / n_plays, n_plays)
        stage = belief.stage.copy()
        stage[b] += 1
        return belief._replace(row_of=row_of, column_of=column_of, stage=stage)

    def _eliminate(self, stands: IntArray, means: FloatArray, n_plays: int) -> IntArray:
        """Return h with h(i) = i* for all i whose representative is surely worse than i*."""
        lower, upper = self._bounds(means, n_plays)
        alive = stands == np.arange(len(stands))
        best = int(np.where(alive, lower, -np.inf).argmax())
        return np.where(upper[stands] <= lower[best], best, stands)


@dataclass(frozen=True, eq=False)
class Rank1Elim(_Rank1):
    """Rank1Elim of Katariya et al. (2017a): eliminate rows and columns; action = row * L + column.

    A sweep plays every surviving row with one random column, then every surviving column with one
    random row; a random column that was eliminated is replaced by its representative. Stage
    l ends after n_l = ceil(4 ln n / gap^2) sweeps in all, with gap = 2^-l and bounds
    mean -+ sqrt(ln n / n_l); sums are kept. Rewards are in [0, 1]. A reward that is not of the next
    pair of the sweep (a late one, or another policy's) is not learned from.

    Args:
        n_rows: number of rows K.
        n_columns: number of columns L.
        horizon: number of rounds n.

    >>> policy = Rank1Elim(n_rows=4, n_columns=3, horizon=1000)
    >>> policy.sweeps_until(0), policy.sweeps_until(1)
    (28, 111)
    """

    _constant: ClassVar[float] = 4.0

    def _bounds(self, means: FloatArray, n_plays: int) -> tuple[FloatArray, FloatArray]:
        width = math.sqrt(math.log(self.horizon) / n_plays)
        return means - width, means + width


@dataclass(frozen=True, eq=False)
class Rank1ElimKL(_Rank1):
    """Rank1ElimKL of Katariya et al. (2017b): bounds by n_l kl(p, q) <= ln n + 3 ln ln n.

    Stages are n_l = ceil(16 ln n / gap^2) long. Rewards are 0 or 1.

    Args:
        n_rows: number of rows K.
        n_columns: number of columns L.
        horizon: number of rounds n.

    >>> Rank1ElimKL(n_rows=4, n_columns=3, horizon=1000).sweeps_until(0)
    111
    """

    _constant: ClassVar[float] = 16.0

    def _check_reward(self, reward: FloatArray) -> None:
        if ((reward != 0) & (reward != 1)).any():
            bad = reward[(reward != 0) & (reward != 1)][0]
            raise ValueError(f"Rank1ElimKL takes rewards of 0 or 1; got {bad}: use Rank1Elim")

    def _bounds(self, means: FloatArray, n_plays: int) -> tuple[FloatArray, FloatArray]:
        level = (math.log(self.horizon) + 3 * math.log(math.log(self.horizon))) / n_plays
        return bernoulli_bounds(means, level)


def bernoulli_bounds(means: FloatArray, level: float) -> tuple[FloatArray, FloatArray]:
    """Return the least and largest q with kl(p, q) <= level, by bisection.

    >>> low, high = bernoulli_bounds(np.array([0.0, 0.5]), 0.1)
    >>> low.round(3), high.round(3)
    (array([0.   , 0.287]), array([0.095, 0.713]))
    """
    bounds = []
    for end in (0.0, 1.0):
        inside, outside = means.copy(), np.full(means.shape, end)
        for _ in range(60):
            middle = (inside + outside) / 2
            near = bernoulli_divergence(means, middle) <= level
            inside, outside = np.where(near, middle, inside), np.where(near, outside, middle)
        bounds.append(inside)
    return bounds[0], bounds[1]


def bernoulli_divergence(p: FloatArray, q: FloatArray) -> FloatArray:
    """Return kl(p, q) = p ln(p/q) + (1 - p) ln((1 - p)/(1 - q))."""
    q = np.clip(q, 1e-300, 1 - 1e-16)
    with np.errstate(divide="ignore", invalid="ignore"):
        first = np.where(p > 0, p * np.log(p / q), 0.0)
        second = np.where(p < 1, (1 - p) * np.log((1 - p) / (1 - q)), 0.0)
    return first + second


def _survivors(stands: IntArray) -> BoolArray:
    """Return which rows, or columns, represent themselves."""
    alive: BoolArray = stands == np.arange(stands.shape[1])
    return alive


def _nth(mask: BoolArray, index: IntArray) -> IntArray:
    """Return the place of the index-th marked entry of each row; 0 where there is none."""
    order = mask.cumsum(axis=1) - 1
    place: IntArray = (mask & (order == index[:, None])).argmax(axis=1)
    return place


def _build_rank1(
    kind: type[Rank1Elim] | type[Rank1ElimKL],
    horizon: int,
    n_actions: int | None = None,
    n_rows: int | None = None,
    n_columns: int | None = None,
) -> Rank1Elim | Rank1ElimKL:
    """Build a policy on `n_rows` x `n_columns` actions; one may follow from their number."""
    if n_actions is not None and n_columns is None and n_rows:
        n_columns = n_actions // n_rows
    if n_actions is not None and n_rows is None and n_columns:
        n_rows = n_actions // n_columns
    if n_rows is None or n_columns is None:
        raise ValueError(
            f"{kind.__name__} needs the numbers of rows and columns that make its actions: "
            f"{kind.__name__}(n_rows=..., n_columns=...)"
        )
    if n_actions is not None and n_rows * n_columns != n_actions:
        raise ValueError(
            f"{n_rows} rows x {n_columns} columns are {n_rows * n_columns} actions; there are "
            f"{n_actions}"
        )
    return kind(n_rows, n_columns, horizon)


build_rank1elim = partial(_build_rank1, Rank1Elim)
build_rank1elimkl = partial(_build_rank1, Rank1ElimKL)
