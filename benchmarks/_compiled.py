"""The same algorithms as plain loops, session by session, compiled by numba.

Each is written the way a loop would be: no temporaries, one uniform draw per state sampled. The
maths is that of the library, with numpy's own random generator and without fastmath; `actions`
(T, n) is filled with what was played, and the benchmarks check that the library comes to the same
posterior from it.
"""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np

Array = np.ndarray[Any, np.dtype[np.float64]]
Actions = np.ndarray[Any, np.dtype[np.int64]]
LOG_2PI = math.log(2 * math.pi)


@numba.njit
def sample_state(log_weights: Array, weights: Array, rng: np.random.Generator) -> int:
    """A state drawn from unnormalised log weights; `weights` is scratch."""
    top = log_weights[0]
    for s in range(1, len(log_weights)):
        top = max(top, log_weights[s])
    total = 0.0
    for s in range(len(log_weights)):
        weights[s] = math.exp(log_weights[s] - top)
        total += weights[s]
    left = rng.random() * total
    state = 0
    while state < len(log_weights) - 1 and left >= weights[state]:
        left -= weights[state]
        state += 1
    return state


@numba.njit
def play_mts(
    rewards: Array,
    means: Array,
    noise: float,
    log_weights: Array,
    actions: Actions,
    rng: np.random.Generator,
) -> None:
    """On arms, mTS: `rewards` (T, n, K), `means` (S, K), `log_weights` (n, S), updated."""
    n_rounds, n_sessions, n_actions = rewards.shape
    n_states = len(means)
    weights = np.empty(n_states)
    variance = noise * noise
    for t in range(n_rounds):
        for i in range(n_sessions):
            state = sample_state(log_weights[i], weights, rng)
            action = 0
            for a in range(1, n_actions):
                if means[state, a] > means[state, action]:
                    action = a
            actions[t, i] = action
            for s in range(n_states):
                residual = rewards[t, i, action] - means[s, action]
                log_weights[i, s] -= 0.5 * (
                    residual * residual / variance + math.log(variance) + LOG_2PI
                )


@numba.njit
def play_mmts(
    rewards: Array,
    means: Array,
    variances: Array,
    noise: float,
    log_weights: Array,
    counts: Array,
    sums: Array,
    actions: Actions,
    rng: np.random.Generator,
) -> None:
    """On arms, mmTS: as above, with `variances` (S, K) of the means and (n, K) statistics."""
    n_rounds, n_sessions, n_actions = rewards.shape
    n_states = len(means)
    weights = np.empty(n_states)
    variance = noise * noise
    for t in range(n_rounds):
        for i in range(n_sessions):
            state = sample_state(log_weights[i], weights, rng)
            action, best = 0, -math.inf
            for a in range(n_actions):
                prior = means[state, a]
                scale = variances[state, a] / (variances[state, a] * counts[i, a] + variance)
                mean = prior + scale * (sums[i, a] - counts[i, a] * prior)
                theta = mean + math.sqrt(scale * variance) * rng.standard_normal()
                if theta > best:
                    action, best = a, theta
            actions[t, i] = action
            reward = rewards[t, i, action]
            count, total = counts[i, action], sums[i, action]
            for s in range(n_states):
                prior = means[s, action]
                scale = variances[s, action] / (variances[s, action] * count + variance)
                residual = reward - (prior + scale * (total - count * prior))
                predictive = scale * variance + variance
                log_weights[i, s] -= 0.5 * (
                    residual * residual / predictive + math.log(predictive) + LOG_2PI
                )
            counts[i, action] = count + 1
            sums[i, action] = total + reward


@numba.njit
def play_linear_mmts(
    contexts: Array,
    rewards: Array,
    noise: float,
    log_weights: Array,
    mean: Array,
    factor: Array,
    actions: Actions,
    rng: np.random.Generator,
) -> None:
    """Linear mmTS with Potter's square-root update.

    `contexts` (T, n, K, d), `rewards` (T, n, K); `log_weights` (n, S), `mean` (n, S, d) and
    `factor` (n, S, d, d), updated.
    """
    n_rounds, n_sessions, n_actions, d = contexts.shape
    n_states = log_weights.shape[1]
    weights, theta, f, gain = np.empty(n_states), np.empty(d), np.empty(d), np.empty(d)
    variance = noise * noise
    for t in range(n_rounds):
        for i in range(n_sessions):
            state = sample_state(log_weights[i], weights, rng)
            for p in range(d):
                f[p] = rng.standard_normal()
            for p in range(d):
                theta[p] = mean[i, state, p]
                for q in range(d):
                    theta[p] += factor[i, state, p, q] * f[q]
            action, best = 0, -math.inf
            for a in range(n_actions):
                value = 0.0
                for p in range(d):
                    value += contexts[t, i, a, p] * theta[p]
                if value > best:
                    action, best = a, value
            actions[t, i] = action
            x, reward = contexts[t, i, action], rewards[t, i, action]
            for s in range(n_states):
                L, m = factor[i, s], mean[i, s]
                f[:] = 0.0
                expected = 0.0
                for p in range(d):
                    expected += x[p] * m[p]
                    for q in range(d):
                        f[q] += L[p, q] * x[p]
                predictive = variance
                for q in range(d):
                    predictive += f[q] * f[q]
                residual = reward - expected
                shrink = 1 / (predictive + math.sqrt(variance * predictive))
                for p in range(d):
                    gain[p] = 0.0
                    for q in range(d):
                        gain[p] += L[p, q] * f[q]
                for p in range(d):
                    m[p] += gain[p] * (residual / predictive)
                    for q in range(d):
                        L[p, q] -= gain[p] * shrink * f[q]
                log_weights[i, s] -= 0.5 * (
                    residual * residual / predictive + math.log(predictive) + LOG_2PI
                )
