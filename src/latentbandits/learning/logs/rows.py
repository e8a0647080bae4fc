"""A log of interactions: users, actions and rewards as typed, frozen arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple, TypeVar, get_args

import numpy as np
import polars as pl
from numpy.typing import NDArray

from latentbandits.learning import user_hash
from latentbandits.learning.logs.tables import (
    DETECTED,
    LogError,
    Table,
    TableSource,
    TextFormat,
    as_text,
    check_one_of,
    is_number,
    milliseconds,
    read_table,
)
from latentbandits.learning.user_hash import Keys
from latentbandits.models import registry
from latentbandits.models.arms.conjugate import ConjugateArms, Learnable, RewardFacts
from latentbandits.models.arms.gaussian import GaussianArms
from latentbandits.models.checks import BoolArray, FloatArray, IntArray, positive_number
from latentbandits.models.composed.transformed import Log1pRewards, SqrtRewards
from latentbandits.models.registry import reward_families
from latentbandits.policies.decision import LARGEST_REWARD

# The distinct values of an array, found by sorting.

Values = TypeVar("Values", FloatArray, IntArray)


def distinct(values: Values) -> Values:
    """Return the distinct values in ascending order; none may be NaN.

    `numpy.unique` looks each value up in a hash table, which takes ten times as long.

    >>> distinct(np.array([3.0, 1.0, 3.0]))
    array([1., 3.])
    """
    ordered = np.sort(values)
    first = np.ones(len(ordered), np.bool_)
    first[1:] = ordered[1:] != ordered[:-1]
    return ordered[first]


_YES, _NO = ("yes", "y"), ("no", "n")

Duplicates = Literal["keep", "mean", "last", "drop"]
"""Rules for several rewards of one user for one action."""

DUPLICATES: dict[Duplicates, str] = {
    "keep": "each is kept as a reward of its own",
    "drop": "each is kept as a reward of its own, but for rows that repeat another exactly",
    "mean": "their mean stands for them, in the place of the first",
    "last": "the last one stands for them",
}


_OF_EVENTS = (
    "users", "actions", "rewards", "repeats", "features", "beside", "lists", "positions", "times",
)  # fmt: skip
"""Fields of a log with an entry for each event."""


@dataclass(frozen=True, eq=False)
class Log:
    """Interactions sorted by user, and for each user in the order they happened.

    Args:
        users: `(n_events,)`, indices into `user_ids`, ascending.
        actions: `(n_events,)`, indices into `action_ids`.
        rewards: `(n_events,)`.
        user_ids: ids of the users.
        action_ids: ids of the actions.
        repeats: `(n_events,)`: rows that repeat an earlier one exactly.
        known_keys: `(n_users,)`: hashes of the ids, where they are known.
        features: `(n_events, n_features)`, of each row.
        attributes: `(n_users, n_attributes)`, of each user.
        beside: further columns, unencoded, one row for each event; None without any.
        lists: `(n_events,)`: the number of the list that showed the action.
        positions: `(n_events,)`: its position there, counted from 0.
        times: `(n_events,)`: in seconds, where pauses count.

    >>> log = read_log({"u": ["b", "a", "b"], "a": [7, 7, 9], "r": [1, 0, 0]}, "u", "a", "r")
    >>> log.users, log.actions, log.rewards
    (array([0, 1, 1]), array([0, 0, 1]), array([0., 1., 0.]))
    >>> log.user_ids, log.action_ids
    (('a', 'b'), ('7', '9'))
    """

    users: IntArray  # (n_events,), into user_ids; ascending
    actions: IntArray  # (n_events,), into action_ids
    rewards: FloatArray  # (n_events,)
    user_ids: tuple[str, ...]
    action_ids: tuple[str, ...]
    repeats: BoolArray | None = None  # (n_events,): rows that repeat an earlier one exactly
    known_keys: Keys | None = None  # (n_users,): hashes of the ids, where they are known
    features: FloatArray | None = None  # (n_events, n_features): of each row
    attributes: FloatArray | None = None  # (n_users, n_attributes): of each user
    beside: pl.DataFrame | None = None  # one row for each event: further columns, unencoded
    lists: IntArray | None = None
    positions: IntArray | None = None
    times: FloatArray | None = None

    def __post_init__(self) -> None:
        for array in (self.users, self.actions, self.rewards):
            array.flags.writeable = False

    @property
    def n_users(self) -> int:
        return len(self.user_ids)

    @property
    def n_actions(self) -> int:
        return len(self.action_ids)

    @property
    def n_events(self) -> int:
        return len(self.users)

    @cached_property
    def keys(self) -> Keys:
        """The hash of every user's id, `(n_users,)` (`user_hash`)."""
        return user_hash.user_keys(self.user_ids) if self.known_keys is None else self.known_keys

    @cached_property
    def starts(self) -> IntArray:
        """The index of each user's first event, and the end of the last: `(n_users + 1,)`."""
        return np.searchsorted(self.users, np.arange(self.n_users + 1))

    @cached_property
    def rounds(self) -> IntArray:
        """The place of each event among those of its user, from 0: `(n_events,)`."""
        return np.arange(self.n_events) - self.starts[self.users]

    @cached_property
    def lengths(self) -> IntArray:
        """The number of events of each user, `(n_users,)`."""
        return np.diff(self.starts)

    @cached_property
    def n_duplicates(self) -> int:
        """Events beyond the first of their (user, action) pair."""
        return self.n_events - len(distinct(self._pairs))

    @property
    def n_repeated_rows(self) -> int:
        """Rows of the table that repeat an earlier row in all columns that were read."""
        return 0 if self.repeats is None else int(np.count_nonzero(self.repeats))

    def by_action(self, values: FloatArray | None = None) -> FloatArray:
        """Sum `values`, one for each event, by action `(n_actions,)`; None: the number of events.

        >>> log = read_log({"u": [1, 1, 2], "a": list("xyx"), "r": [1, 5, 2]}, "u", "a", "r")
        >>> log.by_action(log.rewards)
        array([3., 5.])
        """
        return np.bincount(self.actions, values, self.n_actions).astype(np.float64)

    def reward_text(self, event: int) -> str:
        """Return a reward with its user and action, for messages."""
        user, action = self.user_ids[self.users[event]], self.action_ids[self.actions[event]]
        return f"{self.rewards[event]:g}, of user {user} for action {action}"

    def after_pause(self, session_gap: float) -> BoolArray:
        """Return the rows more than `session_gap` seconds after their user's row before.

        >>> log = read_log({"u": [1, 1, 1, 2], "a": list("xyxy"), "r": [1, 5, 2, 0]}, "u", "a", "r")
        >>> replace(log, times=np.array([0.0, 60.0, 4000.0, 9000.0])).after_pause(1800.0)
        array([False, False,  True, False])
        """
        assert self.times is not None
        after = np.diff(self.times, prepend=0.0) > session_gap
        after[self.starts[:-1][self.lengths > 0]] = False
        return after

    @property
    def _pairs(self) -> IntArray:
        return self.users * self.n_actions + self.actions

    def merged(self, duplicates: Duplicates) -> Log:
        """Return the log with several rewards of a (user, action) pair merged into one.

        "keep" returns the log unchanged, and "drop" removes rows that repeat an earlier one.
        >>> log = read_log({"u": [1, 1, 1, 2], "a": list("xyxy"), "r": [1, 5, 2, 0]}, "u", "a", "r")
        >>> log.merged("mean").rewards, log.merged("last").rewards
        (array([1.5, 5. , 0. ]), array([5., 2., 0.]))
        """
        if check_duplicates(duplicates) == "keep" or self.n_duplicates == 0:
            return self
        if duplicates == "drop":
            return self if self.repeats is None else self.of_events(~self.repeats)
        _, first, which, counts = np.unique(
            self._pairs, return_index=True, return_inverse=True, return_counts=True
        )
        if duplicates == "last":
            place = np.zeros_like(first)
            np.maximum.at(place, which, np.arange(self.n_events))
            rewards = self.rewards[place]
        else:
            place, rewards = first, np.bincount(which, self.rewards) / counts
        order = np.argsort(place)
        return replace(self._events(place[order]), rewards=rewards[order], repeats=None)

    def of_users(self, chosen: IntArray) -> Log:
        """Return the log of `chosen` users, in that order; a repeated user counts as two."""
        starts, lengths = self.starts[chosen], self.lengths[chosen]
        ends = np.cumsum(lengths)
        total = int(ends[-1]) if len(ends) else 0
        events = np.arange(total) - np.repeat(ends - lengths - starts, lengths)
        return replace(
            self._events(events),
            users=np.repeat(np.arange(len(chosen)), lengths),
            user_ids=tuple(self.user_ids[u] for u in chosen),
            known_keys=self.keys[chosen],
            attributes=None if self.attributes is None else self.attributes[chosen],
        )

    def of_events(self, chosen: NDArray[np.bool_]) -> Log:
        """Return the log of the events marked in `chosen`; users and actions stay the same."""
        return self._events(np.arange(self.n_events)[chosen])

    def _events(self, events: IntArray) -> Log:
        """Return the log of some events, in their order; users and actions stay the same."""
        columns = {name: getattr(self, name) for name in _OF_EVENTS}
        chosen = {name: values[events] for name, values in columns.items() if values is not None}
        return replace(self, **chosen)

    def split_users(self, share: float, rng: np.random.Generator) -> tuple[Log, Log]:
        """Return the log of kept users, and the log of a random `share` of users held out."""
        n_held_out = min(max(round(share * self.n_users), 1), self.n_users - 1)
        shuffled = rng.permutation(self.n_users)
        held_out, kept = np.sort(shuffled[:n_held_out]), np.sort(shuffled[n_held_out:])
        return self.of_users(kept), self.of_users(held_out)


