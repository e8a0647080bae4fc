"""Table ii: 10 clusters of users with linear rewards; policies that learn across users."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from latentbandits.environments import Population
from latentbandits.environments.population import Crowd, ItemFeatures, Users
from latentbandits.learning.population_mixture import PopulationMixture
from latentbandits.models.checks import FloatArray, positive_count
from latentbandits.models.linear.gaussian import LinearGaussian
from latentbandits.policies import mmBayesUCB, mmTS
from latentbandits.policies.checked import CheckedPolicy
from latentbandits.policies.latent.sampling import LinTS
from latentbandits.policies.protocol import AnyPolicy
from latentbandits.policies.shared import HierTS, HierUCB, Phased
from latentbandits_related.club import CLUB
from latentbandits_related.cofiba import COFIBA
from latentbandits_related.dynucb import DynUCB
from latentbandits_related.per_user import GroupedLinUCB, PerUser
from latentbandits_related.reproduce.table import Column, Reference, RelatedTable, Row
from latentbandits_related.sclub import SCLUB

D, CLUSTERS, ITEMS, SHOWN, NOISE = 10, 10, 300, 20, 0.3
SCALE = D**-0.5  # scale of a weight, so that |theta| = 1
ROUNDS = 24_000
COMPONENTS = 15
QUANTILE = 0.84  # quantile of the normal distribution at mean + 1 standard deviation
PHASED = "Phased, mmBayesUCB(.84)"

Maker = Callable[[int], Callable[[Any], AnyPolicy]]
"""A function of the number of users that returns a maker of the policy, given the run's truth."""


def bayes_ucb(model: LinearGaussian) -> CheckedPolicy[Any]:
    return mmBayesUCB(model, QUANTILE)


def phased(n_users: int, deploy: Any, first: int) -> Phased:
    """Return the phased mixture with 15 components; noise and scale of the weights are known."""
    prior = LinearGaussian(np.zeros((1, D)), NOISE, SCALE**2 * np.eye(D)[None])
    learner = PopulationMixture(COMPONENTS, NOISE, SCALE)
    return Phased(bayes_ucb(prior), learner, deploy, n_users, D, first=first)


def _makers(first: int) -> dict[str, Maker]:
    shared = {"prior_spread": SCALE, "hyper_spread": SCALE}
    return {
        "LinUCB, one for all": lambda n: lambda truth: GroupedLinUCB(D, np.zeros(n, int)),
        "LinUCB per user": lambda n: lambda truth: GroupedLinUCB(D, np.arange(n)),
        "LinUCB, true clusters": lambda n: lambda truth: GroupedLinUCB(D, truth.crowd.groups),
        "CLUB, sparse, alpha2 .5": lambda n: lambda t: CLUB(n, D, alpha2=0.5, graph="sparse"),
        "CLUB, sparse, alpha2 1": lambda n: lambda t: CLUB(n, D, alpha2=1.0, graph="sparse"),
        "CLUB, cluster size, alpha2 1": lambda n: (
            lambda t: CLUB(n, D, alpha2=1.0, graph="sparse", n_clusters=CLUSTERS)
        ),
        "CLUB, complete, alpha2 1": lambda n: lambda t: CLUB(n, D, alpha2=1.0),
        "CLUB, complete, alpha2 .7": lambda n: lambda t: CLUB(n, D, alpha2=0.7),
        "SCLUB, a_theta 1": lambda n: lambda t: SCLUB(n, D),
        "SCLUB, a_theta .7": lambda n: lambda t: SCLUB(n, D, a_theta=0.7),
        "DynUCB, k=10": lambda n: lambda t: DynUCB(n, D, n_clusters=10),
        "DynUCB, k=20": lambda n: lambda t: DynUCB(n, D, n_clusters=20),
        "COFIBA, alpha2 .3": lambda n: lambda t: COFIBA(n, t.items, alpha2=0.3),
        "COFIBA, alpha2 .1": lambda n: lambda t: COFIBA(n, t.items, alpha2=0.1),
        "LinTS per user": lambda n: lambda t: PerUser(LinTS(D, NOISE, SCALE), n),
        "HierTS": lambda n: lambda t: HierTS(n, D, NOISE, **shared),
        "HierUCB": lambda n: lambda t: HierUCB(n, D, NOISE, **shared),
        "Phased, mmTS": lambda n: lambda t: phased(n, mmTS, first),
        PHASED: lambda n: lambda t: phased(n, bayes_ucb, first),
    }


