"""`reproduce related`: five tables and figures, small; agreement and bounds as claims."""

import json

import numpy as np
import pytest

from latentbandits.cli.main import main
from latentbandits.simulation import Results
from latentbandits_related.reproduce.claims import CLAIMS, AtMost, agreement, same_order
from latentbandits_related.reproduce.experiment import TABLES, play_row
from latentbandits_related.reproduce.table import Column, Reference, Row


@pytest.mark.slow
def test_quick_writes_five_tables_and_figures(tmp_path, capsys):
    out = tmp_path / "out"
    assert main(["reproduce", "related", "--quick", "--jobs", "1", "--out", str(out)]) == 0
    results = json.loads((out / "results.json").read_text())
    assert {row["table"] for row in results["policies"]} == set(TABLES)
    assert all(np.isfinite(row["regret"]) for row in results["policies"])
    for name in TABLES:
        assert (out / f"related-{name}.png").stat().st_size > 10_000
    printed = capsys.readouterr().out
    for words in ("(i) Known model", "(ii) Clusters", "(iii) Rank 1", "(iv) Users", "(v) Offline"):
        assert words in printed


def test_a_table_that_does_not_exist_is_refused(tmp_path, capsys):
    assert main(["reproduce", "related", "--tables", "vi", "--out", str(tmp_path / "out")]) != 0
    assert "did you mean" in capsys.readouterr().err


def test_some_rows_of_one_table(tmp_path):
    out = tmp_path / "out"
    words = ["--tables", "ii", "--policies", "HierTS", "DynUCB, k=20", "--quick", "--jobs", "1"]
    assert main(["reproduce", "related", *words, "--out", str(out)]) == 0
    rows = json.loads((out / "results.json").read_text())["policies"]
    assert {(row["setting"], row["policy"]) for row in rows} == {
        ("20 users", "HierTS"),
        ("20 users", "DynUCB, k=20"),
        ("40 users", "DynUCB, k=20"),
    }


def test_every_claim_names_rows_that_are_there():
    for name, table in TABLES.items():
        columns = {column.name: set(column.rows) for column in table.columns(False)}
        for claim in CLAIMS[name]:
            assert set(claim.policies) <= columns[claim.setting], claim.id


def test_rows_of_a_column_play_the_same_problem():
    """Features and item ids are two forms of one problem: the best rewards are the same."""
    one = play_row("ii", "20 users", "LinUCB per user", True, 3)
    other = play_row("ii", "20 users", "COFIBA, alpha2 .3", True, 3)
    np.testing.assert_allclose(one.best_curve, other.best_curve)
    np.testing.assert_allclose(one.regret_curve[-1], one.regret.mean, rtol=1e-5)


@pytest.mark.parametrize(
    ("mean", "runs", "holds"),
    [(1.0, 500, True), (1.2, 500, False), (1.2, 2, False), (1.1, 2, True)],
)
def test_agreement_is_three_errors_or_fifteen_percent(mean, runs, holds):
    result = play_row("i", "sigma0=0", "mTS", True, 0)
    regret = result.regret
    row = Row(None, None, Reference(regret.mean / mean, 0.01 * regret.mean, runs))
    exact = Results({"mTS": result})
    column = Column("here", {"mTS": row}, 6, 12)
    tight = result.__class__(**vars(result) | {"regrets": np.full(6, regret.mean)})
    assert agreement("i", column, Results({"mTS": tight})).holds == holds
    assert AtMost("x", "c", "here", "mTS", regret.mean + 1).check({"here": exact}).holds
    assert not AtMost("x", "c", "here", "mTS", regret.mean - 1).check({"here": exact}).holds


def test_an_order_that_the_reference_is_sure_of_must_be_kept():
    result = play_row("i", "sigma0=0", "mTS", True, 0)
    low, high = (result.__class__(**vars(result) | {"regrets": np.full(6, x)}) for x in (1.0, 2.0))
    results = Results({"low": low, "high": high})
    for references, holds in (
        ((1.0, 2.0), True),
        ((2.0, 1.0), False),
        ((1.05, 1.0), True),  # 5% apart in 3 runs: not sure
    ):
        rows = {
            name: Row(None, None, Reference(mean, 0.01, 3))
            for name, mean in zip(("low", "high"), references, strict=True)
        }
        assert same_order("i", Column("here", rows, 6, 12), results).holds == holds
