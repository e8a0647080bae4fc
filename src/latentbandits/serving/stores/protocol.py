"""The protocol of a store: rows kept in transactions, by one writer thread."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

import msgspec

from latentbandits.serving.records import (
    ActivationRow,
    AuditRow,
    DecisionRow,
    LoggedEvent,
    ModelRow,
    RewardedDecision,
    RewardRow,
    SessionRow,
    SnapshotRow,
)

LAST = (1 << 63) - 1
_PAGE, _PAGE_BYTES = 1_000, 8 * 2**20  # of the log: events, and about their bytes
STORE_ID = "store_id"
"""The note of a random id, which the cursors of the store begin with. A copy gets another one."""
SHARED = "shared_positions"
"""The note of the ids of the stores that this one was copied from, and of the positions up to
which their logs are this one's, as msgpack."""


def decode_shared(note: bytes | None) -> tuple[tuple[bytes, int], ...]:
    """Return the ids and positions of the note `SHARED`."""
    return () if note is None else msgspec.msgpack.decode(note, type=tuple[tuple[bytes, int], ...])


class LogReader(Protocol):
    """Reads committed events beside the writer, from any one thread."""

    def end(self) -> int:
        """Return the last position that was committed: no later commit has it or a smaller one.

        It does not shrink when sessions are forgotten.
        """

    def read(
        self, since: int, limit: int, max_bytes: int = 1 << 26, until: int = LAST
    ) -> list[LoggedEvent]:
        """Return events after position `since` up to `until`, in the order of their commits.

        Each decision and each reward is one event. `current` is the reward that counted at
        `until`. To read the log as of one position, call `end()` once and pass the result as
        `until` of every page: each event comes exactly once, whatever is committed meanwhile. Later
        events have later positions. A page holds at least one event, if there is any, and about
        `max_bytes` at most.
        """

    def present(self, orders: Sequence[int]) -> set[int]:
        """Return the orders of the decisions among these that the store still has.

        Decisions of forgotten sessions are not among them.
        """

    def note(self, name: str) -> bytes | None:
        """Return a note of the store."""

    def model(self, model_id: str) -> ModelRow | None:
        """Return a model of the store."""

    def close(self) -> None:
        """End the reading."""


def all_events(reader: LogReader, since: int, until: int) -> Iterator[LoggedEvent]:
    """Yield the events after `since` up to `until`, which are read a page at a time."""
    while page := reader.read(since, _PAGE, _PAGE_BYTES, until):
        yield from page
        since = page[-1].position


