"""A table of interactions as arrays: every way in, and every way in which it can be wrong."""

from __future__ import annotations

import pathlib
import re

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from latentbandits.learning.logs.rows import Log, read_log, read_names
from latentbandits.learning.logs.tables import LogError

TABLE = {
    "who": ["b", "a", "b", "c", "a"],
    "what": [10, 9, 9, 10, 10],
    "paid": [1.0, 0.5, 0.0, 2.0, 1.5],
    "when": [5, 2, 1, 1, 1],
}


def read(source: object, **settings: str) -> Log:
    return read_log(source, "who", "what", "paid", **settings)  # type: ignore[arg-type]


def check(log: Log) -> None:
    assert log.user_ids == ("a", "b", "c")
    assert log.action_ids == ("9", "10"), "whole numbers are in the order of numbers"
    assert log.users.tolist() == [0, 0, 1, 1, 2]
    assert log.actions.tolist() == [0, 1, 1, 0, 1]
    assert log.rewards.tolist() == [0.5, 1.5, 1.0, 0.0, 2.0]
    assert log.starts.tolist() == [0, 2, 4, 5]


@pytest.mark.parametrize("make", [dict, pl.DataFrame, pd.DataFrame, pa.table, pl.LazyFrame])
def test_frames_of_every_kind(make: object) -> None:
    check(read(make(TABLE)))  # type: ignore[operator]


@pytest.mark.parametrize("name", ["log.csv", "log.csv.gz", "log.parquet"])
def test_files(tmp_path: pathlib.Path, name: str) -> None:
    _write(pl.DataFrame(TABLE), tmp_path / name)
    check(read(tmp_path / name))


def test_a_folder_and_a_glob_are_their_files_in_order(tmp_path: pathlib.Path) -> None:
    frame = pl.DataFrame(TABLE)
    (tmp_path / "day").mkdir()
    _write(frame[:2], tmp_path / "day" / "1.csv")
    _write(frame[2:], tmp_path / "day" / "2.csv")
    (tmp_path / "day" / "notes.txt").write_text("not a table")
    check(read(tmp_path / "day"))
    check(read(str(tmp_path / "**" / "*.csv")))


def test_order_within_a_user_follows_the_column() -> None:
    log = read(TABLE, order="when")
    assert log.rewards.tolist() == [1.5, 0.5, 0.0, 1.0, 2.0]


def test_ids_stay_as_they_were_written(tmp_path: pathlib.Path) -> None:
    (tmp_path / "log.csv").write_text("who,what,paid\n007,x,1\n7,y,2\n")
    assert read(tmp_path / "log.csv").user_ids == ("007", "7")


def test_whole_floats_are_integers() -> None:
    assert read({**TABLE, "what": [10.0, 9.0, 9.0, 10.0, 10.0]}).action_ids == ("9", "10")


def test_arrays_are_frozen() -> None:
    with pytest.raises(ValueError, match="read-only"):
        read(TABLE).rewards[0] = 3.0


def test_duplicates_are_kept_averaged_or_replaced() -> None:
    log = read({"who": [1, 1, 2, 1], "what": list("xyxx"), "paid": [1.0, 4.0, 3.0, 2.0]})
    assert log.n_duplicates == 1
    assert log.merged("keep") is log
    mean, last = log.merged("mean"), log.merged("last")
    assert mean.rewards.tolist() == [1.5, 4.0, 3.0]
    assert mean.actions.tolist() == [0, 1, 0]
    assert last.rewards.tolist() == [4.0, 2.0, 3.0]
    assert last.actions.tolist() == [1, 0, 0]
    assert mean.n_duplicates == 0
    with pytest.raises(LogError, match="keep, mean, last"):
        log.merged("first")  # type: ignore[arg-type]


def test_of_users_repeats_who_is_chosen_twice() -> None:
    log = read(TABLE).of_users(np.array([2, 0, 2]))
    assert log.user_ids == ("c", "a", "c")
    assert log.users.tolist() == [0, 1, 1, 2]
    assert log.rewards.tolist() == [2.0, 0.5, 1.5, 2.0]


def test_split_users_keeps_every_event_once() -> None:
    log = read(TABLE)
    kept, held_out = log.split_users(0.3, np.random.default_rng(0))
    assert {*kept.user_ids, *held_out.user_ids} == set(log.user_ids)
    assert kept.n_users == 2
    assert sorted([*kept.rewards, *held_out.rewards]) == sorted(log.rewards)


