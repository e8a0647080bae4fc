"""The least penalty of a factorisation: its two sides equally large along common axes."""

from __future__ import annotations

import numpy as np

from latentbandits.models.checks import FloatArray


def balance(
    users: FloatArray, actions: FloatArray, user_ridge: FloatArray, action_ridge: FloatArray
) -> FloatArray:
    """The actions' vectors of the factorisation with the same products and the least penalty.

    Among users T and actions T^-1' it is least where users'R users and actions'R actions, R their
    ridges, are the same diagonal matrix. With users'R users = C C', the vectors actions C have
    to be turned to the principal axes and shrunk along each to the root of their length.
    Alternating least squares come there too, but in many sweeps: each one moves the two sides'
    lengths along an axis only a little towards each other.

    >>> balance(np.array([[8.0]]), np.array([[2.0]]), np.ones(1), np.ones(1))
    array([[4.]])
    """
    values, axes = np.linalg.eigh(_gram(users, user_ridge))
    turned = actions @ (axes * np.sqrt(np.maximum(values, 0.0)))
    turned = turned @ np.linalg.eigh(_gram(turned, action_ridge))[1]
    root = np.sqrt(np.sqrt(np.einsum("n,nd,nd->d", action_ridge, turned, turned)))
    balanced: FloatArray = np.divide(turned, root, out=np.zeros_like(turned), where=root > 0)
    return balanced


def _gram(vectors: FloatArray, weights: FloatArray) -> FloatArray:
    gram: FloatArray = vectors.T @ (weights[:, None] * vectors)
    return gram
