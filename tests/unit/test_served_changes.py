"""Catalogues that change under way, and features by name: what requests get, and what stays."""

import gc
import threading

import apsw
import numpy as np
import pytest

from latentbandits import GaussianArms, LinearGaussian
from latentbandits.models.artefacts import Catalogue
from latentbandits.models.attributes.columns import Category, Encoder, Number
from latentbandits.models.attributes.items import Items
from latentbandits.models.attributes.parts import with_parts
from latentbandits.serving.engine.engine import Engine, EngineSettings
from latentbandits.serving.engine.model_rows import pack
from latentbandits.serving.engine.models import ServedModel
from latentbandits.serving.engine.values import DecisionRequest, NewAction
from latentbandits.serving.errors import Invalid, NotFound
from latentbandits.serving.stores.postgresql import PostgresqlStore
from latentbandits.serving.stores.sqlite import SqliteStore
from tests.unit.engine_driver import Driver

ARMS = GaussianArms([[0.9, 0.1], [0.2, 0.8]], 0.5, 0.1)
ENCODER = Encoder((Category("genre", ("jazz", "rock"), (0.5, 0.5)),))


def items(weights: np.ndarray) -> Items:
    d = weights.shape[1]
    return Items(ENCODER, weights, 0.01 * np.eye(d), 0.1 * np.eye(2))


def arms_driver(store=None, **settings) -> Driver:
    model = with_parts(ARMS, items=items(np.array([[0.5, 0.5], [0.8, -0.8]])))
    driver = Driver(ARMS, store, policy="mmTS", **settings)
    driver.activate(pack(model, "arms", Catalogue(["red", "blue"])), "migrated", force=True)
    return driver


def linear_driver(store=None) -> Driver:
    rng = np.random.default_rng(0)
    model = LinearGaussian(rng.standard_normal((2, 3)), 0.5, [0.1 * np.eye(3)] * 2)
    model = with_parts(model, items=items(rng.standard_normal((2, 3))))
    catalogue = Catalogue(["red", "blue"], features=rng.standard_normal((2, 3)))
    driver = Driver(ARMS, store, policy="mmTS")
    driver.activate(pack(model, "linear", catalogue), "migrated", force=True)
    return driver


@pytest.mark.parametrize("make", [arms_driver, linear_driver])
@pytest.mark.parametrize(
    "new",
    [
        NewAction("green", attributes={"genre": "jazz"}),
        NewAction("green", "Green"),
        NewAction("green", vector=[0.3, 0.4, 0.5]),
    ],
)
def test_an_added_action_is_chosen_and_learned_from(make, new, tmp_path):
    path = tmp_path / "store.sqlite"
    driver = make(SqliteStore(path))
    if make is arms_driver and new.vector is not None:
        new = NewAction("green", vector=[0.3, 0.4])
    first = driver.ask("ann")
    driver.tell(first, 0.7)
    before = driver.session("ann").state_probabilities
    driver.add_actions([new], who="admin")
    after = driver.session("ann").state_probabilities
    np.testing.assert_allclose(after, before, rtol=1e-9)  # what the session learned still holds
    chosen = driver.ask("ann", actions=["green"])
    assert (chosen.action, chosen.fallback) == ("green", False)
    driver.tell(chosen, 0.1)
    learned = driver.session("ann").state_probabilities
    assert driver.recompute(first.decision_id).action == first.action
    assert driver.recompute(chosen.decision_id).action == "green"
    driver.store.close()
    settings = EngineSettings(policy="mmTS")
    engine = Engine(SqliteStore(path), settings, driver.clock)  # a restart
    with engine.transaction():
        assert engine.decide(DecisionRequest("bob", ["green"])).action == "green"
        again = engine.latest("ann")[0].probabilities
    np.testing.assert_allclose(again, learned, rtol=1e-9)
    engine.store.close()
    lines = apsw.Connection(str(path)).execute("SELECT who, action, detail FROM audit").fetchall()
    assert ("admin", "add actions", "green") in lines


def test_no_action_is_lost_that_two_processes_add_at_once(postgresql_url):
    """The second process waits for the first one's transaction, and extends its catalogue."""
    engines = [Engine(PostgresqlStore(postgresql_url)) for _ in range(2)]
    first, second = engines
    with first.transaction():
        first.start_with(pack(ARMS, "arms", Catalogue(["red", "blue"])))

    def add_turquoise() -> None:
        with second.transaction():
            second.add_actions([NewAction("turquoise")])

    thread = threading.Thread(target=add_turquoise)
    with first.transaction():
        first.add_actions([NewAction("green")])
        thread.start()
        thread.join(0.5)
        assert thread.is_alive()
    thread.join()
    for engine in engines:
        with engine.transaction():
            names = engine.library.served(engine.library.active.model).space.names
        assert names == ("red", "blue", "green", "turquoise")
        engine.store.close()


