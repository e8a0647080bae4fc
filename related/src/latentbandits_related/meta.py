"""MetaTS and AdaTS: a user's prior is fixed at the first visit, from the posterior of the mean."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from latentbandits.models import checks, history
from latentbandits.models.checks import BoolArray, FloatArray, IntArray
from latentbandits.models.numerics.arrays import Keys, mix
from latentbandits.policies.checked import Outcome
from latentbandits.policies.shared import chunks
from latentbandits.policies.shared.base import Sums, invert
from latentbandits.policies.shared.hierarchical import HierBelief, HierTS, NormalVector


class Start(NamedTuple):
    """The prior N(mean, precision^-1) that a user started with, and whether there was a reward."""

    mean: FloatArray  # (..., d)
    precision: FloatArray  # (..., d, d)
    seen: BoolArray  # (...)


class StartedBelief(NamedTuple):
    """The belief of `HierTS`, the prior of every user, and the hash of the history."""

    rounds: FloatArray  # (B,)
    users: tuple[Sums, ...]
    precision: FloatArray  # (B, d, d)
    information: FloatArray  # (B, d)
    starts: tuple[Start, ...]  # chunks of users
    keys: Keys  # (B,)


@dataclass(frozen=True, eq=False)
class _Started(HierTS):
    """`HierTS` with a prior per user that is fixed at the user's first reward."""

    order_free: ClassVar[bool] = False
    seed: int = 0

    def init(self, n_sessions: int = 1) -> StartedBelief:  # type: ignore[override]
        n, d = checks.session_count(n_sessions, None), self.n_features
        empty = Start(np.zeros(d), np.zeros((d, d)), np.array(False))
        return StartedBelief(
            *super().init(n), chunks.repeat(empty, n, self.n_users), history.start(n, self.seed)
        )

    def user_posterior(self, belief: StartedBelief, user: IntArray) -> NormalVector:  # type: ignore[override]
        """Return the posterior of theta_i from the user's own prior and rewards."""
        start = self._start(belief, user)
        sums = chunks.take(belief.users, user)
        covariance = invert(start.precision + sums.gram / self.noise**2)
        information = start.precision @ start.mean[:, :, None]
        information += sums.products[:, :, None] / self.noise**2
        return NormalVector((covariance @ information)[:, :, 0], covariance)

    def _start(self, belief: StartedBelief, user: IntArray) -> Start:
        """Return each user's prior: the one it started with, or a new one from the mean."""
        start = chunks.take(belief.starts, user)
        if start.seen.all():
            return start
        common = self.mean_posterior(HierBelief(*belief[:4]))
        fresh = self._new_start(common, belief.keys, user)
        seen = start.seen
        return Start(
            np.where(seen[:, None], start.mean, fresh.mean),
            np.where(seen[:, None, None], start.precision, fresh.precision),
            np.ones(len(user), np.bool_),
        )

    @abstractmethod
    def _new_start(self, common: NormalVector, keys: Keys, user: IntArray) -> Start:
        """Return the prior of new users, given the posterior of the mean."""

    def _learn(self, belief: StartedBelief, outcome: Outcome) -> StartedBelief:  # type: ignore[override]
        start = self._start(belief, outcome.context.user)
        after = super()._learn(HierBelief(*belief[:4]), outcome)
        keys = history.advance(
            belief.keys, outcome.action + outcome.context.user * 4096, outcome.reward
        )
        return StartedBelief(*after, chunks.put(belief.starts, outcome.context.user, start), keys)


@dataclass(frozen=True, eq=False)
class MetaTS(_Started):
    """MetaTS (Kveton et al. 2021): draw the mean once for each new user, and keep it.

    The user's prior is then N(m, S0). The draw is a function of `seed` and of the population's
    history, so that a replay gives the same beliefs.

    Args:
        n_users: number of users of the population.
        n_features: number of features of an action.
        noise: standard deviation of a reward.
        prior_spread: deviation of a user's weights from their mean (S0 = prior_spread^2 I).
        hyper_spread: deviation of that mean from 0 (S_q = hyper_spread^2 I).
        propensity_draws: posterior draws that are counted for a propensity; 0: none.
        seed: of the draw of the mean.

    >>> MetaTS(n_users=3, n_features=2).init().starts[0].seen.any()
    np.False_
    """

    def _new_start(self, common: NormalVector, keys: Keys, user: IntArray) -> Start:
        factor = np.linalg.cholesky(common.covariance)
        mixed = mix(keys ^ mix(user.astype(np.uint64)))
        draws = np.stack([history.generator(key).standard_normal(self.n_features) for key in mixed])
        mean = common.mean + (factor @ draws[:, :, None])[:, :, 0]
        n = len(user)
        precision = np.broadcast_to(self._prior_precision, (n, *self._prior_precision.shape))
        return Start(mean, precision, np.ones(n, np.bool_))


@dataclass(frozen=True, eq=False)
class AdaTS(_Started):
    """AdaTS (Basu et al. 2021): a new user's prior is N(E m, S0 + Var m), and stays.

    Args:
        n_users: number of users of the population.
        n_features: number of features of an action.
        noise: standard deviation of a reward.
        prior_spread: deviation of a user's weights from their mean (S0 = prior_spread^2 I).
        hyper_spread: deviation of that mean from 0 (S_q = hyper_spread^2 I).
        propensity_draws: posterior draws that are counted for a propensity; 0: none.
        seed: not used by AdaTS, which draws nothing when a user comes.

    >>> AdaTS(n_users=3, n_features=2).init().starts[0].seen.any()
    np.False_
    """

    def _new_start(self, common: NormalVector, keys: Keys, user: IntArray) -> Start:
        covariance = self.prior_spread**2 * np.eye(self.n_features) + common.covariance
        return Start(common.mean, invert(covariance), np.ones(len(user), np.bool_))
