"""Coordinate ascent on the ELBO: all starts take a few passes, then only the best continue."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from latentbandits.learning.arms import mixture as vb
from latentbandits.learning.arms.mixture import Mixture, Prepare, Totals, TotalsPass
from latentbandits.learning.backends.backend import AnyLog, Engine, engine_of
from latentbandits.learning.kmeans import lloyd, nearest, seeds
from latentbandits.learning.logs.formats import LogError
from latentbandits.models.arms.learnable import Learnable
from latentbandits.models.artefacts.catalogue import Catalogue
from latentbandits.models.checks import BoolArray, FloatArray, IntArray

TOLERANCE = 1e-3
"""ELBO gain of a pass, in nats, below which the ascent stops."""

SMALLEST_SHARE = 0.005
"""Minimal share of users of a state; smaller states are dropped."""

_BURN_IN = 15  # passes of every start, before only the best continue
_FINALISTS = 2
_MAX_PASSES = 1_000


class Problem(NamedTuple):
    """A log on its engine, and the totals of the first pass over it."""

    family: Learnable
    engine: Engine
    prepare: Prepare
    totals: Totals
    centre: FloatArray  # (A, ...): the mean of the pooled prior for every action

    @classmethod
    def from_log(
        cls, family: Learnable, log: AnyLog, *, n_replicates: int = 0, seed: int = 0
    ) -> Problem:
        """Sum the log once; with `n_replicates`, give every user that many bootstrap weights."""
        engine, prepare = engine_of(log), Prepare(family, n_replicates, seed)
        sums = engine.fold(TotalsPass(prepare), None)
        return cls(family, engine, prepare, sums, family.centre(sums.statistics.mean(axis=0)))

    def sums(self, mixture: Mixture) -> vb.Sums:
        return self.engine.fold(vb.MixturePass(self.prepare), vb.broadcast(self.family, mixture))

    def sample(self, size: int, seed: int) -> FloatArray:
        """Return the statistics `(size, n_statistics, n_actions)` of users sampled by hash."""
        return Prepare(self.family)(self.engine.sample(size, seed)).dense()

    def elbo(self, mixture: Mixture, sums: vb.Sums) -> FloatArray:
        return vb.elbo(self.family, mixture, sums, self.totals, self.centre)

    def step(self, mixture: Mixture, sums: vb.Sums) -> Mixture:
        return vb.step(self.family, mixture, sums, self.totals, self.centre)


class Climbed(NamedTuple):
    """The final mixtures of an ascent, and the best ELBO after every pass."""

    mixture: Mixture
    elbo: FloatArray  # (R,)
    elbos: tuple[float, ...]  # of the best mixture so far, one per pass
    converged: bool


def start_at(problem: Problem, means: FloatArray, shares: FloatArray) -> Mixture:
    """Return a mixture whose states have the given `means` (S, A) and `shares` (S,) of users.

    Raise LogError if means do not determine the family's parameters.
    """
    family, totals = problem.family, problem.totals
    counting, _ = family.counts_and_sums
    counts = shares[:, None] * (totals.statistics[0] @ counting)
    try:
        sums = family.statistics_of_means(counts, means)[None]
    except ValueError as error:
        raise LogError(str(error)) from error
    noise = family.first_noise(totals.statistics[0], 1)
    strength = np.ones(1)
    phi = family.posterior(family.prior(problem.centre, strength), sums, noise)
    return Mixture(phi, 1.0 + shares[None] * totals.n_users[0], strength, noise)


def climb(
    problem: Problem,
    start: Mixture,
    *,
    tolerance: float = TOLERANCE,
    max_passes: int = _MAX_PASSES,
    finalists: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> Climbed:
    """Repeat passes until no mixture gains more than `tolerance`.

    With `finalists`, all mixtures take a few passes and then only that many of the best continue.
    """
    current, before = start, np.full(len(start.strength), -np.inf)
    history: list[float] = []
    converged = False
    for n_passes in range(1, max_passes + 1):
        sums = problem.sums(current)
        bound = problem.elbo(current, sums)
        history.append(float(bound.max()))
        if progress is not None:
            progress(n_passes)
        converged = bool((bound - before < tolerance).all())
        if converged:
            break
        current, before = problem.step(current, sums), bound
        if n_passes == _BURN_IN and finalists is not None and len(bound) > finalists:
            kept = np.sort(_best_first(current, bound)[:finalists])
            current, before = current.take(kept), bound[kept]
    return Climbed(current, bound, tuple(history), converged)


def best_of(
    problem: Problem,
    n_states: int,
    *,
    n_starts: int = 6,
    extra: Mixture | None = None,
    tolerance: float = TOLERANCE,
    seed: int = 0,
    progress: Callable[[int], None] | None = None,
) -> Climbed:
    """Return the mixture with the highest ELBO over the starts: grouped users, and `extra`.

    A mixture that keeps all its states ranks above one that loses a state, whatever their ELBOs:
    the latter is a candidate for a smaller number of states. If no mixture keeps all its states,
    the states with less than half a percent of the users are dropped and the ascent is repeated.
    """
    starts = [] if extra is None else [extra]
    if n_starts:
        sample = problem.sample(SAMPLE, seed)
        rng = np.random.default_rng(seed)
        starts.append(
            grouped_starts(
                problem.family, sample, problem.totals, problem.centre, n_states, n_starts, rng
            )
        )
    climbed = climb(
        problem, joined(*starts), tolerance=tolerance, finalists=_FINALISTS, progress=progress
    )
    first = _best_first(climbed.mixture, climbed.elbo)[:1]
    best = _by_share(climbed.mixture.take(first))
    kept = _kept(best)[0]
    if kept.all():
        return climbed._replace(mixture=best, elbo=climbed.elbo[first])
    fewer = int(kept.sum())
    best = best._replace(phi=best.phi[:, :fewer], shares=best.shares[:, :fewer])
    again = climb(problem, best, tolerance=tolerance, progress=progress)
    return again._replace(mixture=_by_share(again.mixture))


def _kept(mixture: Mixture) -> BoolArray:
    """Mark the states whose share is large enough to keep, `(R, S)`."""
    least = min(SMALLEST_SHARE, 1 / mixture.shares.shape[1])
    kept: BoolArray = mixture.state_prior() >= least
    return kept


def _best_first(mixture: Mixture, bound: FloatArray) -> IntArray:
    """Return the indices of the R mixtures by falling ELBO; mixtures that lose states come last."""
    return np.lexsort((-bound, ~_kept(mixture).all(axis=1)))


def _by_share(mixture: Mixture) -> Mixture:
    """Return a single mixture with its states sorted by falling share."""
    order = np.argsort(-mixture.shares[0], kind="stable")
    return mixture._replace(phi=mixture.phi[:, order], shares=mixture.shares[:, order])


# Starting points of the variational mixture: clusters of users that lie far apart.
#
# A user's mean rewards, shrunk to the action's mean, are noisy if rewards are sparse; their leading
# principal components are less noisy. Users are clustered in those by k-means++ and a few steps of
# k-means, and the summed statistics of the clusters are a start.

SAMPLE = 4_000
"""The number of users from which starts are made."""

_STEPS = 5  # of k-means for each start
_FIRST_STRENGTH = 20.0  # of the pooled prior, in rewards; the ascent updates it


def grouped_starts(
    family: Learnable,
    sample: FloatArray,
    totals: Totals,
    centre: FloatArray,
    n_states: int,
    n_starts: int,
    rng: np.random.Generator,
    attributes: FloatArray | None = None,
) -> Mixture:
    """Return `n_starts` mixtures of `n_states` states, made from a `sample` (n, K, A) of users.

    With `attributes` (n, d), users are clustered by the mean rewards that these predict.
    """
    points = _points(family, sample, totals)
    if attributes is not None:
        points = attributes @ np.linalg.lstsq(attributes, points, rcond=None)[0]
    n_users, n_actions = float(totals.n_users[0]), totals.statistics.shape[1]
    shape = (n_starts, n_states, family.n_statistics, n_actions)
    sums, shares = np.zeros(shape), np.zeros((n_starts, n_states))
    components = _principal(points, min(n_states + 1, points.shape[1], len(points)))
    for i in range(n_starts):
        # Half of the starts use fewer components, to leave out noise.
        n_components = max(1, n_states - 1) if i % 2 == 0 else components.shape[1]
        shown = components[:, :n_components]
        centres, _ = lloyd(shown, seeds(shown, n_states, rng), _STEPS)
        group = nearest(shown, centres)
        for s in range(n_states):
            sums[i, s] = sample[group == s].sum(axis=0)
            shares[i, s] = (group == s).sum()
    scale = n_users / len(sample)
    noise = family.first_noise(totals.statistics[0], n_starts)
    strength = np.full(n_starts, _FIRST_STRENGTH)
    phi = family.posterior(family.prior(centre, strength), scale * sums.swapaxes(2, 3), noise)
    return Mixture(phi, 1.0 + scale * shares, strength, noise)


def joined(*mixtures: Mixture) -> Mixture:
    """Join mixtures with the same number of states along the axis R."""
    return Mixture(*(np.concatenate(parts) for parts in zip(*mixtures, strict=True)))


def _points(family: Learnable, sample: FloatArray, totals: Totals) -> FloatArray:
    """Return users' centred mean rewards, divided by their deviation and shrunk, `(n, A)`."""
    counting, paying = family.counts_and_sums
    counts = np.einsum("nka,k->na", sample, counting)
    sums = np.einsum("nka,k->na", sample, paying)
    n_rewards = np.maximum(totals.statistics[0] @ counting, 1e-12)
    means = totals.statistics[0] @ paying / n_rewards
    residual = sums - counts * means
    spread = np.sqrt((residual**2).sum(axis=0) / np.maximum(counts.sum(axis=0), 1.0))
    spread = np.where(spread > 0, spread, 1.0)
    scaled: FloatArray = residual / spread / (counts + 1.0)
    return scaled