@pytest.mark.parametrize("make", [arms_driver, linear_driver])
def test_a_retired_action_is_never_chosen_again_and_its_decisions_remain(make):
    driver = make()
    rng = np.random.default_rng(1)
    decided = [driver.ask("ann") for _ in range(6)]
    for one in decided:
        driver.tell(one, float(rng.normal(0.5, 0.5)))
    before = driver.session("ann")
    driver.retire_action("red", who="admin")
    after = driver.session("ann")
    np.testing.assert_allclose(after.state_probabilities, before.state_probabilities, rtol=1e-9)
    assert [event.action for event in after.history] == [event.action for event in before.history]
    assert {driver.ask(f"user {i}").action for i in range(20)} == {"blue"}
    with pytest.raises(Invalid, match="'red' was retired"):
        driver.ask("ann", actions=["red", "blue"])
    fallback = driver.ask("ann", actions=["red", "blue"], default="blue")
    assert (fallback.action, fallback.fallback) == ("blue", True)
    with pytest.raises(NotFound):
        driver.retire_action("red")
    with pytest.raises(Invalid, match="leave at least one"):
        driver.retire_action("blue")
    for one in decided:
        assert driver.recompute(one.decision_id).action == one.action


def test_sessions_that_were_pinned_to_an_older_model_stay_there():
    driver = arms_driver()
    driver.ask("old")
    pinned = driver.session("old").model
    other = GaussianArms([[0.5, 0.1], [0.2, 0.9]], 0.5, 0.1)
    driver.activate(pack(other, "other", Catalogue(["red", "blue"])), "pinned")
    driver.ask("new")
    driver.add_actions([NewAction("green")])
    assert driver.session("old").model == pinned
    assert driver.session("new").model == driver.engine.library.active.model


@pytest.mark.parametrize(
    ("new", "message"),
    [
        (NewAction("red"), "an action 'red' already"),
        (NewAction("x", attributes={"gender": "jazz"}), "unknown name in the attributes of 'x'"),
        (NewAction("x", vector=[1.0]), "has 1 numbers; this model takes 2"),
        (NewAction("x", attributes={"genre": "jazz"}, vector=[1.0, 2.0]), "not both"),
    ],
)
def test_actions_that_cannot_be_added_change_nothing(new, message):
    driver = arms_driver()
    active = driver.engine.library.active.model
    with pytest.raises(Invalid, match=message):
        driver.add_actions([NewAction("fine"), new])
    assert driver.engine.library.active.model == active


def test_attributes_need_a_model_that_was_learned_with_them():
    driver = Driver(ARMS, policy="mmTS")
    with pytest.raises(Invalid, match="fit --item-features"):
        driver.add_actions([NewAction("x", attributes={"genre": "jazz"})])
    driver.add_actions([NewAction("x")])
    assert driver.ask("ann", actions=["x"]).action == "x"


NAMED = with_parts(
    LinearGaussian([[1.0, 2.0, 0.5], [0.0, -1.0, 0.2]], 0.5, [0.1 * np.eye(3)] * 2),
    encoder=Encoder(
        (Number("price", 5.0, 2.0), Category("country", ("AT", "DE"), (0.5, 0.5))), intercept=True
    ),
)


def test_features_by_name_are_those_of_the_encoder():
    driver = Driver(NAMED, policy="mTS")
    named = driver.ask("ann", features=[{"price": 9, "country": "DE"}, {"price": 1}])
    row = driver.store.decision(int(named.decision_id[:16], 16))
    np.testing.assert_allclose(
        np.frombuffer(row.features).reshape(2, 3), [[1, 2, 0.5], [1, -2, 0.0]]
    )
    assert driver.recompute(named.decision_id).action == named.action
    shared = driver.ask("bob", actions=["a", "b"], features={"price": 3, "country": "DE"})
    assert shared.action in ("a", "b")
    mixed = driver.ask("eve", features=[{"price": 9}, [1.0, 0.0, 0.0]])
    driver.tell(mixed, 0.5)


@pytest.mark.parametrize(
    ("features", "message"),
    [
        ([{"prize": 3}], "unknown name in features\\[0\\] 'prize': did you mean 'price'"),
        ([{"price": "cheap"}], "price must be a finite number"),
        ([[1.0, 2.0]], "features\\[0\\] has 2 numbers; this model takes 3"),
        ({"price": 3}, "need `actions`"),
    ],
)
def test_features_that_the_model_does_not_know_are_refused(features, message):
    driver = Driver(NAMED, policy="mTS")
    with pytest.raises(Invalid, match=message):
        driver.ask("ann", features=features)


def test_names_need_a_model_that_was_learned_with_them():
    driver = Driver(LinearGaussian([[1.0]], 0.5), policy="mTS")
    with pytest.raises(Invalid, match="knows no names of features"):
        driver.ask("ann", features=[{"price": 3}])


def wide_driver(n: int = 500, store=None, **settings) -> Driver:
    """A driver of a linear model with a catalogue of `n` items."""
    rng = np.random.default_rng(2)
    model = LinearGaussian(rng.standard_normal((2, 3)), 0.5, [0.1 * np.eye(3)] * 2)
    catalogue = Catalogue([f"item {i}" for i in range(n)], features=rng.standard_normal((n, 3)))
    driver = Driver(ARMS, store, policy="mmTS", **settings)
    driver.activate(pack(model, "wide", catalogue), "migrated", force=True)
    return driver


