"""Models of the engine: swapped under way, refused, named by catalogues, of every family."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest

from latentbandits import Decision, GaussianArms, LinearGaussian, mmTS
from latentbandits.models.arms.dirichlet import BernoulliArms
from latentbandits.models.arms.gamma import PoissonArms
from latentbandits.models.artefacts import Catalogue
from latentbandits.models.composed.ensemble import Ensemble
from latentbandits.models.composed.markov import Markov
from latentbandits.models.linear.logistic import LogisticLinear
from latentbandits.serving.engine.model_rows import ActionNames, model_row, pack
from latentbandits.serving.engine.values import NewAction
from latentbandits.serving.errors import Conflict, Invalid
from latentbandits.serving.http.views import models as models_view
from latentbandits.serving.http.views import overview
from latentbandits.serving.log import Cursors, log_entries
from tests.unit.engine_driver import ARMS, LINEAR, OTHER_ARMS, Driver, forget_beliefs

RNG = np.random.default_rng(6)


@pytest.mark.parametrize("mode", ["pinned", "migrated", "restarted"])
def test_a_new_model_and_the_sessions_under_way(arms: Driver, mode: str) -> None:
    rng = np.random.default_rng(6)
    arms.play("ann", 6, rng)
    waiting = arms.ask("ann")
    before = arms.session("ann")
    new = arms.activate(pack(OTHER_ARMS, "other"), mode)
    if mode == "restarted":
        assert arms.tell(waiting, 0.3) == "late"
        assert arms.ask("ann").round == 1
        assert arms.ask("ann").model == new.id
        return
    assert arms.tell(waiting, 0.3) == "applied"
    after = arms.session("ann")
    assert after.round == 7
    assert after.model == (before.model if mode == "pinned" else new.id)
    assert arms.ask("bob").model == new.id
    if mode == "migrated":
        policy = mmTS(OTHER_ARMS)
        belief = policy.init(1)
        for event in after.history:
            belief = policy.update(belief, None, Decision.logged([event.index]), [event.reward])
        np.testing.assert_allclose(
            after.state_probabilities, policy.state_probabilities(belief)[0], atol=1e-9
        )
    for event in arms.session("ann").history:
        assert arms.recompute(event.decision_id).action == event.action


def models_of(driver: Driver, names: list[str]) -> list[str]:
    return [driver.ask(name).model for name in names]


def test_half_of_the_new_sessions_get_a_model_on_trial() -> None:
    driver = Driver(ARMS, policy="mmTS", holdout_share=0.2)
    active = driver.ask("ann").model
    tried = driver.activate(pack(OTHER_ARMS, "other"), "trial").id
    names = [f"s{i}" for i in range(400)]
    models = models_of(driver, names)
    groups = [driver.session(name).group for name in names]
    assert driver.ask("ann").model == active  # open sessions keep theirs
    assert {(group, model) for group, model in zip(groups, models, strict=True)} == {
        ("policy", active), ("holdout", active), ("trial", tried),
    }  # fmt: skip
    assert 130 < groups.count("trial") < 190  # 0.8 / 2 of 400, 3 deviations of 10
    with driver.engine.transaction():
        listed, shown = models_view(driver.engine), overview(driver.engine)
    assert (listed.active, listed.trial) == (active, tried)
    assert [swap.mode for swap in listed.swaps] == ["pinned", "trial"]
    shares = {group.group: group.share for group in shown.groups}
    assert shares == pytest.approx({"policy": 0.4, "trial": 0.4, "holdout": 0.2})


@pytest.mark.parametrize("mode", ["pinned", "migrated", "extended"])
def test_the_next_activation_ends_a_trial(mode: str) -> None:
    driver = Driver(ARMS, policy="mmTS")
    active = driver.ask("ann").model
    tried = driver.activate(pack(OTHER_ARMS, "other"), "trial").id
    names = [f"s{i}" for i in range(20)]
    before = models_of(driver, names)
    if mode == "extended":
        new = driver.add_actions([NewAction("new")]).id
        kept = {active: new, tried: tried}  # the catalogue is the active model's
    else:
        new = driver.activate(pack(OTHER_ARMS, "other"), mode).id
        assert new == tried
        kept = {active: new if mode == "migrated" else active, tried: tried}
    assert models_of(driver, names) == [kept[model] for model in before]
    assert set(models_of(driver, [f"later{i}" for i in range(20)])) == {new}
    with driver.engine.transaction():
        assert models_view(driver.engine).trial is None
        driver.engine.library.prune(driver.clock.now + 10**9)
    assert models_of(driver, names) == [kept[model] for model in before]
    for name in names:
        for event in driver.session(name).history:
            assert driver.recompute(event.decision_id).action == event.action


def test_each_trial_divides_the_sessions_anew() -> None:
    """Two trials with the same sessions in them could not be told from one."""
    groups = []
    for model in (OTHER_ARMS, GaussianArms(RNG.random((2, 4)), 0.3)):
        driver = Driver(ARMS, policy="mmTS")
        driver.engine.sessions._salt = b"salt"
        tried = driver.activate(pack(model, "other"), "trial").id
        groups.append([model == tried for model in models_of(driver, [f"s{i}" for i in range(99)])])
    same = np.mean(np.array(groups[0]) == np.array(groups[1]))
    assert 0.3 < same < 0.7


def test_a_trial_that_could_not_be_compared_is_refused() -> None:
    driver = Driver(ARMS, policy="mmTS", groups="trial=mTS:0.1")
    with pytest.raises(Conflict, match="give that group another name"):
        driver.activate(pack(OTHER_ARMS, "other"), "trial")
    with pytest.raises(Invalid, match="nothing to try"):
        driver.activate(pack(ARMS, "same"), "trial")
    with driver.engine.transaction():
        assert models_view(driver.engine).trial is None


def test_a_model_that_was_only_tried_is_activated_by_the_command_line() -> None:
    driver = Driver(ARMS, policy="mmTS")
    row = pack(OTHER_ARMS, "other")
    driver.activate(row, "trial")
    assert driver.start_with(row) == "it is new to this store"
    assert driver.ask("ann").model == row.id


def test_later_activations_do_not_undo_earlier_ones(arms: Driver) -> None:
    rng = np.random.default_rng(7)
    arms.play("ann", 2, rng)
    second = arms.activate(pack(OTHER_ARMS, "second"), "migrated")
    arms.activate(pack(GaussianArms(RNG.random((2, 4)), 0.3), "third"), "pinned")
    assert arms.session("ann").model == second.id


def test_bad_models_are_refused_and_the_old_one_goes_on(arms: Driver) -> None:
    good = pack(ARMS, "good")
    files = msgspec.msgpack.decode(good.files)
    damaged = bytearray(files["arrays.safetensors"])
    damaged[-1] ^= 1
    for row, why in (
        (model_row({**files, "arrays.safetensors": bytes(damaged)}, "damaged"), "SHA-256 differs"),
        (model_row({"manifest.json": files["manifest.json"]}, "half"), "cannot read"),
        (model_row({"a": b""}, "nothing"), "is not a saved model"),
        (pack(LINEAR, "linear"), "has no catalogue"),  # to find ids in
        (pack(GaussianArms(RNG.random((5, 2, 4)), 0.3), "many"), "one instance for each of 5"),
    ):
        with pytest.raises(Invalid, match=why):
            arms.activate(row)
        assert arms.ask().model == good.id


def test_a_successor_may_change_rank_states_and_family_where_callers_send_ids() -> None:
    ids = ["a", "b", "c"]
    rank2 = Catalogue(ids, features=[[1, 0], [0, 1], [1, 1]])
    rank3 = Catalogue(ids, features=np.eye(3))
    driver = Driver(LINEAR)
    driver.activate(pack(LINEAR, "named", rank2))
    assert driver.ask(actions=["a", "c"]).action in ids
    wider = LinearGaussian(RNG.random((4, 3)), 0.3, np.stack([np.eye(3)] * 4))
    driver.activate(pack(wider, "wider", rank3))
    assert driver.ask("bob", actions=["a", "c"]).action in ids
    driver.activate(pack(GaussianArms(RNG.random((2, 3)), 0.3), "arms", Catalogue(ids)), "migrated")
    assert driver.ask("bob", actions=["a", "c"]).action in ids
    brought = Driver(LINEAR)
    brought.ask(features=[[1.0, 0.0]])
    with pytest.raises(Invalid, match="takes 3 features, callers send 2"):
        brought.activate(pack(wider, "wider"))


def test_linear_models_take_features() -> None:
    driver = Driver(LINEAR)
    decided = driver.ask(features=[[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], actions=["a", "b", "c"])
    assert decided.action == ["a", "b", "c"][decided.index]
    assert driver.ask(features=[[1.0, 0.0]]).action == "0"
    for fields, why in (
        ({}, "has no catalogue"),
        ({"features": [[1.0]]}, r"features\[0\] has 1 numbers; this model takes 2"),
        ({"features": [[1.0, 2.0], [1.0]]}, r"features\[1\] has 1 numbers"),
        ({"features": [[1.0, 2.0]], "actions": ["a", "b"]}, "got 2 actions and 1 rows"),
    ):
        with pytest.raises(Invalid, match=why):
            driver.ask(**fields)


def test_a_catalogue_names_the_actions() -> None:
    catalogue = Catalogue(["a", "b", "c"], ["Alpha", "Beta", "Gamma"], [[1, 0], [0, 1], [1, 1]])
    driver = Driver(LINEAR)
    driver.activate(pack(LINEAR, "named", catalogue), "migrated")
    decided = driver.ask()
    assert decided.action == ["a", "b", "c"][decided.index]
    assert driver.ask(actions=["c"]).action == "c"
    with pytest.raises(Invalid, match="no action 'd'"):
        driver.ask(actions=["d"])
    assert driver.ask(features=[[0.5, 0.5]], actions=["new"]).action == "new"
    rng = np.random.default_rng(12)
    driver.play("ann", 5, rng)
    view = driver.session("ann")
    policy = mmTS(LINEAR)
    belief = policy.init(1)
    assert catalogue.features is not None
    for event in view.history:
        if event.reward is not None:
            known = catalogue.context([event.action])
            belief = policy.update(belief, known, Decision.logged([0]), [event.reward])
    np.testing.assert_allclose(
        view.state_probabilities, policy.state_probabilities(belief)[0], atol=1e-9
    )
    names = ActionNames(driver.store.model)
    logged = [
        log_entries(event, names, Cursors(b"abcd"))[0]
        for event in driver.store.log_reader().read(0, 100)
        if event.reward is None
    ]
    assert logged[0].eligible == ["a", "b", "c"]
    assert logged[2].eligible == ["new"]
    numbered = Driver(ARMS)
    numbered.activate(pack(ARMS, "named", Catalogue(["w", "x", "y", "z"])), force=True)
    assert numbered.ask().action in ("w", "x", "y", "z")
    with pytest.raises(Invalid, match="do not belong together"):
        numbered.activate(pack(ARMS, "short", Catalogue(["w"])), force=True)
    with pytest.raises(Invalid, match="do not belong together"):
        driver.activate(pack(LINEAR, "wide", Catalogue(["w"], None, [[1, 2, 3]])), force=True)


@pytest.mark.parametrize(
    "model",
    [
        BernoulliArms([[2.0, 8.0], [9.0, 1.0]], [[8.0, 2.0], [1.0, 9.0]]),
        PoissonArms([[2.0, 8.0], [9.0, 1.0]], [[2.0, 2.0], [3.0, 1.0]]),
        LogisticLinear([[1.0, -1.0], [-1.0, 1.0]], [np.eye(2) * 0.1] * 2),
        Ensemble([ARMS, OTHER_ARMS]),
        Markov(ARMS, np.full((3, 3), 1 / 3)),
        Markov(ARMS, np.full((3, 3), 1 / 3), n_paths=0),
    ],
    ids=lambda model: type(model).__name__,
)
@pytest.mark.parametrize("policy", ["mmTS", "mTS"])
def test_every_family_can_be_served(model: Any, policy: str) -> None:
    driver = Driver(model, policy=policy, propensity_draws=10)
    features = None if model.n_actions is not None else [[1.0, 0.5], [0.2, 1.0]]
    for i in range(4):
        decided = driver.ask(features=features)
        assert driver.recompute(decided.decision_id) == decided
        assert driver.tell(decided, float(i % 2)) == "applied"
    if not isinstance(model, (Ensemble, Markov)):
        decided = driver.ask(features=features)
        with pytest.raises(
            Invalid, match=r"value -0\.37 is below reward_min, which is 0 by the model"
        ):
            driver.tell(decided, -0.37)
    before = driver.session("ann")
    forget_beliefs(driver.engine)
    assert driver.session("ann") == before
    with driver.engine.transaction():
        msgspec.json.encode(overview(driver.engine))
    msgspec.json.encode(before)


def test_a_linear_session_survives_a_change_of_features() -> None:
    driver = Driver(LINEAR)
    driver.play("ann", 3, np.random.default_rng(8), features=[[1.0, 0.0], [0.0, 1.0]])
    wide = LinearGaussian(RNG.normal(size=(2, 3)), 0.5)
    driver.activate(pack(wide, "wide"), "migrated", force=True)
    np.testing.assert_allclose(driver.session("ann").state_probabilities, wide.state_prior)
