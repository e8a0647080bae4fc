"""The log of the loop, divided: by age, by hash, and by live group."""

from datetime import UTC, datetime, timedelta

import numpy as np
import polars as pl
import pytest

from latentbandits.evaluation.intervals import SessionMean, compare_groups, sequence_width
from latentbandits.loop.data import (
    divide,
    held_out,
    live_groups,
    numbered_sessions,
    typical_rounds,
)
from latentbandits.loop.kept_log import without
from latentbandits.loop.records import Run
from latentbandits.loop.relearn import _judged_against, _of_earlier_looks
from latentbandits.serving.engine.statistics import GroupTotals, Statistics
from latentbandits.serving.settings import EngineSettings

NOW = datetime(2026, 11, 16, tzinfo=UTC)
SALT = b"0123456789abcdef"


def log(n_sessions, ages, rewards=None, groups=None, n_rounds=1):
    """Return decisions of sessions s0, s1, ... which are `ages` days old."""
    row = np.repeat(np.arange(n_sessions), n_rounds)
    return pl.DataFrame(
        {
            "session": [f"s{i}" for i in row],
            "round": np.tile(np.arange(1, n_rounds + 1), n_sessions),
            "time": [NOW - timedelta(days=float(ages[i])) for i in row],
            "reward": np.zeros(len(row)) if rewards is None else np.asarray(rewards)[row],
            "propensity": [0.5] * len(row),
            "propensity_kind": ["explored"] * len(row),
            "policy": ["mTS"] * len(row),
            "group": ["policy"] * len(row) if groups is None else [groups[i] for i in row],
        }
    )


def test_since_leaves_older_decisions_out_of_both_parts():
    ages = np.where(np.arange(100) < 30, 40.0, 2.0)
    actual = divide(log(100, ages), salt=SALT, share=0.3, since=timedelta(days=30), now=NOW)
    judged = {name.split("#")[0] for name in actual.judging["session"]}
    both = set(actual.training["session"]) | judged
    assert both == {f"s{i}" for i in range(30, 100)}
    assert actual.counts["sessions"] == 70
    assert len(divide(log(100, ages), salt=SALT, share=0.3, now=NOW).training) > len(
        actual.training
    )


def test_forgetting_and_judging_number_the_sessions_of_a_name_alike():
    """The first session of the name has lost its first rounds (`--since`)."""
    rounds = [4, 5, 1, 2, 3, 1, 2]
    table = pl.DataFrame(
        {"session": ["ann"] * 7, "round": rounds, "decision_id": [f"d{i}" for i in range(7)]}
    )
    names = numbered_sessions(table)["session"].to_list()
    assert names == ["ann#1"] * 2 + ["ann#2"] * 3 + ["ann#3"] * 2
    for i, name in enumerate(names):
        left = without(table, {f"d{i}"})["decision_id"].to_list()
        assert left == [f"d{k}" for k in range(7) if names[k] != name]


def test_a_half_life_keeps_half_of_the_sessions_of_that_age_and_all_new_ones():
    """4,000 sessions a case: the error rate of the bounds (4 standard errors) is below 1e-4."""
    for age, expected in ((0.0, 1.0), (14.0, 0.5), (28.0, 0.25)):
        table = log(4000, np.full(4000, age))
        actual = divide(table, salt=SALT, share=0.0, half_life=timedelta(days=14), now=NOW)
        error = 4 * np.sqrt(expected * (1 - expected) / 4000)
        assert abs(actual.counts["training_sessions"] / 4000 - expected) <= error
    whole = divide(table, salt=SALT, share=0.5, half_life=timedelta(days=14), now=NOW)
    names = [f"s{i}" for i in range(4000)]
    assert whole.counts["held_out_sessions"] == int(held_out(names, SALT, 0.5).sum())  # all stay
    # Of the half to learn from a quarter is kept. With the number that holds out, none would be.
    error = 4 * np.sqrt(0.125 * 0.875 / 4000)
    assert abs(whole.counts["training_sessions"] / 4000 - 0.125) <= error


def test_sessions_begun_since_an_activation_are_averaged_by_group():
    ages = np.array([5.0, 1.0, 1.0, 1.0])
    groups = ["policy", "policy", "holdout", "holdout"]
    table = log(4, ages, [9.0, 1.0, 2.0, 3.0], groups, n_rounds=3)
    actual = live_groups(table, NOW - timedelta(days=2), horizon=2, unrewarded=None)
    assert actual["policy"] == SessionMean(1.0, np.inf, 1)  # the older session is left out
    assert actual["holdout"] == SessionMean(2.5, pytest.approx(0.5), 2)


