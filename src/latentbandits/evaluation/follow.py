"""Follow a policy along logged sessions: its action probabilities at each logged decision."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from latentbandits.evaluation.log import DecisionLog, EvaluationError, LoggedRound
from latentbandits.models.checks import BoolArray, FloatArray, IntArray
from latentbandits.models.protocol import Context
from latentbandits.models.trees import map_leaves
from latentbandits.policies.decision import ANYONE, Decision
from latentbandits.policies.protocol import AnyPolicy


class Followed(NamedTuple):
    """A candidate along a log, arrays `(n_sessions, n_rounds)`."""

    chance: FloatArray  # pi_t(a_t), 1 past the end
    direct: FloatArray  # sum_a pi_t(a) q_t(a), 0 past the end


class SessionBeliefs:
    """A belief for a batch of sessions, some of which learn at a time."""

    def __init__(self, belief: Any) -> None:
        self.belief = belief

    def take(self, index: IntArray, n: int) -> Any:
        """Return the belief of the sessions `index`; the whole of it where these are all `n`."""
        if len(index) == n:
            return self.belief
        return map_leaves(lambda leaf: leaf[index], self.belief)

    def put(self, index: IntArray, n: int, learned: Any) -> None:
        """Replace the belief of the sessions `index`."""
        if len(index) == n:
            self.belief = learned
            return

        def scatter(old: FloatArray, new: FloatArray) -> FloatArray:
            if old.shape[1:] != new.shape[1:]:
                raise UnevenBeliefsError
            result = np.array(old)
            result[index] = new
            return result

        self.belief = map_leaves(scatter, self.belief, learned)


class UnevenBeliefsError(Exception):
    """Sessions of one batch have beliefs of different shapes: they must be followed alone."""


def probabilities(
    policy: AnyPolicy,
    belief: Any,
    context: Context,
    eligible: BoolArray | None,
    n_actions: int,
    rng: np.random.Generator,
    draws: int | None,
) -> FloatArray:
    """Return pi(a) of every action, `(n, n_actions)`: exact, or an unbiased estimate.

    `draws` posterior draws are counted where the policy has no cheap closed form; with None the
    policy computes its probabilities by itself. Averages of importance weights stay unbiased with
    either, because draws of different rounds are independent.
    """
    if draws is not None:
        counted = policy.count_probabilities(belief, context, eligible, draws, rng)
        if counted is not None:
            return counted.values
    known = policy.action_probabilities(belief, context, rng, eligible=eligible)
    if known is not None and known.kind != "none":
        return known.values
    count = np.zeros((len(_first_leaf(belief)), n_actions))
    rows = np.arange(len(count))
    for _ in range(draws or 100):
        action = policy.decide(belief, context, rng, eligible=eligible, propensity=False).action
        count[rows, action] += 1
    return count / (draws or 100)


def own_decision(
    policy: AnyPolicy,
    belief: Any,
    round_: LoggedRound,
    chance: FloatArray,
    rng: np.random.Generator,
) -> Decision:
    """Return the logged action as a decision of `policy`, with the policy's propensity and state.

    Policies that learn from the believed state of a decision (mUCB) are asked for a decision that
    agrees with the log. Where the policy never makes that decision, the session's weight is zero
    from here on.
    """
    n = len(round_.action)
    state = np.zeros(n, np.int64)
    if policy.learns_from == "own":
        for _ in range(16):
            made = policy.decide(
                belief, round_.context, rng, eligible=round_.eligible, propensity=False
            )
            state = np.where(made.action == round_.action, made.state, state)
            if np.all((made.action == round_.action) | (chance <= 0)):
                break
    safe = np.where(chance > 0, chance, 1.0)
    return Decision(round_.action, state, safe, "exact", ANYONE, round_.eligible)


def follow(
    policy: AnyPolicy,
    log: DecisionLog,
    q: FloatArray | None,
    rng: np.random.Generator,
    draws: int | None = None,
) -> Followed:
    """Return pi_t(a_t) and the direct term of every logged decision.

    The candidate learns, before decision t, from the rewards that the log had applied by then, in
    log order. `q` are the reward model's predictions (`predict`); None leaves `direct` 0.
    """
    try:
        return _follow(policy, log, q, rng, draws)
    except UnevenBeliefsError:
        parts = [
            _follow(policy, log.take(np.array([i])), None if q is None else q[[i]], rng, draws)
            for i in range(log.n_sessions)
        ]
        return Followed(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))


def _follow(
    policy: AnyPolicy,
    log: DecisionLog,
    q: FloatArray | None,
    rng: np.random.Generator,
    draws: int | None,
) -> Followed:
    n, n_rounds = log.action.shape
    chance, direct = np.ones((n, n_rounds)), np.zeros((n, n_rounds))
    candidate = SessionBeliefs(policy.init(n))
    decisions: list[Decision] = []
    for t in range(n_rounds):
        learn_before(t, policy, candidate, log, decisions)
        rows = np.flatnonzero(log.lengths > t)
        round_ = log.round(t, rows)
        belief = candidate.take(rows, n)
        pi = probabilities(
            policy, belief, round_.context, round_.eligible, log.n_actions, rng, draws
        )
        target = pi[np.arange(len(rows)), round_.action]
        chance[rows, t] = target
        if q is not None:
            direct[rows, t] = (pi * q[rows, t]).sum(axis=1)
        decisions.append(_spread(own_decision(policy, belief, round_, target, rng), rows, n))
    return Followed(chance, direct)


def _spread(decision: Decision, rows: IntArray, n: int) -> Decision:
    """Return the decision of some sessions, in arrays for all `n`."""
    if len(rows) == n:
        return decision

    def full(values: Any, fill: float) -> Any:
        array = np.full((n, *values.shape[1:]), fill, values.dtype)
        array[rows] = values
        return array

    return Decision(
        full(decision.action, 0),
        full(decision.state, 0),
        None if decision.propensity is None else full(decision.propensity, 1.0),
        decision.propensity_kind,
        decision.policy,
        None if decision.eligible is None else full(decision.eligible, 1),
    )


def learn_before(
    t: int, policy: AnyPolicy, learner: SessionBeliefs, log: DecisionLog, decisions: list[Decision]
) -> None:
    """Learn from the rewards that were applied between decisions t - 1 and t, in log order."""
    n = log.n_sessions
    observed = log.observed
    first = t - 1 if log.applied is None else 0
    for j in range(max(first, 0), t):
        arrived = observed[:, j]
        if log.applied is not None:
            arrived = arrived & (log.applied[:, j] == t)
        rows = np.flatnonzero(arrived & (log.lengths > t))
        if len(rows) == 0:
            continue
        made, round_ = decisions[j], log.round(j, rows)
        decision = Decision(
            made.action[rows],
            made.state[rows],
            None if made.propensity is None else made.propensity[rows],
            made.propensity_kind,
            made.policy,
            None if made.eligible is None else made.eligible[rows],
        )
        try:
            learned = policy.update(
                learner.take(rows, n), round_.context, decision, log.reward[rows, j]
            )
        except ValueError as error:
            raise EvaluationError(
                f"{policy.name} cannot learn from the log: "
                f"{error} (rewards of round {j + 1}). Is it a model of these rewards?"
            ) from None
        learner.put(rows, n, learned)


def _first_leaf(tree: Any) -> FloatArray:
    while isinstance(tree, tuple):
        tree = tree[0]
    array: FloatArray = tree
    return array
