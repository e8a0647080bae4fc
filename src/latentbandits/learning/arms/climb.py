"""Passes over the log until the ELBO stops rising: all starts for a while, then the best."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from latentbandits.learning.arms import mixture as vb
from latentbandits.learning.arms.cells import Prepare, Totals, TotalsPass
from latentbandits.learning.arms.families.family import Family
from latentbandits.learning.arms.mixture import Mixture
from latentbandits.learning.arms.starts import SAMPLE, grouped_starts, joined
from latentbandits.learning.engines.engine import AnyLog, Engine
from latentbandits.learning.engines.memory import engine_of
from latentbandits.models.checks import BoolArray, FloatArray, IntArray

TOLERANCE = 1e-3
"""Nats: a pass that gains less ends the climb."""

SMALLEST_SHARE = 0.005
"""States with a smaller share of users are dropped."""

_BURN_IN = 15  # passes of every start before only the best go on
_FINALISTS = 2
_MAX_PASSES = 1_000


class Problem(NamedTuple):
    """A log on its engine, and what the first pass over it found."""

    family: Family
    engine: Engine
    prepare: Prepare
    totals: Totals
    centre: FloatArray  # (A, ...): the pooled prior's mean of every action

    @classmethod
    def of(cls, family: Family, log: AnyLog, *, n_replicates: int = 0, seed: int = 0) -> Problem:
        """Sum the log once; with `n_replicates`, users have weights in so many bootstraps."""
        engine, prepare = engine_of(log), Prepare(family, n_replicates, seed)
        found = engine.fold(TotalsPass(prepare), None)
        return cls(family, engine, prepare, found, family.centre(found.statistics.mean(axis=0)))

    def sums(self, mixture: Mixture) -> vb.Sums:
        return self.engine.fold(vb.MixturePass(self.prepare), vb.broadcast(self.family, mixture))

    def sample(self, size: int, seed: int) -> FloatArray:
        """Statistics of `size` users chosen by hash, `(size, n_statistics, n_actions)`."""
        return Prepare(self.family)(self.engine.sample(size, seed)).dense()

    def elbo(self, mixture: Mixture, sums: vb.Sums) -> FloatArray:
        return vb.elbo(self.family, mixture, sums, self.totals, self.centre)

    def step(self, mixture: Mixture, sums: vb.Sums) -> Mixture:
        return vb.step(self.family, mixture, sums, self.totals, self.centre)


class Climbed(NamedTuple):
    """The end of a climb, and the ELBO of every pass."""

    mixture: Mixture
    elbo: FloatArray  # (R,)
    elbos: tuple[float, ...]  # of the best mixture so far, pass by pass
    converged: bool


def start_at(problem: Problem, means: FloatArray, shares: FloatArray) -> Mixture:
    """Return the mixture of states with these `means` (S, A) and `shares` (S,) of users.

    LogError if the family needs more than means.
    """
    family, totals = problem.family, problem.totals
    counting, _ = family.counts_and_sums
    counts = shares[:, None] * (totals.statistics[0] @ counting)
    sums = family.statistics_of_means(counts, means)[None]
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
    """Repeat passes until none of the mixtures gains `tolerance`.

    With `finalists`, all go on for a few passes and then only the so many best.
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
    """Return the mixture of the highest ELBO over starts: grouped users, and `extra`.

    Mixtures that keep all their states come before those that lose one, whatever the ELBO: with
    fewer states they are candidates for that number. Where none keeps all, states below half a
    percent of the users are dropped, and the rest is climbed again.
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
    found = climb(
        problem, joined(*starts), tolerance=tolerance, finalists=_FINALISTS, progress=progress
    )
    first = _best_first(found.mixture, found.elbo)[:1]
    best = _by_share(found.mixture.take(first))
    kept = _kept(best)[0]
    if kept.all():
        return found._replace(mixture=best, elbo=found.elbo[first])
    fewer = int(kept.sum())
    best = best._replace(phi=best.phi[:, :fewer], shares=best.shares[:, :fewer])
    again = climb(problem, best, tolerance=tolerance, progress=progress)
    return again._replace(mixture=_by_share(again.mixture))


def _kept(mixture: Mixture) -> BoolArray:
    """Mark the states whose share is large enough, `(R, S)`."""
    least = min(SMALLEST_SHARE, 1 / mixture.shares.shape[1])
    kept: BoolArray = mixture.state_prior() >= least
    return kept


def _best_first(mixture: Mixture, bound: FloatArray) -> IntArray:
    """The R mixtures by falling ELBO; those that lose states come last."""
    order: IntArray = np.lexsort((-bound, ~_kept(mixture).all(axis=1)))
    return order


def _by_share(mixture: Mixture) -> Mixture:
    """One mixture with its states by falling share."""
    order = np.argsort(-mixture.shares[0], kind="stable")
    return mixture._replace(phi=mixture.phi[:, order], shares=mixture.shares[:, order])
