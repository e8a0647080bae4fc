"""Models inside other models, and small numbers of models and beliefs, checked by hand."""

from dataclasses import fields
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.stats import norm

from latentbandits import (
    BernoulliArms,
    CategoricalArms,
    Ensemble,
    FunctionModel,
    GaussianArms,
    LinearGaussian,
    LinearGaussianUnknownNoise,
    LogisticLinear,
    Markov,
    PoissonArms,
    mmBayesUCB,
)
from latentbandits.beliefs import joint
from latentbandits.beliefs.information import scenario_rewards
from latentbandits.beliefs.planning import resolve_ties
from latentbandits.models import checks
from latentbandits.models.artefacts import Catalogue
from latentbandits.models.attributes.columns import Category, Encoder, Number, Vector
from latentbandits.models.attributes.items import Items, add_items
from latentbandits.models.attributes.parts import with_parts
from latentbandits.models.growing import _offset_variance, add_average, plain_features
from latentbandits.models.numerics.arrays import normalise
from latentbandits.models.numerics.laws import (
    REALS,
    Component,
    Normal,
    join_states,
    probability_largest,
)
from latentbandits.models.protocol import is_order_free, with_defaults
from latentbandits.policies.latent.ucb import largest_quantiles
from tests.reference.particles import Particles

RNG = np.random.default_rng(8)
TRANSITION = [[0.8, 0.2], [0.3, 0.7]]
PER_SESSION = {
    "Gaussian": GaussianArms(RNG.normal(size=(3, 2, 4)), 0.5, 0.3),
    "Bernoulli": BernoulliArms(RNG.uniform(1, 5, (3, 2, 4)), RNG.uniform(1, 5, (3, 2, 4))),
    "Poisson": PoissonArms(RNG.uniform(1, 5, (3, 2, 4)), 2.0),
    "Categorical": CategoricalArms(RNG.uniform(1, 5, (3, 2, 4, 3)), [0.0, 1.0, 2.0]),
    "linear": LinearGaussian(RNG.normal(size=(3, 2, 2)), 0.5, np.tile(np.eye(2), (3, 2, 1, 1))),
    "unknown noise": LinearGaussianUnknownNoise(
        RNG.normal(size=(3, 2, 2)), np.tile(np.eye(2), (3, 2, 1, 1)), RNG.uniform(0.5, 2, (3, 2)), 5
    ),
}


def one_session(model, i):
    """Return the model that session i has an instance of."""
    arrays = {}
    for field in fields(model):
        value = getattr(model, field.name)
        several = np.ndim(value) > 1 and len(value) == 3
        arrays[field.name] = value[i] if several else value
    return type(model)(**arrays)


@pytest.mark.parametrize("name", PER_SESSION)
def test_moving_states_of_a_model_with_an_instance_per_session_are_those_of_each_alone(name):
    model, rng = PER_SESSION[name], np.random.default_rng(1)
    together = Markov(model, TRANSITION)
    alone = [Markov(one_session(model, i), TRANSITION) for i in range(3)]
    beliefs = [joint.prior(one, 1) for one in alone]
    belief = joint.prior(together, 3)
    context = rng.normal(size=(3, 4, 2)) if model.n_features else None
    for _ in range(4):
        action, reward = rng.integers(4, size=3), rng.integers(2, size=3).astype(float)
        belief = joint.condition(together, belief, context, action, reward)
        for i, one in enumerate(alone):
            own = None if context is None else context[i : i + 1]
            step = action[i : i + 1], reward[i : i + 1]
            beliefs[i] = joint.condition(one, beliefs[i], own, *step)
    mean, variance = together.posterior_rewards(belief.parameters, context)
    for i, one in enumerate(alone):
        own = None if context is None else context[i : i + 1]
        np.testing.assert_allclose(belief.log_weights[i], beliefs[i].log_weights[0])
        own_mean, own_variance = one.posterior_rewards(beliefs[i].parameters, own)
        np.testing.assert_allclose(mean[i], own_mean[0])
        np.testing.assert_allclose(variance[i], own_variance[0])


