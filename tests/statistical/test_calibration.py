"""Is a belief what it says it is? Over problems drawn from the prior, probabilities must come true.

Among sessions whose state and parameters are drawn from the model's own prior, the indicator of
the true state minus its posterior probability has mean zero given the history, whatever was
played. So over n independent sessions, and for any weight w that depends on the history only,
z = sum w (1{s} - P(s)) / sqrt(sum w^2 P(s) (1 - P(s))) is standard normal. We test every state at
|z| < 4.5 (a correct belief fails one of our tests with probability below 1e-4), and show that
each printed erratum is caught by the same test.
"""

import numpy as np
import pytest

from latentbandits import GaussianArms, LinearGaussian, mmTS, mTS
from latentbandits.experiments.errata import PrintedThompson

LIMIT = 4.5
N_SESSIONS = 20_000


def arms_z_scores(make, n_rounds=12, seed=0, spread=0.6):
    rng = np.random.default_rng(seed)
    means = np.broadcast_to(
        np.array([[0.0, 0.6, 0.2], [0.5, 0.1, 0.3], [0.2, 0.3, 0.7]]), (N_SESSIONS, 3, 3)
    )
    prior = np.array([0.5, 0.3, 0.2])
    policy = make(GaussianArms(means, 0.5, spread, prior))
    session = np.arange(N_SESSIONS)
    state = rng.choice(3, p=prior, size=N_SESSIONS)
    theta = means[session, state] + spread * rng.standard_normal((N_SESSIONS, 3))
    belief = policy.init(N_SESSIONS)
    for _ in range(n_rounds):
        decision = policy.decide(belief, None, rng, propensity=False)
        reward = theta[session, decision.action] + 0.5 * rng.standard_normal(N_SESSIONS)
        belief = policy.update(belief, None, decision, reward)
    return z_scores(state, policy.state_probabilities(belief))


def z_scores(state, probabilities):
    """One per state with weight 1, and one with weight P(s), which sees over-confidence."""
    surprise = np.eye(probabilities.shape[1])[state] - probabilities
    variance = probabilities * (1 - probabilities)
    return np.concatenate(
        [
            (weight * surprise).sum(axis=0) / np.sqrt((weight**2 * variance).sum(axis=0))
            for weight in (1.0, probabilities)
        ]
    )


def test_mmts_is_calibrated():
    assert np.abs(arms_z_scores(mmTS)).max() < LIMIT


def test_mts_is_calibrated_when_its_model_is_true():
    assert np.abs(arms_z_scores(mTS, spread=0.0)).max() < LIMIT


@pytest.mark.parametrize(
    "errata",
    [
        dict(prior_predictive=False, parameter_indicator=False),  # E1 in the marginal of s
        dict(marginal_indicator=False, prior_predictive=False),  # E1 in the parameters
        dict(marginal_indicator=False, parameter_indicator=False),  # E2
    ],
    ids=["E1 marginal", "E1 parameters", "E2"],
)
def test_printed_errata_are_caught(errata):
    scores = arms_z_scores(lambda model: PrintedThompson(model, **errata))
    assert np.abs(scores).max() > 2 * LIMIT


def test_a_model_that_is_surer_than_it_should_be_is_caught():
    scores = arms_z_scores(lambda model: mTS(model))  # ignores a spread of 0.6
    assert np.abs(scores).max() > 2 * LIMIT


def linear_z_scores(told=lambda covariances: covariances, seed=1, n_rounds=12):
    rng = np.random.default_rng(seed)
    weights = np.array([[0.5, 0.0, 0.2], [0.0, 0.5, -0.2]])
    covariances = np.stack([0.3 * np.eye(3), np.diag([0.1, 0.4, 0.2])])
    policy = mmTS(LinearGaussian(weights, 0.5, told(covariances), [0.4, 0.6]))
    n = N_SESSIONS
    state = rng.choice(2, p=[0.4, 0.6], size=n)
    roots = np.linalg.cholesky(covariances)
    theta = weights[state] + (roots[state] @ rng.standard_normal((n, 3, 1)))[..., 0]
    belief = policy.init(n)
    for _ in range(n_rounds):
        context = rng.normal(size=(n, 4, 3))
        decision = policy.decide(belief, context, rng, propensity=False)
        mean = (context[np.arange(n), decision.action] * theta).sum(axis=1)
        belief = policy.update(belief, context, decision, mean + 0.5 * rng.standard_normal(n))
    return z_scores(state, policy.state_probabilities(belief))


def test_linear_mmts_is_calibrated():
    assert np.abs(linear_z_scores()).max() < LIMIT


def test_an_inverted_covariance_is_caught():
    """The mistake of erratum E3: Sigma^-1 where Sigma belongs."""
    assert np.abs(linear_z_scores(told=np.linalg.inv)).max() > 2 * LIMIT
