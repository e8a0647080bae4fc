"""Which states the rewards so far have not ruled out (mUCB and mmUCB, Algorithm 1)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from latentbandits.models.checks import BoolArray, FloatArray, IntArray


class GapBelief(NamedTuple):
    """N(s) and G(s): rounds in which s was believed, and how far their rewards fell short."""

    counts: FloatArray  # (n_sessions, n_states)
    gaps: FloatArray  # (n_sessions, n_states)


def prior(n_sessions: int, n_states: int) -> GapBelief:
    return GapBelief(np.zeros((n_sessions, n_states)), np.zeros((n_sessions, n_states)))


def add(belief: GapBelief, state: IntArray, gap: FloatArray) -> GapBelief:
    """One more round in which `state` was believed and the reward fell short by `gap`."""
    counts, gaps = belief.counts.copy(), belief.gaps.copy()
    session = np.arange(len(state))
    counts[session, state] += 1
    gaps[session, state] += gap
    return GapBelief(counts, gaps)


def consistent(belief: GapBelief, noise: float, horizon: int | None) -> BoolArray:
    """C = { s : G(s) <= noise sqrt(6 N(s) log n) }; log t for log n where n is unknown.

    A wrong model can rule out every state; then C is the one whose average gap is smallest.
    """
    if horizon is None:
        log_n = np.log(belief.counts.sum(axis=1, keepdims=True) + 1)
    else:
        log_n = np.log(float(horizon))
    inside: BoolArray = belief.gaps <= noise * np.sqrt(6 * belief.counts * log_n)
    empty = ~inside.any(axis=1)
    if empty.any():  # every state was then believed at least once, so no count is zero
        average = belief.gaps[empty] / belief.counts[empty]
        inside[empty] = average == average.min(axis=1, keepdims=True)
    return inside
