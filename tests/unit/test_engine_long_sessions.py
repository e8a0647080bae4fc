"""Long sessions: snapshots, replays in slices, merges of any number, and the cache."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import numpy as np
import pytest

from latentbandits import Decision, mmTS
from latentbandits.serving.engine import sessions as upcoming
from latentbandits.serving.engine.model_rows import pack
from latentbandits.serving.engine.sessions import SLICE, Rebuilding
from latentbandits.serving.engine.values import DecisionRequest, RewardReport
from latentbandits.serving.errors import OutcomeUnknown, StoreUnavailable
from latentbandits.serving.records import RewardedDecision
from latentbandits.serving.stores.sqlite import MemoryStore, SqliteStore
from tests.unit.engine_driver import ARMS, LINEAR, OTHER_ARMS, Driver, forget_beliefs


class Counting(SqliteStore):
    """Counts the rewards that are read to be replayed."""

    replayed = 0

    def applied(self, *arguments: object, **options: object) -> list:  # type: ignore[type-arg]
        rows = super().applied(*arguments, **options)  # type: ignore[arg-type]
        self.replayed += len(rows)
        return rows


@pytest.mark.parametrize("model", [ARMS, LINEAR], ids=["arms", "linear"])
def test_what_is_replayed_is_bounded(tmp_path: Path, model: object) -> None:
    store = Counting(tmp_path / "s.sqlite")
    driver = Driver(model, store, snapshot_rounds=20)
    rng = np.random.default_rng(1)
    features = [[1.0, 0.2], [0.1, 1.0]] if model is LINEAR else None
    driver.play("ann", 210, rng, features=features)
    before = driver.session("ann")
    store.close()
    store = Counting(tmp_path / "s.sqlite")
    again = Driver(model, store, snapshot_rounds=20)
    assert again.session("ann") == before
    assert store.replayed == 10
    store.close()


def test_a_snapshot_of_another_model_policy_or_revision_is_not_used(tmp_path: Path) -> None:
    store = Counting(tmp_path / "s.sqlite")
    driver = Driver(ARMS, store, snapshot_rounds=10, swap="migrated")
    driver.play("ann", 30, np.random.default_rng(2))
    driver.activate(pack(OTHER_ARMS, "other"), "migrated")
    assert driver.session("ann").rewards == 30
    assert store.replayed == 30
    store.close()
    store = Counting(tmp_path / "s.sqlite")
    other = Driver(OTHER_ARMS, store, policy="mTS", snapshot_rounds=10)
    other.session("ann")
    assert store.replayed == 30
    store.close()


def test_a_damaged_snapshot_is_replaced_by_the_log(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "s.sqlite")
    driver = Driver(ARMS, store, snapshot_rounds=10)
    driver.play("ann", 30, np.random.default_rng(3))
    before = driver.session("ann")
    with driver.engine.transaction():
        kept = store.snapshot(before_key(driver))
        assert kept is not None
        wrong = bytearray(kept.belief)
        wrong[-3] ^= 1
        store.put_snapshot(msgspec.structs.replace(kept, belief=bytes(wrong)))
    forget_beliefs(driver.engine)
    assert driver.session("ann") == before
    store.close()


def before_key(driver: Driver) -> int:
    live = driver.engine.sessions.find("ann")
    assert live is not None
    return live.row.key


def test_long_replays_are_done_in_slices() -> None:
    driver = Driver(ARMS, snapshot_rounds=0)
    driver.play("ann", SLICE + 50, np.random.default_rng(4))
    before = driver.session("ann")
    forget_beliefs(driver.engine)
    driver.engine.sessions.restoring.deferring = True
    with pytest.raises(Rebuilding) as raised:
        driver.ask("ann")
    slices = 0
    done = False
    while not done:
        with driver.engine.transaction():
            done = driver.engine.sessions.rebuild(raised.value.key, 0.0)
        slices += 1
        assert driver.ask("bob").action  # the others go on
    assert slices > 5
    assert driver.session("ann") == before
    forget_beliefs(driver.engine)  # the rebuilt belief was kept as a snapshot
    assert driver.session("ann") == before


def test_a_replay_is_interrupted_after_a_reward() -> None:
    """A request waits for one reward of another session's replay, not for a whole part of it."""
    driver = Driver(ARMS, swap="migrated")
    driver.play("ann", SLICE + 6, np.random.default_rng(4))
    driver.activate(pack(OTHER_ARMS, "other"), "migrated")
    driver.engine.sessions.restoring.deferring = True
    with pytest.raises(Rebuilding) as rebuilding:
        driver.session("ann")
    parts = 1
    while not driver_rebuild(driver, rebuilding.value.key, lambda: True):
        parts += 1
    assert parts >= SLICE + 6
    interrupted = driver.session("ann")
    forget_beliefs(driver.engine)
    driver.engine.sessions.restoring.deferring = False
    assert driver.session("ann") == interrupted


