"""Results of several splits as one: errors count what the runs of a split share."""

import numpy as np
import pytest

from latentbandits import mTS, simulate
from latentbandits.environments import Synthetic
from latentbandits.simulation import Estimate, pool


def test_an_error_over_groups_counts_what_their_members_share():
    rng = np.random.default_rng(0)
    shared = np.repeat(rng.normal(size=6), 50)
    values = shared + rng.normal(size=300)
    naive, grouped = Estimate.from_values(values), Estimate.from_values(values, n_groups=6)
    assert grouped.mean == naive.mean
    expected = values.reshape(6, 50).mean(axis=1).std(ddof=1) / np.sqrt(6)
    assert grouped.stderr == pytest.approx(expected)
    assert grouped.stderr > 2 * naive.stderr


def test_the_larger_of_both_errors_by_hand():
    """Groups (1, 2) and (3, 6): their means differ by 3; (1, 5) and (2, 6): their members by 4."""
    apart = Estimate.from_values(np.array([1.0, 2.0, 3.0, 6.0]), n_groups=2)
    assert apart == (3.0, pytest.approx(1.5))  # means 1.5 and 4.5: sqrt(4.5 / 2)
    alike = Estimate.from_values(np.array([1.0, 5.0, 2.0, 6.0]), n_groups=2)
    assert alike == (3.5, pytest.approx(2**0.5))  # variances 8 and 8: sqrt(8 / 4)


def test_pooled_results_are_those_of_all_runs():
    environment = Synthetic(model_noise=0.2)
    parts = [
        simulate({"mTS": mTS}, environment, n_runs=60, horizon=20, seed=seed) for seed in (1, 2)
    ]
    both = pool(parts)["mTS"]
    assert both.n_groups == 2
    np.testing.assert_array_equal(
        both.rewards, np.concatenate([part["mTS"].rewards for part in parts])
    )
    np.testing.assert_allclose(both.curve, np.mean([part["mTS"].curve for part in parts], axis=0))
    worst = np.mean([part["mTS"].worst_decile_reward.mean for part in parts])
    assert both.worst_decile_reward.mean == pytest.approx(worst)
    alone = pool(parts[:1])["mTS"]
    assert alone.row() == parts[0]["mTS"].row()
    np.testing.assert_allclose(alone.curve_stderr, parts[0]["mTS"].curve_stderr)
