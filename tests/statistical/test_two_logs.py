"""Two logs of one population, each estimated from the other: the policy is a fixed distribution.

40 pairs of logs, both directions. A 95% interval that holds 95% of the time misses 10 or more of 80
with a chance of less than .6%; a distribution without positions misses most of them.
"""

import json
import os
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from latentbandits.cli import main
from latentbandits.evaluation import EvaluationError, evaluate
from latentbandits.evaluation.distribution import (
    TARGET,
    FixedDistribution,
    against_own_rewards,
    read_distribution,
    read_fixed,
)
from latentbandits.evaluation.log import Columns
from latentbandits.evaluation.reading import read_decisions
from latentbandits.models.artefacts import Catalogue

COLUMNS = Columns(session="none")
CLICKS = np.array([[0.5, 0.2, 0.1], [0.1, 0.3, 0.6]])  # of three actions at two positions
POLICIES = (
    np.array([[0.2, 0.3, 0.5], [0.5, 0.3, 0.2]]),
    np.array([[0.6, 0.3, 0.1], [0.1, 0.2, 0.7]]),
)


def log_of(chances, n, rng):
    position = rng.integers(2, size=n)
    action = (rng.random(n)[:, None] > chances[position].cumsum(axis=1)).sum(axis=1)
    return pl.DataFrame(
        {
            "action": [f"item {a}" for a in action],
            "position": position + 1,
            "reward": (rng.random(n) < CLICKS[position, action]).astype(float),
            "propensity": chances[position, action],
        }
    )


def compared(log, target, position):
    given = read_fixed(log, COLUMNS, position, target_log=target)
    catalogue = Catalogue(given.actions)
    read, other = (
        read_decisions(table, catalogue=catalogue, columns=COLUMNS).log
        for table in (given.decisions, given.target)
    )
    evaluation = evaluate(given.policies(catalogue.ids, read), read, estimators=["IPS", "SNIPS"])
    return against_own_rewards(evaluation, other)


def misses(position, estimator):
    count = 0
    for i in range(40):
        rng = np.random.default_rng([3, i])
        logs = [log_of(chances, 1500, rng) for chances in POLICIES]
        for log, target in (logs, logs[::-1]):
            row = next(r for r in compared(log, target, position) if r["estimator"] == estimator)
            count += not row["low"] <= 0 <= row["high"]
    return count


@pytest.mark.parametrize("estimator", ["IPS", "SNIPS"])
def test_each_log_tells_what_the_other_earned(estimator):
    assert misses("position", estimator) < 10


def test_without_positions_it_would_not():
    assert misses(None, "SNIPS") > 40


def test_a_distribution_is_read_and_evaluated_by_the_command(tmp_path, capsys):
    rng = np.random.default_rng(5)
    log_of(POLICIES[0], 5000, rng).write_csv(tmp_path / "log.csv")
    rows = [
        (f"item {a}", position + 1, POLICIES[1][position, a])
        for position in range(2)
        for a in range(3)
    ]
    names = ["action", "position", "probability"]
    pl.DataFrame(rows, names, orient="row").write_csv(tmp_path / "distribution.csv")
    words = [
        "evaluate",
        str(tmp_path / "log.csv"),
        "--session",
        "none",
        "--out",
        str(tmp_path / "o"),
    ]
    words += ["--distribution", str(tmp_path / "distribution.csv"), "--against", "logged"]
    assert main([*words, "--position", "position"]) == 0
    rows = json.loads((tmp_path / "o" / "results.json").read_text())["estimates"]
    truth = float((POLICIES[1] * CLICKS).sum() / 2)
    row = next(r for r in rows if r["policy"] == "distribution" and r["estimator"] == "SNIPS")
    assert row["low"] < truth < row["high"]
    assert main(words) == 2
    assert "name the log's column of positions with --position" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"action": ["a", "b"], "probability": [0.5, 0.6]}, "sum to 1.1"),
        ({"action": ["a", "a"], "probability": [0.5, 0.5]}, "'a' more than once"),
        ({"action": ["a", "b"], "probability": [1.5, -0.5]}, "'b' the probability -0.5"),
        ({"action": ["a", "b"], "probability": ["x", "1"]}, "must hold numbers"),
        (
            {"action": ["a", "b"], "position": ["1", "2"], "probability": [1.0, 0.9]},
            "at position 2 sum to 0.9",
        ),
    ],
)
def test_a_bad_distribution_is_refused(table, message):
    with pytest.raises(EvaluationError, match=message):
        read_distribution(table)


def test_actions_that_the_log_never_has_are_named():
    log = {"action": ["a", "b"], "reward": [1.0, 0.0], "propensity": [0.5, 0.5]}
    given = read_fixed(
        log, COLUMNS, distribution={"action": ["a", "c"], "probability": [0.75, 0.25]}
    )
    assert given.actions == ("a", "b", "c")
    assert (
        "25% of the decisions of distribution are actions that the log never has"
        in (given.warnings[0])
    )
    policy = FixedDistribution(np.array([1.0, 0.0]))
    with pytest.raises(EvaluationError, match="chance 0"):
        policy.action_probabilities(policy.init(), None, None, eligible=np.array([[False, True]]))


OPEN_BANDIT = Path(os.environ.get("OPEN_BANDIT_MEN", "../shared/data/open-bandit-men"))


@pytest.mark.skipif(not OPEN_BANDIT.is_dir(), reason="set OPEN_BANDIT_MEN to its folder")
@pytest.mark.parametrize("names", [("uniform", "thompson"), ("thompson", "uniform")])
def test_open_bandit_both_ways(names):
    columns = Columns(
        session="none", action="item_id", reward="click", propensity="propensity_score"
    )
    log, target = (str(OPEN_BANDIT / f"{name}.csv") for name in names)
    given = read_fixed(log, columns, "position", target_log=target)
    catalogue = Catalogue(given.actions)
    read, other = (
        read_decisions(table, catalogue=catalogue, columns=columns).log
        for table in (given.decisions, given.target)
    )
    assert set(given.shares) == {TARGET}
    evaluation = evaluate(given.policies(catalogue.ids, read), read, estimators=["IPS", "SNIPS"])
    for row in against_own_rewards(evaluation, other):
        assert row["low"] <= 0 <= row["high"], row
