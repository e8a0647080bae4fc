"""`check_store`: check the properties that the decision service relies on, for any store."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import numpy as np

from latentbandits.models.arms.gaussian import GaussianArms
from latentbandits.models.artefacts import Catalogue, model_files
from latentbandits.serving.records import (
    ActivationRow,
    AuditRow,
    DecisionRow,
    ModelRow,
    RewardRow,
    SessionRow,
    SnapshotRow,
)
from latentbandits.serving.stores.protocol import Store

Opener = Callable[[], Store]


def check_store(open_store: Opener) -> None:
    """Raise AssertionError, which names the broken promise, unless the store keeps them all.

    `open_store` opens the same, at first empty, store every time it is called.

    >>> from latentbandits.serving.stores import open_store
    >>> store = open_store("memory")
    >>> check_store(lambda: store)
    """
    store = open_store()
    for check in _CHECKS:
        store.begin()
        check(store)
        store.commit()
    if store.durable:
        _outlives(store, open_store)
    else:
        store.close()


def session(key: int, name: str, **changes: object) -> SessionRow:
    """Return a session row to test with."""
    row = SessionRow(key, name, "policy", "m", 1, 900, 1000 + key, 0, 0, 0.0, key, b"\0\1")
    return msgspec.structs.replace(row, **changes)


def decision(order: int, session: int, **changes: object) -> DecisionRow:
    """Return a decision row to test with."""
    row = DecisionRow(
        order, order * 7, session, 1, 1000 + order, "m", "policy", "mmTS", "a", 0, 2, b'["a","b"]',
        None, 1, 0.5, "counted", b"\0" * 16,
    )  # fmt: skip
    return msgspec.structs.replace(row, **changes)


def reward(order: int, decided: int, session: int, value: float, **changes: object) -> RewardRow:
    """Return a reward row to test with."""
    row = RewardRow(order, decided, session, order, value, "reward", "applied", 1000 + order)
    return msgspec.structs.replace(row, **changes)


def _next(store: Store) -> None:
    """End a transaction and begin the next one."""
    store.commit()
    store.begin()


def _orders(store: Store) -> None:
    first = store.reserve(0)
    second = store.reserve(0)
    assert first, "a block has at least one order"
    assert second.start >= first.stop, "no order is given twice"
    if not store.shared:
        above = store.reserve(second.stop + 10_000)
        assert above.start > second.stop + 10_000, "orders lie above the floor"


def _sessions(store: Store) -> None:
    assert store.session(1) is None, "a store that is empty has no sessions"
    rows = [session(1, "ann"), session(2, "böb ☃")]
    for row in rows:
        store.add_session(row)
        assert store.session(row.key) == row, "a session is read as it was added"
        assert store.session_named(row.name) == row
    changed = msgspec.structs.replace(rows[0], rounds=3, reward_sum=-1.5, seen=5000, last_order=99)
    store.put_session(changed)
    assert store.session(1) == changed, "a session that is put is replaced"
    touched = msgspec.structs.replace(
        changed, rounds=4, rewards=2, seen=6000, last_order=100, activation=7, probabilities=b"\2",
        revision=1,
    )  # fmt: skip
    store.touch_sessions([touched])
    assert store.session(1) == touched, "a session that is touched has all of its changes"
    assert [row.key for row in store.open_since(1)] == [1], "the last seen comes first"
    unseen = store.unseen_since(2000, 10, is_open=True)
    assert [row.key for row in unseen] == [2], "unseen sessions are those last seen before then"


def _open_names(store: Store) -> None:
    store.add_session(session(11, "eve", open=False))
    store.add_session(session(12, "eve"))
    latest = store.session_named("eve")
    assert latest is not None
    assert latest.key == 12, "a name is its latest session"
    assert [row.key for row in store.generations("eve")] == [11, 12]
    closed = store.unseen_since(10**9, 10, is_open=False)
    assert [row.key for row in closed] == [11]


def _merging(store: Store) -> None:
    store.add_session(session(21, "root", members=2))
    store.add_session(session(22, "part", open=False, merged_into=21, merged_at=50, members=1))
    store.add_session(session(23, "leaf", open=False, merged_into=22, merged_at=40))
    assert [row.key for row in store.members(21)] == [22], "a merged session is a member"
    assert store.members(23) == []
    assert [store.root(key) for key in (21, 22, 23)] == [21, 21, 21], "the root of all is one"
    for key in (21, 22, 23):
        store.add_decisions([decision(key * 10, key)])
        store.add_rewards([reward(key * 10 + 1, key * 10, key, 1.0)])
    orders = [row.decision.order for row in store.applied(21, merged=True)]
    assert orders == [210, 220, 230], "a merged session has the rewards of all its members"
    assert [row.decision.order for row in store.applied(21)] == [210]
    places = store.replay_order(21, merged=True, after=(211, 211), limit=9)
    assert places == [(221, 221), (231, 231)], "the order of replay is that of all members"
    assert store.replay_order(21, merged=False, after=(-1, 0), limit=9) == [(211, 211)]
    assert store.counted([231, 221]) == store.applied(21, merged=True, after=211)
    early = store.applied(21, merged=True, before=45)
    assert early == [], "before the merge there was nothing"
    assert store.latest(21, 2, merged=True) == [220, 230], "the latest of all members"


def _decisions(store: Store) -> None:
    store.add_session(session(31, "dan"))
    rows = [
        decision(1101, 31, request_id="r1", fingerprint=b"\xff\0"),
        decision(1102, 31, actions=None, features=b"\0" * 32, propensity=None),
        decision((1 << 63) - 1, 31, token=(1 << 63) - 1, time=9000),
    ]
    for row in rows:
        store.add_decisions([row])
        assert store.decision(row.order) == row, "a decision is read as it was added"
    assert store.decision(1100) is None
    assert store.decision_by_request("r1") == rows[0]
    assert store.decision_by_request("r2") is None
    latest = [row.decision for row in store.history(store.latest(31, 2))]
    assert latest == rows[1:], "the latest decisions, in order"
    assert store.applied(31) == [], "a decision without a reward teaches nothing"


def _rewards(store: Store) -> None:
    store.add_session(session(41, "kim"))
    for order in (1201, 1202, 1203, 1204):
        store.add_decisions([decision(order, 41)])
    assert store.reward_of(1203) is None
    rows = [
        reward(1301, 1203, 41, 0.1, event_id="e1"),
        reward(1302, 1201, 41, -2e-300),
        reward(1303, 1202, 41, 5.0, status="late"),
    ]
    for row in rows:
        store.add_rewards([row])
        assert store.reward_of(row.decision) == row, "a reward is read as it was added"
    learned = store.applied(41)
    assert [row.decision.order for row in learned] == [1203, 1201], "in the order of replay"
    values = [row.reward.value for row in learned if row.reward is not None]
    assert values == [0.1, -2e-300], "rewards keep every bit"
    assert [row.decision.order for row in store.applied(41, after=1301)] == [1201]
    assert [row.decision.order for row in store.applied(41, limit=1)] == [1203]
    assert store.reward_by_event("e1") == rows[0]
    latest = store.history(store.latest(41, 9))
    assert [row.reward for row in latest] == [rows[1], rows[2], rows[0], None]
    assert store.history([7, 1202]) == latest[1:2], "those that are there"


def _corrections(store: Store) -> None:
    store.add_session(session(42, "cor"))
    for order in (1401, 1402):
        store.add_decisions([decision(order, 42)])
    store.add_rewards([reward(1411, 1401, 42, 1.0)])
    store.add_rewards([reward(1412, 1402, 42, 2.0)])
    corrected = reward(1413, 1401, 42, 3.0, kind="correction", applies_at=1411)
    store.add_rewards([corrected])
    assert store.reward_of(1401) == corrected, "the latest reward of a decision counts"
    values = [row.reward.value for row in store.applied(42) if row.reward is not None]
    assert values == [3.0, 2.0], "a correction has the place of the first reward"
    places = store.replay_order(42, merged=False, after=(-1, 0), limit=9)
    assert places == [(1411, 1411), (1411, 1413), (1412, 1412)], "corrected rewards are among them"
    assert store.replay_order(42, merged=False, after=(-1, 0), limit=2) == places[:2]
    assert store.replay_order(42, merged=False, after=places[0], limit=9) == places[1:]
    assert store.counted([1411]) == [], "a corrected reward does not count"
    assert store.counted([1411, 1413, 1412]) == store.applied(42)
    before = store.applied(42, before=1413)
    values = [row.reward.value for row in before if row.reward is not None]
    assert values == [1.0, 2.0], "before the correction the first reward counted"


def _unrewarded(store: Store) -> None:
    _next(store)
    rows, position = store.unrewarded(0, 1000 + 1203, 100)
    waiting = [row.order for row in rows]
    assert waiting == [1101, 1102], "decisions made before then that have no reward"
    assert position > 0
    rows, _ = store.unrewarded(position, 1000 + 1205, 100)
    assert [row.order for row in rows] == [], "a huge order stops it"


def _snapshots(store: Store) -> None:
    first = SnapshotRow(41, "m", "mmTS", 0, 1, 1301, b"\0\xff")
    second = msgspec.structs.replace(first, learned=2, learned_to=1302)
    assert store.snapshot(41) is None
    for row in (first, second):
        store.put_snapshot(row)
        assert store.snapshot(41) == row, "a session has its latest snapshot"
    store.drop_snapshot(41)
    assert store.snapshot(41) is None


def _rollback(store: Store) -> None:
    store.add_session(session(51, "lea"))
    store.add_decisions([decision(1501, 51)])
    _next(store)
    store.put_session(session(51, "lea", rounds=9))
    store.add_session(session(52, "max"))
    store.add_decisions([decision(1502, 52, request_id="r9")])
    store.add_rewards([reward(1503, 1501, 51, 1.0, event_id="e9")])
    store.put_snapshot(SnapshotRow(51, "m", "mmTS", 0, 1, 1503, b""))
    store.put_note("a", b"1")
    store.put_model(ModelRow("x", "x", b""))
    store.add_activation(ActivationRow(7, "x", "pinned", 1))
    store.add_audit(AuditRow(1599, 1, "root", "forget", ""))
    store.delete_sessions([51])
    store.rollback()
    store.begin()
    assert store.session(51) == session(51, "lea"), "a rollback leaves nothing of a transaction"
    for rows in (
        store.session(52),
        store.session_named("max"),
        store.decision(1502),
        store.decision_by_request("r9"),
        store.reward_by_event("e9"),
        store.reward_of(1501),
        store.snapshot(51),
        store.note("a"),
        store.model("x"),
    ):
        assert rows is None, "a rollback leaves nothing of a transaction"
    assert store.activations() == []
    assert store.audit(0, 10) == []


def _changed_models(store: Store) -> None:
    """Keep models as differences from another one, and forget models that no session can have."""
    catalogues = [Catalogue([f"action {i}" for i in range(500 + n)]) for n in range(3)]
    files = [model_files(GaussianArms(np.ones((2, len(c))), 1.0), c) for c in catalogues]
    rows = [
        ModelRow(f"v{n}", "versions", msgspec.msgpack.encode(content), b"{}", "v0" if n else None)
        for n, content in enumerate(files)
    ]
    for row in rows:
        store.put_model(row)
    for row in rows:
        kept = store.model(row.id)
        assert kept is not None
        assert kept.files == row.files, "a model has all its files, however it is kept"
    oldest = min((row.started for row in store.open_since(1_000)), default=0)
    gone = store.prune_models({"v0": oldest - 2, "v1": oldest, "v2": oldest - 1})
    assert "v2" in gone, "a model is forgotten where all sessions began after it was replaced"
    assert "v1" not in gone, "a model that a session can have used is kept"
    assert store.model("v2") is None
    kept = store.model("v1")
    assert kept is not None
    assert kept.files == rows[1].files, "a model is whole after another one was forgotten"


def _models(store: Store) -> None:
    row = ModelRow("id1", "first", b"\x80\0\xff", b"{}")
    store.put_model(row)
    store.put_model(ModelRow("id1", "again", b""))
    assert store.model("id1") == row, "a model is kept as it was first given"
    assert store.model("id2") is None
    assert store.model_summaries() == {"id1": ("first", b"{}")}
    _changed_models(store)
    first = ActivationRow(10, "id1", "pinned", 5, "ann")
    second = ActivationRow(20, "id1", "migrated", 6)
    store.add_activation(first)
    store.add_activation(second)
    assert store.activations() == [first, second]
    assert store.activations(after=10) == [second]
    line = AuditRow(1598, 1, "root", "forget", "2 sessions")
    store.add_audit(line)
    assert store.audit(0, 10) == [line]


def _notes(store: Store) -> None:
    store.put_note("p/1", b"one")
    store.put_note("p/1", b"two")
    store.put_note("q", b"\0")
    assert store.note("p/1") == b"two"
    assert store.notes("p/") == {"p/1": b"two"}


def _log(store: Store) -> None:
    _next(store)
    reader = store.log_reader()
    last = 0
    while page := reader.read(last, 50):
        last = page[-1].position
    store.add_session(session(61, "log"))
    for order in (1603, 1601):  # positions follow the commits, not the orders
        store.add_decisions([decision(order, 61)])
    assert reader.read(last, 9) == [], "nothing is seen before its commit"
    before = reader.end()
    assert before >= last, "the end is not before the last event"
    _next(store)
    late = reward(1602, 1501, 51, 2.0, status="late")
    store.add_rewards([late])
    _next(store)
    page = reader.read(last, 2)
    assert [e.decision.order for e in page] == [1603, 1601], "the log is in order, in pages"
    assert {event.session_name for event in page} == {"log"}
    (event,) = reader.read(page[-1].position, 2)
    assert (event.decision.order, event.reward) == (1501, late), "a late reward is an event"
    assert event.decided_at <= last < event.position
    assert reader.end() >= event.position > before, "the end is that of the last commit"
    assert reader.read(before, 9, until=page[0].position) == page[:1], "a page ends at `until`"
    assert event.current == late, "a reward that was committed counts"
    decided = next(e for e in reader.read(0, 999, until=before) if e.decision.order == 1501)
    assert decided.current != late, "the reward that counts is that of `until`"
    assert reader.note("p/1") == b"two", "readers see the notes"
    wide = reader.read(0, 100, max_bytes=1)
    assert len(wide) == 1, "a page is bounded by bytes, and holds at least one event"
    reader.close()


def _deletion(store: Store) -> None:
    store.add_session(session(71, "gone", open=False))
    store.add_session(session(72, "gone"))
    store.add_decisions([decision(1701, 71, request_id="r71")])
    store.add_decisions([decision(1702, 72)])
    store.add_rewards([reward(1801, 1701, 71, 1.0, event_id="e71")])
    store.put_snapshot(SnapshotRow(71, "m", "mmTS", 0, 1, 1801, b""))
    _next(store)
    reader = store.log_reader()
    end = reader.end()
    reader.close()
    store.delete_sessions([71, 72])
    for rows in (
        store.session(71),
        store.session_named("gone"),
        store.decision(1701),
        store.decision_by_request("r71"),
        store.reward_by_event("e71"),
        store.snapshot(71),
    ):
        assert rows is None, "nothing of a deleted session is left"
    assert store.latest(71, 10) == store.latest(72, 10) == []
    _next(store)
    reader = store.log_reader()
    names = {event.session_name for event in reader.read(0, 1000)}
    assert "gone" not in names, "a deleted session is not in the log"
    assert reader.end() >= end, "the end stays where the last events were deleted"
    assert reader.present([1601, 1701, 1702, 9999]) == {1601}, "readers can tell what was deleted"
    assert reader.present([]) == set()
    reader.close()
    assert store.session(61) is not None, "the others are untouched"


_CHECKS: tuple[Callable[[Store], None], ...] = (
    _orders, _sessions, _open_names, _merging, _decisions, _rewards, _corrections, _unrewarded,
    _snapshots, _rollback, _models, _notes, _log, _deletion,
)  # fmt: skip


def _outlives(store: Store, open_store: Opener) -> None:
    store.begin()
    store.add_session(session(81, "kept"))
    last = store.reserve(0)
    _next(store)
    store.add_session(session(82, "lost"))
    store.close()
    again = open_store()
    again.begin()
    assert again.session(81) == session(81, "kept"), "what was committed outlives the process"
    assert again.session(82) is None, "what was not committed does not"
    assert again.reserve(0).start >= last.stop, "orders are never given twice, also after a restart"
    again.commit()
    again.close()
