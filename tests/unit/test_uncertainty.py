"""The bootstrap: aligned, as wide as the truth is far, and the prior no narrower for it."""

import numpy as np
import pytest

from latentbandits.learning.alignment import align
from latentbandits.learning.arms.learner import ArmsLearner
from latentbandits.learning.generate_arms import generate_arms
from latentbandits.learning.linear.learner import LinearLearner
from latentbandits.learning.selection import Candidate
from latentbandits.learning.uncertainty import Disagreement, bootstrap, prior_errors
from tests.unit.test_selection import ratings_log


def test_align_finds_any_permutation():
    rng = np.random.default_rng(0)
    reference = rng.random((6, 4))
    order = rng.permutation(6)
    np.testing.assert_array_equal(reference[order][align(reference[order], reference)], reference)


def test_align_by_what_counts():
    reference = np.array([[0.0, 0.0], [1.0, 1.0]])
    rewards = np.array([[0.0, 9.0], [1.0, -9.0]])  # the second action is hardly ever played
    assert align(rewards, reference).tolist() == [1, 0]
    assert align(rewards, reference, np.array([1.0, 1e-6])).tolist() == [0, 1]


@pytest.fixture(scope="module")
def arms():
    truth = generate_arms(n_users=600, n_rounds=20, n_states=3, n_actions=5, seed=2)
    learner = ArmsLearner(n_starts=5, by_action=False)
    chosen = Candidate(3, None)
    learned = learner.learn(truth.log, chosen, 0)
    return truth, learned, bootstrap(learner, truth.log, learned, chosen, 25)


def test_fits_of_arms_disagree_as_much_as_their_spread_says(arms):
    """Both estimate the same sampling error when the mixture is true."""
    _, learned, actual = arms
    deviations = np.sqrt((actual.rewards**2).mean(axis=0))
    ratio = np.sqrt(np.mean(deviations**2) / np.mean(learned.model.spread**2))
    assert 0.8 < ratio < 1.25


def test_without_alignment_fits_would_seem_to_disagree(arms):
    """The planted bug: states of each refit in a random order."""
    _, learned, actual = arms
    rng = np.random.default_rng(0)
    reference = learned.rewards()
    mixed = np.array([(d + reference)[rng.permutation(3)] - reference for d in actual.rewards])
    assert np.abs(mixed).mean() > 5 * np.abs(actual.rewards).mean()


def test_the_truth_is_within_epsilon(arms):
    truth, learned, actual = arms
    means = learned.model.means
    error = np.abs(means[align(means, truth.means)] - truth.means).max()
    assert error < actual.epsilon(0.05) * 1.5
    assert actual.epsilon(0.5) < actual.epsilon(0.05)
    rng_errors = prior_errors(learned, np.ones(5, bool))
    assert 0.5 < np.median(rng_errors) / actual.epsilon(0.5) < 2


def test_widening_never_narrows(arms):
    _, learned, actual = arms
    wide = ArmsLearner().widened(learned, actual).model
    assert (wide.spread >= learned.model.spread - 1e-12).all()
    np.testing.assert_array_equal(wide.means, learned.model.means)
    doubled = Disagreement(actual.rewards * 10, actual.shares)
    wider = ArmsLearner().widened(learned, doubled).model
    assert (wider.spread > 2 * learned.model.spread).all()


def test_a_linear_model_is_widened_by_the_variance_of_its_means():
    log, _ = ratings_log(n_users=300, n_actions=60, n_states=2, density=0.4, separation=2.0)
    learner = LinearLearner(reg=1.0, sweeps=10)
    chosen = Candidate(2, 3)
    learned = learner.learn(log, chosen, 0)
    actual = bootstrap(learner, log, learned, chosen, 6)
    # By hand: fits whose rewards differ by +-1 times the first feature in one state, and by +-2
    # times the second in the other, have weights (+-1, 0, ...) and (0, +-2, ...).
    x = learned.features
    by_hand = np.array([1.0, -1.0])[:, None, None] * np.stack([x[:, 0], 2 * x[:, 1]])
    wide = learner.widened(learned, Disagreement(by_hand, actual.shares[:2])).model
    added = wide.covariances - learned.model.covariances
    expected = np.zeros_like(added)
    expected[0, 0, 0], expected[1, 1, 1] = 1.0, 4.0
    np.testing.assert_allclose(added, expected, atol=1e-9)
    weights = actual.in_features(learned)
    # In our coordinates: what is left of the fits' differences has nothing of our features in it.
    left = np.nan_to_num(actual.rewards) - weights @ learned.features.T
    weighted = learned.counts * ~np.isnan(actual.rewards)
    remains = (left * weighted) @ learned.features
    scale = (np.abs(np.nan_to_num(actual.rewards)) * weighted) @ np.abs(learned.features)
    assert np.abs(remains / scale).max() < 1e-9


def test_an_action_that_no_resample_saw_counts_for_nothing():
    rewards = np.zeros((2, 1, 2))
    rewards[:, 0, 0] = [0.1, -0.3]
    rewards[:, 0, 1] = np.nan
    actual = Disagreement(rewards, np.zeros((2, 1)))
    assert actual.epsilon(0.5) == pytest.approx(0.3)
    assert actual.typical(np.array([4, 4])) == pytest.approx(np.sqrt((0.01 + 0.09) / 2))
