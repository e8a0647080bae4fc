"""Actions that are added to a catalogue: by attributes, by vector, or with nothing known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from latentbandits.models.artefacts.catalogue import Catalogue
from latentbandits.models.attributes.items import add_items
from latentbandits.models.growing import add_arms, add_vectors, plain_features
from latentbandits.serving.engine.values import FeatureValue


class NewAction(msgspec.Struct, frozen=True):
    """An action to add.

    `attributes` are those that the model was learned with (`fit --item-features`), by name;
    `vector` is what the model sees of an action: its features, or for arms its mean reward in
    every state. With neither, it is taken as the average action, with a wide variance.
    """

    id: str
    name: str | None = None
    attributes: dict[str, FeatureValue] | None = None
    vector: list[float] | None = None


def extended(
    model: Any, catalogue: Catalogue, actions: Sequence[NewAction]
) -> tuple[Any, Catalogue]:
    """Return model and catalogue with these actions at the end; ValueError if one cannot be."""
    for action in actions:
        title = None if action.name is None else [action.name]
        if action.vector is None:
            model, catalogue = add_items(model, catalogue, [action.id], [action.attributes], title)
            continue
        if action.attributes is not None:
            raise ValueError(f"{action.id!r}: give attributes or a vector, not both")
        vector = np.array(action.vector)
        if catalogue.features is not None:
            width = plain_features(model, catalogue).shape[1]
            _check_length(action, width, "features")
            model, catalogue = add_vectors(model, catalogue, [action.id], vector[None], None, title)
            continue
        _check_length(action, model.n_states, "mean rewards, one for each state")
        variance = model.posterior_rewards(model.parameters(1), None)[1][0].mean(axis=1)
        model, catalogue = add_arms(
            model, catalogue, [action.id], vector[:, None], variance[:, None], title
        )
    return model, catalogue


def _check_length(action: NewAction, wanted: int, what: str) -> None:
    assert action.vector is not None
    if len(action.vector) != wanted:
        raise ValueError(
            f"the vector of {action.id!r} has {len(action.vector)} numbers; this model takes "
            f"{wanted} {what}"
        )
