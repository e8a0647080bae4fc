"""Score a model by the rewards of users that it was not learned from.

Each held-out user is a new session. The model gives the predictive density of every reward given
the earlier ones (`beliefs.joint`); their product is the marginal likelihood of the sequence.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from latentbandits.beliefs import joint
from latentbandits.beliefs.joint import JointBelief
from latentbandits.learning.logs.rows import Cells, Log
from latentbandits.learning.transitions import Rounds
from latentbandits.models.checks import FloatArray, IntArray
from latentbandits.models.numerics.arrays import log_sum, map_leaves
from latentbandits.models.protocol import FromTotals, Model, Prediction, with_defaults

MOST_ROUNDS = 200
"""The number of a user's first rewards that are scored; a cold start is over by then."""


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Scores of held-out rewards, one entry per reward."""

    user: IntArray  # index of the held-out user
    round: IntArray  # from 0
    action: IntArray
    reward: FloatArray
    log_density: FloatArray  # of the reward, given the user's earlier ones
    error: FloatArray  # reward less its predictive mean
    uniform: FloatArray  # predictive distribution function at the reward: uniform if calibrated
    log_cell: FloatArray | None = None  # log probability of the reward's cell

    @property
    def evidence(self) -> float:
        """The mean log predictive density of a reward, in nats."""
        return float(self.log_density.mean())

    @property
    def rmse(self) -> float:
        return float(np.sqrt(np.mean(self.error**2)))

    def by_user(self) -> FloatArray:
        """Return the log marginal likelihood of every user's sequence, for users with rewards."""
        return self.sums_by_user(self.log_density)

    def log_probability_by_user(self) -> FloatArray:
        """Return the log probability of every user's rewards; without cells, the log density."""
        return self.sums_by_user(self.log_density if self.log_cell is None else self.log_cell)

    def sums_by_user(self, values: FloatArray) -> FloatArray:
        """Sum `values` (one per scored reward) over the rewards of each user."""
        users, index = np.unique(self.user, return_inverse=True)
        sums: FloatArray = np.bincount(index, values, minlength=len(users)).astype(np.float64)
        return sums

    def coverage(self, level: float) -> float:
        """Return the share of rewards inside their central `level` predictive interval."""
        return float(np.mean(np.abs(self.uniform - 0.5) <= level / 2))


def score(
    model: Model,
    log: Log,
    features: FloatArray | None = None,
    *,
    cells: Cells | None = None,
    log_actions: FloatArray | None = None,
) -> HeldOut:
    """Score every reward of the users of `log`. `features` are the features of every action.

    Rewards of discrete families get a randomised `uniform` (Smith 1985): drawn between P(R < r)
    and P(R <= r) with a fixed seed. With `cells`, `log_cell` is computed too.
    With `log_actions`, actions also inform about the states of arms (`predict`).

    >>> from latentbandits import GaussianArms
    >>> from latentbandits.learning.logs.rows import read_log
    >>> log = read_log({"u": [1, 1, 2], "a": [0, 1, 0], "r": [0.9, 0.8, 0.1]}, "u", "a", "r")
    >>> score(GaussianArms([[0.9, 0.9], [0.1, 0.1]], noise=0.1), log).error.round(2)
    array([ 0.4, -0.1, -0.4])
    """
    log = log.of_events(np.arange(log.n_events) - log.starts[log.users] < MOST_ROUNDS)
    if isinstance(with_defaults(model).untransformed, FromTotals):
        return _score_arms(model, log, cells, log_actions)
    return _score_rounds(with_defaults(model).without_particles, log, features, cells)


Columns = tuple[FloatArray, ...]
"""Log density, error and uniform of rewards, and the log probability of their cells if asked."""


def _score_arms(
    model: Model, log: Log, cells: Cells | None, log_actions: FloatArray | None
) -> HeldOut:
    rewards = np.asarray(log.rewards)
    edges = None if cells is None else cells.edges(rewards)
    prediction = predict(model, log, edges, log_actions=log_actions)
    between = np.random.default_rng(0).random(len(rewards))
    return HeldOut(
        log.users,
        np.arange(log.n_events) - log.starts[log.users],
        log.actions,
        rewards,
        prediction.log_density,
        rewards - prediction.mean,
        prediction.below + between * (prediction.up_to - prediction.below),
        prediction.log_cell,
    )


