"""Bayes-UCB: quantiles of mixtures against brute force, for every family of models."""

import numpy as np
import pytest

from latentbandits import (
    BernoulliArms,
    CategoricalArms,
    Ensemble,
    ExponentialArms,
    GaussianArms,
    GaussianArmsUnknownNoise,
    LinearGaussian,
    LinearGaussianUnknownNoise,
    LogisticLinear,
    Markov,
    PoissonArms,
    mBayesUCB,
    mmBayesUCB,
)
from latentbandits.beliefs import joint
from latentbandits.models.protocol import is_order_free, with_defaults
from latentbandits.policies.latent.ucb import largest_quantiles
from latentbandits.testing import check_policy

RNG = np.random.default_rng(5)
MEANS = 0.1 + 0.8 * RNG.random((3, 4))
ROOTS = RNG.normal(size=(3, 2, 2))
WEIGHTS, COVARIANCES = RNG.normal(size=(3, 2)), 0.3 * ROOTS @ ROOTS.swapaxes(1, 2)
PRIOR = [0.2, 0.3, 0.5]


def features(n, rng):
    return rng.normal(size=(n, 4, 2))


def clicks(n, rng):
    return rng.integers(0, 2, n).astype(float)


GAUSSIAN = GaussianArms(MEANS, 0.5, 0.2, PRIOR)
FAMILIES = {
    "gaussian": (GAUSSIAN, None, None),
    "unknown noise": (GaussianArmsUnknownNoise(MEANS, 0.5, 4.0, 6.0, PRIOR), None, None),
    "bernoulli": (BernoulliArms.from_means(MEANS, 0.1, PRIOR), None, clicks),
    "poisson": (PoissonArms.from_means(3 * MEANS, 0.5, PRIOR), None, clicks),
    "exponential": (ExponentialArms.from_means(3 * MEANS, 0.5, PRIOR), None, clicks),
    "categorical": (
        CategoricalArms(RNG.random((3, 4, 2)) * 5 + 0.5, [0.0, 1.0], PRIOR), None, clicks
    ),
    "linear": (LinearGaussian(WEIGHTS, 0.5, COVARIANCES, PRIOR), features, None),
    "linear unknown noise": (
        LinearGaussianUnknownNoise(WEIGHTS, COVARIANCES, 0.5, 8.0, PRIOR), features, None
    ),
    "logistic": (LogisticLinear(WEIGHTS, COVARIANCES + 0.1 * np.eye(2), 16), features, clicks),
    "ensemble": (
        Ensemble([GAUSSIAN, GaussianArms(MEANS[::-1], 0.5), GaussianArms(1 - MEANS, 0.5, 0.1)]),
        None,
        None,
    ),
    "markov": (Markov.switching(GAUSSIAN, 0.1, n_paths=3), None, None),
}  # fmt: skip


def belief_after(model, context, reward, n=3, rounds=4):
    rng = np.random.default_rng(1)
    belief = joint.prior(model, n)
    for _ in range(rounds):
        x = model.check_context(None if context is None else context(n, rng), n)
        r = rng.standard_normal(n) if reward is None else reward(n, rng)
        belief = joint.condition(model, belief, x, rng.integers(4, size=n), r)
    return belief, model.check_context(None if context is None else context(n, rng), n)


@pytest.mark.parametrize("name", FAMILIES)
def test_policies_keep_their_promises(name):
    model, context, reward = FAMILIES[name]
    assert is_order_free(model) == (name not in ("logistic", "markov"))
    check_policy(mmBayesUCB(model, 0.8), 4, context, reward)
    check_policy(mBayesUCB(model, 0.8), 4, context, reward, order_free=name != "markov")


