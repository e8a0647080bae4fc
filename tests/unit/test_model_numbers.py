"""Numbers of models that are checked by hand, one by one."""

import math

import numpy as np
import pytest

from latentbandits import (
    BernoulliArms,
    CategoricalArms,
    Ensemble,
    ExponentialArms,
    FunctionModel,
    GaussianArms,
    GaussianArmsUnknownNoise,
    LinearGaussian,
    LinearGaussianUnknownNoise,
    LogisticLinear,
    Markov,
    PoissonArms,
)
from latentbandits.beliefs import joint
from latentbandits.models import checks, history, registry
from latentbandits.models.arms import dirichlet, gamma
from latentbandits.models.numerics import arrays
from latentbandits.models.numerics.arrays import rows, systematic, thin
from latentbandits.models.numerics.laws import BINARY, REALS, Counts, Interval, OneOf
from latentbandits.policies.latent import ucb
from tests.reference.particles import Particles

MEANS = [[0.9, 0.1], [0.2, 0.8]]


def test_supports():
    assert Interval(0.0, 1.0).contains(np.array([-0.1, 0.0, 1.0, 1.1])).tolist() == [
        False,
        True,
        True,
        False,
    ]
    assert Counts().contains(np.array([-1.0, 0.0, 0.5, 7.0])).tolist() == [
        False,
        True,
        False,
        True,
    ]
    assert OneOf((1.0, 3.0, 5.0)).contains(np.array([1.0, 3.0, 5.0, 4.0])).tolist() == [
        True,
        True,
        True,
        False,
    ]
    assert [str(s) for s in (REALS, BINARY, Interval(0.0), Interval(2.0), Interval(0.0, 2.0))] == [
        "numbers",
        "0 or 1",
        "not negative",
        "at least 2",
        "from 0 to 2",
    ]
    assert str(OneOf((1.0, 3.0, 5.0))) == "one of 1, 3, 5"
    bounds = [REALS.bounds, BINARY.bounds, Interval(0.0).bounds, Interval(-1.0, 2.0).bounds]
    assert bounds == [None, (0.0, 1.0), None, (-1.0, 2.0)]
    assert BernoulliArms([[1.0]], 1.0).reward_bounds == (0.0, 1.0)
    assert CategoricalArms([[[1.0, 1.0]]], [-2, 5]).reward_bounds == (-2.0, 5.0)
    assert PoissonArms([[1.0]], 1.0).reward_bounds is None
    assert ExponentialArms([[3.0]], 1.0).support == Interval(low=0.0)


def test_noise_and_spread_bounds():
    assert BernoulliArms([[1.0]], 1.0).noise == 0.5
    assert CategoricalArms([[[1.0, 1.0, 1.0]]], [1, 2, 5]).noise == 2.0
    assert PoissonArms([[8.0, 2.0]], 2.0).noise == 2.0  # sqrt of the largest mean, 4
    assert ExponentialArms(5.0, [[8.0, 4.0]]).noise == 2.0
    unknown = GaussianArmsUnknownNoise([[0.0]], 0.5, 4.0, 10.0)
    assert unknown.noise == pytest.approx(math.sqrt(0.25 * 10 / 8))
    assert unknown.spread_bound == pytest.approx(math.sqrt(0.25 * 10 / 8 / 4))
    assert GaussianArms(MEANS, 0.5, [[0.1, 0.2], [0.3, 0.0]]).spread_bound == 0.3
    assert BernoulliArms([[1.0]], 1.0).spread_bound == pytest.approx(math.sqrt(1 / 12))
    linear = LinearGaussian(np.eye(2), 0.5, [np.diag([0.09, 0.04]), np.diag([0.01, 0.16])])
    assert linear.spread_bound == pytest.approx(0.4)
    assert LinearGaussian(np.eye(2), 0.5).spread_bound == 0
    double = LinearGaussianUnknownNoise(np.eye(2), [np.eye(2) * 4] * 2, 0.5, 10.0)
    assert double.noise == pytest.approx(math.sqrt(0.25 * 10 / 8))
    assert double.spread_bound == pytest.approx(2 * double.noise)
    assert LogisticLinear(np.eye(2), [np.eye(2)] * 2).spread_bound == 0.25
    assert LogisticLinear(np.eye(2), [9 * np.eye(2)] * 2).spread_bound == 0.5
    assert LogisticLinear(np.eye(2), [np.eye(2)] * 2).noise == 0.5
    two = Ensemble([GaussianArms([[1.0]], 0.5), GaussianArms([[0.0]], 0.7)], [0.5, 0.5])
    assert two.noise == 0.7
    assert two.spread_bound == 0.5
    wide = Ensemble([GaussianArms([[1.0]], 0.5, 1.2), GaussianArms([[0.0]], 0.7)], [0.5, 0.5])
    assert wide.spread_bound == pytest.approx(1.3)  # sqrt(1.2^2 + 0.5^2)
    assert Markov(wide, [[1.0]]).spread_bound == wide.spread_bound
    assert Markov(GaussianArms([[1.0]], 0.5), [[1.0]]).spread_bound == 0


