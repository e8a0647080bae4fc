"""Fit one mixture of arms with a given number of states, without model selection or report.

`fit_mixture` is expectation-maximisation. `fit_spectral` fits by moments: three views, whitening,
tensor power iterations.

Three different rounds of one user are three views of the user's hidden state that are independent
given it (Anandkumar, Ge, Hsu, Kakade & Telgarsky 2014, "Tensor decompositions for learning latent
variable models", sections 3.1 and 5). With mu[s] the means of state s and p its share,

    M2 = sum_s p[s] mu[s] (x) mu[s],    M3 = sum_s p[s] mu[s] (x) mu[s] (x) mu[s]

are averages of products of two and three views, and their decomposition gives the model. There is
no likelihood and no local optimum, and the error falls as n^-1/2.

The logged actions must not depend on the hidden state (expectation-maximisation has no such need).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from latentbandits.learning.arms.learner import FittedArms, check_size, finish
from latentbandits.learning.arms.mixture import (
    TOLERANCE,
    Ascent,
    Mixture,
    Problem,
    best_of,
    start_at,
)
from latentbandits.learning.backends.backend import AnyLog, engine_of
from latentbandits.learning.logs.rows import ArmsModel, Log, Rewards, make_family
from latentbandits.learning.logs.tables import LogError
from latentbandits.models.checks import FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class MixtureFit:
    """The mixture of the highest ELBO: states by falling share, means with their uncertainty."""

    model: ArmsModel
    fitted: FittedArms
    elbo: float
    elbos: tuple[float, ...]  # of every pass; they never fall
    converged: bool


def fit_mixture(
    log: Log,
    n_states: int,
    *,
    rewards: Rewards = "gaussian",
    noise: float | None = None,
    n_restarts: int = 10,
    tolerance: float = TOLERANCE,
    seed: int = 0,
) -> MixtureFit:
    """Fit a variational mixture of `n_states` states (`learning/arms/mixture.py`).

    States with a share below half a percent are dropped. The model's prior covers the estimation
    error of the means only; `fit` also estimates the variation of users within a state.

    Args:
        log: users, actions and rewards.
        n_states: number of states S.
        rewards: family of the rewards.
        noise: standard deviation of Gaussian rewards; None: estimated.
        n_restarts: number of starts.
        tolerance: gain of the ELBO, in nats, below which passes end.
        seed: seed of the starts; it determines the result.

    >>> from latentbandits.learning.logs.rows import read_log
    >>> log = read_log({"u": [1, 1, 2, 2], "a": list("xyxy"), "r": [1, 0, 0, 1.2]}, "u", "a", "r")
    >>> fit_mixture(log, 2, noise=0.1).model.means.round(1)
    array([[1. , 0. ],
           [0. , 1.2]])
    """
    problem = mixture_problem(log, n_states, rewards, noise)
    if n_restarts < 1:
        raise ValueError(f"n_restarts must be at least 1; got {n_restarts}")
    ascent = best_of(problem, n_states, n_starts=n_restarts, tolerance=tolerance, seed=seed)
    return finished(problem, ascent)


def mixture_problem(log: Log, n_states: int, rewards: Rewards, noise: float | None) -> Problem:
    """Return the log as sufficient statistics; LogError if it cannot have so many states."""
    check_size(log, n_states)
    family = make_family(rewards, log.rewards, noise)
    return Problem.from_log(family, log)


def finished(problem: Problem, ascent: Ascent) -> MixtureFit:
    fitted = finish(problem, ascent)
    return MixtureFit(fitted.model(), fitted, fitted.elbo, ascent.elbos, ascent.converged)


LARGEST = 60
"""Largest number of actions K: the third moment has K^3 entries."""

_STARTS = 64
_ITERATIONS = 60
_BLOCK = 2**22  # entries of pairs of actions that are held at once


class Moments(NamedTuple):
    """Mean products of the rewards of one, two and three different rounds of a user."""

    first: FloatArray  # (n_actions,)
    second: FloatArray  # (n_actions, n_actions)
    third: FloatArray  # (n_actions, n_actions, n_actions)
    square: FloatArray  # (n_actions,): of squared rewards, including the noise variance


class Decomposition(NamedTuple):
    """The means and shares of the states, from moments alone."""

    means: FloatArray  # (n_states, n_actions)
    shares: FloatArray  # (n_states,)
    noise: float


def fit_spectral(
    log: Log,
    n_states: int,
    *,
    rewards: Rewards = "gaussian",
    noise: float | None = None,
    seed: int = 0,
) -> MixtureFit:
    """Fit by moments, then maximise the ELBO from there (Zhang, Chen, Zhou & Jordan 2014).

    Moments alone lose a part of the information in the data; the maximisation needs no restarts.

    Args:
        log: users, actions and rewards.
        n_states: number of states S.
        rewards: family of the rewards.
        noise: standard deviation of Gaussian rewards; None: estimated.
        seed: seed of the power iterations.

    >>> from latentbandits.learning.generate import generate_arms
    >>> truth = generate_arms(n_users=500, n_rounds=30, n_states=2, n_actions=3, seed=0)
    >>> fit = fit_spectral(truth.log, 2)
    >>> bool(abs(np.sort(fit.model.means, axis=0) - np.sort(truth.means, axis=0)).max() < 0.1)
    True
    """
    problem = mixture_problem(log, n_states, rewards, noise)
    start = spectral_start(problem, log, n_states, seed)
    return finished(problem, best_of(problem, n_states, n_starts=0, extra=start))


def spectral_start(problem: Problem, log: AnyLog, n_states: int, seed: int) -> Mixture:
    """Return the mixture of the moments' means and shares, as a start for maximising the ELBO."""
    decomposition = decompose(moments(log), n_states, seed=seed)
    return start_at(problem, decomposition.means, decomposition.shares)


