"""COFIBA: collaborative filtering bandits (Li, Karatzoglou & Gentile 2016).

Of historical interest: the equality of neighbourhoods is so strict that the item graph falls apart,
and every new item cluster starts with one cluster of users (docs/concepts/related-systems.md).
Written to be correct, not fast.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from latentbandits.models import checks
from latentbandits.models.checks import BoolArray, FloatArray, IntArray
from latentbandits.models.visit import Visit, check_visit
from latentbandits.policies.checked import Asked, Outcome
from latentbandits.policies.shared.base import ScoredPopulation, invert
from latentbandits_related.club import user_graph
from latentbandits_related.graph import (
    Graph,
    components,
    components_after_cut,
)
from latentbandits_related.ridge import optimistic_index, pool


class CofibaBelief(NamedTuple):
    """Sums of every user, the item graph, and a user graph for every item cluster.

    An item cluster is named by its smallest item, a user cluster by its smallest user.
    """

    rounds: FloatArray  # (B,)
    gram: FloatArray  # (B, n_users, d, d)
    products: FloatArray  # (B, n_users, d)
    item_cuts: BoolArray  # (B, n_item_edges)
    item_cluster: IntArray  # (B, n_items)
    user_cuts: BoolArray  # (B, n_items, n_user_edges), at the row of the item cluster
    user_cluster: IntArray  # (B, n_items, n_users)


@dataclass(frozen=True, eq=False)
class COFIBA(ScoredPopulation[CofibaBelief]):
    """COFIBA of Li, Karatzoglou & Gentile (2016): clusters of users for every cluster of items.

    The action is an item's id, the row of `items` `(n_items, d)`, or `(B, n_items, d)` where
    populations differ; the items on offer are the eligible ones, and contexts have no features.
    With CB_i(x) = alpha2 sqrt(x' M_i^-1 x ln(t + 1)), an item x of item cluster h is scored by
    LinUCB on the users who are connected with user i in the user graph of h. After a reward for x,
    in the user graph of its cluster the edge (i, j) is cut if
    |(w_i - w_j)'x| > CB_i(x) + CB_j(x); the edge (x, l) of the item graph is cut if the users like
    i by x are not those like i by l. A part that leaves an item cluster starts with the whole user
    graph; the part with x keeps its own. `graph` is that of users and items at the start, as in
    `CLUB`. `alpha2` infinite is one LinUCB for all, if the graph is connected.

    Args:
        n_users: number of users of the population.
        items: features of the catalogue, `(n_items, d)` or `(B, n_items, d)`.
        alpha: factor of the confidence bonus.
        alpha2: factor of CB, the width at which an edge is cut.
        graph: "complete" or "sparse".
        seed: of the graph that is drawn at the start.

    >>> policy = COFIBA(n_users=3, items=np.eye(2))
    >>> policy.decide(policy.init(), Visit(np.array([2])), np.random.default_rng(0)).propensity
    array([0.5])
    """

    order_free: ClassVar[bool] = False

    n_users: int
    items: ArrayLike
    alpha: float = 0.1
    alpha2: float = 0.3
    graph: Literal["complete", "sparse"] = "sparse"
    seed: int = 0
    _items: FloatArray = field(init=False, repr=False)
    _users: Graph = field(init=False, repr=False)
    _catalogue: Graph = field(init=False, repr=False)

    def __post_init__(self) -> None:
        checks.positive_count("n_users", self.n_users)
        checks.positive_number("alpha", self.alpha)
        if not self.alpha2 > 0:
            raise ValueError(f"alpha2 must be above zero (inf: no edge is cut); got {self.alpha2}")
        items = checks.finite_array("items", self.items, (2, 3))
        object.__setattr__(self, "_items", items.reshape(-1, *items.shape[-2:]))
        object.__setattr__(self, "_users", user_graph(self.graph, self.n_users, 1, self.seed))
        object.__setattr__(
            self, "_catalogue", user_graph(self.graph, items.shape[-2], 1, self.seed + 1)
        )

    def init(self, n_sessions: int = 1) -> CofibaBelief:
        n_populations = len(self._items)
        n = checks.session_count(n_sessions, n_populations if n_populations > 1 else None)
        (_, n_items, d), m = self._items.shape, self.n_users
        return CofibaBelief(
            np.zeros(n),
            np.zeros((n, m, d, d)),
            np.zeros((n, m, d)),
            np.zeros((n, self._catalogue.n_edges), np.bool_),
            np.tile(components(self._catalogue), (n, 1)),
            np.zeros((n, n_items, self._users.n_edges), np.bool_),
            np.tile(components(self._users), (n, n_items, 1)),
        )

    def checked_context(self, context: Any, n_sessions: int) -> tuple[Any, int]:
        user, _ = check_visit(context, n_sessions, self.n_users, None)
        return Visit(user), self._items.shape[1]

    def _item_features(self, b: int) -> FloatArray:
        """Return the features of all items of a population."""
        features: FloatArray = self._items[b if len(self._items) > 1 else 0]
        return features

    def _scores(self, belief: CofibaBelief, asked: Asked) -> FloatArray:
        """Return the scores of the eligible items, -inf for all others: `(B, n_items)`."""
        scores = np.full((len(asked.context.user), self._items.shape[1]), -np.inf)
        for b, i in enumerate(asked.context.user.tolist()):
            items, cluster = self._item_features(b), belief.item_cluster[b]
            offered = np.ones(len(items)) if asked.eligible is None else asked.eligible[b]
            shown = np.flatnonzero(offered)
            for h in np.unique(cluster[shown]).tolist():
                mine = shown[cluster[shown] == h]
                label = belief.user_cluster[b, h]
                members = label == label[i]
                ridge = pool(
                    belief.gram[b, members].sum(axis=0)[None],
                    belief.products[b, members].sum(axis=0)[None],
                )
                scores[b, mine] = optimistic_index(
                    ridge, items[mine][None], self.alpha, belief.rounds[b : b + 1]
                )[0]
        return scores

    def _learn(self, belief: CofibaBelief, outcome: Outcome) -> CofibaBelief:
        population, user = np.arange(len(outcome.action)), outcome.context.user
        x = self._items[population if len(self._items) > 1 else 0, outcome.action]
        gram, products = belief.gram.copy(), belief.products.copy()
        gram[population, user] += x[:, :, None] * x[:, None, :]
        products[population, user] += x * outcome.reward[:, None]
        graphs: Any = (array.copy() for array in belief[3:])
        after = CofibaBelief(belief.rounds + 1, gram, products, *graphs)
        for b, (i, item) in enumerate(zip(user.tolist(), outcome.action.tolist(), strict=True)):
            self._cut(after, b, i, item)
        return after

    def _cut(self, draft: CofibaBelief, b: int, i: int, item: int) -> None:
        """Cut edges of user i and of the item in population b; `draft` is changed in place."""
        h = int(draft.item_cluster[b, item])
        inverse = invert(np.eye(self._items.shape[2]) + draft.gram[b])
        weights = (inverse @ draft.products[b][:, :, None])[:, :, 0]
        log_t = np.log(draft.rounds[b] + 1)
        _, neighbour, edge = self._catalogue.edges(np.array([item]))
        on = ~draft.item_cuts[b, edge]
        neighbour, edge = neighbour[on], edge[on]
        x = self._item_features(b)[[item, *neighbour.tolist()]]
        like = self._like(x, i, weights, inverse, log_t)

        _, others, user_edge = self._users.edges(np.array([i]))
        on = ~draft.user_cuts[b, h, user_edge] & ~like[0, others]
        if on.any():
            draft.user_cuts[b, h, user_edge[on]] = True
            for part in components_after_cut(self._users, draft.user_cuts[b, h], i, others[on]):
                draft.user_cluster[b, h, part] = part[0]
        lost = (like[1:] != like[0]).any(axis=1)
        if lost.any():
            draft.item_cuts[b, edge[lost]] = True
            self._split_items(draft, b, item, neighbour[lost])

    def _like(
        self, x: FloatArray, i: int, weights: FloatArray, inverse: FloatArray, log_t: float
    ) -> BoolArray:
        """Return the users who are like user i by each of the items `x`, `(len(x), n_users)`."""
        with np.errstate(invalid="ignore"):
            width = np.sqrt(((x @ inverse) * x).sum(axis=2).T * log_t)
            bound = np.where(width > 0, self.alpha2 * width, 0.0)
        offset = np.abs(x @ (weights - weights[i]).T)
        like: BoolArray = offset <= bound + bound[:, i : i + 1]
        return like

    def _split_items(self, draft: CofibaBelief, b: int, item: int, lost: IntArray) -> None:
        """Give the parts of an item cluster their names and user graphs."""
        parts = components_after_cut(self._catalogue, draft.item_cuts[b], item, lost)
        if not parts:
            return
        old = int(draft.item_cluster[b, item])
        cuts, cluster = draft.user_cuts[b, old].copy(), draft.user_cluster[b, old].copy()
        fresh = components(self._users)
        for part in parts:
            name = int(part[0])
            keeps = bool((part == item).any())
            draft.item_cluster[b, part] = name
            draft.user_cuts[b, name] = cuts if keeps else False
            draft.user_cluster[b, name] = cluster if keeps else fresh
