"""Estimators that let the candidate act: replay (Li et al. 2011) and queue (Mandel et al. 2016)."""

from __future__ import annotations

import numpy as np

from latentbandits.evaluation.estimators import ByRound, mean_by_round
from latentbandits.evaluation.follow import SessionBeliefs
from latentbandits.evaluation.log import DecisionLog
from latentbandits.models.checks import FloatArray, IntArray
from latentbandits.policies.protocol import AnyPolicy

QUEUE_SHARE = 0.8
"""The queue estimate ends where fewer than this share of the sessions go on: those that do are not
like the others."""


def rejection_replay(policy: AnyPolicy, log: DecisionLog, rng: np.random.Generator) -> ByRound:
    """Return the value of the candidate's t-th accepted round, on a log that `lacking` allows.

    The candidate draws an action at each logged decision. If it equals the logged action, the round
    counts and the candidate learns from it; other rounds are skipped. Means are over the sessions
    with at least t accepted rounds; under a uniform log, chance alone decides which sessions those
    are.
    """
    n, n_rounds = log.action.shape
    earned = np.full((n, n_rounds), np.nan)
    accepted = np.zeros(n, np.int64)
    learner = SessionBeliefs(policy, n)
    observed = log.observed
    for t in range(n_rounds):
        rows = np.flatnonzero(log.lengths > t)
        round_ = log.round(t, rows)
        belief = learner.take(rows)
        decision = policy.decide(
            belief, round_.context, rng, eligible=round_.eligible, propensity=False
        )
        same = np.flatnonzero((decision.action == round_.action) & observed[rows, t])
        if len(same) == 0:
            continue
        kept = rows[same]
        earned[kept, accepted[kept]] = log.reward[kept, t]
        accepted[kept] += 1
        context = None if round_.context is None else round_.context[same]
        learner.learn(kept, context, decision.take(same), log.reward[kept, t])
    return _trimmed(earned)


def queue(policy: AnyPolicy, log: DecisionLog, rng: np.random.Generator) -> ByRound:
    """Return the value of each round when the candidate draws from each action's logged rewards.

    The candidate takes the session's own rewards of the action that it wants, in order, until one
    is missing. Rounds that fewer than `QUEUE_SHARE` of the sessions reach are left out. `lacking`
    says for which logs this is an estimate.
    """
    n, n_rounds = log.action.shape
    queues, count = _queues(log)
    used = np.zeros((n, log.n_actions), np.int64)
    earned = np.full((n, n_rounds), np.nan)
    learner = SessionBeliefs(policy, n)
    rows = np.arange(n)
    for t in range(n_rounds):
        decision = policy.decide(learner.take(rows), None, rng, propensity=False)
        action = decision.action
        there = np.flatnonzero(used[rows, action] < count[rows, action])
        rows, action = rows[there], action[there]
        if len(rows) < QUEUE_SHARE * n:
            break
        reward = queues[rows, action, used[rows, action]]
        earned[rows, t] = reward
        used[rows, action] += 1
        learner.learn(rows, None, decision.take(there), reward)
    return _trimmed(earned)


def lacking(log: DecisionLog) -> dict[str, str]:
    """Return the estimators of this module that the log does not allow, and why."""
    if log.length > 1:
        return dict.fromkeys(("replay", "queue"), "rounds are lists of actions")
    reasons = {}
    if not is_uniform(log):
        reasons["replay"] = "the log's actions were not uniformly random (or it does not say so)"
    if log.has_context or log.eligible is not None:
        reasons["queue"] = "rounds have contexts or eligible actions of their own"
    elif not is_independent(log):
        reasons["queue"] = (
            "the log's actions depend on the past (or it does not say that they do not), so that "
            "a queue's rewards are not those of any user; log a propensity that is the same for "
            "every session, for instance 1 / number of actions where actions were uniformly random"
        )
    return reasons


def is_uniform(log: DecisionLog) -> bool:
    """Return whether every logged decision was uniformly random over its eligible actions."""
    if log.propensity is None:
        return False
    error = np.abs(log.propensity * log.n_eligible - 1)
    return bool(np.all(error[log.active] < 1e-6))


def is_independent(log: DecisionLog) -> bool:
    """Return whether the log shows that its actions did not depend on the past.

    Every action then has the same propensity in all sessions, round by round.
    """
    if log.propensity is None:
        return False
    session, round_ = np.nonzero(log.active)
    chance = log.propensity[session, round_]
    cell = round_ * log.n_actions + log.action[session, round_]
    highest, lowest = np.zeros(cell.max() + 1), np.ones(cell.max() + 1)
    np.maximum.at(highest, cell, chance)
    np.minimum.at(lowest, cell, chance)
    return bool(np.all(highest - lowest < 1e-6))


def _queues(log: DecisionLog) -> tuple[FloatArray, IntArray]:
    """Return each session's rewards of each action, in order, and how many there are."""
    session, round_ = np.nonzero(log.observed)
    action = log.action[session, round_]
    count = np.zeros((log.n_sessions, log.n_actions), np.int64)
    np.add.at(count, (session, action), 1)
    queues = np.full((log.n_sessions, log.n_actions, max(int(count.max()), 1)), np.nan)
    order = np.lexsort((round_, action, session))
    starts = np.concatenate([[0], np.cumsum(count.ravel())])[:-1].reshape(count.shape)
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    queues[session, action, place - starts[session, action]] = log.reward[session, round_]
    return queues, count


def _trimmed(earned: FloatArray) -> ByRound:
    reached = ~np.isnan(earned)
    length = int(reached.any(axis=0).sum())
    return mean_by_round(np.where(reached, earned, 0.0)[:, :length], reached[:, :length])
