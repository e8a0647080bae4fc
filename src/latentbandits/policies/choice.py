"""Choose one action per session: the best, ties at random, or from given probabilities."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from latentbandits.models.checks import BoolArray, FloatArray, IntArray


class StreamPerSession(ABC):
    """A generator that draws the numbers of each session from a stream of the session's own."""

    @abstractmethod
    def random_where(self, tied: BoolArray, size: tuple[int, ...]) -> FloatArray:
        """Draw uniform numbers for the sessions that are marked; others get zeros."""


def restrict(scores: FloatArray, eligible: BoolArray | None) -> FloatArray:
    """Return the scores `(..., n_actions)` with -inf where an action is not eligible."""
    return scores if eligible is None else np.where(eligible, scores, -np.inf)


def best(scores: FloatArray) -> BoolArray:
    """Mark the largest score of each row of the last axis; several places if they tie.

    >>> best(np.array([[0.1, 0.7, 0.7]]))
    array([[False,  True,  True]])
    """
    rows = scores.reshape(-1, scores.shape[-1])
    top = rows[np.arange(len(rows)), rows.argmax(axis=-1)]  # four times as fast as max
    mask: BoolArray = scores == top.reshape(*scores.shape[:-1], 1)
    return mask


def pick(mask: BoolArray, rng: np.random.Generator) -> IntArray:
    """Pick one of the marked places of each row uniformly; nothing is drawn if no row has a tie."""
    if np.count_nonzero(mask) > len(mask):
        # Tie breakers of a row without a tie may be zero; -1 keeps unmarked places below them.
        places: IntArray = np.where(mask, _tie_breakers(mask, rng), -1.0).argmax(axis=-1)
    else:
        places = mask.argmax(axis=-1)
    return places


def _tie_breakers(mask: BoolArray, rng: np.random.Generator) -> FloatArray:
    """Draw uniform numbers; a generator with a stream per session draws for ties only."""
    if isinstance(rng, StreamPerSession):
        return rng.random_where(mask.sum(axis=-1) > 1, mask.shape)
    return rng.random(mask.shape)


def pick_best(scores: FloatArray, eligible: BoolArray | None, rng: np.random.Generator) -> IntArray:
    """Return the eligible action of the largest score, ties at random: `(n_sessions,)`."""
    scores = restrict(scores, eligible)
    places: IntArray = scores.argmax(axis=-1)
    mask = scores == at(scores, places)[:, None]
    return places if np.count_nonzero(mask) == len(mask) else pick(mask, rng)


def shares(mask: BoolArray) -> FloatArray:
    """Return the probability with which `pick` picks each place."""
    weights: FloatArray = mask / mask.sum(axis=-1, keepdims=True)
    return weights


def draw(probabilities: FloatArray, rng: np.random.Generator) -> IntArray:
    """Draw one place per row with the given probabilities; never one of probability zero."""
    exponentials = rng.standard_exponential(probabilities.shape)  # Gumbel-max sampling
    with np.errstate(divide="ignore"):
        places: IntArray = (probabilities / exponentials).argmax(axis=-1)
    return places


def at(values: FloatArray, action: IntArray) -> FloatArray:
    """Return each row's value at its action: `(n_sessions,)`."""
    if len(action) == 1:
        return values.take(action)
    chosen: FloatArray = values.take(action + values.shape[1] * np.arange(len(action)))
    return chosen
