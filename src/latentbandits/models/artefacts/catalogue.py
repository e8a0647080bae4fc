"""The actions that a model was learned for: their ids, names and features."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from latentbandits.models import checks
from latentbandits.models.checks import FloatArray, IntArray

_ROOM = 0.25  # share of the rows that are kept free behind the features of a longer catalogue
_BYTES_OF_ID = 250  # about: the texts of id and name, and their entry in a dictionary
_RETIRED = "retired must name actions of the catalogue, and leave at least one; got "


class Places:
    """The places of the first `n` ids; longer catalogues add theirs to the same dictionary.

    >>> first = Places({"a": 0, "b": 1})
    >>> longer = first.longer(["c"])
    >>> len(first), "c" in first, longer.find(["c", "a"])
    (2, False, [2, 0])
    """

    __slots__ = ("_n", "_of_all")

    def __init__(self, of_all: dict[str, int]) -> None:
        self._of_all = of_all
        self._n = len(of_all)

    def __len__(self) -> int:
        return self._n

    def __contains__(self, name: object) -> bool:
        return self._of_all.get(name, self._n) < self._n  # type: ignore[call-overload,no-any-return]

    def __iter__(self) -> Iterator[str]:
        return islice(self._of_all, self._n)

    @property
    def shared(self) -> int:
        """The same number for all places that share a dictionary."""
        return id(self._of_all)

    def get(self, name: str) -> int | None:
        """Return the place of an id; None if it has none."""
        place = self._of_all.get(name, self._n)
        return place if place < self._n else None

    def find(self, names: Iterable[str]) -> list[int]:
        """Return the places of several ids; KeyError with the first that has none."""
        of_all, n = self._of_all, self._n
        places = [of_all[name] for name in names]
        if len(of_all) > n:
            for name, place in zip(names, places, strict=True):
                if place >= n:
                    raise KeyError(name)
        return places

    def sharing(self, other: Places) -> Places | None:
        """Return these places with the dictionary of `other`; None unless one begins the other."""
        mine, theirs = self._of_all, other._of_all
        both = min(self._n, len(theirs))
        if any(mine.get(name) != place for name, place in islice(theirs.items(), both)):
            return None
        shared = Places(theirs)
        shared._n = both
        return shared if both == self._n else shared.longer(list(islice(mine, both, self._n)))

    def longer(self, ids: Sequence[str]) -> Places:
        """Return the places with new ids added at the end."""
        of_all = self._of_all
        if len(of_all) > self._n:  # another catalogue has added ids of its own
            of_all = {name: place for name, place in of_all.items() if place < self._n}
        for name in ids:
            of_all[name] = len(of_all)
        return Places(of_all)


class _Rows:
    """Features with room for more: longer catalogues write theirs behind them."""

    __slots__ = ("_array", "_used")

    def __init__(self, features: FloatArray, room: int) -> None:
        self._array = np.empty((len(features) + room, features.shape[1]))
        self._array[: len(features)] = features
        self._used = len(features)

    @property
    def nbytes(self) -> int:
        """The bytes of the rows, with the room behind them."""
        return self._array.nbytes

    def extended(self, n: int, rows: FloatArray) -> _Rows:
        """Return rows whose first `n` are these, with `rows` behind them."""
        end = n + len(rows)
        if n != self._used or end > len(self._array):
            return _Rows(self._array[:n], max(len(rows), int(_ROOM * n))).extended(n, rows)
        self._array[n:end] = rows
        self._used = end
        return self

    def first(self, n: int) -> FloatArray:
        """Return the first `n` rows, which cannot be changed through the answer."""
        return checks.frozen(self._array[:n])


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
    places: Places = field(init=False, repr=False)
    _rows: _Rows | None = field(init=False, repr=False)

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
            raise ValueError(_RETIRED + str(sorted(gone - set(unique)) or "all of them"))
        object.__setattr__(self, "retired", gone)
        object.__setattr__(self, "n_offsets", checks.count("n_offsets", n_offsets))
        object.__setattr__(self, "ids", unique)
        object.__setattr__(self, "names", labels)
        object.__setattr__(self, "features", None if vectors is None else checks.frozen(vectors))
        object.__setattr__(self, "places", Places({name: i for i, name in enumerate(unique)}))
        object.__setattr__(self, "_rows", None)

    def longer(
        self, ids: Sequence[str], names: Sequence[str] | None = None, rows: ArrayLike | None = None
    ) -> Catalogue:
        """Return a catalogue with more actions at the end, which shares the memory of this one.

        `rows` are their features, where the catalogue has any. ValueError if an id is not new.

        >>> longer = Catalogue(["m1"], features=[[1.0, 0.2]]).longer(["m2"], rows=[[1.0, 0.7]])
        >>> longer.ids, longer.features.tolist()
        (('m1', 'm2'), [[1.0, 0.2], [1.0, 0.7]])
        """
        self.check_new(ids)
        added = Catalogue(ids, names, rows)  # checks them
        if (added.features is None) != (self.features is None):
            raise ValueError("new actions have features where the others do, and only there")
        n = len(self)
        features, shared = self.features, self._rows
        if features is not None and added.features is not None:
            if added.features.shape[1] != features.shape[1]:
                raise ValueError(f"new actions must have {features.shape[1]} features")
            shared = (shared or _Rows(features, 0)).extended(n, added.features)
            features = shared.first(n + len(added))
        return self._with(
            ids=self.ids + added.ids,
            names=self.names + added.names,
            features=features,
            places=self.places.longer(added.ids),
            _rows=shared,
        )

    def check_new(self, ids: Sequence[str]) -> None:
        """Raise ValueError if one of these ids is in the catalogue, or twice among them."""
        seen: set[str] = set()
        for name in ids:
            if name in self.places or name in seen:
                again = " (it is retired)" if name in self.retired else ""
                raise ValueError(f"the catalogue has an action {name!r} already{again}")
            seen.add(name)

    def retire(self, ids: Sequence[str]) -> Catalogue:
        """Return the catalogue with these actions retired: they are never chosen again."""
        self.indices(ids)
        gone = self.retired | set(ids)
        if len(gone) == len(self):
            raise ValueError(_RETIRED + "all of them")
        return self._with(retired=gone)

    def sharing(self, other: Catalogue) -> Catalogue:
        """Return this catalogue in the memory of `other`, where that one has its first actions."""
        n = len(other)
        if self.ids[:n] != other.ids or self.names[:n] != other.names:
            return self
        rows = None
        if self.features is not None and other.features is not None:
            if not np.array_equal(self.features[:n], other.features):
                return self
            rows = self.features[n:]
        elif self.features is not other.features:
            return self
        longer = other if n == len(self) else other.longer(self.ids[n:], self.names[n:], rows)
        return longer._with(retired=self.retired, n_offsets=self.n_offsets)

    def parts(self) -> dict[int, int]:
        """Return the bytes of what catalogues may share, and of this one alone, by identity."""
        parts = {id(self): 32 * len(self), self.places.shared: _BYTES_OF_ID * len(self)}
        if self._rows is not None:
            parts[id(self._rows)] = self._rows.nbytes
        elif self.features is not None:
            parts[id(self.features)] = self.features.nbytes
        return parts

    def _with(self, **changes: Any) -> Catalogue:
        """Return the catalogue with other values, which were checked."""
        changed = object.__new__(Catalogue)
        changed.__dict__.update(self.__dict__ | changes)
        return changed

    def __len__(self) -> int:
        return len(self.ids)

    def indices(self, ids: Sequence[str]) -> IntArray:
        """Return the positions of these ids; ValueError names the first that is not there."""
        try:
            return np.array(self.places.find(ids), np.int64)
        except KeyError as error:
            raise ValueError(
                f"the catalogue has no action {error.args[0]!r}; it has {len(self)} actions, such "
                f"as {self.ids[0]!r}"
            ) from None

    def context(self, ids: Sequence[str]) -> FloatArray:
        """Return the features of these actions as the context of one session: `(1, n, d)`."""
        if self.features is None:
            raise ValueError("this catalogue has no features: its model takes no context")
        return self.features[None, self.indices(ids)]

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
