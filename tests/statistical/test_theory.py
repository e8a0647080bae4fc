"""Theorems 1 and 2, Corollaries 1 and 2: measured regret below the bound on the whole grid."""

import math
from argparse import Namespace
from dataclasses import replace

import numpy as np
import pytest

from latentbandits import Decision, simulate
from latentbandits.experiments.experiment import Work
from latentbandits.experiments.theory import (
    BoundCheck,
    Cell,
    _claim,
    check_bounds,
    claims,
    regret_bound,
    tightest,
)
from latentbandits.report.report import Estimate


class Silent:
    def start(self, description, total):
        self.total, self.seen = total, 0

    def advance(self, steps):
        self.seen += steps


@pytest.fixture(scope="module")
def checks():
    progress = Silent()
    work = Work(Namespace(seed=1, horizon=500), None, progress)
    actual = check_bounds(work, runs=30)
    assert progress.seen == progress.total == 72
    return actual


@pytest.mark.slow
def test_every_theorem_holds_where_its_bound_says_something(checks):
    """Uniform play keeps the bounds of short or noisy problems: those problems test nothing."""
    assert len(checks) == 4 * 36
    by_id = {claim.id: claim for claim in claims(checks)}
    for name in ("T1", "C1"):
        assert by_id[name].holds is True, by_id[name]
    for name, policy in (("T2", "mmUCB"), ("C2", "mmTS")):
        tested = [check for check in checks if check.policy == policy and check.informative]
        assert by_id[name].holds is (True if tested else None), by_id[name]
        assert tested or "not informative at these sizes" in by_id[name].measured


@pytest.mark.slow
def test_uniform_play_fails_every_claim_that_is_kept(checks):
    """With 2,000 drawn problems, uniform play's regret is known to about 1%."""
    uniform = [replace(check, regret=Estimate(check.uniform, 0.0)) for check in checks]
    kept = [claim for claim in claims(checks) if claim.holds is not None]
    failed = {claim.id for claim in claims(uniform) if claim.holds is False}
    assert len(kept) >= 2
    assert {claim.id for claim in kept} == failed


def test_the_regret_of_uniform_play_is_that_of_a_simulation():
    cell = Cell(n_states=2, n_actions=5, horizon=500, noise=0.2, model_noise=0.0)
    regret = simulate({"uniform": Uniform()}, cell.environment, n_runs=400, horizon=500)
    estimate = regret["uniform"].regret
    spread = 4 * math.hypot(estimate.stderr, estimate.stderr * math.sqrt(400 / 4000))
    assert abs(cell.uniform_regret(seed=1) - estimate.mean) < spread


def test_the_bound_by_hand():
    # 3 * 5 + 2 * 0.5 * sqrt(6 * 5 * 500 * log 500) = 15 + sqrt(15000 * 6.2146) = 15 + 305.32.
    assert regret_bound(5, 500, 0.5) == pytest.approx(320.3, abs=0.1)
    assert regret_bound(5, 500, 0.5, epsilon=0.1, delta=0.01) == pytest.approx(425.3, abs=0.1)


def test_epsilon_and_delta_are_as_measured():
    cell = Cell(5, 10, 500, 0.5, model_noise=0.05)
    epsilon, delta = cell.misspecification(seed=3)
    instances = cell.environment.start(4000, 500, np.random.default_rng(99))
    errors = np.abs(instances.model.means - instances.means).max(axis=(1, 2))
    # On fresh models the largest error exceeds epsilon with probability delta: 5 standard errors.
    spread = math.sqrt(delta * (1 - delta) / 2000 + delta * (1 - delta) / 4000)
    assert abs((errors > epsilon).mean() - delta) < 5 * spread
    assert tightest(np.array([0.2, 0.2]), 10) == (0.2, 0.0)


class Uniform:
    """Learns nothing: its regret grows with the horizon."""

    def init(self, n_sessions=1):
        return (np.zeros(n_sessions),)

    def decide(self, belief, context, rng, *, eligible=None, propensity=True):
        action = rng.integers(5, size=len(belief[0]))
        return Decision(action, np.zeros_like(action), None, "none", "Uniform")

    def update(self, belief, context, decision, reward):
        return belief


def test_a_policy_that_does_not_learn_breaks_the_bound():
    cell = Cell(n_states=2, n_actions=5, horizon=500, noise=0.2, model_noise=0.0)
    results = simulate({"uniform": Uniform()}, cell.environment, n_runs=100, horizon=500)
    bound = regret_bound(cell.n_states, cell.horizon, cell.noise)
    regret = results["uniform"].regret
    check = BoundCheck("Theorem 1", "mUCB", cell, regret, bound, cell.uniform_regret(seed=0))
    assert _claim("mUCB", [check]).holds is False
