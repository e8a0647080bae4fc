"""`latentbandits.testing` on every model and policy of this kind."""

import numpy as np
import pytest

from latentbandits import (
    EXP4,
    UCB1,
    BernoulliArms,
    CategoricalArms,
    Discounted,
    Ensemble,
    ExponentialArms,
    FunctionModel,
    GaussianArms,
    GaussianArmsUnknownNoise,
    HurdleGammaArms,
    HurdleLogNormalArms,
    LinearGaussian,
    LinearGaussianUnknownNoise,
    LinUCB,
    Log1pRewards,
    LogisticLinear,
    Markov,
    PoissonArms,
    PositionClicks,
    SlidingWindow,
    SqrtRewards,
    mIDS,
    mmGreedy,
    mmIDS,
    mmTS,
    mmUCB,
    mTS,
    mUCB,
)
from latentbandits.models.composed.known import with_catch_all
from latentbandits.models.protocol import is_order_free
from latentbandits.policies.decision import Decision
from latentbandits.policies.wrappers import SummedLinUCB
from latentbandits.serving.engine.models import draws_depend_on_order
from latentbandits.testing import check_model, check_policy
from tests.reference.particles import Particles

K, D = 3, 2
MEANS = np.array([[0.9, 0.1, 0.4], [0.2, 0.8, 0.5]])
TRANSITION = [[0.9, 0.1], [0.3, 0.7]]


def binary(n, rng):
    return rng.integers(0, 2, n).astype(float)


def counts(n, rng):
    return rng.poisson(2.0, n).astype(float)


def amounts(n, rng):
    return rng.exponential(1.0, n)


def stars(n, rng):
    return rng.choice([1.0, 3.0, 5.0], n)


def features(n, rng):
    return rng.standard_normal((n, K, D))


def linear_mean(context, action):
    """Two states that like opposite features: (n, 2, m) for actions (n, m)."""
    played = np.take_along_axis(context, action[:, :, None], axis=1)
    return np.stack([played[:, :, 0], played[:, :, 1]], axis=1)


def prior_sampler(rng, n):
    return MEANS[:, None] + 0.3 * rng.standard_normal((2, n, K))


def particle_mean(theta, x):
    return theta @ x.swapaxes(1, 2)


def laplace(theta, x, reward):
    return -2 * np.abs(reward[:, None] - particle_mean(theta, x))


def gaussian_prior(theta, state):
    return -0.5 * np.square((theta - MEANS[state][:, None]) / 0.3).sum(axis=2)


