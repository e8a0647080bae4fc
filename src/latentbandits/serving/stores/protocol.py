"""What a store is: rows kept in transactions, by one writer thread."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from latentbandits.serving.records import (
    ActivationRow,
    DecisionRow,
    LoggedDecision,
    ModelRow,
    RewardStatus,
    SessionRow,
)


class LogReader(Protocol):
    """Reads committed decisions beside the writer, from any one thread."""

    def read(self, since: int, limit: int) -> list[LoggedDecision]:
        """Decisions of an order above `since`, in order."""

    def model(self, model_id: str) -> ModelRow | None: ...

    def close(self) -> None: ...


class Store(Protocol):
    """All methods but `log_reader` are called by one thread, and inside a transaction.

    A method raises StoreUnavailable where the storage failed, and Contention where another
    process was in the way; after either the transaction must be rolled back, and nothing of it
    stays. `latentbandits.testing.check_store` checks that a store keeps these promises.
    """

    @property
    def durable(self) -> bool:
        """Whether what was committed outlives the process."""

    @property
    def shared(self) -> bool:
        """Whether other processes write too: then sessions that are read are locked."""

    @property
    def node(self) -> int:
        """The number of this process among those that share the store."""

    def begin(self) -> None: ...

    def commit(self) -> None: ...

    def rollback(self) -> None: ...

    def close(self) -> None: ...

    def log_reader(self) -> LogReader: ...

    # sessions
    def session(self, key: int) -> SessionRow | None: ...

    def session_named(self, name: str) -> SessionRow | None:
        """The latest session of this name, open or not."""

    def put_session(self, row: SessionRow) -> None:
        """Add it, or replace the one with its key. At most one of a name is open."""

    def touch_session(self, row: SessionRow) -> None:
        """Replace what deciding and rewarding change of a session that is there: `seen`, `rounds`,
        `rewards`, `reward_sum`, `last_order`, `activation`, `probabilities`.
        """

    def generations(self, name: str) -> list[SessionRow]:
        """All sessions that ever had this name."""

    def members(self, key: int) -> list[SessionRow]:
        """The sessions that were merged into this one, directly."""

    def open_since(self, limit: int) -> list[SessionRow]:
        """Open sessions, the last seen first."""

    def unseen_since(self, time_ms: int, limit: int, *, is_open: bool) -> list[SessionRow]:
        """Sessions last seen before then, the longest unseen first."""

    def delete_sessions(self, keys: Sequence[int]) -> None:
        """Forget these sessions and all their decisions."""

    # decisions
    def add_decision(self, row: DecisionRow) -> None: ...

    def decision(self, order: int) -> DecisionRow | None: ...

    def decision_by_request(self, request_id: str) -> DecisionRow | None: ...

    def decision_by_event(self, event_id: str) -> DecisionRow | None: ...

    def set_reward(
        self, order: int, value: float, at: int, status: RewardStatus, event_id: str | None
    ) -> None: ...

    def applied(self, sessions: Sequence[int], after: int = -1) -> list[DecisionRow]:
        """Decisions of these sessions whose reward was applied after that order, in its order."""

    def decisions(self, sessions: Sequence[int], limit: int) -> list[DecisionRow]:
        """The latest decisions of these sessions, in order."""

    # models
    def put_model(self, row: ModelRow) -> None:
        """Keep a model; the same id again changes nothing."""

    def model(self, model_id: str) -> ModelRow | None: ...

    def model_names(self) -> dict[str, str]:
        """Id to name of every model."""

    def add_activation(self, row: ActivationRow) -> None: ...

    def activations(self, after: int = -1) -> list[ActivationRow]: ...

    # everything else
    def note(self, name: str) -> bytes | None:
        """A small value kept under a name."""

    def put_note(self, name: str, value: bytes) -> None: ...

    def notes(self, prefix: str) -> dict[str, bytes]: ...
