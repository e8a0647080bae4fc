"""The summary of one pass over a log, and the reward family that is set up for its rewards."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from latentbandits.learning.logs.rows import Log, distinct
from latentbandits.learning.logs.tables import LogError
from latentbandits.models import registry
from latentbandits.models.arms.conjugate import ConjugateArms, Learnable, RewardFacts
from latentbandits.models.arms.gaussian import GaussianArms
from latentbandits.models.checks import BoolArray, FloatArray, IntArray, positive_number
from latentbandits.models.composed.transformed import Log1pRewards, SqrtRewards
from latentbandits.models.registry import reward_families

MOST_VALUES = 1_000
"""Distinct rewards that are kept; if there are more, this many and the extremes."""


def _masks() -> dict[str, Callable[[FloatArray], BoolArray]]:
    """Return for every family and transform the function that marks rewards it cannot take."""
    families = {name: family.outside for name, family in reward_families().items()}
    return families | {"log1p": Log1pRewards.outside, "sqrt": SqrtRewards.outside}


class Outside(NamedTuple):
    """Rewards that a family or a transform cannot take."""

    n: int = 0
    value: float | None = None  # one of them
    where: str = ""  # its user and action

    def __add__(self, other: Outside) -> Outside:  # type: ignore[override]
        first = other if self.value is None else self
        return Outside(self.n + other.n, first.value, first.where)


@dataclass(frozen=True, eq=False)
class RewardSummary:
    """A summary of the rewards of a log, of bounded size; summaries add."""

    n: int
    mean: float
    squares: float  # the sum of squared distances from the mean
    values: FloatArray  # the distinct rewards, ascending; at most about MOST_VALUES of them
    off_lattice: FloatArray  # (len(STEPS),): the largest distance from each lattice, in steps
    outside: Mapping[str, Outside]  # by family and transform
    n_least: int  # number of rewards that equal the least one
    n_most: int

    @classmethod
    def from_rewards(cls, rewards: FloatArray, log: Log | None = None) -> RewardSummary:
        """Summarise rewards; with `log`, messages can name user and action."""
        values = distinct(rewards)
        mean = float(rewards.mean())
        squares = float(((rewards - mean) ** 2).sum())
        outside = {name: _outside(mask, rewards, log) for name, mask in _masks().items()}
        kept = _few(values, outside)
        ends = (int((rewards == values[i]).sum()) for i in (0, -1))
        return cls(len(rewards), mean, squares, kept, off_lattice(values), outside, *ends)

    @property
    def end_shares(self) -> tuple[float, float]:
        """The shares of rewards that equal the least and the largest one."""
        return self.n_least / self.n, self.n_most / self.n

    @property
    def deviation(self) -> float:
        """The standard deviation."""
        return float(np.sqrt(self.squares / self.n))

    @property
    def least(self) -> float:
        return float(self.values[0])

    @property
    def most(self) -> float:
        return float(self.values[-1])

    def __add__(self, other: RewardSummary) -> RewardSummary:
        n = self.n + other.n
        gap = other.mean - self.mean
        squares = self.squares + other.squares + gap**2 * self.n * other.n / n
        outside = {name: self.outside[name] + other.outside[name] for name in self.outside}
        return RewardSummary(
            n,
            self.mean + gap * other.n / n,
            squares,
            _few(np.union1d(self.values, other.values), outside),
            np.maximum(self.off_lattice, other.off_lattice),
            outside,
            _joined(self.least, self.n_least, other.least, other.n_least, min),
            _joined(self.most, self.n_most, other.most, other.n_most, max),
        )


@dataclass(frozen=True, eq=False)
class LogSummary:
    """Sizes of a log and its rewards by action; summaries of disjoint sets of users add."""

    n_users: int
    action_counts: IntArray  # (n_actions,)
    action_sums: FloatArray  # (n_actions,)
    action_squares: FloatArray  # (n_actions,): sums of squared rewards
    lengths: IntArray  # (k,): distinct numbers of rewards of a user, ascending
    users_of_length: IntArray  # (k,): number of users with that many rewards
    n_duplicates: int
    n_repeated_rows: int
    rewards: RewardSummary

    @property
    def n_events(self) -> int:
        return self.rewards.n

    @property
    def median_length(self) -> float:
        """The median number of rewards of a user."""
        ends = np.cumsum(self.users_of_length)
        low, high = (self.n_users - 1) // 2, self.n_users // 2
        middle = self.lengths[np.searchsorted(ends, [low, high], side="right")]
        return float(middle.mean())

    def __add__(self, other: LogSummary) -> LogSummary:
        lengths = np.union1d(self.lengths, other.lengths)
        users = np.zeros(len(lengths), np.int64)
        for part in (self, other):
            users[np.searchsorted(lengths, part.lengths)] += part.users_of_length
        return LogSummary(
            self.n_users + other.n_users,
            self.action_counts + other.action_counts,
            self.action_sums + other.action_sums,
            self.action_squares + other.action_squares,
            lengths,
            users,
            self.n_duplicates + other.n_duplicates,
            self.n_repeated_rows + other.n_repeated_rows,
            self.rewards + other.rewards,
        )


class LogSummariser:
    """A pass over a log that computes its `LogSummary`."""

    def summarise(self, partition: Log, parameters: None) -> LogSummary:
        lengths, users = np.unique(np.diff(partition.starts), return_counts=True)
        rewards = np.asarray(partition.rewards)

        def by_action(values: FloatArray) -> FloatArray:
            summed = np.bincount(partition.actions, values, minlength=partition.n_actions)
            return summed.astype(np.float64)

        return LogSummary(
            partition.n_users,
            np.bincount(partition.actions, minlength=partition.n_actions),
            by_action(rewards),
            by_action(rewards**2),
            lengths,
            users,
            partition.n_duplicates,
            partition.n_repeated_rows,
            RewardSummary.from_rewards(rewards, partition),
        )


def _joined(
    one: float, n: int, other: float, m: int, furthest: Callable[[float, float], float]
) -> int:
    """Return how many rewards equal the furthest of two ends, given how many equal each."""
    end = furthest(one, other)
    return n * (one == end) + m * (other == end)


def _few(values: FloatArray, outside: Mapping[str, Outside]) -> FloatArray:
    """Return about `MOST_VALUES` values: the least, the largest, and one outside each family."""
    if len(values) <= MOST_VALUES:
        return values
    wrong = [example.value for example in outside.values() if example.value is not None]
    half = MOST_VALUES // 2
    return np.union1d(np.append(values[:half], values[-half:]), wrong)


def _outside(
    mask: Callable[[FloatArray], BoolArray], rewards: FloatArray, log: Log | None
) -> Outside:
    outside = mask(rewards)
    count = int(np.count_nonzero(outside))
    if count == 0:
        return Outside()
    event = int(outside.argmax())
    where = ""
    if log is not None:
        user, action = log.user_ids[log.users[event]], log.action_ids[log.actions[event]]
        where = f"{rewards[event]:g}, of user {user} for action {action}"
    return Outside(count, float(rewards[event]), where)


# The reward family of a log: found by name, and set up for the log's rewards.

Rewards = str
"""The name of a reward family (`models.registry.reward_families`)."""

ArmsModel = GaussianArms | ConjugateArms


def make_family(
    name: Rewards, rewards: FloatArray | RewardFacts, noise: float | None = None
) -> Learnable:
    """Return the family `name`, set up for a log's `rewards`.

    Raise LogError if they are outside its support. `noise` fixes the standard deviation of
    Gaussian rewards.
    """
    kind = registry.reward_family(name)
    try:
        if isinstance(rewards, np.ndarray):
            family = kind.for_rewards(rewards)
        else:
            family = kind.for_facts(rewards)
        return family if noise is None else family.with_noise(positive_number("noise", noise))
    except ValueError as error:
        raise LogError(str(error)) from error


# The cell of the recording resolution around each reward.
#
# Families are compared by their probability of these cells. So a family cannot win by a density
# that grows without bound where many rewards are equal: the probability of a cell is at most one.

STEPS = (100.0, 10.0, 5.0, 2.0, 1.0, 0.5, 0.25, 0.2, 0.1, 0.05, 0.01, 1e-3, 1e-4, 1e-5, 1e-6)
"""Steps of the lattices that are tried."""

_FEW_VALUES = 20
_FINE = 1e-6  # the resolution of rewards on no lattice, in ranges of the rewards


class Cells(NamedTuple):
    """The intervals [r - below(r), r + above(r)]: one lattice step, or halfway to neighbours."""

    step: float | None
    values: FloatArray  # the distinct rewards, used if there is no step
    finer: float = 1.0  # cells are narrower by this factor

    def edges(self, rewards: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the lower and upper edges of every reward's cell."""
        if self.step is not None:
            half = self.step / 2 / self.finer
            return rewards - half, rewards + half
        middles = (self.values[1:] + self.values[:-1]) / 2
        first, last = 2 * self.values[0] - middles[0], 2 * self.values[-1] - middles[-1]
        edges = np.concatenate([[first], middles, [last]])
        which = np.searchsorted(self.values, rewards)
        below, above = rewards - edges[which], edges[which + 1] - rewards
        return rewards - below / self.finer, rewards + above / self.finer


def cells_of(rewards: FloatArray) -> Cells:
    """Return the cells of rewards: of a lattice (1, 1/2, 1/10, ...), of few values, or very fine.

    >>> cells_of(np.array([1.0, 3.5, 2.0])).edges(np.array([2.0]))
    (array([1.75]), array([2.25]))
    >>> bool(cells_of(np.random.default_rng(0).random(50)).step < 1e-6)
    True
    """
    values = np.unique(rewards)
    return cells_of_values(values, off_lattice(values))


def cells_of_values(values: FloatArray, distances: FloatArray) -> Cells:
    """Return the cells, given the distinct rewards and their `off_lattice` distances."""
    width = float(np.ptp(values))
    for step, distance in zip(STEPS, distances, strict=True):
        if distance < 1e-6 and step <= width:
            return Cells(step, values)
    if 1 < len(values) <= _FEW_VALUES:
        return Cells(None, values)
    return Cells(_FINE * (width or 1.0), values)


def off_lattice(values: FloatArray) -> FloatArray:
    """Return the largest distance of `values` from the multiples of each of `STEPS`, in steps."""
    return np.array([_distance(values / step) for step in STEPS])


def _distance(units: FloatArray) -> float:
    return float(np.abs(units - np.rint(units)).max())
