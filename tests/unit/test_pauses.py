"""A state that moves across pauses: learned from times, served, restored and evaluated."""

import itertools
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from latentbandits import GaussianArms, Markov, load, mTS, save
from latentbandits.evaluation.follow import SessionBeliefs
from latentbandits.learning import fit
from latentbandits.learning.assess.heldout import score
from latentbandits.learning.logs.formats import LogError
from latentbandits.learning.transitions import Pauses, Rounds, expected_states
from latentbandits.policies.decision import Decision
from latentbandits.serving.stores.sqlite import SqliteStore
from tests.unit.engine_driver import Driver
from tests.unit.test_fit_dynamics import MEANS, moving_log

HOUR = 3_600.0
STAYS = np.array([[0.98, 0.02], [0.01, 0.99]])
RETURNS = np.array([[0.3, 0.7], [0.6, 0.4]])
ARMS = GaussianArms([[0.9, 0.1], [0.1, 0.8]], noise=0.3)
MODEL = Markov(ARMS, STAYS, 0, [0.5, 0.5], RETURNS, HOUR)


def test_expected_moves_are_those_of_all_paths():
    rng = np.random.default_rng(0)
    starts = np.array([0, 4, 5, 8])
    log_density = np.log(rng.random((8, 2)))
    after = np.array([0, 1, 0, 1, 0, 0, 0, 1], bool)
    prior = np.array([0.4, 0.6])
    rounds = Rounds.of_users(starts)
    pauses = Pauses(after[rounds.place], RETURNS)
    ours = expected_states(log_density[rounds.place], rounds, STAYS, prior, pauses)

    moves, returns, log_likelihood = np.zeros((2, 2)), np.zeros((2, 2)), 0.0
    for low, high in itertools.pairwise(starts):
        # A path names the states of all rows, and the state before each pause was crossed.
        steps = [step for row in range(low, high) for step in ([-1, row] if after[row] else [row])]
        weights = {}
        for path in itertools.product(range(2), repeat=len(steps)):
            weight = prior[path[0]]
            for i, step in enumerate(steps):
                weight *= 1.0 if step < 0 else np.exp(log_density[step, path[i]])
                if i > 0:
                    matrix = RETURNS if steps[i - 1] < 0 else STAYS
                    weight *= matrix[path[i - 1], path[i]]
            weights[path] = weight
        total = sum(weights.values())
        log_likelihood += np.log(total)
        for path, weight in weights.items():
            for i in range(1, len(steps)):
                counts = returns if steps[i - 1] < 0 else moves
                counts[path[i - 1], path[i]] += weight / total
    np.testing.assert_allclose(ours.log_likelihood, log_likelihood, rtol=1e-12)
    np.testing.assert_allclose(ours.moves, moves, rtol=1e-9)
    np.testing.assert_allclose(ours.returns, returns, rtol=1e-9)


def visits(n_users, n_visits, n_rounds, seed=0):
    """Return a table of users whose state moves across pauses alone, to the next of three."""
    rng = np.random.default_rng(seed)
    log = moving_log(n_users * n_visits, n_rounds, stay=1e12, seed=seed)
    n = n_users * n_visits * n_rounds
    visit = np.arange(n) // n_rounds
    user, turn = visit // n_visits, visit % n_visits
    state = (rng.integers(3, size=n_users)[user] + turn) % 3
    rewards = MEANS[state, log.actions] + 0.3 * rng.standard_normal(n)
    times = turn * 86_400 + np.arange(n) % n_rounds * 60
    table = {"user": user, "action": log.actions, "reward": rewards, "time": times}
    return pl.DataFrame(table).sample(fraction=1.0, shuffle=True, seed=seed)


@pytest.fixture(scope="module")
def learned():
    options = {"kind": "arms", "order": "time", "bootstrap": 0, "assess": False}
    return fit(visits(150, 4, 8), session_gap=HOUR, **options)


