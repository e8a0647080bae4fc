"""`check_model`: what beliefs and policies rely on, for any model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from latentbandits.models.checks import IntArray
from latentbandits.models.protocol import KnownModel, Model
from latentbandits.testing.trees import assert_same, rows, snapshot

N_SESSIONS = 4
N_ROUNDS = 5
N_DRAWS = 4000
MOMENT_ERRORS = 6.0  # standard errors: a correct sampler fails with probability below 1e-7

Draw = Callable[[int, np.random.Generator], Any]


def check_model(
    model: KnownModel,
    n_actions: int,
    context: Draw | None = None,
    reward: Draw | None = None,
    order_free: bool = True,
) -> None:
    """AssertionError, saying which promise was broken, unless `model` keeps them all.

    `context(n_sessions, rng)` and `reward(n_sessions, rng)` draw inputs that the model takes; by
    default no context, and standard normal rewards. The model must be one that all sessions share.
    `order_free=False` is for states that move and for particles: there the order tells something.

    >>> from latentbandits import GaussianArms
    >>> check_model(GaussianArms([[0.9, 0.1], [0.2, 0.8]], noise=0.5, spread=0.1), n_actions=2)
    """
    assert model.n_sessions is None, "give a model that all sessions share"
    rng = np.random.default_rng(29)
    contexts = [
        model.check_context(context(N_SESSIONS, rng) if context else None, N_SESSIONS)
        for _ in range(N_ROUNDS)
    ]
    actions = [rng.integers(n_actions, size=N_SESSIONS) for _ in range(N_ROUNDS)]
    draw = reward or (lambda n, rng: rng.standard_normal(n))
    rewards = [np.asarray(draw(N_SESSIONS, rng), np.float64) for _ in range(N_ROUNDS)]
    history = list(zip(contexts, actions, rewards, strict=True))
    _check_known(model, n_actions, history)
    if hasattr(model, "condition"):
        _check_posterior(model, n_actions, history, order_free)  # type: ignore[arg-type]
        _check_sampler(model, n_actions, history)  # type: ignore[arg-type]


def _check_known(model: KnownModel, n_actions: int, history: list[Any]) -> None:
    prior = np.exp(model.log_state_prior)
    np.testing.assert_allclose(prior.sum(axis=-1), 1, atol=1e-9, err_msg="the prior over states")
    context, action, reward = history[0]
    means = model.expected_rewards(context)
    assert means.shape[1:] == (model.n_states, n_actions), f"expected rewards: {means.shape}"
    wide = np.broadcast_to(means, (N_SESSIONS, *means.shape[1:]))
    for s in range(model.n_states):
        given = model.expected_rewards(context, np.full(N_SESSIONS, s))
        assert_same(given, wide[:, s], f"expected rewards in state {s}", 1e-9)
    density = model.log_likelihood(context, action, reward)
    assert density.shape == (N_SESSIONS, model.n_states), f"log likelihood: {density.shape}"
    assert not np.isnan(density).any(), "a log likelihood is NaN"


def _check_posterior(model: Model, n_actions: int, history: list[Any], order_free: bool) -> None:
    parameters = model.parameters(N_SESSIONS)
    before = snapshot(parameters)
    mean, variance = model.posterior_rewards(parameters, history[0][0])
    shape = (N_SESSIONS, model.n_states, n_actions)
    assert np.broadcast_shapes(mean.shape, shape) == shape, f"posterior mean: {mean.shape}"
    assert (variance >= 0).all(), "a negative posterior variance"
    forward, evidence = _condition(model, history)
    backward, evidence_backward = _condition(model, history[::-1])
    assert_same(parameters, before, "conditioning changed what it was given")
    if order_free:
        assert_same(evidence, evidence_backward, "the order of rewards changed the evidence", 1e-8)
    for i in range(N_SESSIONS):
        one: IntArray = np.array([i])
        alone, evidence_alone = _condition(
            model, [(None if x is None else x[one], a[one], r[one]) for x, a, r in history]
        )
        assert_same(evidence_alone, evidence[one], f"session {i} has other evidence alone", 1e-8)
        assert_same(alone, rows(forward, one), f"session {i} learns otherwise alone", 1e-8)
    for context, _, _ in history if order_free else []:
        ours = model.posterior_rewards(forward, context)
        theirs = model.posterior_rewards(backward, context)
        assert_same(ours, theirs, "the order of rewards changed the posterior", 1e-7)


def _check_sampler(model: Model, n_actions: int, history: list[Any]) -> None:
    """Draws have the posterior's mean and variance, in every state."""
    parameters, _ = _condition(model, history)
    context = history[0][0]
    mean, variance = model.posterior_rewards(parameters, context)
    rng = np.random.default_rng(31)
    for s in range(model.n_states):
        state = np.full((N_SESSIONS, N_DRAWS), s)
        draws = model.sample_rewards(parameters, context, state, rng)
        assert draws.shape == (N_SESSIONS, N_DRAWS, n_actions), f"draws: {draws.shape}"
        error = draws.std(axis=1) / np.sqrt(N_DRAWS) + 1e-9
        off = np.abs(draws.mean(axis=1) - mean[:, s]) / error
        assert off.max() < MOMENT_ERRORS, f"the mean of draws in state {s} is {off.max():.1f} off"
        squares = (draws - mean[:, s, None]) ** 2
        error = squares.std(axis=1) / np.sqrt(N_DRAWS) + 1e-9
        off = np.abs(squares.mean(axis=1) - variance[:, s]) / error
        assert off.max() < MOMENT_ERRORS, f"their variance in state {s} is {off.max():.1f} off"


def _condition(model: Model, history: list[Any]) -> tuple[Any, Any]:
    n = len(history[0][1])
    parameters, evidence = model.parameters(n), np.zeros((n, model.n_states))
    for context, action, reward in history:
        log_predictive, parameters = model.condition(parameters, context, action, reward)
        assert log_predictive.shape == evidence.shape, f"log predictive: {log_predictive.shape}"
        evidence = evidence + log_predictive
    return parameters, evidence
