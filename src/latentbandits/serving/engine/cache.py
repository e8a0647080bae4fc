"""The beliefs of the sessions that were last used, bounded in number and bytes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from latentbandits.serving.engine.open_session import Live
from latentbandits.serving.records import SessionRow

_OVERHEAD = 600  # bytes per session in the cache, without its belief


class Cache:
    """Sessions by key and by name; a transaction that is rolled back can be undone.

    Args:
        capacity: sessions that are kept at most.
        capacity_bytes: bytes that they and their models may take, about.
        model_bytes: returns the bytes of their models, besides the active one.
    """

    def __init__(
        self, capacity: int, capacity_bytes: int, model_bytes: Callable[[], int] = lambda: 0
    ) -> None:
        self._model_bytes = model_bytes
        self._capacity = capacity
        self._capacity_bytes = capacity_bytes
        self._bytes = 0
        self._sessions: OrderedDict[int, Live] = OrderedDict()
        self._keys: dict[str, int] = {}
        self._before: dict[int, Live | None] = {}  # sessions that this transaction has changed

    def __len__(self) -> int:
        return len(self._sessions)

    def clear(self) -> None:
        """Forget all sessions."""
        self._sessions.clear()
        self._keys.clear()
        self._before.clear()
        self._bytes = 0

    def get(self, key: int) -> Live | None:
        """Return a session, if it is here."""
        return self._sessions.get(key)

    def key_of(self, name: str) -> int | None:
        """Return the key of the open session of this name, if it is known."""
        return self._keys.get(name)

    def name(self, name: str, key: int) -> None:
        """Remember that the open session of this name, or of this other name, has this key."""
        if len(self._keys) > 4 * self._capacity:
            self._keys.clear()
        self._keys[name] = key

    def put(self, live: Live) -> None:
        """Keep a session as the one that was used last; those used longest ago may leave."""
        key, sessions = live.row.key, self._sessions
        old = sessions.get(key)
        if old is not live:
            self._before.setdefault(key, old)
            sessions[key] = live
            self._bytes += _size(live) - (0 if old is None else _size(old))
        sessions.move_to_end(key)
        while len(sessions) > self._capacity or (
            sessions and self._bytes + self._model_bytes() > self._capacity_bytes
        ):
            old_key, old = next(iter(sessions.items()))
            self._pop(old_key)
            self._keys.pop(old.row.name, None)

    def remove(self, key: int) -> None:
        """Take a session out, in this transaction."""
        self._before.setdefault(key, self._sessions.get(key))
        self._pop(key)

    def remove_where(self, stale: Callable[[SessionRow], bool]) -> None:
        """Take out, between transactions, all sessions whose rows are stale."""
        for live in list(self._sessions.values()):
            if stale(live.row):
                self._pop(live.row.key)
                self._keys.pop(live.row.name, None)

    def forget_name(self, name: str) -> None:
        """Have the name looked up in the store the next time."""
        self._keys.pop(name, None)

    def committed(self) -> None:
        """Keep all changes of the transaction."""
        self._before.clear()

    def rolled_back(self, *, certain: bool) -> None:
        """Put back the sessions that the transaction changed, and no others.

        Where it is not `certain` that nothing was committed, the store is read for them.
        """
        for key, live in self._before.items():
            self._pop(key)
            if live is not None and certain:
                self._insert(key, live)
        self._before.clear()
        self._keys.clear()

    def _insert(self, key: int, live: Live) -> None:
        self._sessions[key] = live
        self._bytes += _size(live)

    def _pop(self, key: int) -> None:
        old = self._sessions.pop(key, None)
        if old is not None:
            self._bytes -= _size(old)


def _size(live: Live) -> int:
    return _OVERHEAD + live.group.belief_bytes
