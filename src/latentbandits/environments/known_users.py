"""Users whose mean reward for every action is known: drawn from a model, or a log completed."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from latentbandits.environments.protocol import Round
from latentbandits.models.checks import (
    BoolArray,
    FloatArray,
    IntArray,
    positive_count,
    positive_number,
)
from latentbandits.models.protocol import KnownModel


@dataclass(frozen=True, eq=False)
class KnownUsers:
    """Rewards N(means[i, a], noise^2) of user i for action a, each run a user at random.

    Args:
        model: the model that policies use.
        means: true mean rewards, `(n_users, n_actions)`.
        noise: standard deviation of a reward; None: rewards are clicks, 0 or 1.
        eligible: `(n_actions,)`, the actions that are offered; None: all.

    >>> from latentbandits import GaussianArms
    >>> model = GaussianArms([[0.9, 0.1], [0.2, 0.8]], noise=0.5)
    >>> environment = KnownUsers(model, means=np.array([[1.0, 0.0], [0.1, 0.7]]), noise=0.5)
    >>> rng = np.random.default_rng(0)
    >>> environment.start(3, horizon=10, rng=rng).round(0, rng).means.shape
    (3, 2)
    """

    model: KnownModel  # the model that policies use
    means: FloatArray  # (n_users, n_actions): true means
    noise: float | None
    eligible: BoolArray | None = None  # (n_actions,)

    def __post_init__(self) -> None:
        if self.noise is not None:
            positive_number("noise", self.noise)
        if self.means.ndim != 2 or self.means.shape[1] != self.model.n_actions:
            raise ValueError(
                f"means must be of shape (n_users, {self.model.n_actions}), as the model's "
                f"actions; got {self.means.shape}"
            )

    def start(self, n_runs: int, horizon: int, rng: np.random.Generator) -> UserRuns:
        return UserRuns(self, rng.integers(len(self.means), size=n_runs))

    def round_of(self, user: IntArray, rng: np.random.Generator) -> Round:
        """Return a round of runs with these users."""
        means = self.means[user]
        if self.noise is None:
            rewards = (rng.random(means.shape) < means).astype(np.float64)
        else:
            rewards = means + self.noise * rng.standard_normal(means.shape)
        if self.eligible is None:
            return Round(None, means, rewards)
        return Round(None, means, rewards, np.broadcast_to(self.eligible, means.shape))


# Users who rate items that come in groups: the paper's MovieLens problem (Section 5.2).
#
# Each round draws groups (genres) uniformly and with replacement, and one item uniformly from each.
# The policies see item vectors that were learned from one half of the ratings; rewards come from
# the completion of the other half.


@dataclass(frozen=True, eq=False)
class GroupedRatings:
    """Rewards N(users[i]'items[j], noise^2) of user i for item j; contexts are rows of `features`.

    Args:
        model: the model that policies use.
        features: features of the items that policies see, `(n_items, n_features)`.
        groups: membership of the items, `(n_items, n_groups)`.
        users: true vectors of the users, `(n_users, rank)`.
        items: true vectors of the items, `(n_items, rank)`.
        n_actions: number of items that a round offers.
        noise: standard deviation of a reward.

    >>> from latentbandits import LinearGaussian
    >>> model = LinearGaussian([[3.0, 1.0], [3.0, -1.0]], noise=0.5)
    >>> items = np.array([[1.0, 1.0], [1.0, 0.0], [1.0, -1.0]])
    >>> genres = np.array([[True, False], [True, True], [False, True]])
    >>> environment = GroupedRatings(
    ...     model, items, genres, users=model.weights, items=items, n_actions=4
    ... )
    >>> rng = np.random.default_rng(0)
    >>> environment.start(5, horizon=10, rng=rng).round(0, rng).context.shape
    (5, 4, 2)
    """

    model: KnownModel  # the model that policies use
    features: FloatArray  # (n_items, n_features): features of items that policies see
    groups: BoolArray  # (n_items, n_groups): membership of items
    users: FloatArray  # (n_users, rank): true vectors, of any rank
    items: FloatArray  # (n_items, rank)
    n_actions: int = 20
    noise: float = 0.5

    def __post_init__(self) -> None:
        positive_count("n_actions", self.n_actions)
        positive_number("noise", self.noise)
        n_items = len(self.features)
        if self.features.shape[1:] != (self.model.n_features,):
            raise ValueError(
                f"features must be of shape (n_items, {self.model.n_features}), as the model's "
                f"weights; got {self.features.shape}"
            )
        if self.groups.ndim != 2 or len(self.groups) != n_items or self.groups.shape[1] == 0:
            raise ValueError(
                f"groups must be of shape ({n_items}, n_groups): which groups each item is in; "
                f"got {self.groups.shape}"
            )
        if len(self.items) != n_items or self.items.shape[1:] != self.users.shape[1:]:
            raise ValueError(
                f"items must be of shape ({n_items}, rank) and users (n_users, rank); "
                f"got {self.items.shape} and {self.users.shape}"
            )
        empty = np.flatnonzero(~self.groups.any(axis=0))
        if len(empty) > 0:
            raise ValueError(f"group {int(empty[0])} has no items: leave its column out")

    def start(self, n_runs: int, horizon: int, rng: np.random.Generator) -> UserRuns:
        """Start runs whose users are drawn uniformly and with replacement."""
        return UserRuns(self, rng.integers(len(self.users), size=n_runs))

    def round_of(self, user: IntArray, rng: np.random.Generator) -> Round:
        """Return a round of runs with these users."""
        item = self.draw(len(user), rng)
        means = (self.items[item] @ self.users[user][:, :, None])[:, :, 0]
        rewards = means + self.noise * rng.standard_normal(means.shape)
        return Round(self.features[item], means, rewards)

    @cached_property
    def sizes(self) -> IntArray:
        """The number of items of each group."""
        sizes: IntArray = self.groups.sum(axis=0)
        return sizes

    @cached_property
    def _members(self) -> IntArray:
        """The items of group 0, then the items of group 1, and so on."""
        return np.nonzero(self.groups.T)[1]

    def draw(self, n_runs: int, rng: np.random.Generator) -> IntArray:
        """Return the items of a round, `(n_runs, n_actions)`: one of each group that was drawn."""
        shape = (n_runs, self.n_actions)
        group = rng.integers(len(self.sizes), size=shape)
        first = np.cumsum(self.sizes) - self.sizes
        items: IntArray = self._members[first[group] + rng.integers(self.sizes[group])]
        return items


@dataclass(frozen=True, eq=False)
class UserRuns:
    """Runs under way: the user of each."""

    environment: KnownUsers | GroupedRatings
    user: IntArray  # (n_runs,)

    @property
    def model(self) -> KnownModel:
        return self.environment.model

    def round(self, t: int, rng: np.random.Generator) -> Round:
        return self.environment.round_of(self.user, rng)
