"""SOLD (Kausik, Tan & Tewari 2025): the subspace in which users' weights lie, from short logs.

Each user's rounds are split into odd and even ones, h = 1, 2, with V_nh = mu I + sum xx' and
b_nh = V_nh^-1 sum xr. The halves have independent noise, so M = 1/N sum_n b_n1 b_n2' has no noise
bias; D_h = I - mu/N sum_n V_nh^-1 undoes the ridge, and M* = D_1^-1 M D_2^-T, symmetrised,
estimates E[beta beta']. That is right only if the logging policy did not depend on the user.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from latentbandits.models import checks
from latentbandits.models.checks import FloatArray, IntArray
from latentbandits.models.linear.gaussian import LinearGaussian

_SUSPICIOUS = 5.0  # standard errors: false warnings occur about once in 10^6


@dataclass(frozen=True, eq=False)
class Subspace:
    """The result of `learn_subspace`: a subspace, its error, and the second moment of weights."""

    basis: FloatArray  # (d, k): the top eigenvectors
    eigenvalues: FloatArray  # (d,), of the second moment, falling
    second_moment: FloatArray  # (d, d): the estimate of E[beta beta']
    mean: FloatArray  # (d,): the estimate of E[beta]
    error: float  # bootstrap estimate of |UU' - truth|, in the spectral norm
    n_users: int

    def prior(self, noise: float, error: float | None = None) -> LinearGaussian:
        """Return a Gaussian prior: N(0, U diag(eigenvalues) U' + rest I), one state.

        rest = error^2 trace / (d - k) is the variance outside the subspace; `error` None: the
        bootstrap estimate.
        """
        d, k = self.basis.shape
        kept = np.maximum(self.eigenvalues[:k], 0.0)
        missed = self.error if error is None else error
        rest = missed**2 * kept.sum() / (d - k) if d > k else 0.0
        covariance = (self.basis * kept) @ self.basis.T + rest * np.eye(d)
        return LinearGaussian(np.zeros((1, d)), noise, covariance[None])


def learn_subspace(
    features: ArrayLike | Sequence[ArrayLike],
    rewards: ArrayLike | Sequence[ArrayLike],
    rank: int | None = None,
    *,
    ridge: float = 1.0,
    n_bootstrap: int = 50,
    seed: int = 0,
) -> Subspace:
    """Learn the users' subspace from many short trajectories (SOLD; Kausik, Tan & Tewari 2025).

    `features[n]` is `(H_n, d)`, the features of the actions that user n was served, `rewards[n]`
    `(H_n,)`, with H_n >= 2. `rank` None takes the largest relative gap of eigenvalues. The error is
    the average distance to the subspaces of `n_bootstrap` resamples of the users. A logging policy
    that visibly depended on the user gives a warning: then the estimate is biased.

    Args:
        features: one `(H_n, d)` array for each user, or `(n_users, H, d)`.
        rewards: one `(H_n,)` array for each user, or `(n_users, H)`.
        rank: dimension of the subspace; None: chosen.
        ridge: added to the second moment of each user's features.
        n_bootstrap: number of resamples of the users.
        seed: of the split of trajectories and of the resamples.

    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=(400, 8, 3))
    >>> beta = rng.normal(size=(400, 1)) * [[0.6, 0.8, 0.0]]
    >>> r = (x @ beta[:, :, None])[:, :, 0] + 0.1 * rng.normal(size=(400, 8))
    >>> abs(learn_subspace(x, r, rank=1).basis[:, 0]).round(1)
    array([0.6, 0.8, 0. ])
    """
    halves = [_halves(n, x, r) for n, (x, r) in enumerate(zip(features, rewards, strict=True))]  # type: ignore[arg-type]
    if len(halves) < 2:
        raise ValueError(f"give the trajectories of at least two users; got {len(halves)}")
    widths = {x.shape[1] for user in halves for x, _ in user}
    if len(widths) > 1:
        raise ValueError(f"all users must have the same number of features; got {sorted(widths)}")
    checks.positive_number("ridge", ridge)
    estimates = [_Half.from_rounds([user[h] for user in halves], ridge) for h in range(2)]
    _warn_if_it_depends_on_the_user(estimates)
    n, d = len(halves), widths.pop()
    everyone = np.arange(n)
    moment = _second_moment(estimates, everyone, ridge)
    values, vectors = _eigenvectors(moment)
    k = _rank(values) if rank is None else checks.positive_count("rank", rank)
    if k > d:
        raise ValueError(f"rank must be at most the {d} features; got {k}")
    basis = vectors[:, :k]
    rng = np.random.default_rng(seed)
    distances = []
    for _ in range(n_bootstrap):
        moved = _eigenvectors(_second_moment(estimates, rng.integers(n, size=n), ridge))[1]
        distances.append(subspace_distance(basis, moved[:, :k]))
    means = [
        np.linalg.solve(_shrinkage(half, everyone, ridge), half.weights.mean(axis=0))
        for half in estimates
    ]
    error = float(np.mean(distances)) if distances else float("nan")
    return Subspace(basis, values, moment, np.mean(means, axis=0), error, n)


def subspace_distance(one: FloatArray, other: FloatArray) -> float:
    """Return the spectral norm of the difference of the projections on two subspaces.

    >>> subspace_distance(np.eye(2)[:, :1], np.eye(2)[:, 1:])
    1.0
    """
    return float(np.linalg.norm(one @ one.T - other @ other.T, 2))


@dataclass(frozen=True, eq=False)
class _Half:
    """Ridge estimates of every user from one half of the rounds."""

    weights: FloatArray  # (N, d): b_nh
    inverse: FloatArray  # (N, d, d): V_nh^-1
    mean_feature: FloatArray  # (N, d)
    gram: FloatArray  # (N, d, d), per round

    @classmethod
    def from_rounds(cls, rounds: list[tuple[FloatArray, FloatArray]], ridge: float) -> _Half:
        d = rounds[0][0].shape[1]
        gram = np.stack([x.T @ x for x, _ in rounds])
        counts = np.array([len(x) for x, _ in rounds], float)
        inverse = np.linalg.inv(gram + ridge * np.eye(d))
        products = np.stack([x.T @ r for x, r in rounds])
        weights = (inverse @ products[:, :, None])[:, :, 0]
        return cls(
            weights,
            np.asarray(inverse, np.float64),
            np.stack([x.mean(axis=0) for x, _ in rounds]),
            gram / counts[:, None, None],
        )


def _halves(
    n: int, features: ArrayLike, rewards: ArrayLike
) -> tuple[tuple[FloatArray, FloatArray], tuple[FloatArray, FloatArray]]:
    """Return a user's odd and even rounds."""
    x = checks.finite_array(f"features of user {n}", features, (2,))
    r = checks.finite_array(f"rewards of user {n}", rewards, (1,))
    if len(x) != len(r):
        raise ValueError(f"user {n} has {len(x)} rounds of features and {len(r)} rewards")
    if len(r) < 2:
        raise ValueError(
            f"user {n} has a single round: SOLD splits every trajectory in two halves, so leave "
            "out users with fewer than two rounds"
        )
    return (x[0::2], r[0::2]), (x[1::2], r[1::2])