def _principal(points: FloatArray, n: int) -> FloatArray:
    """Return the users' coordinates along the `n` leading principal components."""
    centred = points - points.mean(axis=0)
    _, vectors = np.linalg.eigh(centred.T @ centred)
    coordinates: FloatArray = centred @ vectors[:, ::-1][:, :n]
    return coordinates


# An earlier model as a start of the next fit.


class Earlier(NamedTuple):
    """Mean rewards of an earlier model's states, for the actions of a log."""

    means: FloatArray  # (S, A)
    shares: FloatArray  # (S,)


def earlier_means(model: Any, catalogue: Catalogue | None, actions: Sequence[str]) -> Earlier:
    """Return an earlier model's means for `actions`; a new action gets the state's average mean.

    If the model is of transformed rewards, the means are transformed too. The actions of a model
    without a catalogue are called "0", "1", ...

    >>> from latentbandits import GaussianArms
    >>> earlier_means(GaussianArms([[0.2, 0.6]], noise=1.0), None, ["1", "new"]).means
    array([[0.6, 0.4]])
    """
    inner = model.model if hasattr(model, "transform") else model
    features = None if catalogue is None else catalogue.features
    means = inner.expected_rewards(None if features is None else features[None])[0]
    ids = [str(i) for i in range(means.shape[1])] if catalogue is None else catalogue.ids
    places = {name: i for i, name in enumerate(ids)}
    average = means.mean(axis=1)
    columns = [means[:, places[name]] if name in places else average for name in actions]
    return Earlier(np.stack(columns, axis=1), np.exp(model.log_state_prior[0]))