def test_names() -> None:
    assert read_names({"what": [9, 10, 9], "title": ["nine", None, "nine"]}, "what", "title") == {
        "9": "nine"
    }


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({k: v for k, v in TABLE.items() if k != "paid"}, r"no column paid; .* who, what, when"),
        ({"who": [1], "what": [1], "Payd": [1]}, r"no column paid \(did you mean Payd\?\)"),
        ({**TABLE, "paid": [1, "x", 2, "y", 3]}, r"paid .* 2 of 5 rows; the first is row 2: 'x'"),
        ({**TABLE, "paid": [1, 2, float("nan"), 3, 4]}, r"in 1 of 5 rows; the first is row 3: nan"),
        ({**TABLE, "paid": [1, 2, 3, float("inf"), 4]}, r"row 4: inf"),
        ({**TABLE, "paid": [1, None, 3, 3, 4]}, r"row 2: an empty field"),
        ({**TABLE, "paid": [[1]] * 5}, r"paid"),
        ({**TABLE, "who": ["a", None, "b", "b", "c"]}, r"who has no value in 1 of 5 rows"),
        ({**TABLE, "who": [1] * 5}, r"one user only \('1'\).*'who'"),
        ({**TABLE, "what": ["x"] * 5}, r"one action only \('x'\).*'what'"),
        ({name: [] for name in TABLE}, r"no rows"),
        ({**TABLE, "who": ["a"]}, r"do not make a table|one user"),
        (3, r"got a int"),
    ],
)
def test_bad_tables(table: object, message: str) -> None:
    with pytest.raises(LogError, match=message):
        read(table)


def test_the_same_column_twice() -> None:
    with pytest.raises(LogError, match="different columns"):
        read_log(TABLE, "who", "who", "paid")


def test_a_missing_order_is_refused() -> None:
    with pytest.raises(LogError, match=r"when has no value in 1 of 5 rows; the first is row 1"):
        read({**TABLE, "when": [None, 1, 2, 3, 4]}, order="when")


def test_bad_files(tmp_path: pathlib.Path) -> None:
    with pytest.raises(LogError, match="does not exist"):
        read(tmp_path / "none.csv")
    (tmp_path / "empty").mkdir()
    with pytest.raises(LogError, match=re.escape("holds no file that ends in .csv")):
        read(tmp_path / "empty")
    (tmp_path / "broken.parquet").write_bytes(b"not parquet at all")
    with pytest.raises(LogError, match=r"broken.parquet cannot be read as Parquet"):
        read(tmp_path / "broken.parquet")
    (tmp_path / "empty.csv").write_text("")
    with pytest.raises(LogError, match=r"empty.csv cannot be read as CSV"):
        read(tmp_path / "empty.csv")
    (tmp_path / "headless.csv").write_text("who,what,paid\n")
    with pytest.raises(LogError, match="no rows"):
        read(tmp_path / "headless.csv")


def test_a_row_is_named_with_its_file(tmp_path: pathlib.Path) -> None:
    (tmp_path / "1.csv").write_text("who,what,paid\na,x,1\nb,y,2\n")
    (tmp_path / "2.csv").write_text("who,what,paid\na,y,1\nb,x,oops\n")
    with pytest.raises(LogError, match=r"in 1 of 4 rows; the first is row 2 of .*2.csv: 'oops'"):
        read(tmp_path)


def test_folders_of_mixed_schema(tmp_path: pathlib.Path) -> None:
    frame = pl.DataFrame(TABLE)
    _write(frame, tmp_path / "1.csv")
    _write(frame.drop("when"), tmp_path / "2.csv")
    with pytest.raises(LogError, match=r"not have the same columns: .*1.csv has who.*2.csv has"):
        read(tmp_path)
    (tmp_path / "typed").mkdir()
    _write(frame, tmp_path / "typed" / "1.parquet")
    _write(frame.with_columns(pl.col("what").cast(pl.String)), tmp_path / "typed" / "2.parquet")
    with pytest.raises(LogError, match=r"differ in type: what is String in .* and Int64 in"):
        read(tmp_path / "typed")


def _write(frame: pl.DataFrame, path: pathlib.Path) -> None:
    if path.suffix == ".parquet":
        frame.write_parquet(path)
    elif path.suffix == ".gz":
        import gzip

        path.write_bytes(gzip.compress(frame.write_csv().encode()))
    else:
        frame.write_csv(path)