REFERENCES: Mapping[str, Reference] = {
    "LinUCB, one for all": Reference(9323, 106, 3),
    "LinUCB per user": Reference(2096, 14, 3),
    "LinUCB, true clusters": Reference(196, 8, 3),
    "CLUB, sparse, alpha2 .5": Reference(2236, 49, 3),
    "CLUB, sparse, alpha2 1": Reference(3225, 40, 3),
    "CLUB, cluster size, alpha2 1": Reference(3933, 120, 2),
    "CLUB, complete, alpha2 1": Reference(4173, 205, 3),
    "CLUB, complete, alpha2 .7": Reference(3006, 20, 2),
    "SCLUB, a_theta 1": Reference(2046, 45, 2),
    "SCLUB, a_theta .7": Reference(2023, 11, 2),
    "DynUCB, k=10": Reference(1981, 345, 3),
    "DynUCB, k=20": Reference(1237, 46, 3),
    "COFIBA, alpha2 .3": Reference(9215, 14, 2),
    "COFIBA, alpha2 .1": Reference(8961, 61, 2),
    "LinTS per user": Reference(3279, 22, 3),
    "HierTS": Reference(3071, 34, 3),
    "HierUCB": Reference(1927, 32, 3),
    "Phased, mmTS": Reference(1619, 25, 3),
    PHASED: Reference(1055, 8, 3),
}
MANY: Mapping[str, Reference] = {
    "LinUCB, one for all": Reference(9323, 336, 2),
    "LinUCB per user": Reference(5666, 44, 2),
    "LinUCB, true clusters": Reference(213, 16, 2),
    "HierUCB": Reference(4801, 98, 2),
    "DynUCB, k=20": Reference(5659, 70, 2),
    "Phased, mmTS": Reference(4112, 43, 2),
    PHASED: Reference(2840, 47, 2),
}


def columns(quick: bool) -> list[Column]:
    runs, rounds, first = (2, 80, 60) if quick else (3, ROUNDS, 2000)
    makers = _makers(first)

    def column(name: str, n_users: int, references: Mapping[str, Any]) -> Column:
        rows = {}
        for row, reference in references.items():
            by_id = row.startswith("COFIBA")
            world = Population(
                clustered_users(n_users, CLUSTERS, D),
                unit_items(ITEMS, D),
                NOISE,
                n_shown=SHOWN,
                item_ids=by_id,
            )
            rows[row] = Row(world, makers[row](n_users), reference, 2 if by_id else None)
        return Column(name, rows, runs, rounds)

    few = {name: REFERENCES.get(name) for name in makers}
    if quick:
        return [column("20 users", 20, few), column("40 users", 40, MANY)]
    return [column("200 users", 200, few), column("1000 users", 1000, MANY)]


TABLE = RelatedTable(
    "ii", "Clusters of users: 10 clusters, 20 of 300 items on offer", columns, True
)


def clustered_users(n_users: int, n_clusters: int, n_features: int) -> Users:
    """Return a function that draws users whose weights are one of `n_clusters` unit vectors.

    Clusters are equally large, to within one user.
    """
    positive_count("n_clusters", n_clusters)

    def draw(n_runs: int, rng: np.random.Generator) -> Crowd:
        centres = unit_vectors((n_runs, n_clusters, n_features), rng)
        groups = np.tile(np.arange(n_users) % n_clusters, (n_runs, 1))
        return Crowd(centres[np.arange(n_runs)[:, None], groups], groups)

    return draw


def unit_items(n_items: int, n_features: int) -> ItemFeatures:
    """Return a function that draws items whose features have length one."""
    return lambda n_runs, rng: unit_vectors((n_runs, n_items, n_features), rng)


def unit_vectors(shape: tuple[int, ...], rng: np.random.Generator) -> FloatArray:
    """Draw vectors on the unit sphere of the last axis."""
    vectors = rng.standard_normal(shape)
    vectors /= np.linalg.norm(vectors, axis=-1, keepdims=True)
    return vectors