class Store(Protocol):
    """All methods but `log_reader` are called by one thread, and inside a transaction.

    A method raises StoreUnavailable where the storage failed, Contention where another process
    was in the way, and Damaged where a row differs from the row that was written. After any of
    these errors the caller rolls the transaction back, and no part of the transaction remains.
    After OutcomeUnknown from `commit`, either all of the transaction remains or nothing. Every call
    ends within a few seconds. `latentbandits.testing.check_store` checks these promises.
    """

    @property
    def durable(self) -> bool:
        """True if committed data survive the end of the process."""

    @property
    def shared(self) -> bool:
        """True if other processes write too; reading a session then locks it."""

    @property
    def node(self) -> int:
        """The number of this process among the processes that share the store."""

    @property
    def warnings(self) -> list[str]:
        """Problems that were found when the store was opened, but do not prevent its use."""

    def begin(self) -> None:
        """Begin a transaction."""

    def commit(self) -> None:
        """Commit it; OutcomeUnknown where the store did not say whether it did."""

    def rollback(self) -> None:
        """Undo it."""

    def close(self) -> None:
        """Close the store; an open transaction is undone."""

    def log_reader(self) -> LogReader:
        """Return a reader of the log, for any thread; where the store is not durable, for the
        thread that writes. Closing it leaves the store as it is.
        """

    def reserve(self, floor: int) -> range:
        """Reserve orders that are unique, above `floor` and above all earlier ones.

        After a rollback the caller must not use them: the store may reserve them again.
        """

    # sessions
    def session(self, key: int) -> SessionRow | None:
        """Return the session of this key."""

    def lock_sessions(self, names: Sequence[str], decisions: Sequence[int]) -> None:
        """Lock sessions by name, whether they exist or not, and the sessions of these decisions.

        Called first in a transaction, and only where the store is shared. All processes lock in
        the same order, so that no two processes wait for each other.
        """

    def session_named(self, name: str) -> SessionRow | None:
        """Return the latest session of this name, open or not."""

    def root(self, key: int) -> int:
        """Return the key of the session into which this session was merged, directly or not."""

    def add_session(self, row: SessionRow) -> None:
        """Insert a session; its key must be new."""

    def put_session(self, row: SessionRow) -> None:
        """Replace the session with this key. At most one session of a name is open."""

    def touch_sessions(self, rows: Sequence[SessionRow]) -> None:
        """Replace the columns of existing sessions that decisions and rewards change: `seen`,
        `rounds`, `rewards`, `reward_sum`, `last_order`, `activation`, `probabilities`, `revision`.
        """

    def generations(self, name: str) -> list[SessionRow]:
        """Return all sessions that ever had this name."""

    def members(self, key: int) -> list[SessionRow]:
        """Return the sessions that were merged into this one, directly."""

    def open_since(self, limit: int) -> list[SessionRow]:
        """Return open sessions, the last seen first."""

    def unseen_since(self, time_ms: int, limit: int, *, is_open: bool) -> list[SessionRow]:
        """Return sessions last seen before then, the longest unseen first."""

    def delete_sessions(self, keys: Sequence[int]) -> None:
        """Forget these sessions, their decisions, rewards and snapshots."""

    # decisions and rewards
    def add_decisions(self, rows: Sequence[DecisionRow]) -> None:
        """Insert decisions."""

    def decision(self, order: int) -> DecisionRow | None:
        """Return the decision of this order."""

    def decision_by_request(self, request_id: str) -> DecisionRow | None:
        """Return the decision of this request id."""

    def add_rewards(self, rows: Sequence[RewardRow]) -> None:
        """Insert rewards, corrections or defaults."""

    def reward_of(self, decision: int) -> RewardRow | None:
        """Return the latest reward of a decision."""

    def reward_by_event(self, event_id: str) -> RewardRow | None:
        """Return the reward of this event id."""

    def applied(
        self,
        key: int,
        *,
        merged: bool = False,
        after: int = -1,
        before: int = LAST,
        limit: int = LAST,
    ) -> list[RewardedDecision]:
        """Return the decisions of a session whose rewards were applied, in the order of replay.

        A decision counts with its latest applied reward, at the place of its first one. `merged`
        includes the decisions of sessions that were merged into this one. Only rewards with a later
        `applies_at` than `after` are returned, as the log was before the order `before`.
        """

    def replay_order(
        self, key: int, *, merged: bool, after: tuple[int, int], limit: int
    ) -> list[tuple[int, int]]:
        """Return the sorted pairs (`applies_at`, order) of a session's rewards, after `after`.

        Rewards that were not applied, or that were corrected, are included.
        """

    def counted(self, rewards: Sequence[int]) -> list[RewardedDecision]:
        """Return the rewards in force among these, with their decisions, in the order of replay."""

    def latest(self, key: int, limit: int, *, merged: bool = False) -> list[int]:
        """Return the orders of the latest decisions of a session, in order.

        They are at most `limit`, and fewer where their features take many megabytes.
        """

    def history(self, orders: Sequence[int]) -> list[RewardedDecision]:
        """Return the decisions with these orders, without the forgotten ones, sorted by order."""

    def unrewarded(self, after: int, before_ms: int, limit: int) -> tuple[list[DecisionRow], int]:
        """Return decisions after position `after`, made before `before_ms`, that have no reward,
        and the position up to which there are no others.
        """

    # snapshots
    def snapshot(self, session: int) -> SnapshotRow | None:
        """Return the snapshot of a session."""

    def put_snapshot(self, row: SnapshotRow) -> None:
        """Keep a snapshot in place of the session's earlier one."""

    def drop_snapshot(self, session: int) -> None:
        """Delete the snapshot of a session."""

    # models
    def put_model(self, row: ModelRow) -> None:
        """Keep a model; the same id again changes nothing.

        Where `row.base` is a model that is kept whole, the difference from it may be kept.
        """

    def model(self, model_id: str) -> ModelRow | None:
        """Return the model of this id, with all its files."""

    def prune_models(self, replaced: Mapping[str, int]) -> list[str]:
        """Forget former models that no session can have used, and return the ids of these models.

        `replaced` maps the id of a model to the time at which another one replaced it. The model is
        forgotten if all sessions of the store began later. A model stays if another model is kept
        as a difference from it.
        """

    def model_summaries(self) -> dict[str, tuple[str, bytes]]:
        """Return name and summary of every model, by id."""

    def lock_activations(self) -> None:
        """Wait until no other process activates a model, and hold others off meanwhile."""

    def add_activation(self, row: ActivationRow) -> None:
        """Insert an activation."""

    def activations(self, after: int = -1) -> list[ActivationRow]:
        """Return the activations with a larger order, in order."""

    # everything else
    def add_audit(self, row: AuditRow) -> None:
        """Insert a line of the audit log."""

    def audit(self, after: int, limit: int) -> list[AuditRow]:
        """Return up to `limit` lines of the audit log with a larger order."""

    def note(self, name: str) -> bytes | None:
        """Return a small value kept under a name."""

    def put_note(self, name: str, value: bytes) -> None:
        """Write a note; it replaces an earlier note of this name."""

    def notes(self, prefix: str) -> dict[str, bytes]:
        """Return the notes whose names begin so."""
