"""Theorems 1 and 2, Corollaries 1 and 2: measured regret below the bound on the whole grid."""

import math

import numpy as np
import pytest

from latentbandits import Decision, simulate
from latentbandits.experiments.theory import (
    BoundCheck,
    Cell,
    _claim,
    check_bounds,
    claims,
    regret_bound,
    tightest,
)


class Silent:
    def start(self, description, total):
        self.total, self.seen = total, 0

    def advance(self, steps):
        self.seen += steps


@pytest.fixture(scope="module")
def checks():
    progress = Silent()
    actual = check_bounds(seed=1, executor=None, progress=progress, runs=60, horizon=100)
    assert progress.seen == progress.total == 36
    return actual


def test_every_theorem_holds_on_every_problem(checks):
    assert len(checks) == 4 * 18
    for claim in claims(checks):
        assert claim.holds is True, claim


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
    check = BoundCheck("Theorem 1", "mUCB", cell, results["uniform"].regret, bound)
    assert _claim("mUCB", [check]).holds is False
