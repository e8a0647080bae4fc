"""Rewards with atoms: the family is chosen by cells, and full scores and zeros are modelled."""

import numpy as np
import pytest
from evidence.rewards import generate

from latentbandits import CategoricalArms, HurdleGammaArms, HurdleLogNormalArms, load, mmTS, save
from latentbandits.learning import fit
from latentbandits.learning import rewards as rewards_module
from latentbandits.learning.logs.rows import Log
from latentbandits.learning.reading import split_users
from latentbandits.learning.rewards import choose_family
from latentbandits.models.arms.hurdle import Hurdle
from latentbandits.testing import check_model

CHOSEN = {"fractions": "categorical", "amounts": "hurdle-lognormal", "grades": "categorical"}


@pytest.mark.slow
@pytest.mark.parametrize("kind", CHOSEN)
def test_an_atom_is_not_bought_by_a_density_at_any_resolution(kind, monkeypatch):
    """Compared by density, exponential rewards win: theirs has no bound at 0."""
    log = generate(kind, seed=3).log
    cells_of_values = rewards_module.cells_of_values
    for finer in (1.0, 10.0):

        def finer_cells(values, distances, finer=finer):
            cells = cells_of_values(values, distances)
            return cells._replace(step=cells.step / finer)

        monkeypatch.setattr(rewards_module, "cells_of_values", finer_cells)
        choice = choose_family(split_users(log, 0))
        assert choice.rewards == CHOSEN[kind]
        best = next(one for one in choice.contenders if one.name == choice.rewards)
        assert best.n_states == 3


def test_the_resolution_of_small_rewards_is_not_a_hundred():
    from latentbandits.learning.logs.rows import cells_of_values, off_lattice

    rewards = np.sort(1e-9 * np.random.default_rng(0).random(50))
    low, high = cells_of_values(rewards, off_lattice(rewards)).edges(rewards)
    assert (high - low).max() < 1e-14


SCORES = CategoricalArms(
    [[[4.0, 2.0, 1.0, 3.0], [1.0, 1.0, 1.0, 7.0]]], [0.0, 0.25, 0.75, 1.0], None,
    [0.0, 0.0, 0.5, 1.0, 1.0],
)  # fmt: skip


def test_scores_in_bins_have_the_density_of_their_draws(tmp_path):
    phi = SCORES.prior_hyperparameters[0, 0, :1]
    shares = SCORES.point(phi)
    grid = np.array([0.0, 0.2, 0.5, 0.6, 1.0])
    density = np.exp(SCORES.log_density(shares, grid))
    np.testing.assert_allclose(density, [0.4, 0.4, 0.4, 0.2, 0.3])  # masses at 0 and 1
    below, above = SCORES.distribution(phi, grid)
    np.testing.assert_allclose(below, [0.4, 0.48, 0.6, 0.62, 1.0])
    np.testing.assert_allclose(above, 1 - below, atol=1e-12)
    draws = SCORES.draw(np.repeat(shares, 40_000, axis=0), np.random.default_rng(0))
    counted = (draws[:, None] <= grid).mean(axis=0)
    assert np.abs(counted - below).max() < 4 * 0.5 / 200, "an error of four deviations: 6e-5"
    assert draws.mean() == pytest.approx(float(SCORES.moments(phi)[0][0]), abs=0.01)
    save(SCORES, tmp_path / "model")
    again = load(tmp_path / "model")
    np.testing.assert_array_equal(again.edges, SCORES.edges)


def test_any_score_between_the_ends_is_learned_from_and_others_are_refused():
    policy = mmTS(SCORES)
    belief, rng = policy.init(), np.random.default_rng(0)
    decision = policy.decide(belief, None, rng)
    policy.update(belief, None, decision, [0.37])
    with pytest.raises(ValueError, match="rewards that are from 0 to 1"):
        policy.update(belief, None, decision, [1.2])
    with pytest.raises(ValueError, match="edges must be 5 numbers"):
        CategoricalArms(SCORES.concentration, SCORES.values, edges=[0.0, 0.2, 0.5, 1.0, 1.0])


