"""Ridge regressions of users and of clusters, and the index of CLUB and its kin."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np

from latentbandits.models.checks import FloatArray, IntArray, positive_count, positive_number
from latentbandits.policies.checked import Asked
from latentbandits.policies.protocol import BeliefT
from latentbandits.policies.shared import chunks
from latentbandits.policies.shared.base import ScoredPopulation, Sums, invert

RowT = TypeVar("RowT", bound=tuple[Any, ...])


class Ridge(NamedTuple):
    """A ridge regression: M^-1 with M = I + sum x x', and b = sum x r."""

    inverse: FloatArray  # (..., d, d)
    products: FloatArray  # (..., d)


def empty_ridge(n_features: int) -> Ridge:
    """Return a ridge regression without rewards: M = I, b = 0."""
    return Ridge(np.eye(n_features), np.zeros(n_features))


def add_to_ridge(ridge: Ridge, x: FloatArray, reward: FloatArray) -> Ridge:
    """Add one reward to each of B regressions: the Sherman-Morrison update of M^-1."""
    u = (ridge.inverse @ x[:, :, None])[:, :, 0]
    scale = 1 + (x * u).sum(axis=1)
    step = u[:, :, None] * (u / scale[:, None])[:, None, :]
    return Ridge(ridge.inverse - step, ridge.products + x * reward[:, None])


def pool(gram: FloatArray, products: FloatArray) -> Ridge:
    """Return the regression of pooled sums, with one identity: M = I + gram."""
    return Ridge(invert(np.eye(gram.shape[-1]) + gram), products)


def weights(sums: Sums) -> FloatArray:
    """Return w = (I + gram)^-1 products of each regression, `(B, d)`."""
    d = sums.gram.shape[-1]
    solved = np.linalg.solve(np.eye(d) + sums.gram, sums.products[..., None])
    return np.asarray(solved[..., 0], np.float64)


def put_one(rows: tuple[RowT, ...], population: int, row: int, value: RowT) -> tuple[RowT, ...]:
    """Return chunks of regressions or sums with one row of one population replaced."""
    result: list[Any] = list(rows)
    place, inside = divmod(row, chunks.ROWS)
    fields = [field.copy() for field in rows[place]]
    for field, new in zip(fields, value, strict=True):
        field[population, inside] = new
    result[place] = type(value)(*fields)
    return tuple(result)


def optimistic_index(
    ridge: Ridge, features: FloatArray, alpha: float, rounds: FloatArray
) -> FloatArray:
    """Return w'x + alpha sqrt(x' M^-1 x ln(t + 1)) of every action, `(B, K)`.

    `rounds` is t, the rounds of the whole population.
    """
    root = features @ ridge.inverse
    mean = (root @ ridge.products[:, :, None])[:, :, 0]
    root *= features
    variance = root.sum(axis=2)
    variance *= np.log(rounds + 1)[:, None]
    np.sqrt(variance, out=variance)
    index: FloatArray = mean
    index += alpha * variance
    return index


def confidence(rounds: FloatArray | float) -> Any:
    """Return F(T) = sqrt((1 + ln(1 + T)) / (1 + T)) of CLUB and SCLUB.

    >>> confidence(np.array([0.0, 3.0])).round(4)
    array([1.    , 0.7724])
    """
    return np.sqrt((1 + np.log1p(rounds)) / (1 + rounds))


class ClusteredUCB(ScoredPopulation[BeliefT], ABC):
    """The frame of LinUCB on the pooled regression of the user who asks."""

    order_free: ClassVar[bool] = False

    n_users: int
    n_features: int
    alpha: float

    def _check_sizes(self) -> None:
        positive_count("n_users", self.n_users)
        positive_count("n_features", self.n_features)
        positive_number("alpha", self.alpha)

    @abstractmethod
    def _regression(self, belief: Any, user: IntArray) -> Ridge:
        """Return the regression of one user in each of B populations."""

    def _scores(self, belief: Any, asked: Asked) -> FloatArray:
        ridge = self._regression(belief, asked.context.user)
        return optimistic_index(ridge, asked.context.features, self.alpha, belief.rounds)