def test_certainty():
    assert GaussianArms(MEANS, 0.5).is_certain
    assert not GaussianArms(MEANS, 0.5, [[0.0, 0.0], [0.0, 0.1]]).is_certain
    assert LinearGaussian(np.eye(2), 0.5).is_certain
    assert not LinearGaussian(np.eye(2), 0.5, [np.zeros((2, 2)), np.eye(2)]).is_certain
    assert not BernoulliArms([[1.0]], 1.0).is_certain
    assert Ensemble([GaussianArms(MEANS, 0.5)]).is_certain
    assert not Ensemble([GaussianArms(MEANS, 0.5)] * 2).is_certain
    assert not Ensemble([GaussianArms(MEANS, 0.5, 0.1)]).is_certain
    assert Markov(GaussianArms(MEANS, 0.5), np.eye(2)).is_certain
    assert FunctionModel(lambda x, a: 0, 0.5, n_states=2, n_actions=2).is_certain


def test_numbers_of_features_and_sessions():
    assert GaussianArms(MEANS, 0.5).n_features is None
    assert GaussianArms([MEANS] * 3, 0.5).n_sessions == 3
    assert LinearGaussian(np.ones((2, 4)), 0.5).n_features == 4
    assert LinearGaussian(np.ones((3, 2, 4)), 0.5).n_sessions == 3
    assert LogisticLinear(np.ones((2, 3)), [np.eye(3)] * 2).n_features == 3
    assert FunctionModel(lambda x, a: 0, 0.5, n_states=2, context_shape=(5, 3)).n_features == 3
    assert FunctionModel(lambda x, a: 0, 0.5, n_states=2, context_shape=(5,)).n_features is None
    assert Ensemble([LinearGaussian(np.ones((2, 4)), 0.5)]).n_features == 4
    assert Markov(LinearGaussian(np.ones((2, 4)), 0.5), np.eye(2)).n_features == 4
    assert BernoulliArms(np.ones((3, 2, 4)), 1.0).n_sessions == 3


def test_random_problems_have_the_shape_and_priors_that_they_state():
    rng = np.random.default_rng(0)
    for name, kind in registry.kinds().items():
        if not hasattr(kind, "random"):
            continue
        model = kind.random(rng, 50, 20)
        assert model.n_states == 50, name
        if kind.summary.has_features:
            assert model.n_features == 20
            np.testing.assert_array_equal(model.covariances[3], 0.25 * np.eye(20))
            assert 1.8 < model.weights.std() < 2.2
        else:
            assert model.n_actions == 20
            assert kind.random(rng, 3, 2, 4).n_sessions == 3
    deviation = {"GaussianArms": 0.2, "BernoulliArms": 0.1, "PoissonArms": 0.4,
                 "ExponentialArms": 0.3}  # fmt: skip
    ranges = {"GaussianArms": (0, 1), "BernoulliArms": (0.05, 0.95), "PoissonArms": (0.2, 4.0),
              "ExponentialArms": (0.2, 3.0), "GaussianArmsUnknownNoise": (0, 1)}  # fmt: skip
    for name, (low, high) in ranges.items():
        model = registry.find(name).random(rng, 50, 20)
        mean, variance = model.posterior_rewards(model.parameters(1), None)
        assert low <= mean.min() < low + 0.05 * (high - low)
        assert high - 0.05 * (high - low) < mean.max() <= high
        if name in deviation:
            np.testing.assert_allclose(np.sqrt(variance), deviation[name])
    assert GaussianArms.random(rng, 2, 3).noise == 0.5
    unknown = GaussianArmsUnknownNoise.random(rng, 2, 3)
    for field, value in (("noise_scale", 0.5), ("mean_count", 10), ("noise_count", 10)):
        assert (getattr(unknown, field) == value).all()
    stars = CategoricalArms.random(rng, 2, 3)
    np.testing.assert_allclose(stars.concentration.sum(axis=-1), 20.5)
    assert stars.values.tolist() == [1, 2, 3, 4, 5]
    assert stars.concentration.min() >= 0.1
    linear = LinearGaussianUnknownNoise.random(rng, 2, 3)
    assert (linear.noise_scale == 0.5).all()
    assert (linear.noise_count == 10).all()
    assert LinearGaussian.random(rng, 2, 3).noise == 0.5
    sub_gaussian = {n for n, k in registry.kinds().items() if k.summary.sub_gaussian}
    assert sub_gaussian == {"GaussianArms", "BernoulliArms", "CategoricalArms", "LinearGaussian",
                            "LogisticLinear", "PositionClicks"}  # fmt: skip


