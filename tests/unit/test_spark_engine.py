"""The engine on a real local Spark."""

import os
import socket
import subprocess
import sys

import numpy as np
import polars as pl
import pytest

from latentbandits.learning import fit
from latentbandits.learning.backends import spark
from latentbandits.learning.backends.opening import Opening, choose_engine, is_spark
from latentbandits.learning.logs.rows import read_log
from latentbandits.learning.logs.tables import LogError
from latentbandits.report.report import Silent
from latentbandits.testing import check_engine
from tests.processes.java import find_java
from tests.unit.test_engines import table, write_folder
from tests.unit.test_fit_on_engines import (
    SIDE,
    arms_log,
    folder_of,
    movielens,
    ratings_log,
    same_model,
    side_frame,
    table_of,
)

pytestmark = pytest.mark.usefixtures("small_buckets")


@pytest.fixture(scope="module")
def session():
    pytest.importorskip("pyspark", reason="NO SPARK: pip install 'latentbandits[spark]'")
    if not find_java():
        pytest.skip("NO JAVA: install a JRE (apt install openjdk-17-jre-headless) to test Spark")
    with spark._session("paths", "local[2]") as result:
        yield result


def test_spark_holds_the_log_and_gives_the_same_sums(tmp_path, session):
    """With and without a column that orders rows; rows that repeat others; several files."""
    source = write_folder(table(n_users=1_200, n_rows=4_000), tmp_path / "a log")
    log = read_log(str(source), "user", "item", "rating", order="time")
    opening = Opening(user="user", action="item", reward="rating", order="time")
    with spark.on_spark(str(source), opening, Silent()) as engine:
        assert engine.n_buckets == 2
        check_engine(engine, log, tolerance=0.0)


def test_simulation_on_spark_is_the_same(session):
    """Chunks on Spark's workers give the numbers of chunks in this process."""
    from latentbandits import UCB1, mTS
    from latentbandits.environments import Synthetic
    from latentbandits.simulation import simulate
    from latentbandits.simulation.spark_executor import SparkExecutor

    policies = {"mTS": mTS, "UCB1": UCB1(n_actions=10)}
    problem = {
        "policies": policies,
        "environment": Synthetic(model_noise=0.05),
        "n_runs": 600,
        "horizon": 10,
    }
    here = simulate(**problem)
    with SparkExecutor(session) as executor:
        there = simulate(**problem, executor=executor)
    for name in policies:
        np.testing.assert_array_equal(there[name].regret.mean, here[name].regret.mean)


@pytest.mark.parametrize(
    "master", ["nonsense", "local[x]", "local[0]", "spark://host", "http://127.0.0.1:80", ""]
)
def test_an_address_that_spark_does_not_know_is_refused_before_spark_starts(master):
    with pytest.raises(LogError, match="master is no address of Spark"):
        spark.check_master(master)


def test_a_master_that_does_not_answer_is_refused_before_spark_starts():
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port = listening.getsockname()[1]
        with pytest.raises(LogError, match=f"no Spark master answers at spark://127.0.0.1:{port}"):
            spark.check_master(f"spark://127.0.0.1:{port}")
        listening.listen()
        spark.check_master(f"spark://127.0.0.1:1,127.0.0.1:{port}")
    for master in ("local", "local[2]", "local[*]", "local[2, 3]", "yarn", "k8s://https://host:1"):
        spark.check_master(master)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["arms", "linear"])
def test_spark_learns_the_model_that_memory_learns(tmp_path, session, kind):
    if kind == "arms":
        source = folder_of(table_of(arms_log("gaussian")), tmp_path / "log")
        options = {"rewards": "gaussian", "states": 2, "bootstrap": 2}
    else:
        source = folder_of(ratings_log("ratings", 1_100, 30), tmp_path / "log")
        options = {"kind": "linear", "rank": 2, "reg": 1.0, "states": 2, "bootstrap": 1}
    ours = fit(source, **options, engine="memory")
    theirs = fit(source, **options, engine="spark")
    same_model(ours.model, theirs.model, tmp_path)
    frame = session.read.parquet(source)
    (tmp_path / "again").mkdir()
    same_model(ours.model, fit(frame, **options).model, tmp_path / "again")


OTHER_KINDS = {
    **{name: {"rewards": name} for name in ("bernoulli", "poisson", "exponential", "categorical")},
    "transform": {"transform": "log1p"},
    "merged": {"duplicates": "mean", "rewards": "gaussian"},
    "spectral": {"method": "spectral", "rewards": "gaussian"},
    "clicks": {"kind": "linear", "rank": 2, "reg": 1.0},
    "variational": {"kind": "linear", "rank": 2},
    "items": {"rewards": "gaussian", "item_features": {"id": list("0123"), "size": [1, 2, 3, 5]}},
}


