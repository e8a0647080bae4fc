"""Rewards of a log: transforms, the family, and errors of the record."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np

from latentbandits.learning.arms.learner import ArmsLearner
from latentbandits.learning.assess.heldout import score
from latentbandits.learning.backends.backend import AnyLog, LogEngine, engine_of, summary_of
from latentbandits.learning.learners import (
    Candidate,
    Disagreement,
    Learned,
    Learner,
    Replicate,
    Selection,
    Split,
    States,
    clearly_below,
    judge,
)
from latentbandits.learning.logs.rows import (
    Cells,
    Log,
    Rewards,
    RewardSummary,
    cells_of_values,
    make_family,
)
from latentbandits.learning.logs.tables import LogError
from latentbandits.models.arms.conjugate import Learnable
from latentbandits.models.checks import BoolArray, FloatArray
from latentbandits.models.composed.transformed import Log1pRewards, SqrtRewards, TransformedRewards
from latentbandits.models.numerics.arrays import log_normal_density
from latentbandits.models.registry import reward_families

Transform = Literal["log1p", "sqrt"]

TRANSFORMS: Mapping[Transform, type[TransformedRewards]] = {
    "log1p": Log1pRewards,
    "sqrt": SqrtRewards,
}

_SMEARING_WEIGHT = 20.0  # prior weight, in rewards, of the overall smearing in an action's


@dataclass(frozen=True)
class Transformed:
    """A transform of every partition of a log: f(r) in place of r."""

    transform: Transform

    def __call__(self, log: Log) -> Log:
        return replace(log, rewards=TRANSFORMS[self.transform].forward(np.asarray(log.rewards)))


@dataclass(frozen=True, eq=False)
class TransformedLearner(Learner):
    """A learner of f(r): it takes logs of original rewards and returns models of them."""

    learner: Learner
    transform: Transform

    def select(self, split: Split, states: States) -> Selection:
        """Choose on f(r); the candidates' evidence and errors are about f(r)."""
        held_out = Transformed(self.transform)(split.held_out)
        selection = self.learner.select(
            split._replace(kept=self._mapped(split.kept), held_out=held_out), states
        )
        learned = self._wrapped(selection.learned, split.kept)
        settled = replace(self, learner=selection.learner)
        scores = judge(learned, split.held_out)
        return replace(selection, learner=settled, learned=learned, judged=scores)

    def choose(self, rows: Sequence[Candidate]) -> Candidate:
        return self.learner.choose(rows)

    def learn(self, log: AnyLog, chosen: Candidate, seed: int) -> Learned:
        return self._wrapped(self.learner.learn(self._mapped(log), chosen, seed), log)

    def replicates(
        self, log: AnyLog, learned: Learned, n_fits: int, seed: int
    ) -> Iterator[Replicate]:
        inner = learned.fitted
        assert isinstance(inner, Learned)
        c = learned.model.smearing
        for again in self.learner.replicates(self._mapped(log), inner, n_fits, seed):
            yield again._replace(rewards=learned.model.mean(again.rewards, c))

    def widened(self, learned: Learned, disagreement: Disagreement) -> Learned:
        """Widen the inner model by the replicates' differences, in units of f(r)."""
        inner = learned.fitted
        assert isinstance(inner, Learned)
        model = learned.model
        reference = learned.rewards()
        level = model.level_of(reference, model.smearing)
        moved = model.level_of(reference + disagreement.rewards, model.smearing) - level
        wide = self.learner.widened(inner, Disagreement(moved, disagreement.shares))
        kind = TRANSFORMS[self.transform]
        wrapped = kind(wide.model, model.smearing, model.level)
        return replace(learned, model=wrapped, fitted=wide)

    def settings(self) -> dict[str, Any]:
        return self.learner.settings() | {"transform": self.transform}

    def _mapped(self, log: AnyLog) -> LogEngine:
        return engine_of(log).mapped(Transformed(self.transform))

    def _wrapped(self, inner: Learned, log: AnyLog) -> Learned:
        kind = TRANSFORMS[self.transform]
        level = self._mapped(log).summary.rewards.mean
        c = smearing(kind, inner, log)
        return replace(inner, model=kind(inner.model, c, level), fitted=inner)


