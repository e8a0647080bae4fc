"""What is chosen is what the truth was."""

import numpy as np
import pytest

from latentbandits.learning.generate import generate_ratings
from latentbandits.learning.generate_arms import generate_arms
from latentbandits.learning.learners import ArmsLearner, LinearLearner
from latentbandits.learning.logs import Log
from latentbandits.learning.progress import Silent
from latentbandits.learning.selection import Candidate, candidates, choose, choose_reg
from latentbandits.learning.tables import LogError


def ratings_log(**settings):
    made = generate_ratings(**settings)
    ids = [tuple(str(i) for i in range(n)) for n in (len(made.state), len(made.action_vectors))]
    return Log(made.users, made.actions, made.rewards, *ids), made


@pytest.mark.parametrize("n_states", [1, 2, 4])
def test_the_number_of_states_of_arms_is_found(n_states):
    truth = generate_arms(n_users=800, n_rounds=30, n_states=n_states, n_actions=8, seed=0)
    kept, held_out = truth.log.split_users(0.25, np.random.default_rng(0))
    learner = ArmsLearner(n_restarts=5)
    rows = candidates(learner, kept, held_out, (1, 2, 3, 4, 6), (None,), 0, Silent())
    assert choose(rows).n_states == n_states


def test_the_rank_of_ratings_is_found():
    log, _ = ratings_log(
        n_users=400, n_actions=120, n_states=3, density=0.4, n_features=4, separation=1.5
    )
    kept, held_out = log.split_users(0.25, np.random.default_rng(0))
    learner = LinearLearner(reg=choose_reg(kept, held_out, 0, Silent()))
    rows = candidates(learner, kept, held_out, (1, 3), (1, 3, 8), 0, Silent())
    chosen = choose(rows)
    assert chosen.rank == 3, "three tastes beside the level, which is the biases'"
    assert chosen.n_states == 3


def test_too_many_states_end_a_row_of_the_table():
    log, _ = ratings_log(n_users=60, n_actions=30, n_states=2, density=0.4)
    kept, held_out = log.split_users(0.25, np.random.default_rng(0))
    rows = candidates(LinearLearner(reg=1.0), kept, held_out, (1, 40, 41), (2,), 0, Silent())
    assert [row.n_states for row in rows] == [1, 40]
    assert "largest usable number" in rows[1].reason
    assert choose(rows).n_states == 1
    with pytest.raises(LogError, match="largest usable number"):
        candidates(LinearLearner(reg=1.0), kept, held_out, (40,), (2,), 0, Silent())


def test_fewer_states_win_a_draw_and_lose_a_clear_case():
    by_user = np.array([-8.0, -9.0, -7.0, -8.0])

    def row(n, gain):
        mine = by_user + np.array(gain)
        return Candidate(n, None, float(mine.mean()), 1.0, mine)

    draw = [row(1, [0, 0, 0, 0]), row(2, [0.5, -0.4, 0.3, -0.2])]
    assert choose(draw).n_states == 1
    clear = [row(1, [0, 0, 0, 0]), row(2, [0.5, 0.4, 0.3, 0.6])]
    assert choose(clear).n_states == 2
