"""A short form of `python -m evidence rewards`: what is in a log is seen, what is not is not."""

from dataclasses import replace

import numpy as np
import pytest
from evidence.rewards import Outcome, claims_of, generate_clean, play

from latentbandits.learning import fit
from latentbandits.learning.arms.learner import ArmsLearner

OPTIONS = {"kind": "arms", "rewards": "poisson", "bootstrap": 2}


@pytest.mark.slow  # ten seconds
def test_a_short_log_helps_and_the_same_log_without_users_does_not():
    """500 users of about 8 counts: they play two rounds in replay, and the gain comes later.

    In the planted log rewards change places among the rows of their action: averages of actions
    stay, and a user's rewards say nothing about each other. *helps* is then an error of 1 in 40.
    """
    problem = generate_clean("counts", 91_002)
    fitted = fit(problem.log, **OPTIONS)
    judged = fitted.report["judgement"]
    assert judged["verdict"] == "helps"
    assert "and later rounds" in judged["sentence"]
    gains, popular = play(fitted.model, judged["recommended_policy"], problem, seed=0)
    assert gains.mean() > 0.1 * popular

    rng, rewards = np.random.default_rng(0), problem.log.rewards.copy()
    for action in range(problem.log.n_actions):
        rows = np.flatnonzero(problem.log.actions == action)
        rewards[rows] = rewards[rng.permutation(rows)]
    shuffled = fit(replace(problem.log, rewards=rewards), **OPTIONS).report["judgement"]
    assert shuffled["verdict"] != "helps"


def test_claims_count_harm_false_help_and_power():
    good = Outcome("clean", "counts", "PoissonArms", 3, 3, "mIDS", "helps", 0.95, 0.2, 0.01, 0.2)
    silent = good._replace(verdict="cannot tell", policy="popularity", gain=0.0, gain_error=0.0)
    three = good._replace(group="atoms")
    harmful = three._replace(gain=-0.03)

    def held(n_harmful, n_silent):
        misleading = [harmful] * n_harmful + [three] * (60 - n_harmful)
        clean = [silent] * n_silent + [good] * (60 - n_silent)
        return [claim.id for claim in claims_of(misleading + clean) if claim.holds]

    every = ["harm", "false", "intervals", "states", "power", "gain"]
    assert held(1, 12) == every
    assert held(2, 0) == [name for name in every if name != "false"]
    assert held(3, 13) == ["intervals", "states", "gain"]
    assert held(0, 19) == ["harm", "false", "intervals", "states"]


@pytest.mark.slow
def test_states_that_the_learner_makes_equal_are_held_apart(monkeypatch):
    """Two thirds of the users like what the others dislike; all states alike maximise the ELBO."""
    problem = generate_clean("opposite", 520_019)
    options = {"kind": "arms", "rewards": "categorical", "bootstrap": 0, "assess": False}
    found = fit(problem.log, **options, seed=520_019)
    assert found.report["one_state"]["states_predict_better"]
    means = found.model.expected_rewards(None)[0]
    assert np.corrcoef(means[0], means[1])[0, 1] < -0.5  # what one state likes, the other does not
    # The planted bug: nothing holds them apart.
    monkeypatch.setattr(ArmsLearner, "apart", lambda learner: learner)
    assert fit(problem.log, **options, seed=520_019).model.n_states == 1
