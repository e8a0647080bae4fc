"""Graphs whose edges can only be cut: the user graphs of CLUB and COFIBA.

The graph at the start is part of the policy and never changes. A belief keeps one flag for every
edge, whether it was cut.
"""

from __future__ import annotations

import math

import numpy as np

from latentbandits.models.checks import BoolArray, IntArray, positive_count


class CompleteGraph:
    """Every pair of nodes 0 to n_nodes - 1 has an edge, with one number; nothing is stored.

    >>> CompleteGraph(3).edges(np.array([1]))[1]
    array([0, 2])
    """

    def __init__(self, n_nodes: int) -> None:
        self.n_nodes = positive_count("n_nodes", n_nodes)
        self.n_edges = n_nodes * (n_nodes - 1) // 2

    def edges(self, node: IntArray) -> tuple[IntArray, IntArray, IntArray]:
        """Return (source, neighbour, edge number) of all edges at the nodes `(m,)`."""
        others = np.arange(self.n_nodes - 1)
        neighbour = (others + (others >= node[:, None])).ravel()
        source = np.repeat(node, self.n_nodes - 1)
        low, high = np.minimum(source, neighbour), np.maximum(source, neighbour)
        return source, neighbour, high * (high - 1) // 2 + low


class SparseGraph:
    """A graph given by its edges `(n_edges, 2)`, kept as compressed rows.

    >>> SparseGraph(3, np.array([[0, 1]])).edges(np.array([1]))[1]
    array([0])
    """

    def __init__(self, n_nodes: int, pairs: IntArray) -> None:
        self.n_nodes = positive_count("n_nodes", n_nodes)
        self.n_edges = len(pairs)
        ends = np.concatenate([pairs, pairs[:, ::-1]])
        order = np.lexsort((ends[:, 1], ends[:, 0]))
        self._neighbour = ends[order, 1]
        self._edge = np.tile(np.arange(len(pairs)), 2)[order]
        self._start = np.searchsorted(ends[order, 0], np.arange(n_nodes + 1))

    def edges(self, node: IntArray) -> tuple[IntArray, IntArray, IntArray]:
        """Return (source, neighbour, edge number) of all edges at the nodes `(m,)`."""
        size = self._start[node + 1] - self._start[node]
        offset = np.arange(int(size.sum())) - np.repeat(size.cumsum() - size, size)
        place = np.repeat(self._start[node], size) + offset
        return np.repeat(node, size), self._neighbour[place], self._edge[place]


Graph = CompleteGraph | SparseGraph
"""A fixed graph; each undirected edge has one number."""


def random_graph(n_nodes: int, probability: float, rng: np.random.Generator) -> SparseGraph:
    """Draw an Erdos-Renyi graph: every pair has an edge with the given probability."""
    positive_count("n_nodes", n_nodes)
    n_pairs = n_nodes * (n_nodes - 1) // 2
    count = int(rng.binomial(n_pairs, min(probability, 1.0)))
    if count == n_pairs:
        number = np.arange(n_pairs)
    else:
        number = np.sort(rng.choice(n_pairs, size=count, replace=False, shuffle=False))
    high = ((1 + np.sqrt(1 + 8.0 * number)) / 2).astype(np.int64)
    high -= high * (high - 1) // 2 > number  # correct the rounding of the square root
    high += (high + 1) * high // 2 <= number
    return SparseGraph(n_nodes, np.stack([number - high * (high - 1) // 2, high], axis=1))


def sparse_probability(n_users: int, n_clusters: int = 1) -> float:
    """Return p = 3 ln(n/m) / (n/m), which connects each of m clusters of n/m users.

    The authors of CLUB use m = 1, which connects the population but not its clusters.
    """
    size = max(n_users / positive_count("n_clusters", n_clusters), 2.0)
    return min(1.0, 3 * math.log(size) / size)


def components_after_cut(graph: Graph, cut: BoolArray, node: int, lost: IntArray) -> list[IntArray]:
    """Return the parts into which the component of `node` fell when it lost neighbours `lost`.

    `cut` `(n_edges,)` marks the edges that were cut. The list is empty where it did not fall
    apart. Every path that used a lost edge can go around it if the lost neighbour still has an edge
    to a neighbour of `node`, which is quick to see.
    """
    _, near, edge = graph.edges(np.array([node]))
    near = near[~cut[edge]]
    inside = np.zeros(graph.n_nodes, np.bool_)
    inside[near] = True
    outside = lost
    if len(near):
        source, neighbour, edge = graph.edges(lost)
        good = inside[neighbour]
        source, edge = source[good], edge[good]
        reached = np.zeros(graph.n_nodes, np.bool_)
        reached[source[~cut[edge]]] = True
        outside = lost[~reached[lost]]
    if len(outside) == 0:
        return []
    parts = [_reach(graph, cut, node)]
    settled = np.zeros(graph.n_nodes, np.bool_)
    settled[parts[0]] = True
    for other in lost.tolist():
        if not settled[other]:
            parts.append(_reach(graph, cut, other))
            settled[parts[-1]] = True
    return parts if len(parts) > 1 else []


def components(graph: Graph) -> IntArray:
    """Return the component of every node at the start, named by its smallest node."""
    label = np.full(graph.n_nodes, -1)
    if isinstance(graph, CompleteGraph):
        return np.zeros(graph.n_nodes, np.int64)
    cut = np.zeros(graph.n_edges, np.bool_)
    for node in range(graph.n_nodes):
        if label[node] < 0:
            label[_reach(graph, cut, node)] = node
    return label


def _reach(graph: Graph, cut: BoolArray, node: int) -> IntArray:
    """Return all nodes that can be reached, by breadth-first search."""
    seen = np.zeros(graph.n_nodes, np.bool_)
    seen[node] = True
    frontier = np.array([node])
    while len(frontier):
        _, neighbour, edge = graph.edges(frontier)
        fresh = ~seen[neighbour]
        neighbour, edge = neighbour[fresh], edge[fresh]
        neighbour = neighbour[~cut[edge]]
        seen[neighbour] = True
        frontier = np.unique(neighbour)
    return np.flatnonzero(seen)
