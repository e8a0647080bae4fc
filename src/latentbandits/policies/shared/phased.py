"""Phased: play a start policy, fit a model to all users' sums, deploy it, and refit at doublings.

This is the plan of Zhou & Brunskill (2016) with any learner, and the arrow "decision log -> back to
learning" of a service.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, TypeAlias

import numpy as np

from latentbandits.beliefs.joint import JointBelief
from latentbandits.models import checks
from latentbandits.models.checks import FloatArray, IntArray
from latentbandits.models.linear.gaussian import LinearGaussian, UserSums, condition_on_sums
from latentbandits.policies.checked import Asked, CheckedPolicy, Choice, JointPolicy, Outcome
from latentbandits.policies.classic import LinUCB
from latentbandits.policies.decision import ActionProbabilities
from latentbandits.policies.shared import chunks
from latentbandits.policies.shared.base import PopulationPolicy

SumsLearner: TypeAlias = Callable[[UserSums], LinearGaussian]
"""A function from the sums of one population's users to a model; it has its own seed."""

Deploy: TypeAlias = Callable[[LinearGaussian], CheckedPolicy[Any]]
"""A function from a model to the policy that acts on it, often the policy's class."""


class PhasedBelief(NamedTuple):
    """All users' sums, the current model (of 0 states before the first fit), and the next refit."""

    rounds: FloatArray  # (B,)
    users: tuple[UserSums, ...]  # chunks of users
    weights: FloatArray  # (B, S, d)
    covariances: FloatArray  # (B, S, d, d)
    shares: FloatArray  # (B, S)
    noise: FloatArray  # (B,)
    next_refit: FloatArray  # (B,)


@dataclass(frozen=True, eq=False)
class Phased(PopulationPolicy[PhasedBelief]):
    """Zhou & Brunskill's plan (2016): `start`, then the policy `deploy(learner(sums))`, refitted.

    When the rounds of the population reach `first`, and every `factor` times as many,
    `learner(sums)` fits a `LinearGaussian` to the sums of all users. Between refits the asking user
    is served by `deploy(model)` on the user's own sums, exactly. So the beliefs of both policies
    must follow from sums, as those of mmTS, mmBayesUCB, mmGreedy, LinTS and LinUCB do.

    Args:
        start: the policy of the first phase.
        learner: a function from the sums of all users to a `LinearGaussian`.
        deploy: a function from that model to the policy of the next phase.
        n_users: number of users of the population.
        n_features: number of features of an action.
        first: rounds before the first fit.
        factor: ratio of the rounds of one fit to those of the fit before it.

    >>> from latentbandits.policies import LinTS, mmTS
    >>> prior = LinearGaussian([[0.0, 0.0]], 0.5, [np.eye(2)])
    >>> policy = Phased(LinTS(2, 0.5), lambda sums: prior, mmTS, n_users=9, n_features=2, first=50)
    >>> policy.init().next_refit
    array([50.])
    """

    order_free: ClassVar[bool] = False

    start: CheckedPolicy[Any]
    learner: SumsLearner
    deploy: Deploy
    n_users: int
    n_features: int
    first: int = 2000
    factor: float = 2.0
    _memo: dict[str, Any] = field(init=False, repr=False, default_factory=dict)

    def __post_init__(self) -> None:
        checks.positive_count("n_users", self.n_users)
        checks.positive_count("n_features", self.n_features)
        checks.positive_count("first", self.first)
        if not self.factor > 1:
            raise ValueError(f"factor must be above 1; got {self.factor}")
        self._check("start", self.start)
        blank = LinearGaussian(np.zeros((1, self.n_features)), 1.0, np.eye(self.n_features)[None])
        self._check("deploy(model)", self.deploy(blank))

    def _check(self, name: str, policy: CheckedPolicy[Any]) -> None:
        """Raise ValueError unless the belief of `policy` follows from sums."""
        if isinstance(policy, LinUCB):
            return
        if not (isinstance(policy, JointPolicy) and isinstance(policy.model, LinearGaussian)):
            raise ValueError(
                f"{name} must be a policy whose belief follows from sums (LinUCB, LinTS, or mmTS "
                f"on a LinearGaussian); got {policy.name}"
            )

    def init(self, n_sessions: int = 1) -> PhasedBelief:
        n, d = checks.session_count(n_sessions, None), self.n_features
        empty = UserSums(np.zeros((d, d)), np.zeros(d), np.zeros(()), np.zeros(()))
        return PhasedBelief(
            np.zeros(n),
            chunks.repeat(empty, n, self.n_users),
            np.zeros((n, 0, d)),
            np.zeros((n, 0, d, d)),
            np.zeros((n, 0)),
            np.ones(n),
            np.full(n, float(self.first)),
        )

    def _policy(self, belief: PhasedBelief) -> CheckedPolicy[Any]:
        """Return the policy of this phase; it is built once for each fitted model."""
        if belief.weights.shape[1] == 0:
            return self.start
        if self._memo.get("weights") is not belief.weights:
            noise = float(belief.noise[0])
            model = LinearGaussian(belief.weights, noise, belief.covariances, belief.shares)
            self._memo.update(weights=belief.weights, policy=self.deploy(model))
        policy: CheckedPolicy[Any] = self._memo["policy"]
        return policy

    def _user_belief(self, policy: Any, belief: PhasedBelief, user: IntArray) -> Any:
        """Return the belief of `policy` about each user after all of the user's rounds."""
        sums = chunks.take(belief.users, user)
        log_evidence, posterior = condition_on_sums(policy.model, sums)
        if isinstance(policy, LinUCB):
            return posterior
        return JointBelief(policy.model.log_state_prior + log_evidence, posterior)

    def _choose(self, belief: PhasedBelief, asked: Asked, propensity: bool) -> Choice:
        policy = self._policy(belief)
        user_belief = self._user_belief(policy, belief, asked.context.user)
        return policy._choose(
            user_belief, asked._replace(context=asked.context.features), propensity
        )

    def _probabilities(self, belief: PhasedBelief, asked: Asked) -> ActionProbabilities:
        policy = self._policy(belief)
        user_belief = self._user_belief(policy, belief, asked.context.user)
        return policy._probabilities(user_belief, asked._replace(context=asked.context.features))

    def _learn(self, belief: PhasedBelief, outcome: Outcome) -> PhasedBelief:
        x = outcome.context.features[np.arange(len(outcome.action)), outcome.action]
        before = chunks.take(belief.users, outcome.context.user)
        after = UserSums(
            before.gram + x[:, :, None] * x[:, None, :],
            before.products + x * outcome.reward[:, None],
            before.squares + outcome.reward**2,
            before.counts + 1,
        )
        users = chunks.put(belief.users, outcome.context.user, after)
        learned = belief._replace(rounds=belief.rounds + outcome.moves, users=users)
        return learned if learned.rounds[0] < belief.next_refit[0] else self._refit(learned)

    def _refit(self, belief: PhasedBelief) -> PhasedBelief:
        """Fit a model to every population; all of them have seen equally many rounds."""
        models = [
            self.learner(UserSums(*(chunks.field(belief.users, f, b) for f in range(4))))
            for b in range(len(belief.rounds))
        ]
        return belief._replace(
            weights=np.stack([model.weights for model in models]),
            covariances=np.stack([model.covariances for model in models]),
            shares=np.stack([model.state_prior for model in models]),
            noise=np.array([model.noise for model in models]),
            next_refit=np.ceil(belief.next_refit * self.factor),
        )
