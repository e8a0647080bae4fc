"""New items: predicted from attributes, with their uncertainty."""

import argparse

import numpy as np
import polars as pl
import pytest
from evidence.side import KNOWN, SideExperiment, item_problem, play_items

from latentbandits import load
from latentbandits.learning import fit
from latentbandits.learning.attributes.items import fit_items, read_items
from latentbandits.learning.learners import Learned
from latentbandits.learning.logs.tables import LogError
from latentbandits.learning.save import save_fit
from latentbandits.models.artefacts import Catalogue
from latentbandits.models.attributes.items import add_items
from latentbandits.models.attributes.parts import with_parts
from latentbandits.models.growing import add_average
from latentbandits.report.report import Silent


def test_informative_attributes_reach_most_of_the_reward_of_learned_vectors():
    """At least 80%, above what the average item earns; attributes of other items are caught."""
    learned, predicted, average, explained = play_items(True, 3)
    assert explained > 0.5
    assert predicted.mean() >= 0.8 * learned.mean()
    gain = (predicted.mean() - average.mean()) / (learned.mean() - average.mean())
    assert gain >= 0.8
    shuffled = play_items(False, 3).predicted  # the planted bug
    assert shuffled.mean() < 0.5 * learned.mean()


def test_uninformative_attributes_cost_nothing():
    """They are not used: every new item is the average one."""
    _, predicted, average, explained = play_items(False, 5)
    assert explained == 0.0
    np.testing.assert_array_equal(predicted, average)


def test_attributes_are_used_only_if_they_clearly_predict_items_left_out(monkeypatch):
    """Of 100 useless tables for 30 items, more than 12 pass with a probability below 0.1%.

    That holds if each passes with a probability of 5%. The lowest error alone (the planted bug)
    takes more than 20.
    """

    def used(seed, informative):
        model, vectors, table = item_problem(seed, informative)
        table = {name: column[:30] for name, column in table.items()}
        learned = Learned(model, vectors[:30], np.full(30, 200))
        everything = np.ones(30, np.bool_)
        return fit_items(learned, read_items(table, "id", table["id"]), everything).items.used

    assert sum(used(seed, False) for seed in range(100)) <= 12
    assert sum(used(seed, True) for seed in range(20)) == 20
    monkeypatch.setattr("latentbandits.learning.attributes.items.CLEAR", 0.0)
    assert sum(used(seed, False) for seed in range(100)) > 20


def test_a_new_item_is_the_average_one_where_attributes_are_not_used():
    model, vectors, table = item_problem(0, informative=False)
    known = table["id"][:KNOWN]
    learned = Learned(model, vectors[:KNOWN], np.full(KNOWN, 200))
    regression = fit_items(learned, read_items(table, "id", known), np.ones(KNOWN, np.bool_))
    assert not regression.items.used
    catalogue = Catalogue(known, features=vectors[:KNOWN])
    grown, longer = add_items(
        with_parts(model, items=regression.items), catalogue, ["new"], [{"genre": "jazz"}]
    )
    expected, rows = add_average(model, catalogue, ["new"])
    np.testing.assert_array_equal(grown.covariances, expected.covariances)
    np.testing.assert_array_equal(longer.features, rows.features)
    with pytest.raises(ValueError, match="unknown name in the attributes of 'new' 'gender'"):
        add_items(
            with_parts(model, items=regression.items), catalogue, ["new"], [{"gender": "jazz"}]
        )


@pytest.mark.slow
def test_the_experiment_states_its_claims():
    options = argparse.Namespace(seeds=1, users=150, seed=0)
    report = SideExperiment().run(options, None, Silent())
    assert [claim.id for claim in report.claims] == [
        "gate-15", "gate-4", "gate-useless", "items", "items-useless",
    ]  # fmt: skip
    assert report.claims[3].holds
    assert len(report.tables) == 2


def test_a_fit_learns_holds_out_and_saves_the_regression_of_items(tmp_path):
    rng = np.random.default_rng(0)
    _, vectors, table = item_problem(1)
    n, rounds = 300, 40
    taste = np.array([[1.0, 0, 0, 0], [-1.0, 0.5, 0, 0]])[rng.integers(2, size=n)]
    who = np.repeat(np.arange(n), rounds)
    item = rng.integers(120, size=len(who))
    reward = np.einsum("nd,nd->n", taste[who], vectors[item]) + 0.3 * rng.standard_normal(len(who))
    log = {"user": who, "action": [f"i{k}" for k in item], "reward": reward}
    actual = fit(log, item_features=table, states=2, rank=2, reg=1.0, bootstrap=0)
    report = actual.report["item_features"]
    assert report["explained"] > 0.5
    assert [row["vectors"] for row in report["replay"]] == ["learned", "predicted", "average"]
    learned, predicted, average = (row["reward"] for row in report["replay"])
    assert learned > average
    assert predicted > average
    save_fit(actual, tmp_path / "model")
    model = load(tmp_path / "model")
    grown, catalogue = add_items(model, actual.catalogue, ["x"], [{"genre": "jazz", "year": 0.3}])
    assert catalogue.ids[-1] == "x"
    assert grown.n_features == model.n_features + 4


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"id": ["a", "a", "b"], "genre": ["x", "y", "x"]}, "1 ids in several rows.*'a'"),
        ({"id": ["a", None, "b"], "genre": ["x", "y", "x"]}, "no value of id in 1 of its rows"),
        ({"film": ["a", "b"], "genre": ["x", "y"]}, "needs a column of ids"),
        ({"id": ["a", "b"]}, "no columns beside id"),
        ({"id": ["q", "r"], "genre": ["x", "y"]}, "0 of the log's 2 actions"),
        ({"id": ["a", "b"], "genre": ["x", "x"]}, "no column of --item-features can be used"),
    ],
)
def test_item_tables_that_cannot_be_are_refused(table, message):
    with pytest.raises(LogError, match=message):
        read_items(pl.DataFrame(table), "action", ["a", "b"])
