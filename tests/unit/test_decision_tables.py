"""Tables of decisions become logs: formats of columns, and what is refused."""

import numpy as np
import polars as pl
import pytest

from latentbandits import GaussianArms, LinearGaussian
from latentbandits.evaluation import EvaluationError
from latentbandits.evaluation.reading import Columns, read_decisions
from latentbandits.models import Catalogue

MODEL = GaussianArms([[0.9, 0.5, 0.1]], noise=0.5)
TABLE = {
    "session": ["b", "a", "a", "b", "b"],
    "round": [2, 1, 2, 1, 3],
    "action": ["1", "0", "2", "0", "2"],
    "reward": [0.2, 0.1, None, 0.3, 0.4],
    "propensity": [0.5, 0.25, 0.5, 0.5, 1.0],
}


def test_rows_are_sorted_into_sessions_and_rounds():
    log = read_decisions(TABLE, model=MODEL).log
    assert log.session_ids == ("a", "b")
    np.testing.assert_array_equal(log.action, [[0, 2, -1], [0, 1, 2]])
    np.testing.assert_array_equal(log.reward, [[0.1, np.nan, np.nan], [0.3, 0.2, 0.4]])
    np.testing.assert_array_equal(log.propensity, [[0.25, 0.5, np.nan], [0.5, 0.5, 1.0]])


@pytest.mark.parametrize("make", [pl.DataFrame, lambda t: pl.DataFrame(t).to_pandas()])
def test_any_frame_is_a_log(make):
    log = read_decisions(make(TABLE), model=MODEL).log
    np.testing.assert_array_equal(log.lengths, [2, 3])


def test_columns_can_have_other_names():
    renamed = {"who": TABLE["session"], "what": TABLE["action"], "paid": TABLE["reward"]}
    columns = Columns(session="who", action="what", reward="paid")
    log = read_decisions(renamed, model=MODEL, columns=columns).log
    np.testing.assert_array_equal(log.action[1], [1, 0, 2])  # in the order of the table
    with pytest.raises(ValueError, match="no column chance"):
        read_decisions(TABLE, model=MODEL, columns=Columns(propensity="chance"))


@pytest.mark.parametrize("written", [["0|1", "0|2"], ["[0, 1]", "[0, 2]"], [["0", "1"], [0, 2]]])
def test_eligible_actions_in_several_forms(written):
    values = [[str(a) for a in row] if isinstance(row, list) else row for row in written]
    table = {"session": ["a", "a"], "action": [0, 2], "reward": [1.0, 2.0], "eligible": values}
    log = read_decisions(table, model=MODEL).log
    np.testing.assert_array_equal(log.eligible, [[[1, 1, 0], [1, 0, 1]]])