def smearing(kind: type[TransformedRewards], inner: Learned, log: AnyLog) -> FloatArray:
    """Return c for which the model's average reward equals the log's average (Duan 1983).

    For arms there is one c for each action, pooled with the c of all rewards; for features one.
    """
    summary = summary_of(log)
    counts, sums = summary.action_counts.astype(np.float64), summary.action_sums
    features = None if inner.features is None else inner.features[None]
    model = inner.model
    mean, variance = (part[0] for part in model.posterior_rewards(model.parameters(1), features))
    neutral = 1.0 if kind is Log1pRewards else 0.0
    unsmeared = kind.moments(mean, variance, neutral)[0]
    average = np.exp(model.log_state_prior[0]) @ unsmeared  # (n_actions,)
    seen = counts > 0
    overall_mean = np.asarray(sums.sum() / counts.sum())
    overall = kind.smearing_of(overall_mean, np.average(average[seen], weights=counts[seen]))
    if inner.features is not None:
        return overall
    factors = kind.smearing_of(sums / np.maximum(counts, 1.0), average)
    return (counts * factors + _SMEARING_WEIGHT * overall) / (counts + _SMEARING_WEIGHT)


# Choose the reward family by the log probability of held-out rewards.
#
# Each family whose support contains all rewards learns from the same users, with its own number of
# states, and predicts the same held-out rewards. Families are compared by their probability of the
# cell of the recording resolution around each reward (`Cells`). Gaussian models of transformed
# rewards are compared as well, to recommend a transform.

MOST_USERS = 2_000
"""The number of users, sampled by hash, on which families are compared."""

_STATES = (1, 2, 3, 5, 8)


@dataclass(frozen=True, eq=False)
class Contender:
    """A family and its log probability of held-out rewards."""

    rewards: Rewards
    transform: Transform | None
    n_states: int
    by_user: FloatArray  # (n_users,): log probability of each user's rewards
    log_probability: float  # mean log probability of a reward, in nats

    @property
    def name(self) -> str:
        return self.rewards if self.transform is None else f"{self.rewards} of {self.transform}"

    def row(self, chosen: bool) -> dict[str, Any]:
        return {
            "family": self.rewards,
            "transform": self.transform,
            "states": self.n_states,
            "log_probability": self.log_probability,
            "chosen": chosen,
        }


@dataclass(frozen=True, eq=False)
class FamilyChoice:
    """The chosen family, the reason for the choice, and the compared families."""

    rewards: Rewards
    reason: str
    family: Learnable | None = None  # set up for the rewards of all users; None: not looked at
    contenders: tuple[Contender, ...] = ()
    recommended_transform: Transform | None = None
    warnings: tuple[str, ...] = ()

    def report(self) -> dict[str, Any]:
        """Return the choice as plain data for report.json."""
        return {
            "chosen": self.rewards,
            "reason": self.reason,
            "recommended_transform": self.recommended_transform,
            "contenders": [
                one.row(one.rewards == self.rewards and one.transform is None)
                for one in self.contenders
            ],
        }


def choose_family(split: Split, requested: Rewards | None = None) -> FamilyChoice:
    """Choose the family of the rewards, or compare the `requested` family with the others.

    Rewards that are all 0 or 1 are Bernoulli. A requested family is always returned, with a warning
    if another family is better by more than two paired standard errors.
    """
    rewards = split.kept.summary.rewards + summary_of(split.held_out).rewards
    if not rewards.outside["bernoulli"].n and requested in (None, "bernoulli"):
        return FamilyChoice("bernoulli", "all rewards are 0 or 1")
    if requested is not None:
        make_family(requested, rewards)  # raises LogError if rewards are outside the support
    if rewards.least == rewards.most:
        return FamilyChoice(requested or "gaussian", "constant rewards do not distinguish families")
    few = split.kept.sample(MOST_USERS, split.seed)
    possible = _possible(rewards, np.asarray(few.rewards))
    transforms: list[Transform] = [t for t in TRANSFORMS if not rewards.outside[t].n]
    if len(possible) == 1 and not transforms:
        ((name, family),) = possible.items()
        return FamilyChoice(name, "the only family that takes these rewards", family)
    split.progress.start("comparing reward families", len(possible) + len(transforms))
    cells = cells_of_values(rewards.values, rewards.off_lattice)
    pairs: list[tuple[Learnable, Transform | None]] = [(one, None) for one in possible.values()]
    for transform in transforms:
        units = TRANSFORMS[transform].forward(np.asarray(few.rewards))
        pairs.append((make_family("gaussian", units), transform))
    contenders: list[Contender] = []
    quiet = Split(engine_of(few), split.held_out, split.seed)
    for family, form in pairs:
        contenders.append(_contend(family, form, quiet, cells))
        split.progress.advance(1)
    plain = [one for one in contenders if one.transform is None]
    best = max(plain, key=lambda one: one.log_probability)
    recommended = _recommended(contenders, best)
    others = ", ".join(f"{one.name} {one.log_probability:.4f}" for one in plain if one is not best)
    reason = (
        f"the highest log probability of a held-out reward: {best.name} {best.log_probability:.4f}"
    )
    reason += f"; {others}" if others else ""
    if requested is None:
        chosen = possible[best.rewards]
        return FamilyChoice(best.rewards, reason, chosen, tuple(contenders), recommended)
    wanted = next(one for one in plain if one.rewards == requested)
    warnings: tuple[str, ...] = ()
    if _clearly_below(wanted, best):
        warnings = (
            f"held-out rewards speak against --rewards {requested}: log probability "
            f"{wanted.log_probability:.4f} of a reward, {best.name} has {best.log_probability:.4f}",
        )
    family = possible[requested]
    return FamilyChoice(requested, "asked for", family, tuple(contenders), recommended, warnings)


