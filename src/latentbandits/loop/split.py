"""Divide sessions by fixed hashes: held out of every fit, and thinned by age."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import numpy as np

from latentbandits.models.checks import BoolArray, FloatArray

_HOLDOUT = b"latentbandits-relearn-holdout"
_AGE = b"latentbandits-relearn-age"


def uniforms(sessions: Iterable[str], salt: bytes = _HOLDOUT) -> FloatArray:
    """Return a number in [0, 1) for each session id, always the same one.

    >>> uniforms(["ann", "ann"]).round(3)
    array([0.615, 0.615])
    """
    words = [
        int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8, key=salt).digest(), "big")
        for name in sessions
    ]
    return np.array(words, np.float64) / 2.0**64


def held_out(sessions: Iterable[str], share: float) -> BoolArray:
    """Return which sessions no fit may see: the same in every run, so that neither the current
    model nor a candidate was fitted on them.
    """
    return np.asarray(uniforms(sessions) < share)


def young_enough(sessions: Iterable[str], age: FloatArray, half_life: float) -> BoolArray:
    """Keep a session of some age with probability 2^(-age / half_life), by its own hash."""
    return np.asarray(uniforms(sessions, _AGE) < 0.5 ** (np.maximum(age, 0.0) / half_life))
