"""The actions that a model was learned for: their ids, names and features."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from latentbandits.lazy import cached_property
from latentbandits.models import checks
from latentbandits.models.checks import FloatArray, IntArray


@dataclass(frozen=True, eq=False, init=False)
class Catalogue:
    """Action ids in the order of a model's actions, their names, and their features.

    Args:
        ids: one text for each action, all different.
        names: texts for people; None is the ids.
        features: `(n_actions, n_features)` for a model with features, None for arms.
        retired: ids of actions that are never chosen again. They keep their places, so that
            decisions of the past can be read.
        n_offsets: how many of the features are offsets of actions whose vectors are uncertain
            (see `models.growing`).

    >>> catalogue = Catalogue(["m1", "m2"], features=[[1.0, 0.2], [1.0, 0.7]])
    >>> catalogue.context(["m2"])
    array([[[1. , 0.7]]])
    """

    ids: tuple[str, ...]
    names: tuple[str, ...]
    features: FloatArray | None
    retired: frozenset[str]
    n_offsets: int

    def __init__(
        self,
        ids: Sequence[str],
        names: Sequence[str] | None = None,
        features: ArrayLike | None = None,
        retired: Iterable[str] = (),
        n_offsets: int = 0,
    ) -> None:
        unique = tuple(ids)
        if (
            not unique
            or len(set(unique)) < len(unique)
            or not all(isinstance(i, str) for i in unique)
        ):
            raise ValueError("ids must be different texts, at least one")
        labels = unique if names is None else tuple(names)
        if len(labels) != len(unique) or not all(isinstance(n, str) for n in labels):
            raise ValueError(f"names must be one text for each of {len(unique)} ids")
        vectors = None if features is None else checks.finite_array("features", features, (2,))
        if vectors is not None and len(vectors) != len(unique):
            raise ValueError(f"features must have a row for each of {len(unique)} ids")
        gone = frozenset(retired)
        if not gone < set(unique):
            raise ValueError(
                "retired must name actions of the catalogue, and leave at least one; "
                f"got {sorted(gone - set(unique)) or 'all of them'}"
            )
        object.__setattr__(self, "retired", gone)
        object.__setattr__(self, "n_offsets", checks.count("n_offsets", n_offsets))
        object.__setattr__(self, "ids", unique)
        object.__setattr__(self, "names", labels)
        object.__setattr__(self, "features", None if vectors is None else checks.frozen(vectors))

    def __len__(self) -> int:
        return len(self.ids)

    def indices(self, ids: Sequence[str]) -> IntArray:
        """Return the positions of these ids; ValueError names the first that is not there."""
        try:
            return np.array([self._index[i] for i in ids], np.int64)
        except KeyError as error:
            raise ValueError(
                f"the catalogue has no action {error.args[0]!r}; it has {len(self)} actions, such "
                f"as {self.ids[0]!r}"
            ) from None

    def context(self, ids: Sequence[str]) -> FloatArray:
        """Return the features of these actions as the context of one session: `(1, n, d)`."""
        if self.features is None:
            raise ValueError("this catalogue has no features: its model takes no context")
        chosen: FloatArray = self.features[None, self.indices(ids)]
        return chosen

    @cached_property
    def _index(self) -> Mapping[str, int]:
        return {i: n for n, i in enumerate(self.ids)}

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays of an artefact; texts are the bytes of a JSON list."""
        arrays: dict[str, NDArray[Any]] = {
            "ids": _bytes(self.ids),
            "names": _bytes(self.names),
        }
        if self.features is not None:
            arrays["features"] = self.features
        if self.retired:
            arrays["retired"] = _bytes(sorted(self.retired))
        if self.n_offsets:
            arrays["n_offsets"] = np.array(self.n_offsets)
        return arrays

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Catalogue:
        """Return the catalogue that `to_arrays` took apart."""
        ids, names = (json.loads(arrays[name].tobytes()) for name in ("ids", "names"))
        retired = json.loads(arrays["retired"].tobytes()) if "retired" in arrays else ()
        n_offsets = int(arrays.get("n_offsets", np.array(0)))
        return cls(ids, names, arrays.get("features"), retired, n_offsets)


def _bytes(texts: Sequence[str]) -> NDArray[np.uint8]:
    return np.frombuffer(json.dumps(texts, ensure_ascii=False).encode(), np.uint8)
