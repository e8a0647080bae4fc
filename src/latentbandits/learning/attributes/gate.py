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
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from latentbandits.learning import user_hash
from latentbandits.learning.arms import mixture as vb
from latentbandits.learning.arms.learner import finish
from latentbandits.learning.arms.mixture import (
    SAMPLE,
    Ascent,
    Partition,
    Prepare,
    Problem,
    grouped_starts,
)
from latentbandits.learning.assess.replay import PolicyPlayer, most_users, playable_rounds, replay
from latentbandits.learning.attributes.encoding import UserAttributes
from latentbandits.learning.attributes.evidence import state_evidence
from latentbandits.learning.backends.backend import AnyLog, engine_of
from latentbandits.learning.learners import (
    LEAST_NATS,
    Learned,
    Learner,
    Selection,
    Split,
    Step,
    clearly_below,
    rows_as_actions,
    try_step,
)
from latentbandits.learning.logs.rows import Log
from latentbandits.models.attributes.parts import Gate, log_softmax, part, with_parts
from latentbandits.models.checks import BoolArray, FloatArray
from latentbandits.models.numerics.arrays import log_sum
from latentbandits.models.protocol import with_defaults
from latentbandits.policies.registry import Inputs, build
from latentbandits.report.report import Estimate

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
class GatePass:
    """A pass over the users, which sums what a step of the gate needs."""

    prepare: PrepareGate

    def summarise(self, partition: GatePartition, parameters: GateParameters) -> GateSums:
        z, evidence = partition
        log_prior = log_softmax(z @ parameters.weights.T)
        weights = log_prior + evidence
        top = weights.max(axis=1, keepdims=True)
        total = np.exp(weights - top).sum(axis=1, keepdims=True)
        taken = np.exp(weights - top) / total
        return gate_sums(z, taken, log_prior, top + np.log(total), parameters)


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


def next_gate(sums: GateSums, parameters: GateParameters, ridge: float) -> GateParameters:
    """Return the gate after a step, which never lowers the penalised evidence."""
    weights = parameters.weights
    gram = sums.gram if parameters.gram is None else parameters.gram
    penalty = ridge * np.ones(len(gram))
    penalty[0] = 1e-9 * max(gram[0, 0], 1.0)  # intercepts are not penalised
    slope = sums.gradient - penalty * weights
    moved = np.linalg.solve(gram / 2 + np.diag(penalty), slope.T).T
    return GateParameters(weights + moved, gram)


def penalty_of(gate: GateParameters, ridge: float) -> float:
    """Return what the penalised evidence is less than the evidence."""
    return ridge / 2 * float((gate.weights[:, 1:] ** 2).sum())


def fit_gate(
    sums_at: Callable[[GateParameters], GateSums], start: GateParameters, ridge: float
) -> GateParameters:
    """Repeat passes from `start` until a pass gains less than `_TOLERANCE` nats per user.

    `sums_at` sums the users with the given parameters.
    """
    parameters, before = start, -np.inf
    for _ in range(_MAX_PASSES):
        sums = sums_at(parameters)
        now = sums.log_evidence - penalty_of(parameters, ridge)
        if now - before < _TOLERANCE * sums.n_users:
            break
        parameters, before = next_gate(sums, parameters, ridge), now
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
    learned without attributes, so the users that it was learned from can be scored too: attributes
    without information gain nothing on them. The users are the held-out ones and a sample of
    `CROSS_FITTED` others.

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
            current = fit_gate(partial(GatePass(prepare).summarise, others), current, ridge)
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
    passed = partial(engine_of(log).fold, GatePass(PrepareGate(learned)))
    return fit_gate(passed, begin, ridge).weights


def user_evidence(part: GatePartition, weights: FloatArray) -> FloatArray:
    """Return the log evidence of every user's rewards with a gate, `(n_users,)`."""
    scores = log_softmax(part.attributes @ weights.T) + part.log_evidence
    return log_sum(scores)


