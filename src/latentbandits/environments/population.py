"""Users of one population who visit in turn: where policies that learn across users are played."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from latentbandits.environments.protocol import Round
from latentbandits.models.checks import FloatArray, IntArray, positive_count, positive_number
from latentbandits.models.visit import Visit


@dataclass(frozen=True, eq=False)
class Crowd:
    """The users of B populations: their weights `(B, n_users, d)` and true groups, if any."""

    weights: FloatArray
    groups: IntArray | None = None  # (B, n_users)


Users: TypeAlias = FloatArray | Callable[[int, np.random.Generator], Crowd]
ItemFeatures: TypeAlias = FloatArray | Callable[[int, np.random.Generator], FloatArray]


@dataclass(frozen=True, eq=False)
class Population:
    """Rewards N(users[i]'features[j], noise^2) of user i for item j; every run is a population.

    Each round one user visits and is shown some items. The context has the features of these items.
    With `item_ids` the shown items are eligible instead.

    Args:
        users: users' weights `(n_users, d)`, or a function of (n_runs, rng) that draws a `Crowd`.
        features: features of the items `(n_items, d)`, or a function of (n_runs, rng) that draws
            `(n_runs, n_items, d)`.
        noise: standard deviation of a reward.
        n_shown: number of items that a round shows; None: all.
        visits: "uniform", or "zipf": user i comes with probability proportional to (i +
            1)^-exponent.
        exponent: exponent of "zipf".
        n_present: number of users who are there at a time; None: all.
        turnover: probability, before each visit, that one of the users present is replaced by the
            next user in line.
        item_ids: whether the action is the item's id and the context has no features.

    >>> environment = Population(np.eye(2), np.eye(2), noise=0.1)
    >>> rng = np.random.default_rng(0)
    >>> environment.start(3, horizon=10, rng=rng).round(0, rng).context.user.shape
    (3,)
    """

    users: Users
    features: ItemFeatures
    noise: float = 0.3
    n_shown: int | None = None
    visits: Literal["uniform", "zipf"] = "uniform"
    exponent: float = 1.0
    n_present: int | None = None
    turnover: float = 0.0
    item_ids: bool = False

    def __post_init__(self) -> None:
        positive_number("noise", self.noise)
        positive_number("exponent", self.exponent)
        if self.visits not in ("uniform", "zipf"):
            raise ValueError(f"visits must be 'uniform' or 'zipf'; got {self.visits!r}")
        if self.n_shown is not None:
            positive_count("n_shown", self.n_shown)
        if self.n_present is not None:
            positive_count("n_present", self.n_present)
        if not 0 <= self.turnover <= 1:
            raise ValueError(f"turnover must be in [0, 1]; got {self.turnover}")
        if self.turnover > 0 and self.n_present is None:
            raise ValueError("turnover needs n_present: how many users are there at a time")

    def start(self, n_runs: int, horizon: int, rng: np.random.Generator) -> PopulationInstances:
        """Draw the users and items of every run."""
        if callable(self.users):
            crowd = self.users(n_runs, rng)
        else:
            crowd = Crowd(np.broadcast_to(self.users, (n_runs, *np.shape(self.users))))
        if callable(self.features):
            items = self.features(n_runs, rng)
        else:
            items = np.broadcast_to(self.features, (n_runs, *np.shape(self.features)))
        n_users, n_items = crowd.weights.shape[1], items.shape[1]
        if items.shape[2:] != crowd.weights.shape[2:]:
            raise ValueError(
                f"users have {crowd.weights.shape[2:]} weights and items {items.shape[2:]} features"
            )
        if self.n_shown is not None and self.n_shown > n_items:
            raise ValueError(f"n_shown={self.n_shown} is more than the {n_items} items")
        if self.n_present is not None and self.n_present > n_users:
            raise ValueError(f"n_present={self.n_present} is more than the {n_users} users")
        return PopulationInstances(self, crowd, items)


class PopulationInstances:
    """Populations under way: their users and items, and who is present."""

    def __init__(self, environment: Population, crowd: Crowd, items: FloatArray) -> None:
        self._environment = environment
        self.crowd, self.items = crowd, items
        n_runs, n_users = crowd.weights.shape[:2]
        n_present = n_users if environment.n_present is None else environment.n_present
        self._present = np.tile(np.arange(n_present), (n_runs, 1))
        self._next: IntArray = np.full(n_runs, n_present)
        self._population = np.arange(n_runs)
        rank = np.arange(1, n_present + 1) ** -environment.exponent
        self._chance = np.cumsum(rank / rank.sum())

    @property
    def model(self) -> Any:
        """The true parameters, for oracle policies: `crowd`, `items` and `environment.noise`."""
        return self

    @property
    def n_users(self) -> int:
        return int(self.crowd.weights.shape[1])

    def _visitor(self, rng: np.random.Generator) -> IntArray:
        env, (n_runs, n_present) = self._environment, self._present.shape
        if env.turnover > 0:
            leaves = rng.random(n_runs) < env.turnover
            place = rng.integers(np.full(n_runs, n_present))
            self._present[leaves, place[leaves]] = self._next[leaves] % self.n_users
            self._next += leaves
        if env.visits == "uniform":
            slot = rng.integers(n_present, size=n_runs)
        else:
            slot = self._chance.searchsorted(rng.random(n_runs), side="right")
            slot = np.minimum(slot, n_present - 1)
        visitor: IntArray = self._present[self._population, slot]
        return visitor

    def round(self, t: int, rng: np.random.Generator) -> Round:
        env, population = self._environment, self._population
        n_runs, n_items = self.items.shape[:2]
        user = self._visitor(rng)
        theta = self.crowd.weights[population, user]
        if env.n_shown is None:
            features = self.items
        else:
            shown = rng.random((n_runs, n_items)).argpartition(env.n_shown - 1, axis=1)
            shown = shown[:, : env.n_shown]
            features = self.items[population[:, None], shown]
        means = (features @ theta[:, :, None])[:, :, 0]
        rewards = means + env.noise * rng.standard_normal(means.shape)
        visit: Any = Visit(user, None if env.item_ids else features)
        if not env.item_ids or env.n_shown is None:
            return Round(visit, means, rewards)
        all_means, all_rewards = np.zeros((n_runs, n_items)), np.zeros((n_runs, n_items))
        eligible = np.zeros((n_runs, n_items), np.bool_)
        place = population[:, None], shown
        all_means[place], all_rewards[place], eligible[place] = means, rewards, True
        return Round(visit, all_means, all_rewards, eligible)
