"""Exploration with exact propensities, and the policies that treat every user alike."""

import numpy as np
import pytest

from latentbandits import EXP4, UCB1, Decision, GaussianArms, LinearGaussian, mmIDS, mmTS, mTS, mUCB
from latentbandits.policies import Exploring, Popularity, Uniform
from latentbandits.policies.protocol import Asked
from latentbandits.policies.registry import Inputs, build
from latentbandits.testing import check_policy

RNG = np.random.default_rng(23)
ARMS = GaussianArms(RNG.random((3, 4)), 0.5, 0.2, [0.2, 0.3, 0.5])
LINEAR = LinearGaussian(RNG.normal(size=(3, 2)), 0.5, np.tile(0.1 * np.eye(2), (3, 1, 1)))


def features(n, rng):
    return rng.normal(size=(n, 4, 2))


class Plain:
    """A policy of one's own: the three methods, and how many actions there are."""

    n_actions = 4

    def init(self, n_sessions=1):
        return (np.zeros(n_sessions),)

    def decide(self, belief, context, rng, *, eligible=None, propensity=True):
        scores = rng.random((len(belief[0]), 4)) * [1.0, 2.0, 3.0, 4.0]
        action = np.where(True if eligible is None else eligible, scores, -1.0).argmax(axis=1)
        return Decision(action, np.zeros_like(action), None, "none", "Plain", eligible)

    def update(self, belief, context, decision, reward):
        rewards = np.asarray(reward, float)
        if rewards.shape != belief[0].shape or not np.isfinite(rewards).all():
            raise ValueError("rewards")
        if (decision.action >= 4).any() or context is not None:
            raise ValueError("action or context")
        return (belief[0] + rewards,)


CASES = {
    "mTS": (mTS(ARMS), None),
    "mmTS by quadrature": (mmTS(ARMS), None),
    "mmTS by draws": (mmTS(LINEAR), features),
    "mmTS by its own number of draws": (mmTS(LINEAR, propensity_draws=7), features),
    "mmIDS": (mmIDS(ARMS, draws=10), None),
    "EXP4": (EXP4(ARMS), None),
    "mUCB": (mUCB(ARMS), None),
    "UCB1": (UCB1(4), None),
    "a policy of one's own": (Plain(), None),
}


@pytest.mark.parametrize("name", CASES)
def test_exploring_keeps_every_promise(name):
    inner, context = CASES[name]
    check_policy(Exploring(inner, 0.3, draws=20), n_actions=4, context=context)


def test_propensities_by_hand():
    """Two states, of which the first is certain: its best action is 0 among the eligible."""
    model = GaussianArms([[0.9, 0.5, 0.1], [0.1, 0.5, 0.9]], 0.5, state_prior=[1.0, 0.0])
    policy, rng = Exploring(mTS(model), 0.3), np.random.default_rng(0)
    actual = policy.action_probabilities(policy.init(), None, rng)
    np.testing.assert_allclose(actual.values, [[0.8, 0.1, 0.1]])
    mask = np.array([[False, True, True]])
    actual = policy.action_probabilities(policy.init(), None, rng, eligible=mask)
    np.testing.assert_allclose(actual.values, [[0.0, 0.85, 0.15]])
    assert actual.kind == "exact"


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("restricted", [False, True])
def test_inverse_weighting_is_unbiased(name, restricted):
    """E[1{a} / p] = 1 for every eligible action, and every p is at least e / |eligible|.

    40,000 decisions; the mean of 1{a}/p has a standard error of at most sqrt(1 / (n p_min)), and
    six of them are allowed: a correct policy fails with probability below 1e-7.
    """
    n, e = 40_000 if name not in ("mmIDS", "a policy of one's own") else 5_000, 0.2
    inner, context = CASES[name]
    policy, rng = Exploring(inner, e, draws=10), np.random.default_rng(3)
    mask = np.tile([True, True, False, True], (n, 1)) if restricted else None
    size = 3 if restricted else 4
    one = context(1, rng) if context else None
    wide = None if one is None else np.repeat(one, n, axis=0)
    decision = policy.decide(policy.init(n), wide, rng, eligible=mask)
    assert decision.propensity.min() >= e / size - 1e-12
    weights = np.bincount(decision.action, 1 / decision.propensity, minlength=4) / n
    allowed = np.arange(4) != 2 if restricted else np.ones(4, bool)
    assert (np.abs(weights[allowed] - 1) < 6 * np.sqrt(size / e / n)).all(), weights
    assert (weights[~allowed] == 0).all()