@pytest.mark.slow
@pytest.mark.parametrize("which", list(OTHER_KINDS))
def test_every_kind_of_model_is_the_same_on_spark(tmp_path, session, which):
    options = {"states": 2, "bootstrap": 1, "order": "time", **OTHER_KINDS[which]}
    if "kind" in options:
        frame = ratings_log("clicks" if which == "clicks" else "ratings", 600, 30)
    else:
        kind = "poisson" if which == "transform" else options.get("rewards", "gaussian")
        frame = table_of(arms_log(kind, n_users=600))
    source = folder_of(frame.with_row_index("time"), tmp_path / "log")
    ours, theirs = (fit(source, **options, engine=name) for name in ("memory", "spark"))
    same_model(ours.model, theirs.model, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["arms", "linear"])
def test_movielens_is_learned_alike_in_memory_and_on_spark(tmp_path, session, kind):
    source, options = movielens(kind, tmp_path / "log")
    ours, theirs = (fit(source, **options, engine=name) for name in ("memory", "spark"))
    same_model(ours.model, theirs.model, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("which", list(SIDE))
def test_spark_learns_from_side_information_what_memory_learns(tmp_path, session, which):
    source = folder_of(side_frame(which, 600), tmp_path / "log")
    options = {**SIDE[which], "order": "time", "states": 2, "bootstrap": 2}
    ours, theirs = (fit(source, **options, engine=name) for name in ("memory", "spark"))
    same_model(ours.model, theirs.model, tmp_path)
    assert ours.report["user_features"] == theirs.report["user_features"]
    with pytest.raises(LogError, match="no column planet"):
        fit(source, features=["planet"], engine="spark")


@pytest.mark.slow
def test_spark_without_an_order_keeps_that_of_the_files(tmp_path, session):
    source = write_folder(table(n_users=5_000, n_rows=9_000), tmp_path / "log")
    log = read_log(str(source), "user", "item", "rating")
    opening = Opening(user="user", action="item", reward="rating")
    with spark.on_spark(str(source), opening, Silent()) as engine:
        assert engine.n_buckets == 8
        check_engine(engine, log, tolerance=0.0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("column", "message"),
    [("rating", "rating is not a finite number in 1 of 301 rows"), ("user", "user has no value")],
)
def test_spark_refuses_bad_rows(session, column, message):
    frame = table(n_rows=250)
    bad = frame[:1].with_columns(pl.lit(None).cast(frame.schema[column]).alias(column))
    log = session.createDataFrame(pl.concat([frame, bad]).to_dicts())
    with pytest.raises(LogError, match=message):
        fit(log, user="user", action="item", reward="rating")


def test_a_dataframe_is_known_without_spark():
    assert not is_spark(table())
    with pytest.raises(LogError, match="engine must be one of auto, memory, out_of_core, spark"):
        choose_engine("x", "dask", None)
    with pytest.raises(LogError, match="reads files"):
        choose_engine(table(), "spark", None)


def test_a_spark_that_is_not_there_says_what_to_install(tmp_path):
    """On the command line: one sentence, no traceback."""
    source = write_folder(table(n_rows=100), tmp_path / "log")
    command = [sys.executable, "-m", "latentbandits.cli", "fit", str(source), "--user", "user"]
    command += ["--action", "item", "--reward", "rating", "--engine", "spark"]
    command += ["--out", str(tmp_path / "model")]
    hidden = "import sys; sys.modules['pyspark'] = None; import runpy; "
    program = hidden + "from latentbandits.cli import main; sys.exit(main(sys.argv[1:]))"
    no_java = {**os.environ, "PATH": str(tmp_path)}
    no_java.pop("JAVA_HOME", None)
    without = subprocess.run(
        [sys.executable, "-c", program, *command[3:]], capture_output=True, text=True, check=False
    )
    assert "pip install 'latentbandits[spark]'" in without.stderr
    assert "Traceback" not in without.stderr
    program = program.removeprefix("import sys; sys.modules['pyspark'] = None; import runpy; ")
    without = subprocess.run(
        [sys.executable, "-c", "import sys; " + program, *command[3:]],
        capture_output=True, text=True, check=False, env=no_java,
    )  # fmt: skip
    assert "needs Java 17" in without.stderr
    assert "openjdk-17-jre-headless" in without.stderr
    assert "Traceback" not in without.stderr
    assert not (tmp_path / "model").exists()
