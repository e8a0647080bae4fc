"""Held-out rewards, predicted one by one, against the evidence of the whole sequence at once."""

import numpy as np
import pytest
from scipy.stats import kstest, multivariate_normal

from latentbandits import GaussianArms, LinearGaussian
from latentbandits.learning.assess.heldout import MOST_ROUNDS, score
from latentbandits.learning.generate import generate_arms, generate_ratings
from latentbandits.learning.logs.rows import Log

RNG = np.random.default_rng(0)
ARMS = GaussianArms(RNG.random((2, 3)), 0.4, RNG.random((2, 3)) / 3, [0.3, 0.7])
ROOTS = RNG.standard_normal((2, 2, 2)) / 3
LINEAR = LinearGaussian(RNG.standard_normal((2, 2)), 0.4, ROOTS @ ROOTS.swapaxes(1, 2), [0.6, 0.4])
FEATURES = RNG.standard_normal((4, 2))


def _log(n_actions):
    lengths = [5, 1, 7, 3]
    users = np.repeat(np.arange(4), lengths)
    actions = RNG.integers(n_actions, size=len(users))
    rewards = RNG.standard_normal(len(users))
    ids = tuple("abcd"), tuple(str(a) for a in range(n_actions))
    return Log(users, actions, rewards, *ids)


@pytest.mark.parametrize(
    ("model", "features"), [(ARMS, np.eye(3)), (LINEAR, FEATURES)], ids=["arms", "linear"]
)
def test_evidence_is_that_of_the_whole_sequence(model, features):
    """Given the state, a user's rewards are jointly normal: X m and X C X' + sigma^2 I."""
    log = _log(len(features))
    actual = score(model, log, None if model is ARMS else features)
    means = model.means if model is ARMS else model.weights
    covariances = (
        [np.diag(spread**2) for spread in model.spread] if model is ARMS else model.covariances
    )
    for user in range(log.n_users):
        events = slice(log.starts[user], log.starts[user + 1])
        x, reward = features[log.actions[events]], log.rewards[events]
        density = sum(
            model.state_prior[s]
            * multivariate_normal(
                x @ means[s], x @ covariances[s] @ x.T + 0.16 * np.eye(len(x))
            ).pdf(reward)
            for s in range(2)
        )
        assert actual.by_user()[user] == pytest.approx(np.log(density), rel=1e-9)
    assert actual.evidence == pytest.approx(actual.by_user().sum() / log.n_events)


def test_first_rounds_are_judged_by_the_prior_by_hand():
    log = _log(3)
    actual = score(ARMS, log)
    first = actual.round == 0
    mean = ARMS.state_prior @ ARMS.means[:, actual.action[first]]
    np.testing.assert_allclose(actual.error[first], actual.reward[first] - mean, rtol=1e-12)
    np.testing.assert_array_equal(actual.reward[first], log.rewards[log.starts[:-1]])


def test_the_true_model_is_calibrated_and_a_wrong_noise_is_not():
    truth = generate_arms(n_users=300, n_rounds=20, seed=4)
    actual = score(GaussianArms(truth.means, truth.noise, 0.0, truth.shares), truth.log)
    assert kstest(actual.uniform, "uniform").pvalue > 0.01
    assert actual.coverage(0.9) == pytest.approx(0.9, abs=0.015)
    wrong = score(GaussianArms(truth.means, 0.8 * truth.noise, 0.0, truth.shares), truth.log)
    assert kstest(wrong.uniform, "uniform").pvalue < 1e-6
    assert wrong.evidence < actual.evidence


def test_linear_truth_is_calibrated():
    made = generate_ratings(n_users=200, n_actions=60, n_states=3, density=0.4, seed=1)
    ids = tuple(map(str, range(200))), tuple(map(str, range(60)))
    log = Log(made.users, made.actions, made.rewards, *ids)
    actual = score(made.model, log, made.action_vectors)
    assert kstest(actual.uniform, "uniform").pvalue > 0.01


def test_long_logs_are_judged_on_their_first_rounds():
    truth = generate_arms(n_users=3, n_rounds=MOST_ROUNDS + 50, n_states=2, n_actions=2)
    actual = score(GaussianArms(truth.means, 0.5), truth.log)
    assert len(actual.error) == 3 * MOST_ROUNDS
