"""The side information of a model: attributes of users, rows and items.

Side information is kept in attributes of the model object, not in fields of the model's class, and
is saved with the model. So every family has it, and a model class of a user needs no code for it.
"""

from __future__ import annotations

import copy
from typing import Any, TypeVar

from latentbandits.models.attributes.columns import Encoder
from latentbandits.models.attributes.gate import Gate

ModelT = TypeVar("ModelT")

PARTS = ("gate", "encoder", "items")
"""The names of the parts: a gate of users, an encoder of rows, a regression of new items."""


def part_class(name: str) -> Any:
    """Return the class of a part."""
    if name == "items":
        from latentbandits.models.attributes.items import (
            Items,
        )  # avoids a circular import: items imports catalogues, which import this module

        return Items
    return {"gate": Gate, "encoder": Encoder}[name]


def part(model: Any, name: str) -> Any:
    """Return a part of a model; None if it has none."""
    return getattr(model, name, None)


def with_parts(model: ModelT, **parts: Any) -> ModelT:
    """Return the model with these parts in place of its own.

    Raises:
        ValueError: a gate has other states than the model, or an encoder other features.
    """
    gate, encoder = parts.get("gate"), parts.get("encoder")
    n_states, n_features = (getattr(model, name, None) for name in ("n_states", "n_features"))
    if gate is not None and gate.n_states != n_states:
        raise ValueError(f"the gate has {gate.n_states} states, the model {n_states}")
    if encoder is not None and len(encoder) != n_features:
        raise ValueError(f"the encoder makes {len(encoder)} features, the model takes {n_features}")
    changed = copy.copy(model)
    for name, value in parts.items():
        if name not in PARTS:
            raise TypeError(f"a model has no part {name!r}; there are {', '.join(PARTS)}")
        object.__setattr__(changed, name, value)
    return changed


def parts_of(model: Any) -> dict[str, Any]:
    """Return the parts that a model has."""
    return {name: part(model, name) for name in PARTS if part(model, name) is not None}
