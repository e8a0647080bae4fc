"""Replay of lists: what is offered, what a list earns, and how many lists a user can be shown."""

from itertools import product

import numpy as np
import pytest

from latentbandits.learning.assess.list_replay import ListRounds, PerLook
from latentbandits.learning.assess.replay import (
    Playing,
    PolicyPlayer,
    ScorePlayer,
    playable_rounds,
    replay,
)
from latentbandits.learning.assess.tournament import judge_policies
from latentbandits.learning.learners import Learned
from latentbandits.learning.logs.rows import Log
from latentbandits.models.arms.dirichlet import BernoulliArms
from latentbandits.models.clicks import Cascade, Each, PositionClicks, Positions
from latentbandits.policies import mmGreedy

LOOKED = (1.0, 0.6, 0.3)
K, LENGTH = 6, 3
RATES = np.array([[0.6, 0.1, 0.5, 0.1, 0.3, 0.2], [0.1, 0.6, 0.1, 0.5, 0.2, 0.3]])


def shown_lists(clicks, rates=RATES, n_users=60, lists=6, seed=0):
    """Return the observed rows of lists of three random actions, and the users' states."""
    rng = np.random.default_rng(seed)
    n = n_users * lists
    user, state = np.repeat(np.arange(n_users), lists), rng.integers(2, size=n_users)
    shown = np.argsort(rng.random((n, K)), axis=1)[:, :LENGTH]
    attracted = (rng.random((n, LENGTH)) < rates[state[user][:, None], shown]).astype(float)
    rewards = clicks.react(attracted, rng.random((n, LENGTH)))
    row, place = np.nonzero(~np.isnan(rewards))
    ids = tuple(map(str, range(n_users))), tuple(map(str, range(K)))
    return Log(
        user[row], shown[row, place], rewards[row, place], *ids, lists=row, positions=place
    )  # fmt: skip


class Recording(ScorePlayer):
    """Remembers what it was offered and told."""

    def start(self, users, rng):
        super().start(users, rng)
        self.seen = []

    def choose_list(self, actions, offered, length):
        slots = super().choose_list(actions, offered, length)
        self.seen.append((actions.copy(), offered.copy(), slots))
        return slots

    def learn_list(self, rewards, looked):
        self.seen[-1] += (rewards.copy(), looked)


@pytest.mark.parametrize("clicks", [Each(), Cascade(), Positions(LOOKED)])
def test_lists_are_of_different_actions_of_rows_that_nobody_saw_before(clicks):
    log = shown_lists(clicks, lists=16)
    counted = {}  # of (user, action), as the log has them
    for pair in zip(log.users.tolist(), log.actions.tolist(), strict=True):
        counted[pair] = counted.get(pair, 0) + 1
    lists, player = ListRounds(LENGTH, clicks), Recording(np.arange(K, dtype=float))
    played = replay({"it": player}, log, lists=lists)
    rounds = playable_rounds(log, lists=lists)
    users = np.argsort(-rounds, kind="stable")
    users = users[rounds[users] > 0]
    assert (played.rounds == rounds[users]).all()
    assert played.rounds.max() > 1
    for t, (actions, offered, slots, rewards, _) in enumerate(player.seen):
        for i in np.flatnonzero(played.rounds > t):
            there = actions[i, offered[i]]
            assert len(set(there)) == len(there) > LENGTH
            chosen = actions[i, slots[i]]
            assert chosen.tolist() == sorted(there, reverse=True)[:LENGTH]
            for action, reward in zip(chosen, rewards[i], strict=True):
                if not np.isnan(reward):
                    counted[users[i], action] -= 1
    assert min(counted.values()) >= 0
    assert sum(counted.values()) < log.n_events


@pytest.mark.parametrize("clicks", [Each(), Cascade(), Positions(LOOKED)])
def test_a_fixed_list_earns_on_average_what_the_click_model_says(clicks):
    """Users of one kind: the truth is known. Rows that a cascade hid must not be missed."""
    one = RATES[:1].repeat(2, axis=0)
    log = shown_lists(clicks, one, n_users=1_500, lists=12, seed=4)
    scores = np.array([5.0, 4.0, 3.0, 2.0, 1.0, 0.0])
    played = replay({"it": ScorePlayer(scores)}, log, lists=ListRounds(LENGTH, clicks))
    earned = played.reward("it", 1)
    assert abs(earned.mean - clicks.value(one[:1, :LENGTH])[0]) < 4 * earned.stderr


