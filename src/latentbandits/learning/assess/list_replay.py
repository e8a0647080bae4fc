"""Replay of lists: every round shows a list of one user's rows.

A round offers rows of different actions, and the policy puts some of them into a list. It receives
the rewards that the click model reveals:

- each: every row of the list has its reward, and their sum is earned.
- cascade: the list is read down to its first row with a click, which earns 1. Rows below were not
  seen, and can be offered again. Every row of the log was seen, so its reward is a draw of the
  action's attraction at any position.
- positions: a row that was logged at position m and is shown at l earns its click times e_l / e_m,
  which has the expectation e_l mu. The policy learns what the log has: a click, or none, at m.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from latentbandits.learning.logs.rows import Log
from latentbandits.models.checks import BoolArray, FloatArray, IntArray
from latentbandits.models.clicks import ClickModel, Each
from latentbandits.policies.lists import check_click_model
from latentbandits.policies.protocol import AnyPolicy


class ListPlayer(Protocol):
    """A policy under a replay of lists."""

    def choose_list(self, actions: IntArray, offered: BoolArray, length: int) -> IntArray:
        """Return slots of `actions` (n, m) from the top, `(n, length)`; only offered ones."""

    def learn_list(self, rewards: FloatArray, looked: FloatArray | None) -> None:
        """Receive the rewards `(n, length)` of the slots that were chosen last; NaN: not seen.

        `looked` is the probability that the user looked at each row where it was logged; None: the
        log says who looked.
        """


@dataclass(frozen=True, eq=False)
class ListRounds:
    """Rounds that show a list of `length` rows.

    Args:
        length: number of rows in every list.
        clicks: how users look at lists.
        same: `(n_events,)`, rows with equal numbers do not stand in one list; None: rows of the
            same action.
    """

    length: int
    clicks: ClickModel
    same: IntArray | None = None

    def clicks_for(self, policy: AnyPolicy) -> ClickModel | None:
        """Return the click model for a policy: `each` if it takes no clicks, None if it cannot."""
        try:
            check_click_model(policy, self.clicks)
        except ValueError:
            return None if self.clicks.looked(1) is not None else Each()
        return self.clicks

    def kind(self, log: Log) -> IntArray:
        """Return the number of each row's action."""
        return log.actions if self.same is None else self.same

    def playable(self, log: Log, share: int, most: int) -> IntArray:
        """Return how many lists each user can be shown: 0 if there would be none in later rounds.

        >>> from latentbandits.learning.logs.rows import read_log
        >>> from latentbandits.models.clicks import Each
        >>> log = read_log({"u": [1] * 8 + [2] * 3, "a": list("wxyzwxyzxyz"), "r": [0] * 11},
        ...                "u", "a", "r")
        >>> ListRounds(2, Each()).playable(log, share=3, most=50)
        array([1, 0])
        """
        later = self.rounds(log, log.lengths // 2, share, most)
        rounds: IntArray = np.where(later > 0, self.rounds(log, 0, share, most), 0)
        return rounds

    def rounds(self, log: Log, told: IntArray | int, share: int, most: int) -> IntArray:
        """Return how many lists each user can be shown after the first `told` rows.

        It is a share of the remaining rows, at least one list, and at most so many that every
        policy still has a choice in the last one, whatever it has shown: rows of one action more
        than a list has.
        """
        left = log.rounds >= np.broadcast_to(told, log.n_users)[log.users]
        kind = self.kind(log)
        pairs, counts = np.unique(
            log.users[left] * (kind.max() + 1) + kind[left], return_counts=True
        )
        user = pairs // (kind.max() + 1)
        order = np.lexsort((counts, user))
        user, counts = user[order], counts[order]
        n_kinds = np.bincount(user, minlength=log.n_users)
        rank = np.arange(len(user)) - (np.cumsum(n_kinds) - n_kinds)[user]
        wanted = min(self.length + 1, len(np.unique(kind)))
        # Rows that must have been shown before fewer actions than wanted are left.
        spent = np.bincount(
            user, np.where(rank <= n_kinds[user] - wanted, counts, 0), minlength=log.n_users
        )
        possible = (spent.astype(np.int64) - 1) // self.length + 1
        n_left = np.bincount(log.users[left], minlength=log.n_users)
        rounds: IntArray = np.maximum(n_left // (share * self.length), 1)
        return np.minimum(np.minimum(rounds, possible), most)

    def looked(self, log: Log, rows: IntArray) -> FloatArray | None:
        """Return P(looked) of rows where they were logged; None if it is observed."""
        longest = 1 if log.positions is None else int(log.positions.max()) + 1
        examination = self.clicks.looked(max(longest, self.length))
        if examination is None or log.positions is None:
            return examination
        at_row: FloatArray = examination[log.positions[rows]]
        return at_row

    def play(
        self,
        player: ListPlayer,
        log: Log,
        users: IntArray,
        rounds: IntArray,
        offered: int,
        n_told: int,
        rng: np.random.Generator,
    ) -> FloatArray:
        """Return what lists earn, `(n, longest)`; NaN once a user's rounds are over.

        The first `n_told` rows of each user are told one after the other.
        """
        offers = _Offers(log, self.kind(log), users, offered + self.length - 1, n_told, rng)
        earned = np.full((len(users), int(rounds.max())), np.nan)
        for told in offers.told:
            player.choose_list(log.actions[told], np.ones(told.shape, np.bool_), 1)
            player.learn_list(log.rewards[told], self.looked(log, told))
        for t in range(earned.shape[1]):
            under_way = rounds > t
            rows = offers.draw(under_way)
            slots = player.choose_list(log.actions[rows], offers.mask, self.length)
            shown = np.take_along_axis(rows, slots, axis=1)
            looked = self.looked(log, shown)
            rewards = self.clicks.react(log.rewards[shown], np.zeros(shown.shape))
            player.learn_list(rewards, looked)
            here = self.clicks.looked(self.length)
            values = rewards if looked is None or here is None else rewards * here / looked
            earned[under_way, t] = np.nansum(values, axis=1)[under_way]
            offers.remove(slots, under_way[:, None] & ~np.isnan(rewards))
        return earned


def best_slots(
    scores: FloatArray, offered: BoolArray, length: int, rng: np.random.Generator
) -> IntArray:
    """Return the offered slots of the largest scores, best first; ties at random."""
    order = np.lexsort((rng.random(scores.shape), np.where(offered, -scores, np.inf)), axis=1)
    slots: IntArray = order[:, :length]
    return slots


@dataclass(frozen=True)
class PerLook:
    """A change of rewards to rewards per expected look, whose means are the attractions' means."""

    rounds: ListRounds

    def __call__(self, log: Log) -> Log:
        looked = self.rounds.looked(log, np.arange(log.n_events))
        return log if looked is None else replace(log, rewards=log.rewards / looked)


class _Offers:
    """The remaining rows of each user; each round offers some of them, all of different actions."""

    def __init__(
        self,
        log: Log,
        kind: IntArray,
        users: IntArray,
        offered: int,
        n_told: int,
        rng: np.random.Generator,
    ) -> None:
        counts = log.lengths[users][:, None]
        places = np.arange(int(counts.max()))
        self._rows = log.starts[users][:, None] + np.minimum(places, counts - 1)
        self._kinds = kind[self._rows]
        self._left = (places < counts) & (places >= n_told)
        self._slots = min(offered, self._rows.shape[1])
        self._rng = rng
        self._chosen: IntArray = np.zeros((len(users), self._slots), np.int64)
        self.mask: BoolArray = np.ones(self._chosen.shape, np.bool_)
        self.told: Sequence[IntArray] = [self._rows[:, [i]] for i in range(n_told)]

    def draw(self, under_way: BoolArray) -> IntArray:
        """Return rows of different actions in random order, `(n, slots)`; `mask` says how many.

        The random numbers are the same for every policy. A user whose rounds are over is offered
        the last rows again.
        """
        key = np.where(self._left, self._rng.random(self._left.shape), 2.0)
        order = np.lexsort((key, self._kinds), axis=1)
        kinds = np.take_along_axis(self._kinds, order, axis=1)
        again = np.zeros(kinds.shape, np.bool_)
        again[:, 1:] = kinds[:, 1:] == kinds[:, :-1]
        np.put_along_axis(key, order, np.where(again, 2.0, np.take_along_axis(key, order, 1)), 1)
        chosen = np.argsort(key, axis=1)[:, : self._slots]
        fresh = np.take_along_axis(key, chosen, axis=1) < 2.0
        self._chosen = np.where(under_way[:, None], chosen, self._chosen)
        self.mask = np.where(under_way[:, None], fresh, self.mask)
        rows: IntArray = np.take_along_axis(self._rows, self._chosen, axis=1)
        return rows

    def remove(self, slots: IntArray, seen: BoolArray) -> None:
        """Remove the rows in these slots that were seen."""
        places = np.take_along_axis(self._chosen, slots, axis=1)
        user, position = np.nonzero(seen)
        self._left[user, places[user, position]] = False
