"""Users of a log as an environment, with rewards of every action from matrix completion."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from latentbandits.environments import GroupedRatings, KnownUsers
from latentbandits.learning.linear.completion import complete
from latentbandits.learning.logs.rows import Log
from latentbandits.learning.logs.tables import LogError
from latentbandits.models import Catalogue
from latentbandits.models.checks import FloatArray, IntArray
from latentbandits.models.protocol import KnownModel, with_defaults

Users: TypeAlias = KnownUsers | GroupedRatings


def log_users(
    model: KnownModel,
    catalogue: Catalogue | None,
    log: Log,
    offered: int,
    settings: dict[str, Any],
    seed: int,
) -> Users:
    """Return the users of a log with completed rewards, as the paper does with its test half.

    The completion has the rank and regularisation of the fit (`settings`), and uses this log
    alone: the users' rewards do not depend on the data that the model was learned from.
    """
    described = with_defaults(model)
    if not described.has_normal_noise:
        raise ValueError(
            "users of a log are played with Gaussian rewards: the model must be GaussianArms or "
            f"LinearGaussian, but it is {type(model).__name__}. Add --replay for their real "
            "rewards; without --users its own users are drawn"
        )
    known, index = _shared_actions(catalogue, log)
    log = log.merged("mean")
    chosen = log.of_events(np.isin(log.actions, known))
    columns = np.searchsorted(known, chosen.actions)
    rank = settings.get("rank") or min(model.n_states, 5)
    # A fit with uncertain vectors has no regularisation; a strong one keeps noise out of rewards.
    is_linear = described.n_features is not None
    strength = 10.0 if is_linear else 1.0
    fit = complete(
        chosen.users,
        columns,
        chosen.rewards,
        rank=min(rank, log.n_users, len(known)),
        reg=settings.get("reg") or strength * float(chosen.rewards.std()) or 1.0,
        biases=True,
        n_users=log.n_users,
        n_actions=len(known),
        seed=seed,
    )
    users = fit.user_vectors[fit.user_counts > 0]
    if is_linear:
        features = _features(catalogue)[index]
        one_group = np.ones((len(features), 1), np.bool_)  # each round offers a uniform sample
        items = fit.action_vectors
        return GroupedRatings(model, features, one_group, users, items, offered, model.noise)
    assert model.n_actions is not None
    means = np.zeros((len(users), model.n_actions))
    means[:, index] = users @ fit.action_vectors.T
    eligible = np.isin(np.arange(model.n_actions), index)
    return KnownUsers(model, means, model.noise, None if eligible.all() else eligible)


def numbered_as_model(
    model: Any, catalogue: Catalogue | None, log: Log
) -> tuple[Log, FloatArray | None]:
    """Return the rows of a log whose actions the model knows, numbered as in the catalogue.

    Also return the features of the catalogue's actions; None for a model of arms.
    """
    known, index = _shared_actions(catalogue, log)
    assert catalogue is not None
    place = np.full(log.n_actions, -1, np.int64)
    place[known] = index
    kept = log.of_events(place[log.actions] >= 0)
    numbered = replace(kept, actions=place[kept.actions], action_ids=catalogue.ids)
    return numbered, None if model.n_actions is not None else _features(catalogue)


def _features(catalogue: Catalogue | None) -> FloatArray:
    if catalogue is None or catalogue.features is None:
        raise ValueError(
            "this linear model was saved without a catalogue, so that there are no actions to "
            "offer: save it with one, or learn it with `latentbandits fit`"
        )
    return catalogue.features


def _shared_actions(catalogue: Catalogue | None, log: Log) -> tuple[IntArray, IntArray]:
    """Return the log's actions that the model knows, and their indices in the model."""
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
