"""What is chosen is what the truth was."""

from dataclasses import replace

import numpy as np
import pytest

from latentbandits.learning.arms.learner import ArmsLearner
from latentbandits.learning.generate import generate_arms, generate_ratings
from latentbandits.learning.learners import LEAST_NATS, Candidate, fewest_states, vetoed
from latentbandits.learning.linear import learner as learner_module
from latentbandits.learning.linear.learner import LinearLearner, lowest_rank
from latentbandits.learning.logs.rows import Log
from latentbandits.learning.logs.tables import LogError
from latentbandits.learning.reading import split_users
from latentbandits.models.linear.logistic import LogisticLinear


def ratings_log(**settings):
    made = generate_ratings(**settings)
    ids = [tuple(str(i) for i in range(n)) for n in (len(made.state), len(made.action_vectors))]
    return Log(made.users, made.actions, made.rewards, *ids), made


@pytest.mark.parametrize("n_states", [1, 2, 4])
def test_the_number_of_states_of_arms_is_found(n_states):
    truth = generate_arms(n_users=800, n_rounds=30, n_states=n_states, n_actions=8, seed=0)
    split = split_users(truth.log, 0)
    selection = ArmsLearner(n_starts=5).select(split, None)
    assert selection.chosen.n_states == n_states
    heights = [row.log_evidence for row in selection.rows]
    assert selection.chosen.log_evidence == pytest.approx(max(heights), abs=LEAST_NATS)
    assert selection.learned.model.n_states == n_states


def test_the_rank_of_ratings_is_found(monkeypatch):
    monkeypatch.setattr(learner_module, "RANKS", (1, 3, 8))
    log, _ = ratings_log(
        n_users=400, n_actions=120, n_states=3, density=0.4, n_features=4, separation=1.5
    )
    split = split_users(log, 0)
    selection = LinearLearner().select(split, (1, 3))
    assert selection.chosen.rank == 3, "three tastes beside the level, which is an intercept"
    assert selection.chosen.n_states == 3
    assert selection.learner.intercepts
    assert [(row.rank, row.n_states) for row in selection.rows] == [(1, 1), (3, 1), (3, 3), (8, 1)]


def test_a_lower_rank_wins_a_draw():
    low = replace(_row(1, [0, 0, 0, 0]), rank=5)
    draw = replace(_row(1, [0.5, -0.4, 0.3, -0.2]), rank=9)
    assert lowest_rank([low, draw]).rank == 5
    clear = replace(_row(1, [5.0, 4.0, 3.0, 6.0]), rank=9)
    assert lowest_rank([low, clear]).rank == 9


def test_intercepts_are_left_out_where_they_do_harm():
    """Ratings that are products only: an intercept for each user and action is noise."""
    rng = np.random.default_rng(0)
    u, v = rng.normal(size=(300, 2)), rng.normal(size=(60, 2))
    users, actions = np.repeat(np.arange(300), 8), rng.integers(60, size=2400)
    rewards = np.einsum("nd,nd->n", u[users], v[actions]) + 0.1 * rng.normal(size=2400)
    ids = tuple(map(str, range(300))), tuple(map(str, range(60)))
    split = split_users(Log(users, actions, rewards, *ids), 0)
    selection = LinearLearner(rank=2, weighting="plain").select(split, (1,))
    assert not selection.learner.intercepts


def test_clicks_of_a_large_catalogue_are_learned_as_clicks():
    rng = np.random.default_rng(3)
    u, v = rng.normal(size=(500, 2)), rng.normal(size=(70, 2))
    users, actions = np.repeat(np.arange(500), 40), rng.integers(70, size=20_000)
    odds = 1.5 * np.einsum("nd,nd->n", u[users], v[actions]) - 1
    rewards = (rng.random(20_000) < 1 / (1 + np.exp(-odds))).astype(float)
    ids = tuple(map(str, range(500))), tuple(map(str, range(70)))
    split = split_users(Log(users, actions, rewards, *ids), 0)
    learner = LinearLearner(rewards="bernoulli", rank=2)
    selection = learner.select(split, (1,))
    assert isinstance(selection.learned.model, LogisticLinear)
    rate = split.kept.summary.rewards.mean
    constant = rate * np.log(rate) + (1 - rate) * np.log(1 - rate)
    assert selection.judged.evidence > constant + 0.03
    assert selection.judged.coverage(0.9) == pytest.approx(0.9, abs=0.03)


def test_too_many_states_end_a_row_of_the_table():
    log, _ = ratings_log(n_users=60, n_actions=30, n_states=2, density=0.4)
    split = split_users(log, 0)
    learner = LinearLearner(reg=1.0, rank=2)
    selection = learner.select(split, (1, 40, 41))
    assert [row.n_states for row in selection.rows] == [1, 40]
    assert "largest usable number" in selection.rows[1].reason
    assert selection.chosen.n_states == 1
    with pytest.raises(LogError, match="largest usable number"):
        learner.select(split, (40,))


def _row(n, gain, log_evidence=None):
    mine = np.array([-8.0, -9.0, -7.0, -8.0]) + np.array(gain)
    return Candidate(n, None, float(mine.mean()), 1.0, mine, log_evidence=log_evidence)


def test_fewer_states_win_a_draw_and_lose_a_clear_case():
    draw = [_row(1, [0, 0, 0, 0]), _row(2, [0.5, -0.4, 0.3, -0.2])]
    assert fewest_states(draw).n_states == 1
    clear = [_row(1, [0, 0, 0, 0]), _row(2, [0.5, 0.4, 0.3, 0.6])]
    assert fewest_states(clear).n_states == 2


def test_the_highest_log_evidence_wins_unless_held_out_evidence_vetoes_it():
    best = _row(2, [0.5, -0.4, 0.3, -0.2], -90.0)
    open_question, clearly_worse = _row(3, [0.1, 0, 0.1, -0.3], -80.0), _row(4, [-1] * 4, -70.0)
    rows = [best, open_question, clearly_worse]
    assert [vetoed(row, rows, 2.0) for row in rows] == [False, False, True]
    assert ArmsLearner().choose(rows).n_states == 3
