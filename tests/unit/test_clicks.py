"""Clicks of a large catalogue: the bound, the completion, and beliefs about weights."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit

from latentbandits.beliefs import joint
from latentbandits.learning.assess.heldout import score
from latentbandits.learning.linear.alternating import half_slope, logistic_bound
from latentbandits.learning.linear.clusters import cluster_users
from latentbandits.learning.linear.completion import complete
from latentbandits.learning.logs.rows import Log
from latentbandits.models.linear.logistic import LogisticLinear


def test_the_bound_holds_everywhere_and_touches_where_it_was_made():
    z = np.linspace(-8, 8, 401)
    for xi in (0.0, 0.3, 2.0, 6.0):
        for rate, trials in ((1.0, 1.0), (0.25, 8.0)):
            slope = half_slope(np.array([xi]))[0]

            target, weight = logistic_bound(np.array([rate]), np.array([trials]), np.array([xi]))
            bound = -0.5 * weight * (z - target) ** 2
            touch = -0.5 * weight * (xi - target) ** 2
            exact = trials * (rate * z - np.logaddexp(0, z))
            at = trials * (rate * xi - np.logaddexp(0, xi)) - touch
            assert (exact >= bound + at - 1e-9).all()
            assert slope <= 0.125


def made(seed=0, n_users=40, n_actions=15, rank=2, n=900):
    rng = np.random.default_rng(seed)
    u, v = rng.normal(size=(n_users, rank)), rng.normal(size=(n_actions, rank))
    b = rng.normal(size=n_actions) - 1
    pairs = rng.choice(n_users * n_actions, size=min(n, n_users * n_actions), replace=False)
    users, actions = np.divmod(pairs, n_actions)
    trials = rng.integers(1, 6, size=len(users))
    odds = np.einsum("nd,nd->n", u[users], v[actions]) + b[actions]
    return users, actions, rng.binomial(trials, expit(odds)) / trials, trials.astype(float), odds


@pytest.mark.parametrize("biases", [False, True])
def test_the_objective_falls_and_ends_at_a_minimum(biases):
    users, actions, rates, trials, _ = made(n_users=12, n_actions=8, n=90)
    fit = complete(users, actions, rates, weights=trials, link="logit", rank=2, reg=1.5,
                   biases=biases, sweeps=600, n_users=12, n_actions=8)  # fmt: skip
    objectives = [sweep.objective for sweep in fit.history]
    assert (np.diff(objectives) <= 1e-9).all()
    mean = fit.mean

    def objective(flat):
        u, v = flat[:24].reshape(12, 2), flat[24:40].reshape(8, 2)
        z = np.einsum("nd,nd->n", u[users], v[actions]) + mean
        penalty = (u**2).sum() + (v**2).sum()
        if biases:
            d, b = flat[40:52], flat[52:]
            z += d[users] + b[actions]
            penalty += (d**2).sum() + (b**2).sum()
        return 2 * trials @ (np.logaddexp(0, z) - rates * z) + 1.5 * penalty

    flat = [fit.users.ravel(), fit.actions.ravel()]
    if biases:
        flat += [fit.user_biases, fit.action_biases]
    start = np.concatenate(flat)
    assert objective(start) == pytest.approx(objectives[-1])
    # No general optimiser finds a lower value from there.
    best = minimize(objective, start, method="BFGS").fun
    assert objective(start) - best < 1e-3 * best


def test_rates_are_recovered_and_probabilities_are_predicted():
    users, actions, rates, trials, odds = made(n_users=400, n_actions=60, n=12_000)
    fit = complete(users, actions, rates, weights=trials, link="logit", rank=2, reg=2.0,
                   biases=True, sweeps=40)  # fmt: skip
    predicted = fit.predict(users, actions)
    assert (predicted > 0).all()
    assert (predicted < 1).all()
    error = np.sqrt(np.mean((predicted - expit(odds)) ** 2))
    flat = np.sqrt(np.mean((rates.mean() - expit(odds)) ** 2))
    assert error < 0.45 * flat
    with pytest.raises(ValueError, match="from 0 to 1"):
        complete([0, 1], [0, 1], [0, 3], rank=1, link="logit")


def test_clusters_of_clicks_are_a_logistic_model_with_an_offset():
    users, actions, rates, trials, _ = made(n_users=300, n_actions=30, n=6_000)
    fit = complete(users, actions, rates, weights=trials, link="logit", rank=2, reg=2.0,
                   biases=True)  # fmt: skip
    model = cluster_users(fit, 2).model
    assert isinstance(model, LogisticLinear)
    assert model.offset
    assert model.n_features == fit.action_vectors.shape[1]
    # The prior mean over states is the average user: no taste, so the order is popularity's.
    average = model.state_prior @ model.weights
    assert average[:2] == pytest.approx([0, 0], abs=1e-9)


def test_beliefs_are_close_to_quadrature():
    model = LogisticLinear([[0.5], [-1.0]], [[[0.8]], [[0.5]]], state_prior=[0.4, 0.6], offset=True)
    rng = np.random.default_rng(0)
    rewards = np.array([1.0, 0.0, 1.0, 1.0, 0.0, 1.0])
    x = rng.normal(size=(6, 1, 1))
    offset = rng.normal(size=(6, 1)) - 0.5
    grid = np.linspace(-6, 6, 4001)
    log_joint = np.stack([
        -((grid - m) ** 2) / (2 * v) - 0.5 * np.log(2 * np.pi * v) + np.log(p)
        for m, v, p in ((0.5, 0.8, 0.4), (-1.0, 0.5, 0.6))
    ])  # fmt: skip
    quick = model.without_particles
    belief, play = joint.prior(quick, 1), np.array([0])
    for features, o, reward in zip(x, offset, rewards, strict=True):
        density = np.exp(log_joint)
        chance = expit(features[0, 0] * grid + o[0])
        exact = (density * chance).sum() / density.sum()
        weights = np.exp(belief.log_weights - belief.log_weights.max())
        weights /= weights.sum()
        context = np.append(features[0], o)[None, None]
        chance_of_click = quick.posterior_rewards(belief.parameters, context)[0][:, :, 0]
        mine = (weights * chance_of_click).sum()
        assert mine == pytest.approx(exact, abs=0.01)
        belief = joint.condition(quick, belief, context, play, np.array([reward]))
        log_joint += np.log(chance if reward else 1 - chance)
    density = np.exp(log_joint)
    exact_states = density.sum(axis=1) / density.sum()
    weights = np.exp(belief.log_weights[0] - belief.log_weights.max())
    assert weights / weights.sum() == pytest.approx(exact_states, abs=0.02)
    exact_means = (density * grid).sum(axis=1) / density.sum(axis=1)
    assert belief.parameters.mean[0, :, 0] == pytest.approx(exact_means, abs=0.05)


def test_held_out_clicks_are_scored_and_calibrated():
    rng = np.random.default_rng(1)
    weights = np.array([[1.5, -1.0], [-1.5, -1.0]])
    model = LogisticLinear(weights, [np.eye(2) * 0.1] * 2, offset=True)
    features = np.column_stack([rng.normal(size=(40, 1)), np.ones(40), rng.normal(size=40) * 0.5])
    state = rng.integers(2, size=300)
    theta = weights[state] + np.sqrt(0.1) * rng.normal(size=(300, 2))
    users, actions = np.repeat(np.arange(300), 20), rng.integers(40, size=6000)
    odds = np.einsum("nd,nd->n", theta[users], features[actions, :2]) + features[actions, 2]
    rewards = (rng.random(6000) < expit(odds)).astype(float)
    ids = tuple(map(str, range(300))), tuple(map(str, range(40)))
    actual = score(model, Log(users, actions, rewards, *ids), features)
    rate = rewards.mean()
    constant = rate * np.log(rate) + (1 - rate) * np.log(1 - rate)
    assert actual.evidence > constant + 0.02
    assert actual.coverage(0.9) == pytest.approx(0.9, abs=0.02)
