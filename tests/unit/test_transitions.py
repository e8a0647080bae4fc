"""Learning how the state moves: the E step against all paths, EM against the truth."""

import itertools
import math

import numpy as np
import pytest

from latentbandits import BernoulliArms, GaussianArms
from latentbandits.learning.transitions import Rounds, UserSequence, expected_states, fit_transition

NOISE = 0.15
MODEL = GaussianArms([[1.0, 0.0], [0.2, 0.8], [0.6, 0.4]], noise=NOISE)
TRANSITION = np.array([[0.8, 0.15, 0.05], [0.1, 0.7, 0.2], [0.3, 0.1, 0.6]])
PRIOR = np.array([0.5, 0.3, 0.2])


def brute_force(densities):
    """Expected moves and first states over all paths of every user."""
    moves, first, log_likelihood = np.zeros((3, 3)), np.zeros(3), 0.0
    for density in densities:
        own_moves, own_first, total = np.zeros((3, 3)), np.zeros(3), 0.0
        for path in itertools.product(range(3), repeat=len(density)):
            weight = PRIOR[path[0]] * math.prod(
                TRANSITION[a, b] for a, b in itertools.pairwise(path)
            )
            weight *= math.prod(math.exp(density[t, s]) for t, s in enumerate(path))
            total += weight
            own_first[path[0]] += weight
            for a, b in itertools.pairwise(path):
                own_moves[a, b] += weight
        moves += own_moves / total
        first += own_first / total
        log_likelihood += math.log(total)
    return moves, first, log_likelihood


def test_the_expected_moves_are_those_of_all_paths():
    rng = np.random.default_rng(0)
    densities = [rng.standard_normal((length, 3)) for length in (5, 1, 3)]
    rounds = Rounds.of_users(np.array([0, 5, 6, 9]))
    ours = expected_states(np.concatenate(densities)[rounds.place], rounds, TRANSITION, PRIOR)
    np.testing.assert_allclose(ours.states.sum(axis=1), 1)
    found = ours.moves, ours.first(rounds), ours.log_likelihood
    for actual, expected in zip(found, brute_force(densities), strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-10)


def sequences(n_users, n_rounds, seed=0):
    rng = np.random.default_rng(seed)
    results = []
    for _ in range(n_users):
        state, rewards = rng.choice(3, p=PRIOR), []
        actions = rng.integers(0, 2, n_rounds)
        for action in actions:
            rewards.append(MODEL.means[state, action] + NOISE * rng.standard_normal())
            state = rng.choice(3, p=TRANSITION[state])
        results.append(UserSequence(actions, rewards))
    return results


def test_it_never_loses_likelihood_and_finds_the_transition():
    fit = fit_transition(MODEL, sequences(150, 60))
    assert (np.diff(fit.log_likelihoods) > -1e-6).all()
    np.testing.assert_allclose(fit.transition.sum(axis=1), 1)
    # 9,000 rounds, states all but seen: a row of 2,000 visits has errors of about 0.01.
    assert np.abs(fit.transition - TRANSITION).max() < 0.05
    assert np.abs(fit.state_prior - PRIOR).max() < 0.15
    assert fit.markov(MODEL).transition.shape == (3, 3)


def test_likelihoods_of_very_unlikely_rewards_do_not_underflow():
    sharp = GaussianArms([[1.0], [0.0]], noise=1e-3)
    fit = fit_transition(sharp, [UserSequence([0] * 6, [0.5, 0.4, 0.6, 0.4, 0.6, 0.5])])
    assert np.isfinite(fit.transition).all()


@pytest.mark.parametrize(
    ("users", "message"),
    [
        ([], "at least one"),
        ([UserSequence([0, 1], [1.0])], "user 0 has 2 actions and 1 rewards"),
        ([UserSequence([0], [1.0]), UserSequence([5], [1.0])], "user 1 has the action 5"),
        ([UserSequence([0], [np.nan])], "rewards of user 0 must be finite"),
    ],
)
def test_bad_sequences_are_refused(users, message):
    with pytest.raises(ValueError, match=message):
        fit_transition(MODEL, users)


def test_rewards_outside_the_family_are_refused():
    with pytest.raises(ValueError, match="0 or 1"):
        fit_transition(BernoulliArms([[1.0]], 1.0), [UserSequence([0], [0.5])])
