"""Simulation: common random numbers, any executor, and statistics that match their definitions."""

from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import numpy as np
import pytest

from latentbandits import (
    TS,
    UCB1,
    Decision,
    GaussianArms,
    LinearGaussian,
    mmBayesUCB,
    mmGreedy,
    mmTS,
    mTS,
    mUCB,
    simulate,
)
from latentbandits.environments import Round, Synthetic, UsersOfModel
from latentbandits.simulation import pool
from latentbandits.simulation.simulate import CHUNK, lower_tail_terms

POLICIES = {"mTS": mTS, "UCB1": UCB1(10), "mUCB": partial(mUCB, horizon=20)}
ENVIRONMENT = Synthetic(model_noise=0.1)


def run(policies=POLICIES, n_runs=CHUNK + 30, horizon=20, **options):
    return simulate(policies, ENVIRONMENT, n_runs=n_runs, horizon=horizon, **options)


def same(a, b, names=POLICIES):
    return all(
        np.array_equal(a[name].regrets, b[name].regrets)
        and np.array_equal(a[name].curve, b[name].curve)
        and np.array_equal(a[name].worst_curve, b[name].worst_curve)
        for name in names
    )


def test_the_same_seed_gives_the_same_numbers():
    assert same(run(seed=3), run(seed=3))
    assert not same(run(seed=3), run(seed=4))


def test_numbers_do_not_depend_on_the_executor():
    alone = run()
    with ThreadPoolExecutor(3) as threads:
        assert same(alone, run(executor=threads))
    with ProcessPoolExecutor(2) as processes:
        assert same(alone, run(executor=processes))


def test_adding_a_policy_changes_no_other():
    more = run(POLICIES | {"TS": TS(10)})
    assert same(run(), more)


def test_all_policies_meet_the_same_problems():
    results = run()
    best = [result.regrets + 20 * result.rewards for result in results.values()]
    for other in best[1:]:
        np.testing.assert_allclose(best[0], other)


def test_progress_counts_runs():
    seen = []
    run(progress=seen.append)
    assert seen == [CHUNK, 30]


@dataclass(frozen=True)
class AlwaysFirst:
    """A policy of a user's own: one class, three methods."""

    def init(self, n_sessions=1):
        return (np.zeros(n_sessions),)

    def decide(self, belief, context, rng, *, eligible=None, propensity=True):
        n = len(belief[0])
        return Decision(np.zeros(n, np.int64), np.zeros(n, np.int64), None, "none", "AlwaysFirst")

    def update(self, belief, context, decision, reward):
        return (belief[0] + reward,)


@dataclass(frozen=True)
class Countdown:
    """An environment of a user's own: run i pays i + t for action 0, nothing for the other."""

    def start(self, n_runs, horizon, rng):
        return CountdownRuns(n_runs)


@dataclass(frozen=True)
class CountdownRuns:
    n_runs: int
    model: None = None

    def round(self, t, rng):
        means = np.stack([np.arange(self.n_runs) + float(t), np.zeros(self.n_runs)], axis=1)
        return Round(None, means, means)


def test_statistics_by_hand():
    """Ten runs of three rounds: run i earns i, i+1, i+2, so its mean is i + 1 and regret 0."""
    result = simulate({"first": AlwaysFirst()}, Countdown(), n_runs=10, horizon=3)["first"]
    np.testing.assert_allclose(result.rewards, np.arange(10) + 1.0)
    np.testing.assert_allclose(result.regrets, 0)
    np.testing.assert_allclose(result.curve, [4.5, 5.5, 6.5])
    np.testing.assert_allclose(result.curve_stderr, np.std(np.arange(10), ddof=1) / np.sqrt(10))
    np.testing.assert_allclose(result.worst_curve, [0.0, 1.0, 2.0])
    assert str(result.worst_decile_reward) == "too few runs"
    assert np.isnan(result.row()["worst_decile_reward_stderr"])
    assert result.first_rounds_reward.mean == pytest.approx(4.5)  # one round: half of three
    assert result.last_rounds_reward.mean == pytest.approx(6.5)
    assert result.windows == (1, 1)


@pytest.mark.parametrize(
    ("requested", "horizon", "windows"),
    [
        ((50, 100), 500, (50, 100)),
        ((50, 100), 60, (30, 30)),
        ((3, 2), 10, (3, 2)),
        ((1, 1), 1, (1, 1)),
    ],
)
def test_windows_are_never_wider_than_half_the_horizon(requested, horizon, windows):
    first, last = requested
    result = simulate(
        {"first": AlwaysFirst()}, Countdown(), n_runs=3, horizon=horizon, first_rounds=first,
        last_rounds=last,
    )["first"]  # fmt: skip
    assert result.windows == windows
    assert (result.row()["first_rounds"], result.row()["last_rounds"]) == windows
    np.testing.assert_allclose(result.first_rewards, np.arange(3) + (windows[0] - 1) / 2)
    np.testing.assert_allclose(result.last_rewards, np.arange(3) + horizon - (windows[1] + 1) / 2)


def test_the_worst_decile_over_many_chunks():
    """The curve of the runs that end lowest, against keeping every trajectory."""
    n_runs = 4 * CHUNK + 17
    results = run({"UCB1": UCB1(10)}, n_runs=n_runs, horizon=5)["UCB1"]
    n_worst = int(np.ceil(0.1 * n_runs))
    lowest = np.sort(results.rewards)[:n_worst]
    assert results.worst_curve.mean() == pytest.approx(lowest.mean(), abs=1e-6)
    tail = (lowest[:-1].sum() + (0.1 * n_runs + 1 - n_worst) * lowest[-1]) / (0.1 * n_runs)
    assert results.worst_decile_reward.mean == pytest.approx(tail)


