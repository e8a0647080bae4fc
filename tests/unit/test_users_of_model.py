"""Users drawn from a model: their states, parameters and rewards follow its prior."""

import numpy as np
import pytest

from latentbandits import GaussianArms, LinearGaussian, mmTS, simulate
from latentbandits.environments import UsersOfModel
from latentbandits.models.arms.dirichlet import BernoulliArms, CategoricalArms
from latentbandits.models.arms.gamma import ExponentialArms, PoissonArms
from latentbandits.models.linear.logistic import LogisticLinear

PRIOR = [0.25, 0.75]
ITEMS = np.array([[1.0, 0.0], [0.5, 1.0], [-1.0, 0.3]])
SHAPE = [[2.0, 3.0], [6.0, 1.5]]
MODELS = {
    "gaussian": GaussianArms([[0.0, 1.0], [2.0, -1.0]], 0.5, 0.3, PRIOR),
    "bernoulli": BernoulliArms(SHAPE, [[5.0, 2.0], [3.0, 4.0]], PRIOR),
    "poisson": PoissonArms(SHAPE, [[5.0, 2.0], [3.0, 4.0]], PRIOR),
    "exponential": ExponentialArms([[6.0, 7.0], [6.0, 9.0]], [[5.0, 2.0], [3.0, 4.0]], PRIOR),
    "categorical": CategoricalArms(np.arange(1.0, 13.0).reshape(2, 2, 3), [1.0, 2.0, 5.0], PRIOR),
}


@pytest.mark.parametrize("name", MODELS)
def test_moments_of_rewards_are_those_of_the_model(name):
    model, rng = MODELS[name], np.random.default_rng(1)
    outcome = UsersOfModel(model).start(40_000, 1, rng).round(0, rng)
    mean, variance = model.posterior_rewards(model.parameters(1), None)
    expected = np.array(PRIOR) @ mean[0]
    total = np.array(PRIOR) @ (variance[0] + (mean[0] - expected) ** 2)
    error = outcome.rewards.std(axis=0) / 200
    # 5 standard errors of 40,000 draws, for 10 numbers: one false alarm in 100,000
    assert (np.abs(outcome.rewards.mean(axis=0) - expected) < 5 * error).all()
    assert outcome.means.var(axis=0) == pytest.approx(total, rel=0.1)
    wrong = np.array(PRIOR[::-1]) @ mean[0]  # the planted bug: the prior of the other state
    assert (np.abs(outcome.rewards.mean(axis=0) - wrong) > 5 * error).any()


@pytest.mark.parametrize("kind", [LinearGaussian, LogisticLinear])
def test_rewards_of_items(kind):
    covariances = [np.diag([0.04, 0.0001])] * 2
    weights = [[1.0, 2.0], [-1.0, 0.5]]
    if kind is LinearGaussian:
        model = LinearGaussian(weights, 0.3, covariances, PRIOR)
    else:
        model = LogisticLinear(weights, covariances, state_prior=PRIOR)
    rng = np.random.default_rng(2)
    users = UsersOfModel(model, ITEMS, offered=4).start(5_000, 2, rng)
    outcome = users.round(0, rng)
    assert outcome.context.shape == (5_000, 4, 2)
    again = users.round(1, rng)
    # A user keeps the parameters: the same item has the same mean in both rounds.
    same = (outcome.context[:, :1] == again.context[:, :1]).all(axis=(1, 2))
    np.testing.assert_allclose(outcome.means[same, 0], again.means[same, 0])
    assert abs((outcome.rewards - outcome.means).mean()) < 0.02
    results = simulate({"mmTS": mmTS}, UsersOfModel(model, ITEMS, offered=3), n_runs=20, horizon=5)
    assert np.isfinite(results["mmTS"].reward.mean)


def test_what_cannot_be_drawn_is_refused():
    with pytest.raises(ValueError, match="contexts are needed"):
        UsersOfModel(LinearGaussian([[1.0]], 0.5))
    with pytest.raises(ValueError, match="got a str"):
        UsersOfModel("model")
