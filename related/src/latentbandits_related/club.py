"""CLUB: online clustering of bandits by a graph on users (Gentile, Li & Zappella 2014)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np

from latentbandits.models import checks
from latentbandits.models.checks import BoolArray, FloatArray, IntArray
from latentbandits.policies.checked import Outcome
from latentbandits.policies.shared import chunks
from latentbandits.policies.shared.base import Sums, add_to_sums, empty_sums, played_features
from latentbandits_related.graph import (
    CompleteGraph,
    Graph,
    SparseGraph,
    components,
    components_after_cut,
    random_graph,
    sparse_probability,
)
from latentbandits_related.ridge import (
    ClusteredUCB,
    Ridge,
    add_to_ridge,
    confidence,
    empty_ridge,
    pool,
    put_one,
    weights,
)


class ClubBelief(NamedTuple):
    """Sums of every user, and the components of the graph with their pooled regressions."""

    rounds: FloatArray  # (B,)
    users: tuple[Sums, ...]  # chunks of users
    weights: FloatArray  # (B, n_users, d)
    counts: FloatArray  # (B, n_users)
    component: IntArray  # (B, n_users), labelled by its smallest user
    pooled: tuple[Ridge, ...]  # chunks of components, at the row of their label
    cuts: BoolArray  # (B, n_edges)


@dataclass(frozen=True, eq=False)
class CLUB(ClusteredUCB[ClubBelief]):
    """CLUB of Gentile, Li & Zappella (2014): LinUCB on the component of the user who asks.

    An edge (i, l) of the asking user i is cut if |w_i - w_l| > alpha2 (F(T_i) + F(T_l)), with w and
    T before the reward. Components pool their sums under one identity matrix. `graph` is
    "complete", "sparse" (Erdos-Renyi with p = 3 ln n / n, as in the authors' code) or "none";
    `n_clusters` makes the sparse graph p = 3 ln(n/m) / (n/m), which connects each of m clusters.
    The graph is drawn from `seed`. `alpha2` infinite is one LinUCB for all.

    Args:
        n_users: number of users of the population.
        n_features: number of features of an action.
        alpha: factor of the confidence bonus.
        alpha2: factor of the width at which an edge is cut.
        graph: "complete", "sparse" or "none".
        n_clusters: m of the sparse graph.
        seed: of the graph that is drawn at the start.

    >>> from latentbandits import Decision
    >>> policy = CLUB(n_users=3, n_features=2)
    >>> from latentbandits.models.visit import Visit
    >>> visit = Visit(np.array([2]), np.array([[[1.0, 0.0], [0.0, 2.0]]]))
    >>> belief = policy.update(policy.init(), visit, Decision.logged([1]), [1.0])
    >>> belief.component
    array([[0, 0, 0]])
    """

    n_users: int
    n_features: int
    alpha: float = 0.1
    alpha2: float = 1.0
    graph: Literal["complete", "sparse", "none"] = "complete"
    n_clusters: int = 1
    seed: int = 0
    _graph: Graph = field(init=False, repr=False)
    _start: IntArray = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._check_sizes()
        if not self.alpha2 > 0:
            raise ValueError(f"alpha2 must be above zero (inf: no edge is cut); got {self.alpha2}")
        graph = user_graph(self.graph, self.n_users, self.n_clusters, self.seed)
        object.__setattr__(self, "_graph", graph)
        object.__setattr__(self, "_start", components(graph))

    def init(self, n_sessions: int = 1) -> ClubBelief:
        n, d = checks.session_count(n_sessions, None), self.n_features
        return ClubBelief(
            np.zeros(n),
            chunks.repeat(empty_sums(d), n, self.n_users),
            np.zeros((n, self.n_users, d)),
            np.zeros((n, self.n_users)),
            np.tile(self._start, (n, 1)),
            chunks.repeat(empty_ridge(d), n, self.n_users),
            np.zeros((n, self._graph.n_edges), np.bool_),
        )

    def _regression(self, belief: ClubBelief, user: IntArray) -> Ridge:
        return chunks.take(belief.pooled, belief.component[np.arange(len(user)), user])

    def _learn(self, belief: ClubBelief, outcome: Outcome) -> ClubBelief:
        population, user = np.arange(len(outcome.action)), outcome.context.user
        x = played_features(outcome)
        sums = add_to_sums(chunks.take(belief.users, user), x, outcome.reward)
        users = chunks.put(belief.users, user, sums)
        name = belief.component[population, user]
        ridge = add_to_ridge(chunks.take(belief.pooled, name), x, outcome.reward)
        pooled = chunks.put(belief.pooled, name, ridge)

        component, cuts = belief.component.copy(), belief.cuts
        for b, i in enumerate(user.tolist()):
            lost, edge = self._edges_to_cut(belief, b, i)
            if len(lost) == 0:
                continue
            if cuts is belief.cuts:
                cuts = cuts.copy()
            cuts[b, edge] = True
            for part in components_after_cut(self._graph, cuts[b], i, lost):
                component[b, part] = part[0]
                pooled = _rebuild(pooled, users, b, part)
        own_weights, counts = belief.weights.copy(), belief.counts.copy()
        own_weights[population, user] = weights(sums)
        counts[population, user] += 1
        return ClubBelief(belief.rounds + 1, users, own_weights, counts, component, pooled, cuts)

    def _edges_to_cut(self, belief: ClubBelief, b: int, i: int) -> tuple[IntArray, IntArray]:
        """Return the neighbours of user i whose weights now differ too much, and their edges."""
        _, neighbour, edge = self._graph.edges(np.array([i]))
        offset = belief.weights[b, neighbour] - belief.weights[b, i]
        width = confidence(belief.counts[b])
        bound = self.alpha2 * (width[neighbour] + width[i])
        place = np.flatnonzero((offset * offset).sum(axis=1) > bound**2)
        if len(place) == 0:
            return place, place
        place = place[~belief.cuts[b, edge[place]]]
        return neighbour[place], edge[place]


def user_graph(kind: str, n_users: int, n_clusters: int, seed: int) -> Graph:
    """Return the graph on users that CLUB and COFIBA start from."""
    if kind == "complete":
        return CompleteGraph(n_users)
    if kind == "sparse":
        chance = sparse_probability(n_users, n_clusters)
        return random_graph(n_users, chance, np.random.default_rng(seed))
    if kind == "none":
        return SparseGraph(n_users, np.empty((0, 2), np.int64))
    raise ValueError(f"graph must be 'complete', 'sparse' or 'none'; got {kind!r}")


def _rebuild(
    pooled: tuple[Ridge, ...], users: tuple[Sums, ...], b: int, part: IntArray
) -> tuple[Ridge, ...]:
    """Return `pooled` with the regression of a new component, from the sums of its users."""
    gram = chunks.select(users, 0, b, part).sum(axis=0)
    products = chunks.select(users, 1, b, part).sum(axis=0)
    return put_one(pooled, b, int(part[0]), pool(gram, products))
