"""`check_model`: the promises that beliefs and policies rely on, for any model."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import numpy as np

from latentbandits.models.checks import Context, FloatArray, IntArray
from latentbandits.models.numerics.laws import Support
from latentbandits.models.protocol import (
    Generative,
    KnownModel,
    Model,
    WithPrior,
    is_order_free,
    with_defaults,
)
from latentbandits.testing import likelihoods
from latentbandits.testing.trees import assert_same, rows

N_SESSIONS = 4
N_ROUNDS = 5

Draw = Callable[[int, np.random.Generator], Any]


def check_model(
    model: KnownModel,
    n_actions: int,
    context: Draw | None = None,
    reward: Draw | None = None,
    order_free: bool | None = None,
    support: Support | None = None,
) -> None:
    """Raise AssertionError, which names the broken promise, unless `model` keeps them all.

    The likelihood sums or integrates to one over the support of rewards, and its mean is
    `expected_rewards`. The predictive density does too, and its mean is the one of
    `posterior_rewards`. Draws have the moments of the posterior. Conditioning is pure, the same for
    a session alone and in a batch, and if `order_free` independent of the order of rewards. If
    users can be drawn from the model (`Generative`), their rewards follow the density, and the
    predictive density is the average of the likelihood under the posterior. The models inside a
    composed one (`Markov`, `Ensemble`, transformed rewards) are checked too.

    Args:
        model: any model that all sessions share (`n_sessions` is None).
        n_actions: number of actions.
        context: `context(n_sessions, rng)` draws a context; None is no context.
        reward: `reward(n_sessions, rng)` draws rewards that the model takes; None draws them from
            the model itself if it can, else from a standard normal.
        order_free: whether the order of rewards does not matter; None asks the model
            (`is_order_free`).
        support: the possible rewards; None is the `support` of the model, else all numbers.

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
    rewards = [
        _rewards(model, x, action, reward, rng) for x, action in zip(contexts, actions, strict=True)
    ]
    history = list(zip(contexts, actions, rewards, strict=True))
    stated = with_defaults(model).support if support is None else support
    _check_known(model, n_actions, history)
    likelihoods.check_likelihood(model, contexts[0], stated)
    likelihoods.check_point(model, *history[0])
    if not isinstance(model, WithPrior):
        return
    uncertain: Model = model  # type: ignore[assignment]
    if order_free is None:
        order_free = is_order_free(model)
    _check_posterior(uncertain, n_actions, history, order_free)
    _check_sampler(uncertain, n_actions, history)
    learned, _ = _condition(uncertain, history[:2])
    likelihoods.check_predictive(uncertain, learned, contexts[0], stated)
    if isinstance(model, Generative):
        draws_rewards = _draws_rewards(model, contexts[0], rng)
        likelihoods.check_prior(uncertain, model, contexts[0])
        likelihoods.check_evidence(uncertain, model, history, draws_rewards)
        if draws_rewards:
            likelihoods.check_users(uncertain, model, contexts[0], stated)
    different = {id(inner): inner for inner in with_defaults(model).inner_models}
    for inner in different.values():
        same = with_defaults(inner).support == stated  # a transform changes the rewards
        check_model(inner, n_actions, context, reward if same else None)


def _rewards(
    model: KnownModel, context: Context, action: IntArray, reward: Draw | None, rng: Any
) -> FloatArray:
    """Draw a reward of each session."""
    if reward is not None:
        return np.asarray(reward(N_SESSIONS, rng), np.float64)
    if isinstance(model, Generative) and _draws_rewards(model, context, rng):
        theta = model.draw_theta(rng.integers(model.n_states, size=N_SESSIONS), rng)
        return model.draw_rewards(theta, context, rng)[np.arange(N_SESSIONS), action]
    normals: FloatArray = rng.standard_normal(N_SESSIONS)
    return normals


def _draws_rewards(model: Generative, context: Context, rng: np.random.Generator) -> bool:
    """Tell whether the model has a sampler of rewards: one made of functions may not."""
    theta = model.draw_theta(np.zeros(N_SESSIONS, np.int64), rng)
    try:
        model.draw_rewards(theta, context, rng)
    except TypeError:
        return False
    return True


def _check_known(model: KnownModel, n_actions: int, history: list[Any]) -> None:
    prior = np.exp(model.log_state_prior)
    np.testing.assert_allclose(prior.sum(axis=-1), 1, atol=1e-9, err_msg="the prior over states")
    context, action, reward = history[0]
    means = model.expected_rewards(context)
    assert means.shape[1:] == (model.n_states, n_actions), f"expected rewards: {means.shape}"
    wide = np.broadcast_to(means, (N_SESSIONS, *means.shape[1:]))
    for s in range(model.n_states):
        rewards = model.expected_rewards(context, np.full(N_SESSIONS, s))
        assert_same(rewards, wide[:, s], f"expected rewards in state {s}", 1e-9)
    density = model.log_likelihood(context, action, reward)
    assert density.shape == (N_SESSIONS, model.n_states), f"log likelihood: {density.shape}"
    assert not np.isnan(density).any(), "a log likelihood is NaN"


def _check_posterior(model: Model, n_actions: int, history: list[Any], order_free: bool) -> None:
    parameters = model.parameters(N_SESSIONS)
    before = deepcopy(parameters)
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
    """Check that draws have the mean and variance of the posterior, in every state."""
    parameters, _ = _condition(model, history)
    context = history[0][0]
    mean, variance = model.posterior_rewards(parameters, context)
    rng = np.random.default_rng(31)
    for s in range(model.n_states):
        state = np.full((N_SESSIONS, likelihoods.N_DRAWS), s)
        draws = model.sample_rewards(parameters, context, state, rng)
        assert draws.shape == (*state.shape, n_actions), f"draws: {draws.shape}"
        for i in range(N_SESSIONS):
            what = f"draws of mean rewards in state {s} of session {i}"
            likelihoods.check_moments(draws[i], mean[i, s], variance[i, s], what)


def _condition(model: Model, history: list[Any]) -> tuple[Any, Any]:
    n = len(history[0][1])
    parameters, evidence = model.parameters(n), np.zeros((n, model.n_states))
    for context, action, reward in history:
        log_predictive, parameters = model.condition(parameters, context, action, reward)
        assert log_predictive.shape == evidence.shape, f"log predictive: {log_predictive.shape}"
        evidence = evidence + log_predictive
    return parameters, evidence
