"""Values that people write in logs, and what they are told."""

import numpy as np
import pytest

from latentbandits.learning.backends.backend import engine_of
from latentbandits.learning.backends.opening import Opening, read_interactions
from latentbandits.learning.fitting import fit
from latentbandits.learning.learners import Split
from latentbandits.learning.linear.learner import LinearLearner
from latentbandits.learning.logs.rows import read_log
from latentbandits.learning.logs.tables import LogError


@pytest.mark.parametrize(
    ("rewards", "advice"),
    [
        (["yes", "no", "yes"], "Write 1 for yes/y and 0 for no/n"),
        (["1", "$4.50", "2"], "Write '4.50' for '$4.50': no currency"),
        (["1", "1,200.5 €", "2"], "Write '1200.5' for '1,200.5 €': no currency"),
        (["1", "7,807.50", "2"], "Write '7807.50' for '7,807.50': no separator of thousands"),
        (["1", "12%", "2"], "Write '0.12' for '12%': shares as numbers"),
        (["1", "4,5", "2"], "Write '4.5' for '4,5': a point before decimals"),
        (["1", "good", "2"], "Mend or drop those rows"),
        ([1.0, 1e300, 2.0], "r is beyond 1e.100 in 1 of 3 rows; the first is .*: 1e.300"),
    ],
)
def test_rewards_that_are_no_numbers_name_a_conversion(rewards, advice):
    table = {"u": [1, 2, 3], "a": ["x", "y", "x"], "r": rewards}
    with pytest.raises(LogError, match=advice.replace("$", r"\$").replace("(", r"\(")):
        read_log(table, "u", "a", "r")


def test_exports_name_a_conversion_too():
    table = {"decision_id": ["a", "b"], "session": ["x", "y"], "action": ["1", "2"]}
    with pytest.raises(LogError, match=r"row 2: '4,5'\. Write '4\.5'"):
        read_interactions(table | {"reward": ["1", "4,5"]}, Opening())


@pytest.mark.parametrize(
    ("times", "first"),
    [
        (["2024-01-31", "2024-02-01", "01/31/2024"], "01/31/2024"),
        (["2024-01-31", "2024-2-1", "2024-02-02"], "2024-2-1"),  # as text it is after 2024-10-01
        (["2024-01-31T10:00:00", "2024-01-31 09:00:00", "2024-02-01T10:00:00"], "2024-01-31 09"),
    ],
)
def test_dates_that_are_not_written_alike_are_refused(times, first):
    table = {"u": [1, 1, 2], "a": ["x", "y", "x"], "r": [1, 0, 1], "t": times}
    with pytest.raises(LogError, match=f"{first}.*Write all dates alike"):
        read_log(table, "u", "a", "r", order="t")


def test_dates_with_and_without_fractions_of_seconds_are_alike():
    times = ["2024-01-31 10:00:01", "2024-01-31 10:00:00.25", "2024-01-31 10:00:00"]
    table = {"u": [1, 1, 1], "a": ["x", "y", "z"], "r": [1, 0, 1], "t": times}
    log = read_log({**{k: [*v, v[0]] for k, v in table.items()}, "u": [1, 1, 1, 2]},
                   "u", "a", "r", order="t")  # fmt: skip
    assert [log.action_ids[a] for a in log.actions] == ["z", "y", "x", "x"]


def test_the_grid_of_a_regularisation_grows_while_the_evidence_rises():
    """Clicks without any tastes want a stronger penalty than the grid has; no warning is left."""
    rng = np.random.default_rng(0)
    users = np.repeat(np.arange(400), 12)
    table = {"u": users, "a": rng.integers(0, 60, 4800), "r": (rng.random(4800) < 0.3) * 1}
    log = read_log(table, "u", "a", "r")
    kept, held_out = (log.of_users(part) for part in (np.arange(320), np.arange(320, 400)))
    learner = LinearLearner(rank=1, rewards="bernoulli", weighting="plain")
    chosen = learner.select(Split(engine_of(kept), held_out), (1,))
    assert chosen.learner.reg > 30
    assert not any("--reg" in text for text in chosen.warnings) or chosen.learner.reg > 1_000


def test_the_rank_of_a_small_menu_may_be_its_largest():
    """Independent tastes for four actions: the grid ends at rank 2, and 4 is the largest."""
    rng = np.random.default_rng(1)
    n = 500
    rewards = rng.standard_normal((n, 4)) * 2
    twice = np.concatenate([rewards, rewards], axis=1).ravel()
    table = {
        "u": np.repeat(np.arange(n), 8),
        "a": np.tile(np.arange(4), 2 * n),
        "r": twice + 0.3 * rng.standard_normal(8 * n),
    }
    log = read_log(table, "u", "a", "r")
    report = fit(log, kind="linear", bootstrap=0, assess=False).report
    assert 4 in [row["rank"] for row in report["selection"]]
    assert max(row["evidence"] for row in report["selection"] if row["rank"] == 4) > max(
        row["evidence"] for row in report["selection"] if row["rank"] == 2
    )
    assert not any("--rank" in text for text in report["warnings"])
