"""Properties of the engine: ids in order whatever the clocks say, beliefs whatever the order."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from latentbandits import GaussianArms
from latentbandits.serving.engine.choosing import Stream
from latentbandits.serving.engine.engine import Engine
from latentbandits.serving.engine.model_rows import pack
from latentbandits.serving.engine.sessions import OrderSequence
from latentbandits.serving.engine.statistics import GroupTotals
from latentbandits.serving.engine.values import DecisionRequest, RewardReport
from latentbandits.serving.errors import Refused
from latentbandits.serving.records import decision_id, parse_decision_id
from latentbandits.serving.stores.protocol import Store
from latentbandits.serving.stores.sqlite import MemoryStore, SqliteStore
from tests.unit.engine_driver import forget_beliefs, session_view

ARMS = GaussianArms(np.random.default_rng(31).random((3, 4)), 0.5, 0.2)
VALUES = st.floats(-5, 5)


def make_engine(store: Store) -> Engine:
    engine = Engine(store, clock=lambda: 1_700_000_000_000)
    with engine.transaction():
        engine.start_with(pack(ARMS, "arms"))
    return engine


@given(st.lists(st.tuples(st.integers(0, 10**6), st.booleans()), max_size=50))
def test_orders_only_ever_grow(steps: list[tuple[int, bool]]) -> None:
    store = MemoryStore()
    sequences = [OrderSequence(store), OrderSequence(store)]  # as two processes would
    last, given_out = 0, set()
    for i, (step, forget) in enumerate(steps):
        sequence = sequences[i % 2]
        order = sequence.next(last if step % 2 else 0)
        assert order not in given_out
        assert not step % 2 or order > last
        given_out.add(order)
        last = order
        if forget:
            sequence.forget()


@given(st.integers(0, (1 << 63) - 1), st.integers(0, (1 << 63) - 1))
def test_ids_are_read_back_and_seed_the_same_draws(order: int, token: int) -> None:
    text = decision_id(order, token)
    assert parse_decision_id(text) == (order, token)
    one, other = Stream(), Stream()
    other.start(token, order).random(3)
    assert (one.start(order, token).random(4) == other.start(order, token).random(4)).all()


@settings(deadline=None, max_examples=30)
@given(
    st.lists(st.tuples(st.integers(0, 3), VALUES), min_size=1, max_size=8),
    st.randoms(use_true_random=False),
)
def test_belief_is_free_of_the_order_of_rewards(
    rounds: list[tuple[int, float]], random: object
) -> None:
    engine = make_engine(MemoryStore())
    with engine.transaction():
        pairs = []
        for twin in ("orderly", "messy"):
            told = []
            for action, value in rounds:
                decided = engine.decide(DecisionRequest(twin, actions=[str(action)]))
                told.append(RewardReport(decided.decision_id, value))
            pairs.append(told)
        orderly, messy = pairs
        messy = messy * 3
        random.shuffle(messy)  # type: ignore[attr-defined]
        for request in orderly + messy:
            engine.reward(request)
        views = [session_view(engine, twin) for twin in ("orderly", "messy")]
    np.testing.assert_allclose(
        views[0].belief["log_weights"], views[1].belief["log_weights"], rtol=0, atol=1e-9
    )
    assert views[0].rewards == views[1].rewards == len(rounds)


OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("decide"), st.integers(0, 3), st.integers(0, 3)),
        st.tuples(st.just("reward"), st.integers(0, 20), VALUES),
        st.tuples(st.just("merge"), st.integers(0, 3), st.integers(0, 3)),
        st.tuples(st.just("delete"), st.integers(0, 3)),
        st.tuples(st.just("forget the cache")),
    ),
    max_size=30,
)


@settings(deadline=None, max_examples=25)
@given(OPERATIONS)
def test_sqlite_and_a_cold_cache_behave_like_memory(
    tmp_path_factory: object, operations: list[tuple[object, ...]]
) -> None:
    path: Path = tmp_path_factory.mktemp("p") / "s.sqlite"  # type: ignore[attr-defined]
    store = SqliteStore(path, "NORMAL")
    try:
        memory, sqlite = (_run(make_engine(s), operations) for s in (MemoryStore(), store))
    finally:
        store.close()
    assert memory == sqlite


def _run(engine: Engine, operations: list[tuple[object, ...]]) -> list[object]:
    """What every operation answered, ids left out: they are drawn at random."""
    seen: list[object] = []
    decided: list[str] = []
    for operation, *given_ in operations:
        with engine.transaction():
            try:
                if operation == "decide":
                    request = DecisionRequest(f"s{given_[0]}", actions=[str(given_[1])])
                    answer = engine.decide(request)
                    decided.append(answer.decision_id)
                    seen.append((answer.action, answer.round, answer.state_probabilities))
                elif operation == "reward" and decided:
                    number = given_[0]
                    assert isinstance(number, int)
                    value = given_[1]
                    assert isinstance(value, float)
                    told = RewardReport(decided[number % len(decided)], value)
                    seen.append(engine.reward(told).status)
                elif operation == "merge":
                    engine.merge(f"s{given_[0]}", f"s{given_[1]}")
                    view = session_view(engine, f"s{given_[0]}")
                    seen.append((view.session, view.round, view.rewards, view.belief))
                elif operation == "delete":
                    seen.append(engine.delete(f"s{given_[0]}"))
                elif operation == "forget the cache":
                    forget_beliefs(engine)
            except Refused as refusal:
                seen.append(refusal.code)
    with engine.transaction():
        seen.append(sorted(engine.statistics.counts.items()))
    return seen


@given(st.lists(st.lists(VALUES, min_size=1, max_size=5), min_size=2, max_size=10))
def test_the_error_of_a_mean_counts_sessions(sessions: list[list[float]]) -> None:
    totals = GroupTotals()
    for rewards in sessions:
        total, count = 0.0, 0
        for value in rewards:  # one reward after the other, as they come
            before = total, count
            total, count = total + value, count + 1
            totals.change_session(before, (total, count))
    values = [value for rewards in sessions for value in rewards]
    mean = np.mean(values)
    residuals = [sum(rewards) - mean * len(rewards) for rewards in sessions]
    n = len(sessions)
    expected = np.sqrt(np.sum(np.square(residuals)) * n / (n - 1)) / len(values)
    actual = totals.session_mean()
    assert actual is not None
    np.testing.assert_allclose(actual[0], mean, atol=1e-9)
    if np.isinf(actual[1]):  # unknown, because sessions do not differ by more than rounding
        largest = max(abs(sum(rewards)) for rewards in sessions)
        assert expected <= 1e-6 * max(largest, 1.0)
    else:
        np.testing.assert_allclose(actual[1], expected, atol=1e-6)
        assert actual[1] > 0
