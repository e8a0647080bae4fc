"""Learn the gate P1(s | z) inside EM: a multinomial logistic regression with soft labels.

With l[u, s] the log evidence of user u's rewards in state s, p[u, s] the gate's probabilities and
r[u, s] = p[u, s] exp(l[u, s]) / sum the responsibilities, the penalised evidence

    sum_u log sum_s p[u, s] exp(l[u, s]) - ridge / 2 |w|^2

has the gradient sum_u (r[u, s] - p[u, s]) z_u - ridge w_s. Its curvature is at least that of
-1/2 sum_u z_u z_u' for every state (Boehning 1992), so that the step

    w_s <- w_s + (sum_u z_u z_u' / 2 + ridge)^-1 gradient_s

never lowers it. A pass is `summarise` of every partition and one `step`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

from latentbandits.learning import user_hash
from latentbandits.learning.attributes.evidence import state_evidence
from latentbandits.learning.backends.backend import AnyLog
from latentbandits.learning.backends.memory import engine_of
from latentbandits.learning.learners import Learned
from latentbandits.learning.logs.rows import Log
from latentbandits.learning.selection import clearly_below
from latentbandits.models.attributes.gate import log_softmax
from latentbandits.models.checks import BoolArray, FloatArray
from latentbandits.models.numerics.log_weights import log_sum

RIDGES = (1000.0, 300.0, 100.0, 30.0, 10.0, 3.0, 1.0, 0.3)
"""Ridge penalties that are tried, from strong to weak; numeric attributes are standardised."""

CROSS_FITTED = 4_000
"""The largest number of users, besides the held-out ones, on whom the ridge is chosen."""

_FOLDS = 5
_TOLERANCE = 1e-6  # nats per user: the fit ends when a pass gains less
_MAX_PASSES = 2_000


class GateParameters(NamedTuple):
    """The weights, and sum z z' after the first pass."""

    weights: FloatArray  # (n_states, 1 + n_attributes), intercepts first
    gram: FloatArray | None = None  # (1 + n_attributes, 1 + n_attributes)


class GateSums(NamedTuple):
    """Sums over users; sums of partitions add."""

    gradient: FloatArray  # (n_states, 1 + n_attributes), without the penalty
    gram: FloatArray  # sum z z'; empty if the parameters already hold it
    log_evidence: float
    n_users: int

    def __add__(self, other: GateSums) -> GateSums:  # type: ignore[override]
        return GateSums(
            self.gradient + other.gradient,
            self.gram + other.gram,
            self.log_evidence + other.log_evidence,
            self.n_users + other.n_users,
        )


class GatePartition(NamedTuple):
    """The users of a partition."""

    attributes: FloatArray  # (n_users, 1 + n_attributes), ones first
    log_evidence: FloatArray  # (n_users, n_states)

    def of_users(self, chosen: BoolArray) -> GatePartition:
        return GatePartition(self.attributes[chosen], self.log_evidence[chosen])


def with_ones(log: Log) -> FloatArray:
    """Return the users' attributes, `(n_users, 1 + n_attributes)`, ones first."""
    assert log.attributes is not None
    return np.concatenate([np.ones((log.n_users, 1)), log.attributes], axis=1)


@dataclass(frozen=True, eq=False)
class PrepareGate:
    """Preparation of a partition, done once because the evidence does not depend on the gate."""

    learned: Learned

    def __call__(self, log: Log) -> GatePartition:
        return GatePartition(with_ones(log), state_evidence(self.learned, log))


@dataclass(frozen=True, eq=False)
class GateLearner:
    """One pass over the users: sums, and a step that never lowers the penalised evidence."""

    prepare: PrepareGate
    ridge: float

    def summarise(self, partition: GatePartition, parameters: GateParameters) -> GateSums:
        z, evidence = partition
        log_prior = log_softmax(z @ parameters.weights.T)
        weights = log_prior + evidence
        top = weights.max(axis=1, keepdims=True)
        total = np.exp(weights - top).sum(axis=1, keepdims=True)
        taken = np.exp(weights - top) / total
        return gate_sums(z, taken, log_prior, top + np.log(total), parameters)

    def step(self, sums: GateSums, parameters: GateParameters) -> GateParameters:
        weights = parameters.weights
        gram = sums.gram if parameters.gram is None else parameters.gram
        penalty = self.ridge * np.ones(len(gram))
        penalty[0] = 1e-9 * max(gram[0, 0], 1.0)  # intercepts are not penalised
        slope = sums.gradient - penalty * weights
        moved = np.linalg.solve(gram / 2 + np.diag(penalty), slope.T).T
        return GateParameters(weights + moved, gram)

    def objective(self, sums: GateSums, parameters: GateParameters) -> float:
        """Return the penalised evidence, which a step never lowers."""
        return sums.log_evidence - self.ridge / 2 * float((parameters.weights[:, 1:] ** 2).sum())