def _shrinkage(half: _Half, users: IntArray, ridge: float) -> FloatArray:
    """Return D_h = I - mu / N sum_n V_nh^-1: E[b_nh] = D_h beta."""
    shrinkage: FloatArray = np.eye(half.inverse.shape[1]) - ridge * half.inverse[users].mean(axis=0)
    return shrinkage


def _second_moment(halves: list[_Half], users: IntArray, ridge: float) -> FloatArray:
    """Return M* of the given users."""
    one, other = halves
    moment = one.weights[users].T @ other.weights[users] / len(users)
    left = np.linalg.solve(_shrinkage(one, users, ridge), moment)
    full = np.linalg.solve(_shrinkage(other, users, ridge), left.T).T
    return np.asarray((full + full.T) / 2, np.float64)


def _eigenvectors(moment: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the eigenvalues of a symmetric matrix, falling, and their vectors as columns."""
    values, vectors = np.linalg.eigh(moment)
    order = np.argsort(-values)
    return values[order], vectors[:, order]


def _rank(values: FloatArray) -> int:
    """Return the k with the largest ratio of neighbouring eigenvalues, noise floored."""
    floor = max(np.abs(values[values < 0]).max(initial=0.0), values[0] * 1e-3, 1e-300)
    padded = np.maximum(values, floor)
    if len(padded) == 1:
        return 1
    return int((padded[:-1] / padded[1:]).argmax()) + 1


def _warn_if_it_depends_on_the_user(halves: list[_Half]) -> None:
    """Warn if the features served in one half correlate with the weights from the other half.

    Under a logging policy that ignores the user, the features of one half are independent of the
    estimate from the other half: x'b and (x'b)^2 then average to their values over all users.
    """
    for here, there in (halves, halves[::-1]):
        served = ((here.mean_feature - here.mean_feature.mean(axis=0)) * there.weights).sum(axis=1)
        offset = here.gram - here.gram.mean(axis=0)
        squared = ((offset @ there.weights[:, :, None])[:, :, 0] * there.weights).sum(axis=1)
        for values in (served, squared):
            spread = values.std(ddof=1) / np.sqrt(len(values))
            if spread > 0 and abs(values.mean()) > _SUSPICIOUS * spread:
                warnings.warn(
                    "the logged actions depend on the user's weights "
                    f"({values.mean() / spread:+.1f} standard errors): SOLD assumes a logging "
                    "policy that ignores the user, and its second moment is biased here",
                    stacklevel=3,
                )
                return
