"""The yardstick: the dynamic programme against enumeration, policies through it, its claims."""

import itertools

import numpy as np
import pytest
from evidence.optimum import NAMED, Problem, Programme, claims, measure, policies, random_problems

from latentbandits import mLookahead, mmGreedy, mmTS, mTS, mUCB
from latentbandits.environments.from_model import UsersOfModel
from latentbandits.simulation import simulate

RATES = np.array([[0.7, 0.2], [0.3, 0.6]])


def small(spread, horizon):
    return Problem("small", RATES, np.array([0.4, 0.6]), spread, horizon)


def best_by_enumeration(problem, n):
    """The largest expected reward of n rounds over all deterministic trees of decisions."""
    arms = problem.arms

    def value(alpha, beta, weights, left):
        if left == 0:
            return 0.0
        rates = RATES if problem.known else alpha / (alpha + beta)
        totals = []
        for arm in range(2):
            total = 0.0
            for reward in (0, 1):
                likelihood = rates[:, arm] if reward else 1 - rates[:, arm]
                joint = weights * likelihood
                more = (alpha.copy(), beta.copy())
                more[1 - reward][:, arm] += 1
                total += joint.sum() * (reward + value(*more, joint / joint.sum(), left - 1))
            totals.append(total)
        return max(totals)

    return value(arms.alpha, arms.beta, problem.prior, n)


@pytest.mark.parametrize("spread", [0.0, 0.2])
def test_the_optimum_by_enumeration(spread):
    problem = small(spread, 5)
    assert Programme(problem).optimum == pytest.approx(best_by_enumeration(problem, 5), rel=1e-12)


@pytest.mark.parametrize("spread", [0.0, 0.2])
def test_policies_by_simulation(spread):
    """Exact regrets against 5,000 runs: four standard errors; the optimum is below all."""
    problem = small(spread, 8)
    programme = Programme(problem)
    model = problem.model
    made = {"mTS": mTS(model), "greedy": mmGreedy(model), "look": mLookahead(model, horizon=8)}
    users = UsersOfModel(model)
    results = simulate(made, users, n_runs=5_000, horizon=8, seed=1)
    for name, policy in made.items():
        exact = programme.regret(policy)
        assert exact >= programme.optimal_regret - 1e-12
        actual = results[name].regret
        assert abs(actual.mean - exact) < 4 * actual.stderr


def test_lookahead_over_the_whole_horizon_is_optimal():
    for spread in (0.0, 0.2):
        programme = Programme(small(spread, 4))
        policy = mLookahead(programme.problem.model, steps=4, horizon=4)
        assert programme.regret(policy) == pytest.approx(programme.optimal_regret, rel=1e-10)


def test_policies_that_cannot_be_propagated():
    model = small(0.2, 5).model
    assert Programme(small(0.2, 5)).regret(mUCB(model)) is None
    assert Programme(small(0.2, 5)).regret(mmTS(model)) is None  # draws would have to be counted


def test_the_best_mean_of_uncertain_arms_by_draws():
    programme = Programme(small(0.2, 5))
    arms, rng = programme.problem.arms, np.random.default_rng(0)
    draws = rng.beta(arms.alpha, arms.beta, (200_000, 2, 2)).max(axis=2)
    expected = draws.mean(axis=0) @ programme.problem.prior
    assert programme.best_mean == pytest.approx(expected, abs=0.003)


def test_the_family_of_problems():
    problems = random_problems()
    assert len(problems) >= 100
    assert sum(problem.known for problem in problems) == len(problems) // 2
    for one, other in itertools.pairwise(random_problems(6)):
        assert one.known != other.known
    assert all(problem.rates[0].argmax() != problem.rates[1].argmax() for problem in problems)


def test_one_problem_and_its_claims():
    """Greedy on a safe arm against an uncertain one is far from the optimum; lookahead is not."""
    problem = NAMED[3]
    assert {"mTS", "mmIDS", "mLookahead", "UCB1", "uniform"} <= set(policies(problem))
    actual = measure(problem, ["mmGreedy", "mLookahead", "mUCB"], runs=200, seed=0)
    assert actual.ratio("mmGreedy") > 1.5
    assert actual.ratio("mLookahead") < 1.05
    assert [claim.holds for claim in claims([actual])] == [True]
    assert actual.regrets["mUCB"].stderr > 0
