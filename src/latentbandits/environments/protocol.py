"""The protocol of an environment: one method that starts independent runs."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np

from latentbandits.models.checks import BoolArray, FloatArray
from latentbandits.models.protocol import Context, KnownModel


class Round(NamedTuple):
    """One round of every run: its context, and the reward of every action.

    All policies read their rewards from the same draw (common random numbers), so a difference
    between policies has a standard error several times smaller than each policy's.
    """

    context: Context  # None, or (n_runs, n_actions, n_features)
    means: FloatArray  # (n_runs, n_actions): true mean rewards
    rewards: FloatArray  # (n_runs, n_actions): the reward of each action if played
    eligible: BoolArray | None = None  # (n_runs, n_actions); None: all are


class Instances(Protocol):
    """Runs under way: each run has a separate problem, drawn once.

    An attribute `repeats` may say that the rewards of an action are independent draws of one
    distribution in all rounds of a run (no contexts, no state that moves); see `simulate`.
    """

    @property
    def model(self) -> KnownModel | None:
        """The model that the policies are given: one per run, or one that all runs share."""

    def round(self, t: int, rng: np.random.Generator) -> Round:
        """Return round `t`, from 0. All policies get the same round: common random numbers."""


class Environment(Protocol):
    """A distribution over problems."""

    def start(self, n_runs: int, horizon: int, rng: np.random.Generator) -> Instances:
        """Draw `n_runs` independent problems."""
