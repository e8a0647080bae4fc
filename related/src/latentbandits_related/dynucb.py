"""DynUCB: dynamic clustering of bandits (Nguyen & Lauw 2014)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from latentbandits.models import checks
from latentbandits.models.checks import FloatArray, IntArray
from latentbandits.policies.checked import Outcome
from latentbandits.policies.shared import chunks
from latentbandits.policies.shared.base import (
    Sums,
    add_to_sums,
    empty_sums,
    invert,
    played_features,
)
from latentbandits_related.ridge import ClusteredUCB, Ridge, add_to_ridge, weights


class Member(NamedTuple):
    """A user's sums, and the cluster the user is in."""

    gram: FloatArray  # (..., d, d)
    products: FloatArray  # (..., d)
    cluster: IntArray  # (...)


class DynBelief(NamedTuple):
    """Users with their clusters, and the pooled regression of every cluster."""

    rounds: FloatArray  # (B,)
    users: tuple[Member, ...]  # chunks of users
    gram: FloatArray  # (B, k, d, d), of every cluster
    products: FloatArray  # (B, k, d)
    inverse: FloatArray  # (B, k, d, d): (I + gram)^-1
    weights: FloatArray  # (B, k, d)


@dataclass(frozen=True, eq=False)
class DynUCB(ClusteredUCB[DynBelief]):
    """DynUCB of Nguyen & Lauw (2014): LinUCB on one of k clusters; the served user may move.

    After each reward the user goes to the cluster with the nearest weights, argmin_k |w_i - w_k|.
    Users start in random clusters, drawn from `seed`. An empty cluster has w = 0. Give k about
    twice the clusters you expect: with the true number, clusters often stay merged.

    Args:
        n_users: number of users of the population.
        n_features: number of features of an action.
        n_clusters: k.
        alpha: factor of the confidence bonus.
        seed: of the clusters at the start.

    >>> from latentbandits import Decision
    >>> policy = DynUCB(n_users=3, n_features=2, n_clusters=1)
    >>> from latentbandits.models.visit import Visit
    >>> visit = Visit(np.array([2]), np.array([[[1.0, 0.0], [0.0, 2.0]]]))
    >>> belief = policy.update(policy.init(), visit, Decision.logged([1]), [1.0])
    >>> belief.weights
    array([[[0. , 0.4]]])
    """

    n_users: int
    n_features: int
    n_clusters: int = 20
    alpha: float = 0.1
    seed: int = 0

    def __post_init__(self) -> None:
        self._check_sizes()
        checks.positive_count("n_clusters", self.n_clusters)

    def init(self, n_sessions: int = 1) -> DynBelief:
        n, d, k = checks.session_count(n_sessions, None), self.n_features, self.n_clusters
        cluster = np.random.default_rng(self.seed).integers(k, size=self.n_users)
        gram, products = (
            np.broadcast_to(value, (self.n_users, *value.shape)) for value in empty_sums(d)
        )
        return DynBelief(
            np.zeros(n),
            chunks.split(Member(gram, products, cluster), n),
            np.zeros((n, k, d, d)),
            np.zeros((n, k, d)),
            np.tile(np.eye(d), (n, k, 1, 1)),
            np.zeros((n, k, d)),
        )

    def _regression(self, belief: DynBelief, user: IntArray) -> Ridge:
        here = np.arange(len(user)), chunks.take(belief.users, user).cluster
        return Ridge(belief.inverse[here], belief.products[here])

    def _learn(self, belief: DynBelief, outcome: Outcome) -> DynBelief:
        population = np.arange(len(outcome.action))
        x = played_features(outcome)
        member = chunks.take(belief.users, outcome.context.user)
        sums = add_to_sums(Sums(member.gram, member.products), x, outcome.reward)
        gram, products = belief.gram.copy(), belief.products.copy()
        inverse, cluster_weights = belief.inverse.copy(), belief.weights.copy()

        here = population, member.cluster
        gram[here] += x[:, :, None] * x[:, None, :]
        ridge = add_to_ridge(Ridge(inverse[here], products[here]), x, outcome.reward)
        inverse[here], products[here] = ridge
        cluster_weights[here] = (ridge.inverse @ ridge.products[:, :, None])[:, :, 0]

        offset = cluster_weights - weights(sums)[:, None]
        nearest = (offset * offset).sum(axis=2).argmin(axis=1)
        movers = np.flatnonzero(nearest != member.cluster)
        if len(movers):
            for sign, cluster in ((-1, member.cluster), (1, nearest)):
                place = movers, cluster[movers]
                gram[place] += sign * sums.gram[movers]
                products[place] += sign * sums.products[movers]
                inverse[place] = invert(np.eye(self.n_features) + gram[place])
                cluster_weights[place] = (inverse[place] @ products[place][:, :, None])[:, :, 0]
        users = chunks.put(belief.users, outcome.context.user, Member(*sums, nearest))
        return DynBelief(belief.rounds + 1, users, gram, products, inverse, cluster_weights)