def test_a_replay_goes_on_where_the_store_failed_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was read before the failure may be read again, but no reward is passed over."""
    driver = Driver(ARMS, swap="migrated", snapshot_rounds=0)
    driver.play("ann", 2 * SLICE, np.random.default_rng(4))
    driver.activate(pack(OTHER_ARMS, "other"), "migrated")
    expected = driver.session("ann")
    forget_beliefs(driver.engine)
    driver.engine.sessions.restoring.deferring = True
    with pytest.raises(Rebuilding) as rebuilding:
        driver.session("ann")
    counted, reads = driver.store.counted, []

    def failing(rewards: Sequence[int]) -> list[RewardedDecision]:
        reads.append(rewards)
        if len(reads) == 3:
            raise StoreUnavailable("the store fails once")
        return counted(rewards)

    monkeypatch.setattr(driver.store, "counted", failing)

    def go_on() -> None:
        while not driver_rebuild(driver, rebuilding.value.key, lambda: True):
            pass

    with pytest.raises(StoreUnavailable):
        go_on()
    go_on()
    assert driver.session("ann") == expected


@pytest.mark.parametrize("portion", [3, 10_000])
@pytest.mark.parametrize("durable", [False, True], ids=["memory", "sqlite"])
def test_a_long_replay_of_merged_sessions_reads_each_reward_about_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, durable: bool, portion: int
) -> None:
    """To sort all that remain for each part of the replay would take time as the square."""
    monkeypatch.setattr(upcoming, "_PORTION", portion)
    read: list[int] = []
    store = Counting(tmp_path / "s.sqlite", "NORMAL") if durable else MemoryStore()
    driver = Driver(ARMS, store, swap="migrated", snapshot_rounds=0)
    rng = np.random.default_rng(4)
    for name in ("ann", "bob", "eve"):
        driver.play(name, 2 * SLICE, rng)
    corrected = driver.ask("bob")
    driver.tell(corrected, 0.1)
    for value in (0.2, 0.3, 0.4, 0.5):  # more rewards of one place than a portion has
        driver.correct(RewardReport(corrected.decision_id, value))
    driver.merge("ann", "bob")
    driver.merge("ann", "eve")
    driver.activate(pack(OTHER_ARMS, "other"), "migrated")
    expected = driver.session("ann")
    assert expected.rewards == 6 * SLICE + 1
    forget_beliefs(driver.engine)
    driver.engine.sessions.restoring.deferring = True
    with pytest.raises(Rebuilding) as rebuilding:
        driver.session("ann")
    counted = driver.store.counted
    monkeypatch.setattr(
        driver.store, "counted", lambda rewards: read.extend(rewards) or counted(rewards)
    )
    if durable:
        store.replayed = 0  # type: ignore[union-attr]
    while not driver_rebuild(driver, rebuilding.value.key, lambda: False):
        pass
    assert driver.session("ann") == expected
    assert len(read) < 2 * expected.rewards
    assert not durable or store.replayed == 0  # type: ignore[union-attr]
    store.close()


@pytest.mark.parametrize("model", [ARMS, LINEAR], ids=["arms", "linear"])
def test_decisions_after_a_merge_are_recomputed(model: object) -> None:
    """The belief of sessions that were played in turns is that of a replay, in its bits too."""
    driver = Driver(model, policy="mmTS")
    rng = np.random.default_rng(8)
    decided = []
    for i in range(60):
        features = rng.normal(size=(3, 2)).tolist() if model is LINEAR else None
        decided.append(driver.ask(f"s{i % 3}", features=features))
        driver.tell(decided[-1], float(rng.normal(0.5, 0.5)))
        if i in (20, 30):
            driver.merge("s0", f"s{i // 10 - 1}")
    for one in decided:
        again = driver.recompute(one.decision_id)
        assert (again.action, again.propensity) == (one.action, one.propensity)
        np.testing.assert_allclose(again.state_probabilities, one.state_probabilities, atol=1e-12)


def driver_rebuild(driver: Driver, key: int, interrupted: Callable[[], bool]) -> bool:
    with driver.engine.transaction():
        return driver.engine.sessions.rebuild(key, 10.0, interrupted)


def test_a_session_was_last_seen_when_it_was_last_used(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "s.sqlite")
    driver = Driver(ARMS, store)
    seen = [driver.clock.now]
    for later in (10, 990, 500, 499):
        driver.clock.now += later
        driver.ask("ann")
        forget_beliefs(driver.engine)  # read from the store
        seen.append(round(driver.session("ann").seen * 1000))
    begin = seen[0]
    assert seen[1:] == [begin + 10, begin + 1000, begin + 1500, begin + 1999]
    driver.clock.now -= 3_600_000  # a clock that is set back
    driver.ask("ann")
    assert driver.session("ann").seen * 1000 == driver.clock.now
    store.close()


def test_totals_of_an_earlier_version_are_read(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "s.sqlite")
    driver = Driver(ARMS, store)
    driver.play("ann", 30, np.random.default_rng(4))
    totals = msgspec.json.encode(driver.engine.statistics)
    with driver.engine.transaction():
        store.put_note("statistics/0", totals)
    store.close()
    again = Driver(ARMS, SqliteStore(tmp_path / "s.sqlite"))
    with again.engine.transaction():
        assert msgspec.json.encode(again.engine.statistics) == totals
    again.store.close()


def test_a_rollback_keeps_the_cache(tmp_path: Path) -> None:
    class Failing(SqliteStore):
        fail = False

        def commit(self) -> None:
            if self.fail:
                self.rollback()
                raise StoreUnavailable("the disk is full")
            super().commit()

    store = Failing(tmp_path / "s.sqlite")
    driver = Driver(ARMS, store)
    for name in "abcdef":
        driver.play(name, 3, np.random.default_rng(5))
    assert len(driver.engine.sessions) == 6
    store.fail = True
    with pytest.raises(StoreUnavailable):
        driver.ask("a")
    store.fail = False
    assert len(driver.engine.sessions) == 5  # all but the one that the transaction touched
    driver.engine.batch.begin()
    driver.engine.latest("b")
    driver.engine.batch.rollback()
    assert len(driver.engine.sessions) == 5
    assert driver.ask("a").round == 4
    store.close()


def test_after_a_commit_of_unknown_outcome_a_session_is_read_again(tmp_path: Path) -> None:
    class Unsure(SqliteStore):
        unsure = False

        def commit(self) -> None:
            super().commit()
            if self.unsure:
                raise OutcomeUnknown("the connection broke after the commit")

    store = Unsure(tmp_path / "s.sqlite")
    driver = Driver(ARMS, store)
    driver.play("ann", 3, np.random.default_rng(5))
    store.unsure = True
    with pytest.raises(OutcomeUnknown):
        driver.play("ann", 1, np.random.default_rng(6))  # its decision was made all the same
    store.unsure = False
    assert driver.ask("ann").round == 5
    store.close()


def test_a_merged_session_stays_as_long_as_the_one_it_belongs_to(tmp_path: Path) -> None:
    hour = 3_600_000
    driver = Driver(ARMS, SqliteStore(tmp_path / "s"), session_ttl=3600.0, retention=7200.0)
    driver.play("ann", 3, np.random.default_rng(7))
    driver.play("ann, on the phone", 2, np.random.default_rng(8))
    driver.merge("ann", "ann, on the phone")
    (member,) = driver.store.generations("ann, on the phone")

    def stays() -> bool:
        driver.sweep()
        return driver.store.session(member.key) is not None

    for _ in range(5):  # its own time is over long ago; the whole goes on
        driver.clock.now += hour // 2 + 1
        driver.ask("ann")
        assert stays()
    forget_beliefs(driver.engine)
    assert driver.session("ann").rewards == 5  # from the log, with that of the merged session
    driver.clock.now += hour + 1
    assert stays()  # the whole has ended, and its log is kept
    driver.clock.now += hour - 1000
    assert stays()
    driver.clock.now += 2000
    assert not stays()
    driver.store.close()


def test_the_cache_is_bounded_in_bytes() -> None:
    driver = Driver(ARMS, cached_megabytes=0.02)
    for i in range(100):
        driver.ask(f"user {i}")
    assert 5 < len(driver.engine.sessions) < 30


@pytest.mark.parametrize("direction", ["into the first", "into the next"])
def test_a_chain_of_merges(tmp_path: Path, direction: str) -> None:
    n = 300
    store = SqliteStore(tmp_path / "s.sqlite", "NORMAL")
    driver = Driver(ARMS, store)
    values = np.random.default_rng(6).normal(0.5, 0.5, n).tolist()
    actions = []
    with driver.engine.transaction():
        for i, value in enumerate(values):
            decided = driver.engine.decide(DecisionRequest(f"s{i}"))
            driver.engine.reward(RewardReport(decided.decision_id, value))
            actions.append(decided.index)
        for i in range(1, n):
            if direction == "into the first":
                driver.engine.merge("s0", f"s{i}")
            else:
                driver.engine.merge(f"s{i}", f"s{i - 1}")
    policy = mmTS(ARMS)
    belief = policy.init(1)
    for action, value in zip(actions, values, strict=True):
        belief = policy.update(belief, None, Decision.logged([action]), [value])
    expected = policy.state_probabilities(belief)[0]
    for _ in range(2):
        view = driver.session("s0")
        assert (view.round, view.rewards) == (n, n)
        np.testing.assert_allclose(view.state_probabilities, expected, atol=1e-9)
        forget_beliefs(driver.engine)
    assert driver.ask("s7").round == n + 1
    assert driver.delete("s5") == n
    store.close()


def test_a_session_that_migrates_there_and_back_while_it_is_rebuilt(tmp_path: Path) -> None:
    """A part of the replay is committed under the other model: the cached row must not be used."""
    store = SqliteStore(tmp_path / "s.sqlite")
    driver = Driver(ARMS, store, policy="mmTS", snapshot_rounds=0)
    driver.play("ann", SLICE + 20, np.random.default_rng(4))
    key = driver.engine.sessions._cache.key_of("ann")
    sessions = driver.engine.sessions
    sessions.restoring.deferring = True
    driver.activate(pack(OTHER_ARMS, "other"), "migrated")
    with pytest.raises(Rebuilding):
        driver.decide(DecisionRequest("ann"))
    with driver.engine.transaction():
        assert not sessions.rebuild(key, 0.0)  # begun, and committed under the other model
    driver.activate(pack(ARMS, "model"), "migrated")
    sessions.restoring.deferring = False
    driver.play("ann", 2, np.random.default_rng(5))
    with driver.engine.transaction():
        row = store.session(key)  # raises Damaged where the checksum is of another row
        assert row is not None
        assert (row.model, row.rewards) == (driver.engine.library.active.model, SLICE + 22)
    store.close()
