"""Draws have the distribution they claim: chi-square tests that reject a correct sampler with
probability 1e-6, each with a planted bug that the same test must reject.
"""

import numpy as np
import pytest
from scipy.stats import chisquare

from latentbandits import GaussianArms, LinearGaussian, LinTS, mmTS, mTS
from latentbandits.beliefs import joint
from latentbandits.policies import decision

ALPHA = 1e-6
N = 50_000


def p_value(counts, probabilities):
    kept = probabilities > 0
    assert counts[~kept].sum() == 0
    if kept.sum() == 1:
        return 1.0
    expected = probabilities[kept] / probabilities[kept].sum() * counts.sum()
    return chisquare(counts[kept], expected).pvalue


PROBABILITIES = np.array([0.4, 0.3, 0.2, 0.07, 0.03])


def test_states_are_drawn_from_their_weights():
    log_weights = np.broadcast_to(np.log(PROBABILITIES) - 1e6, (N, 5))
    drawn = joint.sample(log_weights, np.random.default_rng(0))
    assert p_value(np.bincount(drawn, minlength=5), PROBABILITIES) > ALPHA


def test_a_normal_in_place_of_a_gumbel_variable_is_caught():
    rng = np.random.default_rng(0)
    drawn = (np.log(PROBABILITIES) + rng.standard_normal((N, 5))).argmax(axis=1)
    assert p_value(np.bincount(drawn, minlength=5), PROBABILITIES) < ALPHA


def test_systematic_draws_have_the_right_marginals():
    log_weights = np.broadcast_to(np.log(PROBABILITIES) - 300, (N, 5))
    drawn = joint.sample_many(log_weights, 7, np.random.default_rng(1))
    assert (np.diff(drawn, axis=1) >= 0).all()
    counts = np.stack([(drawn == s).sum(axis=1) for s in range(5)], axis=1)
    assert (np.abs(counts - 7 * PROBABILITIES) < 1).all()  # within one of its share, always
    rng = np.random.default_rng(2)
    picked = drawn[np.arange(N), rng.integers(7, size=N)]  # sorted, so only a random one is a draw
    assert p_value(np.bincount(picked, minlength=5), PROBABILITIES) > ALPHA
    # Planted: without a uniform of its own, a session's counts are always the same.
    stuck = joint.systematic(log_weights, 7, 0.5)
    picked = stuck[np.arange(N), rng.integers(7, size=N)]
    assert p_value(np.bincount(picked, minlength=5), PROBABILITIES) < ALPHA


def test_actions_are_drawn_from_their_probabilities():
    wide = np.broadcast_to(PROBABILITIES, (N, 5))
    drawn = decision.draw(wide, np.random.default_rng(3))
    assert p_value(np.bincount(drawn, minlength=5), PROBABILITIES) > ALPHA


@pytest.mark.parametrize("make", [mTS, mmTS])
def test_thompson_plays_actions_as_often_as_they_are_best(make):
    model = GaussianArms([[0.5, 0.3, 0.1], [0.2, 0.6, 0.55]], 0.5, 0.2, [0.3, 0.7])
    policy = make(model)
    probabilities = policy.action_probabilities(policy.init(), None, np.random.default_rng(0))
    decision = policy.decide(policy.init(N), None, np.random.default_rng(4), propensity=False)
    counts = np.bincount(decision.action, minlength=3)
    assert p_value(counts, probabilities.values[0]) > ALPHA
    # Planted: the propensities of a policy that forgot the prior over states.
    forgetful = make(GaussianArms(model.means, 0.5, 0.2))
    wrong = forgetful.action_probabilities(forgetful.init(), None, np.random.default_rng(0))
    assert p_value(counts, wrong.values[0]) < ALPHA


def test_linear_draws_have_the_posterior_covariance():
    """Variance of x'theta over draws, as a chi-square: within 5 standard errors."""
    rng = np.random.default_rng(5)
    policy = LinTS(3, noise=0.5)
    belief = policy.init()
    for _ in range(5):
        context = rng.normal(size=(1, 4, 3))
        decision = policy.decide(belief, context, rng)
        belief = policy.update(belief, context, decision, rng.normal(size=1))
    context = rng.normal(size=(1, 4, 3))
    draws = policy.model.sample_rewards(
        belief.parameters, context, np.zeros((1, N), np.int64), rng
    )[0]
    covariance = context[0] @ belief.parameters.covariance[0, 0] @ context[0].T
    error = np.sqrt(2 / N) * np.diag(covariance)
    assert (np.abs(draws.var(axis=0) - np.diag(covariance)) < 5 * error).all()
    prior = np.einsum("kd,kd->k", context[0], context[0])
    assert (np.abs(draws.var(axis=0) - prior) > 5 * error).any()  # planted: the prior's


@pytest.mark.parametrize("n_draws", [4, N])  # fewer than states, and many: two ways of drawing
def test_draws_of_a_lone_session_belong_to_their_states(n_draws):
    """Means of x'theta given each state: within 5 standard errors."""
    rng = np.random.default_rng(6)
    weights = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 2.0], [3.0, 3.0]])
    roots = rng.normal(size=(4, 2, 2))
    model = LinearGaussian(weights, 0.5, roots @ roots.swapaxes(1, 2))
    context = rng.normal(size=(1, 3, 2))
    parameters = model.parameters(1)
    mean, variance = (part[0] for part in model.posterior_rewards(parameters, context))
    state = rng.integers(4, size=(N // n_draws, n_draws))
    draws = [model.sample_rewards(parameters, context, one[None], rng)[0] for one in state]
    rewards, state = np.concatenate(draws), state.ravel()

    def within(states):
        chosen = [rewards[states == s] for s in range(4)]
        error = [np.sqrt(variance[s] / len(rows)) for s, rows in enumerate(chosen)]
        off = [np.abs(rows.mean(axis=0) - mean[s]) for s, rows in enumerate(chosen)]
        return (np.array(off) < 5 * np.array(error)).all()

    assert within(state)
    assert not within(np.sort(state))  # planted: draws in the order of their states


def test_counted_propensities_are_those_of_the_decisions():
    """Of 4,000 decisions; their propensities are counts of 20 draws and themselves."""
    model = GaussianArms([[0.5, 0.3, 0.1], [0.2, 0.6, 0.55]], 0.5, 0.2, [0.3, 0.7])
    policy, rng, n, draws = mmTS(model), np.random.default_rng(7), 4_000, 20
    mask = np.array([[True, True, False]])
    exact = policy.action_probabilities(policy.init(), None, rng, eligible=mask).values[0]
    made = [
        policy.decide_counting(policy.init(), None, rng, draws, eligible=mask) for _ in range(n)
    ]
    actions = np.array([decision.action[0] for decision in made])
    chances = np.array([decision.propensity[0] for decision in made])
    assert p_value(np.bincount(actions, minlength=3), exact) > ALPHA
    for action in (0, 1):
        actual = chances[actions == action]
        expected = (draws * exact[action] + 1) / (draws + 1)  # the decision itself is one of them
        error = np.sqrt(exact[0] * exact[1] / draws / len(actual))
        assert abs(actual.mean() - expected) < 5 * error
        assert abs(actual.mean() - exact[action]) > 5 * error  # planted: as if it were not
    assert {decision.propensity_kind for decision in made} == {"counted"}
