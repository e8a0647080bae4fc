"""Knowledge gradient and lookahead: against recursion by hand, quadrature, and their limits."""

import numpy as np
import pytest

from latentbandits import (
    BernoulliArms,
    CategoricalArms,
    Decision,
    ExponentialArms,
    GaussianArms,
    LinearGaussian,
    Log1pRewards,
    PoissonArms,
    mLookahead,
    mmGreedy,
)
from latentbandits.beliefs import joint, planning
from latentbandits.beliefs.joint import JointBelief
from latentbandits.models.composed.known import Known
from latentbandits.policies import registry
from latentbandits.policies.checked import Asked
from latentbandits.testing import check_policy
from latentbandits_related.policy_reuse import PolicyReuse
from tests.reference import planning as slow

RNG = np.random.default_rng(4)


def clicks(n, rng):
    return rng.integers(0, 2, n).astype(float)


def features(n, rng):
    return rng.normal(size=(n, 4, 2))


def problem(seed, n_states=2, n_actions=3):
    rng = np.random.default_rng(seed)
    return BernoulliArms.from_means(
        0.1 + 0.8 * rng.random((n_states, n_actions)), 0.15, rng.dirichlet(np.ones(n_states))
    )


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize(("steps", "remaining"), [(1, 1), (1, 7), (2, 1), (2, 2), (2, 9), (3, 5)])
def test_values_by_recursion(known, steps, remaining):
    """After some rewards, for models that sessions share and that have instances."""
    shared = problem(1)
    own = BernoulliArms(
        np.stack([shared.alpha, shared.alpha[::-1]]), np.stack([shared.beta, shared.beta[::-1]])
    )
    for model in (shared, own):
        n = 2
        planned = Known(model) if known else model
        belief = joint.prior(planned, n)
        history = [(0, 1), (2, 0), (0, 1)]
        for action, reward in history:
            belief = joint.condition(
                planned, belief, None, np.full(n, action), np.full(n, float(reward))
            )
        left = np.full(n, float(remaining))
        actual = planning.action_values(planned, belief, None, left, steps)
        for i in range(n):
            alpha, beta = (
                (a if a.ndim == 2 else a[i]) for a in (model.alpha.copy(), model.beta.copy())
            )
            start = (alpha / (alpha + beta), None) if known else (alpha, beta)
            after = (*start, np.exp(model.log_state_prior[0]))
            for action, reward in history:
                after, _ = slow.condition(*after, action, reward)
            np.testing.assert_allclose(actual[i], slow.values(*after, remaining, steps), rtol=1e-12)


def test_gaussian_knowledge_gradient_by_hand():
    """One state, one uncertain arm against a sure one: E[max(c, X)] of a normal X is known."""
    from scipy.stats import norm

    model = GaussianArms([[0.5, 0.4]], noise=0.5, spread=[[0.0, 0.3]])
    deviation = 0.3**2 / np.sqrt(0.3**2 + 0.5**2)  # of the posterior mean after one reward
    z = (0.4 - 0.5) / deviation
    expected = 0.5 + deviation * (z * norm.cdf(z) + norm.pdf(z))
    actual = planning.action_values(model, joint.prior(model, 1), None, np.array([21.0]), 1)[0]
    assert actual[0] == pytest.approx(0.5 + 20 * 0.5, rel=1e-12)
    assert actual[1] == pytest.approx(0.4 + 20 * expected, rel=0.01)  # five nodes of a kink


def test_amounts_are_planned_above_the_open_end_of_their_support():
    """Nodes of log(1 + r) models reach below -1; the fine quadrature is over log(1 + r)."""
    inner = GaussianArms([[0.0, 1.0], [0.8, 0.2]], 0.5, 0.2)
    model = Log1pRewards(inner)
    belief, left = joint.prior(model, 1), np.array([10.0])
    nodes, shares = np.polynomial.hermite_e.hermegauss(81)
    expected = joint.mean_rewards(model, belief, None)[0].copy()
    for action in range(2):
        for state in range(2):
            level = inner.means[state, action] + np.hypot(0.5, 0.2) * nodes
            later = [
                joint.mean_rewards(
                    model,
                    joint.condition(model, belief, None, np.array([action]), np.array([reward])),
                    None,
                ).max()
                for reward in np.expm1(level)
            ]
            expected[action] += 0.5 * 9 * float(shares @ later) / shares.sum()
    actual = planning.action_values(model, belief, None, left, 1)[0]
    np.testing.assert_allclose(actual, expected, rtol=0.05)
    check_policy(mLookahead(model, steps=1, horizon=10), 2, reward=clicks)