def check_duplicates(duplicates: Duplicates) -> Duplicates:
    """Return `duplicates`; LogError if it is not a known rule for several rewards of a pair."""
    check_one_of("duplicates", duplicates, get_args(Duplicates))
    return duplicates


def join_logs(parts: Sequence[Log], action_ids: tuple[str, ...]) -> Log:
    """Return logs of different users as one, users by ascending key."""
    columns: dict[str, Any] = {
        name: _joined([getattr(part, name) for part in parts])
        for name in (*_OF_EVENTS, "attributes")
    }
    firsts = np.cumsum([0, *(part.n_users for part in parts)])
    users = [part.users + first for part, first in zip(parts, firsts, strict=False)]
    columns["users"] = np.concatenate(users)
    if columns["repeats"] is not None:  # parts without repeated rows may lack the mark
        none = [np.zeros(p.n_events, np.bool_) if p.repeats is None else p.repeats for p in parts]
        columns["repeats"] = np.concatenate(none)
    joined = Log(
        user_ids=tuple(user for part in parts for user in part.user_ids),
        action_ids=action_ids,
        known_keys=np.concatenate([part.keys for part in parts]),
        **columns,
    )
    return joined.of_users(np.argsort(joined.keys, kind="stable"))


def _joined(parts: Sequence[Any]) -> Any:
    there = [part for part in parts if part is not None]
    if not there:
        return None
    return pl.concat(there) if isinstance(there[0], pl.DataFrame) else np.concatenate(there)


