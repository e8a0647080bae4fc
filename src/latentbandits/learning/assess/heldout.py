"""Score a model by the rewards of users that it was not learned from.

Each held-out user is a new session. The model gives the predictive density of every reward given
the earlier ones (`beliefs.joint`); their product is the marginal likelihood of the sequence.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from latentbandits.beliefs import joint
from latentbandits.beliefs.joint import JointBelief
from latentbandits.learning.linear import clicks
from latentbandits.learning.linear.clicks import ClickBelief
from latentbandits.learning.logs.rows import Cells, Log
from latentbandits.learning.transitions import Rounds
from latentbandits.models.arms.conjugate import ConjugateArms
from latentbandits.models.arms.gaussian import GaussianArms
from latentbandits.models.checks import FloatArray, IntArray
from latentbandits.models.clicks import PositionClicks
from latentbandits.models.composed.markov import Markov
from latentbandits.models.composed.transformed import TransformedRewards
from latentbandits.models.linear.logistic import LogisticLinear
from latentbandits.models.numerics.arrays import log_normal_density, log_sum, map_leaves
from latentbandits.models.protocol import Model, untransformed

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

    >>> from latentbandits.learning.logs.rows import read_log
    >>> log = read_log({"u": [1, 1, 2], "a": [0, 1, 0], "r": [0.9, 0.8, 0.1]}, "u", "a", "r")
    >>> score(GaussianArms([[0.9, 0.9], [0.1, 0.1]], noise=0.1), log).error.round(2)
    array([ 0.4, -0.1, -0.4])
    """
    inner = untransformed(model)
    log = log.of_events(np.arange(log.n_events) - log.starts[log.users] < MOST_ROUNDS)
    if isinstance(inner, (GaussianArms, ConjugateArms)):
        return _score_arms(model, inner, log, cells, log_actions)
    if isinstance(model, LogisticLinear) and features is not None:
        clicked = _score_clicks(model, log, features)
        return clicked if cells is None else replace(clicked, log_cell=clicked.log_density)
    return _score_rounds(model, log, features, cells)


def _score_clicks(model: LogisticLinear, log: Log, features: FloatArray) -> HeldOut:
    """Score clicks round by round, with Gaussian beliefs (`linear/clicks.py`)."""
    d = model.weights.shape[1]
    offsets = features[:, d] if model.offset else np.zeros(len(features))
    rng = np.random.default_rng(0)

    def visit(belief: ClickBelief, event: IntArray) -> tuple[ClickBelief, Columns]:
        reward, played = log.rewards[event], log.actions[event]
        x, offset = features[played, :d], offsets[played]
        weights = joint.probabilities(belief.log_weights)
        chance = (weights * clicks.click_probability(belief, x, offset)).sum(axis=1)
        belief = clicks.condition(belief, x, offset, reward)
        log_density = np.log(np.where(reward == 1, chance, 1 - chance))
        below, above = rng.random(len(event)), rng.random(len(event))
        uniform = np.where(reward == 1, 1 - chance * below, (1 - chance) * above)
        return belief, (log_density, reward - chance, uniform)

    return _by_round(log, clicks.prior(model, log.n_users), visit)


Columns = tuple[FloatArray, ...]
"""Log density, error and uniform of rewards, and the log probability of their cells if asked."""


