"""User attributes in the service: they hold for a session, and survive whatever happens to it."""

import numpy as np
import polars as pl
import pytest

from latentbandits import GaussianArms
from latentbandits.learning.backends.opening import Opening, read_interactions
from latentbandits.models.attributes.columns import Category, Encoder, Number
from latentbandits.models.attributes.parts import Gate, with_parts
from latentbandits.serving.engine.model_rows import pack
from latentbandits.serving.errors import Conflict, Invalid
from latentbandits.serving.export import export
from latentbandits.serving.stores import open_log
from latentbandits.serving.stores.schema import ADDED
from latentbandits.serving.stores.sqlite import SqliteStore
from latentbandits.serving.stores.sqlite_file import open_file
from tests.unit.engine_driver import Driver, forget_beliefs

MODEL = GaussianArms([[0.9, 0.1, 0.5], [0.2, 0.8, 0.4]], 0.5, 0.1, [0.3, 0.7])
ENCODER = Encoder((Category("country", ("AT", "DE"), (0.25, 0.75)), Number("age", 40.0, 10.0)))
GATE = Gate(ENCODER, np.array([[0.2, 1.0, 0.5], [0.0, -1.0, 0.0]]), ({"country": "AT", "age": 30},))
GATED = with_parts(MODEL, gate=GATE)
USER = {"country": "DE", "age": 50}
PRIOR = np.exp(GATE.log_prior([USER], MODEL.log_state_prior))[0]


def test_a_session_begins_with_the_prior_of_its_user():
    driver = Driver(GATED, policy="mmTS")
    with_them = driver.ask("ann", user_features=USER)
    np.testing.assert_allclose(with_them.state_probabilities, PRIOR)
    np.testing.assert_allclose(driver.ask("bob").state_probabilities, [0.3, 0.7])
    unknown = driver.ask("eve", user_features={"country": "FR"})
    np.testing.assert_allclose(unknown.state_probabilities, [0.3, 0.7])
    assert driver.session("ann").user_features == USER


def test_attributes_hold_for_the_whole_session():
    driver = Driver(GATED, policy="mmTS")
    driver.ask("ann", user_features=USER)
    assert driver.ask("ann", user_features=dict(reversed(USER.items()))).round == 2
    assert driver.ask("ann").round == 3
    with pytest.raises(Conflict, match="hold for the whole session"):
        driver.ask("ann", user_features={"country": "AT"})
    driver.ask("bob")
    with pytest.raises(Conflict, match="began with the user_features none"):
        driver.ask("bob", user_features=USER)
    assert driver.ask("bob").round == 2


@pytest.mark.parametrize(
    ("user", "message"),
    [
        ({"contry": "DE"}, "did you mean 'country'"),
        ({"age": "old"}, "age must be a finite number"),
    ],
)
def test_unknown_names_and_values_of_another_kind_are_refused(user, message):
    driver = Driver(GATED, policy="mmTS")
    with pytest.raises(Invalid, match=message):
        driver.ask("ann", user_features=user)
    assert driver.ask("ann").round == 1


def test_a_model_without_a_gate_logs_attributes_for_the_next_fit():
    driver = Driver(MODEL, policy="mmTS")
    decided = driver.ask("ann", user_features={"country": "DE", "anything": True})
    np.testing.assert_allclose(decided.state_probabilities, [0.3, 0.7])
    assert driver.session("ann").user_features == {"country": "DE", "anything": True}