def test_vague_states():
    """Mean 0.5 and variance 0.1225 + 0.01 (between and within) for these means and this spread."""
    gaussian = GaussianArms(MEANS, 0.5, 0.1).vague()
    np.testing.assert_allclose(gaussian.means, [[0.5, 0.5]])
    np.testing.assert_allclose(gaussian.spread, math.sqrt(0.125 + 0.01))
    bernoulli = BernoulliArms.from_means(MEANS, 0.1).vague()
    mean, variance = bernoulli.posterior_rewards(bernoulli.parameters(1), None)
    np.testing.assert_allclose(mean, [[[0.5, 0.5]]])
    np.testing.assert_allclose(variance, 0.125 + 0.01)
    extreme = BernoulliArms.from_means([[0.999, 0.001]], 0.01).vague()  # wider than a beta can be
    _, variance = extreme.posterior_rewards(extreme.parameters(1), None)
    np.testing.assert_allclose(np.sqrt(variance), 0.99 * 0.5)
    unknown = GaussianArmsUnknownNoise([[0.0, 2.0]], 0.5, 4.0, [[10.0, 6.0]]).vague()
    squares = 0.25 * np.array([10 / 8, 6 / 4])
    assert unknown.noise_count.tolist() == [[6.0, 6.0]]
    np.testing.assert_allclose(unknown.noise**2, squares.mean())
    _, variance = unknown.posterior_rewards(unknown.parameters(1), None)
    np.testing.assert_allclose(variance, squares.mean() / 4 + 1.0)
    linear = LinearGaussian([[1.0, 0.0], [-1.0, 0.0]], 0.5, [np.eye(2)] * 2).vague()
    np.testing.assert_allclose(linear.weights, [[0.0, 0.0]])
    np.testing.assert_allclose(linear.covariances, [np.diag([2.0, 1.0])])
    double = LinearGaussianUnknownNoise([[1.0, 0], [-1, 0]], [np.eye(2)] * 2, 0.5, 10.0).vague()
    noise = 0.25 * 10 / 8
    np.testing.assert_allclose(double.noise**2, noise)
    np.testing.assert_allclose(double.covariances, [np.diag([1 + 1 / noise, 1.0])])
    stars = CategoricalArms([[[4.0, 4.0], [6.0, 2.0]], [[2.0, 6.0], [4.0, 4.0]]], [0, 1]).vague()
    mean, variance = stars.posterior_rewards(stars.parameters(1), None)
    np.testing.assert_allclose(mean, [[[0.5, 0.5]]])
    within = np.array([0.25, 0.1875, 0.1875, 0.25]).mean() / 9
    between = np.array([0.5, 0.25, 0.75, 0.5]).var()
    np.testing.assert_allclose(variance, within + between)
    logistic = LogisticLinear([[1.0], [-1.0]], [np.eye(1)] * 2, 32, 2, 7).vague()
    assert (logistic.n_particles, logistic.n_moves, logistic.seed) == (32, 2, 7)
    np.testing.assert_allclose(logistic.covariances, [[[2.0]]])


