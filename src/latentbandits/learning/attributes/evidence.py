"""The log evidence of each user's rewards in every state, under a learned model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from latentbandits.beliefs import joint
from latentbandits.learning.assess.heldout import predictions
from latentbandits.learning.learners import Learned
from latentbandits.learning.logs.rows import Log
from latentbandits.learning.transitions import Rounds
from latentbandits.models.checks import FloatArray, IntArray
from latentbandits.models.linear.gaussian import UserSums
from latentbandits.models.numerics.arrays import map_leaves
from latentbandits.models.protocol import FromTotals, FromUserSums, with_defaults

_BLOCK = 2**22  # numbers of the users' second moments that are held at once


def state_evidence(learned: Learned, log: Log) -> FloatArray:
    """Return log p(user's rewards | s) up to a constant per user, `(n_users, n_states)`.

    The parameters are integrated over the model's prior: exactly for arms and for Gaussian
    rewards of linear models, and by `without_particles` (Laplace) for clicks. Rewards of actions
    that the model has not learned are left out.
    """
    known = learned.counts[log.actions] > 0
    if log.features is None and not known.all():
        log = log.of_events(known)
    described = with_defaults(learned.model)
    model, rewards = described.untransformed, described.in_units(np.asarray(log.rewards))
    if isinstance(model, FromTotals):
        return _by_user(log, predictions(model, replace(log, rewards=rewards))[1])
    features = row_features(learned, log)
    if isinstance(model, FromUserSums):
        return _from_sums(model, log, features, rewards)
    return _rounds(with_defaults(model).without_particles, log, features, rewards)


def row_features(learned: Learned, log: Log) -> FloatArray:
    """Return the features of every event, `(n_events, n_features)`: of its row or its action."""
    if log.features is not None:
        return log.features
    assert learned.features is not None
    return learned.features[log.actions]


def _by_user(log: Log, values: FloatArray) -> FloatArray:
    """Sum `values` (n_events, n_states) over the events of each user."""
    sums = np.zeros((log.n_users, values.shape[1]))
    full = np.diff(log.starts) > 0
    if len(values):
        sums[full] = np.add.reduceat(values, log.starts[:-1][full])
    return sums


def user_sums(log: Log, features: FloatArray, rewards: FloatArray, users: slice) -> UserSums:
    """Return the sums of x x', x r, r^2 and 1 over the events of some users."""
    begin, end = log.starts[users.start], log.starts[users.stop]
    x, r, who = features[begin:end], rewards[begin:end], log.users[begin:end] - users.start
    n, d = users.stop - users.start, features.shape[1]
    gram, products = np.zeros((n, d, d)), np.zeros((n, d))
    starts = log.starts[users.start : users.stop] - begin
    full = np.diff(log.starts)[users] > 0
    if len(x):
        outer = np.einsum("ei,ej->eij", x, x)
        gram[full] = np.add.reduceat(outer, starts[full])
        products[full] = np.add.reduceat(x * r[:, None], starts[full])
    counts = np.bincount(who, minlength=n).astype(np.float64)
    squares = np.bincount(who, r**2, minlength=n).astype(np.float64)
    return UserSums(gram, products, squares, counts)


def user_blocks(log: Log, d: int) -> list[slice]:
    """Return slices of users whose events fit into memory as outer products."""
    blocks, start = [], 0
    while start < log.n_users:
        room = max(_BLOCK // d**2, 1)
        stop = int(np.searchsorted(log.starts, log.starts[start] + room, side="right")) - 1
        stop = min(max(stop, start + 1), start + room, log.n_users)
        blocks.append(slice(start, stop))
        start = stop
    return blocks


def _from_sums(model: Any, log: Log, features: FloatArray, rewards: FloatArray) -> FloatArray:
    evidence = np.zeros((log.n_users, model.n_states))
    for block in user_blocks(log, model.n_features):
        evidence[block] = model.condition_on_sums(user_sums(log, features, rewards, block))[0]
    return evidence


def conditioned(
    log: Log, prior: Any, condition: Callable[[Any, IntArray], Any]
) -> Iterator[tuple[IntArray, Any]]:
    """Yield for each round the users who have it and their beliefs; users of many rounds first.

    `condition` takes the beliefs of some users before a round, and the event of each.
    """
    belief = prior
    for events in Rounds.of_users(log.starts).rows():
        n = len(events)
        belief = map_leaves(lambda leaf, n=n: leaf[:n], belief)
        belief = condition(belief, events)
        yield log.users[events], belief


def _rounds(model: Any, log: Log, features: FloatArray, rewards: FloatArray) -> FloatArray:
    """Return the evidence of any other model: final log weights of states less their prior."""
    evidence = np.zeros((log.n_users, model.n_states))
    for users, belief in conditioned(
        log, joint.prior(model, log.n_users), by_features(model, features, rewards)
    ):
        evidence[users] = belief.log_weights - model.log_state_prior
    return evidence


def by_features(
    model: Any, features: FloatArray, rewards: FloatArray
) -> Callable[[Any, IntArray], Any]:
    """Return a function that conditions beliefs on the rewards of some events."""

    def condition(belief: Any, events: IntArray) -> Any:
        action = np.zeros(len(events), np.int64)
        return joint.condition(model, belief, features[events][:, None], action, rewards[events])

    return condition
