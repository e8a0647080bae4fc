"""Refine the states of arms and their gate together by EM with users' attributes.

A pass is the E step of the mixture of arms (`arms/mixture.py`) with P(s | z) of the gate in place
of the shares, and the gradient of the gate (`gate.py`). Both steps raise

    ELBO of the arms given P(s | z) - ridge / 2 |w|^2.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from latentbandits.learning.arms import mixture as vb
from latentbandits.learning.arms.cells import Partition, Prepare
from latentbandits.learning.arms.coordinate_ascent import Climbed, Problem
from latentbandits.learning.arms.fitted import FittedArms, finish
from latentbandits.learning.arms.starts import SAMPLE, grouped_starts
from latentbandits.learning.attributes.gate import (
    GateLearner,
    GateParameters,
    GateSums,
    gate_sums,
    learn_weights,
    with_ones,
)
from latentbandits.learning.backends.backend import AnyLog
from latentbandits.learning.learners import Learned
from latentbandits.learning.logs.rows import Log
from latentbandits.models.attributes.gate import log_softmax
from latentbandits.models.checks import FloatArray
from latentbandits.models.composed.transformed import TransformedRewards

_TOLERANCE = 1e-5  # nats per user: the refinement ends when a pass gains less
_MAX_PASSES = 300


class GatedPartition(NamedTuple):
    """The users of a partition: statistics of their rewards, and attributes with ones first."""

    cells: Partition
    attributes: FloatArray


class GatedSums(NamedTuple):
    """Sums over users; sums of partitions add."""

    arms: vb.Sums
    gate: GateSums


class GatedParameters(NamedTuple):
    """The parameters that a pass needs: the mixture and the gate."""

    arms: vb.Broadcast
    gate: GateParameters


@dataclass(frozen=True, eq=False)
class PrepareGated:
    """Preparation of a partition, done once for all passes."""

    prepare: Prepare

    def __call__(self, log: Log) -> GatedPartition:
        return GatedPartition(self.prepare(log), with_ones(log))


@dataclass(frozen=True, eq=False)
class GatedPass:
    """A pass over the users: the sums of the arms and of the gate."""

    prepare: PrepareGated

    def summarise(self, partition: GatedPartition, parameters: GatedParameters) -> GatedSums:
        cells, z = partition
        log_prior = log_softmax(z @ parameters.gate.weights.T)
        current = parameters.arms._replace(log_shares=log_prior[:, None])
        taken, log_normaliser = vb.responsibilities(cells, current)
        gate = gate_sums(z, taken[:, 0], log_prior, log_normaliser, parameters.gate)
        return GatedSums(vb.weighted_sums(cells, taken, log_normaliser), gate)


def can_refine(learned: Learned) -> bool:
    """Return whether the model is a mixture of arms of untransformed rewards."""
    return isinstance(learned.fitted, FittedArms) and not isinstance(
        learned.model, TransformedRewards
    )


def grouped_by_attributes(learned: Learned, log: AnyLog) -> Learned:
    """Return a start of `refine`: states of users whose attributes predict similar rewards.

    The other parts of the model are unchanged.
    """
    fitted = learned.fitted
    assert isinstance(fitted, FittedArms)
    problem = Problem.from_log(fitted.family, log)
    sample = problem.engine.sample(SAMPLE, seed=0)
    mixture = grouped_starts(
        problem.family,
        Prepare(problem.family)(sample).dense(),
        problem.totals,
        problem.centre,
        learned.model.n_states,
        1,
        np.random.default_rng(0),
        with_ones(sample),
    )
    return replace(learned, fitted=replace(fitted, mixture=mixture))


def refine(
    learned: Learned, log: AnyLog, weights: FloatArray, ridge: float
) -> tuple[Learned, FloatArray]:
    """Return the model of arms and the gate's weights, refined together from `weights`.

    The variation within states is unchanged, and the estimation error does not get smaller.
    """
    fitted = learned.fitted
    assert isinstance(fitted, FittedArms)
    problem = Problem.from_log(fitted.family, log)
    work, learner = GatedPass(PrepareGated(problem.prepare)), GateLearner(None, ridge)  # type: ignore[arg-type]
    mixture, gate, before = fitted.mixture, GateParameters(weights), -np.inf
    for _ in range(_MAX_PASSES):
        parameters = GatedParameters(vb.broadcast(problem.family, mixture), gate)
        sums = problem.engine.fold(work, parameters)
        arms = problem.family, mixture, sums.arms, problem.totals, problem.centre
        penalty = ridge / 2 * float((gate.weights[:, 1:] ** 2).sum())
        now = float(vb.bound_of_arms(*arms)[0]) - penalty
        if now - before < _TOLERANCE * sums.gate.n_users:
            break
        mixture, gate, before = problem.step(mixture, sums.arms), learner.step(sums.gate, gate), now
    # The gate's shares replace those of the mixture; the order of states is unchanged.
    again = finish(problem, Climbed(mixture, np.array([now]), (), converged=True))
    again = replace(again, strength=fitted.strength).widened(fitted.estimation)
    refined = replace(learned, model=again.model(), fitted=again)
    n_attributes = weights.shape[1] - 1
    return refined, learn_weights(refined, log, n_attributes, ridge, gate.weights)