@pytest.mark.parametrize("told", [0, 5])
def test_every_policy_has_a_choice_in_every_round(told):
    """By all ways of removing rows: the number of lists is never too large."""
    actions = np.array([0, 0, 0, 1, 1, 2, 2, 3, 3, 1, 2, 0])
    log = Log(np.zeros(12, int), actions, np.zeros(12), ("u",), tuple("abcd"))
    length = 2
    rounds = int(ListRounds(length, Each()).rounds(log, told, 1, 50)[0])
    left = np.bincount(actions[told:], minlength=4)

    def fewest(left, lists):
        """Actions left before the last of some lists, if they are chosen as badly as possible."""
        if lists == 1:
            return int((left > 0).sum())
        taken = (
            left - np.bincount(pair, minlength=4)
            for pair in product(range(4), repeat=length)
            if pair[0] < pair[1] and left[list(pair)].min() > 0
        )
        return min(fewest(part, lists - 1) for part in taken)

    assert rounds >= 1
    assert fewest(left, rounds) > length


def test_a_list_of_all_actions_leaves_only_their_order():
    log = shown_lists(Positions(LOOKED))
    few = log.of_events(log.actions < LENGTH)
    few = Log(few.users, few.actions, few.rewards, few.user_ids, tuple("abc"),
              positions=few.positions)  # fmt: skip
    assert playable_rounds(few, lists=ListRounds(LENGTH, Positions(LOOKED))).max() > 0


def test_rewards_per_look_have_the_means_of_attractions():
    rates = RATES[:1].repeat(2, axis=0)
    log = shown_lists(Positions(LOOKED), rates, n_users=2_000, lists=10)
    per_look = PerLook(ListRounds(LENGTH, Positions(LOOKED)))(log)
    for action in range(K):
        values = per_look.rewards[log.actions == action]
        assert abs(values.mean() - rates[0, action]) < 4 * values.std() / np.sqrt(len(values))


@pytest.mark.parametrize("clicks", [Each(), Cascade(), Positions(LOOKED)])
def test_a_policy_with_the_true_model_earns_more_per_list_than_popularity(clicks):
    log = shown_lists(clicks, n_users=200, lists=24, seed=2)
    shape = 50 * RATES, 50 * (1 - RATES)
    model = PositionClicks(*shape, examination=LOOKED) if clicks.name == "positions" else (
        BernoulliArms(*shape)
    )  # fmt: skip
    players = {
        "popularity": ScorePlayer(RATES.mean(axis=0)),
        "mmGreedy": PolicyPlayer(mmGreedy(model), K, clicks=clicks),
    }
    played = replay(players, log, later=True, lists=ListRounds(LENGTH, clicks))
    lead = played.lead("mmGreedy", "popularity")
    assert lead.mean > 4 * lead.stderr
    # Nothing is known in the first list: its gain is that of later ones.
    assert played.later is not None
    early = played.difference("mmGreedy", "popularity", 1)
    late = played.later.lead("mmGreedy", "popularity")
    assert late.mean > early.mean + 2 * np.hypot(early.stderr, late.stderr)


@pytest.mark.parametrize("clicks", [Cascade(), Positions(LOOKED)])
def test_the_verdict_is_about_lists(clicks):
    log = shown_lists(clicks, n_users=350, lists=12, seed=3)
    shape = 50 * RATES, 50 * (1 - RATES)
    model = PositionClicks(*shape, examination=LOOKED) if clicks.name == "positions" else (
        BernoulliArms(*shape)
    )  # fmt: skip
    learned = Learned(model, None, np.bincount(log.actions))
    kept, out = log.of_users(np.arange(100)), log.of_users(np.arange(100, 350))
    judged = judge_policies(
        learned,
        kept,
        out,
        policies=("mmGreedy",),
        playing=Playing(ListRounds(LENGTH, clicks), passes=1),
    )
    assert judged.verdict == "helps"
    assert "a list compared with showing the best average 3 actions" in judged.sentence
    assert "lists 1-" in judged.sentence
    report = judged.report()
    assert report["length"] == LENGTH
    # Knowing the state is worth this much a list, by hand.
    best = np.sort(RATES, axis=1)[:, ::-1][:, :LENGTH]
    popular = np.argsort(-RATES.mean(axis=0))[:LENGTH]
    gain = clicks.value(best) - clicks.value(RATES[:, popular])
    assert report["value_of_state"] == pytest.approx(gain.mean(), abs=1e-9)