def test_extended_prior():
    np.testing.assert_allclose(checks.extended_prior(np.array([0.25, 0.75]), 0.2), [0.2, 0.6, 0.2])
    for share in (0.0, 1.0, -0.1):
        with pytest.raises(ValueError, match=r"in \(0, 1\)"):
            checks.extended_prior(np.array([1.0]), share)


def test_transitions():
    arms = GaussianArms([[1.0], [0.0], [0.5]], 0.1, state_prior=[0.5, 0.25, 0.25])
    np.testing.assert_allclose(Markov.switching(arms, 0.2).transition[0], [0.8, 0.1, 0.1])
    np.testing.assert_allclose(Markov.restarting(arms, 0.4).transition[0], [0.8, 0.1, 0.1])
    one = GaussianArms([[1.0]], 0.1)
    np.testing.assert_array_equal(Markov.switching(one, 0.3).transition, [[1.0]])
    assert Markov.switching(arms, 0.2).n_paths == 16
    for p in (-0.1, 1.1):
        with pytest.raises(ValueError, match=r"probability must be in \[0, 1\]"):
            Markov.switching(arms, p)
    assert Markov.switching(arms, 0.0).transition[0, 0] == 1
    assert Markov.switching(arms, 1.0).transition[0, 0] == 0
    own = GaussianArms([[[1.0], [0.0]]] * 2, 0.1, state_prior=[[0.5, 0.5], [0.4, 0.6]])
    with pytest.raises(ValueError, match="all sessions share"):
        Markov.restarting(own, 0.1)
    prior = Markov(arms, np.eye(3), state_prior=[0.1, 0.2, 0.7])
    np.testing.assert_allclose(np.exp(prior.log_state_prior), [[0.1, 0.2, 0.7]])


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        ([[0.5, 0.5]], "shape"),
        ([[0.5, 0.6], [0.5, 0.5]], r"row 0 sums to 1\.1"),
        ([[1.5, -0.5], [0.5, 0.5]], r"transition\[0, 1\] is -0\.5"),
    ],
)
def test_matrices_that_are_no_transition(matrix, message):
    with pytest.raises(ValueError, match=message):
        checks.transition_matrix(matrix, 2)


def test_small_rounding_of_probabilities_is_forgiven():
    assert checks.transition_matrix([[0.5, 0.5 + 5e-7], [1.0, 0.0]], 2).sum() == pytest.approx(2)
    prior = checks.state_prior([0.5, 0.5 + 5e-7], np.empty((2, 1)))
    assert prior.sum() == pytest.approx(1, abs=1e-15)
    with pytest.raises(ValueError, match="must sum to one"):
        checks.state_prior([0.5, 0.50001], np.empty((2, 1)))
    assert checks.state_prior([0.0, 1.0], np.empty((2, 1))).tolist() == [0.0, 1.0]


def test_log_weights():
    log = np.log([[0.5, 0.25], [0.2, 0.2]])
    np.testing.assert_allclose(arrays.log_sum(log), np.log([0.75, 0.4]))
    mixed = np.array([[-np.inf, -np.inf], [0.0, -np.inf]])
    total, normal = arrays.normalise(mixed, np.log([0.3, 0.7]))
    np.testing.assert_array_equal(total, [-np.inf, 0.0])
    np.testing.assert_allclose(np.exp(normal), [[0.3, 0.7], [1.0, 0.0]])


def test_systematic_and_thinned_weights():
    weights = np.array([[0.5, 0.25, 0.25], [0.0, 0.5, 0.5]])
    drawn = systematic(weights, 4, np.array([0.999, 0.0]))
    assert drawn.tolist() == [[0, 0, 1, 2], [1, 1, 2, 2]]
    index, log_kept = thin(np.log([[0.5, 0.3, 0.1, 0.1]]), 3, np.array([0.0]))
    # c = 0.2: 0.5 and 0.3 stay, and one of the two others survives with weight 0.2.
    assert index.tolist() == [[0, 1, 2]]
    np.testing.assert_allclose(np.exp(log_kept), [[0.5, 0.3, 0.2]])
    index, log_kept = thin(np.log([[0.5, 0.3, 0.1, 0.1]]), 3, np.array([0.7]))
    assert index.tolist() == [[0, 1, 3]]
    few = np.array([[np.log(0.4), -np.inf, np.log(0.6)]])
    index, log_kept = thin(few, 2, np.array([0.9]))
    np.testing.assert_allclose(np.exp(log_kept), [[0.6, 0.4]])
    assert index.tolist() == [[2, 0]]


