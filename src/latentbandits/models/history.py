"""Random numbers that are a function of a session's history.

Sequential Monte Carlo needs random numbers in `update`, which has no generator. They are drawn
from a key, a hash of the session's rewards so far. So a session learns the same alone or in a
batch, and when it is rebuilt from its log.
"""

from __future__ import annotations

import numpy as np

from latentbandits.models.checks import FloatArray, IntArray
from latentbandits.models.numerics.arrays import Keys, mix

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def start(n_sessions: int, seed: int = 0) -> Keys:
    """Return the keys of sessions without rewards, all equal."""
    return np.full(n_sessions, mix(np.array([seed], np.uint64))[0])


def advance(keys: Keys, action: IntArray, reward: FloatArray) -> Keys:
    """Return the keys after one more round."""
    events = mix(reward.astype(np.float64).view(np.uint64)) + action.astype(np.uint64)
    return mix(keys + _GOLDEN ^ events)


def uniforms(keys: Keys, n_numbers: int) -> FloatArray:
    """Return `n_numbers` in [0, 1) for every key: `(n_sessions, n_numbers)`."""
    streams = keys[:, None] + _GOLDEN * np.arange(1, n_numbers + 1, dtype=np.uint64)
    return (mix(streams) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def generator(key: np.uint64) -> np.random.Generator:
    """Return a generator for one session that needs many numbers."""
    return np.random.Generator(np.random.Philox(key=int(key)))
