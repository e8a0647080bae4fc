"""Numbers checked by hand where no other test would notice a small change."""

import numpy as np
import pytest
from scipy.special import ndtr
from scipy.stats import lognorm, multivariate_normal

from latentbandits import (
    EXP4,
    TS,
    UCB1,
    BernoulliArms,
    CategoricalArms,
    Decision,
    Discounted,
    Exploring,
    FunctionModel,
    GaussianArms,
    HierTS,
    LinearGaussian,
    Log1pRewards,
    LogisticLinear,
    SqrtRewards,
    Visit,
)
from latentbandits.models import checks, history
from latentbandits.models.arms.gaussian import ArmStatistics
from latentbandits.models.composed.known import Known
from latentbandits.models.composed.particle_model import TooFewParticles
from latentbandits.models.numerics.laws import Component, Normal, probability_largest
from latentbandits.policies import decision, registry
from latentbandits.policies.checked import Asked
from latentbandits.policies.latent import ucb
from latentbandits.policies.registry import Inputs
from latentbandits.policies.shared import chunks
from latentbandits.serving.engine.choosing import RowGenerator
from latentbandits_related import (
    CLUB,
    COFIBA,
    TSC,
    UCBC,
    GroupedLinUCB,
    MetaTS,
    ParticleMF,
    PerUser,
    Rank1Elim,
)
from latentbandits_related.graph import CompleteGraph, SparseGraph
from latentbandits_related.nmf import factorise
from latentbandits_related.policy_reuse import look_ahead
from latentbandits_related.rank1 import bernoulli_divergence
from tests.reference.particles import Particles


def test_moves_of_particles_have_the_scale_of_the_prior():
    """4,096 draws: the relative error of a variance is 2.2%, and 15% is more than six of them."""
    covariance = np.array([[4.0, 0.0], [0.0, 0.01]])
    factor = LogisticLinear(np.zeros((1, 2)), [covariance])._prior_factors[0]
    np.testing.assert_allclose(np.diag(factor.T @ factor), [4.0, 0.01], rtol=0.15)


def test_the_law_of_ratings_has_their_mean_variance_and_range():
    """Ratings 1, 3, 5 with Dirichlet(1, 2, 5): mean 4, and variance (18 - 16) / 9."""
    model = CategoricalArms([[[1.0, 2.0, 5.0]]], [1, 3, 5])
    law = model.law(np.array([[[1.0, 2.0, 5.0]]]))
    np.testing.assert_allclose(law.mean, [[4.0]])
    np.testing.assert_allclose(law.variance, [[2 / 9]])
    below = law.take(np.array([0]), np.array([0])).below
    assert below(np.array([[1.0]])) == 0
    assert below(np.array([[5.0]])) == 1


def test_inputs_of_a_policy_are_read_from_the_model_unless_they_are_given():
    model = GaussianArms([[0.9, 0.1, 0.4]], noise=0.5)
    assert (Inputs(model).n_actions, Inputs(model).noise) == (3, 0.5)
    assert Inputs(model, noise=2.0).noise == 2.0
    assert Inputs(n_actions=7).n_actions == 7
    assert Inputs().noise is None


def test_a_logged_decision_without_a_state_has_state_minus_one():
    np.testing.assert_array_equal(Decision.logged([2, 0]).state, [-1, -1])


def test_the_prior_of_a_logistic_model_is_the_normal_density():
    """Of correlated weights, up to a constant of the state."""
    weights, covariance = np.array([[0.5, -1.0]]), np.array([[2.0, 0.9], [0.9, 0.5]])
    model = LogisticLinear(weights, [covariance])
    theta = np.array([[[0.5, -1.0], [1.5, -1.0], [0.5, 1.0], [-2.0, 0.3]]])
    expected = multivariate_normal(weights[0], covariance).logpdf(theta[0])
    density = model._log_prior(theta, np.array([0]))[0]
    np.testing.assert_allclose(density - density[0], expected - expected[0], rtol=1e-9)


def test_hierts_without_draws_has_no_probabilities_but_their_shape():
    policy = HierTS(n_users=3, n_features=2)
    visit = Visit(np.array([2]), np.array([[[1.0, 0.0], [0.0, 2.0], [1.0, 1.0]]]))
    actual = policy.action_probabilities(policy.init(), visit, np.random.default_rng(0))
    assert (actual.kind, actual.values.shape) == ("none", (1, 3))


