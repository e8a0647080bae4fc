"""Refusals of the engine: each message names the problem, the value, and a remedy."""

from __future__ import annotations


class Refused(Exception):  # noqa: N818 - an answer, not a fault
    """A request that changes nothing; `code` is for programs, the message for people."""

    code = "refused"

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class Invalid(Refused):
    """A request that is invalid in itself."""

    code = "invalid"


class UnknownCursor(Invalid, ValueError):  # noqa: N818 - an answer, not a fault
    """The cursor belongs to another store, or to events that this store has lost."""

    code = "unknown_cursor"


class Forbidden(Refused):
    """A request that the caller's key does not allow."""

    code = "forbidden"


class NotFound(Refused):
    """A request that names something that does not exist."""

    code = "not_found"

    def __init__(self, kind: str, name: str) -> None:
        super().__init__(f"there is no {kind} {name[:100]!r}")


class Conflict(Refused):
    """A request that contradicts something that is already stored."""

    code = "conflict"


class Busy(Refused):
    """More is waiting than the service takes on; try again shortly."""

    code = "busy"


class StoreUnavailable(Refused):
    """The store could not commit: nothing was acknowledged; try again later."""

    code = "store_unavailable"


class Contention(StoreUnavailable):
    """Another process held a lock that this transaction needed; a retry may succeed."""

    code = "contention"


class OutcomeUnknown(StoreUnavailable):
    """The store did not say whether it committed: ask again with the same request id."""

    code = "unknown"


class Damaged(StoreUnavailable):
    """The store holds other bytes than were written."""

    code = "damaged"


class StoreError(ValueError):
    """A store that is held by another process or of a newer version, or no store at all."""