def test_the_worst_decile_of_pooled_runs_counts_the_runs_of_each_part():
    parts = [run({"UCB1": UCB1(10)}, n_runs=40, horizon=5, seed=seed) for seed in (0, 1)]
    assert str(pool(parts)["UCB1"].worst_decile_reward) == "too few runs"


def test_the_error_of_the_worst_decile():
    """Against the spread over 400 repetitions, within 15%: a naive error is off by far more."""
    rng = np.random.default_rng(0)
    means, errors, naive = [], [], []
    for _ in range(400):
        values = rng.normal(size=1000)
        terms = lower_tail_terms(values)
        means.append(terms.mean())
        errors.append(terms.std(ddof=1) / np.sqrt(1000))
        naive.append(np.sort(values)[:100].std(ddof=1) / np.sqrt(100))
    assert np.mean(errors) == pytest.approx(np.std(means), rel=0.15)
    assert np.mean(naive) != pytest.approx(np.std(means), rel=0.15)


def test_paired_differences_are_sharper():
    results = run(n_runs=1000)
    paired = results.difference("mTS", "UCB1")
    a, b = results["mTS"].regret, results["UCB1"].regret
    assert paired.mean == pytest.approx(a.mean - b.mean)
    worst = results.difference("mTS", "UCB1", "worst_decile_reward")
    ours, theirs = (results[name].worst_decile_reward for name in ("mTS", "UCB1"))
    assert worst.mean == pytest.approx(ours.mean - theirs.mean)
    assert worst.stderr < np.hypot(ours.stderr, theirs.stderr)


def test_frames():
    results = run(n_runs=20)
    assert results.frame().columns[:3] == ["policy", "regret", "regret_stderr"]
    curves = results.curves()
    assert curves.columns == ["policy", "round", "mean", "stderr", "worst_decile_mean"]
    assert len(curves) == len(POLICIES) * 20


def test_synthetic_problems_are_the_papers():
    instances = Synthetic(model_noise=0.2).start(2000, 10, np.random.default_rng(0))
    ordered = np.sort(instances.means, axis=2)
    assert (ordered[..., -1] - ordered[..., -2] >= 0.1).all()
    assert ((instances.means >= 0) & (instances.means <= 1)).all()
    errors = instances.model.means - instances.means
    assert errors.std() == pytest.approx(0.2, rel=0.01)
    assert abs(errors.mean()) < 5 * 0.2 / np.sqrt(errors.size)
    assert np.bincount(instances.state, minlength=5).min() > 300
    outcome = instances.round(0, np.random.default_rng(1))
    assert (outcome.rewards - outcome.means).std() == pytest.approx(0.5, rel=0.02)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(policies={}), "give at least one policy"),
        (dict(n_runs=0), "n_runs must be a whole number"),
        (dict(horizon=0), "horizon must be a whole number"),
    ],
)
def test_bad_simulations(options, message):
    with pytest.raises(ValueError, match=message):
        run(**options)


def test_rewards_by_pull_pair_policies_more_closely():
    """Neighbouring quantiles on fixed arms: equal means, and a difference that varies less.

    300 users each way; means within four standard errors. Where a context is drawn in every round
    the rewards of an action are not repeated, and the option changes nothing.
    """
    model = GaussianArms([[0.9, 0.5, 0.4], [0.3, 0.5, 0.6]], noise=0.5, spread=0.2)
    policies = {f"{q}": mmBayesUCB(model, q) for q in (0.9, 0.95)}
    plain, paired = (
        simulate(policies, UsersOfModel(model), n_runs=300, horizon=60, seed=4, by_pull=by_pull)
        for by_pull in (False, True)
    )
    for q in policies:
        error = np.hypot(plain[q].regret.stderr, paired[q].regret.stderr)
        assert abs(plain[q].regret.mean - paired[q].regret.mean) < 4 * error
    plain_error, error = (actual.difference("0.95", "0.9").stderr for actual in (plain, paired))
    assert error < 0.8 * plain_error
    linear = LinearGaussian([[1.0, 0.0]], 0.5, [0.2 * np.eye(2)])
    users = UsersOfModel(linear, np.random.default_rng(0).normal(size=(9, 2)), offered=3)
    actual = [
        simulate({"mmTS": mmTS(linear)}, users, n_runs=20, horizon=5, by_pull=by_pull)
        for by_pull in (False, True)
    ]
    np.testing.assert_array_equal(actual[0]["mmTS"].regrets, actual[1]["mmTS"].regrets)


def test_without_replacement_every_action_is_played_once():
    model = GaussianArms([[0.9, 0.5, 0.1], [0.2, 0.4, 0.8]], noise=0.1, spread=0.05)
    users = UsersOfModel(model)
    policies = {"mmGreedy": mmGreedy(model), "mmTS": mmTS(model)}

    played = simulate(policies, users, n_runs=50, horizon=3, replacement=False, by_pull=True)

    for name in policies:  # whoever plays all actions once has the same total as the best order
        assert np.abs(played[name].regrets).max() < 1e-6
    one = simulate(policies, users, n_runs=50, horizon=1, replacement=False)
    again = simulate(policies, users, n_runs=50, horizon=1)
    assert (one["mmTS"].rewards == again["mmTS"].rewards).all()
    with pytest.raises(ValueError, match="ends after 3 rounds"):
        simulate(policies, users, n_runs=5, horizon=4, replacement=False)
    with pytest.raises(ValueError, match="lists are shown with replacement"):
        simulate(policies, users, n_runs=5, horizon=1, replacement=False, length=2)
