"""Optimal play for a few more observations; with one of them it is the knowledge gradient."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from latentbandits.beliefs import joint, planning
from latentbandits.beliefs.joint import JointBelief
from latentbandits.models.checks import FloatArray, positive_count
from latentbandits.models.protocol import Context, Model, Parameters
from latentbandits.policies.checked import Asked, LargestPosteriorScore, Outcome, check_context


class PlanningBelief(NamedTuple):
    """The joint belief of mmTS, and the number of rewards so far."""

    log_weights: FloatArray  # (n_sessions, n_states)
    parameters: Parameters
    rounds: FloatArray  # (n_sessions,)


@dataclass(frozen=True, eq=False)
class mLookahead(LargestPosteriorScore[PlanningBelief]):
    """Play optimally as if only the next `steps` rewards were learned from (receding horizon).

    It plays the action of the largest Q_k (`beliefs/planning.py`), with k the `steps`; one step is
    the knowledge gradient (Ryzhov et al. 2012). Exact for rewards with few values. The belief is
    the joint belief of mmTS, or the belief of mTS if the model is certain. A decision looks at
    (actions x outcomes) ^ steps beliefs, and more than `planning.MOST_BELIEFS` are refused. Rounds
    are counted by rewards; after the horizon the policy is greedy.

    Args:
        model: a model of latent states.
        steps: number of rewards that are planned for.
        horizon: number of rounds of a session.

    >>> import numpy as np
    >>> from latentbandits.models import BernoulliArms
    >>> model = BernoulliArms.from_means([[0.9, 0.5], [0.1, 0.5]], 0.05, state_prior=[0.3, 0.7])
    >>> policy = mLookahead(model, horizon=30)
    >>> policy.decide(policy.init(), None, np.random.default_rng(0)).action  # worth a try
    array([0])
    """

    model: Model
    steps: int = 2
    horizon: int = None  # type: ignore[assignment]  # needed, and last as in the documentation

    def __post_init__(self) -> None:
        positive_count("steps", self.steps)
        positive_count("horizon", self.horizon)
        if self.model.n_actions is not None:
            self._check_size(self.model.n_actions)

    def _check_size(self, n_actions: int) -> None:
        planning.check_size(self.model, n_actions, self.steps, self.name)

    def init(self, n_sessions: int = 1) -> PlanningBelief:
        prior = joint.prior(self.model, n_sessions)
        return PlanningBelief(*prior, np.zeros(len(prior.log_weights)))

    def checked_context(self, context: ArrayLike | None, n_sessions: int) -> tuple[Context, int]:
        features, n_actions = check_context(self.model, context, n_sessions)
        if self.model.n_actions is None:
            self._check_size(n_actions)
        return features, n_actions

    def _learn(self, belief: PlanningBelief, outcome: Outcome) -> PlanningBelief:
        before = JointBelief(belief.log_weights, belief.parameters)
        context, _, action, reward, moves, looked = outcome
        after = joint.condition(
            self.model, before, context, action, reward, moves=moves, looked=looked
        )
        return PlanningBelief(*after, belief.rounds + outcome.moves)

    @property
    def learns_unseen(self) -> bool:
        return self.model.is_certain

    def _scores(self, belief: PlanningBelief, asked: Asked) -> FloatArray:
        values = planning.action_values(
            self.model,
            JointBelief(belief.log_weights, belief.parameters),
            asked.context,
            np.maximum(self.horizon - belief.rounds, 1.0),
            self.steps,
            asked.eligible,
        )
        if asked.eligible is not None:
            values = np.where(asked.eligible, values, -np.inf)
        return planning.resolve_ties(values)


def build_lookahead(model: Model, horizon: int, steps: int = 2) -> mLookahead:
    """Return the policy of the registry, which needs a horizon."""
    return mLookahead(model, steps, horizon)
