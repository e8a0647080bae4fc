"""The Population environment: who visits, what is shown, and common random numbers."""

import numpy as np
import pytest

from latentbandits import simulate
from latentbandits.environments import Population
from latentbandits_related.per_user import GroupedLinUCB
from latentbandits_related.reproduce.clustering import clustered_users, unit_items

USERS = np.eye(3)


def visitors(environment, n_rounds, n_runs=4):
    rng = np.random.default_rng(0)
    instances = environment.start(n_runs, n_rounds, rng)
    return np.stack([instances.round(t, rng).context.user for t in range(n_rounds)])


def test_uniform_visits():
    """12,000 visits of 3 users: each count within 5 standard errors of 4,000."""
    counts = np.bincount(visitors(Population(USERS, USERS), 3000).ravel())
    assert (np.abs(counts - 4000) < 5 * np.sqrt(12_000 * 2 / 9)).all()


def test_zipf_visits():
    """User i comes in proportion to 1 / (i + 1): 6/11, 3/11, 2/11."""
    counts = np.bincount(visitors(Population(USERS, USERS, visits="zipf"), 3000).ravel())
    expected = 12_000 * np.array([6, 3, 2]) / 11
    assert (np.abs(counts - expected) < 5 * np.sqrt(expected)).all()


def test_users_come_and_go():
    environment = Population(np.eye(3)[np.arange(50) % 3], np.eye(3), n_present=5, turnover=0.1)
    seen = visitors(environment, 600)
    assert set(seen[:20].ravel().tolist()) <= set(range(20))
    assert seen[:20].mean() < 8, "users of the end came at the start"
    assert len(np.unique(seen)) == 50
    for run in seen.T:  # at any time few users are there
        assert all(len(np.unique(run[t : t + 10])) <= 10 for t in range(0, 600, 10))


def test_item_ids_and_features_are_the_same_problem():
    """Both forms draw the same users, items and rewards from one stream."""
    rounds = []
    for ids in (False, True):
        rng = np.random.default_rng(3)
        world = Population(
            clustered_users(6, 2, 4), unit_items(10, 4), n_shown=3, item_ids=ids
        ).start(2, 5, rng)
        rounds.append([world.round(t, rng) for t in range(5)])
    for plain, by_id in zip(*rounds, strict=True):
        assert (plain.context.user == by_id.context.user).all()
        assert by_id.context.features is None
        assert by_id.eligible.sum(axis=1).tolist() == [3, 3]
        np.testing.assert_array_equal(
            np.sort(plain.rewards, axis=1),
            np.sort(by_id.rewards[by_id.eligible].reshape(2, 3), axis=1),
        )


def test_simulate_plays_populations():
    environment = Population(clustered_users(9, 3, 3), unit_items(20, 3), n_shown=5)
    results = simulate(
        {
            "oracle": lambda truth: GroupedLinUCB(3, truth.crowd.groups),
            "one": lambda truth: GroupedLinUCB(3, np.zeros(truth.n_users, int)),
        },
        environment,
        n_runs=3,
        horizon=300,
    )
    assert results["oracle"].regret.mean < 0.5 * results["one"].regret.mean


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"visits": "poisson"}, "visits must be 'uniform' or 'zipf'"),
        ({"turnover": 0.1}, "turnover needs n_present"),
        ({"turnover": 1.1, "n_present": 2}, "turnover must be in"),
        ({"n_shown": 4}, "n_shown=4 is more than the 3 items"),
        ({"n_present": 4}, "n_present=4 is more than the 3 users"),
        ({"features": np.eye(2)}, "users have"),
        ({"noise": 0.0}, "noise must be"),
    ],
)
def test_what_cannot_be_is_refused(settings, words):
    with pytest.raises(ValueError, match=words):
        Population(**{"users": USERS, "features": USERS} | settings).start(
            1, 5, np.random.default_rng(0)
        )