def n_loaded() -> int:
    return sum(isinstance(one, ServedModel) for one in gc.get_objects())


def test_former_catalogues_leave_the_memory_although_sessions_had_them():
    gc.collect()
    before = n_loaded()
    driver = wide_driver()
    for change in range(30):
        driver.add_actions([NewAction(f"new {change}", vector=[0.1, 0.2, 0.3])])
        driver.tell(driver.ask(f"session {change}"), 1.0)
    gc.collect()
    assert n_loaded() - before <= 10  # the active one, and those used last
    library = driver.engine.library
    active = library.served(library.active.model)
    assert library.memory.counted < active.bytes  # all of them: they share most of what they have


def test_versions_of_a_catalogue_share_their_features():
    driver = wide_driver()
    library = driver.engine.library
    driver.add_actions([NewAction("a", vector=[0.1, 0.2, 0.3])])
    first = library.served(library.active.model).space.catalogue
    driver.add_actions([NewAction("b", vector=[0.4, 0.5, 0.6])])
    driver.retire_action("item 3")
    last = library.served(library.active.model).space.catalogue
    assert np.shares_memory(first.features, last.features)
    assert (len(first), len(last)) == (501, 502)
    assert "b" not in first.places
    assert not first.retired
    np.testing.assert_array_equal(last.features[-2:], [[0.1, 0.2, 0.3], [0.4, 0.5, 0.6]])
    # Another continuation of the first does not write into the last one.
    other = first.longer(["c"], rows=[[7.0, 8.0, 9.0]])
    assert last.features[-1].tolist() == [0.4, 0.5, 0.6]
    assert other.indices(["c"]).tolist() == [501]
    with pytest.raises(ValueError, match="no action 'b'"):
        other.indices(["b"])


def test_models_of_pinned_sessions_are_counted_with_the_beliefs():
    driver = wide_driver(4_000, cached_megabytes=3.0)
    rng = np.random.default_rng(3)
    for number in range(6):  # about 1.2 MB each, none of which begins like another
        model = LinearGaussian(rng.standard_normal((2, 3)), 0.5, [0.1 * np.eye(3)] * 2)
        ids = [f"{number}: {i}" for i in range(4_000)]
        catalogue = Catalogue(ids, features=rng.standard_normal((4_000, 3)))
        driver.activate(pack(model, "another", catalogue), "pinned", force=True)
        driver.ask(f"session {number}")
    gc.collect()
    assert driver.engine.library.memory.counted <= 3.0 * 2**20
    assert driver.ask("session 0").round == 2  # restored from the store


def test_a_change_of_the_catalogue_is_stored_as_a_difference(tmp_path):
    path = tmp_path / "store.sqlite"
    driver = wide_driver(store=SqliteStore(path))
    library = driver.engine.library
    whole = library.active.model
    for name in "abc":
        driver.add_actions([NewAction(name, vector=[0.1, 0.2, 0.3])])
    driver.retire_action("item 7")
    expected = library.served(library.active.model).space.catalogue
    driver.store.close()
    sizes = dict(apsw.Connection(str(path)).execute("SELECT base, max(length(files)) FROM models "
                                                    "GROUP BY base"))  # fmt: skip
    assert set(sizes) == {None, whole}
    assert sizes[whole] < sizes[None] / 16
    again = Engine(SqliteStore(path), EngineSettings(policy="mmTS"))
    with again.transaction():
        read = again.library.served(again.library.active.model).space.catalogue
    assert (read.ids, read.retired) == (expected.ids, frozenset(["item 7"]))
    np.testing.assert_array_equal(read.features, expected.features)
    again.store.close()


def test_former_catalogues_are_forgotten_when_no_session_can_have_used_them(tmp_path):
    hour = 3_600_000
    driver = wide_driver(store=SqliteStore(tmp_path / "s"), session_ttl=3600, retention=7200)
    library = driver.engine.library
    first = library.active.model
    driver.ask("before")
    versions = []
    for name in "abc":
        driver.clock.now += 2 * hour
        driver.add_actions([NewAction(name, vector=[0.1, 0.2, 0.3])])
        versions.append(library.active.model)
        driver.ask(f"after {name}")
    models = [first, *versions]

    def kept() -> list[bool]:
        with driver.engine.transaction():
            return [driver.store.model(model) is not None for model in models]

    assert kept() == [True] * 4
    driver.clock.now += 2 * hour
    driver.sweep()  # forgets "before", "after a" and "after b"; "after c" only has ended
    assert kept() == [True, False, True, True]  # the others are differences from the first
    driver.clock.now += hour
    driver.sweep()  # forgets "after c", which may have begun before the last change
    assert kept() == [True, False, False, True]
    assert driver.ask("later").model == versions[-1]
