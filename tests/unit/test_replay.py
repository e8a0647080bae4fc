"""Held-out users on their real rewards."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from latentbandits import (
    GaussianArms,
    LinearGaussian,
    mmGreedy,
    mmTS,
)
from latentbandits.learning.assess import replay as replays
from latentbandits.learning.assess.replay import (
    PolicyPlayer,
    ScorePlayer,
    action_averages,
    playable_rounds,
    replay,
)
from latentbandits.learning.generate import generate_arms
from latentbandits.learning.logs.rows import Log, read_log
from tests.reference.replay import replay_user


def ragged_log(seed=0, n_users=9, n_actions=6):
    """Users with 0 to 40 rows."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 41, size=n_users)
    users = np.repeat(np.arange(n_users), lengths)
    actions = rng.integers(n_actions, size=len(users))
    rewards = rng.normal(actions / 3, 1.0)
    ids = tuple(map(str, range(n_users))), tuple(map(str, range(n_actions)))
    return Log(users, actions, rewards, *ids)


class Recording:
    """Shows the first slot that is offered, and remembers what it saw."""

    def start(self, users, rng):
        self.seen, self.rewards = [], []

    def choose(self, actions, offered):
        self.seen.append((actions.copy(), offered.copy()))
        return np.zeros(len(actions), np.int64)

    def learn(self, reward):
        self.rewards.append(reward)


@pytest.mark.parametrize("offered", [1, 4, 10])
def test_replay_is_the_plain_loop(offered):
    rng = np.random.default_rng(1)
    n_users, n_actions = 20, 60
    actions = np.concatenate([rng.permutation(n_actions)[: 20 + u] for u in range(n_users)])
    users = np.repeat(np.arange(n_users), [20 + u for u in range(n_users)])
    ids = tuple(map(str, range(n_users))), tuple(map(str, range(n_actions)))
    log = Log(users, actions, rng.normal(size=len(users)), *ids)
    scores = rng.normal(size=n_actions)
    actual = replay({"fixed": ScorePlayer(scores)}, log, offered=offered, seed=5)
    order = np.argsort(-playable_rounds(log), kind="stable")
    rounds = playable_rounds(log)[order]
    uniforms = np.random.default_rng([5, 0]).random((rounds.max(), offered, n_users))
    for i, user in enumerate(order):
        rows = [(log.actions[e], log.rewards[e]) for e in range(*log.starts[user : user + 2])]
        earned = replay_user(
            rows, rounds[i], offered, uniforms[:, :, i], lambda a: int(np.argmax(scores[a]))
        )
        np.testing.assert_array_equal(actual.rewards["fixed"][i, : rounds[i]], earned)
        assert np.isnan(actual.rewards["fixed"][i, rounds[i] :]).all()


def test_no_row_is_shown_twice_and_offers_are_the_users_own():
    log = ragged_log(seed=2)
    rewards = np.arange(log.n_events, dtype=float)  # every row can be told by its reward
    log = Log(log.users, log.actions, rewards, log.user_ids, log.action_ids)
    player = Recording()
    actual = replay({"first": player}, log, offered=5)
    users = np.argsort(-playable_rounds(log), kind="stable")
    for i, n_rounds in enumerate(actual.rounds):
        shown = actual.rewards["first"][i, :n_rounds]
        assert len(set(shown)) == n_rounds
        start, end = log.starts[users[i]], log.starts[users[i] + 1]
        assert ((shown >= start) & (shown < end)).all()
    for actions, offered in player.seen:
        assert actions.shape == offered.shape
        assert offered[:, 0].all()


def test_offers_are_uniform_and_the_same_for_all_policies():
    made = generate_arms(n_users=2000, n_rounds=30, n_states=1, n_actions=5, noise=0.1, seed=4)
    players = {"a": ScorePlayer(np.zeros(5)), "b": ScorePlayer(np.zeros(5))}
    actual = replay(players, made.log)
    means = [made.log.rewards[s:e].mean() for s, e in pairwise(made.log.starts)]
    # A uniform choice has the mean of the log: 4 standard errors.
    assert abs(actual.reward("a", 10).mean - np.mean(means)) < 4 * actual.reward("a", 10).stderr
    assert actual.difference("a", "b", 10).stderr < actual.reward("a", 10).stderr * 1.5
    same = PolicyPlayer(mmGreedy(GaussianArms(made.means, 0.1)), 5)  # no ties: no random numbers
    twice = replay({"one": same, "two": same}, made.log)
    np.testing.assert_array_equal(twice.rewards["one"], twice.rewards["two"])
    assert twice.difference("one", "two", 10) == (0.0, 0.0)
    alone = replay({"b": ScorePlayer(np.zeros(5))}, made.log)
    np.testing.assert_array_equal(alone.rewards["b"], actual.rewards["b"])


