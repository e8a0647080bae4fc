"""The environment of users who rate items in groups."""

import numpy as np
import pytest

from latentbandits import LinearGaussian
from latentbandits.environments import GroupedRatings
from latentbandits.testing import check_environment


def environment(n_actions=4, noise=0.5, **changed):
    rng = np.random.default_rng(0)
    arguments = {
        "model": LinearGaussian(rng.normal(size=(2, 3)), 0.5),
        "features": rng.normal(size=(5, 3)),
        "groups": np.array(
            [[True, False], [True, False], [True, True], [False, True], [False, True]]
        ),
        "users": rng.normal(size=(7, 2)),
        "items": rng.normal(size=(5, 2)),
    }
    return GroupedRatings(**(arguments | changed), n_actions=n_actions, noise=noise)


def test_it_keeps_the_promises_of_an_environment():
    check_environment(environment())


def test_a_round_shows_train_features_and_pays_the_truth():
    env, rng = environment(), np.random.default_rng(1)
    instances = env.start(50, horizon=10, rng=rng)
    assert instances.model is env.model
    outcome = instances.round(0, np.random.default_rng(2))
    assert outcome.context.shape == (50, 4, 3)
    # Which items were shown can be read off their features; the means are those of the truth.
    item = (outcome.context[:, :, None] == env.features).all(axis=-1).argmax(axis=-1)
    np.testing.assert_array_equal(item, env.draw(50, np.random.default_rng(2)))
    for run in range(50):
        for action in range(4):
            mean = env.users[instances.user[run]] @ env.items[item[run, action]]
            assert outcome.means[run, action] == pytest.approx(mean)


def test_groups_are_uniform_and_so_are_the_items_of_each():
    # Groups (0, 1, 2) and (2, 3, 4): item 2 has chance 1/3, the others 1/6 each.
    env = environment(n_actions=20)
    items = env.draw(5000, np.random.default_rng(3))
    counts = np.bincount(items.ravel(), minlength=5)
    expected = items.size * np.array([1, 1, 2, 1, 1]) / 6
    # Chi-square with 4 degrees of freedom: above 23.5 once in 10,000.
    assert ((counts - expected) ** 2 / expected).sum() < 23.5
    uniform_items = items.size / 5
    assert ((counts - uniform_items) ** 2 / uniform_items).sum() > 1000  # the planted bug


def test_groups_are_drawn_with_replacement():
    items = environment(n_actions=9).draw(10, np.random.default_rng(0))
    assert items.shape == (10, 9)  # more actions than groups, or than items


def test_rewards_are_noisy_means_and_users_uniform():
    env = environment()
    instances = env.start(20_000, 10, np.random.default_rng(4))
    counts = np.bincount(instances.user, minlength=7)
    expected = 20_000 / 7
    assert ((counts - expected) ** 2 / expected).sum() < 27.9  # 6 degrees: once in 10,000
    outcome = instances.round(0, np.random.default_rng(5))
    residual = (outcome.rewards - outcome.means).ravel()
    assert abs(residual.mean()) < 4 * 0.5 / np.sqrt(residual.size)
    assert residual.std() == pytest.approx(0.5, rel=4 / np.sqrt(2 * residual.size))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"features": np.ones((5, 2))}, r"features must be of shape \(n_items, 3\)"),
        ({"groups": np.ones((4, 2), bool)}, r"groups must be of shape \(5, n_groups\)"),
        ({"items": np.ones((5, 3))}, r"items must be of shape \(5, rank\)"),
        ({"groups": np.array([[True, False]] * 5)}, "group 1 has no items"),
    ],
)
def test_arrays_that_do_not_fit_are_named(changed, message):
    with pytest.raises(ValueError, match=message):
        environment(**changed)
