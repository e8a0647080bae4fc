"""EM and the spectral method find the truth of generated logs, as well as the data allow.

20 logs of 5,000 users with 30 rounds, 5 states and 10 actions. Who knows every user's state
estimates the 50 means with an error of e. EM does not know them; the spread that it states says
by how much that is worse. A fit that fails (two states merged, one split) is off by 0.1 or more in
some mean, ten times e.
"""

import numpy as np
import pytest

from latentbandits.learning.generate import generate_arms
from latentbandits.learning.learners import align
from latentbandits.learning.mixture import decompose, fit_mixture, fit_spectral, moments

pytestmark = pytest.mark.slow

SEEDS = range(20)


@pytest.fixture(scope="module")
def fits():
    results = []
    for seed in SEEDS:
        truth = generate_arms(seed=seed)
        em, spectral = fit_mixture(truth.log, 5, seed=seed), fit_spectral(truth.log, 5, seed=seed)
        raw = decompose(moments(truth.log), 5, seed=seed)
        results.append((truth, em.model, spectral.model, raw))
    return results


def _error(means, truth):
    return float(np.sqrt(np.mean((means[align(means, truth.means)] - truth.means) ** 2)))


def test_em_is_as_good_as_the_data_allow(fits):
    for truth, em, _, _ in fits:
        allowed = _error(truth.labelled_means(), truth)
        assert _error(em.means, truth) < 1.5 * allowed
        order = align(em.means, truth.means)
        assert np.abs(em.state_prior[order] - truth.shares).max() < 4 * np.sqrt(0.25 / 5000)
        assert abs(em.noise - truth.noise) < 4 * truth.noise / np.sqrt(2 * truth.log.n_events)


def test_spectral_agrees_with_em(fits):
    for _, em, spectral, _ in fits:
        order = align(spectral.means, em.means)
        np.testing.assert_allclose(spectral.means[order], em.means, atol=2e-3)
        np.testing.assert_allclose(spectral.state_prior[order], em.state_prior, atol=2e-3)


def test_moments_alone_find_every_state(fits):
    """No likelihood: a larger error, but far from that of a failure."""
    errors = [_error(raw.means, truth) for truth, _, _, raw in fits]
    assert max(errors) < 0.1
    assert np.median(errors) < 0.05


def test_the_stated_spread_is_right(fits):
    """1,000 errors over their spread are standard normal: their mean square is 1 +- 0.045, more
    as means of one log are correlated; 0.15 is three of those, an error rate below 1%.
    """
    assert abs(_mean_square(fits, lambda em: em.spread) - 1) < 0.15


def test_a_planted_overconfidence_is_seen(fits):
    """A spread that takes every reward of an action for one of each state is too small."""
    mean_square = _mean_square(fits, lambda em: em.spread * np.sqrt(em.state_prior)[:, None])
    assert mean_square > 1.5


def _mean_square(fits, spread):
    scores = []
    for truth, em, _, _ in fits:
        order = align(em.means, truth.means)
        scores.append((em.means[order] - truth.means) / spread(em)[order])
    return float(np.mean(np.square(scores)))