@dataclass(frozen=True)
class LogColumns:
    """The names of a log's columns, and the format of its text files; `read_log` explains them."""

    user: str
    action: str
    reward: str
    order: str | None = None
    text_format: TextFormat = DETECTED
    more: tuple[str, ...] = ()  # further columns, kept unchanged

    @property
    def names(self) -> list[str]:
        """All columns; LogError if one has two roles."""
        names = [self.user, self.action, self.reward]
        names += [] if self.order is None else [self.order]
        if len(set(names)) < len(names):
            raise LogError(f"user, action, reward and order are different columns; got {names}")
        return list(dict.fromkeys([*names, *self.more]))


def read_log(
    source: TableSource,
    user: str,
    action: str,
    reward: str,
    *,
    order: str | None = None,
    text_format: TextFormat = DETECTED,
) -> Log:
    """Read a table of interactions; LogError if it is not valid.

    Args:
        source: a file, folder, glob or list of these, or a frame (`read_table`).
        user: column of user ids.
        action: column of action ids.
        reward: column of rewards; booleans are 1 and 0.
        order: column that orders a user's events; None: the order of the rows.
        text_format: separator, encoding and columns of delimited text; detected by default.
    """
    return read_columns(source, LogColumns(user, action, reward, order, text_format))


def read_columns(source: TableSource, columns: LogColumns, timed: bool = False) -> Log:
    """Read a table of interactions, with the further columns `beside`; LogError if it is not valid.

    With `timed` the log has the times of its rows, from the column `order`.
    """
    user, action, reward, order = columns.user, columns.action, columns.reward, columns.order
    text = (user, action, reward)
    table = read_table(source, columns.names, text=text, text_format=columns.text_format)
    rewards = checked_rewards(table, reward)
    users, user_ids = _encode(table, user)
    actions, action_ids = _encode(table, action)
    check_several("user", user_ids, user)
    check_several("action", action_ids, action)
    frame = pl.DataFrame({"user": users, "action": actions, "reward": rewards})
    keys = ["user"]
    if order is not None:
        frame, keys = frame.with_columns(_times(table, order).alias("order")), ["user", "order"]
    repeats = ~frame.select(pl.struct(pl.all()).is_first_distinct()).to_series()
    frame = frame.with_columns(repeats.alias("repeat")).with_row_index("row")
    frame = frame.sort(keys, maintain_order=True)
    return Log(
        frame["user"].to_numpy().astype(np.int64),
        frame["action"].to_numpy().astype(np.int64),
        frame["reward"].to_numpy().astype(np.float64),
        user_ids,
        action_ids,
        frame["repeat"].to_numpy().astype(np.bool_) if repeats.any() else None,
        beside=table.frame.select(columns.more)[frame["row"]] if columns.more else None,
        times=seconds_of(frame["order"], order) if timed and order is not None else None,
    )


