"""Choose the reward family by the log probability of held-out rewards.

Each family whose support contains all rewards learns from the same users, with its own number of
states, and predicts the same held-out rewards. Families are compared by their probability of the
cell of the recording resolution around each reward (`families`). Gaussian models of transformed
rewards are compared as well, to recommend a transform.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from latentbandits.learning.arms.families import Cells, Rewards, cells_of_values, make_family
from latentbandits.learning.arms.learner import ArmsLearner
from latentbandits.learning.assess.heldout import score
from latentbandits.learning.backends.backend import AnyLog, engine_of, summary_of
from latentbandits.learning.logs.formats import LogError
from latentbandits.learning.logs.rows import Log
from latentbandits.learning.logs.summary import RewardSummary
from latentbandits.learning.selection import clearly_below
from latentbandits.learning.transforms import (
    TRANSFORMS,
    Transform,
    TransformedLearner,
)
from latentbandits.models.arms.learnable import Learnable
from latentbandits.models.checks import FloatArray
from latentbandits.models.registry import reward_families
from latentbandits.report.report import Progress, Silent

MOST_USERS = 2_000
"""The number of users, sampled by hash, on which families are compared."""

_CLEAR = 2.0  # paired standard errors
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


def choose_family(
    kept: AnyLog,
    held_out: Log,
    *,
    requested: Rewards | None = None,
    seed: int = 0,
    progress: Progress | None = None,
    finer: float = 1.0,
) -> FamilyChoice:
    """Choose the family of the rewards, or compare the `requested` family with the others.

    Rewards that are all 0 or 1 are Bernoulli. A requested family is always returned, with a warning
    if another family is better by more than two paired standard errors. Cells are narrower than the
    recording resolution by the factor `finer`.
    """
    rewards = summary_of(kept).rewards + summary_of(held_out).rewards
    if not rewards.outside["bernoulli"].n and requested in (None, "bernoulli"):
        return FamilyChoice("bernoulli", "all rewards are 0 or 1")
    if requested is not None:
        make_family(requested, rewards)  # raises LogError if rewards are outside the support
    if rewards.least == rewards.most:
        return FamilyChoice(requested or "gaussian", "constant rewards do not distinguish families")
    bar = Silent() if progress is None else progress
    few = engine_of(kept).sample(MOST_USERS, seed)
    possible = _possible(rewards, np.asarray(few.rewards))
    transforms: list[Transform] = [t for t in TRANSFORMS if not rewards.outside[t].n]
    if len(possible) == 1 and not transforms:
        ((name, family),) = possible.items()
        return FamilyChoice(name, "the only family that takes these rewards", family)
    bar.start("comparing reward families", len(possible) + len(transforms))
    cells = cells_of_values(rewards.values, rewards.off_lattice)._replace(finer=finer)
    contenders: list[Contender] = []
    for family in possible.values():
        contenders.append(_contend(family, None, few, held_out, cells, seed))
        bar.advance(1)
    for transform in transforms:
        units = TRANSFORMS[transform].forward(np.asarray(few.rewards))
        family = make_family("gaussian", units)
        contenders.append(_contend(family, transform, few, held_out, cells, seed))
        bar.advance(1)
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
    family: Learnable,
    transform: Transform | None,
    kept: Log,
    held_out: Log,
    cells: Cells,
    seed: int,
) -> Contender:
    plain = ArmsLearner(family, n_starts=3)
    learner = plain if transform is None else TransformedLearner(plain, transform)
    states: Sequence[int] = [s for s in _STATES if s <= kept.n_users]
    learned = learner.select(kept, held_out, states, seed, Silent()).learned
    judged = score(learned.model, held_out, cells=cells)
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
    return clearly_below(one.by_user, other.by_user, _CLEAR)
