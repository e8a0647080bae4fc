"""Policies that only `reproduce related` needs, rows that it keeps, and builders by name."""

import numpy as np
import pytest

from latentbandits import BernoulliArms, LinearGaussian
from latentbandits.policies import Decision
from latentbandits.policies.registry import Inputs, build
from latentbandits.testing import check_policy
from latentbandits_related.rank1 import bernoulli_bounds
from latentbandits_related.reproduce.experiment import play_row
from latentbandits_related.reproduce.factorisation import RidgeALS
from latentbandits_related.reproduce.rank_one import KLUCB, FactorTS, upper_click_rate
from latentbandits_related.reproduce.table import KeptRows
from latentbandits_related.subspace import Subspace, subspace_distance


def test_newton_finds_the_bound_that_bisection_finds():
    rng = np.random.default_rng(0)
    means = np.concatenate([rng.random(300), [0.0, 1.0, 1e-4, 1 - 1e-4, 0.0, 1.0]])
    levels = 10 ** rng.uniform(-6, 1.3, len(means))
    expected = [
        bernoulli_bounds(p[None], level)[1][0] for p, level in zip(means, levels, strict=True)
    ]
    np.testing.assert_allclose(upper_click_rate(means, levels), expected, atol=1e-6)


def test_kl_ucb_tries_every_action_and_keeps_the_contract():
    check_policy(KLUCB(3), 3, reward=lambda n, rng: (rng.random(n) < 0.4).astype(float))


def test_a_missed_click_is_shared_between_row_and_column_by_hand():
    """At u = v = 1/2 the bit of the row was 1 with probability (1/4) / (3/4)."""
    policy = FactorTS(2, 2)
    after = policy.update(policy.init(), None, Decision.logged([1]), [0.0])
    np.testing.assert_allclose(after.rows[0], [[1 + 1 / 3, 1 + 2 / 3], [1, 1]])
    np.testing.assert_allclose(after.columns[0], [[1, 1], [1 + 1 / 3, 1 + 2 / 3]])
    clicked = policy.update(policy.init(), None, Decision.logged([1]), [1.0])
    np.testing.assert_allclose(clicked.rows[0], [[2, 1], [1, 1]])


def test_ridge_als_completes_a_matrix_without_noise():
    rng = np.random.default_rng(1)
    truth = rng.random((20, 2)) @ rng.random((2, 15))
    seen = (rng.random((20, 15)) < 0.9) * 100.0
    actual = RidgeALS(20, 15, 2, ridge=0.1)._fit(seen, seen * truth)
    assert np.abs(actual - truth).max() < 0.02


def test_a_kept_row_is_not_played_again(tmp_path):
    played = play_row("i", "sigma0=0", "mTS", True, 0, tmp_path)
    (file,) = tmp_path.iterdir()
    key, numbers = ("i", "sigma0=0", "mTS"), (6, 12, 0)
    kept = KeptRows(tmp_path).load(key, numbers)
    np.testing.assert_array_equal(kept.regrets, played.regrets)
    np.testing.assert_array_equal(kept.regret_curve, played.regret_curve)
    assert kept.windows == played.windows
    assert KeptRows(tmp_path).load(key, (6, 12, 1)) is None
    file.write_bytes(file.read_bytes()[:-100])
    assert KeptRows(tmp_path).load(key, numbers) is None
    again = play_row("i", "sigma0=0", "mTS", True, 0, tmp_path)
    np.testing.assert_array_equal(again.regrets, played.regrets)


def test_proball_is_built_from_the_prior_that_sold_learns():
    rng = np.random.default_rng(2)
    basis = np.linalg.qr(rng.normal(size=(6, 2)))[0]
    actual = Subspace(basis, np.array([2.0, 1.0, 0, 0, 0, 0]), np.eye(6), np.zeros(6), 0.2, 100)
    policy = build("ProBALL(scale=0.3)", Inputs(actual.prior(0.5), horizon=50))
    assert subspace_distance(policy.basis, basis) < 1e-9
    assert policy.error == pytest.approx(0.2)
    assert (policy.noise, policy.horizon, policy.scale) == (0.5, 50, 0.3)


@pytest.mark.parametrize(
    ("text", "inputs", "words"),
    [
        ("ProBALL", Inputs(LinearGaussian(np.eye(2), 0.5), horizon=9), "with one state.*2 states"),
        ("ProBALL", Inputs(LinearGaussian([[1.0, 0]], 0.5)), "needs the number of rounds"),
        ("ProBALL(rank=3)", Inputs(LinearGaussian([[1.0, 0]], 0.5), horizon=9), "from 1 to 2"),
        ("Rank1Elim", Inputs(n_actions=6, horizon=99), "numbers of rows and columns"),
        ("Rank1Elim(n_rows=4)", Inputs(n_actions=6, horizon=99), "4 rows x 1 columns are 4"),
        ("Rank1ElimKL(n_rows=2)", Inputs(n_actions=6), "needs the number of rounds"),
        ("Phased", Inputs(n_features=2, noise=0.5), "needs the number of users"),
        ("Phased(deploy='mTSS')", Inputs(n_features=2, noise=0.5, n_users=3), "did you mean 'mTS'"),
    ],
)
def test_what_a_builder_needs_is_said(text, inputs, words):
    with pytest.raises(ValueError, match=words):
        build(text, inputs)


def test_related_policies_are_built_by_name():
    rank1 = build("Rank1ElimKL(n_rows=2)", Inputs(BernoulliArms(np.ones((1, 6)), 1.0), horizon=99))
    assert (rank1.n_rows, rank1.n_columns, rank1.horizon) == (2, 3, 99)
    phased = build("Phased(deploy='mmTS', first=50)", Inputs(n_features=2, noise=0.5, n_users=7))
    assert (phased.n_users, phased.start.name, phased.first) == (7, "mmTS", 50)
    assert build("Phased(deploy='EXP4')", Inputs(n_features=2, noise=0.5, n_users=7)).n_users == 7
