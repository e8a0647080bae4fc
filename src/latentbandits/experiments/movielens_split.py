"""The split of ratings into a half to learn from and a half that serves as truth (Section 5.2)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from latentbandits.environments import GroupedRatings
from latentbandits.experiments.movielens import ACTIONS, NOISE, Settings
from latentbandits.experiments.movielens_data import Ratings, find_folder, keep_active, load
from latentbandits.learning.linear.clusters import Clusters, cluster_users
from latentbandits.learning.linear.completion import Completion, complete
from latentbandits.models.checks import IntArray
from latentbandits.models.linear.gaussian import LinearGaussian


@dataclass(frozen=True, eq=False)
class Split:
    """One random split, completed; the policies are given facts of `train` only."""

    train: Completion
    test: Completion
    clusters: Clusters
    environment: GroupedRatings


def halves(n_ratings: int, seed: int, number: int) -> tuple[IntArray, IntArray]:
    """Return two random halves of the ratings' positions, train first."""
    order = np.random.default_rng([seed, number]).permutation(n_ratings)
    return order[: n_ratings // 2], order[n_ratings // 2 :]


def learn(data: Ratings, settings: Settings, number: int) -> Split:
    """Complete both halves of split `number`, cluster the train users, and set up the rounds."""
    train, test = (
        complete(
            data.users[half],
            data.movies[half],
            data.ratings[half],
            rank=settings.rank,
            reg=settings.reg,
            n_users=len(data.user_ids),
            n_actions=len(data.movie_ids),
            seed=settings.seed + number,
        )
        for half in halves(len(data.ratings), settings.seed, number)
    )
    clusters = cluster_users(train, settings.states, noise=NOISE, seed=settings.seed + number)
    # A movie without ratings in one half has no vector there, and cannot be shown.
    shown = (train.action_counts > 0) & (test.action_counts > 0)
    genres = data.genres & shown[:, None]
    assert isinstance(clusters.model, LinearGaussian)
    environment = GroupedRatings(
        clusters.model,
        train.action_vectors,
        genres[:, genres.any(axis=0)],
        test.user_vectors[test.user_counts > 0],
        test.action_vectors,
        ACTIONS,
        NOISE,
    )
    return Split(train, test, clusters, environment)


def first_split(folder: str | None, seed: int) -> GroupedRatings:
    """Return the paper's problem on one split of the ratings in a MovieLens 1M folder."""
    settings = Settings(seed=seed)
    ratings = keep_active(load(find_folder(folder)), settings.more_than)
    return learn(ratings, settings, 0).environment
