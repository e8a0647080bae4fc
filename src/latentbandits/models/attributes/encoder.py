"""Encode named attributes as the vector that a model takes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from latentbandits.models.attributes.columns import Column, Product, Row, from_json, to_json
from latentbandits.models.checks import BoolArray, FloatArray
from latentbandits.names import one_of

INTERCEPT = "(intercept)"


@dataclass(frozen=True)
class Encoder:
    """Columns in the order of their numbers; with `intercept` a one comes before them.

    `action` is the name of a column that holds the ids of actions, if there is one.

    >>> from latentbandits.models.attributes.columns import Category, Number
    >>> country = Category("country", ("AT", "DE"), (0.5, 0.5))
    >>> encoder = Encoder((Number("age", 30.0, 10.0), country))
    >>> encoder.encode([{"age": 45, "country": "DE"}, {"country": "FR"}])
    array([[1.5, 0.5],
           [0. , 0. ]])
    """

    columns: tuple[Column, ...]
    intercept: bool = False
    action: str | None = None

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """The name of every number of an encoded row."""
        labels = tuple(label for column in self.columns for label in column.labels)
        return (INTERCEPT, *labels) if self.intercept else labels

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names that a row may have."""
        names: dict[str, None] = {}
        for column in self.columns:
            parts = (column.first, column.second) if isinstance(column, Product) else (column,)
            names |= {part.name: None for part in parts}
        return tuple(names)

    def __len__(self) -> int:
        return len(self.labels)

    def check(self, row: Row, what: str) -> None:
        """Raise ValueError if `row` has a name that is no column, or a value of another kind."""
        unknown = [name for name in row if name not in self.names]
        if unknown:
            one_of(f"name in {what}", unknown[0], self.names)
        try:
            self.encode([row])
        except ValueError as error:
            raise ValueError(f"{what}: {error}") from None

    def encode(self, rows: Sequence[Row]) -> FloatArray:
        """Return the numbers of every row, `(n, len(self))`; unknown values are the average."""
        return self.encode_known(rows)[0]

    def encode_known(self, rows: Sequence[Row]) -> tuple[FloatArray, BoolArray]:
        """Return `encode` and which of its numbers are known, both `(n, len(self))`."""
        n = len(rows)
        values, known = [np.ones((n, int(self.intercept)))], [np.ones((n, int(self.intercept)))]
        for column in self.columns:
            encoded, is_known = column.encode(rows)
            values.append(encoded)
            known.append(np.repeat(is_known[:, None], encoded.shape[1], axis=1))
        return np.concatenate(values, axis=1), np.concatenate(known, axis=1).astype(np.bool_)

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays of an artefact: the bytes of JSON."""
        content = {
            "columns": [to_json(column) for column in self.columns],
            "intercept": self.intercept,
            "action": self.action,
        }
        return {"columns": json_bytes(content)}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Encoder:
        """Return the encoder that `to_arrays` took apart."""
        content: Mapping[str, Any] = json.loads(arrays["columns"].tobytes())
        columns = tuple(from_json(column) for column in content["columns"])
        return cls(columns, content["intercept"], content.get("action"))


def json_bytes(content: Any) -> NDArray[np.uint8]:
    """Return JSON as an array of bytes."""
    return np.frombuffer(json.dumps(content, ensure_ascii=False).encode(), np.uint8)
