"""Expectation-maximisation against the textbook loop, its spread against a numerical Hessian."""

import numpy as np
import pytest

from latentbandits import GaussianArms
from latentbandits.learning.generate_arms import generate_arms
from latentbandits.learning.logs import read_log
from latentbandits.learning.mixture import (
    Components,
    MeanPrior,
    UserStatistics,
    expect,
    fit_mixture,
    posterior_spread,
    sweep,
)
from latentbandits.learning.tables import LogError
from tests.reference import mixture as textbook

PRIOR = MeanPrior(np.array([0.4, 0.6, 0.5]), 0.7)


@pytest.fixture(scope="module")
def log():
    return generate_arms(n_users=12, n_rounds=7, n_states=2, n_actions=3, seed=1).log


@pytest.fixture(scope="module")
def components():
    rng = np.random.default_rng(0)
    return Components(rng.random((4, 2, 3)), rng.dirichlet([3, 3], 4), rng.random(4) + 0.1)


def test_a_sweep_is_the_textbook_one_for_every_restart(log, components):
    after, height = sweep(UserStatistics.of(log), PRIOR, components, None)
    for i in range(4):
        own = components.means[i], components.shares[i], components.variance[i]
        means, shares, variance = textbook.sweep(log, *own, PRIOR.centre, PRIOR.spread)
        np.testing.assert_allclose(after.means[i], means, rtol=1e-10)
        np.testing.assert_allclose(after.shares[i], shares, rtol=1e-10)
        np.testing.assert_allclose(after.variance[i], variance, rtol=1e-10)
        slow = textbook.log_posterior(log, *own, PRIOR.centre, PRIOR.spread)
        np.testing.assert_allclose(height[i], slow, rtol=1e-12)


def test_a_known_noise_stays(log, components):
    after, _ = sweep(UserStatistics.of(log), PRIOR, components, known=0.25)
    np.testing.assert_array_equal(after.variance, components.variance)
    fit = fit_mixture(log, 2, noise=0.3)
    assert fit.model.noise == pytest.approx(0.3)


def test_one_state_is_the_mean_shrunk_to_the_prior_by_hand():
    log = read_log({"u": [1, 2, 3, 3], "a": [0, 0, 0, 1], "r": [1.0, 2.0, 3.0, 5.0]}, *"uar")
    model = fit_mixture(log, 1, noise=0.5).model
    overall, spread = 11 / 4, np.sqrt(39 / 4 - (11 / 4) ** 2)
    centre = (6 + overall) / 4
    precision = 3 / 0.25 + 1 / spread**2
    assert model.means[0, 0] == pytest.approx((6 / 0.25 + centre / spread**2) / precision)
    assert model.spread[0, 0] == pytest.approx(precision**-0.5)


def test_spread_is_that_of_the_numerical_hessian(log):
    """At a peak of the posterior, by second differences of the slow log posterior."""
    fit = fit_mixture(log, 2, noise=0.5, seed=0)
    model = fit.model
    one = Components(model.means[None], model.state_prior[None], np.array([0.25]))
    prior = _prior_of(log)
    spread = posterior_spread(UserStatistics.of(log), prior, one)
    np.testing.assert_allclose(spread, model.spread, rtol=1e-12)

    def height(flat):
        means = flat.reshape(2, 3)
        return textbook.log_posterior(
            log, means, model.state_prior, 0.25, prior.centre, prior.spread
        )

    hessian = _hessian(height, model.means.ravel().copy())
    expected = np.sqrt(np.diag(np.linalg.inv(-hessian))).reshape(2, 3)
    np.testing.assert_allclose(spread, expected, rtol=1e-3)


def test_unknown_labels_cost(log):
    """The spread is above that of who knows the labels, sigma / sqrt(n)."""
    model = fit_mixture(log, 2, noise=0.5).model
    statistics = UserStatistics.of(log)
    one = Components(model.means[None], model.state_prior[None], np.array([0.25]))
    responsibilities = expect(statistics, _prior_of(log), one)[0][0]
    n = responsibilities.T @ statistics.counts
    labelled = (n / 0.25 + _prior_of(log).spread ** -2) ** -0.5
    assert (model.spread >= labelled - 1e-12).all()
    assert (model.spread > 1.01 * labelled).any()


def test_an_action_that_a_state_never_saw_keeps_the_prior():
    rows = [(u, a, r) for u in range(40) for a, r in [(0, u % 2), (1, 0.5)][: 1 + u % 2]]
    users, actions, rewards = zip(*rows, strict=True)
    log = read_log({"u": users, "a": actions, "r": rewards}, *"uar")
    model = fit_mixture(log, 2, noise=0.05).model
    without = int(np.argmin(model.means[:, 0]))  # users who got 0 never played action 1
    assert model.spread[without, 1] == pytest.approx(_prior_of(log).spread, rel=1e-6)
    assert model.spread[1 - without, 1] < 0.02


def test_states_come_by_falling_share(log):
    shares = fit_mixture(log, 3).model.state_prior
    assert (np.diff(shares) <= 0).all()


def test_the_same_seed_gives_the_same_fit(log):
    np.testing.assert_array_equal(
        fit_mixture(log, 2, seed=4).model.means, fit_mixture(log, 2, seed=4).model.means
    )


def test_a_start_alone_is_climbed_from(log):
    found = fit_mixture(log, 2, noise=0.5)
    again = fit_mixture(log, 2, noise=0.5, n_restarts=0, start=found.model)
    np.testing.assert_allclose(again.model.means, found.model.means, atol=1e-2)
    assert again.n_sweeps < 50


def test_rewards_without_noise_are_no_trouble():
    log = read_log({"u": [1, 1, 2, 2], "a": [0, 1, 0, 1], "r": [1, 0, 0, 1]}, *"uar")
    model = fit_mixture(log, 2).model
    assert np.isfinite(model.means).all()
    assert model.noise > 0


def test_sizes_that_cannot_be(log):
    with pytest.raises(LogError, match="13 states are more than the log's 12 users"):
        fit_mixture(log, 13)
    wide = read_log({"u": range(3000), "a": range(3000), "r": [0.5] * 3000}, *"uar")
    with pytest.raises(LogError, match="use --kind linear"):
        fit_mixture(wide, 2)
    with pytest.raises(ValueError, match="noise"):
        fit_mixture(log, 2, noise=-1.0)
    assert isinstance(fit_mixture(log, 12).model, GaussianArms)


def _prior_of(log):
    statistics = UserStatistics.of(log)
    counts, sums = statistics.counts.sum(axis=0), statistics.sums.sum(axis=0)
    overall = log.rewards.mean()
    return MeanPrior((sums + overall) / (counts + 1), float(log.rewards.std()))


def _hessian(f, x, step=1e-4):
    n = len(x)
    hessian = np.empty((n, n))
    basis = np.eye(n) * step
    for i in range(n):
        for j in range(n):
            hessian[i, j] = (
                f(x + basis[i] + basis[j])
                - f(x + basis[i] - basis[j])
                - f(x - basis[i] + basis[j])
                + f(x - basis[i] - basis[j])
            ) / (4 * step**2)
    return hessian
