"""SCLUB: clustering of bandits by sets that split and merge (Li, Chen, Li & Leung 2019)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

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
    (F(T_j) + F(T_k)) and |p_j - p_k| < (a_p / 2) F(t). `a_theta` = 1 and `a_p` = sqrt(2) come from
    the authors' code, not from the paper's theory.

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
        draft = _Draft(
            belief._replace(
                rounds=belief.rounds + 1,
                users=chunks.put(belief.users, user, user_sums),
                set_sums=chunks.put(belief.set_sums, mine, sums),
                set_ridges=chunks.put(belief.set_ridges, mine, ridge),
            )
        )
        after = draft.belief
        after.counts[population, user] += 1
        after.set_counts[population, mine] += 1
        after.set_weights[population, mine] = (ridge.inverse @ ridge.products[:, :, None])[..., 0]
        own_weights = weights(user_sums)
        for b in population.tolist():
            i, j, t = int(user[b]), int(mine[b]), float(after.rounds[b])
            if not after.checked[b, i]:
                after.checked[b, i] = True
                after.set_checked[b, j] += 1
            changed = [j]
            if after.set_sizes[b, j] > 1 and self._leaves(after, b, i, j, own_weights[b], t):
                changed = [draft.split(b, i, j, Sums(user_sums.gram[b], user_sums.products[b])), j]
            for one in changed:
                self._merge(draft, b, one, t)
            if _phase_ends(t):
                draft.start_phase(b)
        return draft.belief

    def _leaves(
        self, now: SclubBelief, b: int, i: int, j: int, own_weights: FloatArray, t: float
    ) -> bool:
        """Return whether the weights or visits of user i differ too much from set j's."""
        offset = own_weights - now.start_weights[b, j]
        width = confidence(now.counts[b, i]) + confidence(now.start_counts[b, j])
        if math.sqrt(offset @ offset) > self.a_theta * width:
            return True
        average = now.set_counts[b, j] / now.set_sizes[b, j]
        return bool(abs(now.counts[b, i] - average) / t > self.a_p * confidence(t))

    def _merge(self, draft: _Draft, b: int, j: int, t: float) -> None:
        """Merge set j with every checked set that is like it, one after another."""
        now = draft.belief
        while True:
            sizes = now.set_sizes[b]
            if sizes[j] == 0 or now.set_checked[b, j] < sizes[j]:
                return
            other = np.flatnonzero((now.set_checked[b] == sizes) & (sizes > 0))
            other = other[other != j]
            if len(other) == 0:
                return
            offset = now.set_weights[b, other] - now.set_weights[b, j]
            counts = now.set_counts[b, other]
            width = confidence(counts) + confidence(now.set_counts[b, j])
            share = (counts / sizes[other] - now.set_counts[b, j] / sizes[j]) / t
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
        copies: dict[str, Any] = {
            name: value.copy()
            for name, value in belief._asdict().items()
            if isinstance(value, np.ndarray)
        }
        self.belief = belief._replace(**copies)

    def split(self, b: int, i: int, j: int, sums: Sums) -> int:
        """Move user i from set j to an empty set, and return it."""
        now = self.belief
        new = int(now.set_sizes[b].argmin())
        now.set_of[b, i] = new
        now.set_sizes[b, [j, new]] += [-1, 1]
        now.set_checked[b, j] -= 1
        now.set_checked[b, new] = 1
        now.set_counts[b, j] -= now.counts[b, i]
        now.set_counts[b, new] = now.counts[b, i]
        rest = self._sums(b, j)
        self._put(b, j, Sums(rest.gram - sums.gram, rest.products - sums.products))
        self._put(b, new, sums)
        now.start_weights[b, new] = now.set_weights[b, new]
        now.start_counts[b, new] = now.set_counts[b, new]
        return new

    def merge(self, b: int, j: int, k: int) -> None:
        """Move all users of set k to set j."""
        now = self.belief
        now.set_of[b, now.set_of[b] == k] = j
        for array in (now.set_sizes, now.set_checked, now.set_counts):
            array[b, j] += array[b, k]
            array[b, k] = 0
        one, other = self._sums(b, j), self._sums(b, k)
        self._put(b, j, Sums(one.gram + other.gram, one.products + other.products))
        self._put(b, k, empty_sums(one.gram.shape[-1]))
        now.start_weights[b, j] = now.set_weights[b, j]
        now.start_counts[b, j] = now.set_counts[b, j]

    def start_phase(self, b: int) -> None:
        now = self.belief
        now.checked[b] = False
        now.set_checked[b] = 0
        now.start_weights[b] = now.set_weights[b]
        now.start_counts[b] = now.set_counts[b]

    def _sums(self, b: int, j: int) -> Sums:
        row = np.array([j])
        return Sums(*(chunks.select(self.belief.set_sums, f, b, row)[0] for f in range(2)))

    def _put(self, b: int, j: int, sums: Sums) -> None:
        """Set the sums of a set, and rebuild its regression."""
        ridge = pool(sums.gram, sums.products)
        self.belief.set_weights[b, j] = ridge.inverse @ ridge.products
        self.belief = self.belief._replace(
            set_sums=put_one(self.belief.set_sums, b, j, sums),
            set_ridges=put_one(self.belief.set_ridges, b, j, ridge),
        )


def _phase_ends(rounds: float) -> bool:
    """Return whether phase s ends after this round: 2 + 4 + ... + 2^s = 2^(s+1) - 2 rounds."""
    n = int(rounds) + 2
    return n & (n - 1) == 0
