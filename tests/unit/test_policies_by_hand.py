"""Numbers of policies and of grown models, checked by hand."""

import numpy as np
import pytest
from scipy.stats import beta, kstest, norm

from latentbandits import (
    EXP4,
    BernoulliArms,
    Decision,
    Exploring,
    GaussianArms,
    HierTS,
    LinearGaussian,
    LinearGaussianUnknownNoise,
    LinTS,
    Log1pRewards,
    Phased,
    SqrtRewards,
    Visit,
    mmTS,
    mTS,
)
from latentbandits.beliefs.encoding import BeliefError, encode
from latentbandits.beliefs.information import _compared, _unit
from latentbandits.models.arms.dirichlet import unnormalised
from latentbandits.models.artefacts import Catalogue
from latentbandits.models.attributes.columns import Category, Encoder, Number
from latentbandits.models.attributes.items import Items
from latentbandits.models.attributes.parts import Gate, part, with_parts
from latentbandits.models.growing import add_vectors
from latentbandits.policies.checked import Asked
from latentbandits.policies.decision import LARGEST_REWARD, check_outcome
from latentbandits.policies.registry import Inputs, build
from latentbandits_related import (
    TSC,
    UCBC,
    AdaTS,
    NMFBandit,
    PolicyReuse,
    ProBALL,
    Rank1Elim,
    Rank1ElimKL,
)
from latentbandits_related.graph import random_graph, sparse_probability
from latentbandits_related.nmf import factorise

TWO = GaussianArms([[0.9, 0.1], [0.2, 0.8]], noise=0.5)


def test_losses_of_exp4_are_in_units_of_the_declared_range():
    policy = EXP4(TWO, reward_range=(1.0, 5.0), rate=0.5)
    belief = policy.update(policy.init(), None, Decision.logged([0], propensity=[0.5]), [2.0])
    np.testing.assert_allclose(belief.losses, [[(5 - 2) / 4 / 0.5, 0.0]])
    np.testing.assert_allclose(belief.log_weights, [[-0.75, 0.0]])


def test_expected_improvement_of_policy_reuse():
    policy = PolicyReuse(TWO, rule="EI")
    _, utility = policy._library(None, None)
    scores = policy._scores(policy.init(), utility)
    z = (np.array([[0.9, 0.1], [0.2, 0.8]]) - 0.55) / 0.5  # 0.55 is the best expected reward
    expected = (0.5 * (z * norm.cdf(z) + norm.pdf(z))).mean(axis=0)
    np.testing.assert_allclose(scores, [expected], rtol=1e-12)


def test_the_probability_of_an_edge_is_at_most_one():
    assert sparse_probability(2) == 1.0  # 3 ln(2) / 2 is 1.04
    assert sparse_probability(100) == pytest.approx(3 * np.log(100) / 100)


def test_hierts_counts_rounds():
    policy = HierTS(n_users=2, n_features=1)
    visit = Visit(np.array([1]), np.ones((1, 2, 1)))
    belief = policy.update(policy.init(), visit, Decision.logged([0]), [1.0])
    assert belief.rounds.tolist() == [1]


def test_the_message_about_a_reward_names_the_first_impossible_one():
    policy = Rank1ElimKL(n_rows=2, n_columns=2, horizon=10)
    with pytest.raises(ValueError, match=r"got 0\.5"):
        policy.update(policy.init(3), None, Decision.logged([0, 0, 0]), [1.0, 0.5, 0.0])


def test_the_message_about_a_state_prior_names_the_shapes_that_fit():
    with pytest.raises(ValueError, match=r"must be of shape \(1,\); got"):
        GaussianArms([[0.0, 1.0]], 0.5, state_prior=[0.5, 0.5])
    with pytest.raises(ValueError, match=r"must be of shape \(1,\) or \(2, 1\); got"):
        GaussianArms([[[0.0, 1.0]]] * 2, 0.5, state_prior=[0.5, 0.5])


