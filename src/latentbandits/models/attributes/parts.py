"""The parts of a model that know attributes of users, rows and items: gate, encoder and items.

These parts are kept in attributes of the model object, not in fields of the model's class, and are
saved with the model. So every family has them, and a model class of a user needs no code for them.

The gate P1(s | z) is the prior over latent states given a user's attributes: a multinomial logistic
regression on the encoded attributes z,

    P1(s | z) = exp(b_s + w_s' z) / sum_s' exp(b_s' + w_s'' z).

A user without known attributes has the model's P1(s), the average over users. Where only the
attributes c are known and d are not,

    P1(s | c) = sum_i k_i P1(s | c, d_i) / sum_i k_i

over users i of the log. k_i is 0 unless user i has the categories in c, and falls with the distance
of numbers (a normal kernel). The weight of one more user is spread over all users, so that a user
unlike everyone in the log gets the average over all d_i.

The gate changes the prior of the state alone: a session's belief is shifted once, when it begins.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from latentbandits.models.attributes.columns import Category, Encoder, Row
from latentbandits.models.checks import BoolArray, FloatArray
from latentbandits.models.numerics.arrays import json_bytes, log_sum

_LEAST_SCALE = 1e-9  # of a number that is the same for all users


def log_softmax(scores: FloatArray) -> FloatArray:
    """Return log probabilities over the last axis."""
    return scores - log_sum(scores)[..., None]


@dataclass(frozen=True, eq=False)
class Gate:
    """A fitted gate.

    Args:
        encoder: of the users' attributes.
        weights: `(n_states, 1 + len(encoder))`, the intercepts first.
        sample: attributes of some users of the log. The unknown attributes of a user are averaged
            over users of the sample who agree in the known ones; simulated users are drawn from
            the sample.

    >>> from latentbandits.models.attributes.columns import Category
    >>> encoder = Encoder((Category("country", ("AT", "DE"), (0.5, 0.5)),))
    >>> gate = Gate(encoder, np.array([[0.0, 2.0], [0.0, -2.0]]), ())
    >>> np.exp(gate.log_prior([{"country": "DE"}], np.log([[0.5, 0.5]]))).round(2)
    array([[0.88, 0.12]])
    """

    encoder: Encoder
    weights: FloatArray
    sample: tuple[Row, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the attributes."""
        return self.encoder.names

    @property
    def n_states(self) -> int:
        return len(self.weights)

    def check(self, user: Row) -> None:
        """Raise ValueError for attributes that the gate does not know, or of another kind."""
        self.encoder.check(user, "user_features")

    def log_prior(self, users: Sequence[Row | None], average: FloatArray) -> FloatArray:
        """Return log P1(s | z) of users, `(n, n_states)`.

        `average` (1 or n, n_states) is the model's own log P1(s): it holds for a user of whom
        nothing is known (None, or values that the log did not have). Some attributes unknown: the
        prior is the average over users of `sample` that agree with the known ones.
        """
        rows = [{} if user is None else user for user in users]
        encoded, known = self.encoder.encode_known(rows)
        some, all_ = np.asarray(known.any(axis=1)), np.asarray(known.all(axis=1))
        log_prior = np.where(some[:, None], self.of_encoded(encoded), average)
        for user in np.flatnonzero(some & ~all_):
            if self.sample:
                mixed = np.where(known[user], encoded[user], self._sample[0])
                weights = self._agreement(encoded[user], known[user]) + 1 / len(self.sample)
                log_prior[user] = np.log(weights @ np.exp(self.of_encoded(mixed)) / weights.sum())
        return log_prior

    def _agreement(self, encoded: FloatArray, known: BoolArray) -> FloatArray:
        """Return how much the users of `sample` agree with known attributes, 0 to 1, `(n,)`."""
        values, present = self._sample
        agree, squares = np.ones(len(values), np.bool_), np.zeros(len(values))
        numbers, at = 0, int(self.encoder.intercept)
        for column in self.encoder.columns:
            block = slice(at, at + len(column.labels))
            at = block.stop
            if not known[block].all():
                continue
            agree &= present[:, block].all(axis=1)
            difference = values[:, block] - encoded[block]
            if isinstance(column, Category):
                agree &= (difference == 0).all(axis=1)
            else:
                scale = np.maximum(values[:, block].std(axis=0), _LEAST_SCALE)
                squares += ((difference / scale) ** 2).sum(axis=1)
                numbers += len(column.labels)
        width = len(values) ** (-1 / (numbers + 4))  # Silverman's rule for so many numbers
        kernel: FloatArray = agree * np.exp(-squares / (2 * width**2))
        return kernel

    def of_encoded(self, encoded: FloatArray) -> FloatArray:
        """Return log P1(s | z) of encoded attributes `(n, len(encoder))`."""
        return log_softmax(self.weights[:, 0] + encoded @ self.weights[:, 1:].T)

    @cached_property
    def _sample(self) -> tuple[FloatArray, BoolArray]:
        return self.encoder.encode_known(self.sample)

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays of an artefact."""
        return {
            **self.encoder.to_arrays(),
            "weights": self.weights,
            "sample": json_bytes(self.sample),
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Gate:
        """Return the gate that `to_arrays` took apart."""
        sample = tuple(json.loads(arrays["sample"].tobytes()))
        weights = np.asarray(arrays["weights"], np.float64)
        return cls(Encoder.from_arrays(arrays), weights, sample)


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
