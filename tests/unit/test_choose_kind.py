"""The kind of model is chosen by held-out users, and linear models of clicks keep popularity."""

import numpy as np
import pytest

from latentbandits.learning.assess import comparisons
from latentbandits.learning.assess.comparisons import choose_kind
from latentbandits.learning.assess.heldout import score
from latentbandits.learning.fitting import fit
from latentbandits.learning.generate import generate_arms
from latentbandits.learning.learners import Candidate
from latentbandits.learning.linear.learner import LinearLearner
from latentbandits.learning.logs.rows import Cells, read_log
from latentbandits.learning.reading import split_users
from latentbandits.models import LinearGaussian


def rated(n_users=400, n_actions=12, per_user=8, seed=0):
    """Ratings from tastes that vary from user to user in two dimensions: there are no groups."""
    rng = np.random.default_rng(seed)
    tastes, vectors = rng.standard_normal((n_users, 2)), rng.standard_normal((n_actions, 2))
    actions = np.concatenate([rng.permutation(n_actions)[:per_user] for _ in range(n_users)])
    users = np.repeat(np.arange(n_users), per_user)
    rewards = np.einsum("nd,nd->n", tastes[users], vectors[actions])
    rewards = rewards + 0.3 * rng.standard_normal(len(users))
    return read_log({"u": users, "a": actions, "r": rewards}, "u", "a", "r")


@pytest.mark.parametrize(
    ("log", "kind"),
    [
        (rated(), "linear"),
        (generate_arms(n_users=800, n_rounds=20, n_states=3, n_actions=6).log, "arms"),
    ],
    ids=["tastes", "groups"],
)
def test_the_kind_of_a_small_catalogue_follows_the_data(log, kind):
    """Tastes without groups are linear, groups are arms; the report says by how much."""
    report = fit(log, bootstrap=0, assess=False).report
    assert report["settings"]["kind"] == kind
    kinds = report["kinds"]
    assert kinds["chosen"] == kind
    assert kinds["nats_per_user"] > 2 * kinds["nats_per_user_stderr"] > 0
    assert kinds["sentence"].startswith(f"{kind}: the log probability of a held-out user's rewards")


def clicked(n_users, odds_of, n_actions, seed=0):
    """Clicks on 20 different actions of every user, with odds by user and action."""
    rng = np.random.default_rng(seed)
    actions = np.stack([rng.permutation(n_actions)[:20] for _ in range(n_users)])
    odds = np.take_along_axis(odds_of(rng, n_users, n_actions), actions, axis=1)
    clicks = rng.random(actions.shape) < 1 / (1 + np.exp(-odds))
    table = {"u": np.repeat(np.arange(n_users), 20), "a": actions.ravel(), "r": clicks.ravel() * 1}
    return read_log(table, "u", "a", "r")


def by_group(rng, n_users, n_actions):
    return rng.normal(0.0, 2.0, (3, n_actions))[rng.integers(0, 3, n_users)]


def by_taste(rng, n_users, n_actions):
    return rng.normal(0.0, 2.0, (n_users, 2)) @ rng.standard_normal((2, n_actions))


@pytest.mark.parametrize(
    ("log", "kind", "sampled"),
    [
        pytest.param(clicked(300, by_group, 25), "arms", True, marks=pytest.mark.slow),
        pytest.param(clicked(600, by_taste, 40), "linear", False, marks=pytest.mark.slow),
        (rated(300), "linear", False),
    ],
    ids=["groups", "clicks by taste", "ratings by taste"],
)
def test_a_sample_of_users_decides_only_what_all_users_decide(log, kind, sampled, monkeypatch):
    """Arms that are clearly better on a sample are better on all users; else all are asked."""
    monkeypatch.setattr(comparisons, "SAMPLED_USERS", 150)
    kinds = fit(log, bootstrap=0, assess=False).report["kinds"]
    assert kinds["chosen"] == kind
    assert kinds["sampled_users"] == (150 if sampled else None)
    assert ("learned from 150 users" in kinds["sentence"]) is sampled
    monkeypatch.setattr(comparisons, "SAMPLED_USERS", log.n_users)
    every = fit(log, bootstrap=0, assess=False).report["kinds"]
    assert (every["chosen"], every["sampled_users"]) == (kind, None)
    assert every["nats_per_user"] > 2 * every["nats_per_user_stderr"] > 0


