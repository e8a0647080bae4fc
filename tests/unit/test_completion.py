"""Matrix completion against a hand-checked number and a textbook loop."""

import numpy as np
import pytest

from latentbandits.learning.generate import generate_ratings
from latentbandits.learning.linear.alternating import sum_pairs
from latentbandits.learning.linear.completion import complete
from latentbandits.learning.logs.rows import Log
from tests.reference.completion import alternating_least_squares, objective, ridge_row


def small_log(seed=0, n=60, n_users=9, n_actions=7):
    rng = np.random.default_rng(seed)
    pairs = rng.choice(n_users * n_actions, size=n, replace=False)
    users, actions = np.divmod(pairs, n_actions)
    return users, actions, rng.normal(3.5, 1.0, n)


def test_one_rating_by_hand():
    # r = 2, reg = 1: from v0 the user is u = 2 v0 / (v0^2 + 1), and then v = 2 u / (u^2 + 1).
    v0 = np.random.default_rng(0).standard_normal()
    u = 2 * v0 / (v0**2 + 1)
    v = 2 * u / (u**2 + 1)
    fit = complete([0], [0], [2.0], rank=1, reg=1.0, sweeps=1)
    assert fit.users == pytest.approx(u)
    assert fit.actions == pytest.approx(v)
    assert fit.history[0].objective == pytest.approx((2 - u * v) ** 2 + u**2 + v**2)
    assert fit.history[0].rmse == pytest.approx(abs(2 - u * v))


def test_one_rating_converges_to_the_soft_threshold():
    # min (r - uv)^2 + reg (u^2 + v^2) has uv = r - reg.
    fit = complete([0], [0], [2.0], rank=1, reg=0.5, sweeps=200)
    assert fit.predict(0, 0) == pytest.approx(1.5)


@pytest.mark.parametrize("weighting", ["plain", "counts"])
@pytest.mark.parametrize("biases", [False, True])
def test_every_sweep_is_the_textbook_loop(weighting, biases):
    users, actions, rewards = small_log()
    users[users == 4] = 3  # user 4 has no ratings
    rank, sweeps, reg = 3, 4, 0.3
    fit = complete(
        users, actions, rewards, rank=rank, reg=reg, weighting=weighting, biases=biases,
        sweeps=sweeps, n_users=10, n_actions=8, seed=5,
    )  # fmt: skip
    start = np.random.default_rng(5).standard_normal((8, rank)) / np.sqrt(rank)
    expected = alternating_least_squares(
        users, actions, rewards, 10, 8, start, reg, weighting, biases, sweeps
    )
    u, v, b, c, mean = expected
    # Axes may be turned: products are what is determined.
    np.testing.assert_allclose(fit.users @ fit.actions.T, u @ v.T, atol=1e-9)
    np.testing.assert_allclose(fit.users @ fit.users.T, u @ u.T, atol=1e-9)
    np.testing.assert_allclose(fit.actions @ fit.actions.T, v @ v.T, atol=1e-9)
    full = mean + b[:, None] + c + u @ v.T
    np.testing.assert_allclose(fit.user_vectors @ fit.action_vectors.T, full, atol=1e-9)
    np.testing.assert_allclose(fit.predict(users, actions), full[users, actions], atol=1e-9)
    assert fit.history[-1].objective == pytest.approx(
        objective(users, actions, rewards, expected, reg, weighting)
    )
    residuals = rewards - full[users, actions]
    assert fit.history[-1].rmse == pytest.approx(np.sqrt(np.mean(residuals**2)))


def test_users_and_actions_without_ratings_are_zero_and_change_nobody():
    users, actions, rewards = small_log()
    fit = complete(users, actions, rewards, rank=2)
    padded = complete(users, actions, rewards, rank=2, n_users=12, n_actions=7)
    np.testing.assert_allclose(padded.users[:9] @ padded.actions.T, fit.users @ fit.actions.T)
    np.testing.assert_array_equal(padded.users[9:], 0)
    np.testing.assert_array_equal(padded.user_counts[9:], 0)
    assert padded.noise == pytest.approx(fit.noise)


