"""Score a model by the rewards of users that it was not learned from.

Each held-out user is a new session. The model gives the predictive density of every reward given
the earlier ones (`beliefs.joint`); their product is the marginal likelihood of the sequence.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from latentbandits.beliefs import joint, states
from latentbandits.beliefs.joint import JointBelief
from latentbandits.learning.arms.families import Cells
from latentbandits.learning.arms.predict import Edges, Predicted, in_cells, predict
from latentbandits.learning.linear import clicks
from latentbandits.learning.logs.rows import Log
from latentbandits.models.arms.conjugate import ConjugateArms
from latentbandits.models.arms.gaussian import GaussianArms
from latentbandits.models.arms.position_clicks import PositionClicks
from latentbandits.models.checks import FloatArray, IntArray
from latentbandits.models.composed.markov import Markov
from latentbandits.models.composed.transformed import TransformedRewards
from latentbandits.models.linear.logistic import LogisticLinear
from latentbandits.models.numerics.arrays import map_leaves
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
    """Score every reward of the users of `log`. `features` are those of every action.

    Rewards of discrete families get a randomised `uniform` (Smith 1985): drawn between P(R < r)
    and P(R <= r) with a fixed seed. With `cells`, `log_cell` is computed too.
    With `log_actions`, actions tell about the states of arms (`predict`).

    >>> from latentbandits.learning.logs.rows import read_log
    >>> log = read_log({"u": [1, 1, 2], "a": [0, 1, 0], "r": [0.9, 0.8, 0.1]}, "u", "a", "r")
    >>> score(GaussianArms([[0.9, 0.9], [0.1, 0.1]], noise=0.1), log).error.round(2)
    array([ 0.4, -0.1, -0.4])
    """
    inner = untransformed(model)
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
    lengths = np.minimum(np.diff(log.starts), MOST_ROUNDS)
    order = np.argsort(-lengths, kind="stable")
    belief = clicks.prior(model, log.n_users)
    rng = np.random.default_rng(0)
    parts: list[tuple[NDArray[Any], ...]] = []
    for t in range(int(lengths.max())):
        n = int((lengths > t).sum())
        belief = belief.first(n)
        event = log.starts[order[:n]] + t
        reward, played = log.rewards[event], log.actions[event]
        x, offset = features[played, :d], offsets[played]
        weights = states.probabilities(belief.log_weights)
        chance = (weights * clicks.click_probability(belief, x, offset)).sum(axis=1)
        belief = clicks.condition(belief, x, offset, reward)
        log_density = np.log(np.where(reward == 1, chance, 1 - chance))
        uniform = np.where(reward == 1, 1 - chance * rng.random(n), (1 - chance) * rng.random(n))
        error = reward - chance
        parts.append((order[:n], np.full(n, t), played, reward, log_density, error, uniform))
    return HeldOut(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def _score_arms(
    model: Model,
    inner: GaussianArms | ConjugateArms,
    log: Log,
    cells: Cells | None,
    log_actions: FloatArray | None,
) -> HeldOut:
    rounds = np.arange(log.n_events) - log.starts[log.users]
    judged = log.of_events(rounds < MOST_ROUNDS)
    rewards = np.asarray(judged.rewards)
    edges = None if cells is None else cells.edges(rewards)
    if isinstance(model, TransformedRewards):
        prediction = _predict_transformed(model, inner, judged, edges)
    else:
        prediction = predict(inner, judged, edges, log_actions=log_actions)
    mean = prediction.mean
    if isinstance(inner, PositionClicks) and judged.positions is not None:
        mean = mean * inner.examination[judged.positions]
    between = np.random.default_rng(0).random(len(rewards))
    return HeldOut(
        judged.users,
        rounds[rounds < MOST_ROUNDS],
        judged.actions,
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

    Its predictive distribution in a state is taken as normal; that of conjugate arms whose state
    moves is their own, at the prior of their parameters.
    """
    from scipy.special import ndtr

    edges = None if cells is None else cells.edges(np.asarray(log.rewards))
    if edges is not None and isinstance(model, TransformedRewards):
        edges = _transformed_edges(model, edges)
    inner = untransformed(model)
    lengths = np.minimum(np.diff(log.starts), MOST_ROUNDS)
    order = np.argsort(-lengths, kind="stable")  # users with more rounds come first
    belief = joint.prior(model, log.n_users)
    arms, returning, after_pause = None, None, None
    if isinstance(inner, Markov):
        arms, returning = inner.model, inner.returning
        if inner.session_gap is not None and log.times is not None:
            after_pause = log.after_pause(inner.session_gap)
    rng = np.random.default_rng(0)
    parts: list[tuple[NDArray[Any], ...]] = []
    for t in range(int(lengths.max())):
        n = int((lengths > t).sum())
        belief = _first(belief, n)
        event = log.starts[order[:n]] + t
        if returning is not None and after_pause is not None:
            moved = states.move(belief.log_weights, returning)
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
        weights = states.probabilities(belief.log_weights)
        before = states.log_total(belief.log_weights)
        belief = joint.condition(model, belief, context, action, reward)
        log_density = states.log_total(belief.log_weights) - before
        error = reward - (weights * predicted).sum(axis=1)
        seen = model.forward(reward) if isinstance(model, TransformedRewards) else reward

        def normal(
            r: FloatArray, mean: FloatArray = mean, deviation: FloatArray = deviation
        ) -> tuple[FloatArray, FloatArray]:
            z = (r - mean) / deviation
            return ndtr(z), ndtr(-z)

        uniform = (weights * normal(seen[:, None])[0]).sum(axis=1)
        if isinstance(arms, ConjugateArms):
            phi = arms.prior_hyperparameters[0][:, played].swapaxes(0, 1)
            up_to = (weights * arms.distribution(phi, reward[:, None])[0]).sum(axis=1)
            chance = np.where(arms.atoms(reward), np.exp(log_density), 0.0)
            uniform = np.maximum(up_to - rng.random(n) * chance, 0.0)
        columns = [order[:n], np.full(n, t), played, reward, log_density, error, uniform]
        if edges is not None:
            inside = in_cells(normal, (edges[0][event], edges[1][event]))
            columns.append(np.log((weights * inside).sum(axis=1)))
        parts.append(tuple(columns))
    return HeldOut(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _first(belief: JointBelief, n: int) -> JointBelief:
    """Return the belief of the first `n` sessions."""
    first: JointBelief = map_leaves(lambda leaf: leaf[:n], belief)
    return first
