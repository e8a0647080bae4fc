"""Follow a policy along logged sessions: its action probabilities at each logged decision.

A reward model is followed the same way: it predicts the reward of every action (q of DR and DM).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from latentbandits.environments.from_model import UsersOfModel
from latentbandits.evaluation.log import DecisionLog, EvaluationError, LoggedRound
from latentbandits.models.checks import FloatArray, IntArray
from latentbandits.models.composed.known import Known
from latentbandits.models.numerics.arrays import map_leaves
from latentbandits.models.protocol import Context, WithPrior, with_defaults
from latentbandits.policies.decision import ANYONE, Decision, at
from latentbandits.policies.latent.ucb import mmGreedy
from latentbandits.policies.protocol import AnyPolicy, Asked, after_pause


class Followed(NamedTuple):
    """A candidate along a log, arrays `(n_sessions, n_rounds)`."""

    chance: FloatArray  # pi_t(a_t), 1 past the end
    direct: FloatArray  # sum_a pi_t(a) q_t(a), 0 past the end


class SessionBeliefs:
    """A policy's belief for a batch of `n` sessions, some of which learn at a time."""

    def __init__(self, policy: AnyPolicy, n: int) -> None:
        self.policy, self.n = policy, n
        self.belief = policy.init(n)
        self._gap = with_defaults(policy.model_or_none).session_gap
        self._learned_at = np.full(n, np.nan)  # time of the latest decision that was learned from

    def take(self, index: IntArray, times: FloatArray | None = None) -> Any:
        """Return the belief of the sessions `index`; the belief itself if these are all sessions.

        With `times`, the belief of users who return at these times after a pause is moved.
        """
        belief = self.belief
        if len(index) < self.n:
            belief = map_leaves(lambda leaf: leaf[index], belief)
        if self._gap is None or times is None:
            return belief
        return after_pause(self.policy, belief, times - self._learned_at[index] > self._gap)

    def learn(
        self,
        index: IntArray,
        context: Context,
        decision: Decision,
        reward: FloatArray,
        *,
        last: bool = True,
        looked: FloatArray | None = None,
        times: FloatArray | None = None,
    ) -> None:
        """Update the belief of the sessions `index` with a reward each.

        `last` and `looked` are arguments of `update_position`, for positions of a list; `times` are
        the times of the decisions.
        """
        before = self.take(index, times)
        if times is not None:
            self._learned_at[index] = np.fmax(self._learned_at[index], times)
        if last and looked is None:
            learned = self.policy.update(before, context, decision, reward)
        else:
            learned = self.policy.update_position(
                before, context, decision, reward, last=last, looked=looked
            )
        if len(index) == self.n:
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
    round_: LoggedRound,
    n_actions: int,
    rng: np.random.Generator,
    draws: int | None,
) -> FloatArray:
    """Return pi(a) of every action, `(n, n_actions)`: exact, or an unbiased estimate.

    `draws` posterior draws are counted where the policy has no cheap closed form; with None the
    policy computes its probabilities by itself. Averages of importance weights stay unbiased with
    either, because draws of different rounds are independent.
    """
    context, eligible = round_.context, round_.eligible
    if draws is not None:
        counted = policy.count_probabilities(belief, Asked(context, eligible, rng), draws)
        if counted is not None:
            return counted.values
    known = policy.action_probabilities(belief, context, rng, eligible=eligible)
    if known is not None and known.kind != "none":
        return known.values
    count = np.zeros((len(round_.action), n_actions))
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
    n, n_rounds = log.action.shape
    chance, direct = np.ones((n, n_rounds)), np.zeros((n, n_rounds))

    def step(t: int, rows: IntArray, round_: LoggedRound, belief: Any) -> Decision:
        pi = probabilities(policy, belief, round_, log.n_actions, rng, draws)
        target = pi[np.arange(len(rows)), round_.action]
        chance[rows, t] = target
        if q is not None:
            direct[rows, t] = (pi * q[rows, t]).sum(axis=1)
        return own_decision(policy, belief, round_, target, rng)

    walk(policy, log, step)
    return Followed(chance, direct)


Step = Callable[[int, IntArray, LoggedRound, Any], Decision]
"""From t, the sessions that decide in round t, that round and their beliefs to their decisions."""


def walk(policy: AnyPolicy, log: DecisionLog, step: Step) -> None:
    """Walk `policy` through the log round by round; `step` looks at its beliefs and decides.

    Sessions whose beliefs differ in shape are walked through one after the other.
    """
    everyone = np.arange(log.n_sessions)
    try:
        _walk(policy, log, everyone, step)
    except UnevenBeliefsError:
        for session in everyone:
            _walk(policy, log, everyone[[session]], step)


