"""Users of a model whose state moves: states follow the chain, parameters stay.

20,000 users; six standard errors are allowed, which a right sampler exceeds with probability below
1e-7.
"""

import numpy as np

from latentbandits import GaussianArms, Markov
from latentbandits.environments import UsersOfModel

N = 20_000
TRANSITION = np.array([[0.9, 0.1], [0.4, 0.6]])
PRIOR = np.array([0.25, 0.75])
ARMS = GaussianArms([[0.0, 1.0], [2.0, 3.0]], 0.5, 0.2, PRIOR)


def shares_after(n_rounds):
    rng = np.random.default_rng(0)
    runs = UsersOfModel(Markov(ARMS, TRANSITION)).start(N, 10, rng)
    rounds = [runs.round(t, rng) for t in range(n_rounds)]
    return rounds, runs.path[:, n_rounds - 1]


def test_states_follow_the_chain():
    for n_rounds in (1, 2, 4):
        _, state = shares_after(n_rounds)
        share = (PRIOR @ np.linalg.matrix_power(TRANSITION, n_rounds - 1))[0]
        error = np.sqrt(share * (1 - share) / N)
        assert abs((state == 0).mean() - share) < 6 * error
        if n_rounds > 1:  # a state that stands still would be noticed
            assert abs(PRIOR[0] - share) > 6 * error


def test_a_user_who_comes_back_to_a_state_has_the_same_parameters():
    rounds, _ = shares_after(6)
    means = np.stack([outcome.means for outcome in rounds])
    for user in means.swapaxes(0, 1)[:200]:
        assert len(np.unique(user, axis=0)) <= 2


def test_noise_and_means_of_the_first_round():
    rounds, _ = shares_after(1)
    mean = PRIOR @ ARMS.means
    spread = rounds[0].means.std(axis=0) / np.sqrt(N)
    assert (np.abs(rounds[0].means.mean(axis=0) - mean) < 6 * spread).all()
    noise = (rounds[0].rewards - rounds[0].means).std()
    assert abs(noise - 0.5) < 6 * 0.5 / np.sqrt(2 * 2 * N)