@pytest.mark.parametrize("name", PER_SESSION)
def test_laws_of_moving_states_have_the_posterior_moments(name):
    """The law of the mean reward is a mixture over paths: its mean is that of the posterior."""
    model, rng = Markov(PER_SESSION[name], TRANSITION), np.random.default_rng(2)
    belief = joint.prior(model, 3)
    context = rng.normal(size=(3, 4, 2)) if model.n_features else None
    for _ in range(3):
        action, reward = rng.integers(4, size=3), rng.integers(2, size=3).astype(float)
        belief = joint.condition(model, belief, context, action, reward)
    mean, variance = model.posterior_rewards(belief.parameters, context)
    components = model.reward_laws(belief.parameters, context)
    shares = [1.0 if part.share is None else part.share[:, :, None] for part in components]
    moments = [(part.law.mean, part.law.variance) for part in components]
    total = sum(share * m for share, (m, _) in zip(shares, moments, strict=True))
    squares = sum(share * (v + m**2) for share, (m, v) in zip(shares, moments, strict=True))
    np.testing.assert_allclose(total, mean)
    np.testing.assert_allclose(squares - total**2, variance, rtol=1e-6)


def test_weights_of_paths_are_relative_to_the_largest():
    """A session of 80 rounds: log weights neither grow nor fall without limit."""
    model = Markov(GaussianArms([[0.9, 0.1], [0.2, 0.8]], 0.5, 0.2), TRANSITION)
    belief, rng = joint.prior(model, 2), np.random.default_rng(3)
    for _ in range(80):
        action, reward = rng.integers(2, size=2), rng.normal(5.0, 1.0, size=2)
        belief = joint.condition(model, belief, None, action, reward)
    top = belief.parameters.log_weights.max(axis=(1, 2))
    assert (np.abs(top) < 3).all(), top


def test_members_of_an_ensemble_are_selected_with_the_weights_of_their_session():
    members = [GaussianArms(RNG.normal(size=(2, 2, 3)), 0.5, 0.1) for _ in range(2)]
    ensemble = Ensemble(members, weights=[[0.2, 0.8], [0.6, 0.4]])
    selected = ensemble.select(np.array([1, 0, 1]), np.array([0, 1, 1]))
    np.testing.assert_allclose(selected.weights, [[0.6, 0.4], [0.2, 0.8], [0.6, 0.4]])
    np.testing.assert_allclose(
        selected.models[1].means[:, 0], members[1].means[[1, 0, 1], [0, 1, 1]]
    )
    shared = Ensemble([GaussianArms([[0.9, 0.1]], 0.5, 0.1)] * 2, weights=[0.3, 0.7])
    several = shared.select(np.array([0, 0]), np.array([0, 0]))
    np.testing.assert_allclose(several.weights, [[0.3, 0.7], [0.3, 0.7]])


def test_the_best_action_of_an_ensemble_by_its_members():
    """Member 0 plays action 0 and has probability 1/4, member 1 plays action 1."""
    members = [GaussianArms([[0.9, 0.1]], 0.5), GaussianArms([[0.2, 0.8]], 0.5)]
    ensemble = Ensemble(members, weights=[0.25, 0.75])
    chance = ensemble.probability_best(ensemble.parameters(1), None, None, np.ones((1, 1)))
    np.testing.assert_allclose(chance, [[[0.25, 0.75]]])


def test_an_impossible_row_beside_a_possible_one_is_normalised_on_its_own():
    rows = np.log(np.array([[0.1, 0.3], [0.0, 0.0]]) + 0.0, where=[[True, True], [False, False]],
                  out=np.full((2, 2), -np.inf))  # fmt: skip
    total, weights = normalise(rows, np.log([0.5, 0.5]))
    np.testing.assert_allclose(np.exp(weights), [[0.25, 0.75], [0.5, 0.5]])
    np.testing.assert_allclose(np.exp(total), [0.4, 0.0])