def test_the_divergence_of_bernoulli_laws():
    """kl(1/2, 1/4) = ln(2)/2 + ln(2/3)/2; next to certain is far, and not infinitely so."""
    divergence = bernoulli_divergence(
        np.array([0.5, 0.5, 0.0, 1.0]), np.array([0.25, 1.0, 0.5, 0.5])
    )
    by_hand = 0.5 * np.log(2) + 0.5 * np.log(2 / 3)
    limit = 0.5 * np.log(0.5) + 0.5 * np.log(0.5 / 2**-53)
    np.testing.assert_allclose(divergence, [by_hand, limit, np.log(2), np.log(2)], rtol=1e-9)


def test_grouped_linucb_counts_rounds():
    policy = GroupedLinUCB(2, groups=[0, 0, 1])
    visit = Visit(np.array([2]), np.array([[[1.0, 0.0], [0.0, 2.0]]]))
    belief = policy.init()
    for t in range(3):
        assert belief.rounds == t
        belief = policy.update(belief, visit, Decision.logged([1]), [1.0])


def test_particles_of_a_factorisation_start_from_their_priors():
    """20,000 normal entries each: six standard errors of a deviation are 3%."""
    policy = ParticleMF(
        n_users=100, n_items=50, n_particles=100, user_spread=0.5, item_spread=2.0, rank=4
    )
    belief = policy.init()
    np.testing.assert_allclose(belief.users.std(), 0.5, rtol=0.03)
    np.testing.assert_allclose(belief.items.std(), 2.0, rtol=0.03)


def test_ties_are_broken_by_the_streams_of_the_tied_sessions_only():
    """With a stream for each session, the first session ties and the second draws nothing."""
    mask = np.array([[True, True, False], [False, False, True]])
    generators = [np.random.default_rng(seed) for seed in (3, 4)]
    action = decision.pick(mask, RowGenerator(generators))
    alone = decision.pick(mask[:1], RowGenerator([np.random.default_rng(3)]))
    np.testing.assert_array_equal(action, [alone[0], 2])
    assert generators[1].random() == np.random.default_rng(4).random()


def test_smearing_of_average_rewards():
    rewards, unsmeared = np.array([3.0, 0.5]), np.array([1.0, 2.0])
    np.testing.assert_allclose(Log1pRewards.smearing_of(rewards, unsmeared), [2.0, 0.5])
    np.testing.assert_allclose(SqrtRewards.smearing_of(rewards, unsmeared), [2.0, 0.0])


def test_policies_without_states_have_one():
    model = GaussianArms([[0.9, 0.1], [0.2, 0.8]], noise=0.5)
    for name in ("popularity", "uniform", "UCB1", "TS"):
        assert registry.build(name, Inputs(model)).n_states == 1


def test_the_message_about_a_prior_names_the_worst_sum():
    with pytest.raises(ValueError, match=r"it sums to 0\.5: divide it by its sum"):
        GaussianArms(np.zeros((2, 2, 3)), 0.5, state_prior=[[0.25, 0.25], [0.5, 0.5]])


def test_contexts_of_particles():
    def prior(rng, n):
        return rng.standard_normal((2, n, 2))

    def mean(theta, x):
        return theta @ x[..., :2].swapaxes(1, 2)

    def log_likelihood(theta, x, reward):
        return -0.5 * (reward[:, None] - mean(theta, x)) ** 2

    two = Particles(prior, log_likelihood, 16, mean=mean, n_features=2)
    with pytest.raises(ValueError, match="n_features=2"):
        two.check_context(np.zeros((1, 4, 3)), 1)
    any_number = Particles(prior, log_likelihood, 16, mean=mean)
    for n_features in (2, 3):
        assert any_number.check_context(np.zeros((1, 4, n_features)), 1).shape == (1, 4, n_features)
    with pytest.raises(ValueError, match="needs a context"):
        any_number.check_context(None, 1)
    with pytest.raises(ValueError, match=r"n_features=1\); got \(4, 3\)"):
        any_number.check_context(np.zeros((4, 3)), 1)


def test_a_function_model_says_when_it_needs_a_context():
    def mean(x, action):
        return np.zeros((len(action), 2, action.shape[1]))

    with pytest.raises(ValueError, match="needs a context of 1 sessions"):
        FunctionModel(mean, 0.5, n_states=2, n_actions=3, context_shape=()).check_context(None, 1)
    with pytest.raises(ValueError, match="needs a context of 1 sessions"):
        FunctionModel(mean, 0.5, n_states=2).check_context(None, 1)
    assert FunctionModel(mean, 0.5, n_states=2, n_actions=3).check_context(None, 1) is None


