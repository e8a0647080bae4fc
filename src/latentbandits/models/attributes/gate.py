"""The gate P1(s | z): the prior over latent states given a user's attributes.

A multinomial logistic regression on the encoded attributes z,

    P1(s | z) = exp(b_s + w_s' z) / sum_s' exp(b_s' + w_s'' z).

A user of whom nothing is known has the model's own P1(s), the average over users.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from latentbandits.models.attributes.columns import Row
from latentbandits.models.attributes.encoder import Encoder, json_bytes
from latentbandits.models.checks import FloatArray
from latentbandits.models.numerics.log_weights import log_sum


def log_softmax(scores: FloatArray) -> FloatArray:
    """Return log probabilities over the last axis."""
    logs: FloatArray = scores - log_sum(scores)[..., None]
    return logs


@dataclass(frozen=True, eq=False)
class Gate:
    """A fitted gate.

    Args:
        encoder: of the users' attributes.
        weights: `(n_states, 1 + len(encoder))`, the intercepts first.
        sample: attributes of some users of the log. Those that a user lacks are averaged over
            these, and simulated users are drawn from them.

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
        prior is the average over `sample`, with the known attributes in place.
        """
        rows = [{} if user is None else user for user in users]
        encoded, known = self.encoder.encode_known(rows)
        some, all_ = np.asarray(known.any(axis=1)), np.asarray(known.all(axis=1))
        log_prior = np.where(some[:, None], self.of_encoded(encoded), average)
        for user in np.flatnonzero(some & ~all_):
            if len(self._sample):
                mixed = np.where(known[user], encoded[user], self._sample)
                log_prior[user] = np.log(np.exp(self.of_encoded(mixed)).mean(axis=0))
        return log_prior

    def of_encoded(self, encoded: FloatArray) -> FloatArray:
        """Return log P1(s | z) of encoded attributes `(n, len(encoder))`."""
        return log_softmax(self.weights[:, 0] + encoded @ self.weights[:, 1:].T)

    @cached_property
    def _sample(self) -> FloatArray:
        return self.encoder.encode(self.sample)

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
