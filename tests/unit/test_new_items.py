"""New items: predicted from attributes, with their uncertainty."""

import numpy as np
import polars as pl
import pytest

from latentbandits import LinearGaussian, load, mmGreedy
from latentbandits.learning import fit
from latentbandits.learning.formats import LogError
from latentbandits.learning.learners import Learned
from latentbandits.learning.save import save_fit
from latentbandits.learning.side.items import fit_items, read_items
from latentbandits.models.artefacts.catalogue import Catalogue
from latentbandits.models.attributes.items import add_items
from latentbandits.models.attributes.parts import with_parts
from latentbandits.models.growing import add_average

GENRES = ("blues", "folk", "jazz", "rock")


def problem(seed: int, informative: bool = True):
    """120 learned items and 60 new ones; a genre and a year say most of a vector, or nothing."""
    rng = np.random.default_rng(seed)
    model = LinearGaussian(1.5 * rng.standard_normal((3, 4)), 0.5, [0.1 * np.eye(4)] * 3)
    genre, year = rng.integers(4, size=180), rng.normal(size=180)
    effect = rng.standard_normal((4, 4)), rng.standard_normal(4)
    signal = effect[0][genre] + np.outer(year, effect[1])
    if not informative:
        signal = rng.permutation(signal)
    vectors = signal + 0.3 * rng.standard_normal((180, 4))
    table = {"id": [f"i{k}" for k in range(180)], "genre": [GENRES[g] for g in genre], "year": year}
    return model, vectors, table


def earned(model, vectors, catalogue, ids, true_model, seed, n_users=400, n_rounds=20):
    """Mean true reward of mmGreedy on new items that users are offered, ten a round."""
    rng = np.random.default_rng(seed)
    policy = mmGreedy(model)
    state = rng.integers(3, size=n_users)
    theta = true_model.draw_theta(state, rng)
    belief, total, users = policy.init(n_users), np.zeros(n_users), np.arange(n_users)
    rows = catalogue.features[catalogue.indices(ids)]
    for _ in range(n_rounds):
        offered = rng.integers(len(ids), size=(n_users, 10))
        decision = policy.decide(belief, rows[offered], rng, propensity=False)
        item = offered[users, decision.action]
        mean = np.einsum("nd,nd->n", theta, vectors[120 + item])
        reward = mean + 0.5 * rng.standard_normal(n_users)
        belief = policy.update(belief, rows[offered], decision, reward)
        total += mean
    return total / n_rounds


def rewards(seed: int, informative: bool):
    model, vectors, table = problem(seed, informative)
    known, new = table["id"][:120], table["id"][120:]
    catalogue = Catalogue(known, features=vectors[:120])
    read = read_items(table, "id", known)
    found = fit_items(Learned(model, vectors[:120], np.full(120, 200)), read, np.ones(120, bool))
    rows = [{"genre": g, "year": y} for g, y in zip(table["genre"], table["year"], strict=True)]
    gifted = with_parts(model, items=found.items)
    predicted, longer = add_items(gifted, catalogue, new, rows[120:])
    average, flat = add_average(model, catalogue, new)
    whole = Catalogue(table["id"], features=vectors)
    return (
        earned(model, vectors, whole, new, model, seed),
        earned(predicted, vectors, longer, new, model, seed),
        earned(average, vectors, flat, new, model, seed),
        found,
    )


def test_informative_attributes_reach_most_of_the_reward_of_learned_vectors():
    """At least 80%, above what the average item earns; attributes of other items are caught."""
    learned, predicted, average, found = rewards(3, informative=True)
    assert found.explained > 0.5
    assert predicted.mean() >= 0.8 * learned.mean()
    gain = (predicted.mean() - average.mean()) / (learned.mean() - average.mean())
    assert gain >= 0.8
    _, shuffled, _, _ = rewards(3, informative=False)  # the planted bug
    assert shuffled.mean() < 0.5 * learned.mean()


def test_uninformative_attributes_cost_nothing():
    """Within one standard error of taking every new item as the average one."""
    _, predicted, average, found = rewards(5, informative=False)
    assert found.explained < 0.1
    lead = predicted - average
    assert lead.mean() > -lead.std(ddof=1) / np.sqrt(len(lead))


def test_a_fit_learns_holds_out_and_saves_the_regression_of_items(tmp_path):
    rng = np.random.default_rng(0)
    _, vectors, table = problem(1)
    n, rounds = 300, 40
    taste = np.array([[1.0, 0, 0, 0], [-1.0, 0.5, 0, 0]])[rng.integers(2, size=n)]
    who = np.repeat(np.arange(n), rounds)
    item = rng.integers(120, size=len(who))
    reward = np.einsum("nd,nd->n", taste[who], vectors[item]) + 0.3 * rng.standard_normal(len(who))
    log = {"user": who, "action": [f"i{k}" for k in item], "reward": reward}
    found = fit(log, item_features=table, states=2, rank=2, reg=1.0, bootstrap=0)
    report = found.report["item_features"]
    assert report["explained"] > 0.5
    assert [row["vectors"] for row in report["replay"]] == ["learned", "predicted", "average"]
    learned, predicted, average = (row["reward"] for row in report["replay"])
    assert learned > average
    assert predicted > average
    save_fit(found, tmp_path / "model")
    model = load(tmp_path / "model")
    grown, catalogue = add_items(model, found.catalogue, ["x"], [{"genre": "jazz", "year": 0.3}])
    assert catalogue.ids[-1] == "x"
    assert grown.n_features == model.n_features + 4


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"id": ["a", "a", "b"], "genre": ["x", "y", "x"]}, "1 ids in several rows.*'a'"),
        ({"film": ["a", "b"], "genre": ["x", "y"]}, "needs a column of ids"),
        ({"id": ["a", "b"]}, "no columns beside id"),
        ({"id": ["q", "r"], "genre": ["x", "y"]}, "0 of the log's 2 actions"),
        ({"id": ["a", "b"], "genre": ["x", "x"]}, "no column of --item-features can be used"),
    ],
)
def test_item_tables_that_cannot_be_are_refused(table, message):
    with pytest.raises(LogError, match=message):
        read_items(pl.DataFrame(table), "action", ["a", "b"])
