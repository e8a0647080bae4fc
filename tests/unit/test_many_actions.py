"""A large catalogue by id: all of it, some of it, or all but some; rewards; what is refused."""

import numpy as np
import pytest

from latentbandits import GaussianArms, LinearGaussian
from latentbandits.models.artefacts import Catalogue
from latentbandits.serving.engine.engine import Engine, EngineSettings
from latentbandits.serving.engine.model_rows import pack
from latentbandits.serving.engine.values import DecisionRequest, RewardReport
from latentbandits.serving.errors import Invalid
from latentbandits.serving.stores.sqlite import MemoryStore

N_ITEMS = 100_000
ITEMS = np.random.default_rng(0).normal(size=(N_ITEMS, 4))
NAMES = [f"item-{i}" for i in range(N_ITEMS)]
LINEAR = LinearGaussian([[1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0]], 0.5, [0.1 * np.eye(4)] * 2)


def engine_of(model, catalogue, policy):
    engine = Engine(MemoryStore(), EngineSettings(policy=policy), lambda: 0)
    with engine.transaction():
        engine.start_with(pack(model, "model", catalogue))
    return engine


def decide(engine, session="ann", **fields):
    with engine.transaction():
        return engine.decide(DecisionRequest(session, **fields))


def reward(engine, decided, value):
    with engine.transaction():
        return engine.reward(RewardReport(decided.decision_id, value))


def test_a_large_catalogue_is_served_by_id():
    engine = engine_of(LINEAR, Catalogue(NAMES, features=ITEMS), "mmGreedy")
    mean = ITEMS @ np.array([0.5, 0.5, 0.0, 0.0])
    order = [NAMES[i] for i in mean.argsort()[::-1][:3]]
    first = decide(engine)
    assert first.action == order[0]
    assert decide(engine, exclude=order[:2]).action == order[2]
    assert decide(engine, exclude=[order[0], "gone from the shop"]).action == order[1]
    some = decide(engine, actions=[order[2], order[1]])
    assert (some.action, some.index) == (order[1], 1)
    assert reward(engine, first, 2.0).status == "applied"
    excluded = decide(engine, exclude=order[:1])
    with engine.transaction():
        again = engine.recompute(excluded.decision_id)
    assert (again.action, again.index) == (excluded.action, excluded.index)
    assert reward(engine, excluded, 1.0).status == "applied"


def test_sessions_rebuilt_from_the_log_know_what_was_excluded():
    """EXP4 learns from the actions that were eligible: the belief after a replay is the same."""
    model = GaussianArms([[0.9, 0.5, 0.1], [0.2, 0.4, 0.8]], 0.5, 0.1)
    store = MemoryStore()
    beliefs = []
    for fresh in (False, True):
        engine = Engine(store, EngineSettings(policy="EXP4(reward_range=(0, 1))"), lambda: 0)
        with engine.transaction():
            engine.activate(pack(model, "model"))
        if not fresh:
            for _ in range(3):
                reward(engine, decide(engine, exclude=["1"]), 0.7)
        with engine.transaction():
            beliefs.append(engine.latest("ann")[0].belief)
    for a, b in zip(beliefs[0], beliefs[1], strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"exclude": ["0", "1"]}, "names every action"),
        ({"exclude": ["0"], "actions": ["1"]}, "leave `actions` and `features` out"),
    ],
)
def test_exclusions_that_make_no_sense(fields, message):
    engine = engine_of(GaussianArms([[0.9, 0.1]], 0.5), None, "mTS")
    with pytest.raises(Invalid, match=message):
        decide(engine, **fields)
