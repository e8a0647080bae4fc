"""Engines hold the same log and give the same sums; scratch files are tidied up."""

import os
import signal
import subprocess
import sys

import numpy as np
import polars as pl
import pytest

from latentbandits.learning import fit
from latentbandits.learning.backends import opening, out_of_core
from latentbandits.learning.backends.out_of_core import (
    OutOfCoreEngine,
    open_partitions,
    write_partitions,
)
from latentbandits.learning.logs.rows import LogColumns, read_log
from latentbandits.learning.logs.tables import DETECTED, LogError
from latentbandits.owned_tempdir import own_folder, remove_left_overs
from latentbandits.replacing import replacing_folder
from latentbandits.report.report import Silent
from latentbandits.testing import check_engine

pytestmark = pytest.mark.usefixtures("small_buckets")

COLUMNS = LogColumns("user", "item", "rating", "time", DETECTED)


def table(n_users=1500, n_rows=20_000, n_actions=12, seed=0):
    """Rows in the order of time, with rows that repeat others and pairs that occur twice."""
    rng = np.random.default_rng(seed)
    frame = pl.DataFrame(
        {
            "time": rng.integers(0, 5_000, n_rows),
            "user": [f"u{i}" for i in rng.integers(0, n_users, n_rows)],
            "item": rng.integers(0, n_actions, n_rows) * 7,
            "rating": rng.integers(1, 6, n_rows) / 2,
            "other": rng.random(n_rows),
        }
    )
    return pl.concat([frame, frame[:50]])


