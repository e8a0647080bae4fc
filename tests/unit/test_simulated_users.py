"""Whom a learned model is played against."""

from dataclasses import replace

import numpy as np
import pytest

from latentbandits import GaussianArms, LinearGaussian
from latentbandits.environments import KnownUsers
from latentbandits.learning.generate import generate_arms
from latentbandits.learning.logs.users import log_users
from latentbandits.models import Catalogue
from tests.unit.test_selection import ratings_log

ARMS = GaussianArms([[0.9, 0.1, 0.5], [0.2, 0.8, 0.5]], 0.5, [[0.1, 0.2, 0.0]] * 2, [0.25, 0.75])


def test_users_of_a_log_pay_what_they_paid():
    truth = generate_arms(n_users=60, n_rounds=200, n_states=2, n_actions=4, noise=0.1)
    model = GaussianArms(truth.means, 0.1)
    catalogue = Catalogue(["3", "2", "1", "0", "new"])  # in another order, and one more
    wider = GaussianArms(np.c_[truth.means[:, ::-1], [0, 0]], 0.1)
    users = log_users(wider, catalogue, truth.log, 20, {"rank": 2, "reg": 0.01}, seed=0)
    np.testing.assert_allclose(users.means[:, :4], truth.means[truth.state][:, ::-1], atol=0.1)
    assert users.eligible.tolist() == [True] * 4 + [False]
    rng = np.random.default_rng(0)
    assert users.start(3, 5, rng).round(0, rng).eligible.shape == (3, 5)
    same = log_users(model, Catalogue(list("0123")), truth.log, 20, {}, seed=0)
    assert same.eligible is None


def test_users_of_a_log_of_ratings():
    log, made = ratings_log(n_users=200, n_actions=50, n_states=2, density=0.5)
    means = np.einsum("nd,nd->n", made.user_vectors[made.users], made.action_vectors[made.actions])
    log = replace(log, rewards=means + (made.rewards - means) / 8)  # ratings with little noise
    model = LinearGaussian([[3.5, 0, 0, 0]], 0.1)
    catalogue = Catalogue(log.action_ids, features=made.action_vectors)
    users = log_users(model, catalogue, log, 10, {"rank": 3, "reg": 0.05}, seed=0)
    rated = np.isin(np.arange(log.n_users), log.users)
    expected = made.user_vectors[rated] @ made.action_vectors.T
    error = users.users @ users.items.T - expected
    assert np.sqrt(np.mean(error**2)) < 0.15


def test_means_of_another_number_of_actions():
    with pytest.raises(ValueError, match=r"\(n_users, 3\)"):
        KnownUsers(ARMS, np.zeros((5, 2)), 0.5)


def test_known_users_without_noise_click():
    """2,000 runs: clicks of each action within 5 standard errors of its rate."""
    rates = np.array([[0.9, 0.1, 0.5]])
    rng = np.random.default_rng(0)
    rewards = KnownUsers(ARMS, rates, noise=None).start(2000, 1, rng).round(0, rng).rewards
    assert set(np.unique(rewards)) == {0.0, 1.0}
    errors = np.sqrt(rates[0] * (1 - rates[0]) / 2000)
    assert (np.abs(rewards.mean(axis=0) - rates[0]) < 5 * errors).all()