def test_the_message_about_a_negative_mean_names_its_place():
    with pytest.raises(ValueError, match=r"matrix\[0, 1\] is -2\.0"):
        factorise([[1.0, -2.0], [0.5, 1.0]], rank=1)


def test_cells_that_were_never_tried_are_the_average_of_their_row():
    policy = NMFBandit(n_users=2, n_items=2, rank=2, n_probes=2)
    estimate = policy._fit(np.array([[1.0, 0.0], [1.0, 1.0]]), np.array([[1.0, 0.0], [2.0, 5.0]]))
    untried = (1.0 + 8.0 / 3.0) / 2  # one reward of 1, and one of the overall average 8 / 3
    np.testing.assert_allclose(estimate, [[1.0, untried], [2.0, 5.0]], rtol=1e-6)


def test_phased_learners_get_the_sum_of_squared_rewards():
    received = []

    def learner(sums):
        received.append(sums)
        return LinearGaussian([[0.0]], 0.5, [[[1.0]]])

    policy = Phased(LinTS(1, 0.5), learner, mmTS, n_users=2, n_features=1, first=2)
    belief, visit = policy.init(), Visit(np.array([1]), np.ones((1, 2, 1)))
    for reward in (3.0, 4.0):
        belief = policy.update(belief, visit, Decision.logged([0]), [reward])
    np.testing.assert_allclose(received[0].squares, [0.0, 25.0])


@pytest.mark.parametrize("wanted", [True, False])
def test_tsc_computes_propensities_only_if_they_are_wanted(wanted):
    policy = TSC(TWO)
    decision = policy.decide(policy.init(), None, np.random.default_rng(0), propensity=wanted)
    assert (decision.propensity is not None) == wanted


def test_a_grown_model_keeps_its_gate():
    encoder = Encoder((Category("country", ("AT", "DE"), (0.5, 0.5)),))
    gate = Gate(encoder, np.array([[0.0, 2.0]]), ())
    model = with_parts(LinearGaussian([[1.0]], 0.5, [[[0.5]]]), gate=gate)
    catalogue = Catalogue(["a"], features=[[2.0]])
    grown, _ = add_vectors(model, catalogue, ["b"], np.array([[3.0]]), np.array([[[0.2]]]))
    assert part(grown, "gate") is gate


def test_the_variance_of_a_new_action_is_one_that_its_family_can_have():
    model = BernoulliArms([[2.0, 3.0]], [[2.0, 1.0]])
    grown = model.with_actions(np.array([[0.5]]), np.array([[0.9]]))
    a, b = grown.alpha[0, 2], grown.beta[0, 2]
    assert a / (a + b) == pytest.approx(0.5)
    assert a * b / ((a + b) ** 2 * (a + b + 1)) == pytest.approx(0.5 * 0.25)


def test_a_model_may_delegate_to_another_object():
    class Delegating:
        def __getattr__(self, name):
            return getattr(TWO, name)

    policy = mTS(Delegating())
    assert policy.decide(policy.init(), None, np.random.default_rng(0)).propensity == 0.5


def test_tiny_values_are_scaled_to_about_one():
    scaled = _unit(np.array([[1e-300, 5e-301]]))
    assert 0.5 <= scaled.max() < 1
    assert scaled[0, 1] / scaled[0, 0] == 5e-301 / 1e-300


