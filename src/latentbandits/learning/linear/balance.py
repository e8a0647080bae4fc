"""The least penalty of a factorisation: its two sides equally large along common axes."""

from __future__ import annotations

import numpy as np

from latentbandits.models.checks import FloatArray


def balance(
    users: FloatArray, actions: FloatArray, user_ridge: FloatArray, action_ridge: FloatArray
) -> FloatArray:
    """The actions' vectors of the factorisation with the same products and the least penalty.

    Among users T^-1' and actions T it is least where users'R users and actions'R actions, R their
    ridges, are the same matrix. With users'R users = C C', that holds if the vectors actions C are
    shrunk along each of their principal axes to the root of their length there. Of all such T,
    which differ in a rotation, it is the symmetric one: axes have no sign to depend on.
    Alternating least squares come there too, but in many sweeps: each one moves the two sides'
    lengths along an axis only a little towards each other.

    >>> balance(np.array([[8.0]]), np.array([[2.0]]), np.ones(1), np.ones(1))
    array([[4.]])
    """
    return balanced(_gram(users, user_ridge), actions, action_ridge)


def balanced(user_gram: FloatArray, actions: FloatArray, action_ridge: FloatArray) -> FloatArray:
    """The same from users'R users alone."""
    values, axes = np.linalg.eigh(user_gram)
    change = axes * np.sqrt(np.maximum(values, 0.0))
    change = change @ np.linalg.eigh(_gram(actions @ change, action_ridge))[1]
    squares = np.einsum("de,de->e", change, _gram(actions, action_ridge) @ change)
    root = np.sqrt(np.sqrt(np.maximum(squares, 0.0)))
    change = np.divide(change, root, out=np.zeros_like(change), where=root > 0)
    values, axes = np.linalg.eigh(change @ change.T)
    moved: FloatArray = actions @ (axes * np.sqrt(np.maximum(values, 0.0)) @ axes.T)
    return moved


def _gram(vectors: FloatArray, weights: FloatArray) -> FloatArray:
    gram: FloatArray = vectors.T @ (weights[:, None] * vectors)
    return gram
