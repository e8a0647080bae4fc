"""A short form of `python -m evidence written`, with generated users."""

import numpy as np
import pytest
from evidence.written import claims, judge_written

from latentbandits import GaussianArms
from latentbandits.learning.generate import generate_arms


@pytest.fixture(scope="module")
def log():
    return generate_arms(n_users=700, n_rounds=60, n_states=3, n_actions=8, noise=0.4, seed=11).log


def test_a_written_model_earns_what_its_fit_reports(log):
    """The claims hold at two standard errors: each fails by chance in 2 to 5 of 100 logs."""
    written = judge_written(log, "generated", seed=0, rewards="gaussian", states=3, bootstrap=5)
    assert written.verdict == "helps"
    assert [claim.holds for claim in claims(written)] == [True] * 4  # rounds 1-10, 1-20, gain, lead


@pytest.mark.slow
def test_a_model_that_is_ruined_when_it_is_written_fails_the_claims(log, monkeypatch):
    """The planted bug: the written model is sure of the opposite, and only its folder shows it."""
    from evidence import written as experiment

    honest = experiment.save_fit

    def save_badly(fit, path):
        average = fit.model.state_prior @ fit.model.means
        means = np.broadcast_to(-average, fit.model.means.shape)
        object.__setattr__(fit, "model", GaussianArms(means, fit.model.noise, 1e-3))
        honest(fit, path)

    monkeypatch.setattr(experiment, "save_fit", save_badly)
    written = judge_written(log, "generated", seed=0, rewards="gaussian", states=3, bootstrap=0)
    assert not any(claim.holds for claim in claims(written))