@pytest.mark.parametrize("snapshot_rounds", [0, 2])
def test_attributes_survive_restarts_snapshots_and_new_models(tmp_path, snapshot_rounds):
    path = tmp_path / "store.sqlite"
    settings = {"policy": "mmTS", "snapshot_rounds": snapshot_rounds}
    driver = Driver(GATED, SqliteStore(path), **settings)
    rewards = [0.8, 0.1, 0.6]
    decisions = [driver.ask("ann", user_features=USER if i == 0 else None) for i in range(3)]
    for decided, value in zip(decisions, rewards, strict=True):
        driver.tell(decided, value)
    before = driver.session("ann").state_probabilities
    driver.store.close()

    again = Driver(GATED, SqliteStore(path), **settings)
    np.testing.assert_allclose(again.session("ann").state_probabilities, before, rtol=1e-12)
    for decided in decisions:
        assert again.recompute(decided.decision_id).action == decided.action
    forget_beliefs(again.engine)
    np.testing.assert_allclose(again.session("ann").state_probabilities, before, rtol=1e-12)
    # A model whose gate weighs the same attributes otherwise: the session is rebuilt under it.
    flipped = with_parts(MODEL, gate=Gate(ENCODER, -GATE.weights, GATE.sample))
    again.activate(pack(flipped, "flipped"), "migrated")
    moved = again.session("ann").state_probabilities
    likelihood = np.array(before) / PRIOR
    other = np.exp(flipped.gate.log_prior([USER], MODEL.log_state_prior))[0] * likelihood
    np.testing.assert_allclose(moved, other / other.sum(), rtol=1e-9)
    # A model without a gate: the average prior holds.
    again.activate(pack(MODEL, "plain"), "migrated")
    plain = again.session("ann").state_probabilities
    expected = np.array([0.3, 0.7]) * likelihood
    np.testing.assert_allclose(plain, expected / expected.sum(), rtol=1e-9)
    again.store.close()


@pytest.mark.parametrize("order", [("ann", "bob"), ("bob", "ann")])
def test_a_merged_session_has_the_attributes_of_the_one_that_knew_them(order):
    driver = Driver(GATED, policy="mmTS")
    driver.tell(driver.ask("ann", user_features=USER), 0.9)
    driver.tell(driver.ask("bob"), 0.3)
    driver.tell(driver.ask("bob"), 0.2)
    into, other = order
    merged = driver.merge(into, other)
    assert merged.user_features == USER
    forget_beliefs(driver.engine)
    np.testing.assert_allclose(
        driver.session(into).state_probabilities, merged.state_probabilities, rtol=1e-9
    )


@pytest.mark.parametrize("kind", [".parquet", ".csv", ".jsonl"])
def test_an_export_holds_the_attributes_and_fit_reads_them(tmp_path, kind):
    path = tmp_path / "store.sqlite"
    driver = Driver(GATED, SqliteStore(path), policy="mmTS")
    for name, user in (("ann", USER), ("bob", None), ("eve", {"country": "AT"})):
        for i in range(2):  # both actions are played: a log of one action is not read
            decided = driver.ask(name, actions=[str(i)], user_features=user if i == 0 else None)
            driver.tell(decided, 0.5)
    driver.store.close()
    out = tmp_path / f"log{kind}"
    export(open_log(f"sqlite:///{path}"), str(out))
    actual = read_interactions(str(out), Opening(more=["country", "age"]))
    table = actual.log.beside.with_columns(
        pl.Series("user", [actual.log.user_ids[u] for u in actual.log.users])
    )
    assert dict(table.select("user", "country").iter_rows()) == {
        "ann": "DE", "bob": None, "eve": "AT",
    }  # fmt: skip
    assert dict(table.select("user", "age").iter_rows()) == {"ann": 50, "bob": None, "eve": None}


def test_a_store_of_version_3_opens(tmp_path):
    """The columns are added, and the checksums of its rows stay valid."""
    import apsw

    indexed = {"token": "rewards_by_token"}

    path = tmp_path / "store.sqlite"
    driver = Driver(GATED, SqliteStore(path), policy="mmTS")
    driver.tell(driver.ask("ann"), 0.5)
    driver.store.close()
    connection = open_file(str(path), apsw.SQLITE_OPEN_READWRITE)
    for added in (line for lines in ADDED for line in lines if line.startswith("ALTER TABLE")):
        table, column = added.split()[2], added.split()[5]
        connection.execute(f"DROP INDEX IF EXISTS {indexed.get(column, 'none')}")
        connection.execute(f"ALTER TABLE {table} DROP COLUMN {column}")
    connection.execute("PRAGMA user_version = 3")
    connection.close()
    again = Driver(GATED, SqliteStore(path), policy="mmTS")
    assert again.session("ann").rewards == 1
    again.ask("bob", user_features=USER)
    assert again.session("bob").user_features == USER
    again.store.close()
