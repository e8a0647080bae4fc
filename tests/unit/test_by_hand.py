"""Numbers checked by hand where no other test would notice a small change."""

import numpy as np

from latentbandits import CategoricalArms, GaussianArms, LogisticLinear
from latentbandits.policies.registry import Inputs


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
