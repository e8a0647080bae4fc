"""The engine: what it answers, what it refuses, and that its beliefs are replays of its log."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from latentbandits import Decision, GaussianArms, LinearGaussian, mmTS
from latentbandits.models.bernoulli_arms import BernoulliArms
from latentbandits.models.catalogue import Catalogue
from latentbandits.models.ensemble import Ensemble
from latentbandits.models.logistic_linear import LogisticLinear
from latentbandits.models.markov import Markov
from latentbandits.models.poisson_arms import PoissonArms
from latentbandits.serving.choosers import POLICIES, arm_of
from latentbandits.serving.engine import Engine, EngineSettings
from latentbandits.serving.errors import Conflict, Invalid, NotFound, StoreUnavailable
from latentbandits.serving.library import ActionNames, model_row, pack
from latentbandits.serving.messages import Decided, DecideRequest, RewardRequest
from latentbandits.serving.overview import overview
from latentbandits.serving.recompute import recompute
from latentbandits.serving.stores.memory import MemoryStore
from latentbandits.serving.stores.sqlite import SqliteStore
from latentbandits.serving.views import describe, log_entry

RNG = np.random.default_rng(5)
ARMS = GaussianArms(RNG.random((3, 4)), 0.5, 0.2, [0.2, 0.3, 0.5])
OTHER_ARMS = GaussianArms(RNG.random((3, 4)), 0.4, 0.1)
ROOTS = RNG.normal(size=(3, 2, 2))
LINEAR = LinearGaussian(RNG.normal(size=(3, 2)), 0.5, 0.1 * ROOTS @ ROOTS.swapaxes(1, 2))


class Clock:
    def __init__(self) -> None:
        self.now = 1_700_000_000_000

    def __call__(self) -> int:
        return self.now


class Driver:
    """One call, one transaction."""

    def __init__(self, model: Any, store: Any = None, **settings: Any) -> None:
        self.clock = Clock()
        self.store = MemoryStore() if store is None else store
        self.engine = Engine(self.store, EngineSettings(**settings), self.clock)
        with self.engine.transaction():
            self.engine.ensure_active(pack(model, "model"))

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            with self.engine.transaction():
                return getattr(self.engine, name)(*arguments, **options)

        return call

    def recompute(self, decision_id: str) -> Decided:
        with self.engine.transaction():
            return recompute(self.engine, decision_id)

    def ask(self, session: str = "ann", **fields: Any) -> Decided:
        answer: Decided = self.decide(DecideRequest(session, **fields))
        return answer

    def tell(self, decided: Decided, value: float, event_id: str | None = None) -> str:
        status: str = self.reward(RewardRequest(decided.decision_id, value, event_id)).status
        return status

    def play(self, session: str, rounds: int, rng: np.random.Generator, **fields: Any) -> None:
        for _ in range(rounds):
            self.tell(self.ask(session, **fields), float(rng.normal(0.5, 0.5)))


@pytest.fixture(params=["memory", "sqlite"])
def arms(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Driver]:
    store = MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "s.sqlite")
    yield Driver(ARMS, store)
    store.close()


def test_a_decision_says_what_it_is(arms: Driver) -> None:
    first = arms.ask()
    assert first.action in ("0", "1", "2", "3")
    assert first.index == int(first.action)
    assert (first.round, first.policy, first.fallback) == (1, "mmTS", False)
    assert first.propensity is not None
    assert 0 < first.propensity <= 1
    np.testing.assert_allclose(first.state_probabilities, ARMS.state_prior)
    assert arms.ask().round == 2
    assert arms.ask("bob").round == 1


def test_only_the_actions_named_are_eligible(arms: Driver) -> None:
    for _ in range(30):
        decided = arms.ask(actions=["3", "1"])
        assert decided.action == ["3", "1"][decided.index]
    with pytest.raises(Invalid, match="no action '9'"):
        arms.ask(actions=["3", "9"])
    with pytest.raises(Invalid, match="names '1' twice"):
        arms.ask(actions=["1", "1"])
    with pytest.raises(Invalid, match="have no features"):
        arms.ask(features=[[1.0]])


def test_a_refused_request_leaves_no_session(arms: Driver) -> None:
    with pytest.raises(Invalid):
        arms.ask("new", actions=["9"])
    with pytest.raises(NotFound, match="no session 'new'"):
        arms.session("new")


def test_a_default_is_played_where_an_action_is_unknown(arms: Driver) -> None:
    decided = arms.ask(actions=["9", "1"], default="9")
    assert (decided.action, decided.index, decided.fallback) == ("9", 0, True)
    assert (decided.policy, decided.propensity) == ("default", 1.0)
    assert arms.tell(decided, 5.0) == "applied"
    np.testing.assert_allclose(arms.session("ann").state_probabilities, ARMS.state_prior)
    assert not arms.ask(actions=["0", "1"], default="1").fallback
    with pytest.raises(Invalid, match="must be one of `actions`"):
        arms.ask(actions=["0"], default="1")


def test_a_request_id_stands_for_one_decision(arms: Driver) -> None:
    first = arms.ask(request_id="r")
    assert arms.ask(request_id="r") == first
    assert arms.session("ann").round == 1
    with pytest.raises(Conflict, match="'r' was used for another request"):
        arms.ask("bob", request_id="r")


def test_a_reward_is_told_once(arms: Driver) -> None:
    decided = arms.ask()
    assert arms.tell(decided, 0.5, "e") == "applied"
    assert arms.tell(decided, 0.5, "e") == "duplicate"
    assert arms.tell(decided, 0.5) == "duplicate"
    with pytest.raises(Conflict, match=r"rewarded with 0\.5, not 0\.6"):
        arms.tell(decided, 0.6)
    with pytest.raises(Conflict, match="'e' is the reward of another decision"):
        arms.tell(arms.ask(), 0.5, "e")
    view = arms.session("ann")
    assert (view.rewards, view.mean_reward) == (1, 0.5)


@pytest.mark.parametrize("bad", ["", "x", "0" * 32, "g" * 32, "f" * 32, "0" * 31 + "²"])
def test_an_unknown_decision_is_not_found(arms: Driver, bad: str) -> None:
    arms.ask()
    with pytest.raises(NotFound, match="no decision"):
        arms.reward(RewardRequest(bad, 1.0))


def test_a_guessed_token_is_not_found(arms: Driver) -> None:
    text = arms.ask().decision_id
    forged = text[:-1] + ("0" if text[-1] != "0" else "1")
    with pytest.raises(NotFound):
        arms.reward(RewardRequest(forged, 1.0))


@pytest.mark.parametrize("policy", POLICIES)
def test_belief_is_the_policy_s_own_on_the_log(policy: str) -> None:
    """Played through the engine, a session believes what the bare policy makes of its history."""
    linear = policy.startswith("Lin")
    driver = Driver(LINEAR if linear else ARMS, policy=policy)
    rng = np.random.default_rng(1)
    for _ in range(12):
        features = rng.normal(size=(3, 2)).tolist() if linear else None
        driver.tell(driver.ask(features=features), float(rng.normal()))
    live = driver.engine.sessions.find("ann")
    assert live is not None
    driver.engine.sessions.clear()
    again = driver.engine.sessions.find("ann")
    assert again is not None
    assert describe(again.belief) == describe(live.belief)


def test_mmts_believes_what_the_bare_policy_believes() -> None:
    driver = Driver(ARMS)
    policy = mmTS(ARMS)
    belief = policy.init(1)
    rng = np.random.default_rng(2)
    for _ in range(20):
        decided = driver.ask()
        value = float(rng.normal())
        driver.tell(decided, value)
        belief = policy.update(belief, None, Decision.logged([decided.index]), [value])
    np.testing.assert_allclose(
        driver.session("ann").state_probabilities, policy.state_probabilities(belief)[0], atol=1e-12
    )


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("propensity", ["counted", "policy", "none"])
def test_a_logged_decision_can_be_made_again(policy: str, propensity: str) -> None:
    linear = policy.startswith("Lin")
    driver = Driver(
        LINEAR if linear else ARMS, policy=policy, propensity=propensity, propensity_draws=20
    )
    rng = np.random.default_rng(3)
    decisions = []
    for i in range(8):
        features = rng.normal(size=(3, 2)).tolist() if linear else None
        actions = ["0", "1", "2"] if i % 2 else None
        decided = driver.ask(features=features, actions=actions)
        decisions.append(decided)
        if i % 3:
            driver.tell(decided, float(rng.normal()))
    for decided in decisions:
        assert driver.recompute(decided.decision_id) == decided


def test_merged_sessions_are_one_user(arms: Driver) -> None:
    rng = np.random.default_rng(4)
    arms.play("phone", 5, rng)
    pending = arms.ask("phone")
    arms.play("laptop", 4, rng)
    together = arms.merge("laptop", "phone")
    assert (together.session, together.round, together.rewards) == ("laptop", 10, 9)
    policy = mmTS(ARMS)
    belief = policy.init(1)
    for event in together.history:
        if event.reward is not None:
            belief = policy.update(belief, None, Decision.logged([event.index]), [event.reward])
    np.testing.assert_allclose(
        together.state_probabilities, policy.state_probabilities(belief)[0], atol=1e-9
    )
    assert arms.ask("phone").round == 11
    assert arms.tell(pending, 0.7) == "applied"
    assert arms.session("phone").session == "laptop"
    assert arms.merge("phone", "laptop").round == 11  # already one
    for event in arms.session("laptop").history:
        assert arms.recompute(event.decision_id).action == event.action
    assert arms.delete("phone").sessions == 2
    with pytest.raises(NotFound):
        arms.session("laptop")


def test_deleting_forgets_everything(arms: Driver) -> None:
    decided = arms.ask(request_id="r")
    arms.tell(decided, 1.0, "e")
    arms.delete("ann")
    for forgotten in (lambda: arms.session("ann"), lambda: arms.delete("ann"),
                      lambda: arms.tell(decided, 1.0)):  # fmt: skip
        with pytest.raises(NotFound):
            forgotten()
    assert arms.ask(request_id="r").round == 1
    assert arms.store.log_reader().read(-1, 10)[0].row.round == 1


def test_sessions_end_and_are_forgotten_in_time() -> None:
    driver = Driver(ARMS, session_ttl=100.0, retention=1000.0)
    first = driver.ask()
    driver.tell(first, 2.0)
    waiting = driver.ask()
    driver.clock.now += 101_000
    assert driver.tell(waiting, 1.0) == "late"
    assert driver.tell(waiting, 1.0) == "duplicate"
    with pytest.raises(NotFound):
        driver.session("ann")
    assert driver.ask().round == 1
    driver.ask("bob")
    driver.clock.now += 200_000
    assert driver.sweep() == 2
    assert driver.sweep() == 0
    assert len(driver.store.log_reader().read(-1, 10)) == 4
    driver.clock.now += 1_000_000
    assert driver.sweep() == 3
    assert driver.store.log_reader().read(-1, 10) == []


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
        (pack(LINEAR, "linear"), "is a LinearGaussian, the active model a GaussianArms"),
        (pack(GaussianArms(RNG.random((2, 3)), 0.3), "small"), "lacks 1 actions"),
        (pack(GaussianArms(RNG.random((5, 2, 4)), 0.3), "many"), "one instance for each of 5"),
    ):
        with pytest.raises(Invalid, match=why):
            arms.activate(row)
        assert arms.ask().model == good.id
    assert arms.activate(pack(GaussianArms(RNG.random((2, 3)), 0.3), "small"), force=True)


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
    logged = [log_entry(row, names) for row in driver.store.log_reader().read(-1, 100)]
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
        with pytest.raises(Invalid, match=r"value -0\.37: .* takes rewards"):
            driver.tell(decided, -0.37)
    before = driver.session("ann")
    driver.engine.sessions.clear()
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


def test_holdout_is_a_stable_share_of_sessions() -> None:
    shares = [arm_of(f"user {i}", b"salt", 0.3) == "holdout" for i in range(20_000)]
    assert abs(np.mean(shares) - 0.3) < 5 * np.sqrt(0.3 * 0.7 / 20_000)
    assert [arm_of("u", b"salt", 0.3) for _ in range(3)] == [arm_of("u", b"salt", 0.3)] * 3
    assert shares != [arm_of(f"user {i}", b"pepper", 0.3) == "holdout" for i in range(20_000)]
    driver = Driver(ARMS, holdout_share=1.0, holdout_policy="UCB1")
    assert driver.ask().policy == "UCB1"


def test_absurd_rewards_are_refused_or_borne() -> None:
    sharp = GaussianArms([[0.0, 1.0], [1.0, 0.0]], 1e-160)
    driver = Driver(sharp)
    decided = driver.ask()
    with pytest.raises(Invalid, match="no state could be believed"):
        driver.tell(decided, 1e9)
    assert driver.tell(decided, 0.0) == "applied"
    borne = Driver(ARMS)
    assert borne.tell(borne.ask(), -1e9) == "applied"
    assert borne.tell(borne.ask(), 1e9) == "applied"
    assert np.isfinite(borne.ask().state_probabilities).all()


def test_a_failed_commit_leaves_nothing_behind(tmp_path: Path) -> None:
    class Failing(SqliteStore):
        fail = False

        def commit(self) -> None:
            if self.fail:
                self.rollback()
                raise StoreUnavailable("the disk is full")
            super().commit()

    store = Failing(tmp_path / "s.sqlite")
    driver = Driver(ARMS, store)
    decided = driver.ask()
    driver.tell(decided, 0.4)
    before, totals = driver.session("ann"), driver.engine.statistics
    kept = msgspec.json.encode(totals)
    pending = driver.ask("eve")
    store.fail = True
    for attempt in (lambda: driver.ask(), lambda: driver.tell(pending, 1.0),
                    lambda: driver.activate(pack(OTHER_ARMS, "o"), "migrated"),
                    lambda: driver.merge("ann", "eve"), lambda: driver.delete("ann")):  # fmt: skip
        with pytest.raises(StoreUnavailable):
            attempt()
    store.fail = False
    after = driver.session("ann")
    assert msgspec.structs.replace(after, seen=0) == msgspec.structs.replace(before, seen=0)
    assert driver.session("eve").rewards == 0
    assert driver.tell(pending, 1.0) == "applied"
    assert msgspec.json.decode(kept)["counts"]["applied"] == 1
    assert driver.engine.statistics.counts["applied"] == 2
    store.close()


def test_everything_is_there_after_a_restart(tmp_path: Path) -> None:
    rng = np.random.default_rng(9)
    store = SqliteStore(tmp_path / "s.sqlite")
    driver = Driver(ARMS, store, holdout_share=0.5)
    for name in ("a", "b", "c", "d"):
        driver.play(name, 7, rng)
    driver.merge("a", "b")
    views = [driver.session(name) for name in ("a", "c", "d")]
    with driver.engine.transaction():
        totals = overview(driver.engine)
    store.close()
    store = SqliteStore(tmp_path / "s.sqlite")
    again = Driver(ARMS, store, holdout_share=0.5)
    assert [again.session(name) for name in ("a", "c", "d")] == views
    with again.engine.transaction():
        after = overview(again.engine)
    assert (after.counts, after.arms, after.states) == (totals.counts, totals.arms, totals.states)
    assert after.models == totals.models
    store.close()


def test_a_small_cache_changes_nothing() -> None:
    wide, narrow = Driver(ARMS), Driver(ARMS, cached_sessions=1)
    for driver in (wide, narrow):
        rng = np.random.default_rng(10)
        for _ in range(6):
            for name in ("a", "b", "c"):
                decided = driver.ask(name, actions=["1"])
                driver.tell(decided, float(rng.normal()))
    for name in ("a", "b", "c"):
        assert narrow.session(name).belief == wide.session(name).belief


def test_the_overview_adds_up() -> None:
    driver = Driver(ARMS, holdout_share=0.5)
    rng = np.random.default_rng(11)
    for i in range(40):
        driver.play(f"user {i}", 5, rng)
    with driver.engine.transaction():
        seen = overview(driver.engine)
    assert seen.counts["open"] == seen.counts["started"] == 40
    assert seen.counts["decisions"] == seen.counts["applied"] == 200
    assert {arm.arm for arm in seen.arms} == {"policy", "holdout"}
    assert sum(arm.sessions for arm in seen.arms) == 40
    assert sum(state.share for state in seen.states) == pytest.approx(1.0)
    assert seen.difference is not None
    logged = [row.row for row in driver.store.log_reader().read(-1, 1000)]
    for arm in seen.arms:
        sums: dict[int, list[float]] = {}
        for row in logged:
            if row.arm == arm.arm and row.reward is not None:
                sums.setdefault(row.session, []).append(row.reward)
        rewards = [value for values in sums.values() for value in values]
        assert arm.reward is not None
        assert arm.reward.mean == pytest.approx(np.mean(rewards))
        residuals = [sum(v) - np.mean(rewards) * len(v) for v in sums.values()]
        n = len(sums)
        error = np.sqrt(np.sum(np.square(residuals)) * n / (n - 1)) / len(rewards)
        assert arm.reward.high is not None
        assert arm.reward.high - arm.reward.mean == pytest.approx(1.959964 * error)
        assert arm.rounds[0].rewards == n
