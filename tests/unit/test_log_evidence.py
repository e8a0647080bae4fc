"""The evidence that chooses the number of states, beside brute-force integrals."""

import numpy as np
import pytest
from evidence.clicks import other_problem
from scipy.stats import beta

from latentbandits.learning.arms.learner import ArmsLearner, log_evidence, observed
from latentbandits.learning.arms.mixture import Mixture, Problem, ascend
from latentbandits.learning.logs.rows import Log, make_family
from latentbandits.learning.reading import split_users


def clicks_of(rates, n_users, n_rounds, seed):
    """Users of two equally frequent kinds, who click on one action."""
    rng = np.random.default_rng(seed)
    users = np.repeat(np.arange(n_users), n_rounds)
    rewards = (rng.random(len(users)) < np.asarray(rates)[users % 2]).astype(np.float64)
    ids = tuple(map(str, range(n_users))), ("a",)
    return Log(users, np.zeros(len(users), np.int64), rewards, *ids)


def ascent(log, rates):
    family = make_family("bernoulli", log.rewards)
    problem = Problem.from_log(family, log)
    n = log.n_events / len(rates)
    phi = np.array([[[n * rate, n * (1 - rate)]] for rate in rates])[None]
    shares = np.full((1, len(rates)), log.n_users / len(rates))
    return problem, ascend(problem, Mixture(phi, shares, np.array([10.0]), np.ones((1, 1))))


def integrated(log, problem, mixture):
    """Log p(rewards) of two states given the pooled prior: over both rates and the share."""
    centre = float(problem.centre[0, 0])
    strength = float(mixture.strength[0])
    rate = (np.arange(200) + 0.5) / 200
    share = (np.arange(60) + 0.5) / 60
    # Users with equally many clicks have the same likelihood.
    n_rounds = log.n_events // log.n_users
    ones, times = np.unique(np.bincount(log.users, log.rewards), return_counts=True)
    likelihood = rate ** ones[:, None] * (1 - rate) ** (n_rounds - ones)[:, None]  # (U, T)
    prior = beta(strength * centre, strength * (1 - centre)).pdf(rate) / len(rate)
    total = np.empty((len(share), len(rate), len(rate)))
    for i, p in enumerate(share):
        mixed = p * likelihood[:, :, None] + (1 - p) * likelihood[:, None, :]
        total[i] = np.tensordot(times, np.log(mixed), axes=1)
    top = total.max()
    weighted = np.exp(total - top) * prior[:, None] * prior / len(share)
    return top + float(np.log(weighted.sum()))


@pytest.mark.parametrize("rates", [(0.2, 0.6), (0.1, 0.8)])
def test_the_correction_is_what_the_elbo_loses(rates):
    """Two states in either order have the same evidence; the mixture is one of the orders."""
    log = clicks_of(rates, n_users=120, n_rounds=6, seed=1)
    problem, actual = ascent(log, rates)
    exact = integrated(log, problem, actual.mixture) - np.log(2)
    missing = observed(problem, actual.mixture).missing
    lost = exact - float(actual.elbo[0])
    assert lost > 0.2
    assert missing == pytest.approx(lost, abs=0.25 * lost + 0.1)


def test_nothing_is_lost_where_labels_are_known():
    log = clicks_of((0.02, 0.98), n_users=200, n_rounds=60, seed=2)
    problem, actual = ascent(log, (0.02, 0.98))
    assert observed(problem, actual.mixture).missing == pytest.approx(0.0, abs=1e-3)


def test_one_state_pays_for_its_means():
    """A flat prior on the rate of one state, whatever the strength of the pooled prior."""
    log = clicks_of((0.3, 0.3), n_users=200, n_rounds=10, seed=3)
    problem, actual = ascent(log, (0.3,))
    heights = []
    for strength in (10.0, 100.0, 1e6):
        mixture = actual.mixture._replace(strength=np.array([strength]))
        mixture = problem.step(mixture, problem.sums(mixture))._replace(strength=mixture.strength)
        elbo = float(problem.elbo(mixture, problem.sums(mixture))[0])
        heights.append(log_evidence(problem.family, elbo, observed(problem, mixture)))
    assert np.ptp(heights) < 0.15


def test_states_that_overlap_are_found():
    """Rare clicks: 60 impressions hardly tell three kinds of users apart."""
    log = other_problem(0).log
    split = split_users(log, 0)
    learner = ArmsLearner(make_family("bernoulli", log.rewards))
    selection = learner.select(split, (1, 2, 3))
    assert [row.n_states for row in selection.rows] == [1, 2, 3]
    assert selection.chosen.n_states == 3
    # The planted mistake: the ELBO itself is highest for one state.
    assert max(selection.rows, key=lambda row: row.elbo).n_states == 1