def test_the_upper_bounds_of_proball_in_the_subspace_and_in_all_features():
    basis, x = np.array([[1.0], [0.0]]), np.array([[[1.0, 0.0], [0.6, 0.8]]])
    settings = {"error": 0.5, "noise": 0.5, "horizon": 100}
    switch, least = (ProBALL(basis, combine=name, **settings) for name in ("switch", "min"))
    beliefs = [switch.init()]
    for _ in range(5):
        beliefs.append(switch.update(beliefs[-1], x, Decision.logged([1]), [1.0]))
    bounds = {}
    for t in (1, 5):
        gram, products = t * np.outer(x[0, 1], x[0, 1]), t * x[0, 1]
        for name, u in (("low", basis), ("full", np.eye(2))):
            matrix = u.T @ gram @ u + np.eye(u.shape[1])
            z = x[0] @ u
            mean = z @ np.linalg.solve(matrix, u.T @ products)
            width = np.sqrt(np.einsum("ki,ij,kj->k", z, np.linalg.inv(matrix), z))
            radius = 0.5 * np.sqrt(np.log(np.linalg.det(matrix)) + 2 * np.log(100)) + 1
            slack = 0.5 if name == "low" else 0.0
            bounds[t, name] = mean + (radius + slack * np.sqrt(t)) * width + slack
    # 0.5 sqrt(2 t) < sqrt(2) holds for one round and not for five
    np.testing.assert_allclose(
        switch._scores(beliefs[1], Asked(x, None, None))[0], bounds[1, "low"]
    )
    np.testing.assert_allclose(
        switch._scores(beliefs[5], Asked(x, None, None))[0], bounds[5, "full"]
    )
    for t in (1, 5):
        smaller = np.minimum(bounds[t, "low"], bounds[t, "full"])
        np.testing.assert_allclose(least._scores(beliefs[t], Asked(x, None, None))[0], smaller)
    assert not np.allclose(bounds[5, "low"], bounds[5, "full"])


def test_proball_is_built_from_the_eigenvalues_of_a_prior():
    covariance = np.diag([3.0, 2.0, 0.5, 0.5])
    prior = LinearGaussian([[1.0, 2.0, 0.0, 0.0]], 0.5, [covariance])
    policy = build("ProBALL", Inputs(prior, horizon=100))
    np.testing.assert_allclose(np.abs(policy.basis), np.eye(4)[:, :2])  # two above the rest
    assert policy.error == pytest.approx(np.sqrt(0.5 * 2 / (2.5 + 1.5)))
    assert policy.bound == pytest.approx(np.sqrt(3 + 2 + 1 + 5))


def test_rows_and_columns_of_a_rank_one_policy_follow_from_the_actions():
    twelve = Inputs(n_actions=12, horizon=100)
    assert build("Rank1Elim(n_columns=3)", twelve).n_rows == 4
    assert build("Rank1Elim(n_rows=6)", twelve).n_columns == 2
    assert build("Rank1Elim(n_rows=2, n_columns=3)", Inputs(horizon=100)).n_columns == 3
    with pytest.raises(ValueError, match="5 rows x 2 columns are 10 actions; there are 12"):
        build("Rank1Elim(n_rows=5)", twelve)


def test_the_covariance_of_a_new_item_grows_with_its_distance_from_the_known_ones():
    items = Items(
        Encoder((Number("price", 10.0, 2.0),)), np.array([[1.0], [3.0]]), np.array([[0.25]]),
        np.array([[0.1, 0.0], [0.0, 0.2]]),
    )  # fmt: skip
    vectors, covariances = items.predict([{"price": 14.0}])  # two standard deviations above
    np.testing.assert_allclose(vectors, [[1.0 + 2 * 3.0]])
    np.testing.assert_allclose(covariances, [[[(1 + 0.1 + 0.2 * 4) * 0.25]]])


@pytest.mark.parametrize("kind", [Log1pRewards, SqrtRewards])
def test_the_level_of_a_mean_reward_is_the_inverse_of_its_mean(kind):
    theta, smearing = np.array([0.3, 1.2]), 0.7
    model = kind(GaussianArms([[0.0]], noise=0.5))
    np.testing.assert_allclose(model.level_of(model.mean(theta, smearing), smearing), theta)


