"""Answers that are kept for repeated requests hold no ids of users."""

from __future__ import annotations

import msgspec
import pytest

from latentbandits.serving.engine.engine import Engine
from latentbandits.serving.engine.idempotency import digest, once
from latentbandits.serving.errors import Conflict
from latentbandits.serving.stores.sqlite import MemoryStore


def never() -> int:
    raise AssertionError("it was done a second time")


def kept(store: MemoryStore) -> bytes:
    return b"".join(store.notes("once/").values())


def test_a_request_id_is_kept_as_a_digest() -> None:
    store = MemoryStore()
    assert once(store, "forget ann-1", "forget", lambda: 2, int) == 2
    assert once(store, "forget ann-1", "forget", never, int) == 2
    with pytest.raises(Conflict, match="was used to forget"):
        once(store, "forget ann-1", "activate", never, int)
    assert b"ann-1" not in kept(store)
    assert digest("forget ann-1").encode() in kept(store)


@pytest.mark.parametrize("opened", [True, False])
def test_answers_of_earlier_versions_lose_their_ids(opened: bool) -> None:
    store = MemoryStore()
    once(store, "forget ann-1", "forget", lambda: 2, int)
    (slot,) = set(store.notes("once/")) - {"once/lock"}
    answer = msgspec.msgpack.encode({"session": "ann-1", "sessions": 3})
    store.put_note(slot, msgspec.msgpack.encode(["forget ann-1", "forget", answer]))
    if opened:
        Engine(store)
        assert b"ann-1" not in kept(store)
    assert once(store, "forget ann-1", "forget", never, int) == 3
