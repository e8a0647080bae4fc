"""Coordinate ascent on the ELBO: all starts take a few passes, then only the best continue."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from latentbandits.learning.arms import mixture as vb
from latentbandits.learning.arms.cells import Prepare, Totals, TotalsPass
from latentbandits.learning.arms.mixture import Mixture
from latentbandits.learning.arms.starts import SAMPLE, grouped_starts, joined
from latentbandits.learning.backends.backend import AnyLog, Engine, engine_of
from latentbandits.learning.logs.formats import LogError
from latentbandits.models.arms.learnable import Learnable
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
    order: IntArray = np.lexsort((-bound, ~_kept(mixture).all(axis=1)))
    return order


def _by_share(mixture: Mixture) -> Mixture:
    """Return a single mixture with its states sorted by falling share."""
    order = np.argsort(-mixture.shares[0], kind="stable")
    return mixture._replace(phi=mixture.phi[:, order], shares=mixture.shares[:, order])
