"""Policies that plan: the knowledge gradient, and optimal play for a few more observations."""

from __future__ import annotations

from abc import ABC
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from latentbandits.beliefs import joint, planning, states
from latentbandits.beliefs.joint import JointBelief
from latentbandits.beliefs.planning import knowledge_gradient
from latentbandits.models.arms.bernoulli import BernoulliArms
from latentbandits.models.arms.gaussian import GaussianArms
from latentbandits.models.checks import FloatArray, positive_count
from latentbandits.models.composed.known import Known
from latentbandits.models.linear.gaussian import LinearGaussian
from latentbandits.models.protocol import Context, KnownModel, Model, Parameters
from latentbandits.policies.checked import Asked, Outcome
from latentbandits.policies.latent.base import LargestPosteriorScore, check_context


class PlanningBelief(NamedTuple):
    """The joint belief of mmTS, and the number of rewards so far."""

    log_weights: FloatArray  # (n_sessions, n_states)
    parameters: Parameters
    rounds: FloatArray  # (n_sessions,)


class Planning(LargestPosteriorScore[PlanningBelief], ABC):
    """Play the action of the largest Q_k (`beliefs/planning.py`); a subclass states k and horizon.

    Rounds are counted by rewards. After the horizon the policy is greedy.
    """

    horizon: int
    _steps: int
    _belief_model: Model

    def _check(self) -> None:
        """Raise ValueError if `horizon` is not a number of rounds, or the problem is too large."""
        positive_count("horizon", self.horizon)
        if self.model.n_actions is not None:
            self._check_size(self.model.n_actions)

    def _check_size(self, n_actions: int) -> None:
        planning.check_size(self._belief_model, n_actions, self._steps, self.name)

    def init(self, n_sessions: int = 1) -> PlanningBelief:
        prior = joint.prior(self._belief_model, n_sessions)
        return PlanningBelief(*prior, np.zeros(len(prior.log_weights)))

    def checked_context(self, context: ArrayLike | None, n_sessions: int) -> tuple[Context, int]:
        features, n_actions = check_context(self.model, context, n_sessions)
        if self.model.n_actions is None:
            self._check_size(n_actions)
        return features, n_actions

    def _learn(self, belief: PlanningBelief, outcome: Outcome) -> PlanningBelief:
        before = JointBelief(belief.log_weights, belief.parameters)
        after = joint.condition(
            self._belief_model,
            before,
            outcome.context,
            outcome.action,
            outcome.reward,
            moves=outcome.moves,
            looked=outcome.looked,
        )
        return PlanningBelief(*after, belief.rounds + outcome.moves)

    @property
    def learns_unseen(self) -> bool:
        return self._belief_model.is_certain

    def _scores(self, belief: PlanningBelief, asked: Asked) -> FloatArray:
        values = planning.action_values(
            self._belief_model,
            JointBelief(belief.log_weights, belief.parameters),
            asked.context,
            np.maximum(self.horizon - belief.rounds, 1.0),
            self._steps,
            asked.eligible,
        )
        if asked.eligible is not None:
            values = np.where(asked.eligible, values, -np.inf)
        return planning.resolve_ties(values)


@dataclass(frozen=True, eq=False)
class mKG(Planning):
    """Knowledge gradient with a known model: one more reward is learned from.

    Q(a) = m(a) + (R - 1) E_r[max_b m(b | a, r)] with R rounds left of `horizon`.

    Args:
        model: a model of latent states, taken as true.
        horizon: number of rounds of a session.

    >>> from latentbandits.models import GaussianArms
    >>> model = GaussianArms([[0.9, 0.5], [0.0, 0.5]], noise=0.1)  # 0.45 on average, or 0.5
    >>> policy = mKG(model, horizon=10)
    >>> policy.decide(policy.init(), None, np.random.default_rng(0)).action
    array([0])
    """

    model: KnownModel
    horizon: int
    _steps: int = field(default=1, init=False, repr=False)
    _belief_model: Model = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_belief_model", Known(self.model))
        self._check()

    def _scores(self, belief: PlanningBelief, asked: Asked) -> FloatArray:
        """Score Gaussian and binary rewards by `beliefs/planning.py`, others by planning."""
        if not isinstance(self.model, GaussianArms | LinearGaussian | BernoulliArms):
            return super()._scores(belief, asked)
        means = self.model.expected_rewards(asked.context)
        if asked.eligible is not None:  # an ineligible action is never the best
            means = np.where(asked.eligible[:, None], means, means.min())
        scores = knowledge_gradient(
            states.probabilities(belief.log_weights),
            means,
            None if isinstance(self.model, BernoulliArms) else self.model.noise,
            np.maximum(self.horizon - belief.rounds - 1, 0.0)[:, None],
        )
        if asked.eligible is not None:
            scores = np.where(asked.eligible, scores, -np.inf)
        return planning.resolve_ties(scores)


@dataclass(frozen=True, eq=False)
class mmKG(Planning):
    """Knowledge gradient with an uncertain model: mKG on the joint belief of mmTS.

    Args:
        model: a model of latent states with uncertain parameters.
        horizon: number of rounds of a session.

    >>> from latentbandits.models import GaussianArms
    >>> policy = mmKG(GaussianArms([[0.5, 0.4]], noise=0.5, spread=[[0.01, 0.3]]), horizon=50)
    >>> policy.decide(policy.init(), None, np.random.default_rng(0)).action
    array([1])
    """

    model: Model
    horizon: int
    _steps: int = field(default=1, init=False, repr=False)
    _belief_model: Model = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_belief_model", self.model)
        self._check()


# Optimal play for a few more observations, for small problems.


@dataclass(frozen=True, eq=False)
class mLookahead(Planning):
    """Play optimally as if only the next `steps` rewards were learned from (receding horizon).

    Exact for rewards with few values. The belief is the joint belief of mmTS, or the belief of
    mTS if the model is certain. A decision looks at (actions x outcomes) ^ steps beliefs, and more
    than `planning.MOST_BELIEFS` are refused.

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
    _steps: int = field(default=2, init=False, repr=False)
    _belief_model: Model = field(init=False, repr=False)

    def __post_init__(self) -> None:
        positive_count("steps", self.steps)
        object.__setattr__(self, "_belief_model", self.model)
        object.__setattr__(self, "_steps", self.steps)
        self._check()


def build_lookahead(model: Model, horizon: int, steps: int = 2) -> mLookahead:
    """Return the policy of the registry, which needs a horizon."""
    return mLookahead(model, steps, horizon)
