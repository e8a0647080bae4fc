"""Rewards of a log: errors of the record, transforms, the family, and hidden choices of actions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, Self

import numpy as np

from latentbandits.learning.arms.learner import ArmsLearner
from latentbandits.learning.assess.heldout import score
from latentbandits.learning.backends.backend import AnyLog, Engine, engine_of, summary_of
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
    clearly_better,
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
from latentbandits.learning.logs.tables import LogError, TableSource, column_names
from latentbandits.models.arms import dirichlet
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
        """Choose on f(r); evidence and errors of the candidates are those of f(r)."""
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

    def _mapped(self, log: AnyLog) -> Engine:
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


# Learn from a log whose actions were chosen by something that the log does not hold.
#
# If the choice of actions depended on earlier rows alone, it tells nothing about a user's state
# beyond them. If whoever chose saw more, users of a state were shown other actions than users of
# another one, and the average reward of an action is that of the users it was chosen for. The
# mixture of arms then gets a second emission: actions of a user of state s have probabilities
# rho[s] ~ Dirichlet, so that a user's log responsibility of state s is
#
#     E[log pi_s] + sum_a N[u, a] . E[eta(theta[s, a])] + n[u, a] E[log rho[s, a]] + ...
#
# with n[u, a] the number of a user's rows. The emission is one more statistic of the reward family,
# the number one, so that the learner of arms needs no other change. It serves to learn only: the
# written model has no rho, because online the policy chooses the actions.

PROPENSITIES = ("propensity", "propensity_score", "probability", "pscore")
"""Columns of a log that hold the probability of the chosen action."""

WARNING = (
    "users were shown actions by something that the log does not hold and that tells about their "
    "rewards: averages of actions are those of the users they were chosen for. The model was "
    "learned with that in mind, but log the probability of every choice (propensity), or what it "
    "was made by (--features, --user-features)"
)

_DEPENDS = 4.0  # standard deviations of the statistic beyond which actions depend on users


@dataclass(frozen=True, eq=False)
class WithActions(Learnable):
    """A reward family in which each state also has its probabilities rho of choosing actions.

    An action has the hyperparameters of its rewards, then its entry of the Dirichlet prior of rho.
    """

    rewards: Learnable

    def __post_init__(self) -> None:
        for name in ("family_name", "known"):  # for the report
            object.__setattr__(self, name, getattr(self.rewards, name))

    @classmethod
    def for_rewards(cls, rewards: FloatArray) -> Self:
        raise ValueError("actions are no family of rewards")

    @classmethod
    def outside(cls, rewards: FloatArray) -> BoolArray:
        return np.zeros(rewards.shape, np.bool_)

    @classmethod
    def takes(cls) -> str:
        return "numbers"

    def statistic(self, reward: FloatArray) -> FloatArray:
        inner = self.rewards.statistic(reward)
        return np.concatenate([inner, np.ones((*inner.shape[:-1], 1))], axis=-1)

    def log_base_measure(self, reward: FloatArray) -> FloatArray | float:
        return self.rewards.log_base_measure(reward)

    def squares(self, reward: FloatArray) -> FloatArray:
        return self.rewards.squares(reward)

    @property
    def counts_and_sums(self) -> tuple[FloatArray, FloatArray]:
        counting, paying = self.rewards.counts_and_sums
        return np.append(counting, 0.0), np.append(paying, 0.0)

    @property
    def n_parameters(self) -> int:
        return self.rewards.n_parameters

    def statistics_of_means(self, counts: FloatArray, means: FloatArray) -> FloatArray:
        inner = self.rewards.statistics_of_means(counts, means)
        return np.concatenate([inner, counts[..., None]], axis=-1)

    def centre(self, totals: FloatArray) -> FloatArray:
        """Return the mean statistics; the last is the share of an action among rows, times A."""
        share = (totals[:, -1:] + 1.0) / (totals[:, -1:] + 1.0).mean()
        return np.concatenate([self.rewards.centre(totals[:, :-1]), share], axis=-1)

    def prior(self, centre: FloatArray, strength: FloatArray) -> FloatArray:
        """Return the prior; the part for rho is worth one row for each action."""
        inner = self.rewards.prior(centre[:, :-1], strength)
        shares = np.broadcast_to(centre[:, -1:], (*inner.shape[:-1], 1))
        return np.concatenate([inner, shares], axis=-1)

    def log_normaliser(self, phi: FloatArray) -> FloatArray:
        return self.rewards.log_normaliser(phi[..., :-1])

    def expected(self, phi: FloatArray) -> FloatArray:
        return self.rewards.expected(phi[..., :-1])

    def coefficients(self, phi: FloatArray, noise: FloatArray) -> FloatArray:
        inner = self.rewards.coefficients(phi[..., :-1], noise)
        return np.concatenate([inner, dirichlet.expected_log(phi[..., -1])[..., None]], axis=-1)

    def posterior(self, prior: FloatArray, sums: FloatArray, noise: FloatArray) -> FloatArray:
        inner = self.rewards.posterior(prior[..., :-1], sums[..., :-1], noise)
        return np.concatenate([inner, prior[..., -1:] + sums[..., -1:]], axis=-1)

    def divergence(self, phi: FloatArray, prior: FloatArray) -> FloatArray:
        """Return the divergence of the rewards' parameters and that of rho, `(R,)`."""
        kl = dirichlet.divergence(phi[..., -1], prior[..., -1])
        inner = self.rewards.divergence(phi[..., :-1], prior[..., :-1])
        total: FloatArray = inner + kl.sum(axis=-1)
        return total

    def expected_log_prior(
        self, centre: FloatArray, strength: FloatArray, phi: FloatArray
    ) -> FloatArray:
        return self.rewards.expected_log_prior(centre[:, :-1], strength, phi[..., :-1])

    @property
    def noise_is_free(self) -> bool:
        return self.rewards.noise_is_free

    def with_noise_by_action(self) -> Self:
        return replace(self, rewards=self.rewards.with_noise_by_action())

    def first_noise(self, totals: FloatArray, n_starts: int) -> FloatArray:
        return self.rewards.first_noise(totals[..., :-1], n_starts)

    def update_noise(
        self, phi: FloatArray, sums: FloatArray, squares: FloatArray, noise: FloatArray
    ) -> FloatArray:
        return self.rewards.update_noise(phi[..., :-1], sums[..., :-1], squares, noise)

    def log_constant(
        self, totals: FloatArray, squares: FloatArray, noise: FloatArray
    ) -> FloatArray | float:
        return self.rewards.log_constant(totals[..., :-1], squares, noise)

    def at_noise(self, noise: FloatArray) -> Self:
        return replace(self, rewards=self.rewards.at_noise(noise))

    @property
    def unit(self) -> float:
        return self.rewards.unit

    def mean_statistic(self, phi: FloatArray) -> FloatArray:
        return self.rewards.mean_statistic(phi[..., :-1])

    def moments(self, phi: FloatArray) -> tuple[FloatArray, FloatArray]:
        return self.rewards.moments(phi[..., :-1])

    def prior_variance(self, prior: FloatArray) -> FloatArray:
        return self.rewards.prior_variance(prior[..., :-1])

    def reward_variance(self, phi: FloatArray) -> FloatArray:
        return self.rewards.reward_variance(phi[..., :-1])

    def within(self, phi: FloatArray, strength: float) -> FloatArray:
        return self.rewards.within(phi[..., :-1], strength)

    def log_actions(self, phi: FloatArray) -> FloatArray:
        """Return the log probability of every action in each state, `(S, A)`."""
        log_actions: FloatArray = np.log(phi[..., -1] / phi[..., -1].sum(axis=-1, keepdims=True))
        return log_actions

    def learned(self, phi: FloatArray, variance: FloatArray, shares: FloatArray) -> Any:
        return self.rewards.learned(phi[..., :-1], variance, shares)


