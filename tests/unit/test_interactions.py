"""Exports of the service and other logs, read together."""

import polars as pl
import pytest

from latentbandits.learning.backends.opening import Opening, read_interactions
from latentbandits.learning.logs.tables import LogError

EXPORT = {
    "decision_id": ["a1", "a2", "b1", "b2"],
    "session": ["ann", "ann", "bob", "bob"],
    "action": ["x", "y", "x", "y"],
    "reward": [1.0, None, 0.0, 0.5],
}


def test_an_export_is_a_log_as_it_is():
    actual = read_interactions(EXPORT, Opening())
    assert (actual.log.n_events, actual.log.user_ids) == (3, ("ann", "bob"))
    assert (actual.n_unrewarded, actual.filled_with) == (1, None)


def test_missing_rewards_can_be_filled():
    actual = read_interactions(EXPORT, Opening(unrewarded=0.0))
    assert actual.log.n_events == 4
    assert sorted(actual.log.rewards) == [0.0, 0.0, 0.5, 1.0]
    with pytest.raises(LogError, match="unrewarded value must be a finite number"):
        read_interactions(EXPORT, Opening(unrewarded=float("nan")))


def test_a_later_row_of_a_decision_replaces_the_earlier(tmp_path):
    pl.DataFrame(EXPORT).write_parquet(tmp_path / "monday.parquet")
    late = {"decision_id": ["a2"], "session": ["ann"], "action": ["y"], "reward": [0.7]}
    pl.DataFrame(late).write_parquet(tmp_path / "tuesday.parquet")
    actual = read_interactions(
        [tmp_path / "monday.parquet", tmp_path / "tuesday.parquet"], Opening()
    )
    assert (actual.log.n_events, actual.n_unrewarded, actual.n_replaced) == (4, 0, 1)
    assert 0.7 in actual.log.rewards


def test_an_old_log_with_other_names_and_an_export_together(tmp_path):
    old = pl.DataFrame({"who": ["cat", "cat"], "what": ["x", "y"], "paid": [0.1, 0.2]})
    old.write_csv(tmp_path / "old.csv")
    pl.DataFrame(EXPORT).write_parquet(tmp_path / "new.parquet")
    paths = [tmp_path / "old.csv", tmp_path / "new.parquet"]
    actual = read_interactions(paths, Opening(user="who", action="what", reward="paid"))
    assert actual.log.user_ids == ("ann", "bob", "cat")
    assert actual.log.n_events == 5


def test_columns_that_cannot_be_found_are_asked_for():
    with pytest.raises(LogError, match="--user"):
        read_interactions({"who": [1, 2], "action": [0, 1], "reward": [0.0, 1.0]}, Opening())
    nothing = EXPORT | {"reward": [None] * 4}
    with pytest.raises(LogError, match="none of the 4 decisions has a reward"):
        read_interactions(nothing, Opening())
    with pytest.raises(LogError, match="not a number in row 2"):
        read_interactions(EXPORT | {"reward": ["1", "good", "0", "0.5"]}, Opening())


def test_the_newest_row_of_a_decision_counts_in_whatever_order_files_come(tmp_path):
    monday = pl.DataFrame(EXPORT).with_columns(cursor=pl.Series(["s-1", "s-2", "s-3", "s-4"]))
    tuesday = monday[1:2].with_columns(reward=pl.lit(0.7), cursor=pl.lit("s-5"))
    paths = [str(tmp_path / name) for name in ("export-9.parquet", "export-10.parquet")]
    monday.write_parquet(paths[0])
    tuesday.write_parquet(paths[1])
    for given in (paths, paths[::-1]):
        actual = read_interactions(given, Opening())
        assert sorted(actual.log.rewards) == [0.0, 0.5, 0.7, 1.0]
        assert (actual.n_unrewarded, actual.n_replaced) == (0, 1)


def test_times_that_are_numbers_are_sorted_as_numbers(tmp_path):
    """Round 10 comes after round 2, also where one table holds numbers and another text."""
    export = EXPORT | {"session": ["ann"] * 4, "round": [10, 2, 9, 1], "reward": [4.0, 2, 3, 1]}
    export["action"] = ["x", "y", "x", "y"]
    other = {"user": ["bob", "bob"], "action": ["x", "y"], "reward": [2.0, 1.0]}
    pl.DataFrame(export).write_parquet(tmp_path / "new.parquet")
    for times in ([10, 9], ["10", "9"]):
        pl.DataFrame(other | {"round": times}).write_parquet(tmp_path / "old.parquet")
        paths = [tmp_path / "new.parquet", tmp_path / "old.parquet"]
        actual = read_interactions(paths, Opening(order="round")).log
        assert actual.rewards.tolist() == [1, 2, 3, 4, 1, 2]


def test_text_among_times_that_are_numbers_is_refused():
    table = {"user": list("aabb"), "action": list("xyxy"), "reward": [1.0, 2, 3, 4]}
    quoted = read_interactions(table | {"t": ["10", "9", "2", "10"]}, Opening(order="t")).log
    assert quoted.rewards.tolist() == [2, 1, 3, 4]
    with pytest.raises(LogError, match="t is not a number, as most are, in 1 of 4 rows"):
        read_interactions(table | {"t": ["10", "9", "noon", "10"]}, Opening(order="t"))
    dates = read_interactions(
        table | {"t": ["b", "a", "2024-01", "2024-02"]}, Opening(order="t")
    ).log
    assert dates.rewards.tolist() == [2, 1, 3, 4]