def test_groups_are_compared_as_on_the_page_also_where_rewards_are_missing():
    """Half of the main group's rewards are missing: that makes it no worse, here as on the page."""
    rng = np.random.default_rng(7)
    table = log(400, np.ones(400), rng.normal(1, 1, 400), ["policy", "holdout"] * 200, n_rounds=2)
    missing = (pl.col("group") == "policy") & (pl.col("round") == 2)
    reward = pl.when(missing).then(None).otherwise("reward").alias("reward")
    table = table.with_columns(reward)
    actual = live_groups(table, NOW - timedelta(days=2), horizon=2, unrewarded=None)
    page = Statistics()
    for row in (
        table.group_by("session", "group").agg(pl.sum("reward"), n=pl.count("reward")).rows()
    ):
        page.group(row[1]).add_session(*row[2:])
    assert actual == {
        name: pytest.approx(page.group(name).session_mean()) for name in ("policy", "holdout")
    }
    assert abs(actual["policy"].mean - actual["holdout"].mean) < 0.3
    filled = live_groups(table, NOW - timedelta(days=2), horizon=2, unrewarded=0.0)
    assert filled["policy"].mean == pytest.approx(actual["policy"].mean / 2)


def test_typical_rounds_are_those_of_sessions_begun_before():
    earlier, later = (
        log(3, np.full(3, age), n_rounds=n).with_columns(pl.col("session") + f" {age}")
        for age, n in ((5.0, 4), (1.0, 9))
    )
    assert typical_rounds(pl.concat([earlier, later]), NOW - timedelta(days=2)) == 4
    assert typical_rounds(earlier, NOW - timedelta(days=9)) == 1


def mean_of(rewards):
    """Return the mean of sessions with one reward each."""
    group = GroupTotals()
    for reward in rewards:
        group.add_session(reward, 1)
    return group.session_mean()


def test_groups_of_unequal_size_are_compared_by_hand():
    """Rewards +-1 in groups of 900 and 100: the errors of the means add in squares."""
    groups = {
        "policy": mean_of(np.tile([1.0, -1.0], 450)),
        "holdout": mean_of(np.tile([3.0, 1.0], 50)),
    }
    actual = compare_groups(groups, "policy", tightest_at=2_000)["holdout"]
    error = np.sqrt(900 / 899 / 900 + 100 / 99 / 100)
    width = error * np.sqrt(1000) * sequence_width(1000, 0.95, 2_000)
    np.testing.assert_allclose(actual, [-2, error, -2 - width, -2 + width])
    assert actual.high < 0


def test_levels_are_shared_by_all_groups_also_those_without_sessions_yet():
    known, none = SessionMean(1.0, 0.1, 500), None
    two = compare_groups({"policy": known, "a": known, "b": none}, "policy")
    assert set(two) == {"a"}
    width = 0.1 * np.sqrt(2) * np.sqrt(1000) * sequence_width(1000, 0.975)
    np.testing.assert_allclose(two["a"].high, width)


def test_a_group_of_one_session_or_of_equal_rewards_decides_nothing():
    noise = mean_of(np.tile([1.0, -1.0], 50))
    for rewards in (np.array([9.0]), np.full(40, 9.0)):
        actual = compare_groups({"policy": noise, "holdout": mean_of(rewards)}, "policy")
        assert actual["holdout"].low == -np.inf
        assert actual["holdout"].high == np.inf


def test_a_group_named_holdout_takes_the_place_of_the_one_without_a_share():
    own = EngineSettings(groups="holdout=popularity:0.2; greedy=mmGreedy:0.1")
    own.check()
    assert own.shares() == {"policy": 0.7, "holdout": 0.2, "greedy": 0.1}
    assert own.policies()["holdout"] == "popularity"
    with pytest.raises(ValueError, match="two groups 'holdout'"):
        EngineSettings(groups="holdout=popularity:0.2", holdout_share=0.1).check()
    with pytest.raises(ValueError, match="two groups 'policy'"):
        EngineSettings(groups="policy=popularity:0.2").check()


def test_candidates_are_counted_and_the_tuning_of_the_first_look_stays():
    def run(number, current, candidate, outcome="done", **other):
        return Run(number, "", outcome=outcome, current=current, candidate=candidate, **other)

    judged = {"tightest_at": 700}
    runs = [
        run(1, "old", "a", verdict=judged),
        run(2, "now", "b", verdict=judged),
        run(3, "now", "c", "dry run", verdict=judged),  # could not have been activated
        run(4, "now", ""),  # nothing new
        run(5, "now", "d", verdict=judged),
    ]
    assert [one.number for one in _judged_against(runs, "now", "e")] == [2, 5]
    assert [one.number for one in _judged_against(runs, "now", "d")] == [2]
    looks = [*runs, run(6, "now", "", groups={"holdout": {"low": 0.0, "tightest_at": 900}})]
    assert _of_earlier_looks(looks, looks[4], setting=50) == 900
    assert _of_earlier_looks(runs, runs[4], setting=50) == 50