def test_a_policy_with_the_true_model_beats_popularity_and_knows_its_error():
    made = generate_arms(n_users=800, n_rounds=60, n_states=3, n_actions=8, noise=0.3, seed=7)
    model = GaussianArms(made.means, 0.3, 0.01, made.shares)
    players = {
        "popularity": ScorePlayer(action_averages(made.log)),
        "mmGreedy": PolicyPlayer(mmGreedy(model), 8),
        "mmTS": PolicyPlayer(mmTS(model), 8),
    }
    actual = replay(players, made.log)
    assert actual.horizons == (10, 20)
    lead = actual.difference("mmGreedy", "popularity", 20)
    assert lead.mean > 4 * lead.stderr
    rows = actual.rows("popularity")
    assert {"policy", "rounds", "reward", "stderr", "over_popularity",
            "over_popularity_stderr"} <= set(rows[0])  # fmt: skip
    by_hand = actual.rewards["mmGreedy"][:, :20].mean(axis=1)
    assert actual.reward("mmGreedy", 20).mean == pytest.approx(by_hand.mean())
    assert actual.reward("mmGreedy", 20).stderr == pytest.approx(
        by_hand.std(ddof=1) / np.sqrt(len(by_hand))
    )


def test_linear_policies_see_the_features_of_what_is_offered():
    rng = np.random.default_rng(0)
    features = rng.normal(size=(30, 2))
    theta = np.where(rng.random(40)[:, None] < 0.5, [[2.0, 0.0]], [[-2.0, 0.0]])
    users = np.repeat(np.arange(40), 30)
    actions = np.tile(np.arange(30), 40)
    rewards = np.einsum("nd,nd->n", features[actions], theta[users])
    ids = tuple(map(str, range(40))), tuple(map(str, range(30)))
    log = Log(users, actions, rewards, *ids)
    model = LinearGaussian([[2.0, 0.0], [-2.0, 0.0]], noise=0.1)
    players = {
        "greedy": PolicyPlayer(mmGreedy(model), 30, features),
        "best": ScorePlayer(features[:, 0]),
    }
    actual = replay(players, log)
    # After one reward the state is known; then the best of ten offered is always shown.
    assert actual.reward("greedy", 10).mean > 3 * abs(actual.reward("best", 10).mean)


def test_horizons_of_short_sessions():
    log = read_log(
        {"u": np.repeat(np.arange(50), 9), "a": np.tile(np.arange(9), 50), "r": np.zeros(450)},
        "u", "a", "r",
    )  # fmt: skip
    assert replay({"x": ScorePlayer(np.zeros(9))}, log).horizons == (3,)
    with pytest.raises(ValueError, match="nothing to replay"):
        replay({"x": ScorePlayer(np.zeros(9))}, read_log({"u": [1, 2], "a": [1, 2], "r": [0, 1]},
               "u", "a", "r"))  # fmt: skip