@pytest.mark.parametrize(
    ("weights", "expected"), [([[0.0], [1.0]], [2e-10, 0.2]), ([[0.0], [0.0]], [1e-12, 1e-12])]
)
def test_offsets_of_new_actions_have_a_variance_above_zero(weights, expected):
    model = LinearGaussian(weights, 0.5)
    catalogue = Catalogue(["a"], features=[[2.0]])
    grown, _ = add_vectors(model, catalogue, ["b"], np.array([[3.0]]), np.array([[[0.2]]]))
    np.testing.assert_allclose(grown.covariances[:, 1, 1], expected)


def test_three_actions_on_the_support_line_share_a_mixture():
    shares = _compared(np.array([0.0, 1.0, 2.0]), np.array([0.0, 1.0, 2.0]))
    np.testing.assert_allclose(shares, [1.0, 0.0, 0.0])
    alike = _compared(np.array([1.0, 1.0, 5.0]), np.array([1.0, 1.0, 0.1]))
    np.testing.assert_allclose(alike, [0.5, 0.5, 0.0])


def test_one_draw_is_enough_for_a_propensity():
    policy = HierTS(n_users=2, n_features=1, propensity_draws=1)
    visit = Visit(np.array([1]), np.ones((1, 2, 1)))
    chance = policy.action_probabilities(policy.init(), visit, np.random.default_rng(0))
    assert (chance.kind, chance.values.sum()) == ("counted", 1.0)


def test_the_largest_reward_may_come_in_several_sessions():
    rewards = [LARGEST_REWARD, -LARGEST_REWARD]
    _, accepted = check_outcome("mTS", Decision.logged([0, 1]), rewards, n_sessions=2, n_actions=2)
    assert accepted.tolist() == rewards
    with pytest.raises(ValueError, match="session 1"):
        check_outcome("mTS", Decision.logged([0, 1]), [0.0, 1.01 * LARGEST_REWARD], 2, 2)


def test_a_reward_of_another_pair_is_not_learned_in_a_sweep_over_columns():
    policy = Rank1Elim(n_rows=2, n_columns=2, horizon=1000)
    belief = policy.init()
    for row in (0, 1):  # the sweep over rows, with column 0
        belief = policy.update(belief, None, Decision.logged([2 * row]), [1.0])
    assert belief.row_sums.tolist() == [[1.0, 1.0]]
    after = policy.update(belief, None, Decision.logged([1]), [1.0])  # column 1; column 0 is next
    assert after.column_sums.tolist() == [[0.0, 0.0]]
    assert policy.update(belief, None, Decision.logged([0]), [1.0]).column_sums[0, 0] == 1.0


def test_the_posterior_of_a_user_with_a_fixed_prior_has_the_noise_of_rewards():
    policy = AdaTS(n_users=2, n_features=1, noise=0.5, prior_spread=1.0, hyper_spread=1.0)
    visit = Visit(np.array([1]), np.array([[[2.0]]]))
    belief = policy.update(policy.init(), visit, Decision.logged([0]), [3.0])
    posterior = policy.user_posterior(belief, np.array([1]))
    precision = 1 / (1 + 1) + 2.0**2 / 0.25
    np.testing.assert_allclose(posterior.covariance, [[[1 / precision]]])
    np.testing.assert_allclose(posterior.mean, [[2.0 * 3.0 / 0.25 / precision]])


def test_a_probability_of_edges_above_one_gives_the_complete_graph():
    graph = random_graph(4, 1.5, np.random.default_rng(0))
    assert [len(graph.edges(np.array([node]))[1]) for node in range(4)] == [3] * 4


@pytest.mark.parametrize("kind", [UCBC, TSC])
def test_competitive_actions_that_were_never_tried_come_first(kind):
    policy = kind(GaussianArms([[0.9, 0.1, 0.3], [0.2, 0.8, 0.1]], noise=0.5))
    belief = policy.update(policy.init(), None, Decision.logged([0]), [0.55])
    chance = policy.action_probabilities(belief, None, np.random.default_rng(0))
    assert chance.values.tolist() == [[0.0, 1.0, 0.0]]