GAUSSIAN = GaussianArms(MEANS, 0.5, 0.2)
MODELS = {
    "BernoulliArms": (BernoulliArms(5 * MEANS, 5 * (1 - MEANS)), None, binary, True),
    "PositionClicks": (
        PositionClicks(5 * MEANS, 5 * (1 - MEANS), examination=[1.0, 0.5]), None, binary, True,
    ),
    "PoissonArms": (PoissonArms(4 * MEANS, 2.0), None, counts, True),
    "ExponentialArms": (ExponentialArms(8.0, 7 * MEANS), None, amounts, True),
    "HurdleGammaArms": (
        HurdleGammaArms(5 * MEANS, 5 * (1 - MEANS), 8.0, 7 * MEANS, power=2.0), None, amounts, True,
    ),
    "HurdleLogNormalArms": (
        HurdleLogNormalArms(5 * MEANS, 5 * (1 - MEANS), MEANS, 0.3, log_noise=0.5),
        None,
        amounts,
        True,
    ),
    "CategoricalArms": (
        CategoricalArms(1 + np.arange(18.0).reshape(2, 3, 3) % 5, [1, 3, 5]),
        None,
        stars,
        True,
    ),
    "GaussianArmsUnknownNoise": (
        GaussianArmsUnknownNoise(MEANS, 0.5, 4.0, 20.0),
        None,
        None,
        True,
    ),
    "LinearGaussianUnknownNoise": (
        LinearGaussianUnknownNoise(np.eye(2), [np.eye(2)] * 2, 0.5, 20.0),
        features,
        None,
        True,
    ),
    "FunctionModel": (
        FunctionModel(linear_mean, 0.5, n_states=2, context_shape=(K, D)),
        features,
        None,
        True,
    ),
    "Ensemble of known": (Ensemble([GaussianArms(MEANS, 2.0), GaussianArms(1 - MEANS, 2.0)]),
                          None, None, True),
    "Ensemble of uncertain": (
        Ensemble([GAUSSIAN, GaussianArms(1 - MEANS, 0.5, 0.1)], weights=[0.7, 0.3]),
        None,
        None,
        True,
    ),
    "Log1pRewards": (Log1pRewards(GAUSSIAN), None, amounts, True),
    "Log1pRewards of linear": (
        Log1pRewards(LinearGaussian(np.eye(2), 0.5, [0.04 * np.eye(2)] * 2)),
        features,
        amounts,
        True,
    ),
    "SqrtRewards": (SqrtRewards(GaussianArms(3 + MEANS, 0.5, 0.2)), None, counts, True),
    "catch-all": (with_catch_all(GAUSSIAN), None, None, True),
    "LogisticLinear": (LogisticLinear(2 * np.eye(2), [np.eye(2)] * 2), features, binary, False),
    "Particles": (
        Particles(
            prior_sampler,
            laplace,
            mean=particle_mean,
            log_prior=gaussian_prior,
            n_actions=K,
            noise=0.7,
        ),
        None,
        None,
        False,
    ),
    "Markov of known": (Markov(GaussianArms(MEANS, 0.5), TRANSITION), None, None, False),
    "Markov of Gaussian": (Markov(GAUSSIAN, TRANSITION, n_paths=4), None, None, False),
    "Markov of Bernoulli": (
        Markov(BernoulliArms(5 * MEANS, 5 * (1 - MEANS)), TRANSITION, n_paths=4),
        None,
        binary,
        False,
    ),
    "Markov of linear": (
        Markov(LinearGaussian(np.eye(2), 0.5, [np.eye(2)] * 2), TRANSITION, n_paths=3),
        features,
        None,
        False,
    ),
    "Markov of Ensemble": (
        Markov(Ensemble([GAUSSIAN, GaussianArms(1 - MEANS, 0.5, 0.1)]), TRANSITION, n_paths=3),
        None,
        None,
        False,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_model(name):
    model, context, reward, order_free = MODELS[name]
    assert is_order_free(model) == order_free
    check_model(model, K, context, reward)


def numbers(belief):
    if not isinstance(belief, tuple):
        return [np.asarray(belief)]
    return [array for part in belief for array in numbers(part)]


@pytest.mark.parametrize("name", [name for name, (*_, order_free) in MODELS.items() if order_free])
def test_a_posterior_says_whether_draws_depend_on_the_order_of_rewards(name):
    """The same normals give the same draw if the numbers of the belief are the same."""
    model, context, reward, _ = MODELS[name]
    rng = np.random.default_rng(0)
    policy = mmTS(model)
    rounds = [
        (
            None if context is None else context(1, rng),
            Decision.logged(rng.integers(0, K, 1)),
            rng.standard_normal(1) if reward is None else reward(1, rng),
        )
        for _ in range(6)
    ]
    forward, backward = policy.init(1), policy.init(1)
    for one, other in zip(rounds, reversed(rounds), strict=True):
        forward = policy.update(forward, *one)
        backward = policy.update(backward, *other)
    pairs = zip(numbers(forward), numbers(backward), strict=True)
    same = all(np.allclose(a, b, atol=1e-9) for a, b in pairs)
    assert draws_depend_on_order(policy.init(1)) == (not same)


@pytest.mark.parametrize("name", MODELS)
def test_every_policy_works_on_it(name):
    model, context, reward, _ = MODELS[name]
    rng = np.random.default_rng(0)
    n = 4
    policies = [
        mUCB(model),
        mmUCB(model, slack=0.1),
        mTS(model),
        mIDS(model),
        EXP4(model),
        mmTS(model, propensity_draws=20),
        mmIDS(model, draws=20),
        mmGreedy(model),
    ]
    for policy in policies:
        belief = policy.init(n)
        for _ in range(3):
            x = None if context is None else context(n, rng)
            decision = policy.decide(belief, x, rng)
            outcome = rng.standard_normal(n) if reward is None else reward(n, rng)
            belief = policy.update(belief, x, decision, outcome)
            assert decision.propensity is not None
            assert (decision.propensity > 0).all()
        np.testing.assert_allclose(policy.state_probabilities(belief).sum(axis=1), 1)


@pytest.mark.parametrize(
    "name",
    ["BernoulliArms", "CategoricalArms", "FunctionModel", "Ensemble of uncertain",
     "LogisticLinear", "Markov of Gaussian"],
)  # fmt: skip
def test_thompson_sampling_on_it_conforms(name):
    model, context, reward, _ = MODELS[name]
    check_policy(mmTS(model, propensity_draws=20), K, context, reward)


@pytest.mark.parametrize(
    ("policy", "context"),
    [
        (mTS(MODELS["Markov of known"][0]), None),
        (Discounted(UCB1(K), 0.9), None),
        (SlidingWindow(UCB1(K), 3), None),
        (Discounted(mUCB(GAUSSIAN), 0.9), None),
        (SlidingWindow(mmUCB(GAUSSIAN), 3), None),
        (Discounted(LinUCB(D), 0.9), features),
        (SlidingWindow(LinUCB(D), 3), features),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_policies_of_a_moving_world_conform(policy, context):
    check_policy(policy, K, context)


def test_linucb_on_sums_conforms():
    check_policy(SummedLinUCB(LinUCB(D)), K, features)


def test_a_known_offset_is_the_log_odds_of_an_intercept():
    """The same model, its last coefficient known to be one."""
    rng = np.random.default_rng(0)
    model = LogisticLinear([[0.5, -1.0], [-0.5, 1.0]], [np.eye(2)] * 2, offset=True)
    assert model.n_features == 3
    context = rng.normal(size=(1, 4, 3))
    by_hand = 1 / (1 + np.exp(-(context[0, :, :2] @ model.weights.T + context[0, :, 2:]).T))
    np.testing.assert_allclose(model.expected_rewards(context)[0], by_hand)
    action, reward = np.array([2]), np.array([1.0])
    np.testing.assert_allclose(
        model.log_likelihood(context, action, reward)[0], np.log(by_hand[:, 2])
    )
    zero = LogisticLinear(model.weights, model.covariances, offset=True)
    plain = LogisticLinear(model.weights, model.covariances)
    without = np.concatenate([context[..., :2], np.zeros((1, 4, 1))], axis=2)
    for a, b in zip(
        zero.condition(zero.parameters(1), without, action, reward),
        plain.condition(plain.parameters(1), context[..., :2], action, reward),
        strict=True,
    ):
        first, second = (x if isinstance(x, np.ndarray) else x.log_weights for x in (a, b))
        np.testing.assert_allclose(first, second)
    check_model(
        model,
        4,
        lambda n, rng: rng.normal(size=(n, 4, 3)),
        lambda n, rng: rng.integers(0, 2, size=n).astype(float),
    )