MODELS = {
    "gaussian": (GaussianArms(RNG.random((2, 4)), 0.5, 0.2), None, None),
    "bernoulli": (problem(2, 2, 4), None, clicks),
    "categorical": (CategoricalArms(1 + RNG.random((2, 4, 3)), [0.0, 1.0, 2.0]), None, clicks),
    "poisson": (PoissonArms.from_means(0.2 + RNG.random((2, 4)), 0.2), None, clicks),
    "exponential": (ExponentialArms.from_means(0.5 + RNG.random((2, 4)), 0.2), None, clicks),
    "linear": (LinearGaussian(RNG.normal(size=(2, 2)), 0.5, [np.eye(2)] * 2), features, None),
}


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name == "bernoulli" else pytest.mark.slow) for name in MODELS],
)
def test_policies_keep_their_promises(name):
    model, context, reward = MODELS[name]
    check_policy(mLookahead(model, steps=1, horizon=20), 4, context, reward)


def test_lookahead_keeps_its_promises():
    check_policy(mLookahead(problem(3, 2, 2), horizon=20), 2, reward=clicks)


def test_the_last_round_is_greedy():
    """And so are the rounds after the horizon."""
    model = problem(5, 3, 4)
    for policy in (mLookahead(model, steps=1, horizon=3), mLookahead(model, horizon=3)):
        greedy = mmGreedy(model)
        belief, other = policy.init(), greedy.init()
        for t in range(5):
            chances = policy.action_probabilities(belief, None, RNG).values
            if t >= 2:
                expected = greedy.action_probabilities(other, None, RNG).values
                np.testing.assert_array_equal(chances, expected)
            decision = Decision.logged([t % 4])
            belief = policy.update(belief, None, decision, [1.0])
            other = greedy.update(other, None, decision, [1.0])


def test_equal_actions_share():
    model = BernoulliArms(alpha=[[2.0, 2.0, 1.0]], beta=[[1.0, 1.0, 9.0]])
    for policy in (mLookahead(model, steps=1, horizon=30), mLookahead(model, horizon=30)):
        chances = policy.action_probabilities(policy.init(), None, RNG)
        np.testing.assert_allclose(chances.values, [[0.5, 0.5, 0.0]])
        assert chances.kind == "exact"


@pytest.mark.parametrize("horizon", [0, -1, 2.5, None])
def test_bad_horizons(horizon):
    model = problem(6)
    with pytest.raises(ValueError, match="horizon must be a whole number of at least 1"):
        mLookahead(model, horizon=horizon)


def test_sizes_beyond_the_limit():
    arms = GaussianArms(RNG.random((5, 10)), 0.5, 0.2)
    with pytest.raises(ValueError, match=r"\(10 actions x 25 outcomes\) \^ 2 steps = 62,500"):
        mLookahead(arms, horizon=20)
    with pytest.raises(ValueError, match="the limit is 20,000"):
        mLookahead(GaussianArms(RNG.random((5, 1000)), 0.5, 0.2), steps=1, horizon=20)
    with pytest.raises(ValueError, match="steps must be a whole number"):
        mLookahead(problem(7), steps=0, horizon=20)
    linear = mLookahead(LinearGaussian(RNG.normal(size=(2, 2)), 0.5), horizon=9)
    with pytest.raises(ValueError, match="the limit is 20,000"):
        linear.decide(linear.init(), RNG.normal(size=(1, 50, 2)), RNG)


def test_one_step_is_the_knowledge_gradient_of_policy_reuse():
    """Where every action is best in some state, and the model is certain.

    Clicks: the scores are the same up to a constant, exactly. A score of Gaussian rewards is the
    same to within the error of its five nodes.
    """
    clicks = BernoulliArms.from_means([[0.9, 0.5, 0.1], [0.2, 0.6, 0.3], [0.3, 0.2, 0.8]], 1e-9)
    gaussian = GaussianArms([[0.9, 0.5, 0.1], [0.2, 0.6, 0.3], [0.3, 0.2, 0.8]], noise=0.5)
    for model, atol in ((clicks, 1e-12), (gaussian, 0.15)):
        policy = mLookahead(Known(model), steps=1, horizon=20)
        reuse = PolicyReuse(model, rule="KG", horizon=20)
        belief, other = policy.init(2), reuse.init(2)
        for action, reward in (([0, 1], [1.0, 0.0]), ([2, 2], [0.0, 1.0])):
            decision = Decision.logged(action)
            belief = policy.update(belief, None, decision, reward)
            other = reuse.update(other, None, decision, reward)
        values = planning.action_values(
            Known(model), JointBelief(*belief[:2]), None, 20 - belief.rounds, 1
        )
        scores = reuse._scores(other, reuse._library(None, None)[1])
        shift = (values - scores)[:, 2:]
        np.testing.assert_allclose(values, scores + shift, atol=atol)
        played = policy._scores(belief, Asked(None, None, None))
        np.testing.assert_allclose(played, values, rtol=1e-9)


def test_old_names_say_what_they_are_now():
    for name in ("mKG", "mmKG"):
        with pytest.raises(ValueError, match=r"is now mLookahead\(steps=1\)"):
            registry.find(name)