def _possible(rewards: RewardSummary, sample: FloatArray) -> dict[Rewards, Learnable]:
    """Return the families that take the rewards, by name."""
    families: dict[Rewards, Learnable] = {}
    for name in reward_families():
        with suppress(LogError):
            families[name] = make_family(name, rewards).tuned(sample)
    return families


def _contend(
    family: Learnable, transform: Transform | None, split: Split, cells: Cells
) -> Contender:
    plain = ArmsLearner(family, n_starts=3)
    learner = plain if transform is None else TransformedLearner(plain, transform)
    states = [s for s in _STATES if s <= split.kept.n_users]
    learned = learner.select(split, states).learned
    judged = score(learned.model, split.held_out, cells=cells)
    log_probability = judged.log_cell
    assert log_probability is not None
    by_user = judged.sums_by_user(log_probability)
    return Contender(
        family.family_name,
        transform,
        learned.model.n_states,
        by_user,
        float(log_probability.mean()),
    )


def _recommended(contenders: Sequence[Contender], best: Contender) -> Transform | None:
    """Return the best transform if it is clearly better than every family without a transform."""
    others = [one for one in contenders if one.transform is not None]
    if not others:
        return None
    top = max(others, key=lambda one: one.log_probability)
    return top.transform if _clearly_below(best, top) else None


def _clearly_below(one: Contender, other: Contender) -> bool:
    return clearly_below(one.by_user, other.by_user)


# Rewards that are errors of the record, such as 1e9 among scores: found, set aside and named.
#
# A Student t distribution around the mean of each action is fitted by EM. In its M step a reward at
# z scales from the mean has the weight (nu + 1) / (nu + z^2), so that a wrong reward moves nothing
# (Lange, Little & Taylor 1989, Journal of the American Statistical Association 84, 881-896).
# Rewards beyond 12 scales are set aside, and a Gaussian model is learned from the others, if
#
# - Student's t predicts the rewards of other users clearly better than a normal distribution,
# - there is a gap: rewards from 6 to 12 scales are far fewer, as in no tail that falls slowly,
# - they are few, and as frequent for every action: otherwise they may be what users come for.

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
        """The range outside which a reward is far from the locations of all actions."""
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
        counts = partition.by_action()
        example = partition.reward_text(int(far.argmax())) if far.any() else ""
        return Tail(near, partition.by_action(far.astype(np.float64)), counts, example)


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
        """Return the warning about the outliers; `row` is the place of the first in the table."""
        n, n_all = int(self.tail.far.sum()), int(self.tail.counts.sum())
        low, high = self.bounds
        which = self.tail.example if row is None else row
        are = "is an outlier" if n == 1 else "are outliers"
        text = f"{n:,} of {n_all:,} rewards {are}, outside {low:.4g} to {high:.4g}: {which}"
        text += "" if n == 1 else ", for example"
        if self.set_aside:
            return text + "; left out of learning: check the record, or give --noise to keep all"
        return text + "; some actions have more of them than others, so they were kept"


def without_outliers(log: LogEngine, seed: int) -> tuple[LogEngine, Outliers | None]:
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
        location = (log.by_action(weight * rewards) + _POOLED * overall) / (
            log.by_action(weight) + _POOLED
        )
    return Bulk(location, scale)


def _predicts_better(log: Log) -> bool:
    """Return whether Student's t predicts half of the users clearly better than a normal does.

    Each half is predicted from the other. One of them suffices: a lone error is in one half only.
    """
    half = np.arange(log.n_users) % 2
    halves = [log.of_users(np.flatnonzero(half == i)) for i in (0, 1)]
    return any(
        clearly_below(*_log_densities(one, other))
        for one, other in (halves, halves[::-1])
        if other.n_events
    )


def _log_densities(known: Log, other: Log) -> tuple[FloatArray, FloatArray]:
    """Return the log densities of each user's rewards in `other`: of a normal, and of a t law."""
    from scipy.special import gammaln

    bulk = bulk_of(known)
    counts = known.by_action()
    rewards = np.asarray(known.rewards)
    mean = (known.by_action(rewards) + _POOLED * rewards.mean()) / (counts + _POOLED)
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
