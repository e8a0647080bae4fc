"""Rewards that are errors of the record, such as 1e9 among scores: found, set aside and named.

A Student t distribution around the mean of each action is fitted by EM. In its M step a reward at z
scales from the mean has the weight (nu + 1) / (nu + z^2), so that a wrong reward moves nothing
(Lange, Little & Taylor 1989, Journal of the American Statistical Association 84, 881-896). Rewards
beyond 12 scales are set aside, and a Gaussian model is learned from the others, if

- Student's t predicts the rewards of other users clearly better than a normal distribution,
- there is a gap: rewards from 6 to 12 scales are far fewer, as in no tail that falls slowly,
- they are few, and as frequent for every action: otherwise they may be what users come for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from latentbandits.learning.backends.backend import Engine
from latentbandits.learning.logs.rows import Log
from latentbandits.learning.selection import clearly_below
from latentbandits.models.checks import BoolArray, FloatArray
from latentbandits.models.numerics.arrays import log_normal_density

FREEDOM = 4.0
"""Degrees of freedom nu, the choice of Lange, Little & Taylor."""

NEAR, FAR = 6.0, 12.0
"""Scales from the mean that begin a tail, and beyond which a reward is set aside."""

MOST = 0.05
"""Largest share of the rewards that is set aside."""

_GAP = 3.0  # how many times more rewards must be beyond FAR than between NEAR and FAR
_USERS = 2_000  # on which the distribution is fitted
_POOLED = 5.0  # rewards at the overall location that are added to those of an action
_PASSES = 50
_CLEAR = 2.0  # paired standard errors
_DEVIATIONS = 3.0  # of the chi-square statistic, above which frequencies differ by action


class Bulk(NamedTuple):
    """Location of the rewards of each action, and their scale around it."""

    location: FloatArray  # (n_actions,)
    scale: float

    def distance(self, log: Log) -> FloatArray:
        """Return |z| of every reward."""
        offset = np.asarray(log.rewards) - self.location[log.actions]
        return np.abs(offset) / self.scale

    @property
    def bounds(self) -> tuple[float, float]:
        """The least and the largest reward that is not far for some action."""
        reach = FAR * self.scale
        return float(self.location.min() - reach), float(self.location.max() + reach)


class Tail(NamedTuple):
    """Counts of distant rewards; those of disjoint sets of users add."""

    near: int  # rewards between NEAR and FAR
    far: FloatArray  # (n_actions,)
    counts: FloatArray  # (n_actions,)
    example: str = ""

    def __add__(self, other: Tail) -> Tail:  # type: ignore[override]
        example = self.example or other.example
        return Tail(self.near + other.near, self.far + other.far, self.counts + other.counts,
                    example)  # fmt: skip

    @property
    def share(self) -> float:
        return float(self.far.sum() / self.counts.sum())

    @property
    def has_gap(self) -> bool:
        return self.far.sum() > _GAP * self.near and self.share <= MOST

    @property
    def differs_by_action(self) -> bool:
        """Whether far rewards are clearly more frequent for some actions than for others."""
        expected = self.counts[self.counts > 0] * self.share
        statistic = ((self.far[self.counts > 0] - expected) ** 2 / expected).sum()
        free = len(expected) - 1
        return bool(statistic > free + _DEVIATIONS * np.sqrt(2 * max(free, 1)))


class TailPass:
    """A pass over a log that counts its distant rewards."""

    def summarise(self, partition: Log, bulk: Bulk) -> Tail:
        distance = bulk.distance(partition)
        far = distance > FAR
        near = int(((distance > NEAR) & ~far).sum())
        counts = _by_action(partition)
        example = ""
        if far.any():
            event = int(far.argmax())
            user = partition.user_ids[partition.users[event]]
            action = partition.action_ids[partition.actions[event]]
            example = f"{partition.rewards[event]:g}, of user {user} for action {action}"
        return Tail(near, _by_action(partition, far.astype(np.float64)), counts, example)


@dataclass(frozen=True, eq=False)
class WithoutFar:
    """A change of every partition: rewards that are far, and users with no other, are left out."""

    bulk: Bulk

    def __call__(self, log: Log) -> Log:
        kept = log.of_events(self.bulk.distance(log) <= FAR)
        return kept.of_users(np.unique(kept.users))


class Outliers(NamedTuple):
    """Rewards that are far from all others, and whether they were set aside."""

    tail: Tail
    bounds: tuple[float, float]
    set_aside: bool

    def outside(self, rewards: FloatArray) -> BoolArray:
        low, high = self.bounds
        return (rewards < low) | (rewards > high)

    def warning(self, row: str | None) -> str:
        """Return the sentence that names them; `row` is the first one's place in the table."""
        n, n_all = int(self.tail.far.sum()), int(self.tail.counts.sum())
        low, high = self.bounds
        which = self.tail.example if row is None else row
        are = "is an outlier" if n == 1 else "are outliers"
        text = f"{n:,} of {n_all:,} rewards {are}, outside {low:.4g} to {high:.4g}: {which}"
        text += "" if n == 1 else ", for example"
        if self.set_aside:
            return text + "; left out of learning: check the record, or give --noise to keep all"
        return text + "; some actions have more of them than others, so they were kept"


