"""Clusters of users as the states of a model."""

from dataclasses import replace

import numpy as np
import pytest

from latentbandits.learning.generate import generate_ratings
from latentbandits.learning.linear.clusters import cluster_users, usable_covariance


@pytest.fixture(scope="module")
def made():
    return generate_ratings(
        n_users=400, n_actions=80, n_states=3, density=0.4, separation=1.5, spread=0.2, seed=3
    )


@pytest.fixture(scope="module")
def fit(made):
    return made.complete(rank=4, reg=0.1)


def test_the_model_is_the_means_covariances_and_shares_of_the_clusters(fit):
    clusters = cluster_users(fit, 3)
    model = clusters.model
    n_rated = (fit.user_counts > 0).sum()
    assert clusters.sizes.sum() == n_rated
    for s in range(3):
        mine = fit.user_vectors[clusters.state == s]
        assert len(mine) == clusters.sizes[s]
        np.testing.assert_allclose(model.weights[s], mine.mean(axis=0))
        np.testing.assert_allclose(model.covariances[s], np.cov(mine, rowvar=False), atol=1e-12)
    np.testing.assert_allclose(model.state_prior, clusters.sizes / n_rated)
    np.testing.assert_array_equal(clusters.shrinkage, 0)
    assert model.noise == fit.noise
    assert cluster_users(fit, 3, noise=0.7).model.noise == 0.7


def test_the_clusters_are_the_true_states_and_pay_what_those_pay(made, fit):
    clusters = cluster_users(fit, 3)
    table = np.zeros((3, 3))
    rated = fit.user_counts > 0
    np.add.at(table, (clusters.state[rated], made.state[rated]), 1)
    assert table.max(axis=1).sum() / rated.sum() > 0.97
    learned = clusters.model.weights @ fit.action_vectors.T
    truth = (made.model.weights @ made.action_vectors.T)[table.argmax(axis=1)]
    assert np.abs(learned - truth).mean() < 0.1  # states differ by about 1.5 in a rating


def test_the_same_seed_gives_the_same_clusters(fit):
    one, other = cluster_users(fit, 3, seed=4), cluster_users(fit, 3, seed=4)
    np.testing.assert_array_equal(one.state, other.state)


def test_biases_become_features_that_are_known(made):
    fit = made.complete(rank=3, reg=0.1, biases=True)
    clusters = cluster_users(fit, 3)
    np.testing.assert_allclose(clusters.model.weights[:, -1], 1)
    np.testing.assert_array_equal(clusters.model.covariances[:, -1], 0)
    assert (np.linalg.eigvalsh(clusters.model.covariances[:, :-1, :-1]) > 0).all()


def test_users_without_ratings_are_left_out(made):
    fit = made.complete(rank=4, reg=0.1, n_users=410)
    clusters = cluster_users(fit, 3)
    np.testing.assert_array_equal(clusters.state[400:], -1)
    np.testing.assert_array_equal(clusters.state == -1, fit.user_counts == 0)
    assert clusters.sizes.sum() == (clusters.state >= 0).sum()


def test_too_many_states_names_the_largest_that_works(fit):
    with pytest.raises(ValueError, match="the largest usable number of states is") as caught:
        cluster_users(fit, 60)
    usable = int(str(caught.value).split()[-1])
    assert 3 <= usable < 60
    assert cluster_users(fit, usable).sizes.min() >= 10
    with pytest.raises(ValueError, match="too few users for a single state"):
        cluster_users(fit, 2, smallest=401)
    with pytest.raises(ValueError, match=r"n_states is 401, but only \d+ users have ratings"):
        cluster_users(fit, 401)


def test_users_who_are_all_alike_cannot_be_split():
    made = generate_ratings(n_users=30, n_actions=20, n_states=1, density=0.5, seed=0)
    fit = made.complete(rank=2)
    same = replace(fit, users=np.ones_like(fit.users), user_counts=np.full(30, 5))
    with pytest.raises(ValueError, match=r"has 0 of 30 users.* usable number of states is 1"):
        cluster_users(same, 2)


def test_shrinkage_is_the_least_that_reaches_the_condition():
    vectors = np.array([[0.0, 0.0], [2.0, 2.0]])  # covariance 2 * ones: eigenvalues 0 and 4
    covariance, w = usable_covariance(vectors, largest_condition=100.0)
    # (1 - w) 4 + 2 w = 100 (2 w)  =>  w = 4 / 202
    assert w == pytest.approx(4 / 202)
    values = np.linalg.eigvalsh(covariance)
    assert values[1] / values[0] == pytest.approx(100.0)
    assert np.trace(covariance) == pytest.approx(4.0)


def test_rows_that_do_not_vary_have_no_covariance():
    covariance, w = usable_covariance(np.ones((5, 2)))
    np.testing.assert_array_equal(covariance, 0)
    assert w == 0
