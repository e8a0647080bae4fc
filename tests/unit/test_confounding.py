"""Actions that were chosen by something the log lacks are learned from, and only those."""

import numpy as np
import polars as pl
import pytest

from latentbandits.learning.arms.hidden_choices import WithActions
from latentbandits.learning.arms.learner import finish
from latentbandits.learning.arms.mixture import Problem, best_of
from latentbandits.learning.assess.comparisons import HIDDEN_CHOICE, depends_on_users
from latentbandits.learning.assess.heldout import predict
from latentbandits.learning.backends.backend import engine_of
from latentbandits.learning.fitting import fit
from latentbandits.learning.logs.rows import read_log
from latentbandits.models.arms.dirichlet import BernoulliArms
from latentbandits.models.arms.gaussian import Gaussian

MEANS = np.array([[0.8, 0.5, 0.2, 0.4], [0.2, 0.5, 0.7, 0.3], [0.4, 0.6, 0.3, 0.9]])


def table(chosen_by, seed=0, n_users=900, rounds=8):
    """Clicks of users of three states; `chosen_by` the "state", "history" or "nobody"."""
    rng = np.random.default_rng(seed)
    state = rng.integers(0, 3, n_users)
    wins, shown = np.ones((n_users, 4)), np.full((n_users, 4), 2.0)
    columns = []
    for _ in range(rounds):
        odds = np.zeros((n_users, 4))
        if chosen_by == "state":  # often the best action, which its average then overstates
            odds = 4 * MEANS[state]
        elif chosen_by == "history":
            odds = 8 * wins / shown
        action = (odds + rng.gumbel(size=odds.shape)).argmax(axis=1)
        reward = (rng.random(n_users) < MEANS[state, action]).astype(float)
        np.add.at(wins, (np.arange(n_users), action), reward)
        np.add.at(shown, (np.arange(n_users), action), 1)
        columns.append((action, reward))
    actions, rewards = (np.stack(part, axis=1).ravel() for part in zip(*columns, strict=True))
    users = np.repeat(np.arange(n_users), rounds)
    return pl.DataFrame({"user": users, "action": actions, "reward": rewards})


def error(model):
    """The largest error of a mean, states in the order that is nearest."""
    from latentbandits.learning.learners import align

    means = model.expected_rewards(None)[0]
    return np.abs(means[align(means, MEANS)] - MEANS).max()


def test_choices_by_an_unseen_state_are_learned_from_with_a_warning():
    """Eight clicks tell little about a state; with the actions all three are found."""
    log = table("state")
    fitted = fit(log, kind="arms", bootstrap=0, assess=False)
    assert HIDDEN_CHOICE in fitted.report["warnings"]
    assert fitted.model.n_states == 3
    assert isinstance(fitted.model, BernoulliArms)  # the written model has no choice of actions
    assert fitted.report["family"] == "bernoulli"
    # The rarest action of a state has about 70 rewards: 2.5 standard errors of its mean are .15.
    assert error(fitted.model) < 0.15
    # Logged propensities, of the same choices, say that the history explains them. Three states
    # of rewards alone (the planted bug) are wrong by more.
    logged = log.with_columns(propensity=pl.lit(0.5))
    known = fit(logged, kind="arms", states=3, bootstrap=0, assess=False)
    assert HIDDEN_CHOICE not in known.report["warnings"]
    assert error(known.model) > 0.15


@pytest.mark.parametrize("chosen_by", ["history", "nobody"])
@pytest.mark.parametrize("seed", [0, 1])
def test_choices_that_the_log_explains_are_left_alone(chosen_by, seed):
    report = fit(table(chosen_by, seed), kind="arms", bootstrap=0, assess=False).report
    assert HIDDEN_CHOICE not in report["warnings"]


def test_dependence_of_actions_on_users():
    logs = {by: read_log(table(by), "user", "action", "reward") for by in ("state", "nobody")}
    assert depends_on_users(engine_of(logs["state"]))
    assert not depends_on_users(engine_of(logs["nobody"]))


def test_the_bound_never_falls_with_actions():
    log = read_log(table("state", n_users=300), "user", "action", "reward")
    family = WithActions(Gaussian.for_rewards(np.asarray(log.rewards)))
    problem = Problem.from_log(family, log)
    ascent = best_of(problem, 3, n_starts=3)
    assert (np.diff(ascent.elbos) > -1e-6).all()
    fitted = finish(problem, ascent)
    chances = np.exp(fitted.log_actions)
    np.testing.assert_allclose(chances.sum(axis=1), 1.0)
    # Actions of users of a state are those that the state was made from, however it is numbered.
    softmax = np.exp(4 * MEANS) / np.exp(4 * MEANS).sum(axis=1, keepdims=True)
    distance = np.abs(chances[:, None] - softmax).max(axis=2)
    assert (distance.min(axis=1) < 0.15).all()


def test_predictions_given_actions_are_those_of_bayes_rule():
    """Log p(r | a, past) of a user's rows, against the definition."""
    means, chances = np.array([[0.9, 0.2], [0.3, 0.6]]), np.array([[0.7, 0.3], [0.2, 0.8]])
    sure = 1e9
    model = BernoulliArms(sure * means, sure * (1 - means), [0.4, 0.6])
    rows = {"u": [0, 0, 0, 1], "a": [0, 1, 1, 0], "r": [1, 0, 1, 1]}
    log = read_log(rows, "u", "a", "r")
    actual = predict(model, log, log_actions=np.log(chances)).log_density
    expected = []
    for user in (0, 1):
        weights = np.array([0.4, 0.6])
        for a, r in ((a, r) for u, a, r in zip(*rows.values(), strict=True) if u == user):
            weights = weights * chances[:, a]
            likelihood = means[:, a] if r else 1 - means[:, a]
            expected.append(np.log(weights @ likelihood / weights.sum()))
            weights = weights * likelihood
    np.testing.assert_allclose(actual, expected, atol=1e-6)
