"""Decisions and rewards handled together give what they give alone."""

from __future__ import annotations

import numpy as np
import pytest

from latentbandits import BernoulliArms, GaussianArms, LinearGaussian
from latentbandits.models.numerics.arrays import leaves
from latentbandits.policies.registry import Inputs, build, entries
from latentbandits.serving.engine import batch
from latentbandits.serving.engine.batch import LearnedReward, PendingReward
from latentbandits.serving.engine.choosing import Chooser, PendingDecision, RowGenerator, Stream
from latentbandits.serving.engine.engine import Engine, EngineSettings
from latentbandits.serving.engine.model_rows import pack
from latentbandits.serving.engine.replay import learn
from latentbandits.serving.engine.values import Decided, DecisionRequest, Rewarded, RewardReport
from latentbandits.serving.errors import Conflict, Invalid
from latentbandits.serving.stores.sqlite import MemoryStore

N = 12
ARMS = GaussianArms(np.random.default_rng(0).random((3, 4)), 0.5, 0.2, [0.2, 0.3, 0.5])
_ROOTS = np.random.default_rng(1).normal(size=(3, 5, 5))
LINEAR = LinearGaussian(
    np.random.default_rng(2).normal(size=(3, 5)), 0.5, 0.2 * _ROOTS @ _ROOTS.swapaxes(1, 2)
)
CLICKS = BernoulliArms(*np.random.default_rng(5).uniform(1.0, 5.0, (2, 3, 4)))
MODELS = {"arms": ARMS, "linear": LINEAR, "clicks": CLICKS}


def make_engine(model: str, policy: str = "mmTS", propensity: str = "counted") -> Engine:
    engine = Engine(MemoryStore(), EngineSettings(policy=policy, propensity=propensity))  # type: ignore[arg-type]
    with engine.transaction():
        engine.activate(pack(MODELS[model], "model"))
    return engine


def request(model: str, session: int, round_: int = 0) -> DecisionRequest:
    if model != "linear":
        eligible = None if session % 3 else ["0", "2", "3"]
        return DecisionRequest(f"s{session}", eligible)
    rng = np.random.default_rng([session, round_])
    return DecisionRequest(f"s{session}", features=rng.normal(size=(6, 5)).tolist())


def possible(model: str, reward: float) -> float:
    """The nearest reward that the model can have."""
    return float(reward > 0.5) if model == "clicks" else reward


def teach(engine: Engine, model: str) -> None:
    """A few rounds, so that sessions believe different things."""
    rng = np.random.default_rng(3)
    for round_ in range(3):
        for session in range(N):
            with engine.transaction():
                decided = engine.decide(request(model, session, round_))
            with engine.transaction():
                reward = possible(model, float(rng.random()))
                engine.reward(RewardReport(decided.decision_id, reward))


def waiting(engine: Engine, model: str) -> list[PendingDecision]:
    requests = [engine.batch.ask(request(model, session, 9)) for session in range(N)]
    assert all(isinstance(one, PendingDecision) for one in requests)
    return requests  # type: ignore[return-value]


def served() -> dict[tuple[str, str], bool]:
    """The policies and models of a service, and whether sessions are decided in one call."""
    results = {}
    for entry in entries():
        for name, model in MODELS.items():
            try:
                policy = build(entry.name, Inputs(model))
            except (TypeError, ValueError):  # it is not for this model
                continue
            if entry.scope == "session":
                results[entry.name, name] = policy.row_wise
    return results


SERVED = served()


def test_thompson_sampling_decides_together() -> None:
    for served in [("mTS", "arms"), ("mTS", "clicks"), ("mmTS", "arms"), ("mmTS", "linear")]:
        assert SERVED[served]
    assert not SERVED["mmTS", "clicks"]  # gamma draws reject some proposals


@pytest.mark.parametrize("propensity", ["counted", "policy", "none"])
@pytest.mark.parametrize(("name", "model"), SERVED)
def test_every_policy_decides_together_as_alone(name: str, model: str, propensity: str) -> None:
    engine = make_engine(model, name, propensity)
    teach(engine, model)
    with engine.transaction():
        requested = waiting(engine, model)
        together = engine.batch.chooser.choose(requested)
        alone = [engine.batch.chooser.choose([one])[0] for one in requested]
        for (one,), (other,) in zip(together, alone, strict=True):
            assert (one.action, one.index, one.state) == (other.action, other.index, other.state)
            assert one.propensity_kind == other.propensity_kind
            if one.propensity is not None:
                assert one.propensity == pytest.approx(other.propensity, abs=1e-12, rel=0)


