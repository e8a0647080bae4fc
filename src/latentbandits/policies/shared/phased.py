"""Phased: play a start policy, fit a model to all users' sums, deploy it, and refit at doublings.

This is the plan of Zhou & Brunskill (2016) with any learner and any policy on the learned model,
and the arrow "decision log -> back to learning" of a service.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, TypeAlias

import numpy as np

from latentbandits.beliefs.joint import JointBelief
from latentbandits.models import checks
from latentbandits.models.checks import FloatArray, IntArray
from latentbandits.models.linear.gaussian import LinearGaussian, UserSums
from latentbandits.models.protocol import FromUserSums
from latentbandits.policies.checked import CheckedPolicy, JointPolicy, Outcome
from latentbandits.policies.classic import LinUCB
from latentbandits.policies.shared import chunks
from latentbandits.policies.shared.base import ServedByOthers, played_features

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
    kept: tuple[Any, ...]  # chunks of users' beliefs, for policies that sums do not determine


@dataclass(frozen=True, eq=False)
class Phased(ServedByOthers[PhasedBelief]):
    """Zhou & Brunskill's plan (2016): `start`, then the policy `deploy(learner(sums))`, refitted.

    When the rounds of the population reach `first`, and every `factor` times as many,
    `learner(sums)` fits a `LinearGaussian` to the sums of all users. Between refits the asking user
    is served by `deploy(model)` on the user's own sums: exact for mmTS, mmBayesUCB, mmGreedy, LinTS
    and LinUCB. A policy whose belief does not follow from sums (EXP4) keeps a belief per user, and
    starts anew at each refit.

    Args:
        start: the policy of the first phase; its belief must follow from sums.
        learner: a function from the sums of all users to a `LinearGaussian`.
        deploy: a function from that model to the policy of the next phase.
        n_users: number of users of the population.
        n_features: number of features of an action.
        first: rounds before the first fit.
        factor: ratio between the rounds of one fit and of the fit before it.

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
        if not _follows_from_sums(self.start):
            raise ValueError(
                "start must be a policy whose belief follows from sums (LinUCB, LinTS, or mmTS on "
                f"a LinearGaussian); got {self.start.name}"
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
            self._fresh(self.deploy(LinearGaussian(np.zeros((1, d)), 1.0, np.eye(d)[None])), n),
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

    def _serving(self, belief: PhasedBelief, user: IntArray) -> tuple[CheckedPolicy[Any], Any]:
        """Return the policy of this phase, and its belief about each user after all rounds."""
        policy: Any = self._policy(belief)
        if belief.kept and belief.weights.shape[1] > 0:
            return policy, chunks.take(belief.kept, user)
        sums = chunks.take(belief.users, user)
        log_evidence, posterior = policy.model.condition_on_sums(sums)
        if isinstance(policy, LinUCB):
            return policy, posterior
        return policy, JointBelief(policy.model.log_state_prior + log_evidence, posterior)

    def _learn(self, belief: PhasedBelief, outcome: Outcome) -> PhasedBelief:
        x = played_features(outcome)
        before = chunks.take(belief.users, outcome.context.user)
        after = UserSums(
            before.gram + x[:, :, None] * x[:, None, :],
            before.products + x * outcome.reward[:, None],
            before.squares + outcome.reward**2,
            before.counts + 1,
        )
        kept = belief.kept
        if kept and belief.weights.shape[1] > 0:
            policy = self._policy(belief)
            user_belief = chunks.take(kept, outcome.context.user)
            learned = policy._learn(user_belief, outcome._replace(context=outcome.context.features))
            kept = chunks.put(kept, outcome.context.user, learned)
        users = chunks.put(belief.users, outcome.context.user, after)
        learned_belief = belief._replace(
            rounds=belief.rounds + outcome.moves, users=users, kept=kept
        )
        if learned_belief.rounds[0] < belief.next_refit[0]:
            return learned_belief
        return self._refit(learned_belief)

    def _refit(self, belief: PhasedBelief) -> PhasedBelief:
        """Fit a model to every population; all of them have seen equally many rounds."""
        models = [
            self.learner(UserSums(*(chunks.field(belief.users, f, b) for f in range(4))))
            for b in range(len(belief.rounds))
        ]
        fitted = belief._replace(
            weights=np.stack([model.weights for model in models]),
            covariances=np.stack([model.covariances for model in models]),
            shares=np.stack([model.state_prior for model in models]),
            noise=np.array([model.noise for model in models]),
            next_refit=np.ceil(belief.next_refit * self.factor),
        )
        return fitted._replace(kept=self._fresh(self._policy(fitted), len(belief.rounds)))

    def _fresh(self, policy: CheckedPolicy[Any], n_populations: int) -> tuple[Any, ...]:
        """Return the initial beliefs of users in chunks; () if sums determine the belief."""
        if _follows_from_sums(policy):
            return ()
        start = policy.init(n_populations)

        def chunk(n_rows: int) -> Any:
            return type(start)(
                *(np.broadcast_to(a[:, None], (len(a), n_rows, *a.shape[1:])) for a in start)
            )

        sizes = [
            min(chunks.ROWS, self.n_users - first) for first in range(0, self.n_users, chunks.ROWS)
        ]
        return tuple(chunk(size) for size in sizes)


def _follows_from_sums(policy: CheckedPolicy[Any]) -> bool:
    if isinstance(policy, LinUCB):
        return True
    return isinstance(policy, JointPolicy) and isinstance(policy.model, FromUserSums)