def test_exploring_a_policy_that_says_nothing_about_order():
    class Own:
        init = decide = update = None

    assert Exploring(Own(), 0.1).order_free is None
    assert not Exploring(Discounted(UCB1(2), 0.9), 0.1).order_free


def test_edges_of_the_complete_graph():
    assert CompleteGraph(5).n_edges == 10


def test_club_cuts_without_changing_the_belief_before():
    policy = CLUB(n_users=3, n_features=2, alpha2=1e-6)
    with pytest.raises(ValueError, match="alpha2 must be above zero"):
        CLUB(n_users=3, n_features=2, alpha2=0.0)
    belief = policy.init()
    features = np.array([[[1.0, 0.0], [0.0, 2.0]]])
    for user in (2, 2, 0, 2):
        before, kept = belief, belief.component.copy()
        belief = policy.update(belief, Visit(np.array([user]), features), Decision.logged([1]), [1])
        np.testing.assert_array_equal(before.component, kept)
    assert len(np.unique(belief.component)) > 1


def test_particle_factorisation_counts_rounds():
    policy = ParticleMF(n_users=2, n_items=2, n_particles=3)
    belief = policy.update(policy.init(), Visit(np.array([1])), Decision.logged([0]), [1.0])
    assert belief.rounds == 1


def test_entropy_after_a_reward_that_rules_a_state_out():
    """Rewards 0 or 1, certain in state 1: a zero leaves the other state alone, entropy 0."""
    weights, observed = np.array([[0.5, 0.5]]), np.array([[[0.5], [1.0]]])
    actual = look_ahead(weights, observed, np.array([[[0.5], [1.0]]]), None)
    after_one = np.array([1 / 3, 2 / 3])
    expected = -0.75 * (after_one * np.log(after_one)).sum()
    np.testing.assert_allclose(actual.entropy, [[expected]])


def test_moments_of_transformed_rewards():
    """For theta ~ N(1, 1/4): E theta^2 + c and Var theta^2; c E e^theta - 1 and its variance."""
    mean, variance = SqrtRewards.moments(np.array(1.0), np.array(0.25), 0.5)
    np.testing.assert_allclose([mean, variance], [1.75, 4 * 0.25 + 2 * 0.25**2])
    mean, variance = Log1pRewards.moments(np.array(1.0), np.array(0.25), 2.0)
    log_normal = lognorm(s=0.5, scale=2 * np.e)
    np.testing.assert_allclose([mean, variance], [log_normal.mean() - 1, log_normal.var()])


def test_rewards_that_a_transform_cannot_take():
    model = GaussianArms([[0.5, 1.0]], noise=0.5)
    with pytest.raises(ValueError, match="cannot take -1"):
        Log1pRewards(model).check_reward(np.array([-1.0]))
    Log1pRewards(model).check_reward(np.array([-0.999]))
    with pytest.raises(ValueError, match=r"cannot take -0\.1"):
        SqrtRewards(model).check_reward(np.array([-0.1]))
    SqrtRewards(model).check_reward(np.array([0.0]))


def test_prior_particles_of_a_logistic_model_have_its_covariance():
    """50,000 draws: six standard errors of each entry are below 0.06."""
    covariance = np.array([[2.0, 0.9], [0.9, 0.5]])
    model = LogisticLinear([[0.5, -1.0]], [covariance])
    draws = model._draw_prior(50_000, np.random.default_rng(0))[0]
    np.testing.assert_allclose(draws.mean(axis=0), [0.5, -1.0], atol=0.04)
    np.testing.assert_allclose(np.cov(draws.T), covariance, atol=0.06)


def test_a_factorisation_that_is_not_found_at_once():
    """No pure rows: the first sweep is wrong by more than a tenth, the last is not."""
    rng = np.random.default_rng(0)
    a, w = 0.2 + rng.random((12, 2)), 0.2 + rng.random((2, 9))
    matrix = a @ w
    actual = np.matmul(*factorise(matrix, 2))
    first = np.matmul(*factorise(matrix, 2, max_sweeps=1))
    assert np.abs(actual - matrix).max() < 0.5 * np.abs(first - matrix).max()
    assert np.abs(actual - matrix).max() < 1e-3


def test_a_sweep_of_rank_one_elimination_visits_rows_then_columns():
    policy = Rank1Elim(n_rows=3, n_columns=2, horizon=100)
    belief = policy.init(5)._replace(place=np.arange(5))
    side, line, fresh = policy._plan(belief)
    np.testing.assert_array_equal(side, [0, 0, 0, 1, 1])
    np.testing.assert_array_equal(line, [0, 1, 2, 0, 1])
    np.testing.assert_array_equal(fresh, [True, False, False, True, False])