def test_a_far_away_value_is_no_full_score():
    log = generate("huge", seed=0, n_users=100).log
    assert "categorical" not in {
        one.rewards for one in choose_family(split_users(log, 0)).contenders
    }


@pytest.mark.parametrize("kind", [HurdleLogNormalArms, HurdleGammaArms])
def test_a_hurdle_conforms_and_grows(kind):
    model = kind.random(np.random.default_rng(1), 2, 3)
    check_model(model, 3)
    wider = model.with_actions(np.array([[0.4], [0.5]]), np.array([[0.01], [0.02]]))
    mean, variance = wider.posterior_rewards(wider.parameters(1), None)
    low, high = model.expected_rewards(None).min(), model.expected_rewards(None).max()
    np.testing.assert_allclose(mean[0, :, 3], np.clip([0.4, 0.5], low, high), rtol=1e-9)
    np.testing.assert_allclose(variance[0, :, 3], [0.01, 0.02], rtol=1e-6)


@pytest.mark.parametrize("kind", [HurdleLogNormalArms, HurdleGammaArms])
def test_the_posterior_of_a_hurdle_is_that_of_a_grid(kind):
    """Brute force: 400 x 400 points of (p, x), weighted by the prior and the likelihood."""
    from scipy import stats

    if kind is HurdleLogNormalArms:
        model = kind([[2.0]], [[3.0]], [[0.3]], [[0.4]], log_noise=0.6)
        amount = np.exp(stats.norm(0.3, 0.4).ppf(np.linspace(0.00125, 0.99875, 400)) + 0.18)
    else:
        model = kind([[2.0]], [[3.0]], [[5.0]], [[6.0]], power=1.7)
        amount = 1 / stats.gamma(5.0, scale=1 / 6.0).ppf(np.linspace(0.00125, 0.99875, 400))
    chance = stats.beta(2.0, 3.0).ppf(np.linspace(0.00125, 0.99875, 400))
    grid = Hurdle(*np.meshgrid(chance, amount))
    rewards = [0.0, 1.4, 0.3, 0.0, 2.2]
    likelihood = sum(model.log_density(grid, np.array(reward)) for reward in rewards)
    parameters, log_evidence = model.parameters(1), 0.0
    for reward in rewards:
        step, parameters = model.condition(parameters, None, np.array([0]), np.array([reward]))
        log_evidence += step[0, 0]
    weights = np.exp(likelihood)
    assert log_evidence == pytest.approx(np.log(weights.mean()), abs=0.01)
    mean, variance = model.posterior_rewards(parameters, None)
    product = grid.chance * grid.amount
    expected = np.average(product, weights=weights)
    assert mean[0, 0, 0] == pytest.approx(expected, rel=0.01)
    spread = np.average((product - expected) ** 2, weights=weights)
    assert variance[0, 0, 0] == pytest.approx(spread, rel=0.04)


@pytest.mark.slow
def test_amounts_are_learned_saved_and_decided_by_their_means(tmp_path):
    problem = generate("amounts", seed=5)
    actual = fit(problem.log, kind="arms", bootstrap=2)
    assert isinstance(actual.model, HurdleLogNormalArms)
    assert actual.model.n_states == 3
    covered = {row["level"]: row["covered"] for row in actual.report["held_out"]["coverage"]}
    assert abs(covered[0.95] - 0.95) < 0.02
    means = actual.model.expected_rewards(None)[0]
    for mine in means:
        nearest = np.abs(problem.means - mine).sum(axis=1).argmin()
        np.testing.assert_allclose(mine, problem.means[nearest], atol=1.0, rtol=0.25)
    save(actual.model, tmp_path / "model")
    again = load(tmp_path / "model")
    np.testing.assert_array_equal(again.expected_rewards(None)[0], means)


def test_rewards_without_zeros_are_no_hurdle():
    log = generate("amounts", seed=5, n_users=40).log
    positive = Log(log.users, log.actions, log.rewards + 1, log.user_ids, log.action_ids)
    with pytest.raises(ValueError, match="these are all positive"):
        fit(positive, rewards="hurdle-gamma")