def test_later_rounds_come_after_half_of_the_rows_were_told_and_show_other_rows():
    log = ragged_log(seed=2)
    rewards = np.arange(log.n_events, dtype=float)  # every row can be told by its reward
    lengths = np.diff(log.starts)
    log = Log(log.users, log.actions, rewards, log.user_ids, log.action_ids)
    log = log.of_users(np.flatnonzero((lengths >= 12) & (lengths < 30)))
    player = Recording()
    actual = replay({"first": player}, log, offered=5, later=True)
    assert actual.later is not None
    lengths = np.sort(np.diff(log.starts))[::-1]
    told = lengths.min() // 2
    assert actual.later.rounds.tolist() == sorted((lengths - told) // 3, reverse=True)
    # The last session that was played is the later one: rounds with one offer come first.
    assert [actions.shape[1] for actions, _ in player.seen] == [1] * told + [5] * (
        actual.later.rounds.max()
    )
    for i, n_rounds in enumerate(actual.later.rounds):
        shown = [reward[i] for reward in player.rewards[: told + n_rounds]]
        assert len(set(shown)) == len(shown)
        np.testing.assert_array_equal(actual.later.rewards["first"][i, :n_rounds], shown[told:])


def test_later_rounds_count_in_the_lead_and_only_where_sessions_are_short():
    made = generate_arms(n_users=1_600, n_rounds=15, n_states=3, n_actions=8, noise=0.5, seed=7)
    model = GaussianArms(made.means, 0.5, 0.01, made.shares)
    players = {
        "popularity": ScorePlayer(action_averages(made.log)),
        "mmGreedy": PolicyPlayer(mmGreedy(model), 8),
    }
    first = replay(players, made.log)
    both = replay(players, made.log, later=True)
    assert first.later is None
    assert both.later is not None
    difference = both.rewards["mmGreedy"] - both.rewards["popularity"]
    after = both.later.rewards["mmGreedy"] - both.later.rewards["popularity"]
    by_user = (np.nanmean(difference, axis=1) + np.nanmean(after, axis=1)) / 2
    lead = both.lead("mmGreedy", "popularity")
    assert lead == pytest.approx((by_user.mean(), by_user.std(ddof=1) / np.sqrt(len(by_user))))
    # Seven rewards tell more than none: 4 standard errors.
    early, late = first.lead("mmGreedy", "popularity"), both.later.lead("mmGreedy", "popularity")
    assert late.mean - early.mean > 4 * np.hypot(early.stderr, late.stderr)
    long = generate_arms(n_users=40, n_rounds=30, n_states=3, n_actions=8, seed=7).log
    assert replay(players, long, later=True).later is None
    few = generate_arms(n_users=40, n_rounds=3, n_states=3, n_actions=8, seed=7).log
    assert replay(players, few, later=True).later is None  # two rows are left: no round


def test_users_of_several_replays_are_joined():
    players = {"x": ScorePlayer(np.arange(6.0)), "y": ScorePlayer(-np.arange(6.0))}
    whole = ragged_log(n_users=120)
    halves = [whole.of_users(np.arange(60)), whole.of_users(np.arange(60, 120))]
    one, other = (replay(players, half, later=True) for half in halves)
    joined = one.joined([other], ["x", "y"])
    assert len(joined.rounds) == len(one.rounds) + len(other.rounds)
    means = []
    for part, others in ((one, other), (one.later, other.later)):
        sums, rounds = 0.0, 0
        horizon = part.joined([others], ["x", "y"]).horizons[-1]
        for users in (part, others):
            difference = users.rewards["x"][:, :horizon] - users.rewards["y"][:, :horizon]
            sums += np.nansum(difference)
            rounds += np.minimum(users.rounds, horizon).sum()
        means.append(sums / rounds)
    assert joined.lead("x", "y").mean == pytest.approx(np.mean(means))
    assert one.joined([], ["x"]).reward("x", 3) == one.reward("x", 3)


def test_action_averages_shrink_what_is_rare():
    rng = np.random.default_rng(0)
    counts = np.array([500, 500, 500, 2])
    actions = np.repeat(np.arange(4), counts)
    rewards = np.array([0.0, 1.0, 2.0, 5.0])[actions] + rng.normal(size=len(actions))
    ids = tuple(map(str, range(len(actions)))), tuple(map(str, range(4)))
    log = Log(np.arange(len(actions)), actions, rewards, *ids)
    averages = action_averages(log)
    assert averages[:3] == pytest.approx([0, 1, 2], abs=0.15)
    plain = rewards[actions == 3].mean()
    assert rewards.mean() < averages[3] < plain
    flat = Log(np.arange(100), np.arange(100) % 4, rng.normal(size=100), ids[0][:100], ids[1])
    assert np.ptp(action_averages(flat)) < 0.5


def test_chunks_do_not_change_what_is_offered_to_whom(monkeypatch):
    log = ragged_log(n_users=40)
    monkeypatch.setattr(replays, "_CHUNK", 7)
    actual = replay({"x": ScorePlayer(np.arange(6.0))}, log)
    assert actual.rounds.tolist() == sorted(actual.rounds.tolist(), reverse=True)
    assert not np.isnan(actual.rewards["x"][:, 0]).any()
