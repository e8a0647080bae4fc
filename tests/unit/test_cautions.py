"""Each warning of a fit appears where it should, and only there."""

import numpy as np
import pytest

from latentbandits import GaussianArms
from latentbandits.learning.assess.report import cautions
from latentbandits.learning.learners import Learned
from latentbandits.learning.logs.rows import Log


def log_of(users, rewards):
    users = np.asarray(users)
    ids = tuple(map(str, range(users.max() + 1))), ("x", "y")
    return Log(users, np.arange(len(users)) % 2, np.asarray(rewards, float), *ids)


def learned_of(means):
    return Learned(GaussianArms(means, 0.5), None, np.array([10, 10]))


def report(**changes):
    rows = [{"policy": p, "rounds": h, "over_popularity": 0.1, "over_popularity_stderr": 0.01}
            for p in ("mTS",) for h in (10, 20)]  # fmt: skip
    base = {
        "held_out": {"rmse": 0.5, "rmse_of_action_means": 0.6,
                     "coverage": [{"level": 0.9, "covered": 0.91}], "doubts": []},
        "selection": [
            {"states": n, "rank": None, "evidence": -1.0, "chosen": n == 2} for n in (1, 2, 3)
        ],
        "settings": {"asked": {"states": "auto", "rank": "auto"}},
        "judgement": {"verdict": "helps", "sentence": "It helps.", "recommended_policy": "mTS",
                      "horizon": 20, "replay": rows},
    }  # fmt: skip
    return base | changes


GOOD_LOG = log_of([0, 0, 0, 1, 1, 1], [0, 1, 0, 1, 0, 1])
GOOD = learned_of([[1.0, 0.0], [0.0, 1.0]])
WIDE_LOG = Log(np.repeat(np.arange(3), 3), np.tile(np.arange(3), 3), np.arange(9) % 2 * 1.0,
               tuple("uvw"), tuple("abc"))  # fmt: skip


def test_a_good_fit_has_no_warnings():
    assert cautions(GOOD_LOG, GOOD, report()) == []


def test_there_is_no_rank_beyond_that_of_the_matrix():
    assert cautions(GOOD_LOG, GOOD, report(selection=chosen(2, 2))) == []


def chosen(states, rank=None):
    return [
        {"states": n, "rank": r, "evidence": -1.0, "chosen": (n, r) == (states, rank)}
        for n in (1, 2, 3)
        for r in ((None,) if rank is None else (1, 2))
    ]


@pytest.mark.parametrize(
    ("log", "learned", "changes", "message"),
    [
        (log_of([0, 0, 1, 1], [2, 2, 2, 2]), GOOD, {}, "all 4 rewards are 2"),
        (log_of([0, 1, 2, 2], [0, 1, 0, 1]), GOOD, {}, "67% of the users have one row"),
        (GOOD_LOG, GOOD, {"held_out": {"rmse": 0.7, "rmse_of_action_means": 0.6, "coverage": [
            {"level": 0.9, "covered": 0.9}], "doubts": ["it predicts worse"]}}, "predicts worse"),
        (GOOD_LOG, GOOD, {"held_out": {"rmse": 0.5, "rmse_of_action_means": 0.6, "coverage": [
            {"level": 0.5, "covered": 0.95}], "doubts": []}}, "50% intervals hold 95.0%"),
        (GOOD_LOG, GOOD, {"selection": chosen(3)}, "number of states, 3, is the largest"),
        (WIDE_LOG, GOOD, {"selection": chosen(2, 2)}, "rank, 2, is the largest"),
        (GOOD_LOG, learned_of([[1.0, 0.5], [2.0, 1.5]]), {}, "differ by a constant only"),
        (GOOD_LOG, GOOD, {"judgement": report()["judgement"] | {"verdict": "harms"}}, "harms"),
        (GOOD_LOG, GOOD, {"judgement": report()["judgement"] | {"replay": []}}, "three rows"),
    ],
)  # fmt: skip
def test_warnings(log, learned, changes, message):
    actual = cautions(log, learned, report(**changes))
    assert len(actual) == 1
    assert message in actual[0]


def test_a_slow_start_is_said():
    judgement = report()["judgement"]
    judgement["replay"][0] |= {"over_popularity": -0.1}
    assert "starts below" in cautions(GOOD_LOG, GOOD, report(judgement=judgement))[0]


def test_a_number_that_was_asked_for_is_not_at_the_edge():
    settings = {"asked": {"states": 3, "rank": "auto"}}
    assert cautions(GOOD_LOG, GOOD, report(selection=chosen(3), settings=settings)) == []


def test_an_error_that_is_larger_by_chance_is_not_warned_of():
    """A tenth of a percent more than the action's mean, without clear evidence, was a warning."""
    held_out = report()["held_out"] | {"rmse": 0.61, "rmse_of_action_means": 0.6}
    assert cautions(GOOD_LOG, GOOD, report(held_out=held_out)) == []
