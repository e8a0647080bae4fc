"""Fitting a state that moves: the E step against all paths, recovery, and when it is not kept."""

import itertools
import json
from dataclasses import replace

import numpy as np
import pytest

from latentbandits import BernoulliArms, GaussianArms, Markov, PoissonArms, load
from latentbandits.environments import UsersOfModel
from latentbandits.learning import FitOptions, fit
from latentbandits.learning.arms.mixture import Problem, start_at
from latentbandits.learning.arms.moving import (
    Chain,
    MovingPass,
    PrepareRows,
    Segments,
    _broadcast,
    ascend_moving,
    finish_moving,
)
from latentbandits.learning.assess.heldout import score
from latentbandits.learning.logs.rows import Log, make_family
from latentbandits.learning.logs.tables import LogError
from latentbandits.learning.save import save_fit
from latentbandits.models.composed.markov import switching_matrix

MEANS = np.array([[0.9, 0.1, 0.5, 0.3], [0.1, 0.8, 0.4, 0.6], [0.5, 0.4, 0.9, 0.1]])


def moving_log(n_users, n_rounds, stay, noise=0.3, seed=0, means=MEANS):
    """Return a log of uniformly random actions of users whose state lasts `stay` rounds."""
    rng = np.random.default_rng(seed)
    n_states, n_actions = means.shape
    rows = switching_matrix(n_states, 1 / stay).cumsum(axis=1)[:, :-1]
    state, rewards = rng.integers(n_states, size=n_users), []
    actions = rng.integers(n_actions, size=(n_rounds, n_users))
    for action in actions:
        rewards.append(means[state, action] + noise * rng.standard_normal(n_users))
        state = (rng.random((n_users, 1)) >= rows[state]).sum(axis=1)
    return Log(
        np.repeat(np.arange(n_users), n_rounds),
        actions.T.ravel(),
        np.transpose(rewards).ravel(),
        tuple(f"user {u}" for u in range(n_users)),
        tuple(f"action {a}" for a in range(n_actions)),
    )


def problem_of(log, rewards="gaussian"):
    return Problem.from_log(make_family(rewards, np.asarray(log.rewards)), log)