@pytest.mark.parametrize("kind", [ParticleMF, HierTS])
def test_the_only_action_has_propensity_one_by_counting(kind):
    features = np.ones((1, 1, 2))
    if kind is ParticleMF:
        policy, visit = ParticleMF(2, 1, n_particles=3, propensity_draws=4), Visit(np.array([1]))
    else:
        policy, visit = HierTS(2, 2, propensity_draws=4), Visit(np.array([1]), features)
    decision = policy.decide(policy.init(), visit, np.random.default_rng(0))
    assert (decision.propensity.item(), decision.propensity_kind) == (1.0, "counted")


def test_moments_of_a_mixture_with_shares():
    """States 1/4 and 3/4; in each, two laws of shares 1/2: means 0, 4, 2, 2 and variance 1."""
    deviation = np.ones((1, 2, 1))
    components = [
        Component(np.full((1, 2), 0.5), Normal(np.array([[[0.0], [2.0]]]), deviation)),
        Component(np.full((1, 2), 0.5), Normal(np.array([[[4.0], [2.0]]]), deviation)),
    ]
    mean, variance = ucb._moments(components, np.array([[0.25, 0.75]]))
    np.testing.assert_allclose([mean.item(), variance.item()], [2.0, 1 + 0.25 * 4])


def test_an_action_that_is_not_eligible_does_not_cost_precision():
    mean = np.array([[[0.0, 1e-3, 1e17]]])
    eligible = np.array([[True, True, False]])
    actual = probability_largest(mean, np.full((1, 1, 3), 1e-3), eligible)
    np.testing.assert_allclose(actual[0, 0, 1], ndtr(1 / np.sqrt(2)), atol=1e-6)
    assert actual[0, 0, 2] == 0


def test_the_vague_state_of_each_session_is_its_own():
    alpha = np.array([[[9.0, 1.0], [2.0, 8.0]], [[5.0, 5.0], [6.0, 4.0]], [[1.0, 1.0], [1.0, 1.0]]])
    together = BernoulliArms(alpha, 10.0 - 0.5 * alpha).vague()
    for i in range(3):
        alone = BernoulliArms(alpha[i], 10.0 - 0.5 * alpha[i]).vague()
        np.testing.assert_allclose(together.alpha[i], alone.alpha)


def test_indices_of_competitive_policies():
    """Both actions are best in a state; N = (1, 5), averages .1 and .9, noise 1/1000."""
    model = GaussianArms([[0.1, 0.9], [0.9, 0.1]], noise=1e-3)
    belief = ArmStatistics(np.array([[1.0, 5.0]]), np.array([[0.1, 4.5]]))
    for policy in (TSC(model, alpha=1e7), UCBC(model, alpha=2.0)):
        decision = policy.decide(belief, None, np.random.default_rng(0))
        assert decision.action == 1
    wide = UCBC(GaussianArms([[0.1, 0.9], [0.9, 0.1]], noise=0.5), alpha=2.0)
    index = 0.9 + 0.5 * np.sqrt(4.0 * np.log(7) / 5)  # 2 alpha ln t / N, in the seventh round
    np.testing.assert_allclose(wide._scores(belief, Asked(None, None, None))[0, 1], index)


def test_edges_of_a_sparse_graph_at_one_node_and_at_several():
    graph = SparseGraph(4, np.array([[0, 1], [0, 2], [2, 3]]))
    for nodes in ([0], [2], [0, 2], [3, 1], [0, 1, 2, 3]):
        source, neighbour, edge = graph.edges(np.array(nodes))
        actual = {(int(a), int(b), int(e)) for a, b, e in zip(source, neighbour, edge, strict=True)}
        every = [(0, 1, 0), (1, 0, 0), (0, 2, 1), (2, 0, 1), (2, 3, 2), (3, 2, 2)]
        assert actual == {(a, b, e) for a, b, e in every if a in nodes}


def test_too_few_particles_are_warned_about():
    """Below the number of parameters, or below half of the particles where these are few."""
    model = LogisticLinear(np.zeros((1, 10)), [np.eye(10)], n_particles=4)
    model._warn(np.array([[2.0]]), 10)
    with pytest.warns(TooFewParticles, match="effective sample size of 1.9 of 4 particles"):
        model._warn(np.array([[1.9]]), 10)
    many = LogisticLinear(np.zeros((1, 10)), [np.eye(10)], n_particles=100)
    many._warn(np.array([[10.0]]), 10)
    with pytest.warns(TooFewParticles, match="state 1.*try n_particles=400"):
        many._warn(np.array([[20.0, 9.9]]), 10)


