"""Users who visit the service: simulated users with a known truth, or users of MovieLens."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from latentbandits.experiments.movielens_data import Ratings
from latentbandits.models import GaussianArms
from latentbandits.models.checks import BoolArray, FloatArray, IntArray

Table = dict[str, FloatArray | IntArray]
"""Columns user, action and reward of a log to learn from."""


class SimulatedUsers:
    """Users of a few states with Gaussian rewards; every action is offered in every round.

    Actions are "0", "1", and so on.
    """

    def __init__(self, means: FloatArray, noise: float, n_rounds: int) -> None:
        self.truth = GaussianArms(means, noise)
        self.n_actions = self.truth.n_actions
        self.n_rounds = n_rounds

    def draw(self, n: int, rng: np.random.Generator) -> IntArray:
        """Draw users independently, with replacement: `(n,)` numbers."""
        return rng.integers(self.truth.n_states, size=n)

    def visitors(self, rng: np.random.Generator) -> Iterator[int]:
        """Yield users in random order, as they come to the service."""
        while True:
            yield int(rng.integers(self.truth.n_states))

    def offers(self, users: IntArray, seen: BoolArray, rng: np.random.Generator) -> BoolArray:
        """Return the actions offered to each user, given which (n, n_actions) they have `seen`."""
        return np.ones_like(seen)

    def means(self, users: IntArray) -> FloatArray:
        """Return the mean reward of every action for every user, `(n, n_actions)`."""
        means: FloatArray = self.truth.means[users]
        return means

    def rewards(self, means: FloatArray, rng: np.random.Generator) -> FloatArray:
        """Draw a reward for each mean."""
        noise: FloatArray = self.truth.noise * rng.standard_normal(means.shape)
        return means + noise

    def table(self, n_users: int, rng: np.random.Generator) -> Table:
        """Return a log of `n_users` users whose actions were not chosen by a policy."""
        state = np.repeat(self.draw(n_users, rng), self.n_rounds)
        action = rng.integers(self.n_actions, size=len(state))
        reward = self.rewards(self.truth.means[state, action], rng)
        user = np.repeat(np.arange(n_users), self.n_rounds)
        return {"user": user, "action": action, "reward": reward}

    def first_table(self, n_users: int, rng: np.random.Generator) -> Table:
        """Return the small log that the first model is learned from."""
        return self.table(n_users, rng)


class ClickingUsers(SimulatedUsers):
    """Users of a few kinds who click or not.

    Args:
        means: click rates, `(n_kinds, n_actions)`.
        n_rounds: rounds of a session.
        order: kinds of the users, if they are drawn in this order; None: at random.
    """

    def __init__(self, means: FloatArray, n_rounds: int, order: IntArray | None = None) -> None:
        super().__init__(means, 0.5, n_rounds)
        self._order = order

    def draw(self, n: int, rng: np.random.Generator) -> IntArray:
        return super().draw(n, rng) if self._order is None else self._order[:n]

    def rewards(self, means: FloatArray, rng: np.random.Generator) -> FloatArray:
        return (rng.random(means.shape) < means).astype(np.float64)


class MovieLensUsers:
    """Users of MovieLens who rated many movies of a catalogue in which the choice matters.

    Of the `n_popular` movies with the most ratings, the catalogue has the half of `n_movies` with
    the best mean rating and the half with the worst. (The most popular movies alone are all liked:
    whatever a policy chooses among them, it gains little.) A round offers `n_offered` movies that
    the user rated and was not shown before. The reward is the rating, from 1 to 5. Only the choice
    of the offered movies is simulated.
    """

    def __init__(
        self,
        ratings: Ratings,
        n_movies: int = 60,
        n_popular: int = 300,
        n_offered: int = 3,
        n_rounds: int = 8,
    ) -> None:
        chosen = best_and_worst(ratings, n_movies, n_popular)
        place = np.full(len(ratings.movie_ids), -1)
        place[chosen] = np.arange(n_movies)
        known = place[ratings.movies] >= 0
        table = np.full((len(ratings.user_ids), n_movies), np.nan)
        table[ratings.users[known], place[ratings.movies[known]]] = ratings.ratings[known]
        enough = (~np.isnan(table)).sum(axis=1) >= n_rounds + n_offered - 1
        self.ratings = table[enough]
        self.titles = tuple(ratings.titles[i] for i in chosen)
        self.n_actions, self.n_offered, self.n_rounds = n_movies, n_offered, n_rounds

    def draw(self, n: int, rng: np.random.Generator) -> IntArray:
        return rng.integers(len(self.ratings), size=n)

    def visitors(self, rng: np.random.Generator) -> Iterator[int]:
        """Yield each user once, so that no user is both learned from and judged on."""
        yield from map(int, rng.permutation(len(self.ratings)))

    def offers(self, users: IntArray, seen: BoolArray, rng: np.random.Generator) -> BoolArray:
        keys = rng.random(seen.shape)
        keys[np.isnan(self.ratings[users]) | seen] = np.inf
        last = np.partition(keys, self.n_offered - 1, axis=1)[:, self.n_offered - 1]
        offered: BoolArray = keys <= last[:, None]
        return offered

    def means(self, users: IntArray) -> FloatArray:
        ratings: FloatArray = self.ratings[users]
        return ratings

    def rewards(self, means: FloatArray, rng: np.random.Generator) -> FloatArray:
        return means

    def table(self, n_users: int, rng: np.random.Generator) -> Table:
        """Return the ratings of `n_users` users, or of more until every movie is rated."""
        order = rng.permutation(len(self.ratings))
        rated = ~np.isnan(self.ratings[order])
        complete = int((rated.cumsum(axis=0) > 0).all(axis=1).argmax()) + 1
        chosen = order[: max(n_users, complete)]
        user, action = np.nonzero(~np.isnan(self.ratings[chosen]))
        return {"user": user, "action": action, "reward": self.ratings[chosen[user], action]}

    def first_table(self, n_users: int, rng: np.random.Generator) -> Table:
        """Return one rating of each movie, by `n_users` users or a few more."""
        table = self.table(n_users, rng)
        order = rng.permutation(len(table["action"]))
        _, first = np.unique(table["action"][order], return_index=True)
        return {name: values[order[first]] for name, values in table.items()}


Users = SimulatedUsers | MovieLensUsers
"""Users with rewards, of whose actions a round may offer only some."""


def best_and_worst(ratings: Ratings, n_movies: int, n_popular: int) -> IntArray:
    """Return the movies with the best and the worst mean rating among the most rated ones.

    The more ratings a movie has, the earlier it comes.
    """
    count = np.bincount(ratings.movies)
    mean = np.bincount(ratings.movies, ratings.ratings) / np.maximum(count, 1)
    popular = np.argsort(-count, kind="stable")[:n_popular]
    rank = np.argsort(np.argsort(mean[popular], kind="stable"))
    extreme = (rank < n_movies // 2) | (rank >= len(popular) - (n_movies - n_movies // 2))
    chosen: IntArray = popular[extreme]
    return chosen
