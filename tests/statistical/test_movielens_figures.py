"""The real data against an independent implementation's figures (100 users, once)."""

from dataclasses import replace
from typing import NamedTuple

import pytest

from latentbandits.experiments.movielens import MovieLensSettings, halves, learn, policies
from latentbandits.experiments.movielens_data import keep_active, load
from latentbandits.simulation import simulate
from tests.reference.movielens_folder import REAL, needs_real_data

pytestmark = pytest.mark.slow

SETTINGS = replace(MovieLensSettings(), users=100)

# Results of an independent implementation, 100 users once, reg = 1; ours must be close.


class Expected(NamedTuple):
    """Mean true rating in rounds 1-20, in the last 100, and of the worst 10% of users."""

    first_20: float
    last_100: float
    worst_decile: float


RATING = {
    "LinUCB": Expected(3.58, 4.41, 3.65),
    "LinTS": Expected(3.67, 4.43, 3.60),
    "EXP4": Expected(4.07, 4.14, 3.24),
    "mUCB": Expected(4.15, 4.21, 3.26),
    "mTS": Expected(4.20, 4.26, 3.30),
    "mmTS": Expected(3.91, 4.43, 3.61),
}

AVERAGE = {"mmTS": 4.35, "mmIDS": 4.38, "mmGreedy": 4.40}
"""Mean true rating over the horizon, of mmTS and of policies beyond the paper."""


@pytest.fixture(scope="module")
def results():
    environment = learn(keep_active(load(REAL), 200), SETTINGS, 0).environment
    chosen = policies(list(RATING | AVERAGE), environment, 500)
    return simulate(chosen, environment, n_runs=SETTINGS.users, horizon=500, seed=SETTINGS.seed)


@needs_real_data
@pytest.mark.parametrize("policy", RATING)
def test_figures_agree_within_their_errors(results, policy):
    # Both sides have 100 users and a random split of their own, so a difference has the error of
    # one times sqrt(2); beyond four of them by chance once in 16,000, and there are 21.
    actual, expected = results[policy], RATING[policy]
    first_20 = actual.curve[:20].mean()
    error = actual.first_rounds_reward.stderr * 2**0.5
    assert abs(first_20 - expected.first_20) < 4 * error
    last, worst = actual.last_rounds_reward, actual.worst_decile_reward
    assert abs(last.mean - expected.last_100) < 4 * last.stderr * 2**0.5
    assert abs(worst.mean - expected.worst_decile) < 4 * worst.stderr * 2**0.5


@needs_real_data
@pytest.mark.parametrize("policy", AVERAGE)
def test_averages_agree_within_their_errors(results, policy):
    actual = results[policy].reward
    assert abs(actual.mean - AVERAGE[policy]) < 4 * actual.stderr * 2**0.5


@needs_real_data
def test_the_figures_can_tell_policies_apart(results):
    """The planted bug: had mTS been run for LinTS, the first rounds would say so."""
    actual = results["mTS"]
    error = actual.first_rounds_reward.stderr * 2**0.5
    assert abs(actual.curve[:20].mean() - RATING["LinTS"].first_20) > 4 * error


def test_halves_are_disjoint_and_differ_between_splits():
    train, test = halves(1001, seed=0, number=0)
    assert (len(train), len(test)) == (500, 501)
    assert set(train).isdisjoint(test)
    assert set(halves(1001, 0, 1)[0]) != set(train)