class MomentSums(NamedTuple):
    """Sums over users of products of one, two and three different rounds."""

    paid: tuple[FloatArray, FloatArray, FloatArray]  # of rewards
    played: tuple[FloatArray, FloatArray, FloatArray]  # of ones
    square: FloatArray  # (n_actions,): of squared rewards


class MomentsPass:
    """A pass that sums the moments of users with three rewards or more."""

    def summarise(self, partition: Log, parameters: None) -> MomentSums:
        log = partition.of_users(np.flatnonzero(partition.lengths >= 3))
        weight = log.lengths.astype(np.float64)
        cell = log.users * log.n_actions + log.actions
        powers = [_totals(log, cell, log.rewards**k) for k in range(4)]
        paid = _distinct(powers[1], powers[2], powers[3], weight)
        played = _distinct(powers[0], powers[0], powers[0], weight)
        return MomentSums(paid, played, (powers[2] / weight[:, None]).sum(axis=0))


def moments(log: AnyLog) -> Moments:
    """Return averages over all ordered pairs and triples of different rounds of a user.

    Every triple of rounds serves as the three views, so no data are lost by a fixed split. Each
    user has the same weight, whatever the length of their log. Each entry is divided by how often
    its actions were played together, so that the choice of actions cancels.
    """
    check_size(log, 1)
    if log.n_actions > LARGEST:
        raise LogError(
            f"the spectral method takes at most {LARGEST} actions (its third moment has their "
            f"number cubed entries); the log has {log.n_actions:,}: use --method em"
        )
    log = engine_of(log)
    summary = log.summary
    enough = int(summary.users_of_length[summary.lengths >= 3].sum())
    if enough < 2:
        raise LogError(
            "the spectral method needs users with at least 3 rewards, which give three views of "
            f"their state; {enough} of {log.n_users} have them: use --method em"
        )
    paid, played, square = log.fold(MomentsPass(), None)
    for count, noun in ((played[1], "pair"), (played[2], "triple")):
        if (count <= 0).any():
            names = ", ".join(log.action_ids[i] for i in np.argwhere(count <= 0)[0])
            raise LogError(
                f"no user has a {noun} of rewards for the actions {names}, which the spectral "
                "method needs of every action with every other: use --method em"
            )
    first, second, third = (a / b for a, b in zip(paid, played, strict=True))
    return Moments(first, second, third, square / played[0])


