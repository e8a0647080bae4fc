"""Table ii: 10 clusters of users with linear rewards; policies that learn across users."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
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

Maker = Callable[[int, Any], AnyPolicy]
"""A function of the number of users and of the run's truth that returns a policy."""

Numbers = tuple[float, float, int]


def bayes_ucb(model: LinearGaussian) -> CheckedPolicy[Any]:
    return mmBayesUCB(model, QUANTILE)


def phased(n_users: int, deploy: Any, first: int) -> Phased:
    """Return the phased mixture with 15 components; noise and scale of the weights are known."""
    prior = LinearGaussian(np.zeros((1, D)), NOISE, SCALE**2 * np.eye(D)[None])
    learner = PopulationMixture(COMPONENTS, NOISE, SCALE)
    return Phased(bayes_ucb(prior), learner, deploy, n_users, D, first=first)


def policies(first: int) -> dict[str, tuple[Maker, Numbers, Numbers | None]]:
    """Return each row's maker, and its references on 200 and on 1,000 users; None: not played."""
    shared = {"prior_spread": SCALE, "hyper_spread": SCALE}
    return {
        "LinUCB, one for all": (lambda n, t: GroupedLinUCB(D, np.zeros(n, int)),
                                (9323, 106, 3), (9323, 336, 2)),
        "LinUCB per user": (lambda n, t: GroupedLinUCB(D, np.arange(n)),
                            (2096, 14, 3), (5666, 44, 2)),
        "LinUCB, true clusters": (lambda n, t: GroupedLinUCB(D, t.crowd.groups),
                                  (196, 8, 3), (213, 16, 2)),
        "CLUB, sparse, alpha2 .5": (lambda n, t: CLUB(n, D, alpha2=0.5, graph="sparse"),
                                    (2236, 49, 3), None),
        "CLUB, sparse, alpha2 1": (lambda n, t: CLUB(n, D, alpha2=1.0, graph="sparse"),
                                   (3225, 40, 3), None),
        "CLUB, cluster size, alpha2 1": (
            lambda n, t: CLUB(n, D, alpha2=1.0, graph="sparse", n_clusters=CLUSTERS),
            (3933, 120, 2), None),
        "CLUB, complete, alpha2 1": (lambda n, t: CLUB(n, D, alpha2=1.0), (4173, 205, 3), None),
        "CLUB, complete, alpha2 .7": (lambda n, t: CLUB(n, D, alpha2=0.7), (3006, 20, 2), None),
        "SCLUB, a_theta 1": (lambda n, t: SCLUB(n, D), (2046, 45, 2), None),
        "SCLUB, a_theta .7": (lambda n, t: SCLUB(n, D, a_theta=0.7), (2023, 11, 2), None),
        "DynUCB, k=10": (lambda n, t: DynUCB(n, D, n_clusters=10), (1981, 345, 3), None),
        "DynUCB, k=20": (lambda n, t: DynUCB(n, D, n_clusters=20), (1237, 46, 3), (5659, 70, 2)),
        "COFIBA, alpha2 .3": (lambda n, t: COFIBA(n, t.items, alpha2=0.3), (9215, 14, 2), None),
        "COFIBA, alpha2 .1": (lambda n, t: COFIBA(n, t.items, alpha2=0.1), (8961, 61, 2), None),
        "LinTS per user": (lambda n, t: PerUser(LinTS(D, NOISE, SCALE), n), (3279, 22, 3), None),
        "HierTS": (lambda n, t: HierTS(n, D, NOISE, **shared), (3071, 34, 3), None),
        "HierUCB": (lambda n, t: HierUCB(n, D, NOISE, **shared), (1927, 32, 3), (4801, 98, 2)),
        "Phased, mmTS": (lambda n, t: phased(n, mmTS, first), (1619, 25, 3), (4112, 43, 2)),
        PHASED: (lambda n, t: phased(n, bayes_ucb, first), (1055, 8, 3), (2840, 47, 2)),
    }  # fmt: skip


def columns(quick: bool) -> list[Column]:
    runs, rounds, first = (2, 80, 60) if quick else (3, ROUNDS, 2000)
    columns = []
    for place, n_users in enumerate((20, 40) if quick else (200, 1000)):
        rows = {}
        for name, (make, *references) in policies(first).items():
            reference = references[place]
            if reference is None:
                continue
            by_id = name.startswith("COFIBA")
            world = Population(
                clustered_users(n_users, CLUSTERS, D),
                unit_items(ITEMS, D),
                NOISE,
                n_shown=SHOWN,
                item_ids=by_id,
            )
            maker = partial(make, n_users)
            rows[name] = Row(world, maker, Reference(*reference), 2 if by_id else None)
        columns.append(Column(f"{n_users} users", rows, runs, rounds))
    return columns


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
