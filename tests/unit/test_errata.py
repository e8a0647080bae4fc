"""The printed algorithms with all their errors off are the exact one: so only the errors differ."""

import numpy as np
import pytest

from latentbandits import Decision, GaussianArms, LinearGaussian, mmTS
from latentbandits.experiments.errata import PrintedLinearThompson, PrintedThompson

ALL_OFF = dict(marginal_indicator=False, parameter_indicator=False, prior_predictive=False)
LINEAR_OFF = dict(indicator=False, prior_predictive=False, inverse=False, repeated=False)


def test_arms_without_errata_are_exact():
    rng = np.random.default_rng(0)
    n = 6
    model = GaussianArms(rng.random((n, 3, 4)), 0.5, 0.2)
    exact, printed = mmTS(model), PrintedThompson(model, **ALL_OFF)
    beliefs = exact.init(n), printed.init(n)
    for _ in range(15):
        decision = Decision.logged(rng.integers(4, size=n), rng.integers(3, size=n))
        reward = rng.normal(size=n)
        beliefs = (
            exact.update(beliefs[0], None, decision, reward),
            printed.update(beliefs[1], None, decision, reward),
        )
    np.testing.assert_allclose(*(belief.log_weights for belief in beliefs), rtol=1e-9)
    mean, variance = model.posterior_rewards(beliefs[0].parameters, None)
    np.testing.assert_allclose(printed._posterior(beliefs[1]), (mean, variance), rtol=1e-9)


def test_linear_without_errata_is_exact():
    rng = np.random.default_rng(1)
    n, d = 5, 3
    roots = rng.normal(size=(2, d, d))
    model = LinearGaussian(rng.normal(size=(2, d)), 0.5, roots @ roots.swapaxes(1, 2))
    exact, printed = mmTS(model), PrintedLinearThompson(model, **LINEAR_OFF)
    beliefs = exact.init(n), printed.init(n)
    for _ in range(10):
        context = rng.normal(size=(n, 4, d))
        decision = Decision.logged(rng.integers(4, size=n), rng.integers(2, size=n))
        reward = rng.normal(size=n)
        beliefs = (
            exact.update(beliefs[0], context, decision, reward),
            printed.update(beliefs[1], context, decision, reward),
        )
    np.testing.assert_allclose(*(belief.log_weights for belief in beliefs), rtol=1e-7)
    for s in range(2):
        precision, mean = printed._posterior(beliefs[1], (np.arange(n), np.full(n, s)))
        np.testing.assert_allclose(mean, beliefs[0].parameters.mean[:, s], atol=1e-8)
        np.testing.assert_allclose(
            np.linalg.inv(precision), beliefs[0].parameters.covariance[:, s], atol=1e-8
        )


@pytest.mark.parametrize("erratum", LINEAR_OFF)
def test_each_linear_erratum_changes_the_belief(erratum):
    model = LinearGaussian([[1.0, 0.0], [0.0, 1.0]], 0.5, [np.diag([0.3, 0.1])] * 2)
    policies = (
        PrintedLinearThompson(model, **LINEAR_OFF),
        PrintedLinearThompson(model, **(LINEAR_OFF | {erratum: True})),
    )
    results = []
    for policy in policies:
        belief = policy.init()
        for t in range(4):
            decision = Decision.logged([t % 2], [t % 2])
            context = np.eye(2)[None] * (t + 1)
            belief = policy.update(belief, context, decision, [1.0])
        results.append(
            (belief.log_weights, *policy._posterior(belief, (np.array([0]), np.array([0]))))
        )
    assert any(not np.allclose(a, b) for a, b in zip(*results, strict=True))
