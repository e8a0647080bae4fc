"""The states that are consistent with a session's rewards (mUCB and mmUCB, Algorithm 1)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from latentbandits.models.checks import BoolArray, FloatArray, IntArray


class GapBelief(NamedTuple):
    """N(s), the rounds in which s was believed, and G(s), the sum of (mean - reward) over them."""

    counts: FloatArray  # (n_sessions, n_states)
    gaps: FloatArray  # (n_sessions, n_states)


def prior(n_sessions: int, n_states: int) -> GapBelief:
    """Return the belief of sessions without rewards."""
    return GapBelief(np.zeros((n_sessions, n_states)), np.zeros((n_sessions, n_states)))


def add(belief: GapBelief, state: IntArray, gap: FloatArray) -> GapBelief:
    """Return the belief after a round in which `state` (n,) was believed, with this `gap` (n,)."""
    counts, gaps = belief.counts.copy(), belief.gaps.copy()
    session = np.arange(len(state))
    counts[session, state] += 1
    gaps[session, state] += gap
    return GapBelief(counts, gaps)


def consistent(belief: GapBelief, noise: float, horizon: int | None) -> BoolArray:
    """Return C = { s : G(s) <= noise sqrt(6 N(s) log n) } as a mask `(n_sessions, n_states)`.

    If the horizon n is None, log t stands for log n. A wrong model can rule out every state; then
    C is the state with the smallest average gap.
    """
    if horizon is None:
        log_n = np.log(belief.counts.sum(axis=1, keepdims=True) + 1)
    else:
        log_n = np.log(float(horizon))
    inside: BoolArray = belief.gaps <= noise * np.sqrt(6 * belief.counts * log_n)
    empty = ~inside.any(axis=1)
    if empty.any():  # then every state was believed at least once, so no count is zero
        average = belief.gaps[empty] / belief.counts[empty]
        inside[empty] = average == average.min(axis=1, keepdims=True)
    return inside
