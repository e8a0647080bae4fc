"""Moments against all pairs and triples of rounds; decomposition against exact moments."""

import numpy as np
import pytest

from latentbandits.learning.generate import generate_arms
from latentbandits.learning.learners import align
from latentbandits.learning.logs.rows import read_log
from latentbandits.learning.logs.tables import LogError
from latentbandits.learning.mixture import (
    Moments,
    decompose,
    fit_spectral,
    moments,
    orthogonal_components,
)
from tests.reference import mixture as textbook


def test_moments_are_the_means_over_all_pairs_and_triples():
    rng = np.random.default_rng(0)
    lengths = [9, 12, 8, 3]
    users = np.repeat(np.arange(4), lengths)
    log = read_log(
        {"u": users, "a": rng.integers(2, size=len(users)), "r": rng.normal(size=len(users))},
        *"uar",
    )
    actual = moments(log)
    first, second, third = textbook.moments(log)
    np.testing.assert_allclose(actual.first, first, rtol=1e-10)
    np.testing.assert_allclose(actual.second, second, rtol=1e-10)
    np.testing.assert_allclose(actual.third, third, rtol=1e-10)


def test_users_with_fewer_than_three_rewards_are_left_out():
    log = generate_arms(n_users=50, n_rounds=9, n_states=2, n_actions=2, seed=0).log
    events = np.ones(log.n_events, bool)
    events[log.users == 0] = False
    events[:2] = True
    fewer, without = log.of_events(events), log.of_users(np.arange(1, 50))
    np.testing.assert_allclose(moments(fewer).third, moments(without).third, rtol=1e-12)


def test_exact_moments_give_the_exact_model():
    rng = np.random.default_rng(3)
    means, shares = rng.random((4, 6)), rng.dirichlet(np.full(4, 4.0))
    exact = Moments(
        shares @ means,
        np.einsum("s,sa,sb->ab", shares, means, means),
        np.einsum("s,sa,sb,sc->abc", shares, means, means, means),
        shares @ means**2 + 0.09,
    )
    actual = decompose(exact, 4)
    order = align(actual.means, means)
    np.testing.assert_allclose(actual.means[order], means, atol=1e-8)
    np.testing.assert_allclose(actual.shares[order], shares, atol=1e-8)
    assert actual.noise == pytest.approx(0.3, abs=1e-6)


def test_components_of_an_orthogonal_tensor():
    rng = np.random.default_rng(1)
    directions = np.linalg.qr(rng.standard_normal((5, 5)))[0]
    weights = np.array([5.0, 4.0, 3.0, 2.0, 1.0])
    tensor = np.einsum("s,si,sj,sk->ijk", weights, directions, directions, directions)
    actual, vectors = orthogonal_components(tensor, rng)
    order = np.argsort(-actual)
    np.testing.assert_allclose(actual[order], weights, rtol=1e-8)
    np.testing.assert_allclose(vectors[order], directions, atol=1e-7)


def test_logs_that_it_cannot_take():
    short = generate_arms(n_users=30, n_rounds=2, n_states=2, n_actions=2).log
    with pytest.raises(LogError, match=r"at least 3 rewards.*0 of 30.*--method em"):
        moments(short)
    with pytest.raises(LogError, match=r"at most 60 actions.*61.*--method em"):
        moments(generate_arms(n_users=9, n_rounds=30, n_states=2, n_actions=61).log)
    apart = read_log({"u": [1] * 3 + [2] * 3, "a": [0] * 3 + [1] * 3, "r": [1.0] * 6}, *"uar")
    with pytest.raises(LogError, match=r"pair of rewards for the actions 0, 1"):
        moments(apart)
    two = generate_arms(n_users=200, n_rounds=20, n_states=1, n_actions=2).log
    with pytest.raises(LogError, match=r"at most [12] states apart, not 3"):
        fit_spectral(two, 3)
