"""HierTS served: a session is a population, the request says which of its users asks."""

import numpy as np
import polars as pl
import pytest

from latentbandits import HierTS, LinearGaussian, Visit, save
from latentbandits.client import Client, ServiceError
from latentbandits.learning.backends.opening import Opening, read_interactions
from latentbandits.policies.decision import Decision
from latentbandits.serving.engine.engine import Engine, EngineSettings
from latentbandits.serving.engine.model_rows import pack
from latentbandits.serving.engine.values import DecisionRequest, RewardReport
from latentbandits.serving.errors import Invalid
from latentbandits.serving.export import export
from latentbandits.serving.stores.sqlite import MemoryStore
from tests.processes.service import RunningService, run_command
from tests.unit.engine_driver import forget_beliefs

D, K, NOISE = 3, 4, 0.5
MODEL = LinearGaussian(np.zeros((1, D)), NOISE, np.eye(D)[None])
POLICY = "HierTS(n_users=4)"


def engine_with(policy=POLICY, **settings):
    engine = Engine(MemoryStore(), EngineSettings(policy=policy, **settings))
    with engine.transaction():
        engine.activate(pack(MODEL, "weights"))
    return engine


def visits(n, users, seed=0):
    rng = np.random.default_rng(seed)
    for _ in range(n):
        yield users[rng.integers(len(users))], rng.normal(size=(K, D)), float(rng.normal())


def serve(engine, session, rounds):
    """Play the rounds; return the features of the chosen actions with user and reward."""
    told, ids = [], []
    for user, x, reward in rounds:
        with engine.transaction():
            answer = engine.decide(DecisionRequest(session, features=x.tolist(), user=user))
        with engine.transaction():
            engine.reward(RewardReport(answer.decision_id, reward))
        told.append((user, x[answer.index], reward))
        ids.append(answer.decision_id)
    return told, ids


def belief_of(told):
    """Return the belief of the library's own HierTS, users numbered as they first came."""
    policy = HierTS(4, D, NOISE)
    belief, rows = policy.init(), {}
    for user, x, reward in told:
        row = rows.setdefault(user, len(rows))
        visit = Visit(np.array([row]), x[None, None])
        belief = policy.update(belief, visit, Decision.logged([0]), [reward])
    return belief


@pytest.mark.parametrize("propensity", ["counted", "policy", "none"])
@pytest.mark.parametrize("policy", [POLICY, "HierUCB(n_users=4)"])
def test_a_population_can_explore(policy, propensity):
    engine = engine_with(policy, explore=0.2, propensity=propensity)
    _, ids = serve(engine, "shop", visits(40, ["ann", "bob", "carl"]))
    with engine.transaction():
        again = [engine.recompute(one) for one in ids]
        kept = [engine.batch.decision(one) for one in ids]
    assert [one.index for one in again] == [row.index for row in kept]
    chances = [row.propensity for row in kept]
    if propensity == "none":
        assert set(chances) == {None}
    else:  # at least e / K, and at most the rest
        assert 0.05 - 1e-12 <= min(chances) < max(chances) <= 0.85 + 1e-12


def test_all_users_of_a_session_share_one_belief():
    engine = engine_with(snapshot_rounds=5)
    told, ids = serve(engine, "shop", visits(23, ["ann", "ben", "cy"]))
    expected = belief_of(told)
    with engine.transaction():
        live = engine.latest("shop")[0]
        np.testing.assert_allclose(live.belief.precision, expected.precision)
        np.testing.assert_allclose(live.belief.information, expected.information)
        np.testing.assert_allclose(live.belief.users[0].gram, expected.users[0].gram)
        forget_beliefs(engine)  # from the snapshot and the log
        again = engine.latest("shop")[0]
        np.testing.assert_allclose(again.belief.precision, expected.precision)
        first = engine.recompute(ids[11])
        assert engine.batch.decision(ids[11]).action == first.action


