"""What is chosen is what the truth was."""

import numpy as np
import pytest

from latentbandits.learning.arms.learner import ArmsLearner
from latentbandits.learning.fitting import split_users
from latentbandits.learning.generate import generate_ratings
from latentbandits.learning.generate_arms import generate_arms
from latentbandits.learning.linear.learner import LinearLearner, choose_reg
from latentbandits.learning.logs import Log
from latentbandits.learning.progress import Silent
from latentbandits.learning.selection import Candidate, fewest_states, vetoed
from latentbandits.learning.tables import LogError


def ratings_log(**settings):
    made = generate_ratings(**settings)
    ids = [tuple(str(i) for i in range(n)) for n in (len(made.state), len(made.action_vectors))]
    return Log(made.users, made.actions, made.rewards, *ids), made


@pytest.mark.parametrize("n_states", [1, 2, 4])
def test_the_number_of_states_of_arms_is_found(n_states):
    truth = generate_arms(n_users=800, n_rounds=30, n_states=n_states, n_actions=8, seed=0)
    kept, held_out = split_users(truth.log, 0)
    selection = ArmsLearner(n_starts=5).select(kept, held_out, None, 0, Silent())
    assert selection.chosen.n_states == n_states
    bounds = [row.elbo for row in selection.rows]
    assert selection.chosen.elbo == max(bounds)
    assert selection.learned.model.n_states == n_states


def test_the_rank_of_ratings_is_found():
    log, _ = ratings_log(
        n_users=400, n_actions=120, n_states=3, density=0.4, n_features=4, separation=1.5
    )
    kept, held_out = split_users(log, 0)
    reg = choose_reg(kept, held_out, 0, Silent())
    rows = [
        row
        for rank in (1, 3, 8)
        for row in LinearLearner(reg=reg, rank=rank)
        .select(kept, held_out, (1, 3), 0, Silent())
        .rows
    ]
    chosen = fewest_states(rows)
    assert chosen.rank == 3, "three tastes beside the level, which is the biases'"
    assert chosen.n_states == 3


def test_too_many_states_end_a_row_of_the_table():
    log, _ = ratings_log(n_users=60, n_actions=30, n_states=2, density=0.4)
    kept, held_out = split_users(log, 0)
    learner = LinearLearner(reg=1.0, rank=2)
    selection = learner.select(kept, held_out, (1, 40, 41), 0, Silent())
    assert [row.n_states for row in selection.rows] == [1, 40]
    assert "largest usable number" in selection.rows[1].reason
    assert selection.chosen.n_states == 1
    with pytest.raises(LogError, match="largest usable number"):
        learner.select(kept, held_out, (40,), 0, Silent())


def _row(n, gain, elbo=None):
    mine = np.array([-8.0, -9.0, -7.0, -8.0]) + np.array(gain)
    return Candidate(n, None, float(mine.mean()), 1.0, mine, elbo=elbo)


def test_fewer_states_win_a_draw_and_lose_a_clear_case():
    draw = [_row(1, [0, 0, 0, 0]), _row(2, [0.5, -0.4, 0.3, -0.2])]
    assert fewest_states(draw).n_states == 1
    clear = [_row(1, [0, 0, 0, 0]), _row(2, [0.5, 0.4, 0.3, 0.6])]
    assert fewest_states(clear).n_states == 2


def test_the_highest_elbo_wins_unless_held_out_evidence_vetoes_it():
    best = _row(2, [0.5, -0.4, 0.3, -0.2], elbo=-90.0)
    open_question, clearly_worse = _row(3, [0.1, 0, 0.1, -0.3], elbo=-80.0), _row(4, [-1] * 4, -70)
    rows = [best, open_question, clearly_worse]
    assert [vetoed(row, rows, 2.0) for row in rows] == [False, False, True]
    assert ArmsLearner().choose(rows).n_states == 3
