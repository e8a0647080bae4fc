"""A mixture over users of per-state action means, by expectation-maximisation with restarts.

Every user has one hidden state s ~ P1, and all their rewards for action a are N(mu[s, a],
sigma^2). A user's log enters through counts and sums only, so that a sweep is four matrix products
for all restarts together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from latentbandits.learning.logs import Log
from latentbandits.learning.tables import LogError
from latentbandits.models.arms.gaussian import GaussianArms
from latentbandits.models.checks import FloatArray, positive_count, positive_number

LARGEST = 5_000
"""States times actions: the information matrix of the means has this many rows."""

_GAIN = 1e-4  # nats: a sweep that gains less moves no mean by a noticeable part of its spread
_BURN_IN = 20  # sweeps of every restart before only the best go on
_FINALISTS = 3
_NOISE = 0.01  # of the rewards' own spread: one reward's worth of prior, against a noise of zero


class UserStatistics(NamedTuple):
    """All that the mixture needs to know of a log."""

    counts: FloatArray  # (n_users, n_actions)
    sums: FloatArray  # (n_users, n_actions), of rewards
    squares: FloatArray  # (n_users, n_actions), of squared rewards

    @classmethod
    def of(cls, log: Log, shift: float = 0.0) -> UserStatistics:
        """Of rewards less `shift`: sums of squares lose no digits to a large mean."""
        rewards = log.rewards - shift
        cell = log.users * log.n_actions + log.actions
        shape = (log.n_users, log.n_actions)

        def total(weights: FloatArray | None) -> FloatArray:
            counted = np.bincount(cell, weights, minlength=shape[0] * shape[1])
            return counted.astype(np.float64).reshape(shape)

        return cls(total(None), total(rewards), total(rewards**2))


class MeanPrior(NamedTuple):
    """What a mean is before a state's users speak: N(centre[a], spread^2), weakly."""

    centre: FloatArray  # (n_actions,)
    spread: float  # that of the rewards themselves


class Components(NamedTuple):
    """Mixtures side by side, restarts first."""

    means: FloatArray  # (n_restarts, n_states, n_actions)
    shares: FloatArray  # (n_restarts, n_states)
    variance: FloatArray  # (n_restarts,), of a reward


@dataclass(frozen=True, eq=False)
class MixtureFit:
    """The best of the restarts: states by falling share, each mean with its posterior spread."""

    model: GaussianArms
    responsibilities: FloatArray  # (n_users, n_states)
    log_posterior: float
    n_sweeps: int
    converged: bool


def fit_mixture(
    log: Log,
    n_states: int,
    *,
    noise: float | None = None,
    n_restarts: int = 10,
    start: GaussianArms | None = None,
    max_sweeps: int = 2_000,
    seed: int = 0,
    progress: Callable[[int], None] | None = None,
) -> MixtureFit:
    """The mixture whose posterior density is highest; `noise` None is estimated.

    `start` is one more place to start from, such as the fit to almost the same users; with
    `n_restarts=0` it is the only one. Deterministic given `seed`.

    >>> from latentbandits.learning.logs import read_log
    >>> log = read_log({"u": [1, 1, 2, 2], "a": list("xyxy"), "r": [1, 0, 0, 1.2]}, "u", "a", "r")
    >>> fit_mixture(log, 2, noise=0.1).model.means.round(1)
    array([[0. , 1.2],
           [1. , 0. ]])
    """
    check_size(log, n_states)
    shift = float(log.rewards.mean())
    statistics = UserStatistics.of(log, shift)
    prior = _mean_prior(statistics)
    rng = np.random.default_rng(seed)
    known = None if noise is None else positive_number("noise", noise) ** 2
    first = _starts(statistics, prior, n_states, n_restarts, known, rng)
    if start is not None:
        first = _with_start(first, start, shift, start.noise**2 if known is None else known)
    elif n_restarts < 1:
        raise ValueError(f"n_restarts must be at least 1 without a start; got {n_restarts}")
    best, n_sweeps, converged, height = _climb(
        statistics, prior, first, known, max_sweeps, progress
    )
    return _finish(statistics, prior, best, shift, height, n_sweeps, converged)


