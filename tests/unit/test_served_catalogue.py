"""What the service tells of its model's actions, by hand."""

from __future__ import annotations

from typing import Any

import numpy as np

from latentbandits import GaussianArms, LinearGaussian
from latentbandits.models.artefacts import Catalogue
from latentbandits.serving.engine.engine import Engine, EngineSettings
from latentbandits.serving.engine.model_rows import pack
from latentbandits.serving.http.messages import CatalogueView
from latentbandits.serving.http.views import MOST, catalogue
from latentbandits.serving.stores.sqlite import MemoryStore


def view(model: Any, named: Catalogue | None = None) -> CatalogueView:
    engine = Engine(MemoryStore(), EngineSettings(), lambda: 0)
    with engine.transaction():
        engine.start_with(pack(model, "model", named))
        return catalogue(engine)


def test_actions_that_tell_states_apart_come_first() -> None:
    # On average, with a prior of 1/2 each: 3, 2, 5. Above that: state 0 has +1, -2, 0.
    model = GaussianArms([[4.0, 0.0, 5.0], [2.0, 4.0, 5.0]], noise=1.0)
    shown = view(model, Catalogue(["a", "b", "c"], ["Alpha", "Beta", "Gamma"]))
    assert [(item.action, item.name) for item in shown.items] == [
        ("b", "Beta"), ("a", "Alpha"), ("c", "Gamma"),
    ]  # fmt: skip
    assert shown.items[0].expected == [0.0, 4.0]
    assert shown.favours == [["Alpha"], ["Beta"]]  # all like c the same, so it is nobody's
    assert (shown.low, shown.high) == (0.0, 5.0)
    np.testing.assert_allclose(shown.prior, [0.5, 0.5])


def test_features_of_a_catalogue_give_the_expected_rewards() -> None:
    model = LinearGaussian([[1.0, 0.0], [0.0, 2.0]], noise=1.0)
    named = Catalogue(["x", "y"], features=[[1.0, 1.0], [3.0, 0.0]])
    items = {item.action: item.expected for item in view(model, named).items}
    assert items == {"x": [1.0, 2.0], "y": [3.0, 0.0]}


def test_numbered_actions_are_their_own_names_and_a_large_catalogue_is_cut() -> None:
    means = np.random.default_rng(0).random((2, MOST + 5))
    shown = view(GaussianArms(means, noise=1.0))
    assert len(shown.items) == MOST
    gaps = [abs(a - b) for a, b in (item.expected for item in shown.items)]
    assert gaps == sorted(gaps, reverse=True)
    assert all(item.action == item.name and item.action.isdecimal() for item in shown.items)


def test_without_a_catalogue_there_is_nothing_to_offer() -> None:
    shown = view(LinearGaussian([[1.0, 0.0], [0.0, 2.0]], noise=1.0))
    assert shown.items == []
    assert shown.favours == [[], []]