def test_the_best_actions_of_a_known_model_share_the_probability():
    model = Known(GaussianArms([[0.9, 0.9, 0.4], [0.2, 0.8, 0.5]], noise=0.5))
    weights = np.full((1, 2), 0.5)
    actual = model.probability_best(model.parameters(1), None, None, weights)
    np.testing.assert_array_equal(actual, [[[0.5, 0.5, 0.0], [0.0, 1.0, 0.0]]])
    actual = model.probability_best(
        model.parameters(1), None, np.array([[True, False, True]]), weights
    )
    np.testing.assert_array_equal(actual, [[[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]])


def test_policies_of_single_users_count_rounds():
    policy = PerUser(TS(n_actions=3), n_users=5)
    belief = policy.update(policy.init(), Visit(np.array([4])), Decision.logged([1]), [0.5])
    assert belief.rounds == 1


def test_the_longest_text_of_a_policy():
    text = "mmTS(catch_all=True" + " " * 980 + ")"
    assert len(text) == 1000
    assert registry.parse(text).options == {"catch_all": True}
    with pytest.raises(ValueError, match="at most 1000 characters; got 1001"):
        registry.parse(text[:-1] + " )")


def test_items_of_each_population():
    policy = COFIBA(n_users=3, items=np.stack([np.eye(2), 2 * np.eye(2)]))
    assert policy.init(2).rounds.shape == (2,)
    with pytest.raises(ValueError, match="2"):
        policy.init(3)


def test_rank_one_elimination_keeps_to_eligible_pairs_without_propensities():
    policy = Rank1Elim(n_rows=2, n_columns=2, horizon=100)
    eligible = np.array([[False, False, False, True]])
    for seed in range(20):
        rng = np.random.default_rng(seed)
        decision = policy.decide(policy.init(), None, rng, eligible=eligible, propensity=False)
        assert (decision.action, decision.propensity) == (3, None)


def test_rows_of_one_chunk_and_of_several():
    values = np.arange(10.0)[:, None]
    for rows in (10, 5, 4):
        parts = chunks.split((values,), 1, rows)
        actual = chunks.select(parts, 0, 0, np.array([7, 2, 9]), rows)
        np.testing.assert_array_equal(actual, [[7.0], [2.0], [9.0]])
        (one,) = chunks.take(parts, np.array([7]), rows)
        np.testing.assert_array_equal(one, [[7.0]])


def test_one_more_state_takes_its_probability_from_all_others():
    np.testing.assert_allclose(checks.extended_prior(np.array([0.25, 0.75]), 0.2), [0.2, 0.6, 0.2])


def test_smearing_is_one_number_or_one_for_each_action():
    model = GaussianArms([[0.5, 1.0]], noise=0.5)
    np.testing.assert_array_equal(SqrtRewards(model, [0.1, 0.2]).smearing, [0.1, 0.2])
    with pytest.raises(ValueError, match="one for each of the model's 2 actions; got 3"):
        SqrtRewards(model, [0.1, 0.2, 0.3])


def test_uniform_numbers_of_a_history_are_those_of_splitmix64():
    """The published test vector of splitmix64 for the seed 1234567."""
    expected = [6457827717110365317, 3203168211198807973, 9817491932198370423]
    actual = history.uniforms(np.array([1234567], np.uint64), 3)
    np.testing.assert_allclose(actual, [[number / 2**64 for number in expected]], rtol=1e-12)


def test_draws_of_a_population_depend_on_who_was_served():
    policy = MetaTS(n_users=3, n_features=2)
    features = np.array([[[1.0, 0.0], [0.0, 2.0]]])
    keys = {
        int(policy.update(
            policy.init(), Visit(np.array([user]), features), Decision.logged([1]), [1.0]
        ).keys[0])
        for user in range(3)
    }  # fmt: skip
    assert len(keys) == 3


@pytest.mark.parametrize("rate", [0.0, -1.0, np.inf])
def test_rates_of_exponential_weights(rate):
    with pytest.raises(ValueError, match="rate"):
        EXP4(GaussianArms([[0.9, 0.1]], noise=0.5), rate=rate)


def test_a_covariance_that_is_not_symmetric_is_refused():
    with pytest.raises(ValueError, match="must be symmetric"):
        LinearGaussian([[0.0, 0.0]], 0.5, [[[1.0, 0.1], [0.2, 1.0]]])
