"""Rescaling of a factorisation that minimises its penalty and keeps its products."""

from __future__ import annotations

import numpy as np

from latentbandits.models.checks import FloatArray


def balance(
    users: FloatArray, actions: FloatArray, user_ridge: FloatArray, action_ridge: FloatArray
) -> FloatArray:
    """Return the actions' vectors of the factorisation with the same products and least penalty.

    Over all transforms T (users T^-1', actions T), the penalty is least if users'R users equals
    actions'R actions, with R the ridges. With users'R users = C C', this holds if the vectors
    actions C are scaled along each principal axis to the square root of their length there. T is
    determined up to a rotation; the symmetric T is returned, which does not depend on the signs of
    the axes. Alternating least squares converge to the same point, but need many sweeps.

    >>> balance(np.array([[8.0]]), np.array([[2.0]]), np.ones(1), np.ones(1))
    array([[4.]])
    """
    return balanced(_gram(users, user_ridge), actions, action_ridge)


def balanced(user_gram: FloatArray, actions: FloatArray, action_ridge: FloatArray) -> FloatArray:
    """Return the balanced vectors of the actions, given users'R users."""
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