def without_outliers(log: Engine, seed: int) -> tuple[Engine, Outliers | None]:
    """Return the log without the rewards that are errors of the record, and what they were."""
    sample = log.sample(_USERS, seed)
    bulk = bulk_of(sample)
    if bulk is None:
        return log, None
    tail: Tail = log.fold(TailPass(), bulk)
    if not tail.far.any() or not tail.has_gap or not _predicts_better(sample):
        return log, None
    found = Outliers(tail, bulk.bounds, not tail.differs_by_action)
    return log.mapped(WithoutFar(bulk)) if found.set_aside else log, found


def bulk_of(log: Log) -> Bulk | None:
    """Fit Student's t to the rewards by EM; None if half of them are equal: they have no scale.

    >>> log = Log(np.arange(9), np.zeros(9, int), np.append(np.arange(8.0), 1e9), "abcdefghi", "x")
    >>> bulk_of(log).location.round(1)
    array([3.5])
    """
    rewards, actions = np.asarray(log.rewards), log.actions
    middle = float(np.median(rewards))
    location = np.full(log.n_actions, middle)
    scale = 1.4826 * float(np.median(np.abs(rewards - middle)))
    if scale == 0:
        return None
    for _ in range(_PASSES):
        offset = rewards - location[actions]
        weight = (FREEDOM + 1) / (FREEDOM + (offset / scale) ** 2)
        scale = float(np.sqrt((weight * offset**2).sum() / weight.sum()))
        overall = float((weight * rewards).sum() / weight.sum())
        location = (_by_action(log, weight * rewards) + _POOLED * overall) / (
            _by_action(log, weight) + _POOLED
        )
    return Bulk(location, scale)


def _predicts_better(log: Log) -> bool:
    """Return whether Student's t predicts half of the users clearly better than a normal does.

    Each half is predicted from the other. One of them suffices: a lone error is in one half only.
    """
    half = np.arange(log.n_users) % 2
    halves = [log.of_users(np.flatnonzero(half == i)) for i in (0, 1)]
    return any(
        clearly_below(*_log_densities(one, other), _CLEAR)
        for one, other in (halves, halves[::-1])
        if other.n_events
    )


def _log_densities(known: Log, other: Log) -> tuple[FloatArray, FloatArray]:
    """Return the log densities of each user's rewards in `other`: of a normal, and of a t law."""
    from scipy.special import gammaln

    bulk = bulk_of(known)
    counts = _by_action(known)
    rewards = np.asarray(known.rewards)
    mean = (_by_action(known, rewards) + _POOLED * rewards.mean()) / (counts + _POOLED)
    variance = max(float(((rewards - mean[known.actions]) ** 2).mean()), 1e-300)
    new = np.asarray(other.rewards)
    normal = log_normal_density(new - mean[other.actions], np.asarray(variance))
    student = normal
    if bulk is not None:
        z = bulk.distance(other)
        constant = gammaln((FREEDOM + 1) / 2) - gammaln(FREEDOM / 2)
        constant -= 0.5 * np.log(FREEDOM * np.pi) + np.log(bulk.scale)
        student = constant - (FREEDOM + 1) / 2 * np.log1p(z**2 / FREEDOM)
    sums = [np.bincount(other.users, values, minlength=other.n_users) for values in
            (normal, student)]  # fmt: skip
    return sums[0].astype(np.float64), sums[1].astype(np.float64)


def _by_action(log: Log, values: FloatArray | None = None) -> FloatArray:
    return np.bincount(log.actions, values, minlength=log.n_actions).astype(np.float64)