def decompose(moments: Moments, n_states: int, *, seed: int = 0) -> Decomposition:
    """Return the means and shares that have these moments.

    Whitening: with M2 = E D E' on its `n_states` largest eigenvalues and W = E D^-1/2, the tensor
    M3(W, W, W) is a sum of p[s]^-1/2 v[s] (x) v[s] (x) v[s] over orthonormal v[s], which the power
    method finds; then mu[s] = p[s]^-1/2 E D^1/2 v[s].
    """
    values, vectors = np.linalg.eigh(moments.second)
    values, vectors = values[::-1][:n_states], vectors[:, ::-1][:, :n_states]
    if len(values) < n_states or values[-1] <= 0:
        usable = int((values > 0).sum())
        raise LogError(
            f"the log's second moments tell at most {usable} states apart, not {n_states}: ask "
            f"for at most {usable}, or use --method em"
        )
    whiten = vectors / np.sqrt(values)
    tensor = np.einsum("abc,ai,bj,ck->ijk", moments.third, whiten, whiten, whiten, optimize=True)
    weights, directions = orthogonal_components(tensor, np.random.default_rng(seed))
    means = weights[:, None] * (directions @ (vectors * np.sqrt(values)).T)
    shares = weights**-2 / (weights**-2).sum()
    played = moments.square - shares @ means**2
    noise = float(np.sqrt(max(played.mean(), 1e-12 * moments.square.mean())))
    return Decomposition(means, shares, noise)


def orthogonal_components(
    tensor: FloatArray, rng: np.random.Generator
) -> tuple[FloatArray, FloatArray]:
    """Return weights `(n,)` and orthonormal directions `(n, n)` of a decomposable tensor.

    Algorithm 1 of Anandkumar et al.: iterate v <- T(I, v, v) from many starts, continue the best
    one, then deflate the tensor by its component.

    >>> weights, v = orthogonal_components(np.eye(2)[:, :, None] * np.eye(2)[:, None] * [2.0, 3.0],
    ...                                    np.random.default_rng(0))
    >>> weights.round(6), v.round(6)
    (array([3., 2.]), array([[0., 1.],
           [1., 0.]]))
    """
    n = len(tensor)
    weights, directions = np.empty(n), np.empty((n, n))
    for i in range(n):
        v = rng.standard_normal((_STARTS, n))
        v = _power(tensor, v, _ITERATIONS)
        v = _power(tensor, v[[_value(tensor, v).argmax()]], _ITERATIONS)
        weights[i], directions[i] = _value(tensor, v)[0], v[0]
        tensor = tensor - weights[i] * np.einsum("i,j,k->ijk", v[0], v[0], v[0])
    return np.maximum(weights, 1e-6), directions


def _power(tensor: FloatArray, v: FloatArray, iterations: int) -> FloatArray:
    for _ in range(iterations):
        v = np.einsum("ijk,lj,lk->li", tensor, v, v, optimize=True)
        v = v / np.linalg.norm(v, axis=1, keepdims=True)
    return v


def _value(tensor: FloatArray, v: FloatArray) -> FloatArray:
    value: FloatArray = np.einsum("ijk,li,lj,lk->l", tensor, v, v, v, optimize=True)
    return value


def _totals(log: Log, cell: IntArray, values: FloatArray) -> FloatArray:
    total: FloatArray = np.zeros(log.n_users * log.n_actions)
    np.add.at(total, cell, values)
    return total.reshape(log.n_users, log.n_actions)


def _distinct(
    one: FloatArray, two: FloatArray, three: FloatArray, n_rounds: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return sums over users of mean x_i, x_i x_j, x_i x_j x_k over different rounds i, j, k.

    They are computed from the users' sums of x, x^2 and x^3 by action, by inclusion and exclusion:
    all triples, less those with two equal rounds, plus twice those with three equal rounds.
    """
    n_actions = one.shape[1]
    second = one.T @ (one / (n_rounds * (n_rounds - 1))[:, None])
    diagonal = np.arange(n_actions)
    second[diagonal, diagonal] -= (two / (n_rounds * (n_rounds - 1))[:, None]).sum(axis=0)
    weight = 1 / (n_rounds * (n_rounds - 1) * (n_rounds - 2))
    third = np.zeros((n_actions, n_actions * n_actions))
    size = max(1, _BLOCK // n_actions**2)
    for start in range(0, len(one), size):
        block = slice(start, start + size)
        x = one[block]
        pairs = (x[:, :, None] * x[:, None, :]).reshape(len(x), -1)
        third += (x * weight[block, None]).T @ pairs
    tensor = third.reshape(n_actions, n_actions, n_actions)
    same = two.T @ (one * weight[:, None])  # x_i^2 of one action with x_k of another
    tensor[diagonal, diagonal, :] -= same
    tensor[diagonal, :, diagonal] -= same
    tensor[:, diagonal, diagonal] -= same.T
    tensor[diagonal, diagonal, diagonal] += 2 * (three * weight[:, None]).sum(axis=0)
    return (one / n_rounds[:, None]).sum(axis=0), second, tensor