def test_histories():
    keys = history.start(2, seed=3)
    assert keys[0] == keys[1] != history.start(1, seed=4)[0]
    assert history.start(1)[0] == history.start(1, seed=0)[0]
    once = history.advance(keys, np.array([0, 1]), np.array([0.5, 0.5]))
    other = history.advance(keys, np.array([0, 0]), np.array([0.5, 0.25]))
    assert len({int(k) for k in (*keys[:1], *once, *other)}) == 4
    numbers = history.uniforms(once, 50_000)
    assert numbers.shape == (2, 50_000)
    assert ((numbers >= 0) & (numbers < 1)).all()
    # Mean and variance of uniforms to 5 standard errors.
    assert np.abs(numbers.mean(axis=1) - 0.5).max() < 5 * math.sqrt(1 / 12 / 50_000)
    assert np.abs(numbers.var(axis=1) - 1 / 12).max() < 5 * math.sqrt(1 / 180 / 50_000)
    assert abs(np.corrcoef(numbers[0, 1:], numbers[0, :-1])[0, 1]) < 5 / math.sqrt(50_000)
    # splitmix64's finaliser of 1, as published.
    assert int(history.mix(np.array([1], np.uint64))[0]) == 0x5692161D100B05E5
    draws = [history.generator(once[0]).random() for _ in range(2)]
    assert draws[0] == draws[1] != history.generator(once[1]).random()


def test_gaps():
    belief = ucb.no_gaps(1, 2)
    belief = ucb.add_gap(belief, np.array([1]), np.array([0.5]))
    belief = ucb.add_gap(belief, np.array([1]), np.array([0.25]))
    assert belief.counts.tolist() == [[0, 2]]
    assert belief.gaps.tolist() == [[0, 0.75]]
    # The bound is noise sqrt(6 * 2 * log n) = 0.75 at this noise and n = e^3.
    n = math.exp(3)
    edge = 0.75 / math.sqrt(6 * 2 * 3)
    assert ucb.consistent_states(belief, edge * 1.0001, n).tolist() == [[True, True]]
    assert ucb.consistent_states(belief, edge * 0.9999, n).tolist() == [[True, False]]
    # Without a horizon log t, t = rounds so far + 1 = 3.
    edge = 0.75 / math.sqrt(12 * math.log(3))
    assert ucb.consistent_states(belief, edge * 1.0001, None).tolist() == [[True, True]]
    assert ucb.consistent_states(belief, edge * 0.9999, None).tolist() == [[True, False]]
    all_out = ucb.GapBelief(np.array([[4.0, 2.0]]), np.array([[8.0, 6.0]]))
    assert ucb.consistent_states(all_out, 1e-6, 100).tolist() == [[True, False]]


def test_state_functions():
    weights = np.log([[0.2, 0.3]])
    np.testing.assert_allclose(joint.probabilities(weights), [[0.4, 0.6]])
    np.testing.assert_allclose(joint.log_total(weights), [math.log(0.5)])
    moved = joint.condition_states(weights, np.log([[0.5, 1.0]]), np.array([1.0]), np.eye(2)[::-1])
    np.testing.assert_allclose(np.exp(moved), [[0.3, 0.1]])


def test_rows_of_shared_and_own_tables():
    own = np.arange(12.0).reshape(2, 3, 2)
    assert rows(own, np.array([2, 0])).tolist() == [[4.0, 5.0], [6.0, 7.0]]
    assert rows(own, np.array([[2, 1], [0, 0]])).tolist() == [
        [[4, 5], [2, 3]],
        [[6, 7], [6, 7]],
    ]
    assert rows(own[:1], np.array([2, 0])).tolist() == [[4.0, 5.0], [0.0, 1.0]]


