"""The protocol of a learner: it chooses by held-out users, learns from all, and learns again.

`learning/arms/` and `learning/linear/` have one each.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from latentbandits.learning.engines.engine import AnyLog
from latentbandits.learning.logs import Log
from latentbandits.learning.progress import Progress
from latentbandits.models.checks import FloatArray, IntArray

if TYPE_CHECKING:
    from latentbandits.learning.selection import Candidate, Selection


@dataclass(frozen=True, eq=False)
class Learned:
    """A model, and how its actions look to it."""

    model: Any  # the family's own: GaussianArms, BernoulliArms, ..., LinearGaussian
    features: FloatArray | None  # (n_actions, n_features); None: actions are numbered
    counts: IntArray  # (n_actions,): rewards that an action was learned from
    shrinkage: FloatArray | None = None  # (n_states,): what was done to the covariances
    fitted: Any = None  # what the learner keeps to widen the model or to learn again

    def rewards(self) -> FloatArray:
        """Mean reward of every action in every state: `(n_states, n_actions)`."""
        context = None if self.features is None else self.features[None]
        rewards: FloatArray = self.model.expected_rewards(context)[0]
        return rewards


class Replicate(NamedTuple):
    """A fit to resampled users."""

    rewards: FloatArray  # (n_states, n_actions)
    shares: FloatArray  # (n_states,)
    counts: IntArray  # (n_actions,): rewards that an action was learned from
    moved: FloatArray | None = None  # (n_states, n_features): its weights less those of all users,
    # of a fit whose states are in their order already


class Learner(Protocol):
    """A kind of model."""

    def select(
        self,
        kept: AnyLog,
        held_out: Log,
        states: Sequence[int] | None,
        seed: int,
        progress: Progress,
    ) -> Selection:
        """Fit candidates to the users kept, judge them on those held out, and choose.

        `states` None: the learner's own range. The selection holds the learner with all settings
        fixed, the choice, and its model of the users kept.
        """

    def choose(self, rows: Sequence[Candidate]) -> Candidate:
        """The choice among candidates; those without evidence could not be fitted."""

    def learn(self, log: AnyLog, chosen: Candidate, seed: int) -> Learned:
        """The model of the choice, from all users of `log`."""

    def replicates(
        self,
        log: AnyLog,
        learned: Learned,
        chosen: Candidate,
        n_fits: int,
        seed: int,
        progress: Progress,
    ) -> Iterator[Replicate]:
        """Fits to resampled users, for the bootstrap; their states are in any order."""

    def widened(self, learned: Learned, found: Any) -> Learned:
        """The model with its prior widened by what the replicates disagree on
        (`uncertainty.Disagreement`).
        """

    def settings(self) -> dict[str, Any]:
        """The settings of the learner for the report."""
