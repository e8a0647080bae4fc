"""The protocol of a learner: select on held-out users, learn from all, refit for the bootstrap.

`learning/arms/` and `learning/linear/` implement it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from latentbandits.learning.backends.backend import AnyLog
from latentbandits.learning.logs.rows import Log
from latentbandits.models.checks import FloatArray, IntArray
from latentbandits.report.report import Progress

if TYPE_CHECKING:
    from latentbandits.learning.selection import Candidate, Selection


@dataclass(frozen=True, eq=False)
class Learned:
    """A learned model, with the features and counts of its actions."""

    model: Any  # GaussianArms, BernoulliArms, ..., LinearGaussian
    features: FloatArray | None  # (n_actions, n_features); None: actions are numbered
    counts: IntArray  # (n_actions,): rewards that an action was learned from
    shrinkage: FloatArray | None = None  # (n_states,): shrinkage of the covariances
    fitted: Any = None  # data of the learner, for widening or refitting the model

    def rewards(self) -> FloatArray:
        """Return the mean reward of every action in every state, `(n_states, n_actions)`."""
        context = None if self.features is None else self.features[None]
        rewards: FloatArray = self.model.expected_rewards(context)[0]
        return rewards


class Replicate(NamedTuple):
    """A fit to resampled users."""

    rewards: FloatArray  # (n_states, n_actions)
    shares: FloatArray  # (n_states,)
    counts: IntArray  # (n_actions,): rewards that an action was learned from
    moved: FloatArray | None = None  # (n_states, n_features): its weights less those of all users,
    # for a fit whose states are already in the same order


class Learner(Protocol):
    """A learner of one kind of model."""

    def select(
        self,
        kept: AnyLog,
        held_out: Log,
        states: Sequence[int] | None,
        seed: int,
        progress: Progress,
    ) -> Selection:
        """Fit candidates to the kept users, score them on the held-out users, and choose.

        `states` None: the learner's default range. The selection holds the learner with all
        settings fixed, the choice, and its model of the kept users.
        """

    def choose(self, rows: Sequence[Candidate]) -> Candidate:
        """Choose among candidates; those without evidence could not be fitted."""

    def learn(self, log: AnyLog, chosen: Candidate, seed: int) -> Learned:
        """Learn the chosen model from all users of `log`."""

    def replicates(
        self,
        log: AnyLog,
        learned: Learned,
        chosen: Candidate,
        n_fits: int,
        seed: int,
        progress: Progress,
    ) -> Iterator[Replicate]:
        """Yield fits to resampled users, for the bootstrap; their states are in any order."""

    def widened(self, learned: Learned, disagreement: Any) -> Learned:
        """Return the model with its prior widened by the variance of the replicates.

        That variance is in `disagreement` (`uncertainty.Disagreement`).
        """

    def settings(self) -> dict[str, Any]:
        """Return the settings of the learner, for the report."""
