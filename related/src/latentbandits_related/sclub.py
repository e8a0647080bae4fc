"""SCLUB: clustering of bandits by sets that split and merge (Li, Chen, Li & Leung 2019)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from latentbandits.models import checks
from latentbandits.models.checks import BoolArray, FloatArray, IntArray
from latentbandits.policies.checked import Outcome
from latentbandits.policies.shared import chunks
from latentbandits.policies.shared.base import (
    Sums,
    add_to_sums,
    empty_sums,
    played_features,
)
from latentbandits_related.ridge import (
    ClusteredUCB,
    Ridge,
    add_to_ridge,
    confidence,
    empty_ridge,
    pool,
    put_one,
    weights,
)


class SclubBelief(NamedTuple):
    """Sums of every user and of every set; sets are rows, and an empty set has size 0."""

    rounds: FloatArray  # (B,)
    users: tuple[Sums, ...]  # chunks of users
    counts: FloatArray  # (B, n_users)
    set_of: IntArray  # (B, n_users)
    checked: BoolArray  # (B, n_users), in this phase
    set_sums: tuple[Sums, ...]  # chunks of sets
    set_ridges: tuple[Ridge, ...]  # chunks of sets
    set_weights: FloatArray  # (B, n_users, d)
    set_counts: FloatArray  # (B, n_users)
    set_sizes: IntArray  # (B, n_users)
    set_checked: IntArray  # (B, n_users): how many users of the set are checked
    start_weights: FloatArray  # (B, n_users, d), at the start of this phase
    start_counts: FloatArray  # (B, n_users)


@dataclass(frozen=True, eq=False)
class SCLUB(ClusteredUCB[SclubBelief]):
    """SCLUB of Li, Chen, Li & Leung (2019), tests as in the authors' code.

    Phase s lasts 2^s rounds; at its start nobody is checked, and each set j stores its weights w0_j
    and rounds T0_j. After a reward the served user i is checked, and leaves its set if |w_i - w0_j|
    > a_theta (F(T_i) + F(T0_j)) or |p_i - p_j| > a_p F(t), where p_i = T_i / t and p_j is the
    average of the set. Two sets whose users are all checked merge if |w_j - w_k| < (a_theta / 2)
    (F(T_j) + F(T_k)) and |p_j - p_k| < (a_p / 2) F(t). `a_theta` = 1 and `a_p` = sqrt(2) are those
    of the authors' code, not of the paper's theory.

    Args:
        n_users: number of users of the population.
        n_features: number of features of an action.
        alpha: factor of the confidence bonus.
        a_theta: factor of the test on weights.
        a_p: factor of the test on frequencies.

    >>> from latentbandits import Decision
    >>> policy = SCLUB(n_users=3, n_features=2)
    >>> from latentbandits.models.visit import Visit
    >>> visit = Visit(np.array([2]), np.array([[[1.0, 0.0], [0.0, 2.0]]]))
    >>> belief = policy.update(policy.init(), visit, Decision.logged([1]), [1.0])
    >>> belief.set_of
    array([[0, 0, 0]])
    """

    n_users: int
    n_features: int
    alpha: float = 0.1
    a_theta: float = 1.0
    a_p: float = math.sqrt(2)

    def __post_init__(self) -> None:
        self._check_sizes()
        for name, value in (("a_theta", self.a_theta), ("a_p", self.a_p)):
            if not value > 0:
                raise ValueError(f"{name} must be above zero (inf: never split); got {value}")

    def init(self, n_sessions: int = 1) -> SclubBelief:
        n, d, m = checks.session_count(n_sessions, None), self.n_features, self.n_users
        sizes = np.zeros((n, m), np.int64)
        sizes[:, 0] = m
        return SclubBelief(
            rounds=np.zeros(n),
            users=chunks.repeat(empty_sums(d), n, m),
            counts=np.zeros((n, m)),
            set_of=np.zeros((n, m), np.int64),
            checked=np.zeros((n, m), np.bool_),
            set_sums=chunks.repeat(empty_sums(d), n, m),
            set_ridges=chunks.repeat(empty_ridge(d), n, m),
            set_weights=np.zeros((n, m, d)),
            set_counts=np.zeros((n, m)),
            set_sizes=sizes,
            set_checked=np.zeros((n, m), np.int64),
            start_weights=np.zeros((n, m, d)),
            start_counts=np.zeros((n, m)),
        )

    def _regression(self, belief: SclubBelief, user: IntArray) -> Ridge:
        return chunks.take(belief.set_ridges, belief.set_of[np.arange(len(user)), user])

    def _learn(self, belief: SclubBelief, outcome: Outcome) -> SclubBelief:
        population, user = np.arange(len(outcome.action)), outcome.context.user
        x = played_features(outcome)
        user_sums = add_to_sums(chunks.take(belief.users, user), x, outcome.reward)
        mine = belief.set_of[population, user]
        ridge = add_to_ridge(chunks.take(belief.set_ridges, mine), x, outcome.reward)
        sums = add_to_sums(chunks.take(belief.set_sums, mine), x, outcome.reward)
        after = _Draft(belief)
        after.users = chunks.put(belief.users, user, user_sums)
        after.set_sums = chunks.put(belief.set_sums, mine, sums)
        after.set_ridges = chunks.put(belief.set_ridges, mine, ridge)
        after.counts[population, user] += 1
        after.set_counts[population, mine] += 1
        after.set_weights[population, mine] = (ridge.inverse @ ridge.products[:, :, None])[..., 0]
        own_weights = weights(user_sums)
        rounds = belief.rounds + 1
        for b in population.tolist():
            i, j, t = int(user[b]), int(mine[b]), float(rounds[b])
            if not after.checked[b, i]:
                after.checked[b, i] = True
                after.set_checked[b, j] += 1
            changed = [j]
            if after.set_sizes[b, j] > 1 and self._leaves(after, b, i, j, own_weights[b], t):
                changed = [after.split(b, i, j, Sums(user_sums.gram[b], user_sums.products[b])), j]
            for one in changed:
                self._merge(after, b, one, t)
            if _phase_ends(rounds[b]):
                after.start_phase(b)
        return after.finish(rounds)

    def _leaves(
        self, draft: _Draft, b: int, i: int, j: int, own_weights: FloatArray, t: float
    ) -> bool:
        """Return whether the weights or visits of user i differ too much from those of set j."""
        offset = own_weights - draft.start_weights[b, j]
        width = confidence(draft.counts[b, i]) + confidence(draft.start_counts[b, j])
        if math.sqrt(offset @ offset) > self.a_theta * width:
            return True
        average = draft.set_counts[b, j] / draft.set_sizes[b, j]
        return bool(abs(draft.counts[b, i] - average) / t > self.a_p * confidence(t))

    def _merge(self, draft: _Draft, b: int, j: int, t: float) -> None:
        """Merge set j with every checked set that is like it, one after another."""
        while True:
            sizes = draft.set_sizes[b]
            if sizes[j] == 0 or draft.set_checked[b, j] < sizes[j]:
                return
            other = np.flatnonzero((draft.set_checked[b] == sizes) & (sizes > 0))
            other = other[other != j]
            if len(other) == 0:
                return
            offset = draft.set_weights[b, other] - draft.set_weights[b, j]
            counts = draft.set_counts[b, other]
            width = confidence(counts) + confidence(draft.set_counts[b, j])
            share = (counts / sizes[other] - draft.set_counts[b, j] / sizes[j]) / t
            like = (offset * offset).sum(axis=1) < (self.a_theta / 2 * width) ** 2
            like &= np.abs(share) < self.a_p / 2 * confidence(t)
            if not like.any():
                return
            k = int(other[like.argmax()])
            j, k = min(j, k), max(j, k)
            draft.merge(b, j, k)


class _Draft:
    """A belief under construction: its arrays are copies, its chunks are replaced when written."""

    def __init__(self, belief: SclubBelief) -> None:
        self.users, self.set_sums = belief.users, belief.set_sums
        self.set_ridges = belief.set_ridges
        self.counts, self.checked = belief.counts.copy(), belief.checked.copy()
        self.set_of = belief.set_of.copy()
        self.set_weights, self.set_counts = belief.set_weights.copy(), belief.set_counts.copy()
        self.set_sizes, self.set_checked = belief.set_sizes.copy(), belief.set_checked.copy()
        self.start_weights = belief.start_weights.copy()
        self.start_counts = belief.start_counts.copy()

    def split(self, b: int, i: int, j: int, sums: Sums) -> int:
        """Move user i from set j to an empty set, and return it."""
        new = int(self.set_sizes[b].argmin())
        self.set_of[b, i] = new
        self.set_sizes[b, [j, new]] += [-1, 1]
        self.set_checked[b, j] -= 1
        self.set_checked[b, new] = 1
        self.set_counts[b, j] -= self.counts[b, i]
        self.set_counts[b, new] = self.counts[b, i]
        rest = self._sums(b, j)
        self._put(b, j, Sums(rest.gram - sums.gram, rest.products - sums.products))
        self._put(b, new, sums)
        self.start_weights[b, new] = self.set_weights[b, new]
        self.start_counts[b, new] = self.set_counts[b, new]
        return new

    def merge(self, b: int, j: int, k: int) -> None:
        """Move all users of set k to set j."""
        self.set_of[b, self.set_of[b] == k] = j
        for array in (self.set_sizes, self.set_checked, self.set_counts):
            array[b, j] += array[b, k]
            array[b, k] = 0
        one, other = self._sums(b, j), self._sums(b, k)
        self._put(b, j, Sums(one.gram + other.gram, one.products + other.products))
        self._put(b, k, empty_sums(one.gram.shape[-1]))
        self.start_weights[b, j] = self.set_weights[b, j]
        self.start_counts[b, j] = self.set_counts[b, j]

    def start_phase(self, b: int) -> None:
        self.checked[b] = False
        self.set_checked[b] = 0
        self.start_weights[b] = self.set_weights[b]
        self.start_counts[b] = self.set_counts[b]

    def finish(self, rounds: FloatArray) -> SclubBelief:
        return SclubBelief(
            rounds, self.users, self.counts, self.set_of, self.checked, self.set_sums,
            self.set_ridges, self.set_weights, self.set_counts, self.set_sizes, self.set_checked,
            self.start_weights, self.start_counts,
        )  # fmt: skip

    def _sums(self, b: int, j: int) -> Sums:
        row = np.array([j])
        return Sums(*(chunks.select(self.set_sums, f, b, row)[0] for f in range(2)))

    def _put(self, b: int, j: int, sums: Sums) -> None:
        """Set the sums of a set, and rebuild its regression."""
        ridge = pool(sums.gram, sums.products)
        self.set_weights[b, j] = ridge.inverse @ ridge.products
        self.set_sums = put_one(self.set_sums, b, j, sums)
        self.set_ridges = put_one(self.set_ridges, b, j, ridge)


def _phase_ends(rounds: float) -> bool:
    """Return whether phase s ends after this round: 2 + 4 + ... + 2^s = 2^(s+1) - 2 rounds."""
    n = int(rounds) + 2
    return n & (n - 1) == 0
