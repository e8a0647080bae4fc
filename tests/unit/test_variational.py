"""Matrix factorisation with uncertain vectors: its bound against a loop over all rewards."""

import numpy as np
import pytest

from latentbandits.learning.backends.backend import engine_of
from latentbandits.learning.generate import generate_ratings
from latentbandits.learning.learners import judge
from latentbandits.learning.linear import variational
from latentbandits.learning.linear.alternating import (
    CompletionSettings,
    RatingTotalsPass,
    joined,
    sum_pairs,
)
from latentbandits.learning.linear.learner import LinearLearner
from latentbandits.learning.linear.variational import (
    RowPosteriors,
    VariationalPass,
    aligned,
    posterior_of_users,
    step,
    whitened,
)
from latentbandits.learning.logs.rows import read_log


def settings(biases, rank=2, replicate=None):
    return CompletionSettings(rank, biases=biases, replicate=replicate)


def small_log(seed=0, n=400):
    """40 users, 12 actions, pairs that repeat."""
    rng = np.random.default_rng(seed)
    users, actions = rng.integers(40, size=n), rng.integers(12, size=n)
    tastes, films = rng.normal(size=(40, 2)), rng.normal(size=(12, 2))
    rewards = 3.0 + (tastes[users] * films[actions]).sum(axis=1) + rng.normal(0, 0.5, n)
    return read_log({"u": users, "a": actions, "r": rewards}, "u", "a", "r")


def gaussian_divergence(mean, covariance, prior_mean, prior):
    """KL(N(mean, covariance) || N(prior_mean, prior)), of one row."""
    d, away = len(mean), mean - prior_mean
    inverse = np.linalg.inv(prior)
    trace = np.trace(inverse @ covariance) + away @ inverse @ away - d
    return 0.5 * (trace + np.linalg.slogdet(prior)[1] - np.linalg.slogdet(covariance)[1])


def bound_by_loop(log, users, posterior, prior):
    """The evidence bound, reward by reward: E of the squared error, and all divergences."""
    items, mean = joined(posterior.items), posterior.items.mean
    biases = posterior.items.biases is not None
    total = 0.0
    for u, a, r in zip(log.users, log.actions, log.rewards, strict=True):
        w, v = users.means[u], items[a]
        first, second = np.outer(w, w) + users.covariances[u], np.outer(v, v) + posterior.spread[a]
        if biases:  # (u, d) meets (v, 1), and b is added: E (u'v + d + b)^2
            k = len(w) - 1
            error = r - mean
            expected = w[:k] @ v[:k] + w[k] + v[k]
            square = np.sum(first[:k, :k] * second[:k, :k]) + first[k, k] + second[k, k]
            square += 2 * (first[:k, k] @ v[:k] + second[:k, k] @ w[:k] + w[k] * v[k])
        else:
            error, expected, square = r - mean, w @ v, np.sum(first * second)
        error = error**2 - 2 * error * expected + square
        total -= 0.5 * (np.log(2 * np.pi * posterior.variance) + error / posterior.variance)
    for u in range(log.n_users):
        total -= gaussian_divergence(
            users.means[u], users.covariances[u], posterior.mean, posterior.covariance
        )
    for a in range(log.n_actions):
        total -= gaussian_divergence(
            items[a], posterior.spread[a], np.zeros(len(prior)), np.diag(prior)
        )
    return total


def passes(log, biases, n):
    """Yield q of the users, the parameters after the step, and the bound, of n passes."""
    engine, own = engine_of(log), settings(biases)
    totals = engine.fold(RatingTotalsPass(own), None)
    current = variational._first(engine, own, totals)
    for _ in range(n):
        users = posterior_of_users(sum_pairs(log), current)
        sums = engine.fold(VariationalPass(own), current)
        current, bound = step(sums, current, totals)
        yield users, current, bound


@pytest.mark.parametrize("biases", [True, False])
def test_the_bound_is_that_of_a_loop_over_rewards_and_never_falls(biases):
    log = small_log()
    bounds = []
    for users, actual, bound in passes(log, biases, 12):
        own = joined(actual.items) ** 2 + np.einsum("nii->ni", actual.spread)
        assert bound_by_loop(log, users, actual, own.mean(axis=0)) == pytest.approx(bound, abs=1e-6)
        bounds.append(bound)
    assert np.diff(bounds).min() > -1e-8
    assert bounds[-1] > bounds[0] + 5


