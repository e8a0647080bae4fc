"""The least penalty of a factorisation with given products."""

import numpy as np
import pytest

from latentbandits.learning.linear.alternating import balanced
from latentbandits.learning.linear.completion import complete
from tests.reference.completion import alternating_least_squares


def penalty(users, actions, user_ridge, action_ridge):
    return user_ridge @ (users**2).sum(axis=1) + action_ridge @ (actions**2).sum(axis=1)


@pytest.fixture
def sides():
    rng = np.random.default_rng(0)
    users, actions = rng.normal(size=(30, 4)) * [1, 5, 0.1, 2], rng.normal(size=(20, 4))
    return users, actions, rng.uniform(0.1, 3, 30), rng.uniform(0.1, 3, 20)


def balance(users, actions, user_ridge, action_ridge):
    return balanced(users.T @ (user_ridge[:, None] * users), actions, action_ridge)


def user_side(users, actions, balanced):
    """The users that keep the products with `balanced`."""
    return np.linalg.lstsq(balanced, actions @ users.T, rcond=None)[0].T


def test_products_stay_and_no_other_factors_have_a_lower_penalty(sides):
    users, actions, user_ridge, action_ridge = sides
    best_actions = balance(*sides)
    best_users = user_side(users, actions, best_actions)
    np.testing.assert_allclose(best_users @ best_actions.T, users @ actions.T, atol=1e-12)
    least = penalty(best_users, best_actions, user_ridge, action_ridge)
    # Twice the sum of the singular values of the weighted products: the weighted trace norm.
    weighted = np.sqrt(user_ridge)[:, None] * (users @ actions.T) * np.sqrt(action_ridge)
    assert least == pytest.approx(2 * np.linalg.svd(weighted, compute_uv=False).sum())
    assert least < 0.9 * penalty(users, actions, user_ridge, action_ridge)
    rng = np.random.default_rng(1)
    for _ in range(50):
        change = np.eye(4) + 0.2 * rng.normal(size=(4, 4))
        other = best_users @ change, best_actions @ np.linalg.inv(change).T
        assert penalty(*other, user_ridge, action_ridge) >= least


def test_an_axis_that_nobody_uses_stays_unused(sides):
    users, actions, user_ridge, action_ridge = sides
    users[:, 1] = actions[:, 1] = 0.0
    best_actions = balance(users, actions, user_ridge, action_ridge)
    assert np.linalg.matrix_rank(best_actions) == 3
    best_users = user_side(users, actions, best_actions)
    np.testing.assert_allclose(best_users @ best_actions.T, users @ actions.T, atol=1e-12)
    assert (balance(0 * users, 0 * actions, user_ridge, action_ridge) == 0).all()


def test_balanced_sweeps_reach_in_six_what_plain_ones_do_not_in_twelve():
    rng = np.random.default_rng(3)
    users, actions = np.divmod(rng.choice(40 * 30, 700, replace=False), 30)
    truth = rng.normal(size=(40, 3)) @ rng.normal(size=(30, 3)).T
    rewards = 3 + truth[users, actions] + 0.3 * rng.normal(size=700)
    ours = complete(users, actions, rewards, rank=4, reg=0.5, sweeps=6)
    start = np.random.default_rng(0).standard_normal((30, 4)) / 2
    u, v, *_ = alternating_least_squares(
        users, actions, rewards, 40, 30, start, 0.5, "plain", False, 12, balancing=False
    )
    squares = ((rewards - np.einsum("nd,nd->n", u[users], v[actions])) ** 2).sum()
    assert ours.history[-1].objective < squares + 0.5 * ((u**2).sum() + (v**2).sum())


def test_rounding_errors_do_not_turn_the_axes(sides):
    users, actions, user_ridge, action_ridge = sides
    rng = np.random.default_rng(2)
    actual = balance(*sides)
    for _ in range(20):
        nearly = users * (1 + 1e-12 * rng.normal(size=users.shape))
        other = balance(nearly, actions, user_ridge, action_ridge)
        np.testing.assert_allclose(other, actual, atol=1e-9)
    change = np.linalg.lstsq(actions, actual, rcond=None)[0]
    np.testing.assert_allclose(change, change.T, atol=1e-9)