def test_moves_across_pauses_are_learned_apart(learned, tmp_path):
    model = learned.model
    assert model.session_gap == HOUR
    assert model.n_states == 3
    # 450 pauses, 150 from each state, and ten moves' worth of a prior that mostly stays
    assert (np.sort(model.returning, axis=1)[:, -1] > 0.85).all()
    assert (model.returning.diagonal() < 0.1).all()
    assert (model.transition.diagonal() > 0.98).all()
    assert learned.report["dynamics"]["returning"] == model.returning.tolist()
    save(model, tmp_path / "model")
    read = load(tmp_path / "model")
    np.testing.assert_array_equal(read.returning, model.returning)
    assert read.session_gap == HOUR


def test_held_out_rows_are_predicted_across_pauses(learned):
    table = visits(100, 4, 8, seed=1).sort("user", "time")
    rows = {name: table[name].to_numpy() for name in table.columns}
    log = replace(
        moving_log(100, 32, stay=5),
        users=rows["user"], actions=rows["action"], rewards=rows["reward"],
    )  # fmt: skip
    knowing = score(learned.model, replace(log, times=rows["time"].astype(float))).by_user()
    without = score(learned.model, log).by_user()
    gain = knowing - without
    assert gain.mean() > 5 * gain.std() / np.sqrt(len(gain))


def test_a_returning_user_moves_once(tmp_path):
    store = SqliteStore(tmp_path / "s.sqlite")
    service = Driver(MODEL, store, policy="mTS")
    decisions = []
    for _ in range(5):
        decisions.append(service.ask())
        service.tell(decisions[-1], float(ARMS.means[0, decisions[-1].index]))
    before = np.array(service.session("ann").state_probabilities)
    service.clock.now += int(1000 * HOUR)
    np.testing.assert_array_equal(service.ask().state_probabilities, before)  # no pause yet
    service.clock.now += 1
    first, second = service.ask(), service.ask()
    np.testing.assert_allclose(first.state_probabilities, before @ RETURNS, rtol=1e-12)
    assert second.state_probabilities == first.state_probabilities  # moved once, not twice
    decisions += [first, second]
    service.tell(first, float(ARMS.means[1, first.index]))
    service.clock.now += 60_000
    service.tell(second, float(ARMS.means[1, second.index]))
    after = service.ask().state_probabilities

    policy = mTS(MODEL)
    belief = SessionBeliefs(policy, 1)
    session = [0]
    for decision in service.session("ann").history[:8]:
        if decision.reward is not None:
            belief.learn(
                np.array(session), None, Decision.logged([decision.index]), [decision.reward],
                times=np.array([decision.time]),
            )  # fmt: skip
    np.testing.assert_allclose(policy.state_probabilities(belief.belief)[0], after, rtol=1e-9)
    for decision in decisions:
        assert service.recompute(decision.decision_id).action == decision.action
    again = Driver(MODEL, store, policy="mTS")
    again.clock.now = service.clock.now
    np.testing.assert_allclose(again.ask().state_probabilities, after, rtol=1e-12)
    again.clock.now += int(1000 * HOUR)
    moved = np.array(after) @ RETURNS
    np.testing.assert_allclose(again.ask().state_probabilities, moved, rtol=1e-9)
    store.close()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "name it with --time"),
        ({"order": "time", "dynamics": "none"}, "leave dynamics none out"),
        ({"order": "time", "session_gap": -1.0}, "above zero"),
        ({"order": "when"}, "needs a column of times"),
    ],
)
def test_a_gap_needs_times(options, message):
    table = visits(20, 2, 4).with_columns(when=pl.lit("later"))
    options = {"kind": "arms", "session_gap": HOUR, "bootstrap": 0, "assess": False} | options
    with pytest.raises((LogError, ValueError), match=message):
        fit(table, **options)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"session_gap": None}, "together"),
        ({"returning": [[0.5, 0.5]]}, "returning must be of shape"),
        ({"transition": np.eye(2)}, "without zeros"),
    ],
)
def test_impossible_pauses_are_refused(changes, message):
    given = {"transition": STAYS, "returning": RETURNS, "session_gap": HOUR} | changes
    with pytest.raises(ValueError, match=message):
        Markov(ARMS, n_paths=0, **given)
    uncertain = GaussianArms(ARMS.means, 0.3, spread=0.2)
    with pytest.raises(ValueError, match="n_paths=0"):
        Markov(uncertain, STAYS, 4, None, RETURNS, HOUR)