@pytest.mark.parametrize(
    "name", [name for (name, model), together in SERVED.items() if model == "arms" and together]
)
def test_ties_are_broken_together_as_alone(name: str) -> None:
    """Actions 0 and 2, and 1 and 3, are the same in every state: their scores tie to the bit."""
    means = np.random.default_rng(4).random((3, 2))
    engine = Engine(MemoryStore(), EngineSettings(policy=name))
    with engine.transaction():
        engine.activate(pack(GaussianArms(np.tile(means, 2), 0.5, 0.2), "model"))
    with engine.transaction():
        requests = [engine.batch.ask(DecisionRequest(f"s{i}")) for i in range(40)]
        waiting = [one for one in requests if isinstance(one, PendingDecision)]
        together = engine.batch.chooser.choose(waiting)
        assert [engine.batch.chooser.choose([one])[0] for one in waiting] == together


def test_thompson_sampling_is_asked_once_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = make_engine("linear")
    calls = []
    original = Chooser._choose_alike

    def counted(self: Chooser, some: list[PendingDecision]) -> object:
        calls.append(len(some))
        return original(self, some)

    monkeypatch.setattr(Chooser, "_choose_alike", counted)
    with engine.transaction():
        waiting(engine, "linear")
    assert calls == [N]


def test_a_decision_made_together_can_be_made_again() -> None:
    engine = make_engine("linear")
    teach(engine, "linear")
    with engine.transaction():
        requested = waiting(engine, "linear")
    with engine.transaction():
        for one in requested:
            assert one.answer is not None
            again = engine.recompute(one.answer.decision_id)
            assert again.action == one.answer.action
            assert again.propensity == pytest.approx(one.answer.propensity, abs=1e-12, rel=0)
            assert again.state_probabilities == pytest.approx(
                one.answer.state_probabilities, abs=1e-12
            )


def test_requests_of_one_session_are_settled_in_turn() -> None:
    engine = make_engine("arms")
    with engine.transaction():
        requests = [engine.batch.ask(DecisionRequest("ann", request_id=f"r{i}")) for i in range(4)]
        same = engine.batch.ask(DecisionRequest("ann", request_id="r2"))
        assert isinstance(same, Decided)
        with pytest.raises(Conflict):
            engine.batch.ask(DecisionRequest("bob", request_id="r1"))
    answers = [one.answer for one in requests if isinstance(one, PendingDecision)]
    assert [answer.round for answer in answers if answer is not None] == [1, 2, 3, 4]
    assert answers[2] == same
    with engine.transaction():
        assert engine.latest("ann")[0].row.rounds == 4


def test_what_comes_between_finds_decisions_settled() -> None:
    engine = make_engine("arms")
    with engine.transaction():
        first = engine.decide(DecisionRequest("ann"))
        engine.batch.ask(DecisionRequest("ann"))
        engine.reward(RewardReport(first.decision_id, 0.5))
        engine.batch.ask(DecisionRequest("bob"))
        engine.merge("ann", "bob")
        assert engine.latest("ann")[0].row.rounds == 3
        engine.batch.ask(DecisionRequest("ann"))
        assert engine.delete("ann") == 2


def test_a_rollback_drops_what_waits() -> None:
    engine = make_engine("arms")

    class StopError(Exception):
        pass

    def fail() -> None:
        with engine.transaction():
            engine.batch.ask(DecisionRequest("ann"))
            raise StopError

    with pytest.raises(StopError):
        fail()
    with engine.transaction():
        assert engine.decide(DecisionRequest("ann")).round == 1


def test_rows_have_the_numbers_of_their_own_generator() -> None:
    ids = [(i, 7 * i + 1) for i in range(5)]
    rows = RowGenerator([Stream().start(*pair) for pair in ids])
    drawn = [
        rows.standard_normal((5, 3)), rows.standard_exponential((10, 2)), rows.random((5, 1, 2)),
        rows.random_where(np.arange(5) % 2 == 0, (5, 2)), rows.standard_normal(5),
    ]  # fmt: skip
    for i, pair in enumerate(ids):
        alone = Stream().start(*pair)
        assert (drawn[0][i] == alone.standard_normal(3)).all()
        assert (drawn[1][2 * i : 2 * i + 2] == alone.standard_exponential((2, 2))).all()
        assert (drawn[2][i] == alone.random((1, 2))).all()
        assert (drawn[3][i] == (alone.random(2) if i % 2 == 0 else 0)).all()
        assert drawn[4][i] == alone.standard_normal()
    with pytest.raises(ValueError, match="no equal parts"):
        rows.random((7, 2))
    with pytest.raises(AttributeError):
        RowGenerator([]).standard_gamma  # type: ignore[attr-defined] # noqa: B018