def _walk(policy: AnyPolicy, log: DecisionLog, sessions: IntArray, step: Step) -> None:
    part = log if len(sessions) == log.n_sessions else log.take(sessions)
    learner = SessionBeliefs(policy, len(sessions))
    made: list[tuple[IntArray, Decision | None]] = []
    for t in range(part.action.shape[1]):
        _learn_before(t, learner, part, made)
        rows = np.flatnonzero(part.active[:, t])
        belief = learner.take(rows, None if part.times is None else part.times[rows, t])
        decision = step(t, sessions[rows], part.round(t, rows), belief) if len(rows) else None
        made.append((rows, decision))


def _learn_before(
    t: int, learner: SessionBeliefs, log: DecisionLog, made: list[tuple[IntArray, Decision | None]]
) -> None:
    """Learn from the rewards that were applied between decisions t - 1 and t, in log order.

    Unless a position is seen only if nothing above it was clicked, the rewards of a list come
    after the list. Time moves on with its last observed position.
    """
    observed, length = log.observed, log.length
    first = t - 1 if log.applied is None else 0
    if length > 1 and not log.clicks.unrolled:
        if t % length:
            return
        first = t - length
    looked = log.clicks.looked(length) if length > 1 else None
    deciding_later = log.active[:, t:].any(axis=1)
    for j in range(max(first, 0), t):
        arrived = observed[:, j]
        if log.applied is not None:
            arrived = arrived & (log.applied[:, j] == t)
        rest_of_list = observed[:, j + 1 : j + length - j % length]
        more = rest_of_list.any(axis=1)
        for last in (False, True):
            rows = np.flatnonzero(arrived & deciding_later & (more != last))
            deciding, decision = made[j]
            if len(rows) == 0 or decision is None:
                continue
            chance = None if looked is None else np.full(len(rows), looked[j % length])
            try:
                taken = decision.take(np.searchsorted(deciding, rows))
                context = log.round(j, rows).context
                times = None if log.times is None else log.times[rows, j]
                learner.learn(
                    rows, context, taken, log.reward[rows, j],
                    last=last, looked=chance, times=times,
                )  # fmt: skip
            except ValueError as error:
                raise EvaluationError(
                    f"{learner.policy.name} cannot learn from the log: "
                    f"{error} (rewards of round {j // length + 1}). Is it a model of these rewards?"
                ) from None


def predict(model: Any, log: DecisionLog) -> FloatArray:
    """Return q_t(a) = E[r | a, the session's logged history before t], `(n, T, K)`.

    The history's posterior under `model` gives it in closed form: sum_s P(s) E[mu(a, s, theta)],
    times P(the position is looked at). Entries past a session's end are 0.
    """
    learning: Any = model if isinstance(model, WithPrior) else Known(model)
    policy = mmGreedy(learning)
    looked = log.clicks.looked(log.length) if log.length > 1 else None
    if looked is not None and not policy.learns_unseen:
        policy = mmGreedy(Known(model))
    q = np.zeros((*log.action.shape, log.n_actions))

    def step(t: int, rows: IntArray, round_: LoggedRound, belief: Any) -> Decision:
        q[rows, t] = policy.mean_rewards(belief, round_.context)
        if looked is not None:
            q[rows, t] *= looked[t % log.length]
        return Decision.logged(round_.action)

    walk(policy, log, step)
    return q


# Simulate a candidate on its reward model: the direct method for sessions of several rounds.

Simulator = Callable[[AnyPolicy, int, int], FloatArray]
"""From a policy, a number of sessions and a horizon to mean rewards `(n_sessions, horizon)`."""


def simulator(model: Any, log: DecisionLog, seed: int = 0) -> Simulator | None:
    """Return a function that plays a policy on users drawn from `model`.

    Simulated sessions are as long as the logged ones; a session that ended earns 0. None where
    rounds have contexts or eligible actions of their own or are lists, or where users cannot be
    drawn.
    """
    if log.has_context or log.eligible is not None or log.length > 1:
        return None
    try:
        users = UsersOfModel(model)
    except ValueError:
        return None

    def play(policy: AnyPolicy, n_sessions: int, horizon: int) -> FloatArray:
        rng = np.random.default_rng([seed, 17])
        instances = users.start(n_sessions, horizon, rng)
        belief = policy.init(n_sessions)
        earned = np.zeros((n_sessions, horizon))
        for t in range(horizon):
            round_ = instances.round(t, rng)
            decision = policy.decide(belief, round_.context, rng, propensity=False)
            earned[:, t] = at(round_.means, decision.action)
            reward = at(round_.rewards, decision.action)
            belief = policy.update(belief, round_.context, decision, reward)
        return np.where(log.active[:, :horizon], earned, 0.0)

    return play