def test_a_pass_that_forgets_the_actions_uncertainty_is_noticed(monkeypatch):
    """The planted bug: products of means in place of expected products."""
    right = variational.expected_products

    def certain(rows, mean, biases):
        return right(RowPosteriors(rows.means, np.zeros_like(rows.covariances)), mean, biases)

    monkeypatch.setattr(variational, "expected_products", certain)
    log = small_log()
    users, actual, bound = list(passes(log, True, 5))[-1]
    own = joined(actual.items) ** 2 + np.einsum("nii->ni", actual.spread)
    assert abs(bound_by_loop(log, users, actual, own.mean(axis=0)) - bound) > 5


@pytest.mark.parametrize("biases", [True, False])
def test_coordinates_with_unit_covariance_predict_the_same(biases):
    log = small_log(1)
    actual = list(passes(log, biases, 4))[-1][1]
    white = whitened(actual)
    part = sum_pairs(log)
    assert np.allclose(white.covariance[:2, :2], np.eye(2))
    one, other = posterior_of_users(part, actual), posterior_of_users(part, white)
    rank = 2
    expected = one.means[:, :rank] @ actual.items.vectors.T
    assert np.allclose(other.means[:, :rank] @ white.items.vectors.T, expected)
    if biases:
        assert np.allclose(one.means[:, rank], other.means[:, rank])


@pytest.mark.parametrize("biases", [True, False])
def test_aligned_coordinates_predict_the_same_and_raise_the_bound(biases):
    log = small_log(1)
    engine, own = engine_of(log), settings(biases)
    totals = engine.fold(RatingTotalsPass(own), None)
    before = list(passes(log, biases, 4))[-1][1]
    after = aligned(before, totals.counts > 0)
    part, rank = sum_pairs(log), 2
    one, other = posterior_of_users(part, before), posterior_of_users(part, after)
    expected = one.means[:, :rank] @ before.items.vectors.T
    actual = other.means[:, :rank] @ after.items.vectors.T
    if biases:
        expected += before.items.biases + one.means[:, rank:]
        actual += after.items.biases + other.means[:, rank:]
    assert np.allclose(actual, expected)
    y = joined(after.items)
    moments = y.T @ y + after.spread.sum(axis=0)
    assert np.allclose(moments, np.diag(np.diag(moments)))
    if biases:
        assert np.allclose(y.mean(axis=0), 0)
    bounds = []
    for current in (before, after):
        sums = engine.fold(VariationalPass(own), current)
        bounds.append(step(sums, current, totals)[1])
    assert bounds[1] > bounds[0]


@pytest.mark.parametrize("biases", [True, False])
def test_the_bound_of_aligned_passes_never_falls_and_ends_higher(biases, monkeypatch):
    log = small_log(3)
    bounds = variational.factorise(engine_of(log), settings(biases), passes=12).bounds
    assert np.diff(bounds).min() > -1e-8
    monkeypatch.setattr(variational, "aligned", lambda current, rated: current)
    assert (
        bounds[-1] > variational.factorise(engine_of(log), settings(biases), passes=12).bounds[-1]
    )


def test_weights_of_a_replicate_count_users_so_many_times():
    log = small_log(2)
    log = log.of_events(np.unique(log.users * 12 + log.actions, return_index=True)[1])
    engine, own = engine_of(log), settings(True, replicate=0)
    current = list(passes(log, True, 3))[-1][1]
    users = posterior_of_users(sum_pairs(log), current)
    weigh = own.weigh(log.keys)
    sums = engine.fold(VariationalPass(own), current)
    assert weigh.max() > 1
    assert sums.n_users == weigh.sum()
    assert np.allclose(sums.total, weigh @ users.means)
    outer = users.means[:, :, None] * users.means[:, None, :] + users.covariances
    assert np.allclose(sums.outer, np.tensordot(weigh, outer, axes=1))
    played = np.bincount(log.actions, weigh[log.users])
    assert np.allclose(sums.items.products[:, 5], played)  # of the feature that is 1


def test_learned_regularisation_predicts_better_than_a_poor_one():
    made = generate_ratings(n_users=400, n_actions=80, n_states=3, density=0.2, seed=3)
    log = read_log({"u": made.users, "a": made.actions, "r": made.rewards}, "u", "a", "r")
    some = log.of_users(np.arange(300))
    rest = log.of_users(np.arange(300, log.n_users))
    evidence = {}
    for name, learner in {
        "learned": LinearLearner(intercepts=True),
        "weak": LinearLearner(reg=0.01, weighting="plain", intercepts=True),
    }.items():
        learned = learner.clustered(learner.prepare(engine_of(some), 8, 0), 1, 0)
        evidence[name] = judge(learned, rest)
    assert evidence["learned"].evidence > evidence["weak"].evidence + 0.02
    assert 0.86 < evidence["learned"].coverage(0.9) < 0.94
