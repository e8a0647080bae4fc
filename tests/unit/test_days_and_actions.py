"""What each day and each action earned: the page's figures against sums over the log."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import msgspec
import numpy as np
import pytest

from latentbandits.serving.engine.statistics import (
    DAYS,
    STATISTICS,
    Statistics,
    combined,
    computed_totals,
    encode_totals,
    read_totals,
)
from latentbandits.serving.engine.values import RewardReport
from latentbandits.serving.http.views import actions_earned, overview
from latentbandits.serving.records import LoggedEvent, SessionRow
from latentbandits.serving.stores.sqlite import SqliteStore
from tests.unit.engine_driver import ARMS, Driver

DAY = 86_400_000
STATES = ["State 1", "State 2", "State 3"]


def played(driver: Driver, n_days: int = 3, n_sessions: int = 5) -> dict[str, list[list[float]]]:
    """Play sessions on some days, and return the rewards of each session by day."""
    rng = np.random.default_rng(0)
    rewards: dict[str, list[list[float]]] = defaultdict(list)
    for day in range(n_days):
        for i in range(n_sessions):
            values = rng.normal(0.5, 0.5, size=1 + i).round(3).tolist()
            for value in values:
                driver.tell(driver.ask(f"{day}-{i}"), value)
            rewards[f"2023-11-{14 + day}"].append(values)
        driver.clock.now += DAY
    return rewards


def log_of(driver: Driver) -> list[LoggedEvent]:
    reader = driver.store.log_reader()
    return list(reader.read(0, 10_000, until=reader.end()))


def days_of(driver: Driver) -> dict[str, tuple[int, int, float]]:
    with driver.engine.transaction():
        [group] = overview(driver.engine).groups
    found = {}
    for one in group.days:
        assert one.reward is not None
        found[one.day] = (one.sessions, one.rewards, one.reward.mean)
    return found


def test_the_mean_of_a_day_is_that_of_the_sessions_which_began_on_it(arms: Driver) -> None:
    rewards = played(arms)
    assert days_of(arms) == {
        day: (len(of_day), sum(map(len, of_day)), pytest.approx(np.mean(np.concatenate(of_day))))
        for day, of_day in rewards.items()
    }


def test_a_late_reward_a_correction_and_a_merge_count_on_the_day_of_their_session(
    arms: Driver,
) -> None:
    first = arms.ask("ann")
    arms.clock.now += DAY
    other = arms.ask("ann's phone")
    arms.tell(other, 4.0)
    assert arms.tell(first, 1.0) == "applied"
    assert days_of(arms) == {"2023-11-14": (1, 1, 1.0), "2023-11-15": (1, 1, 4.0)}
    arms.correct(RewardReport(first.decision_id, 3.0, "again"))
    assert days_of(arms)["2023-11-14"] == (1, 1, 3.0)
    arms.merge("ann", "ann's phone")
    assert days_of(arms) == {"2023-11-14": (1, 2, 3.5)}


def test_only_the_latest_days_are_kept() -> None:
    driver = Driver(ARMS)
    old = driver.ask("old")
    driver.clock.now += DAY
    played(driver, n_days=DAYS, n_sessions=1)
    assert len(driver.engine.statistics.days["policy"]) == DAYS
    driver.tell(old, 1.0)
    assert len(driver.engine.statistics.days["policy"]) == DAYS


def test_days_computed_from_the_log_are_those_that_were_counted(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "log.sqlite")
    driver = Driver(ARMS, store)
    played(driver)
    with driver.engine.transaction():
        actual = computed_totals(store, store.log_reader())
    expected = driver.engine.statistics.days["policy"]
    assert actual.days["policy"].keys() == expected.keys()
    for day, one in actual.days["policy"].items():
        numbers = msgspec.structs.astuple(one)[:-1]
        assert numbers == pytest.approx(msgspec.structs.astuple(expected[day])[:-1])


def session(started: int, reward_sum: float = 0.0, rewards: int = 0) -> SessionRow:
    return SessionRow(
        key=1, name="ann", group="policy", model="m", activation=0, started=started, seen=started,
        rounds=2, rewards=rewards, reward_sum=reward_sum, last_order=1, probabilities=b"",
    )  # fmt: skip


def test_totals_that_were_written_before_days_were_counted(tmp_path: Path) -> None:
    """Sessions of the time before have no day: their first rewards would be missing."""
    store = SqliteStore(tmp_path / "log.sqlite")
    driver = Driver(ARMS, store)
    played(driver)
    before = driver.engine.statistics
    older = msgspec.structs.replace(before, days={})
    with driver.engine.transaction():
        store.put_note(f"{STATISTICS}{store.node}", encode_totals(older))
        totals = read_totals(store)
    totals.earned(session(driver.clock.now, 1.0, 1), (2.0, 2))
    assert totals.days == {"policy": {}}
    now = totals.days_from
    totals.earned(session(now), (2.0, 1))
    assert [one.reward_sum for one in totals.days["policy"].values()] == [2.0]


def test_processes_that_share_a_store_add_their_days() -> None:
    """A session's first reward came to one process, its second to another."""
    a, b = Statistics(), Statistics()
    a.earned(session(0), (1.0, 1))
    b.earned(session(0, 1.0, 1), (3.0, 2))
    b.earned(session(DAY), (5.0, 1))
    days = combined([a, b]).days["policy"]
    assert [(one.sessions, one.rewards, one.reward_sum) for one in days.values()] == [
        (1, 2, 3.0),
        (1, 1, 5.0),
    ]