def _by_round(
    log: Log, belief: Any, visit: Callable[[Any, IntArray], tuple[Any, Columns]]
) -> HeldOut:
    """Score rounds one after the other: `visit` scores rewards, and conditions the belief on them.

    The belief covers the users who have this round, users with more rounds first.
    """
    rounds = Rounds.of_users(log.starts)
    parts: list[tuple[NDArray[Any], ...]] = []
    for t, now in enumerate(rounds.each()):
        event = rounds.place[now]
        n = len(event)
        belief = map_leaves(lambda leaf, n=n: leaf[:n], belief)
        belief, scores = visit(belief, event)
        known = log.users[event], np.full(n, t), log.actions[event], log.rewards[event]
        parts.append((*known, *scores))
    return HeldOut(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _score_arms(
    model: Model,
    inner: GaussianArms | ConjugateArms,
    log: Log,
    cells: Cells | None,
    log_actions: FloatArray | None,
) -> HeldOut:
    rewards = np.asarray(log.rewards)
    edges = None if cells is None else cells.edges(rewards)
    if isinstance(model, TransformedRewards):
        prediction = _predict_transformed(model, inner, log, edges)
    else:
        prediction = predict(inner, log, edges, log_actions=log_actions)
    mean = prediction.mean
    if isinstance(inner, PositionClicks) and log.positions is not None:
        mean = mean * inner.examination[log.positions]
    between = np.random.default_rng(0).random(len(rewards))
    return HeldOut(
        log.users,
        np.arange(log.n_events) - log.starts[log.users],
        log.actions,
        rewards,
        prediction.log_density,
        rewards - mean,
        prediction.below + between * (prediction.up_to - prediction.below),
        prediction.log_cell,
    )


def _predict_transformed(
    model: TransformedRewards,
    inner: GaussianArms | ConjugateArms,
    log: Log,
    edges: Edges | None,
) -> Predicted:
    """Predict f(r), and return densities and means of r."""
    rewards = np.asarray(log.rewards)
    edges = None if edges is None else _transformed_edges(model, edges)

    def original(mean: FloatArray, variance: FloatArray, action: IntArray) -> FloatArray:
        c = model.smearing if model.smearing.ndim == 0 else model.smearing[action][:, None]
        return model.moments(mean, variance, c)[0]

    prediction = predict(inner, replace(log, rewards=model.forward(rewards)), edges, original)
    return prediction._replace(log_density=prediction.log_density + model.log_slope(rewards))


def _transformed_edges(model: TransformedRewards, edges: Edges) -> Edges:
    least = -1 + 1e-9 if model.transform == "log1p" else 0.0
    lower, upper = (model.forward(np.maximum(edge, least)) for edge in edges)
    return lower, upper


def _score_rounds(
    model: Model, log: Log, features: FloatArray | None, cells: Cells | None
) -> HeldOut:
    """Score any model round by round.

    Its predictive distribution in a state is taken as normal. Conjugate arms whose state moves have
    their own, at the prior of their parameters.
    """
    from scipy.special import ndtr

    edges = None if cells is None else cells.edges(np.asarray(log.rewards))
    if edges is not None and isinstance(model, TransformedRewards):
        edges = _transformed_edges(model, edges)
    inner = untransformed(model)
    arms, returning, after_pause = None, None, None
    if isinstance(inner, Markov):
        arms, returning = inner.model, inner.returning
        if inner.session_gap is not None and log.times is not None:
            after_pause = log.after_pause(inner.session_gap)
    rng = np.random.default_rng(0)

    def visit(belief: JointBelief, event: IntArray) -> tuple[JointBelief, Columns]:
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
        predicted = model.posterior_rewards(belief.parameters, context)[0][chosen]
        mean, variance = inner.posterior_rewards(belief.parameters, context)
        mean, deviation = mean[chosen], np.sqrt(variance[chosen] + inner.noise**2)
        weights = joint.probabilities(belief.log_weights)
        before = joint.log_total(belief.log_weights)
        belief = joint.condition(model, belief, context, action, reward)
        log_density = joint.log_total(belief.log_weights) - before
        error = reward - (weights * predicted).sum(axis=1)
        seen = model.forward(reward) if isinstance(model, TransformedRewards) else reward

        def normal(r: FloatArray) -> tuple[FloatArray, FloatArray]:
            z = (r - mean) / deviation
            return ndtr(z), ndtr(-z)

        uniform = (weights * normal(seen[:, None])[0]).sum(axis=1)
        if isinstance(arms, ConjugateArms):
            phi = arms.prior_hyperparameters[0][:, played].swapaxes(0, 1)
            up_to = (weights * arms.distribution(phi, reward[:, None])[0]).sum(axis=1)
            chance = np.where(arms.atoms(reward), np.exp(log_density), 0.0)
            uniform = np.maximum(up_to - rng.random(n) * chance, 0.0)
        if edges is None:
            return belief, (log_density, error, uniform)
        inside = in_cells(normal, (edges[0][event], edges[1][event]))
        return belief, (log_density, error, uniform, np.log((weights * inside).sum(axis=1)))

    return _by_round(log, joint.prior(model, log.n_users), visit)


# One-step-ahead predictions of held-out rewards of arms, for all events of all users at once.
#
# Before every reward, the predictive distribution given the user's earlier rewards is computed: a
# mixture over states, with each state weighted by its evidence so far. The sufficient statistics of
# a user's earlier rewards for the same action are cumulative sums over the events of the pair, so
# no loop over rounds is needed.

Edges = tuple[FloatArray, FloatArray]
Tails = tuple[FloatArray, FloatArray, FloatArray | None]
"""P(reward < r), P(reward <= r), and the probability of the reward's cell."""


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
    below: FloatArray
    up_to: FloatArray
    cell: FloatArray | None


def predict(
    model: GaussianArms | ConjugateArms,
    log: Log,
    edges: Edges | None = None,
    moments: Callable[[FloatArray, FloatArray, IntArray], FloatArray] | None = None,
    log_actions: FloatArray | None = None,
) -> Predicted:
    """Predict every reward of `log` (n events) under `model`.

    With `edges`, the lower and upper edges of each reward's cell, `log_cell` is the log probability
    of the cell; for discrete families, of the reward itself. `moments(mean, variance, action)` maps
    the mean and variance of a mean reward to a prediction; by default the prediction is the mean.
    With `log_actions` (n_states, n_actions), the log probabilities of actions in each state, the
    user's actions also inform about the state, the event's action included.
    """
    by_state = _by_state(model, log, edges)
    chosen = None if log_actions is None else log_actions[:, log.actions].T
    weights = _weights(model, log, by_state.log_density, chosen)
    before = np.exp(weights)

    def mixed(values: FloatArray) -> FloatArray:
        average: FloatArray = (before * values).sum(axis=1)
        return average

    mean = by_state.mean
    if moments is not None:
        mean = moments(mean, by_state.variance, log.actions)
    log_cell = None
    if by_state.cell is not None:
        log_cell = np.log(np.maximum(mixed(by_state.cell), 1e-300))
    return Predicted(
        log_sum(weights + by_state.log_density),
        mixed(mean),
        mixed(by_state.below),
        mixed(by_state.up_to),
        log_cell,
    )


def _weights(
    model: GaussianArms | ConjugateArms,
    log: Log,
    log_density: FloatArray,
    log_chosen: FloatArray | None,
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


def _by_state(model: GaussianArms | ConjugateArms, log: Log, edges: Edges | None) -> ByState:
    if isinstance(model, GaussianArms):
        return _gaussian(model, log, edges)
    log_density = log_density_by_state(model, log, np.asarray(log.rewards))
    rewards = model.outcomes(np.asarray(log.rewards), log.positions)
    phi = _prior_of_events(model, log) + _earlier(log, model.statistic(rewards))[:, None]
    chance = np.where(model.atoms(rewards)[:, None], np.exp(log_density), 0.0)
    tails = _tails(chance, lambda r: model.distribution(phi, r), rewards, edges)
    mean, variance = model.moments(phi)
    return ByState(log_density, mean, variance, *tails)


def _prior_of_events(model: ConjugateArms, log: Log) -> FloatArray:
    """Return phi of the prior of every event's action, `(n, n_states, n_statistics)`."""
    prior: FloatArray = model.prior_hyperparameters[0][:, log.actions].swapaxes(0, 1)
    return prior


def log_density_by_state(
    model: GaussianArms | ConjugateArms, log: Log, rewards: FloatArray
) -> FloatArray:
    """Return the log density of every reward given the user's earlier ones, `(n, n_states)`."""
    seen = replace(log, rewards=rewards)
    if isinstance(model, GaussianArms):
        return _gaussian(model, seen, None).log_density
    model.check_reward(rewards)
    rewards = model.outcomes(rewards, log.positions)
    statistic = model.statistic(rewards)
    earlier = _earlier(log, statistic)[:, None]
    prior = _prior_of_events(model, log)
    log_density = model.log_normaliser_step(prior, earlier, statistic[:, None])
    base = model.log_base_measure(rewards)
    return log_density + (base if isinstance(base, float) else base[:, None])


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


def _gaussian(model: GaussianArms, log: Log, edges: Edges | None) -> ByState:
    rewards = np.asarray(log.rewards)
    shift = rewards.mean()  # centred sums lose fewer digits
    values = np.stack([np.ones(len(rewards)), rewards - shift], axis=1)
    count, total = (column[:, None] for column in _earlier(log, values).T)
    prior_mean = model.means[:, log.actions].T - shift
    prior_variance = model.spread[:, log.actions].T ** 2
    scale = prior_variance / (prior_variance * count + model.noise**2)
    mean = prior_mean + scale * (total - count * prior_mean) + shift
    variance = scale * model.noise**2
    deviation = np.sqrt(variance + model.noise**2)

    def distribution(r: FloatArray) -> tuple[FloatArray, FloatArray]:
        from scipy.special import ndtr

        z = (r - mean) / deviation
        return ndtr(z), ndtr(-z)

    tails = _tails(None, distribution, rewards, edges)
    log_density = log_normal_density(rewards[:, None] - mean, deviation**2)
    return ByState(log_density, mean, variance, *tails)


def _tails(
    chance: FloatArray | None,
    distribution: Callable[[FloatArray], tuple[FloatArray, FloatArray]],
    rewards: FloatArray,
    edges: Edges | None,
) -> Tails:
    """Return the tails, from P(R <= r) and P(R > r) given each state.

    `chance` (n, n_states) is the probability of the reward itself, 0 where it has a density; None
    if all have.
    """
    up_to, _ = distribution(rewards[:, None])
    below = up_to if chance is None else np.maximum(up_to - chance, 0.0)
    if edges is None:
        return below, up_to, None
    cell = in_cells(distribution, edges)
    return below, up_to, cell if chance is None else np.maximum(cell, chance)


def in_cells(
    distribution: Callable[[FloatArray], tuple[FloatArray, FloatArray]], edges: Edges
) -> FloatArray:
    """Return the probability of every cell given each state, from P(R <= r) and P(R > r).

    It is the difference in the thinner tail, which loses no digits.
    """
    (low, above_low), (high, above_high) = (distribution(edge[:, None]) for edge in edges)
    return np.where(low + high > 1, above_low - above_high, high - low)