@pytest.mark.parametrize("rewards", ["gaussian", "bernoulli", "poisson"])
def test_the_sums_of_a_pass_are_those_of_all_paths(rewards):
    rng = np.random.default_rng(1)
    log = moving_log(4, 5, stay=3).of_events(rng.random(20) < 0.8)  # users have unequal lengths
    if rewards != "gaussian":
        log = replace(log, rewards=(np.asarray(log.rewards) > 0.5).astype(float))
    problem = problem_of(log, rewards)
    start = start_at(problem, np.clip(MEANS, 0.1, 0.9), np.array([0.5, 0.3, 0.2]))
    current = _broadcast(problem.family, Chain.starting_at(start, 0.3))
    ours = problem.engine.fold(MovingPass(PrepareRows(problem.family)), current)

    family = problem.family
    statistics = family.summed(np.asarray(log.rewards))
    sums = np.zeros(ours.arms.statistics[0].shape)
    moves, first, log_normaliser = np.zeros((3, 3)), np.zeros(3), 0.0
    for low, high in itertools.pairwise(log.starts):
        t, a = statistics[low:high], log.actions[low:high]
        density = np.exp(np.einsum("tk,stk->ts", t, current.coefficients[:, a]))
        weights = {}
        for path in itertools.product(range(3), repeat=high - low):
            weight = current.prior[path[0]] if path else 1.0
            weight *= np.prod([density[i, s] for i, s in enumerate(path)])
            weights[path] = weight * np.prod(
                [current.transition[pair] for pair in itertools.pairwise(path)]
            )
        total = sum(weights.values())
        log_normaliser += np.log(total)
        for path, weight in weights.items():
            first[path[0]] += weight / total
            for i, s in enumerate(path):
                sums[s, a[i]] += weight / total * t[i]
            for pair in itertools.pairwise(path):
                moves[pair] += weight / total
    np.testing.assert_allclose(ours.arms.statistics[0], sums, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(ours.arms.shares[0], first, rtol=1e-9)
    np.testing.assert_allclose(ours.moves, moves, rtol=1e-9)
    np.testing.assert_allclose(ours.arms.log_normaliser[0], log_normaliser, rtol=1e-9)


def test_the_elbo_never_falls_and_the_moves_are_found():
    log = moving_log(300, 40, stay=20)
    problem = problem_of(log)
    start = start_at(problem, MEANS + 0.1, np.full(3, 1 / 3))
    moved = ascend_moving(problem, Chain.starting_at(start))
    assert (np.diff(moved.elbos) > -1e-6).all()
    # 12,000 rows and about 195 moves of each state: an entry of 0.025 has an error of 0.0025.
    assert np.abs(moved.chain.transition - switching_matrix(3, 0.05)).max() < 0.012
    fitted = finish_moving(problem, moved)
    error = np.abs(fitted.means - MEANS) / np.sqrt(fitted.estimation)
    assert error.max() < 4  # 12 estimates, with errors that hold
    # With the true paths known, a mean of 1,000 rewards would have an error of 0.3 / sqrt(1000).
    assert np.allclose(np.sqrt(fitted.estimation), 0.0095, rtol=0.4)


def test_segments_are_users_of_their_own():
    log = moving_log(3, 7, stay=5)
    cut = Segments(3)(log)
    np.testing.assert_array_equal(np.diff(cut.starts), [3, 3, 1] * 3)
    assert len(set(cut.keys.tolist())) == 9
    np.testing.assert_array_equal(cut.rewards, log.rewards)


@pytest.fixture(scope="module")
def moving_fit():
    return fit(moving_log(300, 30, stay=15), kind="arms", bootstrap=0, assess=False)


def test_a_state_that_moves_is_kept_and_saved(moving_fit, tmp_path):
    model, dynamics = moving_fit.model, moving_fit.report["dynamics"]
    assert isinstance(model, Markov)
    assert model.n_states == 3
    assert dynamics["chosen"] == "markov"
    assert dynamics["nats_per_user"] > 2 * dynamics["stderr"]
    lasts = [state["lasts"] for state in moving_fit.report["states"]]
    assert np.allclose(lasts, 15, rtol=0.25)
    save_fit(moving_fit, tmp_path / "model")
    results = json.loads((tmp_path / "model/results.json").read_text())
    assert results["dynamics"] == "markov"
    assert results["mean_stay"] == lasts
    np.testing.assert_array_equal(load(tmp_path / "model").transition, model.transition)


@pytest.mark.parametrize("kind", [BernoulliArms, PoissonArms])
def test_held_out_rewards_of_moving_arms_are_calibrated(kind):
    truth = Markov(kind.from_means([[0.2, 0.7], [0.9, 0.3]], 0.01), switching_matrix(2, 0.1), 0)
    users = UsersOfModel(truth).start(400, 20, np.random.default_rng(0))
    rng = np.random.default_rng(1)
    actions = rng.integers(2, size=(20, 400))
    rewards = [users.round(t, rng).rewards[np.arange(400), a] for t, a in enumerate(actions)]
    log = Log(np.repeat(np.arange(400), 20), actions.T.ravel(), np.transpose(rewards).ravel(),
              tuple(map(str, range(400))), ("a", "b"))  # fmt: skip
    uniform = np.sort(score(truth, log).uniform)
    # The largest deviation from a uniform distribution of 8,000 values: 1.63 / sqrt(n) at 1%.
    assert np.abs(uniform - (np.arange(8_000) + 0.5) / 8_000).max() < 1.63 / np.sqrt(8_000)


def test_a_state_that_stands_still_is_left_alone():
    log = moving_log(200, 30, stay=1e12)
    still = fit(log, kind="arms", bootstrap=0, assess=False)
    assert still.report["dynamics"]["chosen"] == "none"
    assert isinstance(still.model, GaussianArms)
    forced = fit(log, kind="arms", bootstrap=0, assess=False, dynamics="markov", states=3)
    assert min(state["lasts"] for state in forced.report["states"]) > 100


def test_rows_sorted_by_reward_are_in_no_order_of_time():
    log = moving_log(60, 30, stay=5)
    frame = {
        "user": [log.user_ids[u] for u in log.users],
        "action": [log.action_ids[a] for a in log.actions],
        "reward": log.rewards,
    }
    order = np.argsort(log.rewards)
    sorted_frame = {name: np.asarray(column)[order] for name, column in frame.items()}
    report = fit(sorted_frame, kind="arms", bootstrap=0, assess=False).report
    assert "sorted by rewards" in report["dynamics"]["reason"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "linear"}, "--kind arms"),
        ({"transform": "log1p", "kind": "arms"}, "without a transform"),
        ({"dynamics": "sometimes"}, "dynamics must be one of"),
        ({"user_features": ["age"], "kind": "arms"}, "attributes"),
    ],
)
def test_what_cannot_move_is_refused(options, message):
    options = FitOptions(**{"dynamics": "markov", "bootstrap": 0, "assess": False} | options)
    rng = np.random.default_rng(0)
    user = np.repeat(np.arange(40), 6)
    reward = rng.random(240)
    table = {"user": user, "age": user % 7, "action": np.arange(240) % 3, "reward": reward}
    with pytest.raises(LogError, match=message):
        fit(table, options)


def test_a_markov_model_of_known_means_learns_its_state_alone():
    uncertain = GaussianArms([[1.0, 0.0], [0.0, 1.0]], noise=0.5, spread=0.3)
    known = Markov(uncertain, switching_matrix(2, 0.1), n_paths=0)
    certain = Markov(GaussianArms([[1.0, 0.0], [0.0, 1.0]], noise=0.5), switching_matrix(2, 0.1))
    action, reward = np.array([0]), np.array([0.8])
    assert known.is_certain
    np.testing.assert_array_equal(
        known.condition(known.parameters(1), None, action, reward)[0],
        certain.condition(certain.parameters(1), None, action, reward)[0],
    )


@pytest.mark.slow
@pytest.mark.parametrize("noise", [0.3, 0.5])  # with 0.6 even known rewards leave errors of 8%
def test_moves_are_recovered_from_5000_users(noise):
    means = np.random.default_rng(11).random((4, 8))
    log = moving_log(5_000, 60, stay=30, noise=noise, seed=3, means=means)
    result = fit(log, kind="arms", bootstrap=0, assess=False)
    assert result.report["dynamics"]["chosen"] == "markov"
    assert result.model.n_states == 4
    lasts = np.array([state["lasts"] for state in result.report["states"]])
    assert abs(lasts.mean() / 30 - 1) < 0.1
    off = result.model.transition[~np.eye(4, dtype=bool)]
    assert np.abs(off - 1 / 90).max() < 0.004


@pytest.mark.slow
def test_states_that_stand_still_are_left_alone_on_19_of_20_logs():
    kept = 0
    for seed in range(20):
        means = np.random.default_rng(seed).random((4, 8))
        log = moving_log(500, 40, stay=1e12, noise=(0.3, 0.6)[seed % 2], seed=seed, means=means)
        report = fit(log, kind="arms", bootstrap=0, assess=False, seed=seed).report
        kept += report["dynamics"]["chosen"] == "markov"
    assert kept <= 1
