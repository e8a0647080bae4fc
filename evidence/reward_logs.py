"""Logs of every reward family, with the parameters that generated them."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf

import numpy as np

from latentbandits.learning.generate import KnownArms
from latentbandits.learning.logs.rows import Log, Rewards
from latentbandits.models.checks import FloatArray

_NOISE = 0.5  # of Gaussian rewards

VALUES = np.arange(1.0, 6.0)
"""The values of generated categorical rewards: one to five stars."""

WELL_SEPARATED, OVERLAPPING = 25.0, 5.0
"""Nats between the two closest states, summed over a user's rounds."""


def generate_family(
    rewards: Rewards,
    n_users: int = 1_000,
    n_rounds: int = 40,
    n_states: int = 3,
    n_actions: int = 10,
    *,
    separation: float = WELL_SEPARATED,
    strength: float = inf,
    seed: int = 0,
) -> KnownArms:
    """Generate users of a mixture of any reward family, logged uniformly at random.

    Natural parameters of the states are normal around those of each action, scaled so that a
    user's rounds separate the two closest states by `separation` nats on average (the mean of
    both Kullback-Leibler divergences). Users of a state differ if `strength` is finite: their
    parameters are drawn from the family's prior around the state's, worth `strength` rewards.

    >>> truth = generate_family("poisson", n_users=50, n_rounds=10, seed=1)
    >>> truth.log.n_events, truth.means.shape
    (500, (3, 10))
    """
    if rewards not in _BASE:
        raise ValueError(f"rewards must be one of {', '.join(_BASE)}; got {rewards!r}")
    rng = np.random.default_rng(seed)
    n_values = len(VALUES) if rewards == "categorical" else 1
    base = _BASE[rewards][0] + _BASE[rewards][1] * rng.standard_normal((n_actions, n_values))
    moves = rng.standard_normal((n_states, n_actions, n_values))
    theta = _separated(rewards, base, moves, separation / n_rounds)
    shares = rng.dirichlet(np.full(n_states, 20.0))
    state = rng.choice(n_states, size=n_users, p=shares)
    users = np.repeat(np.arange(n_users), n_rounds)
    actions = rng.integers(n_actions, size=len(users))
    user_theta = theta[state] if strength == inf else _vary(rewards, theta[state], strength, rng)
    values = _draw(rewards, user_theta[users, actions], rng)
    ids = tuple(str(u) for u in range(n_users)), tuple(str(a) for a in range(n_actions))
    log = Log(users, actions, values, *ids)
    return KnownArms(log, mean_rewards(rewards, theta), shares, _NOISE, state)


_BASE: Mapping[Rewards, tuple[float, float]] = {
    "gaussian": (0.5, 0.3),
    "bernoulli": (-1.0, 0.5),
    "poisson": (0.7, 0.3),
    "exponential": (0.0, 0.3),
    "categorical": (0.0, 0.5),
}
"""Mean and deviation of the actions' natural parameters (logits, log means, means)."""


def mean_rewards(rewards: Rewards, theta: FloatArray) -> FloatArray:
    """Return the mean reward of parameters `(..., 1)`, or of probabilities `(..., n_values)`."""
    means: FloatArray = theta @ VALUES if rewards == "categorical" else theta[..., 0]
    return means


def _parameters(rewards: Rewards, natural: FloatArray) -> FloatArray:
    if rewards == "gaussian":
        return natural
    if rewards == "bernoulli":
        return 1 / (1 + np.exp(-natural))
    grown = np.exp(natural)
    return grown / grown.sum(axis=-1, keepdims=True) if rewards == "categorical" else grown


def _separated(rewards: Rewards, base: FloatArray, moves: FloatArray, nats: float) -> FloatArray:
    """Scale the moves, by bisection, until the closest states are `nats` apart in a round."""
    if len(moves) == 1:
        return _parameters(rewards, base + 0.5 * moves)
    low, high = 0.0, 8.0
    for _ in range(60):
        middle = (low + high) / 2
        apart = _closest(rewards, _parameters(rewards, base + middle * moves))
        low, high = (middle, high) if apart < nats else (low, middle)
    return _parameters(rewards, base + low * moves)


def _closest(rewards: Rewards, theta: FloatArray) -> float:
    """Return the least mean of KL(p || q) and KL(q || p) over pairs of states, actions averaged."""
    pairs = [(s, t) for s in range(len(theta)) for t in range(s)]
    return min(float(_divergence(rewards, theta[s], theta[t]).mean() / 2) for s, t in pairs)


def _divergence(rewards: Rewards, p: FloatArray, q: FloatArray) -> FloatArray:
    """Return KL(p || q) + KL(q || p) of every action."""
    if rewards == "gaussian":
        both = (p - q) ** 2 / _NOISE**2
    elif rewards == "exponential":
        both = (p - q) * (1 / q - 1 / p)
    elif rewards == "bernoulli":
        both = (p - q) * (np.log(p / q) - np.log((1 - p) / (1 - q)))
    else:
        both = (p - q) * np.log(p / q)
    divergence: FloatArray = both.sum(axis=-1)
    return divergence


def _vary(
    rewards: Rewards, theta: FloatArray, strength: float, rng: np.random.Generator
) -> FloatArray:
    """Draw the parameters of users around their state's parameters."""
    if rewards == "gaussian":
        moved: FloatArray = theta + _NOISE / np.sqrt(strength) * rng.standard_normal(theta.shape)
        return moved
    if rewards == "bernoulli":
        return rng.beta(theta * strength, (1 - theta) * strength)
    if rewards == "poisson":
        return rng.gamma(theta * strength) / strength
    if rewards == "exponential":
        return theta * strength / rng.gamma(strength + 1, size=theta.shape)
    grown = rng.gamma(theta * strength)
    varied: FloatArray = grown / grown.sum(axis=-1, keepdims=True)
    return varied


def _draw(rewards: Rewards, theta: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Draw one reward for each row of parameters."""
    if rewards == "categorical":
        upper = theta.cumsum(axis=-1)[:, :-1]
        values: FloatArray = VALUES[(rng.random((len(theta), 1)) > upper).sum(axis=1)]
        return values
    mean = theta[:, 0]
    if rewards == "gaussian":
        return mean + _NOISE * rng.standard_normal(len(mean))
    if rewards == "bernoulli":
        return (rng.random(len(mean)) < mean).astype(np.float64)
    if rewards == "poisson":
        return rng.poisson(mean).astype(np.float64)
    amounts: FloatArray = rng.exponential(mean)
    return amounts