def sweep(
    statistics: UserStatistics, prior: MeanPrior, current: Components, known: float | None
) -> tuple[Components, FloatArray]:
    """One expectation and one maximisation step; and the log posterior before it, `(n_restarts,)`.

    The log posterior never falls: the maximisation takes the means given the variance, then the
    variance given the means. Shares have a Dirichlet(2) prior, so that no state is ever empty, and
    the variance that of one more reward, so that it is never zero.
    """
    responsibilities, height = expect(statistics, prior, current)
    taken = responsibilities.swapaxes(1, 2)
    count, total = taken @ statistics.counts, taken @ statistics.sums
    variance = current.variance[:, None, None]
    precision = count / variance + prior.spread**-2
    means = (total / variance + prior.centre * prior.spread**-2) / precision
    shares = responsibilities.sum(axis=1) + 1.0
    shares /= shares.sum(axis=1, keepdims=True)
    if known is None:
        error = statistics.squares.sum() + (means * (means * count - 2 * total)).sum(axis=(1, 2))
        least = (_NOISE * prior.spread) ** 2
        new_variance = (np.maximum(error, 0.0) + least) / (statistics.counts.sum() + 1)
    else:
        new_variance = current.variance
    return Components(means, shares, new_variance), height


def expect(
    statistics: UserStatistics, prior: MeanPrior, current: Components
) -> tuple[FloatArray, FloatArray]:
    """P(s | the user's rewards), `(n_restarts, n_users, n_states)`, and the log posterior."""
    means = current.means.swapaxes(1, 2)
    n_events = statistics.counts.sum()
    fit = statistics.sums @ means - 0.5 * (statistics.counts @ (means * means))
    log_weights = fit / current.variance[:, None, None] + np.log(current.shares)[:, None, :]
    top = log_weights.max(axis=2, keepdims=True)
    responsibilities = np.exp(log_weights - top)
    total = responsibilities.sum(axis=2, keepdims=True)
    responsibilities /= total
    height = (top + np.log(total)).sum(axis=(1, 2))
    height -= 0.5 * n_events * np.log(2 * np.pi * current.variance)
    height -= 0.5 * statistics.squares.sum() / current.variance
    height -= 0.5 * np.log(current.variance)
    height -= 0.5 * (_NOISE * prior.spread) ** 2 / current.variance
    height -= 0.5 * (((current.means - prior.centre) / prior.spread) ** 2).sum(axis=(1, 2))
    height += np.log(current.shares).sum(axis=1)
    return responsibilities, height


def posterior_spread(
    statistics: UserStatistics, prior: MeanPrior, components: Components
) -> FloatArray:
    """The posterior standard deviation of every mean, `(n_states, n_actions)`.

    Laplace's approximation with Louis' (1982) observed information: what the labelled rewards
    would tell, less what is lost because the labels are not known. For means mu[s], mu[s'] the
    loss is the sum over users of (r[s] 1{s = s'} - r[s] r[s']) h[s] h[s']', where r are the user's
    responsibilities and h[s] = (sums - counts mu[s]) / sigma^2.
    """
    responsibilities = expect(statistics, prior, components)[0][0]
    means, variance = components.means[0], float(components.variance[0])
    n_states, n_actions = means.shape
    seen = responsibilities.T @ statistics.counts / variance
    scores = (statistics.sums[:, None] - statistics.counts[:, None] * means) / variance
    weighted = responsibilities[:, :, None] * scores
    shared = weighted.reshape(len(scores), -1)
    information = shared.T @ shared  # sum of r[s] r[s'] h[s] h[s']'
    for s in range(n_states):
        block = slice(s * n_actions, (s + 1) * n_actions)
        information[block, block] -= weighted[:, s].T @ scores[:, s]
    information[np.diag_indices_from(information)] += seen.ravel()
    values, vectors = np.linalg.eigh(information)
    # Directions that the labels' uncertainty leaves without information keep the prior's.
    precision = np.maximum(values, 0.0) + prior.spread**-2
    spread: FloatArray = np.sqrt((vectors**2 / precision).sum(axis=1))
    return spread.reshape(means.shape)


def check_size(log: Log, n_states: int) -> None:
    positive_count("states", n_states)
    if n_states > log.n_users:
        raise LogError(
            f"{n_states} states are more than the log's {log.n_users} users: ask for at most "
            f"{log.n_users}, and far fewer to learn from"
        )
    if n_states * log.n_actions > LARGEST:
        raise LogError(
            f"a model of arms with {n_states} states and {log.n_actions:,} actions is too large "
            f"(states times actions may be {LARGEST:,}): use --kind linear for a large catalogue"
        )


