"""Groups are compared by intervals that hold at every look, and for all groups together."""

from __future__ import annotations

import math

import numpy as np
import pytest

from latentbandits.evaluation.intervals import sequence_interval
from latentbandits.serving.engine.statistics import Statistics
from latentbandits.serving.http.views import _round_view, band, differences
from latentbandits.testing.stores import decision, session


def statistics_of(rewards: dict[str, np.ndarray]) -> Statistics:
    """Sessions of one reward each."""
    totals = Statistics()
    for group, values in rewards.items():
        for value in values.tolist():
            totals.rewarded(session(1, "ann", group=group), decision(1, 1), value)
    return totals


def test_a_groups_interval_is_the_confidence_sequence_of_its_sessions() -> None:
    values = np.random.default_rng(0).random(400)
    mean = statistics_of({"policy": values}).group("policy").session_mean()
    assert mean is not None
    actual = band(*mean)
    expected = sequence_interval(float(values.mean()), values)
    assert (actual.low, actual.high) == pytest.approx((expected.low, expected.high), abs=1e-12)


def test_a_difference_by_hand() -> None:
    rng = np.random.default_rng(1)
    rewards = {"policy": rng.random(300), "a": rng.random(100), "b": rng.random(50)}
    actual = differences(statistics_of(rewards), list(rewards))
    assert [one.group for one in actual] == ["a", "b"]
    for one in actual:
        theirs, ours = rewards[one.group], rewards["policy"]
        n, alpha = len(ours) + len(theirs), 0.05 / 2
        error = math.sqrt(ours.var(ddof=1) / len(ours) + theirs.var(ddof=1) / len(theirs))
        h2 = (-2 * math.log(alpha) + math.log(1 - 2 * math.log(alpha))) / 5_000
        width = (
            error
            * math.sqrt(n)
            * math.sqrt(2 * (n * h2 + 1) / (n**2 * h2) * math.log(math.sqrt(n * h2 + 1) / alpha))
        )
        assert one.mean == pytest.approx(ours.mean() - theirs.mean())
        assert one.low == pytest.approx(one.mean - width)
        assert one.high == pytest.approx(one.mean + width)


@pytest.mark.parametrize("value", [0.0, 0.1])
def test_equal_rewards_have_no_interval(value: float) -> None:
    """Forty impressions without a click do not say that the click rate is 0."""
    totals = statistics_of({"policy": np.full(40, value), "a": np.array([0.0, 1.0])})
    group = totals.group("policy")
    assert group.session_mean() == (pytest.approx(value), math.inf, 40)
    reward = _round_view(1, group.rounds[0]).reward
    assert reward is not None
    assert (reward.mean, reward.low, reward.high) == (pytest.approx(value), None, None)
    [difference] = differences(totals, ["policy", "a"])
    assert (difference.low, difference.high) == (None, None)


def miss_rate(width_of: str, runs: int = 300, sessions: int = 400, seed: int = 2) -> float:
    """The share of runs in which an interval at any look after 50 sessions misses the truth."""
    rng = np.random.default_rng(seed)
    missed = 0
    for _ in range(runs):
        values = rng.normal(size=sessions)
        n = np.arange(1, sessions + 1)
        means = values.cumsum() / n
        deviation = np.sqrt(np.maximum((values**2).cumsum() / n - means**2, 0) * n / (n - 1 + 1e-9))
        if width_of == "normal":
            widths = 1.96 * deviation / np.sqrt(n)
        else:
            widths = np.array(
                [
                    (band(0.0, d / math.sqrt(k), int(k)).high or 0.0) if k > 1 else 0.0
                    for k, d in zip(n, deviation, strict=True)
                ]
            )
        missed += bool((np.abs(means[50:]) > widths[50:]).any())
    return missed / runs


def test_looking_at_every_session_misses_rarely_and_a_normal_interval_often() -> None:
    """300 runs at 5 %: more than 26 misses of the sequence have probability below 0.003."""
    assert miss_rate("sequence") <= 26 / 300
    assert miss_rate("normal") > 0.15  # the planted error