@pytest.mark.parametrize("suffix", ["parquet", "csv", "jsonl"])
def test_an_export_names_the_users(suffix, tmp_path):
    """They are the users of the next fit; without a population it is the session."""
    engine = engine_with()
    told, _ = serve(engine, "shop", visits(9, ["ann", "ben", "cy"]))
    path = tmp_path / f"log.{suffix}"
    export(engine.store.log_reader(), str(path))
    users = [user for user, _, _ in told]
    read = read_interactions([str(path)], Opening())
    assert sorted(read.log.user_ids[i] for i in read.log.users) == sorted(users)
    alone = engine_with("mmTS")
    with alone.transaction():
        alone.decide(DecisionRequest("kim", features=np.ones((K, D)).tolist()))
    export(alone.store.log_reader(), str(tmp_path / "alone.parquet"))
    rows = pl.read_parquet(tmp_path / "alone.parquet")
    assert rows["user"].to_list() == rows["session"].to_list() == ["kim"]


@pytest.mark.parametrize(
    ("policy", "user", "words"),
    [
        (POLICY, None, "'shop' is a population"),
        ("mmTS", "ann", "does not learn across users"),
        ("HierTS(n_users=1)", "ben", "has 1 users.*n_users=1.*larger"),
    ],
)
def test_users_that_do_not_fit_are_refused(policy, user, words):
    engine = engine_with(policy)
    if "1" in policy:
        serve(engine, "shop", visits(1, ["ann"]))
    with pytest.raises(Invalid, match=words), engine.transaction():
        engine.decide(DecisionRequest("shop", features=np.ones((K, D)).tolist(), user=user))


def test_the_same_request_id_for_another_user_is_another_request():
    engine = engine_with()
    x = np.ones((K, D)).tolist()
    with engine.transaction():
        engine.decide(DecisionRequest("shop", None, x, "once", user="ann"))
    with pytest.raises(Exception, match="used for another request"), engine.transaction():
        engine.decide(DecisionRequest("shop", None, x, "once", user="ben"))


def test_populations_are_not_merged_and_are_forgotten_whole():
    engine = engine_with()
    for name in ("shop", "store"):
        serve(engine, name, visits(3, ["ann", "ben"]))
    with pytest.raises(Invalid, match="merging them would not merge users"), engine.transaction():
        engine.merge("shop", "store")
    assert engine.store.notes("visitors/")
    with engine.transaction():
        assert engine.delete("shop") == 1
        engine.delete("store")
    assert not engine.store.notes("visitors/")


def test_a_holdout_group_takes_the_same_requests():
    engine = engine_with(holdout_share=1.0)
    told, _ = serve(engine, "shop", visits(3, ["ann", "ben"]))
    assert len(told) == 3


def test_a_killed_service_goes_on_with_its_population(tmp_path):
    save(MODEL, tmp_path / "model")
    arguments = (tmp_path / "model", "--store", f"sqlite:{tmp_path}/store.db", "--policy", POLICY)
    told = []
    with RunningService(*arguments, folder=tmp_path) as service:
        for part in range(2):
            with Client(service.url) as client:
                for user, x, reward in visits(15, ["ann", "ben", "cy"], part):
                    answer = client.decide("shop", features=x.tolist(), user=user)
                    assert answer.policy == POLICY
                    client.reward(answer.decision_id, reward)
                    told.append((user, x[answer.index], reward))
                with pytest.raises(ServiceError, match="is a population"):
                    client.decide("shop", features=np.ones((K, D)).tolist())
            service.kill()
            service.start()
        with Client(service.url) as client:
            belief, log = client.session("shop").belief, list(client.entries())
    expected = belief_of(told)
    np.testing.assert_allclose(belief["precision"], expected.precision[0])
    np.testing.assert_allclose(belief["information"], expected.information[0])
    assert [entry.user for entry in log] == [user for user, _, _ in told]
    assert run_command("check", "--store", f"sqlite:{tmp_path}/store.db").returncode == 0


def test_serve_says_in_one_sentence_what_it_does_not_serve(tmp_path):
    save(MODEL, tmp_path / "model")
    ended = run_command("serve", tmp_path / "model", "--policy", "CLUB(n_users=5)", "--port", "1")
    assert ended.returncode != 0
    assert "CLUB(n_users=5) learns across users" in ended.stderr
    assert "Traceback" not in ended.stderr
