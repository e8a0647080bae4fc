"""Posterior scenarios of mean rewards that are a function of the belief alone.

Quasi Monte Carlo: the nodes are fixed by a seed and the same for every session and round. The
action probabilities that a policy computes from them are then a deterministic and smooth function
of the belief, so they are exact and can be computed again from the belief.
"""

from __future__ import annotations

from functools import lru_cache, partial

import numpy as np

from latentbandits.beliefs import states
from latentbandits.beliefs.joint import JointBelief
from latentbandits.models.checks import FloatArray, IntArray, frozen
from latentbandits.models.numerics.arrays import leaves, map_leaves
from latentbandits.models.protocol import Context, FromNormals, Model, Parameters

_KEPT_NUMBERS = 2**21  # nodes of up to 16 MB are cached for the next call
_FEW_NUMBERS = 200  # per session: duplicates among beliefs this small are searched for
_MIDDLE = 0.5


def rewards(
    model: Model, belief: JointBelief, context: Context, n_draws: int, seed: int
) -> FloatArray:
    """Return `n_draws` mean rewards of all actions for every session: `(n, n_draws, n_actions)`.

    States are drawn by systematic sampling, parameters given the state from nodes of `seed`. The
    draws have equal weights. A session gets the same draws alone as in a batch.

    >>> from latentbandits.beliefs import joint
    >>> from latentbandits.models import GaussianArms
    >>> model = GaussianArms([[0.9, 0.1], [0.2, 0.8]], noise=0.5, spread=0.1)
    >>> draws = rewards(model, joint.prior(model, 1), None, 400, seed=0)
    >>> draws.mean(axis=1).round(2)
    array([[0.55, 0.45]])
    """
    state = states.systematic(belief.log_weights, n_draws, _MIDDLE)
    if isinstance(model, FromNormals):
        normals = _normals(seed, n_draws, model.n_normals)
        return model.rewards_from_normals(belief.parameters, context, state, normals)
    if len(state) == 1 or model.n_sessions is not None:
        rng = np.random.default_rng(seed)
        return model.sample_rewards(belief.parameters, context, state, rng)
    distinct, index = _distinct(state, belief.parameters, context)
    parts = []
    for i in distinct:
        learned = map_leaves(partial(_row, i), belief.parameters)
        features = None if context is None else context[i : i + 1]
        rng = np.random.default_rng(seed)
        parts.append(model.sample_rewards(learned, features, state[i : i + 1], rng))
    return np.concatenate(parts)[index]


def _distinct(
    state: IntArray, parameters: Parameters, context: Context
) -> tuple[IntArray, IntArray]:
    """Return the indices of distinct sessions, and for each session the place of its equal there.

    Two sessions have the same scenarios if they draw every state equally often and have the same
    parameters, because draws are sorted by state.
    """
    n = len(state)
    times = np.stack([(state == s).sum(axis=1) for s in range(int(state.max()) + 1)], axis=1)
    arrays = [times, *leaves(parameters)]
    if context is not None or sum(array.size for array in arrays) > _FEW_NUMBERS * n:
        return np.arange(n), np.arange(n)
    keys = np.concatenate([array.reshape(n, -1).astype(np.float64) for array in arrays], axis=1)
    _, first, index = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    return first, index.ravel()


def _row(i: int, leaf: FloatArray) -> FloatArray:
    return leaf[i : i + 1]


def _normals(seed: int, n_draws: int, width: int) -> FloatArray:
    """Return antithetic standard normals, `(1, n_draws, width)`; neighbours are a pair."""
    small = n_draws * width <= _KEPT_NUMBERS
    return _drawn(seed, n_draws, width) if small else _drawn.__wrapped__(seed, n_draws, width)


@lru_cache(maxsize=4)
def _drawn(seed: int, n_draws: int, width: int) -> FloatArray:
    half = np.random.default_rng(seed).standard_normal(((n_draws + 1) // 2, width))
    pairs = np.stack([half, -half], axis=1).reshape(-1, width)
    return frozen(np.ascontiguousarray(pairs[:n_draws])[None])