def test_laws_of_one_state_are_joined():
    law = join_states(
        [Normal(np.array([[1.0], [2.0]]), np.array([[0.1], [0.2]]))], np.array([1]), 2
    )
    np.testing.assert_allclose(law.mean, [[2.0]])


def test_a_certain_reward_among_uncertain_ones():
    """P(N(m, s^2) > 0) = Phi(m / s) against a point at 0, by quadrature."""
    chance = probability_largest(np.array([[[0.0, 0.3]]]), np.array([[[0.0, 0.5]]]), None, None)
    np.testing.assert_allclose(chance[0, 0], [norm.cdf(-0.6), norm.cdf(0.6)], atol=1e-7)


@pytest.mark.parametrize("exact", [False, True])
def test_two_actions_that_are_left_are_compared_by_their_quantiles(exact):
    """Quantiles of normals are mean + deviation * 1.2816 at 0.9; the order of bounds differs."""
    rng = np.random.default_rng(4)
    mean, deviation = rng.normal(size=(200, 1, 3)), rng.uniform(0.2, 2.0, size=(200, 1, 3))
    laws = (Component(None, Normal(mean, deviation)),)
    actual = largest_quantiles(laws, np.ones((200, 1)), 0.9, None, exact=exact)
    expected = (mean + deviation * norm.ppf(0.9))[:, 0]
    np.testing.assert_array_equal(actual.argmax(axis=1), expected.argmax(axis=1))
    if exact:
        np.testing.assert_allclose(actual.max(axis=1), expected.max(axis=1))


def test_mixtures_of_two_states_that_are_almost_equal_are_told_apart():
    """Three actions whose quantiles differ by about 1e-4, in mixtures of two states."""
    mean = np.array([[[0.0, 1e-4, 2e-4], [1.0, 1.0 + 1e-4, 1.0 + 2e-4]]]).repeat(40, axis=0)
    deviation = np.random.default_rng(5).uniform(0.1, 1.0, size=(40, 2, 1)).repeat(3, axis=2)
    laws = (Component(None, Normal(mean, deviation)),)
    actual = largest_quantiles(laws, np.full((40, 2), 0.5), 0.8, None)
    assert (actual.argmax(axis=1) == 2).all()


def test_the_noise_of_each_session_is_its_own():
    model = LinearGaussianUnknownNoise(
        np.zeros((2, 1, 1)), np.ones((2, 1, 1, 1)), [[1.0], [3.0]], 4.0
    )
    _, variance = model.posterior_rewards(model.parameters(2), np.ones((2, 1, 1)))
    np.testing.assert_allclose(variance[:, 0, 0], [2.0, 18.0])  # scale^2 count / (count - 2)


def test_one_row_of_a_prior_serves_all_states():
    arms = BernoulliArms([1.0, 2.0], [[1.0, 1.0], [2.0, 3.0]])
    np.testing.assert_array_equal(arms.alpha, [[1.0, 2.0], [1.0, 2.0]])


def test_the_message_about_a_transition_names_the_negative_entry():
    with pytest.raises(ValueError, match=r"transition\[1, 1\] is -0.5"):
        checks.transition_matrix([[1.0, 0.0], [1.5, -0.5]], 2)


def test_a_context_with_a_number_for_each_action():
    model = FunctionModel(
        lambda x, a: np.take_along_axis(x, a, axis=1)[:, None] * [[1.0], [2.0]], 0.5, n_states=2
    )
    context = model.check_context(np.array([[0.1, 0.4, 0.2]]), 1)
    np.testing.assert_allclose(
        model.expected_rewards(context), [[[0.1, 0.4, 0.2], [0.2, 0.8, 0.4]]]
    )


