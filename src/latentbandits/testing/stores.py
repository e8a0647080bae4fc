"""`check_store`: what the decision service relies on, for any store."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from latentbandits.serving.records import ActivationRow, DecisionRow, ModelRow, SessionRow
from latentbandits.serving.stores.protocol import Store

Opener = Callable[[], Store]


def check_store(open_store: Opener) -> None:
    """AssertionError, saying which promise was broken, unless the store keeps them all.

    `open_store` opens the same, at first empty, store every time it is called.

    >>> from latentbandits.serving.stores.memory import MemoryStore
    >>> store = MemoryStore()
    >>> check_store(lambda: store)
    """
    store = open_store()
    for check in (_sessions, _open_names, _merging, _decisions, _rewards, _rollback, _models,
                  _notes, _log, _deletion):  # fmt: skip
        store.begin()
        check(store)
        store.commit()
    if store.durable:
        _outlives(store, open_store)
    else:
        store.close()


def session(key: int, name: str, **changes: object) -> SessionRow:
    """A session row to test with."""
    row = SessionRow(key, name, "policy", "m", 1, 1000 + key, 0, 0, 0.0, key, b"\0\1")
    return msgspec.structs.replace(row, **changes)


def decision(order: int, of: int, **changes: object) -> DecisionRow:
    """A decision row to test with."""
    row = DecisionRow(
        order, order * 7, of, 1, "m", "policy", "mmTS", "a", 0, 2, b'["a","b"]', None, 1, 0.5,
        "counted", b"\0" * 16,
    )  # fmt: skip
    return msgspec.structs.replace(row, **changes)


def _sessions(store: Store) -> None:
    assert store.session(1) is None, "a store that is empty has no sessions"
    rows = [session(1, "ann"), session(2, "böb ☃")]
    for row in rows:
        store.put_session(row)
        assert store.session(row.key) == row, "a session is read as it was put"
        assert store.session_named(row.name) == row
    changed = msgspec.structs.replace(rows[0], rounds=3, reward_sum=-1.5, seen=5000, last_order=99)
    store.put_session(changed)
    assert store.session(1) == changed, "a session that is put again is replaced"
    touched = msgspec.structs.replace(
        changed, rounds=4, rewards=2, seen=6000, last_order=100, activation=7, probabilities=b"\2"
    )
    store.touch_session(touched)
    assert store.session(1) == touched, "a session that is touched has all of its changes"
    assert [row.key for row in store.open_since(1)] == [1], "the last seen comes first"
    unseen = store.unseen_since(2000, 10, is_open=True)
    assert [row.key for row in unseen] == [2], "unseen sessions are those last seen before then"


def _open_names(store: Store) -> None:
    store.put_session(session(11, "eve", open=False))
    store.put_session(session(12, "eve"))
    latest = store.session_named("eve")
    assert latest is not None
    assert latest.key == 12, "a name is its latest session"
    assert [row.key for row in store.generations("eve")] == [11, 12]
    closed = store.unseen_since(10**9, 10, is_open=False)
    assert [row.key for row in closed] == [11]


def _merging(store: Store) -> None:
    store.put_session(session(21, "root"))
    store.put_session(session(22, "part", open=False, merged_into=21, merged_at=50))
    assert [row.key for row in store.members(21)] == [22], "a merged session is a member"
    assert store.members(22) == []


def _decisions(store: Store) -> None:
    store.put_session(session(31, "dan"))
    rows = [
        decision(101, 31, request_id="r1", fingerprint=b"\xff\0"),
        decision(102, 31, actions=None, features=b"\0" * 32, propensity=None),
        decision((1 << 63) - 1, 31, token=(1 << 63) - 1),
    ]
    for row in rows:
        store.add_decision(row)
        assert store.decision(row.order) == row, "a decision is read as it was added"
    assert store.decision(100) is None
    assert store.decision_by_request("r1") == rows[0]
    assert store.decision_by_request("r2") is None
    assert store.decisions([31], 2) == rows[1:], "the latest decisions, in order"
    assert store.applied([31]) == [], "a decision without a reward teaches nothing"


def _rewards(store: Store) -> None:
    store.put_session(session(41, "kim"))
    for order in (201, 202, 203, 204):
        store.add_decision(decision(order, 41))
    store.set_reward(203, 0.1, 301, "applied", "e1")
    store.set_reward(201, -2e-300, 302, "applied", None)
    store.set_reward(202, 5.0, 303, "late", None)
    learned = store.applied([41])
    assert [row.order for row in learned] == [203, 201], "in the order in which they were applied"
    assert [row.reward for row in learned] == [0.1, -2e-300], "rewards keep every bit"
    assert [row.order for row in store.applied([41], after=301)] == [201]
    by_event = store.decision_by_event("e1")
    assert by_event is not None
    assert by_event.order == 203
    late = store.decision(202)
    assert late is not None
    assert (late.reward, late.reward_status, late.reward_order) == (5.0, "late", 303)


def _rollback(store: Store) -> None:
    store.put_session(session(51, "lea"))
    store.add_decision(decision(401, 51))
    store.commit()
    store.begin()
    store.put_session(session(51, "lea", rounds=9))
    store.put_session(session(52, "max"))
    store.add_decision(decision(402, 52, request_id="r9"))
    store.set_reward(401, 1.0, 500, "applied", "e9")
    store.put_note("a", b"1")
    store.put_model(ModelRow("x", "x", b""))
    store.add_activation(ActivationRow(7, "x", "pinned"))
    store.delete_sessions([51])
    store.rollback()
    store.begin()
    assert store.session(51) == session(51, "lea"), "a rollback leaves nothing of a transaction"
    assert store.session(52) is None
    assert store.session_named("max") is None
    assert store.decision(402) is None
    assert store.decision_by_request("r9") is None
    assert store.decision_by_event("e9") is None
    unrewarded = store.decision(401)
    assert unrewarded is not None
    assert unrewarded.reward is None
    assert store.note("a") is None
    assert store.model("x") is None
    assert store.activations() == []


def _models(store: Store) -> None:
    row = ModelRow("id1", "first", b"\x80\0\xff")
    store.put_model(row)
    store.put_model(ModelRow("id1", "again", b""))
    assert store.model("id1") == row, "a model is kept as it was first given"
    assert store.model("id2") is None
    assert store.model_names() == {"id1": "first"}
    first, second = ActivationRow(10, "id1", "pinned"), ActivationRow(20, "id1", "migrated")
    store.add_activation(first)
    store.add_activation(second)
    assert store.activations() == [first, second]
    assert store.activations(after=10) == [second]


def _notes(store: Store) -> None:
    store.put_note("p/1", b"one")
    store.put_note("p/1", b"two")
    store.put_note("q", b"\0")
    assert store.note("p/1") == b"two"
    assert store.notes("p/") == {"p/1": b"two"}


def _log(store: Store) -> None:
    store.put_session(session(61, "log"))
    for order in (601, 602, 603):
        store.add_decision(decision(order, 61))
    store.commit()
    store.begin()
    reader = store.log_reader()
    page = reader.read(since=600, limit=2)
    assert [logged.row.order for logged in page] == [601, 602], "the log is in order, in pages"
    assert {logged.session_name for logged in page} == {"log"}
    if store.durable:
        reader.close()


def _deletion(store: Store) -> None:
    store.put_session(session(71, "gone", open=False))
    store.put_session(session(72, "gone"))
    store.add_decision(decision(701, 71, request_id="r71"))
    store.add_decision(decision(702, 72))
    store.set_reward(701, 1.0, 800, "applied", "e71")
    store.delete_sessions([71, 72])
    for found in (
        store.session(71),
        store.session_named("gone"),
        store.decision(701),
        store.decision_by_request("r71"),
        store.decision_by_event("e71"),
    ):
        assert found is None, "nothing of a deleted session is left"
    assert store.decisions([71, 72], 10) == []
    assert store.session(61) is not None, "the others are untouched"


def _outlives(store: Store, open_store: Opener) -> None:
    store.begin()
    store.put_session(session(81, "kept"))
    store.commit()
    store.begin()
    store.put_session(session(82, "lost"))
    store.close()
    again = open_store()
    again.begin()
    assert again.session(81) == session(81, "kept"), "what was committed outlives the process"
    assert again.session(82) is None, "what was not committed does not"
    again.commit()
    again.close()