def test_an_option_of_one_kind_leaves_the_other_out():
    log = generate_arms(n_users=200, n_rounds=20, n_states=2, n_actions=4).log
    options = {"bootstrap": 0, "assess": False}
    assert fit(log, rank=2, **options).report["settings"]["kind"] == "linear"
    report = fit(log, method="spectral", states=2, **options).report
    assert (report["settings"]["kind"], report["kinds"]) == ("arms", None)


def test_equal_models_are_arms():
    """Rewards are noise: evidence is not clear (that it seems so is a chance of 1 in 40)."""
    rng = np.random.default_rng(2)
    users = np.repeat(np.arange(300), 6)
    table = {"u": users, "a": rng.integers(0, 3, 1800), "r": rng.standard_normal(1800)}
    report = fit(read_log(table, "u", "a", "r"), bootstrap=0, assess=False).report
    assert report["settings"]["kind"] == "arms"
    assert report["kinds"]["replay"] is not None  # it was asked, because evidence is not clear


def test_cells_of_a_linear_model_are_probabilities():
    """Over all values of a lattice they sum to one, in the first round and given a reward."""
    model = LinearGaussian([[1.0], [-2.0]], 0.7, [np.eye(1)] * 2, [0.3, 0.7])
    values = np.arange(-15.0, 16.0)
    n = len(values)
    users = np.repeat(np.arange(n), 2)
    rewards = np.stack([np.full(n, 3.0), values], axis=1).ravel()
    log = read_log({"u": users, "a": users % 2, "r": rewards}, "u", "a", "r")
    scores = score(model, log, np.ones((2, 1)), cells=Cells(1.0, values))
    assert np.exp(scores.log_cell[scores.round == 1]).sum() == pytest.approx(1.0, abs=1e-9)
    # A fine lattice gives the density times the width of a cell.
    fine = score(model, log, np.ones((2, 1)), cells=Cells(1e-4, values))
    np.testing.assert_allclose(fine.log_cell, fine.log_density + np.log(1e-4), atol=1e-6)


def test_popularity_of_clicks_is_not_shrunk():
    """A new user's chance of a click is the action's average, whatever penalty vectors have.

    The average of about 2,200 clicks has a standard error of .01. With the vectors' penalty on the
    popularity of actions, the chances were wrong by up to .08.
    """
    rng = np.random.default_rng(1)
    n_users, rounds = 1_000, 20
    level = np.linspace(-2.0, 1.5, 9)
    tastes = rng.standard_normal((n_users, 1)) * rng.choice([-1.0, 1.0], 9)
    actions = rng.integers(0, 9, (n_users, rounds))
    odds = level[actions] + np.take_along_axis(tastes, actions, axis=1)
    clicked = rng.random(actions.shape) < 1 / (1 + np.exp(-odds))
    users = np.repeat(np.arange(n_users), rounds)
    log = read_log({"u": users, "a": actions.ravel(), "r": clicked.ravel() * 1}, "u", "a", "r")
    learner = LinearLearner(reg=0.1, weighting="counts", rewards="bernoulli", intercepts=True)
    learned = learner.learn(log, Candidate(4, 1), seed=0)
    model = learned.model
    mean = model.posterior_rewards(model.parameters(1), learned.features[None])[0][0]
    averages = np.bincount(log.actions, log.rewards) / np.bincount(log.actions)
    assert np.abs(model.state_prior @ mean - averages).max() < 0.04


def test_the_choice_ignores_actions_that_one_kind_does_not_know():
    log = rated(200)
    split = split_users(log, 0)
    unknown = log.of_events(log.actions != 0)
    split = split._replace(kept=split_users(unknown, 0).kept)
    linear = LinearLearner(rank=2).select(split, (1,))
    from latentbandits.learning.arms.learner import ArmsLearner

    arms = ArmsLearner().select(split, (1,))
    choice = choose_kind(arms, linear, split)
    assert choice.chosen == "linear"
    assert choice.log_probability["linear"] > choice.log_probability["arms"]