@pytest.mark.parametrize("q", [0.05, 0.9, 0.999])
@pytest.mark.parametrize("name", FAMILIES)
def test_the_largest_quantile_by_draws(name, q):
    """The share of 100,000 posterior draws below the quantile is q, to five standard errors."""
    model, context, reward = FAMILIES[name]
    belief, x = belief_after(model, context, reward)
    weights = joint.probabilities(belief.log_weights)
    scores = largest_quantiles(
        with_defaults(model).reward_laws(belief.parameters, x), weights, q, None, exact=True
    )
    session, action = np.nonzero(np.isfinite(scores))
    assert len(np.unique(session)) == 3
    rng = np.random.default_rng(2)
    m = 10_000 if is_order_free(model) else 500
    below, strictly, total = np.zeros(scores.shape), np.zeros(scores.shape), 0
    for _ in range(10):
        state = joint.sample_many(belief.log_weights, m, rng)
        draws = model.sample_rewards(belief.parameters, x, state, rng)
        below += (draws <= scores[:, None] + 1e-9).sum(axis=1)
        strictly += (draws < scores[:, None] - 1e-9).sum(axis=1)
        total += m
    error = 5 * np.sqrt(q * (1 - q) / total) + 1e-3
    assert (below[session, action] / total > q - error).all()
    assert (strictly[session, action] / total < q + error).all()


@pytest.mark.parametrize("name", FAMILIES)
def test_no_action_is_left_out_that_could_be_best(name):
    """Quantiles of one action at a time, where nothing can be pruned, agree with all at once."""
    model, context, reward = FAMILIES[name]
    belief, x = belief_after(model, context, reward, n=5, rounds=2)
    weights = joint.probabilities(belief.log_weights)
    laws = with_defaults(model).reward_laws(belief.parameters, x)
    together = largest_quantiles(laws, weights, 0.9, None, exact=True)
    alone = np.empty(together.shape)
    for a in range(4):
        only = np.zeros(together.shape, np.bool_)
        only[:, a] = True
        alone[:, a] = largest_quantiles(laws, weights, 0.9, only, exact=True)[:, a]
    np.testing.assert_allclose(together.max(axis=1), alone.max(axis=1), rtol=1e-9)
    kept = np.isfinite(together)
    np.testing.assert_allclose(together[kept], alone[kept], rtol=1e-9)
    quick = largest_quantiles(laws, weights, 0.9, None)
    assert (quick.argmax(axis=1) == alone.argmax(axis=1)).all()


def test_weights_that_reach_the_quantile_exactly():
    """States of 0.9 and 0.1: the 0.9-quantile is the first state's mean, in both policies."""
    means = [[0.1, 0.5], [0.9, 0.5]]
    for policy in (
        mBayesUCB(GaussianArms(means, 0.5, state_prior=[0.9, 0.1]), 0.9),
        mmBayesUCB(GaussianArms(means, 0.5, 1e-6, [0.9, 0.1]), 0.9),
    ):
        decision = policy.decide(policy.init(), None, np.random.default_rng(0))
        assert decision.action[0] == 1
        assert decision.propensity[0] == 1
    above = mBayesUCB(GaussianArms(means, 0.5, state_prior=[0.9, 0.1]), 0.91)
    assert above.decide(above.init(), None, np.random.default_rng(0)).action[0] == 0


def test_by_hand():
    """One state: mean + z_q spread; 1.2815515655446004 is the 0.9-quantile of N(0, 1)."""
    model = GaussianArms([[0.5, 0.45]], 1.0, [[0.1, 0.2]])
    laws = with_defaults(model).reward_laws(model.parameters(1), None)
    scores = largest_quantiles(laws, np.ones((1, 1)), 0.9, None, exact=True)
    assert scores[0, 1] == pytest.approx(0.45 + 0.2 * 1.2815515655446004, rel=1e-11)


def test_equal_actions_share():
    policy = mmBayesUCB(GaussianArms([[0.5, 0.5, 0.1], [0.2, 0.2, 0.3]], 0.5, 0.3))
    chances = policy.action_probabilities(policy.init(), None, np.random.default_rng(0))
    np.testing.assert_allclose(chances.values, [[0.5, 0.5, 0.0]])
    assert chances.kind == "exact"


@pytest.mark.parametrize("quantile", [0, 1, -0.1, 1.5, float("nan"), "0.9", None, True])
def test_bad_quantiles(quantile):
    for policy in (mBayesUCB, mmBayesUCB):
        with pytest.raises(ValueError, match="quantile must be a number above 0 and below 1"):
            policy(GAUSSIAN, quantile)