def test_a_repeated_pair_counts_twice():
    users, actions, rewards = small_log()
    twice = complete(*(np.concatenate([x, x]) for x in (users, actions, rewards)), rank=2, reg=2.0)
    once = complete(users, actions, rewards, rank=2, reg=1.0)
    np.testing.assert_allclose(
        twice.users @ twice.actions.T, once.users @ once.actions.T, atol=1e-9
    )
    assert twice.user_counts.sum() == 120


def test_blocks_of_rows_do_not_change_the_numbers(monkeypatch):
    users, actions, rewards = small_log()
    whole = complete(users, actions, rewards, rank=3, biases=True)
    monkeypatch.setattr("latentbandits.learning.linear.alternating._BLOCK_ENTRIES", 20)
    monkeypatch.setattr("latentbandits.learning.linear.alternating._BLOCKS_PER_TASK", 2)
    blocked = complete(users, actions, rewards, rank=3, biases=True, threads=1)
    threaded = complete(users, actions, rewards, rank=3, biases=True, threads=4)
    np.testing.assert_array_equal(threaded.users, blocked.users)
    assert threaded.history == blocked.history
    assert threaded.noise == blocked.noise
    np.testing.assert_allclose(
        blocked.users @ blocked.actions.T, whole.users @ whole.actions.T, atol=1e-10
    )
    assert blocked.noise == pytest.approx(whole.noise)


def test_stops_when_it_has_converged_and_says_so_to_the_callback():
    users, actions, rewards = small_log()
    heard = []
    fit = complete(
        users, actions, rewards, rank=2, sweeps=500, tolerance=1e-6, callback=heard.append
    )
    assert tuple(heard) == fit.history
    assert 2 < len(fit.history) < 500
    last, before = fit.history[-1].objective, fit.history[-2].objective
    assert before - last < 1e-6 * last


def test_the_noise_is_that_of_the_truth():
    made = generate_ratings(n_users=600, n_actions=200, n_states=4, density=0.3)
    for biases in (False, True):
        fit = made.complete(rank=4, reg=0.2, biases=biases)
        assert fit.noise == pytest.approx(0.5, rel=0.02)
        assert fit.history[-1].rmse < 0.48  # what no correction would have said


def test_pairs_that_nobody_rated_are_as_near_the_truth_as_the_data_allow():
    made = generate_ratings(n_users=600, n_actions=200, n_states=4, density=0.3)
    fit = made.complete(rank=4, reg=0.2)
    judged = np.ones((600, 200), bool)
    judged[made.users, made.actions] = False
    judged[fit.user_counts < 20] = False  # too few ratings to know 4 numbers
    judged[:, fit.action_counts < 20] = False
    truth = made.user_vectors @ made.action_vectors.T

    def error(users, actions):
        return np.sqrt(np.mean((users @ actions.T - truth)[judged] ** 2))

    def regress(index, count, features):
        rows = [index == row for row in range(count)]
        return np.stack([ridge_row(features[k], made.rewards[k], 0.2) for k in rows])

    # What is lost where one side is known, and only the other has to be learned from noise.
    users = regress(made.users, 600, made.action_vectors[made.actions])
    actions = regress(made.actions, 200, made.user_vectors[made.users])
    allowed = np.hypot(error(users, made.action_vectors), error(made.user_vectors, actions))
    assert error(fit.user_vectors, fit.action_vectors) < 1.1 * allowed
    short = made.complete(rank=3, reg=0.2)  # the planted bug: one dimension too few
    assert error(short.user_vectors, short.action_vectors) > 1.1 * allowed


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"rank": 0}, "rank must be a whole number"),
        ({"rank": 8}, "rank 8 is above what the data hold: the rank of 9 users x 7 actions is 7"),
        ({"reg": 0.0}, "reg must be a finite number above zero"),
        ({"weighting": "count"}, "weighting must be 'plain' or 'counts'; got 'count'"),
        ({"tolerance": float("nan")}, "tolerance must be a number of at least zero"),
        ({"rewards": [1.0, np.nan]}, r"rewards must be finite; rewards\[1\] is nan"),
        ({"rewards": []}, "rewards is empty"),
        ({"threads": 0}, "threads must be a whole number"),
        ({"weights": [1.0] * 59}, "weights must be 60 numbers above zero"),
        ({"weights": [0.0] * 60}, "weights must be 60 numbers above zero"),
        ({"users": [0, 1]}, "there are 60 rewards but 2 users"),
        ({"users": [0.5] * 60}, "users must be a list of whole numbers"),
        ({"n_users": 5}, "users must be numbered from 0 to 4; one of them is 8"),
        ({"actions": [-1] * 60}, "actions must be numbered from 0; one of them is -1"),
    ],
)
def test_bad_input_is_named(changed, message):
    users, actions, rewards = small_log()
    arguments = {"users": users, "actions": actions, "rewards": rewards, "rank": 2} | changed
    with pytest.raises(ValueError, match=message):
        complete(
            arguments.pop("users"), arguments.pop("actions"), arguments.pop("rewards"), **arguments
        )


