"""Errors of the record are set aside and named; tails and jackpots are kept."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from evidence.rewards import KINDS, generate

from latentbandits import GaussianArms, load
from latentbandits.cli import main
from latentbandits.learning import fit
from latentbandits.learning.backends.backend import engine_of
from latentbandits.learning.rewards import bulk_of, without_outliers

CLEAN = generate("clean", seed=1).log


def found_in(rewards):
    return without_outliers(engine_of(replace(CLEAN, rewards=rewards)), 0)


@pytest.mark.parametrize("kind", KINDS["contaminated"])
def test_contaminated_logs_keep_their_states(kind):
    """Without the search for outliers, 8 to 10 states are learned."""
    problem = generate(kind, seed=2)
    actual = fit(problem.log, bootstrap=2, assess=False)
    assert isinstance(actual.model, GaussianArms)
    assert actual.model.n_states == 3
    assert "rewards are outliers" in actual.report["warnings"][0]
    means = actual.model.expected_rewards(None)[0]
    for mine in means:
        nearest = np.abs(problem.means - mine).sum(axis=1).argmin()
        assert np.abs(mine - problem.means[nearest]).max() < 0.25


def test_the_location_is_that_of_a_textbook_loop():
    log = generate("huge", seed=0, n_users=30, n_actions=1).log
    location, scale = np.median(log.rewards), 1.0
    for _ in range(500):
        weights = [5 / (4 + ((r - location) / scale) ** 2) for r in log.rewards]
        location = np.average(log.rewards, weights=weights)
        scale = np.sqrt(np.average((log.rewards - location) ** 2, weights=weights))
    actual = bulk_of(log)
    assert actual.location[0] == pytest.approx(location, rel=1e-6)
    assert actual.scale == pytest.approx(scale, rel=1e-6)


@pytest.mark.parametrize("value", [1e9, -40.0, 100.0])
@pytest.mark.parametrize("row", [0, 505, 11_999])
def test_a_lone_value_is_set_aside(value, row):
    rewards = CLEAN.rewards.copy()
    rewards[row] = value
    others, found = found_in(rewards)
    assert others.n_events == CLEAN.n_events - 1
    assert f"{value:g}, of user {CLEAN.users[row]} for action {CLEAN.actions[row]}" in (
        found.warning(None)
    )


@pytest.mark.parametrize("names", [("u", "a", "r"), ("user", "action", "reward")])
def test_a_lone_value_is_named_by_its_row(tmp_path, capsys, names):
    """Also where the columns have the default names, and no option names them."""
    log = generate("clean", seed=1, n_users=60).log
    rewards = log.rewards.copy()
    rewards[41] = 1e9
    table = dict(zip(names, (log.users, log.actions, rewards), strict=True))
    pl.DataFrame(table).write_csv(tmp_path / "log.csv")
    columns = ["--states", "1", "--quick"]
    if names[0] == "u":
        columns += ["--user", "u", "--action", "a", "--reward", "r"]
    out = tmp_path / "model"
    assert main(["fit", str(tmp_path / "log.csv"), *columns, "--out", str(out)]) == 0
    captured = capsys.readouterr()
    printed = " ".join((captured.out + captured.err).split())
    assert "1 of 1,200 rewards is an outlier" in printed
    assert "row 42" in printed
    assert "log.csv: 1e+09" in printed
    assert np.abs(load(out).means).max() < 2


TAILS = {
    "student": lambda rng, n: rng.standard_t(2, n),
    "cauchy": lambda rng, n: rng.standard_cauchy(n),
    "lognormal": lambda rng, n: rng.lognormal(0, 2, n),
    "exponential": lambda rng, n: rng.exponential(size=n),
    "zeros": lambda rng, n: np.where(rng.random(n) < 0.97, 0.0, rng.lognormal(3, 1, n)),
    "clicks": lambda rng, n: (rng.random(n) < 0.03).astype(float),
}


@pytest.mark.parametrize("tail", TAILS)
def test_a_tail_is_kept(tail):
    rewards = TAILS[tail](np.random.default_rng(0), CLEAN.n_events)
    assert found_in(rewards)[1] is None


def test_jackpots_of_some_actions_are_kept_and_named():
    rng = np.random.default_rng(0)
    jackpot = (CLEAN.actions == 2) & (rng.random(CLEAN.n_events) < 0.15)
    others, found = found_in(np.where(jackpot, 20.0, CLEAN.rewards))
    assert others.n_events == CLEAN.n_events
    assert "so they were kept" in found.warning(None)
