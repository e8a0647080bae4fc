"""Whom a learned model is played against: users drawn from it, or those of a log."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from latentbandits.environments import GroupedRatings, KnownUsers
from latentbandits.learning.linear.completion import complete
from latentbandits.learning.logs import Log
from latentbandits.learning.tables import LogError
from latentbandits.models import Catalogue, GaussianArms, LinearGaussian
from latentbandits.models.checks import FloatArray, IntArray

Users: TypeAlias = KnownUsers | GroupedRatings

DRAWN = 20_000
"""Users drawn from a model: so many that runs seldom share one."""


def from_model(
    model: GaussianArms | LinearGaussian, catalogue: Catalogue | None, offered: int, seed: int
) -> Users:
    """Each user: a state of the prior, and parameters of that state's prior."""
    rng = np.random.default_rng(seed)
    state = rng.choice(model.n_states, size=DRAWN, p=model.state_prior)
    if isinstance(model, GaussianArms):
        draws = rng.standard_normal((DRAWN, model.n_actions))
        return KnownUsers(model, model.means[state] + model.spread[state] * draws, model.noise)
    items = _features(catalogue)
    theta = np.empty((DRAWN, model.n_features))
    for s in range(model.n_states):
        own = state == s
        theta[own] = rng.multivariate_normal(
            model.weights[s], model.covariances[s], size=int(own.sum()), method="eigh"
        )
    return _grouped(model, items, theta, items, offered)


def from_log(
    model: GaussianArms | LinearGaussian,
    catalogue: Catalogue | None,
    log: Log,
    offered: int,
    settings: dict[str, Any],
    seed: int,
) -> Users:
    """The users of a log, whose rewards are completed as the paper does with its test half.

    The completion has the rank and regularisation of the fit (`settings`), and is of this log
    alone: what a user pays does not come from what the model was learned from.
    """
    known, index = _shared_actions(catalogue, log)
    log = log.merged("mean")
    chosen = log.of_events(np.isin(log.actions, known))
    columns = np.searchsorted(known, chosen.actions)
    rank = settings.get("rank") or min(model.n_states, 5)
    fit = complete(
        chosen.users,
        columns,
        chosen.rewards,
        rank=min(rank, log.n_users, len(known)),
        reg=settings.get("reg") or float(chosen.rewards.std()) or 1.0,
        biases=True,
        n_users=log.n_users,
        n_actions=len(known),
        seed=seed,
    )
    users = fit.user_vectors[fit.user_counts > 0]
    if isinstance(model, LinearGaussian):
        return _grouped(model, _features(catalogue)[index], users, fit.action_vectors, offered)
    means = np.zeros((len(users), model.n_actions))
    means[:, index] = users @ fit.action_vectors.T
    eligible = np.isin(np.arange(model.n_actions), index)
    return KnownUsers(model, means, model.noise, None if eligible.all() else eligible)


def _grouped(
    model: LinearGaussian,
    features: FloatArray,
    users: FloatArray,
    items: FloatArray,
    offered: int,
) -> GroupedRatings:
    """One group of all items: each round offers some of them, uniformly."""
    one = np.ones((len(features), 1), np.bool_)
    return GroupedRatings(model, features, one, users, items, offered, model.noise)


def _features(catalogue: Catalogue | None) -> FloatArray:
    if catalogue is None or catalogue.features is None:
        raise ValueError(
            "this linear model was saved without a catalogue, so that there are no actions to "
            "offer: save it with one, or learn it with `latentbandits fit`"
        )
    return catalogue.features


def _shared_actions(catalogue: Catalogue | None, log: Log) -> tuple[IntArray, IntArray]:
    """The log's actions that the model knows, and where it has them."""
    if catalogue is None:
        raise ValueError("this model has no catalogue: which of its actions are those of the log?")
    place = {name: i for i, name in enumerate(catalogue.ids)}
    pairs = [(a, place[name]) for a, name in enumerate(log.action_ids) if name in place]
    if len(pairs) < 2:
        raise LogError(
            f"the log and the model share {len(pairs)} actions; the log has such as "
            f"{log.action_ids[0]!r}, the model such as {catalogue.ids[0]!r}: is it the same column?"
        )
    known, index = np.array(pairs).T
    return known, index