@pytest.mark.parametrize("n_actions", [3, 1_000_000])
def test_pairs_are_those_of_a_loop(n_actions):
    """Long and short histories; a user without rows; rows of a user in any order."""
    rng = np.random.default_rng(5)
    users = np.repeat([0, 1, 3, 4], [40, 1, 7, 300])
    actions = rng.integers(n_actions, size=len(users))
    actions[:20] = actions[20:40]
    rewards = rng.normal(size=len(users))
    log = Log(users, actions, rewards, tuple("abcde"), tuple(map(str, range(n_actions))))
    by_pair = {}
    for pair, reward in zip(zip(users, actions, strict=True), rewards, strict=True):
        by_pair.setdefault(pair, []).append(reward)
    pairs = sum_pairs(log)
    assert list(zip(pairs.users, pairs.actions, strict=True)) == sorted(by_pair)
    one_each = [by_pair[pair] for pair in sorted(by_pair)]
    np.testing.assert_allclose(pairs.means, [np.mean(one) for one in one_each], rtol=1e-14)
    np.testing.assert_array_equal(pairs.counts, [len(one) for one in one_each])
    assert pairs.scatter == pytest.approx(sum(len(one) * np.var(one) for one in one_each))


@pytest.mark.parametrize("biases", [False, True])
@pytest.mark.parametrize("weighting", ["plain", "counts"])
def test_weights_are_repeated_pairs(biases, weighting):
    users, actions, rewards = small_log()
    times = np.random.default_rng(3).integers(1, 5, size=len(users))
    rows = np.repeat(np.arange(len(users)), times)
    noisy = rewards[rows] + np.random.default_rng(4).normal(size=len(rows))
    ids = tuple(map(str, range(9))), tuple(map(str, range(7)))
    order = np.argsort(users[rows], kind="stable")
    log = Log(users[rows][order], actions[rows][order], noisy[order], *ids)
    pairs = sum_pairs(log)
    settings = {"rank": 2, "reg": 0.7, "biases": biases, "weighting": weighting, "sweeps": 5}
    once = complete(pairs.users, pairs.actions, pairs.means, weights=pairs.counts,
                    scatter=pairs.scatter, **settings)  # fmt: skip
    each = complete(log.users, log.actions, log.rewards, **settings)
    np.testing.assert_allclose(
        once.user_vectors @ once.action_vectors.T, each.user_vectors @ each.action_vectors.T
    )
    assert once.noise == pytest.approx(each.noise)
    assert once.history[-1].objective == pytest.approx(each.history[-1].objective)
    np.testing.assert_array_equal(once.user_counts, each.user_counts)
    averaged = complete(pairs.users, pairs.actions, pairs.means, **settings)  # the planted bug
    assert np.abs(averaged.user_vectors @ averaged.action_vectors.T
                  - each.user_vectors @ each.action_vectors.T).max() > 1e-3  # fmt: skip