def write_folder(frame, folder, n_files=3, kind="parquet"):
    folder.mkdir()
    for i, start in enumerate(range(0, len(frame), -(-len(frame) // n_files))):
        part = frame.slice(start, -(-len(frame) // n_files))
        getattr(part, f"write_{kind}")(folder / f"part-{i}.{kind}")
    return folder


def partitions_of(source, folder, columns=COLUMNS):
    folder.mkdir(exist_ok=True)
    return write_partitions(str(source), columns, folder, Silent())


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_partitions_hold_the_log(tmp_path, monkeypatch, kind):
    monkeypatch.setattr(out_of_core, "CHUNK", 1_000)
    source = write_folder(table(n_rows=7_000), tmp_path / "log", kind=kind)
    log = read_log(str(source), "user", "item", "rating", order="time")
    actual = partitions_of(source, tmp_path / "parts")
    assert (actual.n_users, actual.n_rows) == (log.n_users, log.n_events)
    assert log.n_repeated_rows >= 50
    check_engine(OutOfCoreEngine(actual), log, tolerance=0.0)
    left = {path.name.split("-")[0] for path in (tmp_path / "parts").iterdir()}
    assert left == {"rows", "users", "manifest.json"}


@pytest.mark.parametrize("n_users", [3, 40, 5_000])
def test_few_and_many_users(tmp_path, n_users):
    source = write_folder(table(n_users=n_users, n_rows=6_000), tmp_path / "log")
    log = read_log(str(source), "user", "item", "rating", order="time")
    check_engine(OutOfCoreEngine(partitions_of(source, tmp_path / "parts")), log)


def test_whole_numbers_as_floats_are_the_same_ids(tmp_path):
    frame = table(n_users=100, n_rows=2_000).with_columns(pl.col("item").cast(pl.Float64))
    source = write_folder(frame, tmp_path / "log")
    log = read_log(str(source), "user", "item", "rating", order="time")
    assert log.action_ids[1] == "7"
    check_engine(OutOfCoreEngine(partitions_of(source, tmp_path / "parts")), log)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rating": pl.lit(None, pl.Float64)}, r"rating is not a finite number.*row 5 of .*part-1"),
        ({"rating": pl.lit(float("inf"))}, r"not a finite number.*row 5 of .*part-1"),
        ({"user": pl.lit(None, pl.String)}, r"user has no value.*row 5 of .*part-1"),
        ({"time": pl.lit(None, pl.Int64)}, r"time has no value.*row 5 of .*part-1"),
    ],
)
def test_a_bad_row_is_named_with_its_file(tmp_path, monkeypatch, change, message):
    monkeypatch.setattr(out_of_core, "CHUNK", 3)
    frame = table(n_rows=30)[:30].with_row_index()
    ((name, value),) = change.items()
    frame = frame.with_columns(
        pl.when(pl.col("index") == 14).then(value).otherwise(pl.col(name)).alias(name)
    )
    source = write_folder(frame.drop("index"), tmp_path / "log")
    with pytest.raises(LogError, match=message):
        partitions_of(source, tmp_path / "parts")


def test_a_missing_column_and_a_log_of_one_user_are_refused(tmp_path):
    source = write_folder(table(), tmp_path / "log")
    with pytest.raises(LogError, match="has no column money; the columns there are"):
        partitions_of(source, tmp_path / "a", LogColumns("user", "item", "money", None, DETECTED))
    one = table().with_columns(pl.lit("ann").alias("user"))
    with pytest.raises(LogError, match="one user only"):
        partitions_of(write_folder(one, tmp_path / "one"), tmp_path / "b")


def test_partitions_of_another_log_are_refused(tmp_path):
    source = write_folder(table(n_rows=3_000), tmp_path / "log")
    with pytest.raises(LogError, match=r"must be a folder.*part-0.parquet is a file"):
        fit(str(source), user="user", action="item", reward="rating", engine="out_of_core",
            partitions=source / "part-0.parquet")  # fmt: skip
    other = write_folder(table(n_rows=3_000, seed=1), tmp_path / "other")
    made = partitions_of(source, tmp_path / "parts")
    assert open_partitions(tmp_path / "parts", str(source), COLUMNS) == made
    with pytest.raises(LogError, match="partitions of another log: its files are"):
        open_partitions(tmp_path / "parts", str(other), COLUMNS)
    swapped = LogColumns("user", "item", "other", None, DETECTED)
    with pytest.raises(LogError, match="partitions of another log: its columns are"):
        open_partitions(tmp_path / "parts", str(source), swapped)
    path = source / "part-0.parquet"
    pl.read_parquet(path)[1:].write_parquet(path)
    with pytest.raises(LogError, match="another log"):
        open_partitions(tmp_path / "parts", str(source), COLUMNS)


def test_a_folder_that_holds_something_else_is_refused(tmp_path):
    (tmp_path / "parts").mkdir()
    assert open_partitions(tmp_path / "parts", "x", COLUMNS) is None
    (tmp_path / "parts" / "thesis.tex").write_text("years of work")
    with pytest.raises(LogError, match="not empty and holds no partitions"):
        open_partitions(tmp_path / "parts", "x", COLUMNS)
    (tmp_path / "parts" / "manifest.json").write_text("{")
    with pytest.raises(LogError, match="cannot be read"):
        open_partitions(tmp_path / "parts", "x", COLUMNS)


def test_space_is_looked_for_before_the_work(tmp_path):
    with (
        pytest.raises(LogError, match=r"need about 1000000000\.0 GB.*--scratch"),
        opening.scratch_folder(tmp_path, 10**18),
    ):
        pass
    assert list(tmp_path.iterdir()) == []
    with (
        pytest.raises(LogError, match="does not exist"),
        opening.scratch_folder(tmp_path / "no", 1),
    ):
        pass


def test_the_scratch_folder_is_gone_when_the_work_fails(tmp_path):
    def work():
        with opening.scratch_folder(tmp_path, 1) as folder:
            (folder / "rows").write_text("x")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        work()
    assert list(tmp_path.iterdir()) == []


_WORK = """
import signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # shells ignore it in the background
from latentbandits.learning.backends.opening import scratch_folder
with scratch_folder(sys.argv[1], 1) as folder:
    (folder / "rows").write_text("x")
    print("ready", flush=True)
    time.sleep(60)
"""


def working(parent):
    process = subprocess.Popen(
        [sys.executable, "-c", _WORK, str(parent)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout.readline() == "ready\n"
    return process


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_process_that_is_stopped_leaves_nothing(tmp_path, number):
    with working(tmp_path) as process:
        assert len(list(tmp_path.iterdir())) == 1
        process.send_signal(number)
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_process_leaves_is_removed_by_the_next(tmp_path):
    killed, alive = working(tmp_path), working(tmp_path)
    killed.kill()
    killed.wait(20)
    mine = tmp_path / "latentbandits-scratch-notes"
    mine.mkdir()
    before = set(tmp_path.iterdir())
    assert len(before) == 3
    with opening.scratch_folder(tmp_path, 1) as folder:
        left = set(tmp_path.iterdir()) - {folder}
        assert mine in left, "only names that a process gives are removed"
        assert len(left) == 2, "the living process keeps its folder"
    alive.kill()
    alive.wait(20)
    for process in (killed, alive):
        process.stdout.close()


def test_a_reused_process_number_is_no_owner(tmp_path):
    """The number of a process may be given to another one; when it started tells them apart."""
    folder = tmp_path / f"latentbandits-scratch-{os.getpid()}-1-abc"
    folder.mkdir()
    assert remove_left_overs(tmp_path, "latentbandits-scratch-") == [folder]


def test_a_process_that_cannot_be_seen_keeps_its_folder(tmp_path):
    """Processes of two containers that share a disk do not see each other's numbers."""
    hidden = tmp_path / "latentbandits-scratch-999999999-1-abc"
    with own_folder(tmp_path, "latentbandits-scratch-") as folder:
        folder.rename(hidden)
        assert remove_left_overs(tmp_path, "latentbandits-scratch-") == []
    assert remove_left_overs(tmp_path, "latentbandits-scratch-") == [hidden]


def test_a_killed_fit_leaves_no_folder_beside_the_next_model(tmp_path):
    """Except an earlier model that was set aside, and folders of others."""
    left, aside, other = (
        tmp_path / f".model-{os.getpid()}-{name}" for name in ("1-abc", "1-old", "x")
    )
    for folder in (left, aside / "old", other):
        folder.mkdir(parents=True)
    with replacing_folder(tmp_path / "model") as fresh:
        (fresh / "manifest.json").write_text("{}")
    assert sorted(tmp_path.iterdir()) == sorted([aside, other, tmp_path / "model"])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stopped_fit_in_memory_leaves_nothing(tmp_path, number):
    program = """
import sys, time
from latentbandits.cli import main
from latentbandits.learning import fitting

def slow(*arguments, **options):
    print("ready", flush=True)
    time.sleep(60)

fitting.fit = slow
sys.exit(main(sys.argv[1:]))
"""
    command = [sys.executable, "-c", program, "fit", "log.csv", "--out", str(tmp_path / "model")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    assert list(tmp_path.iterdir())
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert "Traceback" not in errors
    assert not list(tmp_path.iterdir())