def test_the_share_that_counts_the_explored_action_would_be_biased():
    """The planted bug: adding an explored action to the draws makes rare actions seem likelier."""
    policy, rng, n, draws, e = mmTS(LINEAR), np.random.default_rng(4), 40_000, 10, 0.2
    x = np.repeat(np.array([[[3.0, 0.0], [0.0, 3.0], [0.1, 0.1], [-3.0, -3.0]]]), n, axis=0)
    action, _ = policy.sample_actions(policy.init(n), Asked(x, None, rng), draws)
    explored = rng.random(n) < e
    played = np.where(explored, rng.integers(4, size=n), action[:, 0])
    counted = (action == played[:, None]).sum(axis=1) + explored
    wrong = (1 - e) * counted / (draws + explored) + e / 4
    weights = np.bincount(played, 1 / wrong, minlength=4) / n
    assert np.abs(weights - 1).max() > 6 * np.sqrt(4 / e / n)


@pytest.mark.parametrize("draws", [3, 50])
def test_counting_for_one_session_is_unbiased_too(draws):
    policy, rng, e = Exploring(mmTS(ARMS), 0.25), np.random.default_rng(5), 0.25
    belief, weights, n = policy.init(), np.zeros(4), 3000
    for _ in range(n):
        decision = policy.decide_counting(belief, None, rng, draws)
        assert decision.propensity_kind == "explored"
        assert decision.propensity[0] >= e / 4 - 1e-12
        weights[decision.action[0]] += 1 / decision.propensity[0] / n
    assert (np.abs(weights - 1) < 6 * np.sqrt(4 / e / n)).all()


def test_an_exact_policy_is_decided_as_usual_when_the_service_counts():
    policy = Exploring(mTS(ARMS), 0.25)
    decision = policy.decide_counting(policy.init(), None, np.random.default_rng(0), 10)
    assert decision.propensity_kind == "exact"


def test_what_it_learns_is_what_the_inner_policy_learns():
    inner, rng = mmTS(ARMS), np.random.default_rng(6)
    policy = Exploring(inner, 0.5)
    ours, theirs = policy.init(3), inner.init(3)
    for _ in range(5):
        decision = policy.decide(ours, None, rng)
        reward = rng.normal(size=3)
        ours = policy.update(ours, None, decision, reward)
        theirs = inner.update(theirs, None, Decision.logged(decision.action), reward)
    np.testing.assert_array_equal(ours.log_weights, theirs.log_weights)
    np.testing.assert_array_equal(
        policy.state_probabilities(ours), inner.state_probabilities(theirs)
    )
    assert (policy.learns_from, Exploring(EXP4(ARMS), 0.5).learns_from) == ("any", "own")


@pytest.mark.parametrize("e", [0, -0.1, 1.1, float("nan"), "x", True])
def test_a_wrong_share_is_refused(e):
    with pytest.raises(ValueError, match="probability of exploring"):
        Exploring(mTS(ARMS), e)


def test_what_is_no_policy_is_refused():
    with pytest.raises(TypeError, match=r"Exploring needs a policy, .*; got 'mmTS'"):
        Exploring("mmTS", 0.1)


def test_popularity_is_the_best_action_under_the_prior():
    policy = Popularity(ARMS)
    average = np.array([0.2, 0.3, 0.5]) @ ARMS.means
    decision = policy.decide(policy.init(5), None, np.random.default_rng(0))
    assert (decision.action == average.argmax()).all()
    assert (decision.propensity == 1).all()
    mask = np.ones((5, 4), bool)
    mask[:, average.argmax()] = False
    restricted = policy.decide(policy.init(5), None, np.random.default_rng(0), eligible=mask)
    assert (restricted.action == np.argsort(average)[-2]).all()


def test_popularity_with_features_is_that_of_the_average_weights():
    policy, rng = Popularity(LINEAR), np.random.default_rng(1)
    context = features(6, rng)
    decision = policy.decide(policy.init(6), context, rng)
    np.testing.assert_array_equal(
        decision.action, (context @ LINEAR.weights.mean(axis=0)).argmax(axis=1)
    )


def test_popularity_of_every_session_s_own_model():
    means = RNG.random((5, 3, 4))
    policy = Popularity(GaussianArms(means, 0.5))
    decision = policy.decide(policy.init(5), None, np.random.default_rng(0))
    np.testing.assert_array_equal(decision.action, means.mean(axis=1).argmax(axis=1))


@pytest.mark.parametrize("policy", [Popularity, Uniform])
def test_unpersonalised_policies_conform(policy):
    check_policy(policy(ARMS), n_actions=4)
    check_policy(policy(LINEAR), n_actions=4, context=features)


def test_the_registry_builds_them():
    policy = build("Exploring(policy=mmTS(catch_all=True), e=0.05)", Inputs(ARMS))
    assert (policy.e, policy.policy.catch_all, policy.name) == (0.05, True, "Exploring(mmTS)")
    assert isinstance(build("popularity", Inputs(LINEAR)), Popularity)
