"""The click problem in short: states and rates are found, and mIDS gains without an early loss.

Rates of 2,000 new users have standard errors of about 0.0004 over 100 rounds; the fit and the
users are fixed by their seeds. `python -m evidence clicks` has the full form.
"""

import json

import numpy as np
import polars as pl
import pytest
from evidence.__main__ import main
from evidence.clicks import (
    WINDOWS,
    learn_and_play,
    other_problem,
    play,
    play_knowing,
    play_popular,
    reference_problem,
)

from latentbandits import BernoulliArms, mIDS
from latentbandits.learning.arms.learner import ArmsLearner
from latentbandits.learning.lists import learn_examination
from latentbandits.learning.logs.rows import Log
from latentbandits.learning.reading import split_users
from latentbandits.models.clicks import Positions
from tests.unit.test_list_logs import LOOKED, K, generated


@pytest.fixture(scope="module")
def problem():
    return reference_problem()


@pytest.fixture(scope="module")
def model(problem):
    selection = ArmsLearner(BernoulliArms.for_rewards(np.zeros(1))).select(
        split_users(problem.log, 0), None
    )
    return selection.learner.learn(problem.log, selection.chosen, 0).model


def test_states_and_rates_are_found(problem, model):
    assert isinstance(model, BernoulliArms)
    assert model.n_states == 3
    assert abs(model.expected_rewards(None).max() - problem.rates.max()) < 0.02


@pytest.mark.slow
def test_the_learned_model_beats_popularity(problem, model):
    actual, popular = play(problem, mIDS(model)), play_popular(problem)
    rates = {h: actual[:, :h].mean() - popular[:, :h].mean() for h in WINDOWS}
    assert actual.mean() >= 0.054
    assert min(rates.values()) >= -0.002
    assert popular.mean() < actual.mean() < play_knowing(problem).mean()


@pytest.mark.slow
def test_a_planted_mistake_is_seen(problem, model):
    """States whose rates are those of other states: the policy learns the wrong thing."""
    wrong = BernoulliArms(np.roll(model.alpha, 7, axis=1), np.roll(model.beta, 7, axis=1))
    assert play(problem, mIDS(wrong)).mean() < 0.045


def test_other_problems_are_as_described():
    sizes = [other_problem(i).rates.shape for i in range(4)]
    assert sizes == [(3, 20), (4, 30), (3, 20), (4, 30)]
    uniform, seeking = (np.bincount(other_problem(i).log.actions) for i in (0, 2))
    assert uniform.max() < 1.1 * uniform.mean()
    assert seeking.max() > 5 * seeking.mean()


@pytest.mark.slow
def test_the_recommended_policy_of_another_problem():
    outcome = learn_and_play(other_problem(0), 0)
    assert outcome.lead(outcome.recommended, 100).mean >= 0


@pytest.mark.slow
def test_reproduce_recovery(tmp_path, capsys):
    short = ["--seeds", "1", "--calibration-seeds", "2", "--families", "bernoulli", "--jobs", "1"]
    assert main(["recovery", *short, "--out", str(tmp_path / "out")]) == 0
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert {claim["id"] for claim in results["claims"]} == {
        "states-bernoulli", "means-bernoulli", "rewards-bernoulli"
    }  # fmt: skip
    assert "Truths inside 90% intervals" in capsys.readouterr().out


@pytest.mark.slow
def test_errors_of_examination_are_those_of_other_logs():
    """Three bootstraps of 20 fits each are within a factor 2 of the spread over 20 logs."""

    def log(seed):
        table = generated(Positions(LOOKED), n_users=150, seed=seed)
        actions = table["action"].str.slice(1).cast(pl.Int64).to_numpy()
        users, rewards = table["user"].to_numpy().copy(), table["reward"].to_numpy().copy()
        ids = tuple(map(str, range(150))), tuple(map(str, range(K)))
        lists, places = table["page"].to_numpy(), table["place"].to_numpy() - 1
        return Log(users, actions, rewards, *ids, lists=lists, positions=places)

    spread = np.std([learn_examination(log(i), 2, 0).values for i in range(20)], axis=0)
    found = np.mean([learn_examination(log(i), 2, 0, 20).stderr for i in range(3)], axis=0)
    assert (np.abs(np.log2(found[1:] / spread[1:])) < 1).all()
