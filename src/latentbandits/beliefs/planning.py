"""Values of actions when a few more rewards may be learned from, then no more.

With R rounds left, m(a) the posterior mean reward of an action and r its reward,

    V_0 = R max_b m(b)                                      no more learning
    Q_k(a) = m(a) + E_r[ V_{k-1} after (a, r), R - 1 left ]    k more rewards are learned from
    V_k = max_a Q_k(a)

Q_1 is the knowledge gradient with the remaining horizon (Frazier, Powell & Dayanik 2008; for
bandits Ryzhov, Powell & Frazier 2012). Rewards with few values are enumerated. Other rewards are
summed over Gauss-Hermite nodes of their predictive distribution in every state.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np

from latentbandits.beliefs import joint
from latentbandits.beliefs.joint import JointBelief
from latentbandits.models.checks import BoolArray, FloatArray, IntArray
from latentbandits.models.numerics.arrays import blocks, map_leaves
from latentbandits.models.numerics.laws import Counts, OneOf
from latentbandits.models.protocol import Context, Model, with_defaults


@cache
def hermite(n_nodes: int) -> tuple[FloatArray, FloatArray]:
    """Return nodes and weights for the expectation of a standard normal variable."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(n_nodes)
    return nodes, weights / weights.sum()


MOST_BELIEFS = 20_000
"""The largest number of beliefs that one decision may look at."""

_NODES = 5  # Gauss-Hermite nodes for each state
_REACH = 6.0  # standard deviations that counts of rewards are enumerated to
_MOST_COUNTS = 60
_LEAST = 0.01  # share of the way from an open end of the support to the mean that a node keeps


class Outcomes(NamedTuple):
    """Possible rewards of every action and their probabilities, `(n, n_actions, n_outcomes)`.

    Without probabilities, each reward has its predictive density, normalised over the outcomes.
    """

    reward: FloatArray
    chance: FloatArray | None


class Sessions(NamedTuple):
    """Facts about sessions before a decision; arrays have sessions first."""

    belief: JointBelief
    context: Context
    remaining: FloatArray  # rounds, this one included
    eligible: BoolArray | None


def check_size(model: Model, n_actions: int, steps: int, policy: str) -> None:
    """Raise ValueError if a decision would look at more than `MOST_BELIEFS` beliefs."""
    n_outcomes = count_outcomes(model)
    beliefs = (n_actions * n_outcomes) ** steps
    if beliefs > MOST_BELIEFS:
        raise ValueError(
            f"{policy} would look at ({n_actions} actions x {n_outcomes} outcomes) ^ {steps} steps "
            f"= {beliefs:,} beliefs per decision; the limit is {MOST_BELIEFS:,}: use fewer "
            "actions or steps, or mmBayesUCB, which has no such limit"
        )


def count_outcomes(model: Model) -> int:
    """Return the largest number of rewards that an action is expected over."""
    support = with_defaults(model).support
    if isinstance(support, OneOf):
        return len(support.values)
    return _MOST_COUNTS if isinstance(support, Counts) else _NODES * model.n_states


def action_values(
    model: Model,
    belief: JointBelief,
    context: Context,
    remaining: FloatArray,
    steps: int,
    eligible: BoolArray | None = None,
) -> FloatArray:
    """Return Q_k(a) for k = `steps` and `remaining` rounds `(n,)`, this one included: `(n, K)`.

    Later rounds have the same context and the same eligible actions.

    >>> from latentbandits.models import GaussianArms
    >>> model = GaussianArms([[0.9, 0.5], [0.0, 0.5]], noise=0.1)
    >>> belief = joint.prior(model, 1)
    >>> action_values(model, belief, None, np.array([10.0]), steps=1).round(2)
    array([[6.75, 5.  ]])
    """
    if steps == 0:
        return joint.mean_rewards(model, belief, context) * np.maximum(remaining, 0.0)[:, None]
    sessions = Sessions(belief, context, remaining, eligible)
    if model.n_sessions is not None:
        return _action_values(model, sessions, steps)
    n_actions = model.n_actions if context is None else context.shape[1]
    width = (n_actions or 1) ** 2 * count_outcomes(model) * model.n_states
    parts = [
        _action_values(model, map_leaves(lambda leaf, block=block: leaf[block], sessions), steps)
        for block in blocks(len(belief.log_weights), width)
    ]
    return np.concatenate(parts)


