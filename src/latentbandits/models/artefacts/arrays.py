"""Turn a model into named arrays and back, models inside models included."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from latentbandits.models import registry
from latentbandits.models.protocol import KnownModel, Model

Arrays = Mapping[str, NDArray[Any]]


def to_arrays(model: KnownModel) -> dict[str, NDArray[Any]]:
    """Return every field of a model as an array.

    Fields of a model inside it are named `field:kind/name`, and of the i-th of several
    `field:i:kind/name`. A field that is None is left out.

    >>> from latentbandits import GaussianArms, Markov
    >>> sorted(to_arrays(Markov(GaussianArms([[1.0]], noise=0.5), [[1.0]])))[:2]
    ['model:GaussianArms/means', 'model:GaussianArms/noise']
    """
    kind = _registered_kind(model)
    arrays: dict[str, NDArray[Any]] = {}
    for field in fields(kind):
        value = getattr(model, field.name)
        if isinstance(value, (np.ndarray, int, float)):
            arrays[field.name] = np.asarray(value)
        elif isinstance(value, tuple):
            for i, part in enumerate(value):
                arrays |= _prefixed(f"{field.name}:{i}", part)
        elif callable(value):
            raise TypeError(
                f"a {kind.__name__} is made of functions, and functions cannot be saved: save "
                "what they are made of (their arrays, or the fitted estimator by its own library), "
                f"and make the {kind.__name__} again after loading that"
            )
        elif value is not None:
            arrays |= _prefixed(field.name, value)
    return arrays


def from_arrays(kind: str, arrays: Arrays) -> Model:
    """Build the model of this kind that `to_arrays` took apart."""
    values: dict[str, Any] = {}
    parts: dict[str, dict[str, NDArray[Any]]] = {}
    for name, array in arrays.items():
        if "/" in name:
            prefix, _, rest = name.partition("/")
            parts.setdefault(prefix, {})[rest] = array
        else:
            values[name] = array.item() if array.ndim == 0 else array
    several: dict[str, dict[int, Model]] = {}
    for prefix, part_arrays in parts.items():
        field, *index, inner = prefix.split(":")
        part = from_arrays(inner, part_arrays)
        if index:
            several.setdefault(field, {})[int(index[0])] = part
        else:
            values[field] = part
    for field, numbered in several.items():
        values[field] = [numbered[i] for i in sorted(numbered)]
    model: Model = registry.find(kind)(**values)
    return model


def _registered_kind(model: KnownModel) -> type[Any]:
    kind = type(model)
    known = registry.kinds()
    if known.get(kind.__name__) is not kind:
        raise TypeError(
            f"cannot save a {kind.__name__}: it is not a registered model "
            "(latentbandits.models.register(kind) makes it one); "
            f"the registered models are {', '.join(known)}"
        )
    if not is_dataclass(kind):
        raise TypeError(f"cannot save a {kind.__name__}: it must be a dataclass")
    return kind


def _prefixed(prefix: str, part: KnownModel) -> dict[str, NDArray[Any]]:
    inner = f"{prefix}:{type(part).__name__}/"
    return {inner + name: array for name, array in to_arrays(part).items()}
