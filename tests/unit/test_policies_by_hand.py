"""Numbers of policies and of grown models, checked by hand."""

import numpy as np
import pytest
from scipy.stats import norm

from latentbandits import (
    EXP4,
    TSC,
    BernoulliArms,
    Decision,
    GaussianArms,
    HierTS,
    LinearGaussian,
    LinTS,
    NMFBandit,
    Phased,
    PolicyReuse,
    Rank1ElimKL,
    Visit,
    mmTS,
    mTS,
)
from latentbandits.beliefs.information import _unit
from latentbandits.models.artefacts.catalogue import Catalogue
from latentbandits.models.attributes.columns import Category
from latentbandits.models.attributes.encoder import Encoder
from latentbandits.models.attributes.gate import Gate
from latentbandits.models.attributes.parts import part, with_parts
from latentbandits.models.growing import add_vectors
from latentbandits.policies.population.graph import sparse_probability
from latentbandits.policies.population.nmf import factorise

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
