"""Every eligible action equally often: the holdout that any policy should beat."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from latentbandits.models.checks import BoolArray, FloatArray, IntArray, session_count
from latentbandits.models.protocol import Context, KnownModel
from latentbandits.policies.checked import CheckedPolicy, Choice, best_probabilities, choose_best
from latentbandits.policies.decision import ActionProbabilities, Decision
from latentbandits.policies.latent import check_context


class Rounds(NamedTuple):
    """A belief that only counts."""

    counts: FloatArray  # (n_sessions,)


@dataclass(frozen=True, eq=False)
class Uniform(CheckedPolicy[Rounds]):
    """Plays at random; `model` only says what the actions are.

    >>> from latentbandits.models import GaussianArms
    >>> policy = Uniform(GaussianArms([[0.9, 0.1, 0.5, 0.2]], noise=0.5))
    >>> policy.decide(policy.init(), None, np.random.default_rng(0)).propensity
    array([0.25])
    """

    model: KnownModel

    @property
    def n_states(self) -> int:
        return 1

    def init(self, n_sessions: int = 1) -> Rounds:
        return Rounds(np.zeros(session_count(n_sessions, self.model.n_sessions)))

    def _check_context(self, context: ArrayLike | None, n_sessions: int) -> tuple[Context, int]:
        return check_context(self.model, context, n_sessions)

    def _scores(self, belief: Rounds, context: Context) -> FloatArray:
        n_actions = self._check_context(context, len(belief.counts))[1]
        return np.zeros((len(belief.counts), n_actions))

    def _choose(
        self,
        belief: Rounds,
        context: Context,
        eligible: BoolArray | None,
        rng: np.random.Generator,
        propensity: bool,
    ) -> Choice:
        return choose_best(self._scores(belief, context), eligible, rng, propensity)

    def _learn(
        self,
        belief: Rounds,
        context: Context,
        decision: Decision,
        action: IntArray,
        reward: FloatArray,
    ) -> Rounds:
        return Rounds(belief.counts + 1)

    def _probabilities(
        self,
        belief: Rounds,
        context: Context,
        eligible: BoolArray | None,
        rng: np.random.Generator,
    ) -> ActionProbabilities:
        return best_probabilities(self._scores(belief, context), eligible)