def rewarded_together(model: str, policy: str = "mmTS") -> tuple[Engine, list[PendingReward]]:
    """A reward for every session, some of them beside decisions of other sessions."""
    engine = make_engine(model, policy)
    teach(engine, model)
    with engine.transaction():
        decided = [engine.decide(request(model, session, 9)) for session in range(N)]
    with engine.transaction():
        told = [
            engine.batch.tell(RewardReport(one.decision_id, possible(model, 0.1 * i)))
            for i, one in enumerate(decided)
        ]
        assert all(isinstance(one, PendingReward) and one.answer is None for one in told)
    return engine, told  # type: ignore[return-value]


@pytest.mark.parametrize("policy", ["mmTS", "mmGreedy", "mmUCB"])
@pytest.mark.parametrize("model", MODELS)
def test_rewards_learned_together_are_those_learned_alone(model: str, policy: str) -> None:
    engine, told = rewarded_together(model, policy)
    with engine.transaction():
        for i, one in enumerate(told):
            live = engine.sessions.get(one.reported.row.session)
            assert live is not None
            assert one.result().status == "applied"
            reward = possible(model, 0.1 * i)
            alone = learn(live.group, live.served, one.live.belief, one.reported.row, reward)
            for got, expected in zip(leaves(live.belief), leaves(alone), strict=True):
                np.testing.assert_allclose(got, expected, rtol=0, atol=1e-12)
            assert all(leaf.base is None for leaf in leaves(live.belief))  # no part of the others


def test_rewards_of_many_sessions_are_one_update(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    original = batch._learn_alike

    def counted(some: list[PendingReward]) -> list[LearnedReward]:
        calls.append(len(some))
        return original(some)

    engine = make_engine("linear")
    with engine.transaction():
        decided = [engine.decide(request("linear", session)) for session in range(N)]
    monkeypatch.setattr(batch, "_learn_alike", counted)
    with engine.transaction():
        for session, one in enumerate(decided):
            engine.batch.tell(RewardReport(one.decision_id, 0.5))
            engine.batch.ask(request("linear", N + session))  # of another session
    assert calls == [N]


def test_two_rewards_of_one_session_are_learned_one_after_the_other() -> None:
    engine = make_engine("arms")
    with engine.transaction():
        decided = [engine.decide(request("arms", 1)) for _ in range(3)]
    with engine.transaction():
        told = [engine.batch.tell(RewardReport(one.decision_id, 1.0)) for one in decided]
        repeated = engine.batch.tell(RewardReport(decided[2].decision_id, 1.0))
    assert [one.result().status for one in told if isinstance(one, PendingReward)] == [
        "applied"
    ] * 3
    assert repeated == Rewarded(decided[2].decision_id, "duplicate")
    with engine.transaction():
        assert engine.latest("s1")[0].row.rewards == 3


def test_one_event_id_cannot_name_two_rewards_that_wait_together() -> None:
    engine = make_engine("arms")
    with engine.transaction():
        decided = [engine.decide(request("arms", session)) for session in range(2)]
    with engine.transaction():
        engine.batch.tell(RewardReport(decided[0].decision_id, 1.0, "e"))
        with pytest.raises(Conflict, match="event_id 'e' is the reward of another decision"):
            engine.batch.tell(RewardReport(decided[1].decision_id, 1.0, "e"))


def test_a_reward_that_is_refused_leaves_the_others() -> None:
    engine = Engine(MemoryStore(), EngineSettings(policy="mmTS"))
    with engine.transaction():
        engine.activate(
            pack(BernoulliArms([[3.0, 1.0], [1.0, 3.0]], [[1.0, 3.0], [3.0, 1.0]]), "m")
        )
    with engine.transaction():
        decided = [engine.decide(DecisionRequest(f"s{session}")) for session in range(3)]
    with engine.transaction():
        told = [
            engine.batch.tell(RewardReport(one.decision_id, value))
            for one, value in zip(decided, (1.0, 0.5, 0.0), strict=True)
        ]
    answers = [one.answer for one in told if isinstance(one, PendingReward)]
    assert isinstance(answers[1], Invalid)
    assert "0.5" in answers[1].message
    with engine.transaction():
        assert [engine.latest(f"s{i}")[0].row.rewards for i in range(3)] == [1, 0, 1]


def test_a_transaction_that_fails_learns_no_reward_that_waited() -> None:
    engine = make_engine("arms")
    with engine.transaction():
        decided = engine.decide(request("arms", 1))
    engine.batch.begin()
    engine.batch.tell(RewardReport(decided.decision_id, 1.0))
    engine.batch.rollback()
    with engine.transaction():
        assert engine.latest("s1")[0].row.rewards == 0
        assert engine.reward(RewardReport(decided.decision_id, 1.0)).status == "applied"
