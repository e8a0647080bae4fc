"""The reward of predicted vectors of new items, on generated items with known effects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from latentbandits.learning.learners import Learned
from latentbandits.learning.side.items import fit_items, read_items
from latentbandits.models.artefacts.catalogue import Catalogue
from latentbandits.models.attributes.items import add_items
from latentbandits.models.attributes.parts import with_parts
from latentbandits.models.checks import FloatArray
from latentbandits.models.growing import add_average
from latentbandits.models.linear.gaussian import LinearGaussian
from latentbandits.policies.greedy import mmGreedy

GENRES = ("blues", "folk", "jazz", "rock")
KNOWN, NEW = 120, 60
NOISE, ROUNDS, OFFERED = 0.5, 20, 10


class ItemsJob(NamedTuple):
    """The prediction of new items from attributes that are `informative` or not."""

    informative: bool
    seed: int
    n_users: int = 400


class ItemProblem(NamedTuple):
    """A model, the true vectors of known and new items, and the table of their attributes."""

    model: LinearGaussian
    vectors: FloatArray  # (KNOWN + NEW, 4)
    table: dict[str, Any]


class NewItems(NamedTuple):
    """Mean true reward of each user in the first ROUNDS rounds, `(n_users,)` each."""

    learned: FloatArray  # with the true vectors of new items
    predicted: FloatArray
    average: FloatArray  # every new item has the average vector
    explained: float  # share of the variance of expected rewards that attributes explain


def item_problem(seed: int, informative: bool = True) -> ItemProblem:
    """Return items whose genre and year mostly determine their vectors, or not (permuted)."""
    rng = np.random.default_rng(seed)
    n = KNOWN + NEW
    covariances = np.stack([0.1 * np.eye(4)] * 3)
    model = LinearGaussian(1.5 * rng.standard_normal((3, 4)), NOISE, covariances)
    genre, year = rng.integers(4, size=n), rng.normal(size=n)
    effect = rng.standard_normal((4, 4)), rng.standard_normal(4)
    signal = effect[0][genre] + np.outer(year, effect[1])
    if not informative:
        signal = rng.permutation(signal)
    vectors = signal + 0.3 * rng.standard_normal((n, 4))
    ids = [f"i{k}" for k in range(n)]
    return ItemProblem(
        model, vectors, {"id": ids, "genre": [GENRES[g] for g in genre], "year": year}
    )


def play_items(job: ItemsJob) -> NewItems:
    """Offer only new items, ranked by mmGreedy with learned, predicted and average vectors."""
    model, vectors, table = item_problem(job.seed, job.informative)
    known, new = table["id"][:KNOWN], table["id"][KNOWN:]
    catalogue = Catalogue(known, features=vectors[:KNOWN])
    read = read_items(table, "id", known)
    items = Learned(model, vectors[:KNOWN], np.full(KNOWN, 200))
    regression = fit_items(items, read, np.ones(KNOWN, np.bool_))
    rows = [{"genre": g, "year": y} for g, y in zip(table["genre"], table["year"], strict=True)]
    grown = (
        (model, Catalogue(table["id"], features=vectors)),
        add_items(with_parts(model, items=regression.items), catalogue, new, rows[KNOWN:]),
        add_average(model, catalogue, new),
    )
    learned, predicted, average = (
        _earned(grown_model, longer, new, vectors, job, model) for grown_model, longer in grown
    )
    return NewItems(learned, predicted, average, regression.explained)


def _earned(
    model: Any,
    catalogue: Catalogue,
    ids: Sequence[str],
    vectors: FloatArray,
    job: ItemsJob,
    truth: LinearGaussian,
) -> FloatArray:
    """Return the mean true reward of every user; users and offers are the same for every model."""
    rng = np.random.default_rng(job.seed)
    n = job.n_users
    policy, users = mmGreedy(model), np.arange(n)
    theta = truth.draw_theta(rng.integers(3, size=n), rng)
    belief, total = policy.init(n), np.zeros(n)
    assert catalogue.features is not None
    rows = catalogue.features[catalogue.indices(ids)]
    for _ in range(ROUNDS):
        offered = rng.integers(len(ids), size=(n, OFFERED))
        decision = policy.decide(belief, rows[offered], rng, propensity=False)
        item = offered[users, decision.action]
        mean = np.einsum("nd,nd->n", theta, vectors[KNOWN + item])
        reward = mean + NOISE * rng.standard_normal(n)
        belief = policy.update(belief, rows[offered], decision, reward)
        total += mean
    return total / ROUNDS
