"""Logged decisions as arrays: sessions first, rounds second, padded to the longest session."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from latentbandits.models.checks import BoolArray, FloatArray, IntArray
from latentbandits.models.clicks import ClickModel, Each
from latentbandits.models.protocol import Context


class EvaluationError(ValueError):
    """A log, policy or setting that cannot be evaluated; the message says why."""


class LoggedRound(NamedTuple):
    """One round of some sessions, as a policy takes it."""

    context: Context  # None, or (n, n_actions, n_features)
    eligible: BoolArray | None  # (n, n_actions); None: all
    action: IntArray  # (n,)


_BY_ROUND = ("reward", "propensity", "eligible", "features", "items", "applied", "shown", "times")
"""Arrays that begin with sessions and rounds, as `action` does."""


@dataclass(frozen=True, eq=False)
class DecisionLog:
    """`n` sessions of at most `T` decisions among at most `K` actions a round.

    Entries past a session's end are -1 (`action`) or NaN (`reward`, `propensity`).

    A round may be a list of `length` actions. Then T counts positions, list after list. A position
    that was not shown, or that a cascade did not reach, is treated like one past the session's end.

    Args:
        action: `(n, T)`, the chosen action's place among the round's actions.
        reward: `(n, T)`, NaN where no reward came.
        lengths: `(n,)`, decisions of each session; of lists, their number.
        n_actions: K.
        propensity: `(n, T)`, the logging policy's probability of the chosen action.
        eligible: `(n, T, K)`, the actions that could be chosen; None: all.
        features: `(n, T, K, d)`, features of every action, where callers brought them.
        items: `(n, T, K)`, rows of `item_features`, where actions come from a catalogue; with
            None every round offers the whole catalogue.
        item_features: `(n_items, d)`, the catalogue's features.
        applied: `(n, T)`, the decision before which each reward was applied, counted from 0; None
            means the decision that follows.
        session_ids: names of the sessions, for messages.
        length: positions of a list.
        shown: `(n, T)`, the positions that were shown and reached; None: all of every list.
        clicks: how users look at lists.
        times: `(n, T)`, seconds at which decisions were made, for models that know pauses.

    >>> log = DecisionLog(np.array([[0, 1]]), np.array([[1.0, np.nan]]), np.array([2]), 2)
    >>> log.n_sessions, log.n_rounds, int(log.observed.sum())
    (1, 2, 1)
    """

    action: IntArray
    reward: FloatArray
    lengths: IntArray
    n_actions: int
    propensity: FloatArray | None = None
    eligible: BoolArray | None = None
    features: FloatArray | None = None
    items: IntArray | None = None
    item_features: FloatArray | None = None
    applied: IntArray | None = None
    session_ids: tuple[str, ...] | None = None
    length: int = 1
    shown: BoolArray | None = None
    clicks: ClickModel = field(default_factory=Each)
    times: FloatArray | None = None

    def __post_init__(self) -> None:
        n, t = self.action.shape
        if n == 0 or t == 0:
            raise EvaluationError("the log is empty: there is no decision to evaluate")
        for name in _BY_ROUND:
            array = getattr(self, name)
            if array is not None and array.shape[:2] != (n, t):
                raise EvaluationError(
                    f"{name} must begin with (n_sessions={n}, n_rounds={t}); got {array.shape}"
                )
        chosen = self.action[self.active]
        if chosen.min() < 0 or chosen.max() >= self.n_actions:
            raise EvaluationError(
                f"action {chosen.min() if chosen.min() < 0 else chosen.max()} is out of range: "
                f"rounds have at most {self.n_actions} actions"
            )
        if self.eligible is not None:
            places = np.where(self.active, self.action, 0)[:, :, None]
            allowed = np.take_along_axis(self.eligible, places, axis=2)[:, :, 0] | ~self.active
            for i, j in np.argwhere(~allowed)[:1]:
                raise EvaluationError(
                    f"{self.where(i, j)} chose action {self.action[i, j]}, which is not among its "
                    "eligible actions: a propensity of zero cannot be weighted"
                )
        self._check_propensities()

    @property
    def n_sessions(self) -> int:
        return len(self.action)

    @property
    def n_rounds(self) -> int:
        """The longest session's number of decisions; a list is one."""
        return int(self.action.shape[1]) // self.length

    @property
    def active(self) -> BoolArray:
        """`(n, T)`: True where the session made a decision."""
        if self.shown is not None:
            return self.shown
        return np.asarray(np.arange(self.action.shape[1]) < self.length * self.lengths[:, None])

    @property
    def observed(self) -> BoolArray:
        """`(n, T)`: True where a reward was observed."""
        return self.active & ~np.isnan(self.reward)

    @property
    def has_context(self) -> bool:
        return self.features is not None or self.item_features is not None

    @property
    def n_eligible(self) -> IntArray:
        """`(n, T)`: the number of actions that each decision could choose."""
        if self.eligible is None:
            above = np.arange(self.action.shape[1]) % self.length
            return np.broadcast_to(self.n_actions - above, self.action.shape)
        counts: IntArray = self.eligible.sum(axis=2)
        return counts

    def where(self, session: int, round_: int) -> str:
        """Name a decision for a message."""
        name = session if self.session_ids is None else repr(self.session_ids[session])
        number, position = divmod(round_, self.length)
        place = "" if self.length == 1 else f", position {position + 1}"
        return f"round {number + 1}{place} of session {name}"

    def filled(self, value: float) -> DecisionLog:
        """Return the log with `value` as the reward of every decision that got none."""
        if not np.isfinite(value):
            raise EvaluationError(f"the unrewarded value must be a finite number; got {value}")
        missing = self.active & np.isnan(self.reward)
        return replace(self, reward=np.where(missing, value, self.reward))

    def up_to(self, horizon: int) -> DecisionLog:
        """Return the first `horizon` rounds."""
        if horizon >= self.n_rounds:
            return self
        end = horizon * self.length
        return self._part(np.s_[:, :end], lengths=np.minimum(self.lengths, horizon))

    def take(self, rows: IntArray) -> DecisionLog:
        """Return some of the sessions."""
        ids = None if self.session_ids is None else tuple(self.session_ids[i] for i in rows)
        return self._part(rows, lengths=self.lengths[rows], session_ids=ids)

    def _part(self, index: Any, **changes: Any) -> DecisionLog:
        """Return the log with the same part of each array of sessions and rounds."""
        arrays = {name: getattr(self, name) for name in ("action", *_BY_ROUND)}
        for name, array in arrays.items():
            changes[name] = None if array is None else array[index]
        return replace(self, **changes)

    def round(self, t: int, rows: IntArray) -> LoggedRound:
        """Return decision `t` of the sessions `rows`, all of which must still be active.

        Actions at positions above it in a list are not eligible.
        """
        eligible = None if self.eligible is None else self.eligible[rows, t]
        first = t - t % self.length
        if first < t:
            allowed = np.ones((len(rows), self.n_actions), np.bool_)
            eligible = allowed if eligible is None else eligible.copy()
            for above in range(first, t):
                there = self.active[rows, above]
                eligible[np.flatnonzero(there), self.action[rows[there], above]] = False
        context: Context = None
        if self.features is not None:
            context = self.features[rows, t]
        elif self.item_features is not None:
            if self.items is None:
                shape = (len(rows), *self.item_features.shape)
                context = np.broadcast_to(self.item_features, shape)
            else:
                context = self.item_features[self.items[rows, t]]
        return LoggedRound(context, eligible, self.action[rows, t])

    def _check_propensities(self) -> None:
        if self.propensity is None:
            return
        chance = np.where(self.active, self.propensity, 1.0)
        wrong = ~(chance > 0) | (chance > 1 + 1e-9)
        if wrong.any():
            i, j = np.argwhere(wrong)[0]
            value = chance[i, j]
            raise EvaluationError(
                f"{self.where(i, j)} has propensity {value} ({int(wrong.sum())} such decisions): a "
                "logged action was chosen with a probability above 0 and at most 1; log every "
                "decision's propensity (serve with --explore, or wrap the policy in Exploring)"
            )


# Names of the columns of a log.


@dataclass(frozen=True)
class Columns:
    """Names of a log's columns; the defaults are the names that `latentbandits export` writes.

    Only `session`, `action` and `reward` must be there. Without `round`, a session's rows are in
    the order of the table. Of several rows of one `decision`, only the one with the largest
    `cursor` counts, or else the last: an export writes a decision again when its reward comes late.
    With `time` and `reward_time` a candidate learns from a reward only after it came. Rows with the
    same `list_id` are the positions of a list, which is one round.
    """

    session: str = "session"
    round: str = "round"
    action: str = "action"
    reward: str = "reward"
    propensity: str = "propensity"
    eligible: str = "eligible"
    features: str = "features"
    propensity_kind: str = "propensity_kind"
    decision: str = "decision_id"
    cursor: str = "cursor"
    time: str = "time"
    reward_time: str = "reward_time"
    list_id: str = "list_id"
    list_position: str = "list_position"


REQUIRED = ("session", "action", "reward")
"""The columns that every log has."""