def _mean_prior(statistics: UserStatistics) -> MeanPrior:
    counts, sums = statistics.counts.sum(axis=0), statistics.sums.sum(axis=0)
    overall = sums.sum() / counts.sum()
    spread = np.sqrt(max(statistics.squares.sum() / counts.sum() - overall**2, 0.0))
    centre = (sums + overall) / (counts + 1)
    return MeanPrior(centre, float(spread) if spread > 0 else 1.0)


def _starts(
    statistics: UserStatistics,
    prior: MeanPrior,
    n_states: int,
    n_restarts: int,
    known: float | None,
    rng: np.random.Generator,
) -> Components:
    """Means of users that lie far apart, chosen as by k-means++, for every restart."""
    variance = _pooled_variance(statistics, prior) if known is None else known
    weight = variance / prior.spread**2
    points = (statistics.sums + weight * prior.centre) / (statistics.counts + weight)
    means = np.array([_far_apart(points, n_states, rng) for _ in range(n_restarts)])
    means = means.reshape(n_restarts, n_states, points.shape[1])
    shares = np.full((n_restarts, n_states), 1.0 / n_states)
    return Components(means, shares, np.full(n_restarts, variance))


def _with_start(
    starts: Components, start: GaussianArms, shift: float, variance: float
) -> Components:
    shares = np.maximum(start.state_prior, 1e-6)
    return Components(
        np.concatenate([starts.means, start.means[None] - shift]),
        np.concatenate([starts.shares, shares[None] / shares.sum()]),
        np.append(starts.variance, variance),
    )


def _pooled_variance(statistics: UserStatistics, prior: MeanPrior) -> float:
    """Of repeated rewards of one user for one action, which no state can explain; where there are
    none, half of what is left when every action has its mean.
    """
    counts, sums, squares = statistics
    freedom = np.maximum(counts - 1, 0).sum()
    least = (_NOISE * prior.spread) ** 2
    if freedom > 0:
        within = (squares - sums**2 / np.maximum(counts, 1)).sum()
        return max(float(within / freedom), least)
    residual = squares - 2 * prior.centre * sums + prior.centre**2 * counts
    return max(0.5 * float(residual.sum() / counts.sum()), least)


def _far_apart(points: FloatArray, n_states: int, rng: np.random.Generator) -> FloatArray:
    chosen = [int(rng.integers(len(points)))]
    distance = ((points - points[chosen[0]]) ** 2).sum(axis=1)
    while len(chosen) < n_states:
        total = distance.sum()
        weights = distance / total if total > 0 else np.full(len(points), 1 / len(points))
        chosen.append(int(rng.choice(len(points), p=weights)))
        distance = np.minimum(distance, ((points - points[chosen[-1]]) ** 2).sum(axis=1))
    return points[chosen]


def _climb(
    statistics: UserStatistics,
    prior: MeanPrior,
    current: Components,
    known: float | None,
    max_sweeps: int,
    progress: Callable[[int], None] | None,
) -> tuple[Components, int, bool, float]:
    """All restarts for a few sweeps, the best of them until they gain nothing more."""
    before = np.full(len(current.variance), -np.inf)
    for n_sweeps in range(1, max_sweeps + 1):
        following, height = sweep(statistics, prior, current, known)
        converged = bool((height - before < _GAIN).all())
        if progress is not None:
            progress(n_sweeps)
        if converged:
            break
        current, before = following, height
        if n_sweeps == _BURN_IN:
            kept = np.argsort(-height)[:_FINALISTS]
            current = Components(*(part[kept] for part in current))
            before = before[kept]
    best = int(height.argmax())
    one = Components(*(part[best : best + 1] for part in current))
    return one, n_sweeps, converged, float(height[best])


def _finish(
    statistics: UserStatistics,
    prior: MeanPrior,
    components: Components,
    shift: float,
    height: float,
    n_sweeps: int,
    converged: bool,
) -> MixtureFit:
    order = np.argsort(-components.shares[0], kind="stable")
    components = Components(
        components.means[:, order], components.shares[:, order], components.variance
    )
    spread = posterior_spread(statistics, prior, components)
    noise = float(np.sqrt(components.variance[0]))
    model = GaussianArms(components.means[0] + shift, noise, spread, components.shares[0])
    responsibilities = expect(statistics, prior, components)[0][0]
    return MixtureFit(model, responsibilities, height, n_sweeps, converged)
