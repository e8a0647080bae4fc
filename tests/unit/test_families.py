"""Every conjugate family against numerical integration and brute force."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from latentbandits import (
    BernoulliArms,
    CategoricalArms,
    ExponentialArms,
    GaussianArms,
    GaussianArmsUnknownNoise,
    LinearGaussian,
    LinearGaussianUnknownNoise,
    PoissonArms,
    mmTS,
    mTS,
)
from latentbandits.models.composed.known import with_catch_all
from latentbandits.models.numerics.arrays import map_leaves
from latentbandits.models.numerics.laws import Interval
from latentbandits.testing.likelihoods import Density
from tests.reference import families

SCALAR = {
    "bernoulli": (
        lambda a, b: BernoulliArms(a, b),
        families.beta_bernoulli,
        [(2.5, 1.5), (0.7, 4.0)],
        [1.0, 0.0, 1.0, 1.0],
    ),
    "poisson": (
        lambda a, b: PoissonArms(a, b),
        families.gamma_poisson,
        [(3.0, 1.5), (8.0, 0.5)],
        [4.0, 0.0, 7.0],
    ),
    "exponential": (
        lambda a, b: ExponentialArms(a, b),
        families.gamma_exponential,
        [(3.5, 2.0), (6.0, 9.0)],
        [0.3, 2.5, 1.0],
    ),
}


def run(model, actions, rewards):
    """Log evidence in every state after these rounds of one session, and what was learned."""
    parameters, log_evidence = model.parameters(1), np.zeros(model.n_states)
    for action, reward in zip(actions, rewards, strict=True):
        density, parameters = model.condition(
            parameters, None, np.array([action]), np.array([reward])
        )
        log_evidence += density[0]
    return log_evidence, parameters


@pytest.mark.parametrize("name", SCALAR)
def test_evidence_and_moments_are_the_integrals(name):
    make, reference, priors, rewards = SCALAR[name]
    first, second = (np.array([[p[i]] for p in priors]) for i in range(2))
    model = make(first, second)
    log_evidence, parameters = run(model, [0] * len(rewards), rewards)
    mean, variance = model.posterior_rewards(parameters, None)
    for s, prior in enumerate(priors):
        evidence, expected, spread = families.integrals(reference(*prior), rewards)
        assert log_evidence[s] == pytest.approx(math.log(evidence), rel=1e-8)
        assert mean[0, s, 0] == pytest.approx(expected, rel=1e-7)
        assert variance[0, s, 0] == pytest.approx(spread, rel=1e-5)


def test_evidence_of_unknown_noise_is_the_double_integral():
    prior = dict(mean=0.4, noise_scale=0.6, mean_count=2.0, noise_count=6.0)
    model = GaussianArmsUnknownNoise([[0.4]], 0.6, 2.0, 6.0)
    rewards = [1.1, -0.3, 0.8]
    log_evidence, parameters = run(model, [0, 0, 0], rewards)
    evidence, mean, variance = families.normal_inverse_gamma(rewards=rewards, **prior)
    assert log_evidence[0] == pytest.approx(math.log(evidence), abs=1e-7)
    ours = model.posterior_rewards(parameters, None)
    assert ours[0][0, 0, 0] == pytest.approx(mean, abs=1e-7)
    assert ours[1][0, 0, 0] == pytest.approx(variance, rel=1e-5)


def test_a_prediction_of_unknown_noise_is_students():
    model = GaussianArmsUnknownNoise([[0.4]], 0.6, 2.0, 6.0)
    log_evidence, _ = run(model, [0], [1.5])
    assert log_evidence[0] == pytest.approx(
        stats.t.logpdf(1.5, 6, loc=0.4, scale=0.6 * math.sqrt(1 + 1 / 2.0))
    )


def test_categorical_evidence_is_a_ratio_of_rising_factorials():
    """By hand: Dirichlet(1, 2, 3) and the categories 2, 2, 0: (3/6) (4/7) (1/8) = 1/28."""
    model = CategoricalArms([[[1.0, 2.0, 3.0]]], values=[0.0, 1.0, 5.0])
    log_evidence, parameters = run(model, [0, 0, 0], [5.0, 5.0, 0.0])
    assert math.exp(log_evidence[0]) == pytest.approx(1 / 28)
    assert model.posterior_rewards(parameters, None)[0][0, 0, 0] == pytest.approx(27 / 9)


def test_categorical_evidence_is_the_mean_likelihood_of_the_prior():
    alpha, values = np.array([0.8, 2.0, 1.5]), np.array([1.0, 2.0, 3.0])
    model = CategoricalArms(alpha[None, None], values)
    log_evidence, parameters = run(model, [0] * 4, [1.0, 3.0, 3.0, 2.0])
    evidence, error, mean = families.dirichlet_categorical(
        alpha, values, [0, 2, 2, 1], np.random.default_rng(0), 400_000
    )
    assert abs(math.exp(log_evidence[0]) - evidence) < 5 * error
    assert model.posterior_rewards(parameters, None)[0][0, 0, 0] == pytest.approx(mean, abs=0.01)


@pytest.mark.parametrize(
    ("model", "outcomes"),
    [
        (BernoulliArms([[0.3, 2.0], [4.0, 1.0]], [[1.0, 0.5], [2.0, 7.0]]), [0.0, 1.0]),
        (CategoricalArms(np.array([[[1.0, 0.2, 3.0]] * 2] * 2), [0.0, 1.0, 5.0]), [0.0, 1.0, 5.0]),
    ],
)
def test_the_evidence_of_all_histories_sums_to_one(model, outcomes):
    actions = [0, 1, 0, 0]
    total = sum(np.exp(run(model, actions, h)[0]) for h in itertools.product(outcomes, repeat=4))
    np.testing.assert_allclose(total, 1, rtol=1e-12)


def test_poisson_predictions_sum_to_one():
    model = PoissonArms([[3.0, 1.0]], [[1.5, 0.2]])
    _, parameters = run(model, [0, 1, 1], [4.0, 3.0, 9.0])
    counts = np.arange(400.0)
    many = type(parameters)(np.repeat(parameters.totals, 400, axis=0))
    density, _ = model.condition(many, None, np.ones(400, np.int64), counts)
    assert np.exp(density).sum() == pytest.approx(1, abs=1e-12)


FAMILIES = {
    "BernoulliArms": (
        BernoulliArms(np.array([[2.0, 1.0], [1.0, 3.0]]), 1.5),
        lambda rng, n: rng.integers(0, 2, n).astype(float),
    ),
    "PoissonArms": (
        PoissonArms(np.array([[2.0, 9.0], [5.0, 3.0]]), 1.5),
        lambda rng, n: rng.poisson(3.0, n).astype(float),
    ),
    "ExponentialArms": (
        ExponentialArms(6.0, np.array([[2.0, 9.0], [5.0, 3.0]])),
        lambda rng, n: rng.exponential(1.0, n),
    ),
    "CategoricalArms": (
        CategoricalArms(np.array([[[1.0, 2, 3], [3, 2, 1]], [[2, 2, 2], [5, 1, 1]]]), [1, 3, 5]),
        lambda rng, n: rng.choice([1.0, 3.0, 5.0], n),
    ),
    "GaussianArmsUnknownNoise": (
        GaussianArmsUnknownNoise(np.array([[0.2, 0.9], [0.5, 0.3]]), 0.5, 3.0, 12.0),
        lambda rng, n: rng.standard_normal(n),
    ),
}


@pytest.mark.parametrize("name", FAMILIES)
def test_the_steps_multiply_to_the_ratio_of_normalisers(name):
    """Erratum E5: evidence = Z(phi_t) / Z(phi_0), which is H(phi_0) / H(phi_t)."""
    model, draw = FAMILIES[name]
    rng = np.random.default_rng(0)
    rewards, actions = draw(rng, 30), rng.integers(0, 2, 30)
    log_evidence, parameters = run(model, actions, rewards)
    base = np.sum(model.log_base_measure(rewards) * np.ones(30))
    np.testing.assert_allclose(log_evidence, model.log_evidence(parameters)[0] + base, rtol=1e-10)


@pytest.mark.parametrize("name", FAMILIES)
def test_the_point_estimate_has_the_prior_mean(name):
    model, _ = FAMILIES[name]
    point = model.point(model.prior_hyperparameters)
    np.testing.assert_allclose(model.mean_reward(point), model.expected_rewards(None))


@pytest.mark.parametrize("name", FAMILIES)
def test_rewards_are_drawn_from_the_density_that_scores_them(name):
    """The distribution functions of 20,000 draws and of exp(log_density), and a planted bug.

    The Kolmogorov-Smirnov statistic exceeds 3 with probability 3e-8. The bug moves the mean.
    """
    model, _ = FAMILIES[name]
    rng, n = np.random.default_rng(1), 20_000
    phi = model.prior_hyperparameters[0, 0, 1]
    point = model.point(phi)
    many = map_leaves(lambda leaf: np.broadcast_to(leaf, (n, *np.shape(leaf))), point)
    draws = model.draw(many, rng)
    model.check_reward(draws)
    centre = float(model.mean_reward(point))
    density = Density(
        lambda r: model.log_density(point, r) + np.zeros(len(r)), model.support, centre, model.noise
    )
    density.check(centre, name)
    density.check_draws(draws, name)
    with pytest.raises(AssertionError, match="their mean is"):
        density.check_draws(np.where(rng.random(n) < 0.05, draws.max(), draws), name)


def test_draws_of_the_right_mean_and_variance_are_refused_if_their_distribution_is_another():
    def normal(r):
        return -(r**2) / 2 - np.log(2 * np.pi) / 2

    density = Density(normal, Interval(), centre=0.0, scale=1.0)
    density.check_draws(np.random.default_rng(0).standard_normal(20_000), "rewards")
    with pytest.raises(AssertionError, match="do not follow their density"):
        density.check_draws(np.tile([-1.0, 1.0], 10_000), "rewards")


@pytest.mark.parametrize(
    ("model", "reward", "message"),
    [
        (FAMILIES["BernoulliArms"][0], 0.5, "0 or 1; session 1 has 0.5"),
        (FAMILIES["PoissonArms"][0], -1.0, "session 1 has -1"),
        (FAMILIES["PoissonArms"][0], 1.5, "session 1 has 1.5"),
        (FAMILIES["ExponentialArms"][0], -0.1, "not negative; session 1 has -0.1"),
        (FAMILIES["CategoricalArms"][0], 2.0, "one of 1, 3, 5; session 1 has 2"),
    ],
)
@pytest.mark.parametrize("policy", [mmTS, mTS])
def test_rewards_outside_the_support_are_refused(policy, model, reward, message):
    chosen = policy(model)
    belief = chosen.init(2)
    decision = chosen.decide(belief, None, np.random.default_rng(0))
    before = [np.array(leaf) for leaf in np.atleast_1d(belief.log_weights)]
    with pytest.raises(ValueError, match=message):
        chosen.update(belief, None, decision, [1.0, reward])
    np.testing.assert_array_equal(belief.log_weights, before)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: BernoulliArms([[0.0]], [[1.0]]), r"alpha must be above zero; alpha\[0, 0\] is 0"),
        (lambda: PoissonArms([[1.0]], -1.0), "rate must be above zero; rate is -1"),
        (lambda: PoissonArms([[1.0, 2.0]], [[1.0, 2.0, 3.0]]), "do not fit"),
        (lambda: ExponentialArms([[2.0]], 1.0), "shape must be above 2"),
        (lambda: CategoricalArms([[[1.0, 0.0]]], [0, 1]), "concentration must be above 0"),
        (lambda: CategoricalArms([[[1.0, 1.0]]], [1, 0]), "increasing order"),
        (lambda: GaussianArmsUnknownNoise([[0.0]], 1.0, 1.0, 2.0), "noise_count must be above 2"),
        (lambda: GaussianArmsUnknownNoise([[0.0]], 0.0, 1.0, 3.0), "noise_scale must be above"),
        (lambda: BernoulliArms.from_means([[0.5]], 0.6), "beta prior needs"),
        (lambda: LinearGaussianUnknownNoise([[0.0]], [[[1.0]]], 1.0, 1.0), "noise_count"),
    ],
)
def test_priors_that_cannot_be_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_from_means_has_the_moments_it_was_given():
    for family in (BernoulliArms, PoissonArms, ExponentialArms):
        model = family.from_means([[0.3, 0.6]], [[0.1, 0.2]])
        mean, variance = model.posterior_rewards(model.parameters(1), None)
        np.testing.assert_allclose(mean[0, 0], [0.3, 0.6])
        np.testing.assert_allclose(np.sqrt(variance[0, 0]), [0.1, 0.2])


def test_linear_with_unknown_noise_is_arms_with_unknown_noise_on_the_identity():
    arms = GaussianArmsUnknownNoise([[0.4]], 0.6, 2.0, 6.0)
    linear = LinearGaussianUnknownNoise([[0.4]], [[[1 / 2.0]]], 0.6, 6.0)
    rewards = [1.1, -0.3, 0.8, 2.0]
    expected, learned = run(arms, [0] * 4, rewards)
    context, parameters, evidence = np.ones((1, 1, 1)), linear.parameters(1), 0.0
    for reward in rewards:
        density, parameters = linear.condition(
            parameters, context, np.array([0]), np.array([reward])
        )
        evidence += density[0, 0]
    assert evidence == pytest.approx(expected[0], abs=1e-10)
    for ours, theirs in zip(
        linear.posterior_rewards(parameters, context),
        arms.posterior_rewards(learned, None),
        strict=True,
    ):
        np.testing.assert_allclose(ours, theirs, rtol=1e-10)


def test_linear_with_unknown_noise_is_the_closed_form_posterior():
    """Textbook: normal equations of all rounds at once, then the inverse gamma of the residual."""
    rng = np.random.default_rng(3)
    d, n = 3, 12
    weights, root = rng.standard_normal(d), rng.standard_normal((d, d))
    covariance = root @ root.T + np.eye(d)
    model = LinearGaussianUnknownNoise(weights[None], covariance[None], 0.7, 9.0)
    x, rewards = rng.standard_normal((n, d)), rng.standard_normal(n)
    parameters = model.parameters(1)
    for row, reward in zip(x, rewards, strict=True):
        _, parameters = model.condition(
            parameters, row[None, None], np.array([0]), np.array([reward])
        )
    inverse = np.linalg.inv(covariance)
    precision = inverse + x.T @ x
    mean = np.linalg.solve(precision, inverse @ weights + x.T @ rewards)
    squares = 9.0 * 0.7**2 + rewards @ rewards + weights @ inverse @ weights
    squares -= mean @ precision @ mean
    np.testing.assert_allclose(parameters.mean[0, 0], mean, rtol=1e-9)
    np.testing.assert_allclose(parameters.squares[0, 0], squares, rtol=1e-9)
    assert parameters.counts[0, 0] == 9 + n


@pytest.mark.parametrize(
    "model",
    [
        *(model for model, _ in FAMILIES.values()),
        GaussianArms([[0.9, 0.1], [0.2, 0.8]], 0.5, 0.1),
        LinearGaussian([[1.0, 0.0], [0.0, 1.0]], 0.5, [np.eye(2)] * 2),
        LinearGaussianUnknownNoise([[1.0, 0.0], [0.0, 1.0]], [np.eye(2)] * 2, 0.5, 8.0),
    ],
    ids=lambda model: type(model).__name__,
)
def test_a_catch_all_is_one_more_state_as_wide_as_all(model):
    extended = with_catch_all(model)
    assert extended.n_states == model.n_states + 1
    np.testing.assert_allclose(np.exp(extended.log_state_prior), 1 / 3)
    context = None if model.n_actions else np.eye(2)[None]
    mean, variance = model.posterior_rewards(model.parameters(1), context)
    wide_mean, wide = extended.posterior_rewards(extended.parameters(1), context)
    np.testing.assert_allclose(wide[0, :-1], np.broadcast_to(variance, (1, *mean.shape[1:]))[0])
    if model.n_actions:
        expected = variance.mean() + mean.var()
        np.testing.assert_allclose(wide_mean[0, -1], mean.mean())
        np.testing.assert_allclose(wide[0, -1], expected, rtol=1e-6)
    else:
        assert (wide[0, -1] >= variance[0].mean(axis=0) - 1e-12).all()


def test_a_catch_all_learns_a_session_that_no_state_explains():
    model = GaussianArms([[0.9, 0.1, 0.1], [0.1, 0.9, 0.1]], noise=0.1, spread=0.01)
    policy = mmTS(model, catch_all=True)
    belief, rng = policy.init(), np.random.default_rng(0)
    truth = np.array([0.1, 0.1, 0.9])
    for _ in range(60):
        decision = policy.decide(belief, None, rng, propensity=False)
        belief = policy.update(belief, None, decision, truth[decision.action])
    assert policy.state_probabilities(belief)[0, -1] > 0.99
    assert decision.action[0] == 2


EXTREMES = {
    "bernoulli p=1e-6": (BernoulliArms([[1.0], [1e-6]], [[1.0], [1.0]]), 0.0),
    "poisson rate=1e6": (PoissonArms([[1e6], [2e6]], 1.0), 1e6),
    "category never seen": (
        CategoricalArms([[[1e-9, 1.0, 1e-9]], [[1.0, 1e-9, 1.0]]], [1, 2, 3]),
        3.0,
    ),
}


def check_finite(policy, belief, rng):
    probabilities = policy.state_probabilities(belief)
    assert np.isfinite(probabilities).all()
    assert probabilities.sum() == pytest.approx(1, abs=1e-12)
    states = np.tile([0, 1], 500)[None]
    assert np.isfinite(policy.model.sample_rewards(belief.parameters, None, states, rng)).all()


@pytest.mark.parametrize("name", EXTREMES)
def test_beliefs_stay_finite_late_in_an_extreme_session(name):
    model, reward = EXTREMES[name]
    policy, rng = mmTS(model), np.random.default_rng(0)
    belief = policy.init()
    decision = policy.decide(belief, None, rng, propensity=False)
    check_finite(policy, belief, rng)
    belief = policy.update(belief, None, decision, [reward])
    check_finite(policy, belief, rng)
    late = belief.parameters._replace(totals=belief.parameters.totals * 100_000)
    belief = belief._replace(log_weights=model.log_evidence(late), parameters=late)
    for _ in range(20):
        belief = policy.update(belief, None, decision, [reward])
        check_finite(policy, belief, rng)


@pytest.mark.slow
@pytest.mark.parametrize("name", EXTREMES)
def test_beliefs_stay_finite_over_a_hundred_thousand_rounds(name):
    """And the rounding of so many steps does not add up: they telescope to the closed form."""
    model, reward = EXTREMES[name]
    policy, rng = mmTS(model), np.random.default_rng(0)
    belief = policy.init()
    decision = policy.decide(belief, None, rng, propensity=False)
    for _ in range(100_000):
        belief = policy.update(belief, None, decision, [reward])
    check_finite(policy, belief, rng)
    steps = np.diff(belief.log_weights[0])
    closed = np.diff(model.log_evidence(belief.parameters)[0])
    np.testing.assert_allclose(steps, closed, rtol=1e-8, atol=0.02)