@dataclass(frozen=True, eq=False)
class DependencePass:
    """A pass that sums Pearson's statistic of independence of users and actions.

    For a user with n rows, n[a] of them of action a, it is sum_a n[a]^2 / (n p[a]) - n, with mean
    A - 1 and variance 2 (A - 1) (1 - 1/n) if actions do not depend on users.
    """

    def summarise(self, log: Log, share: FloatArray) -> FloatArray:
        pair = log.users * log.n_actions + log.actions
        pairs, counts = np.unique(pair, return_counts=True)
        rows = log.lengths.astype(np.float64)
        user, action = np.divmod(pairs, log.n_actions)
        statistic = float((counts**2 / (rows[user] * share[action])).sum() - rows.sum())
        freedom = np.count_nonzero(share) - 1
        seen = rows[rows > 0]
        return np.array([statistic, freedom * len(seen), 2 * freedom * (1 - 1 / seen).sum()])


def depends_on_users(log: Engine) -> bool:
    """Return whether actions of a user are more alike than those of different users.

    >>> from latentbandits.learning.backends.backend import engine_of
    >>> from latentbandits.learning.generate import generate_arms
    >>> depends_on_users(engine_of(generate_arms(300, 20, n_states=2, n_actions=3).log))
    False
    """
    counts = log.action_counts.astype(np.float64)
    statistic, mean, variance = log.fold(DependencePass(), counts / counts.sum())
    return bool(statistic - mean > _DEPENDS * np.sqrt(variance))


def has_propensities(log: Log | TableSource) -> bool:
    """Return whether a table has a column of propensities.

    >>> has_propensities({"user": [1], "action": ["a"], "reward": [0], "propensity": [0.5]})
    True
    """
    if isinstance(log, Log):
        return False
    parts = log if isinstance(log, (list, tuple)) else [log]
    return any(name.lower() in PROPENSITIES for part in parts for name in column_names(part))


def learn_choices(selection: Selection, split: Split, states: States) -> Selection | None:
    """Learn arms together with the choice of actions; None if that does not help.

    It helps if the log probability of held-out users' rewards, given their actions and their
    earlier rows, is higher by more than two paired standard errors.
    """
    learner = selection.learner.with_actions()
    if learner is None or not depends_on_users(split.kept):
        return None
    joint = learner.select(split, states)
    if not clearly_better(joint.judged, selection.judged):
        return None
    # Online, actions tell nothing: the model is judged without them.
    alone = judge(joint.learned, split.held_out)
    return replace(joint, judged=alone, warnings=(*joint.warnings, WARNING))