def test_the_spread_of_particles_is_that_of_the_most_uncertain_action():
    """Draws are -1 and 1 of theta_0, and -3 and 3 of theta_1, in each of two states."""
    draws = np.array([[-1.0, -3.0], [1.0, 3.0]])

    def sampler(rng, n):
        return np.tile(np.tile(draws, (n // 2 + 1, 1))[:n], (2, 1, 1))

    model = Particles(
        sampler, lambda theta, x, r: np.zeros((*theta.shape[:2], r.shape[1])), 4,
        mean=lambda theta, x: theta @ x.swapaxes(1, 2), n_actions=2,
    )  # fmt: skip
    assert model.spread_bound == pytest.approx(3.0)


def test_a_vague_state_of_ratings_is_worth_a_tenth_of_a_rating_at_least():
    """The states are at the ends of the range, so that a strength of zero would be right."""
    arms = CategoricalArms([[[1e-3, 1e3]], [[1e3, 1e-3]]], [0.0, 1.0])
    np.testing.assert_allclose(arms.vague().concentration, [[[0.05, 0.05]]], rtol=1e-3)


def test_the_quantile_of_a_certain_model_that_its_weights_reach_exactly():
    model = GaussianArms([[0.9, 0.5], [0.1, 0.5]], 0.5, 1e-9, state_prior=[0.1, 0.9])
    policy = mmBayesUCB(model, 0.9)
    assert policy.decide(policy.init(), None, np.random.default_rng(0)).action == [1]


def test_a_new_item_is_predicted_from_its_attributes():
    """F = (1, 2): means W'f, variances c Q with c = 1 + f'P f = 1 + 0.1 + 4 * 0.05 = 1.3."""
    items = Items(
        Encoder((Number("price", 10.0, 2.0),)), np.array([[0.5, 0.2], [0.1, -0.3]]),
        np.diag([0.04, 0.09]), np.diag([0.1, 0.05]),
    )  # fmt: skip
    arms = with_parts(GaussianArms([[0.9, 0.1], [0.2, 0.8]], 0.5, 0.1), items=items)
    new = [{"price": 14.0}, None]
    grown, catalogue = add_items(arms, Catalogue(["a", "b"]), ["c", "d"], new, ["C", "D"])
    np.testing.assert_allclose(grown.means[:, 2], [0.7, -0.4])
    np.testing.assert_allclose(grown.spread[:, 2] ** 2, [1.3 * 0.04, 1.3 * 0.09])
    np.testing.assert_allclose(grown.means[:, 3], np.mean(grown.means[:, :3], axis=1))
    assert (catalogue.ids[2:], catalogue.names[2:]) == (("c", "d"), ("C", "D"))

    linear = with_parts(LinearGaussian([[1.0, 0.0]], 0.5, [np.eye(2)]), items=items)
    vectors = Catalogue(["a", "b"], features=[[1.0, 0.0], [0.0, 1.0]])
    grown, catalogue = add_items(linear, vectors, ["c"], new[:1])
    np.testing.assert_allclose(plain_features(grown, catalogue)[2], [0.7, -0.4])

    with pytest.raises(ValueError, match="without attributes of items"):
        add_items(GaussianArms([[0.9]], 0.5), Catalogue(["a"]), ["c"], new[:1])
    with pytest.raises(ValueError, match="got 2 numbers"):
        Vector("taste", 3)._value([1.0, 2.0])


@pytest.mark.parametrize("kind", [GaussianArms, BernoulliArms, LinearGaussian])
def test_one_state_of_a_model_that_all_sessions_share(kind):
    model = kind.random(np.random.default_rng(6), 3, 4)
    selected = model.select(np.array([0, 1]), np.array([2, 0]))
    context = np.ones((2, 4, model.n_features)) if model.n_features else None
    rewards = model.expected_rewards(context)
    rewards = np.broadcast_to(rewards, (2, *rewards.shape[1:]))
    expected = [rewards[0, 2], rewards[1, 0]]
    np.testing.assert_allclose(selected.expected_rewards(context)[:, 0], expected)


def test_nested_ensembles_multiply_the_shares_of_their_members():
    """An inner member has 0.5 * 0.4 of the probability; laws of all members sum to one."""
    first, second = GaussianArms([[0.9, 0.1]], 0.5, 0.1), GaussianArms([[0.2, 0.8]], 0.5, 0.2)
    nested = Ensemble([first, Ensemble([first, second], weights=[0.4, 0.6])], weights=[0.5, 0.5])
    parts = nested.reward_laws(nested.parameters(1), None)
    np.testing.assert_allclose([float(p.share[0, 0]) for p in parts], [0.5, 0.2, 0.3])


def test_many_draws_of_two_sessions_are_those_of_each_alone():
    """50 draws of 2 actions: features are multiplied with the factor of each state once."""
    model, rng = LinearGaussian.random(np.random.default_rng(7), 3, 4), np.random.default_rng(8)
    context, state = rng.normal(size=(2, 2, 4)), np.sort(rng.integers(3, size=(2, 50)), axis=1)
    normals = rng.standard_normal((2, 50, 4))
    together = model.rewards_from_normals(model.parameters(2), context, state, normals)
    for i in range(2):
        one = slice(i, i + 1)
        alone = model.rewards_from_normals(
            model.parameters(1), context[one], state[one], normals[one]
        )
        np.testing.assert_allclose(together[one], alone)


def test_rows_of_a_transition_are_divided_by_their_sums():
    matrix = checks.transition_matrix([[0.5 + 4e-7, 0.5], [0.25, 0.75]], 2)
    np.testing.assert_allclose(matrix.sum(axis=1), 1.0, rtol=1e-15)


def test_two_states_that_switch():
    model = Markov.switching(GaussianArms([[0.9, 0.1], [0.2, 0.8]], 0.5), 0.2)
    np.testing.assert_allclose(model.transition, [[0.8, 0.2], [0.2, 0.8]])


def test_priors_at_the_end_of_what_a_family_allows():
    with pytest.raises(ValueError, match="a beta prior needs"):
        BernoulliArms.from_means([[0.5]], 0.5)
    with pytest.raises(ValueError, match="must be positive definite: moves"):
        LogisticLinear([[1.0]], [[[0.0]]])
    model = LinearGaussianUnknownNoise([[1.0]], [[[1.0]]], 1.0, 2.5)
    assert model.noise == pytest.approx(np.sqrt(5.0))  # count / (count - 2)


def test_a_new_rating_may_have_a_weak_prior():
    """Mean 1/2 and variance 1/8 of two categories are a Dirichlet prior of 1/2 and 1/2."""
    arms = CategoricalArms([[[3.0, 3.0]]], [0.0, 1.0])
    grown = arms.with_actions(np.array([[0.5]]), np.array([[0.125]]))
    np.testing.assert_allclose(grown.concentration[0, 1], [0.5, 0.5])


def test_each_session_gets_a_vague_state_of_its_own():
    model = PER_SESSION["unknown noise"]
    grown = model.with_state(model.vague(), 0.1)
    assert grown.weights.shape == (3, 3, 2)
    alone = one_session(model, 1)
    expected = alone.with_state(alone.vague(), 0.1)
    for name in ("weights", "covariances", "noise_scale", "noise_count"):
        np.testing.assert_allclose(getattr(grown, name)[1], getattr(expected, name))


def test_noise_of_users_in_sessions_of_their_own():
    """The likelihood takes E[sigma^2] of the session: 4 / 2 times the square of the guess."""
    model = LinearGaussianUnknownNoise(
        np.zeros((2, 1, 1)), np.ones((2, 1, 1, 1)), [[1.0], [3.0]], 4.0
    )
    actual = model.log_likelihood(np.ones((2, 1, 1)), np.zeros(2, np.int64), np.ones(2))
    expected = norm.logpdf(1.0, scale=np.sqrt([[2.0], [18.0]]))
    np.testing.assert_allclose(actual, expected)


def test_the_variance_of_a_click_with_a_known_offset():
    """Var(x'w + o) with C over (x, o): w'C_x w + tr(C_x Sigma) + C_o + 2 w'C_xo."""
    model = LogisticLinear([[2.0, 1.0]], [0.5 * np.eye(2)], offset=True)
    c = np.array([[0.3, 0.1, 0.05], [0.1, 0.2, 0.02], [0.05, 0.02, 0.4]])
    w = np.array([2.0, 1.0])
    expected = w @ c[:2, :2] @ w + 0.5 * 0.5 + 0.4 + 2 * w @ c[:2, 2]
    np.testing.assert_allclose(_offset_variance(model, c[None], 2), [[expected]])


def test_an_action_is_added_once():
    arms, catalogue = GaussianArms([[0.9, 0.1]], 0.5), Catalogue(["a", "b"])
    with pytest.raises(ValueError, match=r"has an action 'a' already$"):
        add_average(arms, catalogue, ["a"])
    with pytest.raises(ValueError, match=r"'a' already \(it is retired\)"):
        add_average(arms, catalogue.retire(["a"]), ["a"])


def test_moves_of_particles_follow_the_correlation_of_the_prior():
    covariance = np.array([[1.0, 0.9], [0.9, 2.0]])
    factors = LogisticLinear([[0.0, 0.0]], [covariance])._prior_factors
    np.testing.assert_allclose(factors[0].T @ factors[0], covariance, atol=0.15)


def test_unknown_categories_are_the_average():
    column = Category("device", ("phone", "tablet", "web"), (0.5, 0.25, 0.25))
    values = [{"device": "web"}, {"device": None}, {"device": float("nan")}, {"device": "tv"}, {}]
    encoded, known = column.encode(values)
    np.testing.assert_allclose(encoded[0], [-0.5, -0.25, 0.75])
    assert (encoded[1:] == 0).all()
    assert known.tolist() == [True, False, False, False, False]


def test_a_model_that_says_nothing_about_order_is_taken_as_exact():
    assert is_order_free(SimpleNamespace(transition=None))
    assert not is_order_free(SimpleNamespace(transition=np.eye(2)))


def test_a_model_of_another_class_has_defaults_of_what_it_lacks():
    def moments(parameters, context):
        return np.array([[[1.0, 2.0]]]), np.array([[[4.0, 9.0]]])

    model = SimpleNamespace(posterior_rewards=moments, is_certain=True, session_gap=60.0)
    described = with_defaults(model)
    assert (described.session_gap, described.returning, described.support) == (60.0, None, REALS)
    assert described.learns_unseen
    assert not described.is_sampled
    assert described.untransformed is described.at_rest is described.without_particles is model
    assert described.average_rewards(np.ones((1, 1)), None, None).tolist() == [[1.0, 2.0]]
    assert described.reward_laws(None, None)[0].law.variance.tolist() == [[[4.0, 9.0]]]


def test_arms_have_no_features():
    assert [kind.summary.has_features for kind in (PoissonArms, LinearGaussian)] == [False, True]


def test_sessions_of_one_belief_and_different_contexts_have_different_scenarios():
    model, rng = LinearGaussian.random(np.random.default_rng(9), 2, 3), np.random.default_rng(10)
    context = rng.normal(size=(2, 4, 3))
    belief = joint.prior(model, 2)
    together = scenario_rewards(model, belief, context, 10, 0)
    for i in range(2):
        alone = scenario_rewards(model, joint.prior(model, 1), context[i : i + 1], 10, 0)
        np.testing.assert_allclose(together[i], alone[0])


def test_values_that_differ_by_rounding_tie():
    values = resolve_ties(np.array([[1.0, 1.0 - 1e-13, 0.9]]))
    assert values[0, 0] == values[0, 1] > values[0, 2]
