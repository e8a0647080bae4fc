"""The game of /play: the rewards of picks, and games that cannot be played."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from latentbandits import CategoricalArms, GaussianArms, PoissonArms
from latentbandits.serving.engine.engine import Engine, EngineSettings
from latentbandits.serving.engine.model_rows import pack
from latentbandits.serving.engine.models import ServedModel
from latentbandits.serving.errors import Invalid
from latentbandits.serving.http.game import pick_rewards, play
from latentbandits.serving.http.messages import PlayRequest
from latentbandits.serving.stores.sqlite import MemoryStore

MEANS = np.array([[0.9, 2.2, 1.4, 4.4], [4.5, 1.2, 2.6, 1.3]])


def served(model: Any, policy: str = "mmTS") -> ServedModel:
    engine = Engine(MemoryStore(), EngineSettings(policy=policy), lambda: 0)
    with engine.transaction():
        engine.start_with(pack(model, "model"))
        return engine.library.served(engine.library.active.model)


def test_a_pick_is_worth_what_it_pays_in_the_states_that_would_pick_it() -> None:
    gaussian = GaussianArms(MEANS, noise=0.5)
    assert pick_rewards(gaussian, MEANS, 3) == MEANS[0].tolist()
    # Action 1 is nobody's best: state 0 misses 2.2 by it, state 1 misses 3.3.
    assert pick_rewards(gaussian, MEANS, 1) == MEANS[0].tolist()


def test_the_pick_is_rounded_up_and_the_others_down_to_rewards_that_the_model_allows() -> None:
    stars = CategoricalArms(np.ones((2, 4, 5)), [1, 2, 3, 4, 5])
    assert pick_rewards(stars, MEANS, 3) == [1.0, 2.0, 1.0, 5.0]
    counts = PoissonArms.from_means(MEANS, 0.1)
    assert pick_rewards(counts, MEANS, 3) == [0.0, 2.0, 1.0, 5.0]


def test_a_game_with_one_more_pick_goes_on_from_the_same_rounds() -> None:
    model = served(GaussianArms(MEANS, noise=0.5, spread=0.1))
    short = play(model, PlayRequest(7, [0, 1]))
    longer = play(model, PlayRequest(7, [0, 1, 2]))
    assert longer.taken == [*short.taken, short.offer[2]]
    assert longer.guesses[:2] == short.guesses
    assert longer.state_probabilities[:3] == short.state_probabilities
    assert play(model, PlayRequest(8, [0, 1])).offer != short.offer


@pytest.mark.parametrize("policy", ["EXP4", "mUCB", "uniform", "Exploring(policy='mmTS', e=0.1)"])
def test_policies_that_learn_from_their_own_decisions_can_be_played(policy: str) -> None:
    model = served(GaussianArms(MEANS, noise=0.5, spread=0.1), policy)
    game = play(model, PlayRequest(1, [0, 1, 2, 3]))
    assert len(game.state_probabilities) == 5


def test_a_place_that_was_not_offered_is_refused() -> None:
    model = served(GaussianArms(MEANS, noise=0.5))
    with pytest.raises(Invalid, match="the pick 4 is none of the 4 actions"):
        play(model, PlayRequest(1, [4]))
    with pytest.raises(Invalid, match="offers 1 action"):
        play(served(GaussianArms([[1.0], [2.0]], noise=0.5)), PlayRequest(1))
