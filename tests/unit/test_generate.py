"""The generator of ratings keeps what it promises about its truth."""

import numpy as np
import pytest

from latentbandits.learning.generate import generate_ratings


def test_ratings_are_the_truth_and_noise():
    made = generate_ratings(n_users=500, n_actions=120, n_states=4, density=0.2, seed=2)
    means = np.einsum("nd,nd->n", made.user_vectors[made.users], made.action_vectors[made.actions])
    residual = made.rewards - means
    n = len(residual)
    assert abs(residual.mean()) < 5 * 0.5 / np.sqrt(n)
    assert residual.std() == pytest.approx(0.5, abs=5 * 0.5 / np.sqrt(2 * n))
    assert made.rewards.mean() == pytest.approx(3.5, abs=0.5)
    assert n / (500 * 120) == pytest.approx(0.2, rel=0.15)


def test_users_are_their_state_and_spread():
    made = generate_ratings(n_users=4000, n_actions=20, n_states=3, density=0.1, spread=0.3)
    for s in range(3):
        mine = made.user_vectors[made.state == s]
        error = 5 * 0.3 / np.sqrt(len(mine))
        np.testing.assert_allclose(mine.mean(axis=0), made.model.weights[s], atol=error)
    shares = np.bincount(made.state) / 4000
    np.testing.assert_allclose(shares, made.model.state_prior, atol=5 * 0.5 / np.sqrt(4000))


def test_pairs_are_distinct_and_groups_cover_every_action():
    made = generate_ratings(n_users=50, n_actions=30, n_states=2, density=0.5, n_groups=5)
    assert len(np.unique(made.users * 30 + made.actions)) == len(made.users)
    assert made.groups.shape == (30, 5)
    assert made.groups.any(axis=1).all()


def test_the_same_seed_gives_the_same_log():
    sizes = {"n_users": 50, "n_actions": 30, "n_states": 2, "density": 0.3}
    one, same, other = (generate_ratings(**sizes, seed=s) for s in (7, 7, 8))
    np.testing.assert_array_equal(one.rewards, same.rewards)
    assert len(one.rewards) != len(other.rewards) or (one.rewards != other.rewards).any()


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"n_users": 0}, "n_users must be a whole number of at least 1"),
        ({"density": 0.6}, "density must be above 0 and at most 0.5; got 0.6"),
        ({"n_features": 1}, "n_features must be at least 2"),
    ],
)
def test_bad_sizes_are_named(changed, message):
    sizes = {"n_users": 50, "n_actions": 30, "n_states": 2, "density": 0.3}
    with pytest.raises(ValueError, match=message):
        generate_ratings(**(sizes | changed))