def gate_sums(
    z: FloatArray,
    taken: FloatArray,
    log_prior: FloatArray,
    log_evidence: FloatArray,
    parameters: GateParameters,
) -> GateSums:
    """Return the sums over users with responsibilities `taken` and the gate's `log_prior`."""
    gram = z.T @ z if parameters.gram is None else np.zeros((0, 0))
    gradient = (taken - np.exp(log_prior)).T @ z
    return GateSums(gradient, gram, float(log_evidence.sum()), len(z))


def fit_gate(
    learner: GateLearner, sums_at: Callable[[GateParameters], GateSums], start: GateParameters
) -> GateParameters:
    """Repeat passes from `start` until a pass gains less than `_TOLERANCE` nats per user.

    `sums_at` sums the users with the given parameters.
    """
    parameters, before = start, -np.inf
    for _ in range(_MAX_PASSES):
        sums = sums_at(parameters)
        now = learner.objective(sums, parameters)
        if now - before < _TOLERANCE * sums.n_users:
            break
        parameters, before = learner.step(sums, parameters), now
    return parameters


class GateRow(NamedTuple):
    """A ridge and its cross-fitted gain in evidence over no attributes, in nats per user."""

    ridge: float
    gain: float
    stderr: float


def no_effect(learned: Learned, n_attributes: int) -> GateParameters:
    """Return the gate that gives every user the model's own prior."""
    prior = learned.model.log_state_prior[0]
    weights = np.zeros((len(prior), 1 + n_attributes))
    weights[:, 0] = prior - prior.mean()
    return GateParameters(weights)


def choose_ridge(learned: Learned, kept: AnyLog, held_out: Log) -> tuple[float, list[GateRow]]:
    """Return the ridge of the largest cross-fitted evidence.

    Every user is scored by a gate that is learned from the users of the other folds. The model was
    learned without attributes, so that its own users can be scored too: attributes that say nothing
    gain nothing on them. The users are the held-out ones and a sample of `CROSS_FITTED` others.

    The ridge is infinity, which ignores the attributes, unless the total gain is above its standard
    error and `LEAST_NATS`.
    """
    prepare = PrepareGate(learned)
    logs = engine_of(kept).sample(CROSS_FITTED, seed=0), held_out
    parts = [prepare(log) for log in logs]
    users = GatePartition(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))
    keys = np.concatenate([log.keys for log in logs])
    fold = user_hash.mix(keys, 0, user_hash.CROSS_FIT) % _FOLDS
    start = no_effect(learned, users.attributes.shape[1] - 1)
    average = user_evidence(users, start.weights)
    by_ridge = {ridge: np.zeros(len(average)) for ridge in RIDGES}
    for k in range(_FOLDS):
        inside = fold == k
        scored, others = users.of_users(inside), users.of_users(~inside)
        current = start
        for ridge in RIDGES:
            learner = GateLearner(prepare, ridge)
            current = fit_gate(learner, partial(learner.summarise, others), current)
            by_ridge[ridge][inside] = user_evidence(scored, current.weights)
    rows = []
    for ridge, evidence in by_ridge.items():
        gain = evidence - average
        rows.append(GateRow(ridge, float(gain.mean()), float(gain.std() / np.sqrt(len(gain)))))
    best = max(rows, key=lambda row: row.gain).ridge
    return best if clearly_below(average, by_ridge[best], 1.0) else np.inf, rows


def learn_weights(
    learned: Learned, log: AnyLog, n_attributes: int, ridge: float, start: FloatArray | None = None
) -> FloatArray:
    """Return the gate's weights `(n_states, 1 + n_attributes)` from all users of `log`."""
    begin = no_effect(learned, n_attributes) if start is None else GateParameters(start)
    if ridge == np.inf:
        return begin.weights
    learner, engine = GateLearner(PrepareGate(learned), ridge), engine_of(log)
    return fit_gate(learner, partial(engine.fold, learner), begin).weights


def user_evidence(part: GatePartition, weights: FloatArray) -> FloatArray:
    """Return the log evidence of every user's rewards with a gate, `(n_users,)`."""
    scores = log_softmax(part.attributes @ weights.T) + part.log_evidence
    return log_sum(scores)