def _score_rounds(
    model: Model, log: Log, features: FloatArray | None, cells: Cells | None
) -> HeldOut:
    """Score any model round by round.

    Its predictive distribution in a state is taken as normal, unless the model has a formula
    (`reward_tails`).
    """
    from scipy.special import ndtr

    described = with_defaults(model)
    inner, returning = described.untransformed, described.returning
    edges = None
    if cells is not None:
        edges = [described.in_units(edge) for edge in cells.edges(np.asarray(log.rewards))]
    after_pause = None
    if described.session_gap is not None and log.times is not None:
        after_pause = log.after_pause(described.session_gap)
    rng = np.random.default_rng(0)

    def visit(belief: JointBelief, event: IntArray) -> tuple[JointBelief, Columns]:
        """Score one reward of each of some users, and condition their beliefs on it."""
        n = len(event)
        if returning is not None and after_pause is not None:
            moved = joint.move(belief.log_weights, returning)
            weights = np.where(after_pause[event][:, None], moved, belief.log_weights)
            belief = belief._replace(log_weights=weights)
        reward, played = log.rewards[event], log.actions[event]
        context, action = None, played
        if features is not None:
            context, action = features[played][:, None], np.zeros(n, np.int64)
        chosen = np.arange(n), slice(None), action
        predicted, variance = model.posterior_rewards(belief.parameters, context)
        mean = predicted
        if inner is not model:
            mean, variance = inner.posterior_rewards(belief.parameters, context)
        mean, deviation = mean[chosen], np.sqrt(variance[chosen] + inner.noise**2)
        tails = described.reward_tails(belief.parameters, context, action, reward)
        weights = joint.probabilities(belief.log_weights)
        before = joint.log_total(belief.log_weights)
        belief = joint.condition(model, belief, context, action, reward)
        log_density = joint.log_total(belief.log_weights) - before
        error = reward - (weights * predicted[chosen]).sum(axis=1)

        def normal(r: FloatArray) -> tuple[FloatArray, FloatArray]:
            z = (r - mean) / deviation
            return ndtr(z), ndtr(-z)

        if tails is None:
            chance = np.zeros(n)
            uniform = (weights * normal(described.in_units(reward)[:, None])[0]).sum(axis=1)
        else:
            up_to, atoms = tails
            chance = np.where(atoms, np.exp(log_density), 0.0)
            uniform = np.maximum((weights * up_to).sum(axis=1) - rng.random(n) * chance, 0.0)
        if edges is None:
            return belief, (log_density, error, uniform)
        inside = (weights * in_cells(normal, [edge[event] for edge in edges])).sum(axis=1)
        return belief, (log_density, error, uniform, np.log(np.where(chance > 0, chance, inside)))

    belief, parts = joint.prior(model, log.n_users), []
    for t, event in enumerate(Rounds.of_users(log.starts).rows()):
        n = len(event)  # users with more rounds come first
        belief, scores = visit(map_leaves(lambda leaf, n=n: leaf[:n], belief), event)
        known = log.users[event], np.full(n, t), log.actions[event], log.rewards[event]
        parts.append((*known, *scores))
    return HeldOut(*(np.concatenate(column) for column in zip(*parts, strict=True)))


# One-step-ahead predictions of held-out rewards of arms, for all events of all users at once.
#
# Before every reward, the predictive distribution given the user's earlier rewards is computed: a
# mixture over states, with each state weighted by its evidence so far. The sufficient statistics of
# a user's earlier rewards for the same action are cumulative sums over the events of the pair, so
# no loop over rounds is needed.

Edges = Sequence[FloatArray]
"""The lower and the upper edge of every reward's cell."""


class Predicted(NamedTuple):
    """Predictions with one entry per judged event of a log, in the order of the log."""

    log_density: FloatArray  # log predictive density of the reward given the user's earlier ones
    mean: FloatArray  # predictive mean
    below: FloatArray  # predictive P(reward < r)
    up_to: FloatArray  # predictive P(reward <= r)
    log_cell: FloatArray | None  # log probability of the reward's cell, if there are cells


class ByState(NamedTuple):
    """Predictions given each state, `(n, n_states)`; `variance` is the mean reward's."""

    log_density: FloatArray
    mean: FloatArray
    variance: FloatArray
    below: FloatArray  # P(reward < r)
    up_to: FloatArray  # P(reward <= r)
    cell: FloatArray | None  # the probability of the reward's cell