# Refine the states of arms and their gate together by EM with users' attributes.
#
# A pass is the E step of the mixture of arms (`arms/mixture.py`) with P(s | z) of the gate in place
# of the shares, and the gradient of the gate (`gate.py`). Both steps raise
#
#     ELBO of the arms given P(s | z) - ridge / 2 |w|^2.

_REFINED = 1e-5  # nats per user: the refinement ends when a pass gains less
_MOST_REFINEMENTS = 300


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
    model = learned.model
    return learned.arms is not None and with_defaults(model).untransformed is model


def grouped_by_attributes(learned: Learned, log: AnyLog) -> Learned:
    """Return a start of `refine`: states of users whose attributes predict similar rewards.

    The other parts of the model are unchanged.
    """
    fitted = learned.arms
    assert fitted is not None
    problem = Problem.from_log(fitted.family, log)
    sample = problem.engine.sample(SAMPLE, seed=0)
    mixture = grouped_starts(
        problem,
        Prepare(problem.family)(sample).dense(),
        learned.model.n_states,
        1,
        np.random.default_rng(0),
        with_ones(sample),
    )
    return replace(learned, arms=replace(fitted, mixture=mixture))


def refine(
    learned: Learned, log: AnyLog, weights: FloatArray, ridge: float
) -> tuple[Learned, FloatArray]:
    """Return the model of arms and the gate's weights, refined together from `weights`.

    The variation within states is unchanged, and the estimation error does not get smaller.
    """
    fitted = learned.arms
    assert fitted is not None
    problem = Problem.from_log(fitted.family, log)
    work = GatedPass(PrepareGated(problem.prepare))
    mixture, gate, before = fitted.mixture, GateParameters(weights), -np.inf
    for _ in range(_MOST_REFINEMENTS):
        parameters = GatedParameters(vb.broadcast(problem.family, mixture), gate)
        sums = problem.engine.fold(work, parameters)
        now = float(problem.bound_of_arms(mixture, sums.arms)[0]) - penalty_of(gate, ridge)
        if now - before < _REFINED * sums.gate.n_users:
            break
        mixture, before = problem.step(mixture, sums.arms), now
        gate = next_gate(sums.gate, gate, ridge)
    # The gate's shares replace those of the mixture; the order of states is unchanged.
    again = finish(problem, Ascent(mixture, np.array([now]), (), converged=True))
    again = replace(again, strength=fitted.strength).widened(fitted.estimation)
    refined = replace(learned, model=again.model(), arms=again)
    n_attributes = weights.shape[1] - 1
    return refined, learn_weights(refined, log, n_attributes, ridge, gate.weights)


# Choose the gate's ridge, and the number of states with the users' attributes, on held-out users.
#
# Attributes tell users apart before their first reward. So they can support states that rewards
# alone do not.

_MORE_STATES = 2  # states that are tried beyond the number chosen without attributes
_GROUPS_RIDGE = 3.0  # of states that start from groups of attributes


@dataclass(frozen=True, eq=False)
class GateChoice:
    """A model of the kept users with its gate, and the held-out evidence that chose it."""

    learned: Learned
    weights: FloatArray  # (n_states, 1 + n_attributes)
    ridge: float
    rows: list[GateRow]
    refined: bool  # whether the states were refined together with the gate
    by_user: FloatArray  # (n_users,): log evidence of each held-out user
    grouped: bool = False  # whether the refinement starts from groups of attributes

    @property
    def used(self) -> bool:
        """Whether users outside a gate's fit confirm it; else attributes change nothing."""
        return self.ridge != np.inf