def best_value(values: FloatArray, eligible: BoolArray | None) -> FloatArray:
    """Return the largest value among the eligible actions, `(n,)`."""
    if eligible is not None:
        values = np.where(eligible, values, -np.inf)
    best: FloatArray = values.max(axis=1)
    return best


def _action_values(model: Model, sessions: Sessions, steps: int) -> FloatArray:
    """Return Q_k(a) of sessions that fit into memory together, for k = `steps` above 0.

    All outcomes of all actions are one batch of copies of the sessions. If each session has its own
    model instance, sessions cannot be copied: outcomes are then conditioned on one by one.
    """
    outcomes = _outcomes(model, sessions.belief, sessions.context)
    n, n_actions, n_outcomes = shape = outcomes.reward.shape

    def after(now: Sessions, action: IntArray, reward: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the log density of each reward, and the value of the rounds after it."""
        later = joint.condition(model, now.belief, now.context, action, reward)
        left = now.remaining - 1
        values = action_values(model, later, now.context, left, steps - 1, now.eligible)
        log_chance = joint.log_total(later.log_weights) - joint.log_total(now.belief.log_weights)
        return log_chance, np.where(left > 0, best_value(values, now.eligible), 0.0)

    if model.n_sessions is None:
        copies = n_actions * n_outcomes
        many = map_leaves(lambda leaf: np.repeat(leaf, copies, axis=0), sessions)
        action = np.tile(np.repeat(np.arange(n_actions), n_outcomes), n)
        found = after(many, action, outcomes.reward.ravel())
        log_chance, best = (array.reshape(shape) for array in found)
    else:
        log_chance, best = np.empty(shape), np.empty(shape)
        for a, o in np.ndindex(n_actions, n_outcomes):
            found = after(sessions, np.full(n, a), outcomes.reward[:, a, o])
            log_chance[:, a, o], best[:, a, o] = found
    chance = _normalised(log_chance) if outcomes.chance is None else outcomes.chance
    means = joint.mean_rewards(model, sessions.belief, sessions.context)
    expected: FloatArray = means + (chance * best).sum(axis=2)
    return expected


def _outcomes(model: Model, belief: JointBelief, context: Context) -> Outcomes:
    """Return the possible rewards of every action, and their probabilities where known."""
    mean, variance = model.posterior_rewards(belief.parameters, context)
    n, n_states, n_actions = mean.shape
    support = with_defaults(model).support
    if isinstance(support, OneOf):
        values = np.array(support.values)
        return Outcomes(np.broadcast_to(values, (n, n_actions, len(values))), None)
    if isinstance(support, Counts):
        top = (mean + _REACH * np.sqrt(mean + variance)).max()
        counts = np.arange(min(int(np.ceil(top)) + 1, _MOST_COUNTS), dtype=np.float64)
        return Outcomes(np.broadcast_to(counts, (n, n_actions, len(counts))), None)
    nodes, shares = hermite(_NODES)
    deviation = np.sqrt(variance + model.noise**2)
    rewards = mean[..., None] + deviation[..., None] * nodes  # (n, S, K, nodes)
    low: float | FloatArray = support.low
    if not support.contains(np.array([support.low])).all():  # an open end
        low = low + _LEAST * (mean[..., None] - low)
    rewards = np.maximum(rewards, low).swapaxes(1, 2).reshape(n, n_actions, -1)
    weights = joint.probabilities(belief.log_weights)
    chance = np.repeat(weights, _NODES, axis=1) * np.tile(shares, n_states)
    return Outcomes(rewards, np.broadcast_to(chance[:, None], rewards.shape))


def _normalised(log_chance: FloatArray) -> FloatArray:
    chance = np.exp(log_chance)
    chance /= chance.sum(axis=2, keepdims=True)
    return chance


def resolve_ties(values: FloatArray) -> FloatArray:
    """Return `values`; entries that differ from the largest by rounding alone become equal to it.

    >>> resolve_ties(np.array([[0.3, 0.1 + 0.2, 0.1]]))[0, :2]
    array([0.3, 0.3])
    """
    top: Any = values.max(axis=1, keepdims=True)
    near = values >= top - 1e-11 * np.abs(top)
    return np.where(near, top, values)