def seconds_of(times: pl.Series, column: str) -> FloatArray:
    """Return times as seconds; numbers are seconds already."""
    try:
        seconds = times if times.dtype.is_numeric() else milliseconds(times) / 1000
    except pl.exceptions.PolarsError:
        seconds = pl.Series([None])
    if seconds.null_count():
        raise LogError(
            f"session_gap needs a column of times, as seconds or dates; {column} holds "
            f"{times.dtype}, such as {times[0]!r}"
        )
    return seconds.cast(pl.Float64).to_numpy()


def _times(table: Table, order: str) -> pl.Series:
    """Return the column that orders a user's rows; text that holds numbers is sorted as numbers."""
    times = table.frame[order]
    refuse(table, order, times.is_null(), "has no value")
    if times.dtype != pl.String:
        return times
    numbers = times.str.strip_chars().cast(pl.Float64, strict=False)
    if 2 * numbers.null_count() < len(numbers):
        refuse(table, order, numbers.is_null(), "is not a number, as most are,")
        return numbers
    form = date_format(times)
    usual = form.drop_nulls().mode().sort()
    if len(usual):
        like = times[int((form == usual[0]).arg_max() or 0)]
        what = f"is not written like most dates ({like})"
        refuse(table, order, form.fill_null("") != usual[0], what, "Write all dates alike")
    return times


def date_format(times: pl.Series) -> pl.Series:
    """Return dates with 9 for every digit, without fractions of seconds; null for other text.

    Text is sorted as text, which is the order of time only if all dates are written alike.

    >>> date_format(pl.Series(["2024-01-31 10:00:00.5", "1/31/2024", "later"])).to_list()
    ['9999-99-99 99:99:99', '9/99/9999', None]
    """
    text = times.str.strip_chars()
    dated = text.str.contains(r"^\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}")
    form = text.str.replace(r"(:\d\d)[.,]\d+", "$1").str.replace_all(r"\d", "9")
    return pl.select(pl.when(dated).then(form)).to_series()


def read_names(
    source: TableSource, action: str, name: str, text_format: TextFormat = DETECTED
) -> dict[str, str]:
    """Return names by action id, from a table with one row (or equal rows) for each action.

    >>> read_names({"item": [1, 2], "title": ["one", "two"]}, "item", "title")
    {'1': 'one', '2': 'two'}
    """
    table = read_table(source, [action, name], text=(action, name), text_format=text_format)
    ids, names = as_text(table.frame[action]), table.frame[name].cast(pl.String)
    return {i: n for i, n in zip(ids, names, strict=True) if i is not None and n is not None}


def checked_rewards(table: Table, column: str) -> pl.Series:
    """Return the rewards as numbers; LogError if one is not a number."""
    values = table.frame[column]
    if values.dtype == pl.String:
        words = values.str.strip_chars().str.to_lowercase()
        if words.is_in(["true", "false"]).all():
            values = words == "true"
    try:
        numbers = values.cast(pl.Float64, strict=False)
    except pl.exceptions.PolarsError:
        raise LogError(f"{column} must hold numbers; it holds {values.dtype}") from None
    bad = (numbers.is_null() | ~numbers.is_finite()).fill_null(True)
    refuse(table, column, bad, "is not a finite number", conversion(values.filter(bad)))
    refuse(table, column, numbers.abs() > LARGEST_REWARD, f"is beyond {LARGEST_REWARD:g}")
    return numbers