def test_actions_by_hand(arms: Driver) -> None:
    """Sums over decisions and their counted rewards, by action and by the likeliest state."""
    played(arms, n_days=2, n_sessions=20)
    first = arms.ask("late")
    arms.ask("never rewarded")
    arms.tell(first, 9.0)
    arms.correct(RewardReport(first.decision_id, 1.0, "again"))
    events = log_of(arms)
    model = arms.engine.library.active.model
    shown = actions_earned(events, model, STATES, {"2": "green tea"})
    assert shown.decisions == sum(event.reward is None for event in events)
    assert sum(one.total.decisions for one in shown.actions) == shown.decisions
    counts = [one.total.decisions for one in shown.actions]
    assert counts == sorted(counts, reverse=True)
    assert {one.action: one.name for one in shown.actions}["2"] == "green tea"
    for one in shown.actions:
        rewards: dict[int, list[float]] = defaultdict(list)
        for event in events:
            if event.decision.action == one.action and event.reward is not None:
                assert event.current is not None
                if event.current.order == event.reward.order:
                    state = int(np.argmax(np.frombuffer(event.decision.probabilities)))
                    rewards[state].append(event.reward.value)
        everything = [value for values in rewards.values() for value in values]
        assert one.total.rewards == len(everything)
        assert one.total.reward is not None
        assert one.total.reward.mean == pytest.approx(np.mean(everything))
        for state, earned in enumerate(one.states):
            assert earned.rewards == len(rewards[state])
            if earned.reward is not None:
                assert earned.reward.mean == pytest.approx(np.mean(rewards[state]))


def test_actions_of_other_models_and_decisions_before_the_window_are_left_out(
    arms: Driver,
) -> None:
    decided = arms.ask("ann")
    arms.tell(decided, 1.0)
    model = arms.engine.library.active.model
    events = log_of(arms)
    assert actions_earned(events, "another", STATES, {}).actions == []
    assert actions_earned(events[1:], model, STATES, {}).actions == []
    [one] = actions_earned(events, model, STATES, {}).actions
    assert (one.total.decisions, one.total.rewards) == (1, 1)
    assert one.total.reward is not None
    assert (one.total.reward.low, one.total.reward.high) == (None, None)  # of one session