def choose_gate(learned: Learned, kept: AnyLog, held_out: Log) -> GateChoice:
    """Choose the ridge by cross-fitted evidence; refine states of arms with the gate.

    The refinement is kept unless the held-out evidence is clearly lower with it.
    """
    ridge, rows = choose_ridge(learned, kept, held_out)
    assert held_out.attributes is not None
    weights = learn_weights(learned, kept, held_out.attributes.shape[1], ridge)
    by_user = user_evidence(PrepareGate(learned)(held_out), weights)
    choice = GateChoice(learned, weights, ridge, rows, False, by_user)
    if not can_refine(learned):
        return choice
    if not choice.used:
        return _choose_groups(choice, kept, held_out)
    # States that fit the attributes better support a weaker ridge.
    for weaker in (one for one in RIDGES if one <= ridge):
        refined, weights = refine(learned, kept, weights, weaker)
        after = user_evidence(PrepareGate(refined)(held_out), weights)
        if choice.refined and after.sum() <= choice.by_user.sum():
            break
        if not choice.refined and clearly_below(after, by_user, 1.0):
            break
        choice = GateChoice(refined, weights, weaker, rows, True, after)
    return choice


def _choose_groups(choice: GateChoice, kept: AnyLog, held_out: Log) -> GateChoice:
    """Return the choice of states that start from groups of attributes, if it is clearly better.

    Attributes may separate states that rewards alone do not. Held-out users must confirm such
    states by two standard errors.
    """
    if choice.learned.model.n_states == 1:
        return choice
    start = grouped_by_attributes(choice.learned, kept)
    refined, weights = refine(start, kept, choice.weights, _GROUPS_RIDGE)
    after = user_evidence(PrepareGate(refined)(held_out), weights)
    if not clearly_below(choice.by_user, after):
        return choice
    return GateChoice(refined, weights, _GROUPS_RIDGE, choice.rows, True, after, grouped=True)


def choose_states(learner: Learner, selection: Selection, split: Split) -> Selection:
    """Return the selection with more states if these raise the held-out evidence with a gate."""
    first = selection.chosen.n_states
    if not can_refine(selection.learned):
        return selection
    best = choose_gate(selection.learned, split.kept, split.held_out).by_user
    for n_states in range(first + 1, first + 1 + _MORE_STATES):
        other = learner.select(split, (n_states,))
        if other.chosen.n_states < n_states:
            break
        found = choose_gate(other.learned, split.kept, split.held_out)
        if found.used and found.by_user.sum() - best.sum() > LEAST_NATS:
            rows = [row for row in selection.rows if row.n_states != n_states]
            selection, best = replace(other, rows=(*rows, *other.rows)), found.by_user
    return selection


# Measure the gain of users' attributes on held-out users: nats and reward by round.

ROUNDS = (1, 2, 5)
"""The rounds that the report states."""


class LearnedGate(NamedTuple):
    """The models of the kept users and of all users with their gates, and the report on them."""

    candidate: Learned
    learned: Learned
    report: dict[str, Any]
    step: Step


def learn_gate(
    attributes: UserAttributes,
    candidate: Learned,
    learned: Learned,
    kept: AnyLog,
    held_out: Log,
    log: AnyLog,
) -> LearnedGate:
    """Choose the ridge by cross-fitting, and learn the gates of both models.

    States of arms and the gate are refined together unless the held-out evidence rejects that. The
    gate is left out if the evidence is clearly lower with it.

    Args:
        attributes: attributes of all users of the log.
        candidate: the model of the kept users, with which the choice is made.
        learned: the model of all users.
        kept: users whose `attributes` the choice is learned from.
        held_out: users on whom the choice is evaluated.
        log: all users.
    """
    choice = choose_gate(candidate, kept, held_out)
    n_attributes = len(attributes.encoder)
    nothing = no_effect(candidate, n_attributes).weights
    without = user_evidence(PrepareGate(candidate)(held_out), nothing)
    step = try_step("gate of users' attributes", without, choice.by_user)
    if not step.used:
        choice = GateChoice(candidate, nothing, np.inf, choice.rows, False, without)
    if choice.grouped:
        learned, of_all = replace(learned, arms=choice.learned.arms), choice.weights
    else:
        of_all = learn_weights(learned, log, n_attributes, choice.ridge)
    if choice.refined:
        learned, of_all = refine(learned, log, of_all, choice.ridge)
    report = {
        "columns": list(attributes.encoder.names),
        "labels": list(attributes.encoder.labels),
        "users_whose_attributes_change": attributes.n_changed,
        "users_without_attributes": attributes.n_missing,
        "taken": "the first value by time of each user",
        "used": choice.used,
        "ridge": choice.ridge if choice.used else None,
        "ridges": [row._asdict() for row in choice.rows],
        "states_refined_with_the_gate": choice.refined,
        "states_grouped_by_attributes": choice.grouped,
        "weights": of_all.tolist(),
    }

    def gated(one: Learned, weights: FloatArray) -> Learned:
        gate = Gate(attributes.encoder, weights, attributes.sample)
        return replace(one, model=with_parts(one.model, gate=gate))

    return LearnedGate(gated(choice.learned, choice.weights), gated(learned, of_all), report, step)