def conversion(values: pl.Series) -> str:
    """Return how to make numbers of the first of these values, or a general advice.

    >>> conversion(pl.Series(["4,5"]))
    "Write '4.5' for '4,5': a point before decimals"
    """
    first = str(values[0]).strip() if len(values) else ""
    plain = first.strip("$€£¥ ")
    if first.lower() in _YES + _NO:
        return f"Write 1 for {'/'.join(_YES)} and 0 for {'/'.join(_NO)}"
    if plain != first and is_number(plain.replace(",", "")):
        return f"Write {plain.replace(',', '')!r} for {first!r}: no currency"
    if first.count(",") == 1 and is_number(first.replace(",", ".")):
        return f"Write {first.replace(',', '.')!r} for {first!r}: a point before decimals"
    if "," in first and is_number(first.replace(",", "")):
        return f"Write {first.replace(',', '')!r} for {first!r}: no separator of thousands"
    if first.endswith("%") and is_number(first[:-1]):
        return f"Write '{float(first[:-1]) / 100:g}' for {first!r}: shares as numbers"
    return "Mend or drop those rows"


def refuse(
    table: Table,
    column: str,
    bad: pl.Series,
    what: str,
    advice: str = "Mend or drop those rows",
) -> None:
    """Raise LogError naming the first `bad` row of a column, if there is one."""
    marked = bad.fill_null(True)
    if marked.any():
        row = int(marked.arg_max() or 0)
        value = table.frame[column][row]
        shown = "an empty field" if value is None else repr(value)
        raise LogError(
            f"{column} {what} in {marked.sum():,} of {len(marked):,} rows; the first is "
            f"{table.where(row)}: {shown}. {advice}"
        )


def check_several(noun: str, ids: tuple[str, ...], column: str) -> None:
    """Raise LogError if there is only one user, or only one action."""
    if len(ids) < 2:
        raise LogError(
            f"the log has one {noun} only ({ids[0]!r}): there is nothing to tell apart; is "
            f"{column!r} the right column?"
        )


def sort_ids(ids: pl.Series) -> pl.Series:
    """Return distinct ids in order: by number where all are whole numbers."""
    numbers = ids.cast(pl.Int64, strict=False)
    by_number = numbers.null_count() == 0 and (numbers.cast(pl.String) == ids).all()
    return ids.gather(numbers.arg_sort()) if by_number else ids.sort()


def _encode(table: Table, name: str) -> tuple[pl.Series, tuple[str, ...]]:
    """Return each row's index into the ids, and the ids, sorted as by `sort_ids`."""
    refuse(table, name, table.frame[name].is_null(), "has no value")
    text = as_text(table.frame[name])
    ids = sort_ids(text.unique())
    codes = text.cast(pl.Enum(ids)).to_physical().cast(pl.Int64)
    return codes, tuple(ids)


# The summary of one pass over a log, and the reward family that is set up for its rewards.

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
            _equal_to_end(self.least, self.n_least, other.least, other.n_least, min),
            _equal_to_end(self.most, self.n_most, other.most, other.n_most, max),
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
        lengths, users = np.unique(partition.lengths, return_counts=True)
        rewards = np.asarray(partition.rewards)

        return LogSummary(
            partition.n_users,
            np.bincount(partition.actions, minlength=partition.n_actions),
            partition.by_action(rewards),
            partition.by_action(rewards**2),
            lengths,
            users,
            partition.n_duplicates,
            partition.n_repeated_rows,
            RewardSummary.from_rewards(rewards, partition),
        )


def _equal_to_end(
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
    where = "" if log is None else log.reward_text(event)
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
    """The intervals [r - below(r), r + above(r)]: a lattice step wide, or halfway to neighbours."""

    step: float | None
    values: FloatArray  # the distinct rewards, used if there is no step

    def edges(self, rewards: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the lower and upper edges of every reward's cell."""
        if self.step is not None:
            half = self.step / 2
            return rewards - half, rewards + half
        middles = (self.values[1:] + self.values[:-1]) / 2
        first, last = 2 * self.values[0] - middles[0], 2 * self.values[-1] - middles[-1]
        edges = np.concatenate([[first], middles, [last]])
        which = np.searchsorted(self.values, rewards)
        return edges[which], edges[which + 1]


def cells_of_values(values: FloatArray, distances: FloatArray) -> Cells:
    """Return the cells, given the distinct rewards and their `off_lattice` distances.

    The values lie on a lattice (1, 1/2, 1/10, ...), or are few, or are recorded very finely.

    >>> values = np.array([1.0, 2.0, 3.5])
    >>> cells_of_values(values, off_lattice(values)).edges(np.array([2.0]))
    (array([1.75]), array([2.25]))
    """
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
