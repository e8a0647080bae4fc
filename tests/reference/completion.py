"""Alternating least squares as a textbook has it: one row at a time, one rating at a time."""

from __future__ import annotations

import numpy as np


def ridge_row(features, targets, ridge):
    """The z that minimises sum (target - x'z)^2 + ridge |z|^2."""
    d = features.shape[1]
    gram, right = ridge * np.eye(d), np.zeros(d)
    for x, y in zip(features, targets, strict=True):
        gram += np.outer(x, x)
        right += x * y
    return np.linalg.solve(gram, right)


def alternating_least_squares(
    users, actions, rewards, n_users, n_actions, start, reg, weighting, biases, sweeps,
    balancing=True,
):  # fmt: skip
    """Returns user vectors, action vectors, user biases, action biases, mean."""
    mean = np.mean(rewards) if biases else 0.0
    u, v = np.zeros((n_users, start.shape[1])), start.copy()
    b, c = np.zeros(n_users), np.zeros(n_actions)

    def half(index, other_index, vectors, own_bias, others, other_bias):
        for row in range(len(vectors)):
            mine = [k for k in range(len(rewards)) if index[k] == row]
            theirs = [other_index[k] for k in mine]
            features = others[theirs]
            if biases:
                features = np.column_stack([features, np.ones(len(mine))])
            targets = [rewards[k] - mean - other_bias[other_index[k]] for k in mine]
            ridge = reg * (max(len(mine), 1) if weighting == "counts" else 1)
            z = ridge_row(features, targets, ridge)
            vectors[row] = z[: start.shape[1]]
            own_bias[row] = z[-1] if biases else 0.0

    for sweep in range(sweeps):
        if sweep and balancing:
            v = balanced(u, v, users, actions, weighting)
        half(users, actions, u, b, v, c)
        half(actions, users, v, c, u, b)
    return u, v, b, c, mean


def balanced(u, v, users, actions, weighting):
    """The action vectors of the least penalty with the same products: the singular value
    decomposition of the weighted matrix, half of each singular value on either side.
    """
    weights = [
        np.maximum(np.bincount(index, minlength=n), 1) if weighting == "counts" else np.ones(n)
        for index, n in ((users, len(u)), (actions, len(v)))
    ]
    root_u, root_v = np.sqrt(weights[0]), np.sqrt(weights[1])
    _, sizes, right = np.linalg.svd(root_u[:, None] * (u @ v.T) * root_v)
    rank = u.shape[1]
    return right[:rank].T * np.sqrt(sizes[:rank]) / root_v[:, None]


def objective(users, actions, rewards, factors, reg, weighting):
    """The sum that the fit minimises, term by term."""
    u, v, b, c, mean = factors
    total = 0.0
    for i, j, r in zip(users, actions, rewards, strict=True):
        total += (r - mean - b[i] - c[j] - u[i] @ v[j]) ** 2
    for index, vectors, bias in ((users, u, b), (actions, v, c)):
        for row in range(len(vectors)):
            weight = max(np.sum(index == row), 1) if weighting == "counts" else 1
            total += reg * weight * (vectors[row] @ vectors[row] + bias[row] ** 2)
    return total
