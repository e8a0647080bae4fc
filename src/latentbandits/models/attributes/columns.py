"""Columns of a table as numbers: standardised, one-hot, a vector, or the product of two columns.

Every kind encodes values centred, so that zero is the average of the table that it was learned
from. A value that is missing, or a category that the table did not have, is encoded as that
average, and marked as unknown.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from latentbandits.models.checks import BoolArray, FloatArray
from latentbandits.models.numerics.arrays import json_bytes
from latentbandits.names import one_of

Row: TypeAlias = Mapping[str, Any]
"""Values by the name of their column: numbers, texts, booleans, lists of numbers or None."""


def text_of(value: Any) -> str:
    """Return a category as text: the same for 3, 3.0 and "3".

    >>> text_of(3.0), text_of(True), text_of("DE")
    ('3', 'true', 'DE')
    """
    if isinstance(value, (bool, np.bool_)):
        return "true" if value else "false"
    if isinstance(value, (float, np.floating)) and float(value).is_integer():
        return str(int(value))
    return str(value)


@dataclass(frozen=True)
class Number:
    """A column of numbers: (x - mean) / scale."""

    name: str
    mean: float
    scale: float
    kind: ClassVar[str] = "number"

    @property
    def labels(self) -> tuple[str, ...]:
        return (self.name,)

    def encode(self, rows: Sequence[Row]) -> tuple[FloatArray, BoolArray]:
        values = [self._value(row.get(self.name)) for row in rows]
        return self.standardise(np.array(values, np.float64))

    def standardise(self, values: FloatArray) -> tuple[FloatArray, BoolArray]:
        """Encode numbers `(n,)`, of which NaN is missing."""
        known = ~np.isnan(values)
        return np.where(known, (values - self.mean) / self.scale, 0.0)[:, None], known

    def _value(self, value: Any) -> float:
        if value is None or (isinstance(value, float) and math.isnan(value)):
            return math.nan
        if isinstance(value, (bool, int, float, np.number, np.bool_)) and math.isfinite(value):
            return float(value)
        raise ValueError(f"{self.name} must be a finite number or null; got {value!r}")


@dataclass(frozen=True)
class Category:
    """A column of texts: one number for each level, 1 or 0, less the level's share.

    Two levels are one number, the second level's.
    """

    name: str
    levels: tuple[str, ...]
    shares: tuple[float, ...]
    kind: ClassVar[str] = "category"

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(f"{self.name}={level}" for level in self.levels[self._first :])

    @property
    def _first(self) -> int:
        return 1 if len(self.levels) == 2 else 0

    @cached_property
    def _codes(self) -> dict[str, int]:
        return {level: i for i, level in enumerate(self.levels)}

    def encode(self, rows: Sequence[Row]) -> tuple[FloatArray, BoolArray]:
        codes = np.array([self._code(row.get(self.name)) for row in rows], np.int64)
        known = codes >= 0
        table = np.eye(len(self.levels)) - np.array(self.shares)
        encoded = np.where(known[:, None], table[codes], 0.0)
        return encoded[:, self._first :], known

    def _code(self, value: Any) -> int:
        if value is None or (isinstance(value, float) and math.isnan(value)):
            return -1
        if isinstance(value, (list, tuple, dict, np.ndarray)):
            raise ValueError(f"{self.name} must be a text, a number or null; got {value!r}")
        return self._codes.get(text_of(value), -1)


@dataclass(frozen=True)
class Vector:
    """A column of lists of numbers, taken as they are."""

    name: str
    length: int
    kind: ClassVar[str] = "vector"

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(f"{self.name}[{i}]" for i in range(self.length))

    def encode(self, rows: Sequence[Row]) -> tuple[FloatArray, BoolArray]:
        return np.array([self._value(row.get(self.name)) for row in rows], np.float64).reshape(
            len(rows), self.length
        ), np.ones(len(rows), np.bool_)

    def _value(self, value: Any) -> Any:
        if not isinstance(value, (list, tuple, np.ndarray)) or len(value) != self.length:
            got = f"{len(value)} numbers" if isinstance(value, (list, tuple)) else repr(value)
            raise ValueError(f"{self.name} must be a list of {self.length} numbers; got {got}")
        for one in value:
            if not isinstance(one, (bool, int, float, np.number)) or not math.isfinite(one):
                raise ValueError(
                    f"{self.name} must be a list of {self.length} finite numbers; it holds {one!r}"
                )
        return value


@dataclass(frozen=True)
class Product:
    """The interaction of two columns: all products of a number of one and a number of the other."""

    first: Number | Category
    second: Number | Category
    kind: ClassVar[str] = "product"

    @property
    def name(self) -> str:
        return f"{self.first.name}*{self.second.name}"

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(f"{a}*{b}" for a in self.first.labels for b in self.second.labels)

    def encode(self, rows: Sequence[Row]) -> tuple[FloatArray, BoolArray]:
        (one, known), (other, also) = self.first.encode(rows), self.second.encode(rows)
        products = one[:, :, None] * other[:, None, :]
        return products.reshape(len(rows), -1), known & also


Column: TypeAlias = Number | Category | Vector | Product
_KINDS: Mapping[str, Any] = {"number": Number, "category": Category, "vector": Vector}


def to_json(column: Column) -> dict[str, Any]:
    """Return a column as JSON; `from_json` reads it again."""
    if isinstance(column, Product):
        return {"kind": "product", "parts": [to_json(column.first), to_json(column.second)]}
    return {"kind": column.kind, **asdict(column)}


def from_json(content: Mapping[str, Any]) -> Column:
    """Return the column that `to_json` described."""
    values = dict(content)
    kind = values.pop("kind")
    if kind == "product":
        first, second = (from_json(part) for part in values["parts"])
        return Product(first, second)  # type: ignore[arg-type]
    lists = {name: tuple(value) for name, value in values.items() if isinstance(value, list)}
    column: Column = _KINDS[kind](**(values | lists))
    return column


# Encode named attributes as the vector that a model takes.

INTERCEPT = "(intercept)"


@dataclass(frozen=True)
class Encoder:
    """The columns of an encoded row, in order; with `intercept` a 1 comes first.

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