def attribute_gain(learned: Learned, held_out: Log, policy: str, seed: int) -> list[dict[str, Any]]:
    """Return the gain of attributes in each of `ROUNDS`, with standard errors.

    Nats: the mean log predictive density of the user's t-th reward, with the gate minus without.
    Reward: the policy's reward in the t-th round of replay, with the gate minus without. Both are
    None if no user has t rows.
    """
    weights = part(learned.model, "gate").weights
    nats = _nats(learned, weights, held_out)
    rewards = _rewards(learned, weights, held_out, policy, seed)
    return [
        {
            "round": t,
            **_lead("nats", "users", nats[t], 1),
            **_lead("reward", "players", rewards[t], 2),
        }
        for t in ROUNDS
    ]


def _lead(name: str, count: str, leads: FloatArray, least: int) -> dict[str, Any]:
    """Return the mean lead, its standard error and the number; None for fewer than `least`."""
    if len(leads) < least:
        return {name: None, f"{name}_stderr": None, count: 0}
    mean, stderr = Estimate.from_values(leads)
    return {name: mean, f"{name}_stderr": stderr, count: len(leads)}


def _nats(learned: Learned, weights: FloatArray, log: Log) -> dict[int, FloatArray]:
    """Return, for each of `ROUNDS`, the gain of the users who have that round."""
    z = with_ones(log)
    average = no_effect(learned, z.shape[1] - 1).weights

    def gain(n_rows: int) -> FloatArray:
        if n_rows == 0:
            return np.zeros(log.n_users)
        part = GatePartition(z, state_evidence(learned, log.of_events(log.rounds < n_rows)))
        return user_evidence(part, weights) - user_evidence(part, average)

    return {t: (gain(t) - gain(t - 1))[log.lengths >= t] for t in ROUNDS}


def _rewards(
    learned: Learned, weights: FloatArray, log: Log, policy: str, seed: int
) -> dict[int, FloatArray]:
    """Return, for each of `ROUNDS`, the gain of the players who have that round."""
    log = learned.known_rows(log)
    log = log.of_users(np.arange(min(most_users(learned.model), log.n_users)))
    if not playable_rounds(log).any():
        return dict.fromkeys(ROUNDS, np.zeros(0))
    scores = with_ones(log) @ weights.T
    learned, log = rows_as_actions(learned, log)
    built = build(policy, Inputs(learned.model, horizon=max(ROUNDS), items=learned.features))
    options = built, log.n_actions, learned.features
    # Both have the same name, because the random numbers of a player depend on its name.
    told, untold = (
        replay({policy: player}, log, most_rounds=max(ROUNDS), seed=seed).rewards[policy]
        for player in (PolicyPlayer(*options, log_prior=scores), PolicyPlayer(*options))
    )
    lead = told - untold
    rounds = {t: lead[:, t - 1 : t].ravel() for t in ROUNDS}  # empty past the last round
    return {t: leads[~np.isnan(leads)] for t, leads in rounds.items()}