def test_logged_decisions_say_whether_they_have_a_propensity():
    assert Decision.logged([0]).propensity_kind == "none"
    assert Decision.logged([0], propensity=[0.5]).propensity_kind == "exact"
    assert Decision.logged([200.0]).action.tolist() == [200]


def test_the_least_horizon_and_the_largest_exploration():
    assert Rank1Elim(n_rows=2, n_columns=2, horizon=3).horizon == 3
    explored = Exploring(mTS(TWO), e=1)
    chance = explored.action_probabilities(explored.init(), None, np.random.default_rng(0))
    assert chance.values.tolist() == [[0.5, 0.5]]


class Coin:
    """A user's policy that plays one of two actions at random."""

    n_actions = 2

    def init(self, n_sessions=1):
        return (np.zeros(n_sessions),)

    def decide(self, belief, context, rng, *, eligible=None, propensity=True):
        action = rng.integers(2, size=len(belief[0]))
        return Decision(action, np.zeros(len(action), np.int64), None, "none", "Coin")

    def update(self, belief, context, decision, reward):
        return belief


def test_exploring_counts_its_own_draws_of_a_users_policy():
    policy = Exploring(Coin(), e=0.2, draws=10)
    chance = policy.action_probabilities(policy.init(), None, np.random.default_rng(0)).values
    share = (chance - 0.1) / 0.8  # of ten draws
    np.testing.assert_allclose(share * 10, (share * 10).round(), atol=1e-9)
    assert 0 < share[0, 0] < 1


def test_an_explored_decision_reports_the_state_of_its_own_draw():
    model = LinearGaussian([[1.0, 0.0], [0.0, 1.0]], 0.5, [1e-8 * np.eye(2)] * 2)
    policy, n = Exploring(mmTS(model), e=1e-9), 200
    context = np.repeat(np.eye(2)[None], n, axis=0)
    decision = policy.decide(policy.init(n), context, np.random.default_rng(0))
    assert (decision.action == decision.state).all()  # action s is the best one of state s
    assert 0 < decision.state.mean() < 1


def test_a_belief_of_another_structure_is_described():
    policy = mmTS(GaussianArms([[0.9, 0.1]], noise=0.5, spread=0.1))
    belief = policy.init()
    with pytest.raises(BeliefError, match=r"JointBelief\(0, 1\) there is tuple\(0, 1\) now"):
        encode(policy, (belief.log_weights, belief.parameters))
    with pytest.raises(BeliefError, match=r"ArmStatistics\(0, 1\) there is ndarray now"):
        encode(policy, belief._replace(parameters=np.zeros((1, 1))))


def test_parameters_of_linear_models_with_unknown_noise():
    weights, covariances = [[1.0, 0.0], [0.0, 1.0]], [np.eye(2)] * 2
    model = LinearGaussianUnknownNoise(weights, covariances, [0.5, 1.0], noise_count=8)
    vague = model.vague()
    variance = np.mean(np.array([0.5, 1.0]) ** 2 * 8 / 6)  # the mean of E[sigma_s^2]
    np.testing.assert_allclose(vague.noise_scale**2 * 8 / 6, [variance])
    several = LinearGaussianUnknownNoise([weights] * 3, [covariances] * 3, 0.5, noise_count=8)
    theta = several.draw_theta(np.array([0, 1, 1]), np.random.default_rng(0))
    assert (theta.weights.shape, theta.noise.shape) == ((3, 2), (3,))


def test_draws_of_small_dirichlet_parameters():
    """20,000 draws: Kolmogorov's statistic exceeds 3 / sqrt(n) with probability 3e-8."""
    draws = unnormalised(np.tile([0.04, 1.0], (20_000, 1)), np.random.default_rng(0))
    share = draws[:, 0] / draws.sum(axis=1)
    assert kstest(share, beta(0.04, 1.0).cdf).statistic < 3 / np.sqrt(20_000)
