"""New items: from an item's attributes to its vector, v ~ N(W' f, c Q), with f = (1, attributes).

For a linear model v is the item's feature vector; for arms it is its mean reward in every state.
With a ridge regression on the items of the catalogue, P = (sum f f' + ridge)^-1 and residual
covariance Q, a new item has c = 1 + f' P f: the spread of items with the same attributes, and how
unsure the regression is about these attributes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from latentbandits.models.artefacts import Catalogue
from latentbandits.models.attributes.columns import Encoder, Row
from latentbandits.models.checks import FloatArray
from latentbandits.models.growing import add_arms, add_average, add_vectors


@dataclass(frozen=True, eq=False)
class Items:
    """A fitted regression from attributes to vectors.

    Args:
        encoder: of the items' attributes.
        weights: W, `(1 + len(encoder), d)`, intercepts first.
        covariance: Q, `(d, d)`.
        precision: P, `(1 + len(encoder), 1 + len(encoder))`.
    """

    encoder: Encoder
    weights: FloatArray
    covariance: FloatArray
    precision: FloatArray

    @property
    def used(self) -> bool:
        """Whether attributes tell items apart; if not, a new item is the average one."""
        return bool(self.weights[1:].any())

    def predict(self, items: Sequence[Row]) -> tuple[FloatArray, FloatArray]:
        """Return the vectors of items, `(n, d)`, and their covariances, `(n, d, d)`."""
        return self.predict_encoded(self.encoder.encode(items))

    def predict_encoded(self, encoded: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return `predict` of encoded attributes `(n, len(encoder))`."""
        f = np.concatenate([np.ones((len(encoded), 1)), encoded], axis=1)
        scale = 1 + np.einsum("ni,ij,nj->n", f, self.precision, f)
        return f @ self.weights, scale[:, None, None] * self.covariance

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays of an artefact."""
        return {
            **self.encoder.to_arrays(),
            "weights": self.weights,
            "covariance": self.covariance,
            "precision": self.precision,
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Items:
        """Return the regression that `to_arrays` took apart."""
        parts = (np.asarray(arrays[n], float) for n in ("weights", "covariance", "precision"))
        return cls(Encoder.from_arrays(arrays), *parts)


def add_items(
    model: Any,
    catalogue: Catalogue,
    ids: Sequence[str],
    items: Sequence[Row | None],
    names: Sequence[str] | None = None,
) -> tuple[Any, Catalogue]:
    """Return model and catalogue with new actions that have these attributes.

    None is an action without known attributes. The model must have been learned with attributes of
    items (`fit --item-features`), unless all are None.

    Raises:
        ValueError: the model has no such regression, or it does not have an attribute.
    """
    regression: Items | None = getattr(model, "items", None)
    if regression is None and any(item is not None for item in items):
        raise ValueError(
            "this model was learned without attributes of items (fit --item-features): give a "
            "vector, or neither of the two"
        )
    for one, item in zip(ids, items, strict=True):
        if regression is not None and item is not None:
            regression.encoder.check(item, f"the attributes of {one!r}")
    if regression is None or not regression.used:
        return add_average(model, catalogue, ids, names)
    for place, (one, item) in enumerate(zip(ids, items, strict=True)):
        title = None if names is None else [names[place]]
        if item is None:
            model, catalogue = add_average(model, catalogue, [one], title)
            continue
        encoded = regression.encoder.encode([item])
        model, catalogue = add_predicted(model, catalogue, [one], regression, encoded, title)
    return model, catalogue


def add_predicted(
    model: Any,
    catalogue: Catalogue,
    ids: Sequence[str],
    regression: Items,
    encoded: FloatArray,
    names: Sequence[str] | None = None,
) -> tuple[Any, Catalogue]:
    """Return model and catalogue with new actions of encoded attributes `(m, len(encoder))`."""
    vectors, covariances = regression.predict_encoded(encoded)
    if catalogue.features is None:
        variances = np.diagonal(covariances, axis1=1, axis2=2)
        return add_arms(model, catalogue, ids, vectors.T, variances.T, names)
    return add_vectors(model, catalogue, ids, vectors, covariances, names)
