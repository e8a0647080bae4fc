"""Off-policy estimates are right on average, and a wrong weight would be noticed.

30 logs of 2,000 sessions by an exploring logger; seed 5. Each bias is tested at four standard
errors: a right estimator fails with probability below 1e-4.
"""

import numpy as np
import pytest
from evidence import evaluation as problem

from latentbandits.evaluation.estimators import ESTIMATORS, WeightedLog
from latentbandits.evaluation.follow import follow, predict
from latentbandits.policies import mTS

LOGS, SESSIONS = 30, 2000


@pytest.fixture(scope="module")
def weighted_logs():
    policy = mTS(problem.TRUE_MODEL)
    made = []
    for i in range(LOGS):
        log = problem.generate("learning", SESSIONS, np.random.default_rng([5, i]))
        q = predict(problem.WRONG_MODEL, log)
        chosen = np.take_along_axis(q, log.action[:, :, None], axis=2)[:, :, 0]
        result = follow(policy, log, q, np.random.default_rng(i))
        ratio = result.chance / log.propensity
        made.append(WeightedLog(ratio, log.reward, chosen, result.direct, log.active))
    return made


@pytest.fixture(scope="module")
def truth():
    return problem.true_value(400_000, np.random.default_rng(6)).mean()


def z_score(values, truth):
    return (np.mean(values) - truth) / (np.std(values, ddof=1) / np.sqrt(len(values)))


@pytest.mark.parametrize("name", list(ESTIMATORS))
def test_estimates_are_unbiased(weighted_logs, truth, name):
    values = [ESTIMATORS[name](log).value.sum() for log in weighted_logs]
    assert abs(z_score(values, truth)) < 4


def test_weights_of_single_rounds_would_be_noticed(weighted_logs, truth):
    """Planted bug: rho_t without the product over earlier rounds."""
    values = [float((log.ratio * log.reward).mean(axis=0).sum()) for log in weighted_logs]
    assert abs(z_score(values, truth)) > 4


def test_single_rounds_would_be_noticed_in_a_doubly_robust_estimate(weighted_logs, truth):
    """Planted bug: DR whose weights and direct terms forget the earlier rounds.

    q takes out most of the noise, so that the bias stands out further than in the test above.
    """
    values = [
        float((log.ratio * (log.reward - log.q) + log.direct).mean(axis=0).sum())
        for log in weighted_logs
    ]
    assert abs(z_score(values, truth)) > 8


def test_standard_errors_match_the_spread(weighted_logs):
    """The variance of 30 estimates, chi-squared with 29 degrees: within .45 to 1.8 of the mean
    squared standard error with probability above .998.
    """
    for name, estimator in ESTIMATORS.items():
        results = [estimator(log) for log in weighted_logs]
        values = [f.value.sum() for f in results]
        errors = [np.var(f.influence.sum(axis=1), ddof=1) / SESSIONS for f in results]
        ratio = np.var(values, ddof=1) / np.mean(errors)
        assert 0.45 < ratio < 1.8, name
