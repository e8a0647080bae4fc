"""Users of the loop experiment: those of MovieLens are offered only what they rated, once."""

from __future__ import annotations

import numpy as np
from evidence.loop_users import MovieLensUsers, SimulatedUsers, best_and_worst
from evidence.loop_visits import play

from latentbandits import GaussianArms, mTS
from latentbandits.experiments.movielens_data import Ratings


def ratings(n_users: int = 60, n_movies: int = 15) -> Ratings:
    rng = np.random.default_rng(0)
    users, movies = np.nonzero(rng.random((n_users, n_movies)) < 0.7)
    return Ratings(
        users,
        movies,
        rng.integers(1, 6, size=len(users)).astype(np.float64),
        np.arange(n_users),
        np.arange(n_movies),
        tuple(f"movie {i}" for i in range(n_movies)),
        np.ones((n_movies, 1), np.bool_),
        ("any",),
    )


def test_a_round_offers_rated_movies_that_were_not_shown() -> None:
    users = MovieLensUsers(ratings(), n_movies=10, n_popular=15, n_offered=3, n_rounds=4)
    rated = ~np.isnan(users.ratings)
    assert (rated.sum(axis=1) >= 6).all()
    model = GaussianArms(np.random.default_rng(1).uniform(1, 5, (2, 10)), 1.0)
    log, regret = play(mTS(model), users, 200, 4, np.random.default_rng(2))
    assert log.eligible is not None
    assert (log.eligible.sum(axis=2) == 3).all()
    some = users.draw(200, np.random.default_rng(2))  # the same draw as in `play`
    assert not (log.eligible & ~rated[some][:, None]).any()
    assert all(len(set(row)) == 4 for row in log.action.tolist())
    np.testing.assert_array_equal(
        log.reward, np.take_along_axis(users.ratings[some], log.action, 1)
    )
    offered = np.where(log.eligible, users.ratings[some][:, None], -np.inf).max(axis=2)
    np.testing.assert_allclose(regret, (offered - log.reward).sum(axis=1))


def test_tables_cover_every_movie_and_visitors_come_once() -> None:
    users = MovieLensUsers(ratings(), n_movies=10, n_popular=15, n_offered=3, n_rounds=4)
    table = users.table(1, np.random.default_rng(3))
    assert set(table["action"]) == set(range(10))
    first = users.first_table(1, np.random.default_rng(3))
    assert sorted(first["action"]) == list(range(10))
    rated = set(zip(*table.values(), strict=True))
    assert set(zip(*first.values(), strict=True)) <= rated
    came = list(users.visitors(np.random.default_rng(4)))
    assert sorted(came) == list(range(len(users.ratings)))


def test_the_catalogue_has_the_best_and_the_worst_of_the_most_rated_movies() -> None:
    all_ = ratings()
    count = np.bincount(all_.movies)
    mean = np.bincount(all_.movies, all_.ratings) / count
    chosen = best_and_worst(all_, 4, 9)
    popular = sorted(range(15), key=lambda movie: (-count[movie], movie))[:9]
    by_mean = sorted(popular, key=lambda movie: mean[movie])
    assert set(chosen) == {*by_mean[:2], *by_mean[-2:]}
    assert (np.diff(count[chosen]) <= 0).all()


def test_simulated_users_have_the_regret_of_their_states() -> None:
    means = np.array([[1.0, 0.0], [0.25, 0.5]])
    users = SimulatedUsers(means, 0.1, 3)
    log, regret = play(mTS(users.truth), users, 50, 3, np.random.default_rng(5))
    state = users.draw(50, np.random.default_rng(5))
    lost = means.max(axis=1)[state][:, None] - means[state[:, None], log.action]
    np.testing.assert_allclose(regret, lost.sum(axis=1))