def test_features_come_from_the_log_or_the_catalogue():
    model = LinearGaussian([[1.0, 0.0]], noise=0.5)
    catalogue = Catalogue(["x", "y", "z"], features=[[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    table = {"session": ["a", "a"], "action": ["y", "x"], "reward": [1.0, 2.0]}
    whole = read_decisions(table, model=model, catalogue=catalogue).log
    assert whole.round(0, np.array([0])).context.shape == (1, 3, 2)
    offered = table | {"eligible": [["z", "y"], ["x", "y"]]}
    part = read_decisions(offered, model=model, catalogue=catalogue).log
    np.testing.assert_array_equal(part.action, [[1, 0]])
    np.testing.assert_array_equal(part.round(0, np.array([0])).context, [[[1, 1], [0, 1]]])
    brought = offered | {"features": [[[5.0, 6.0], [7.0, 8.0]], [[1.0, 2.0], [3.0, 4.0]]]}
    own = read_decisions(brought, model=model).log
    np.testing.assert_array_equal(own.round(1, np.array([0])).context, [[[1, 2], [3, 4]]])
    np.testing.assert_array_equal(own.action, [[1, 0]])
    with pytest.raises(EvaluationError, match="no catalogue"):
        read_decisions(table, model=model)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (dict(round=[2, 1, 3, 1, 3]), "session 'a' has round 3 where round 2"),
        (dict(round=[12, 11, 12, 11, 13]), "begin at 11"),
        (dict(round=[2.0, 1.0, 1.5, 1.0, 3.0]), r"whole numbers.*it holds 1\.5"),
        (dict(round=[2, 1, None, 1, 3]), "whole numbers.*it holds None"),
        (dict(round=["two", "1", "1", "1", "3"]), "whole numbers.*it holds 'two'"),
        (dict(action=["1", "0", "9", "0", "2"]), "does not have, such as '9'"),
        (dict(propensity=[0.5, 0.25, 0.0, 0.5, 1.0]), "propensity 0.0"),
        (dict(propensity=[0.5, 0.25, None, 0.5, 1.0]), "1 of 5 decisions have no propensity"),
        (dict(reward=["good", "1", "2", "3", "4"]), "must hold numbers.*'good'"),
        (dict(reward=["1", "4,5", "2", "3", "4"]), "such as '4,5'. Write '4.5'"),
        (dict(reward=[1.0, 1e300, 2.0, 3.0, 4.0]), r"1e\+300, which is beyond"),
        (dict(propensity_kind=["conditional"] * 5), "'conditional'"),
        (dict(session=["b", None, "a", "b", "b"]), "'session' is empty in row 2"),
    ],
)
def test_bad_tables_are_refused(change, message):
    with pytest.raises(EvaluationError, match=message):
        read_decisions(TABLE | change, model=MODEL)


def test_rare_counted_propensities_and_missing_rewards_warn():
    kinds = {"propensity_kind": ["counted"] * 5, "propensity": [0.01, 0.25, 0.5, 0.5, 1.0]}
    actual = read_decisions(TABLE | kinds, model=MODEL)
    assert any("1 of 5 counted propensities" in warning for warning in actual.warnings)
    assert any("nothing else decides which rewards come" in warning for warning in actual.warnings)
    assert actual.n_unrewarded == 1


def test_a_late_reward_replaces_its_decision_and_teaches_after_it_came():
    times = [1000, 2000, 3000]
    table = {
        "decision_id": ["d1", "d2", "d3", "d1"],
        "session": ["a"] * 4,
        "round": [1, 2, 3, 1],
        "action": [0, 1, 2, 0],
        "reward": [None, 0.2, 0.3, 0.9],
        "time": pl.Series([*times, 1000]).cast(pl.Datetime("ms")),
        "reward_time": pl.Series([None, 2001, 3001, 2500]).cast(pl.Datetime("ms")),
    }
    log = read_decisions(table, model=MODEL).log
    np.testing.assert_array_equal(log.reward, [[0.9, 0.2, 0.3]])
    np.testing.assert_array_equal(log.applied, [[2, 2, 3]])
    for zone in ("+00:00", "+0000", ""):  # as JSON lines and CSV of an export, and without a zone
        text = {
            name: table[name].dt.strftime(f"%Y-%m-%dT%H:%M:%S%.3f{zone}")
            for name in ("time", "reward_time")
        }
        log = read_decisions(table | text, model=MODEL).log
        np.testing.assert_array_equal(log.applied, [[2, 2, 3]])


def test_exports_of_several_days_are_one_log_in_any_order(tmp_path):
    """A late reward is in the later export; rounds, propensities and offers are read from both."""
    first = pl.DataFrame(TABLE).with_columns(
        decision_id=pl.Series(list("vwxyz")),
        eligible=pl.Series([["0", "1", "2"]] * 4 + [["0", "2"]]),
        cursor=pl.Series([f"s-{i:03}" for i in range(5)]),
    )
    late = first.filter(pl.col("reward").is_null()).with_columns(
        reward=pl.lit(0.9), cursor=pl.lit("s-100")
    )
    paths = [str(tmp_path / "export-9.parquet"), str(tmp_path / "export-10.parquet")]
    first.write_parquet(paths[0])
    late.write_parquet(paths[1])
    for given in (paths, paths[::-1]):
        log = read_decisions(given, model=MODEL).log
        np.testing.assert_array_equal(log.reward, [[0.1, 0.9, np.nan], [0.3, 0.2, 0.4]])
        np.testing.assert_array_equal(log.propensity[1], [0.5, 0.5, 1.0])
        np.testing.assert_array_equal(log.eligible[1, 2], [True, False, True])
    late.drop("propensity").write_parquet(paths[1])
    with pytest.raises(ValueError, match=r"export-10\.parquet has no column propensity"):
        read_decisions(paths, model=MODEL)


def test_missing_rewards_are_filled_without_a_warning():
    read = read_decisions(TABLE, model=MODEL, unrewarded=0.0)
    assert read.log.reward[0, 1] == 0.0
    assert read.n_unrewarded == 1
    assert not any("no reward" in warning for warning in read.warnings)
    with pytest.raises(EvaluationError, match="finite number"):
        read_decisions(TABLE, model=MODEL, unrewarded=np.nan)