def predict(
    model: Model,
    log: Log,
    edges: Edges | None = None,
    log_actions: FloatArray | None = None,
) -> Predicted:
    """Predict every reward of `log` (n events) under a model of arms (`FromTotals`).

    With `edges`, the lower and upper edges of each reward's cell, `log_cell` is the log probability
    of the cell; for discrete families, of the reward itself. With `log_actions` (n_states,
    n_actions), the log probabilities of actions in each state, the user's actions also inform about
    the state, the event's action included.
    """
    described, rewards = with_defaults(model), np.asarray(log.rewards)
    inner = described.untransformed
    if edges is not None:
        edges = [described.in_units(edge) for edge in edges]
    by_state = _by_state(inner, replace(log, rewards=described.in_units(rewards)), edges)
    chosen = None if log_actions is None else log_actions[:, log.actions].T
    weights = _weights(model, log, by_state.log_density, chosen)
    before = np.exp(weights)

    def mixed(values: FloatArray) -> FloatArray:
        average: FloatArray = (before * values).sum(axis=1)
        return average

    mean = described.mean_of_moments(by_state.mean, by_state.variance, log.actions)
    log_cell = None
    if by_state.cell is not None:
        log_cell = np.log(np.maximum(mixed(by_state.cell), 1e-300))
    return Predicted(
        log_sum(weights + by_state.log_density) + described.log_slope(rewards),
        inner.mean_at(mixed(mean), log.positions),
        mixed(by_state.below),
        mixed(by_state.up_to),
        log_cell,
    )


def _weights(
    model: Model, log: Log, log_density: FloatArray, log_chosen: FloatArray | None
) -> FloatArray:
    """Return log P(s | the user's earlier rewards) before every event, `(n, n_states)`.

    With `log_chosen`, the log probability of every event's action, P is given the actions too.
    """
    known = log_density if log_chosen is None else log_density + log_chosen
    before = np.cumsum(known, axis=0) - known
    start = before[log.starts[log.users]]
    weights = before - start + model.log_state_prior
    if log_chosen is not None:
        weights = weights + log_chosen
    return weights - log_sum(weights)[:, None]


def _by_state(model: Any, log: Log, edges: Edges | None) -> ByState:
    rewards, log_density, predicted = predictions(model, log)
    chance = np.where(model.atoms(rewards)[:, None], np.exp(log_density), 0.0)
    up_to, _ = predicted.tails(rewards[:, None])
    below = np.maximum(up_to - chance, 0.0)
    cell = None if edges is None else np.maximum(in_cells(predicted.tails, edges), chance)
    return ByState(log_density, *predicted.moments(), below, up_to, cell)


def predictions(model: Any, log: Log) -> tuple[FloatArray, FloatArray, Prediction]:
    """Return rewards, and what a model of arms predicts given the user's earlier ones.

    These are the rewards as the model takes them, with their positions; their log densities
    `(n, n_states)`; and the distributions.
    """
    rewards = np.asarray(log.rewards)
    model.check_reward(rewards)
    outcomes = model.outcomes(rewards, log.positions)
    statistic = model.statistic(outcomes)
    predicted: Prediction = model.predicted(log.actions, _earlier(log, statistic))
    return outcomes, predicted.log_density(outcomes, statistic), predicted


def _earlier(log: Log, values: FloatArray) -> FloatArray:
    """Return the sums of `values` (n, K) over the earlier events of the same user and action."""
    pair = log.users * log.n_actions + log.actions
    order = np.argsort(pair, kind="stable")
    ordered = values[order]
    before = np.cumsum(ordered, axis=0) - ordered
    new = np.append(True, np.diff(pair[order]) != 0)
    first = np.maximum.accumulate(np.where(new, np.arange(len(pair)), 0))
    earlier = np.empty_like(before)
    earlier[order] = before - before[first]
    return earlier


def in_cells(
    distribution: Callable[[FloatArray], tuple[FloatArray, FloatArray]], edges: Edges
) -> FloatArray:
    """Return the probability of every cell given each state, from P(R <= r) and P(R > r).

    It is the difference in the thinner tail, which loses no digits.
    """
    (low, above_low), (high, above_high) = (distribution(edge[:, None]) for edge in edges)
    return np.where(low + high > 1, above_low - above_high, high - low)
