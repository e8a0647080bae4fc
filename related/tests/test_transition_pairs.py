"""Transitions from pair frequencies (after SL-EC): the truth is found, and bad input is refused."""

import numpy as np
import pytest

from latentbandits import BernoulliArms, GaussianArms, LinearGaussian
from latentbandits.learning.transitions import UserSequence, fit_transition
from latentbandits_related import fit_transition_pairs

TRANSITION = np.array([[0.9, 0.1, 0.0], [0.05, 0.8, 0.15], [0.2, 0.1, 0.7]])


def sequences(clicks, means, seed, n_users=200, n_rounds=100):
    rng = np.random.default_rng(seed)
    state = rng.integers(3, size=n_users)
    actions = rng.integers(means.shape[1], size=(n_users, n_rounds))
    rewards = np.empty((n_users, n_rounds))
    for t in range(n_rounds):
        mean = means[state, actions[:, t]]
        noisy = mean + 0.3 * rng.normal(size=n_users)
        rewards[:, t] = rng.random(n_users) < mean if clicks else noisy
        state = (rng.random((n_users, 1)) > TRANSITION[state].cumsum(axis=1)).sum(axis=1)
    return [UserSequence(a, r) for a, r in zip(actions, rewards, strict=True)]


@pytest.mark.parametrize("kind", ["gaussian", "clicks"])
def test_pair_frequencies_find_the_transition(kind):
    """Users of 100 rounds: to 0.06, and near the estimate of largest likelihood."""
    means = np.array([[0.9, 0.1, 0.3], [0.2, 0.8, 0.1], [0.3, 0.2, 0.9]])
    if kind == "gaussian":
        model = GaussianArms(means, 0.3)
    else:
        model = BernoulliArms(1e6 * means, 1e6 * (1 - means))
    log = sequences(kind == "clicks", means, 5, n_users=1000 if kind == "clicks" else 200)
    actual = fit_transition_pairs(model, log)
    np.testing.assert_allclose(actual.transition.sum(axis=1), 1)
    assert np.abs(actual.transition - TRANSITION).max() < 0.06
    if kind == "gaussian":
        likely = fit_transition(model, log).transition
        assert np.abs(actual.transition - likely).max() < 0.06
    assert actual.markov(model).transition.shape == (3, 3)


@pytest.mark.parametrize(
    ("model", "log", "words"),
    [
        (GaussianArms([[0.1], [0.9]], 0.3), [], "at least one user's sequence"),
        (GaussianArms([[0.1], [0.9]], 0.3), [UserSequence([0], [1.0])], "two rounds in a row"),
        (GaussianArms([[0.1], [0.9]], 0.3), [UserSequence([0, 1], [1.0, 1.0])], "has the action 1"),
        (LinearGaussian([[0.1], [0.9]], 0.3), [UserSequence([0], [1.0])], "fixed list of actions"),
    ],
)
def test_sequences_that_cannot_be_are_refused(model, log, words):
    with pytest.raises(ValueError, match=words):
        fit_transition_pairs(model, log)