def test_normalisers():
    assert float(gamma.log_normaliser(np.array([3.0, 2.0]))) == pytest.approx(math.log(2 / 8))
    assert float(dirichlet.log_normaliser(np.array([2.0, 3.0]))) == pytest.approx(math.log(1 / 12))
    tiny = dirichlet.unnormalised(np.full((20_000, 2), [0.02, 0.01]), np.random.default_rng(0))
    share = tiny[:, 0] / tiny.sum(axis=1)
    # Mean 2/3, variance 2/9 / 1.03, to 5 standard errors.
    assert abs(share.mean() - 2 / 3) < 5 * math.sqrt(2 / 9 / 1.03 / 20_000)
    assert share.var() == pytest.approx(2 / 9 / 1.03, rel=0.03)


def test_effective_sample_size():
    model = Particles(
        lambda rng, n: np.linspace(0, 1, n)[None, :, None] * np.ones((2, 1, 1)),
        lambda theta, x, r: 0 * theta @ x.swapaxes(1, 2) - np.abs(r[:, None] - theta),
        4,
        mean=lambda theta, x: theta @ x.swapaxes(1, 2),
        n_actions=1,
    )
    fresh = model.parameters(1)
    np.testing.assert_allclose(model.effective_sample_size(fresh), 4.0)
    half = fresh._replace(log_weights=np.log(np.full((1, 2, 4), [0.5, 0.5, 1e-300, 1e-300])))
    np.testing.assert_allclose(model.effective_sample_size(half), 2.0)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: checks.positive_number("noise", 0.0), "above zero; got 0"),
        (lambda: checks.positive_number("noise", math.inf), "finite number above zero"),
        (lambda: checks.positive_number("noise", "a"), "must be a number"),
        (lambda: checks.positive_count("n", 0), "at least 1; got 0"),
        (lambda: checks.positive_count("n", True), "got True"),
        (lambda: checks.positive_count("n", 1.0), "whole number"),
        (lambda: checks.non_negative_array("spread", [-1e-9], (1,)), r"spread\[0\] is -1e-09"),
        (lambda: checks.non_negative_array("spread", [1.0, 2.0], (3,)), "got shape"),
        (lambda: checks.finite_array("means", [[]], (2,)), "is empty"),
        (lambda: checks.finite_array("means", [1.0], (2,)), "must have 2 dimensions; got 1"),
        (lambda: checks.session_count(3, 2), "each of 2 sessions; got 3"),
        (lambda: checks.features(None, 1, 2), "needs a context"),
        (lambda: checks.features(np.zeros((1, 0, 2)), 1, 2), "n_actions"),
        (lambda: checks.covariances("c", [[[1.0, 0.5], [0.0, 1.0]]], (1, 2, 2)), "symmetric"),
        (lambda: checks.covariances("c", [[[1.0, 2.0], [2.0, 1.0]]], (1, 2, 2)), "eigenvalue -1"),
        (lambda: checks.required(None), "needs a context"),
        (lambda: checks.positive_arrays(a=0.5, b=1.0), "2 or 3 dimensions"),
        (lambda: checks.above("a", np.array([2.0]), 2, "why"), r"a must be above 2, why; a\[0\]"),
    ],
)
def test_arguments_that_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_arguments_at_the_edge_are_taken():
    assert checks.positive_count("n", 1) == 1
    assert checks.non_negative_array("spread", 0.0, (2,)).tolist() == [0.0, 0.0]
    assert checks.session_count(2, 2) == 2
    np.testing.assert_array_equal(checks.covariances("c", None, (1, 2, 2)), np.zeros((1, 2, 2)))
    singular = checks.covariances("c", [[[1.0, 1.0], [1.0, 1.0]]], (1, 2, 2))
    assert singular.shape == (1, 2, 2)
    huge = np.full((1, 1, 2), 1e200)  # finite, though its square is not
    np.testing.assert_array_equal(checks.features(huge, 1, 2), huge)


def test_users_of_a_gaussian_model_by_hand():
    model = GaussianArms(MEANS, 0.5)
    theta = model.draw_theta(np.array([1, 0]), np.random.default_rng(0))
    np.testing.assert_allclose(theta, [[0.2, 0.8], [0.9, 0.1]])
    density = model.log_reward_density(theta, None, np.array([1, 0]), np.array([0.8, 0.4]))
    peak = -math.log(0.5 * math.sqrt(2 * math.pi))
    np.testing.assert_allclose(density, [peak, peak - 0.5])
