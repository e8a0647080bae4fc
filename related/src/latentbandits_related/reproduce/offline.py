"""Table v: users in 3 of 30 dimensions; the subspace is learned from offline trajectories."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from latentbandits.environments.protocol import Round
from latentbandits.learning.linear.clusters import clusters_of
from latentbandits.models.checks import FloatArray
from latentbandits.models.linear.gaussian import LinearGaussian
from latentbandits.policies import LinTS, mmBayesUCB, mmGreedy, mmTS, mTS
from latentbandits.policies.protocol import AnyPolicy
from latentbandits_related.proball import ProBALL
from latentbandits_related.reproduce.table import Column, Reference, RelatedTable, Row
from latentbandits_related.subspace import Subspace, learn_subspace, subspace_distance

D, RANK, OFFLINE_ROUNDS, ROUNDS, ACTIONS, NOISE = 30, 3, 20, 300, 20, 0.5
SPREADS = np.arange(1, D + 1) ** -0.5  # standard deviations of the features, of length about 2
BOUND, LENGTH = RANK**0.5, float((SPREADS**2).sum() ** 0.5)
QUANTILE = 0.84
STATES = 8
_TRIES = 500


@dataclass(frozen=True)
class Offline:
    """A subspace learned from offline users, and its distance from the true one."""

    truth: FloatArray  # (D, RANK)
    learned: Subspace
    error: float
    features: FloatArray  # (n_users, OFFLINE_ROUNDS, D)
    rewards: FloatArray  # (n_users, OFFLINE_ROUNDS)

    @property
    def prior(self) -> LinearGaussian:
        """The empirical-Bayes prior N(0, SOLD's second moment + rest I)."""
        return self.learned.prior(NOISE, self.error)

    @cached_property
    def states(self) -> LinearGaussian:
        """Eight states, by k-means of the offline users' posterior means under the prior.

        A state's covariance is the covariance of its users' posterior means plus their posterior
        covariance.
        """
        precision = np.linalg.inv(self.prior.covariances[0])
        x = self.features
        posterior = np.linalg.inv(precision + x.swapaxes(1, 2) @ x / NOISE**2)
        products = x.swapaxes(1, 2) @ self.rewards[:, :, None] / NOISE**2
        means = (posterior @ products)[:, :, 0]
        state = clusters_of(means, STATES, restarts=10, seed=0)
        groups = [np.flatnonzero(state == s) for s in range(STATES)]
        return LinearGaussian(
            np.stack([means[users].mean(axis=0) for users in groups]),
            NOISE,
            np.stack(
                [
                    np.cov(means[users], rowvar=False, bias=True) + posterior[users].mean(axis=0)
                    for users in groups
                ]
            ),
            np.array([len(users) for users in groups]) / len(means),
        )


@dataclass(frozen=True)
class SubspaceUsers:
    """New users with weights in a subspace learned from `n_offline` users, `OFFLINE_ROUNDS` each.

    Features are N(0, diag(1 / i)), a design chosen here: with unequal scales, principal components
    of ridge estimates do not find the subspace with any number of users. All runs share one
    subspace, and most rows depend on the error with which it is learned. Subspaces are therefore
    drawn until the error of SOLD is within 5% of `error`, the reference's; None takes the first.
    """

    n_offline: int
    error: float | None = None

    def start(self, n_runs: int, horizon: int, rng: np.random.Generator) -> SubspaceInstances:
        weights = rng.standard_normal((n_runs, RANK))
        for _ in range(_TRIES):
            truth = np.linalg.qr(rng.standard_normal((D, RANK)))[0]
            known = learn_offline(truth, self.n_offline)
            if self.error is None or abs(known.error - self.error) < 0.05 * self.error:
                return SubspaceInstances(weights @ truth.T, known)
        raise RuntimeError(f"no subspace with an error near {self.error} in {_TRIES} tries")


def learn_offline(truth: FloatArray, n_users: int) -> Offline:
    """Draw the offline users, and learn the subspace from their trajectories."""
    rng = np.random.default_rng([int(1e6 * abs(truth[0, 0])), n_users])
    weights = rng.standard_normal((n_users, RANK)) @ truth.T
    x = rng.standard_normal((n_users, OFFLINE_ROUNDS, D)) * SPREADS
    rewards = (x @ weights[:, :, None])[:, :, 0]
    rewards = rewards + NOISE * rng.standard_normal(rewards.shape)
    subspace = learn_subspace(x, rewards, RANK, n_bootstrap=0)
    return Offline(truth, subspace, subspace_distance(subspace.basis, truth), x, rewards)


@dataclass(frozen=True, eq=False)
class SubspaceInstances:
    """Runs of the problem, with the weights of each new user."""

    weights: FloatArray  # (n_runs, D)
    model: Any

    def round(self, t: int, rng: np.random.Generator) -> Round:
        features = rng.standard_normal((len(self.weights), ACTIONS, D)) * SPREADS
        means = (features @ self.weights[:, :, None])[:, :, 0]
        return Round(features, means, means + NOISE * rng.standard_normal(means.shape))


Maker = Callable[[Offline], AnyPolicy]


def _proball(basis: str, error: float | None, scale: float, combine: Any) -> Maker:
    """Return a maker of ProBALL; `error` None is the error of the learned subspace."""

    def make(known: Offline) -> ProBALL:
        columns = {"all": np.eye(D), "found": known.learned.basis, "true": known.truth}[basis]
        return ProBALL(
            columns, known.error if error is None else error, NOISE, ROUNDS, combine,
            bound=BOUND, length=LENGTH, scale=scale,
        )  # fmt: skip

    return make


def _prior(kind: str, known: Offline) -> LinearGaussian:
    """Return the wide, the empirical-Bayes or the true prior."""
    if kind == "EB":
        return known.prior
    covariance = np.eye(D) if kind == "wide" else known.truth @ known.truth.T
    return LinearGaussian(np.zeros((1, D)), NOISE, covariance[None])


def _thompson(prior: str) -> Maker:
    return lambda known: mmTS(_prior(prior, known))


def _ucb(prior: str) -> Maker:
    return lambda known: mmBayesUCB(_prior(prior, known), QUANTILE)


def _certain_states(known: Offline) -> AnyPolicy:
    model = known.states
    return mTS(LinearGaussian(model.weights, NOISE, state_prior=model.state_prior))


Pair = tuple[float, float]

POLICIES: Mapping[str, tuple[Maker, Pair, Pair]] = {
    "LinUCB, theory": (_proball("all", 0.0, 1.0, "min"), (83.3, 2.1), (83.3, 2.1)),
    "LinUCB, x .3": (_proball("all", 0.0, 0.3, "min"), (50.1, 1.1), (50.1, 1.1)),
    "LinTS": (lambda known: LinTS(D, NOISE), (73.8, 1.5), (73.8, 1.5)),
    "mean + 1 sd": (_ucb("wide"), (46.4, 1.0), (46.4, 1.0)),
    "ProBALL, switch, theory": (_proball("found", None, 1.0, "switch"), (80.1, 1.9), (67.6, 1.5)),
    "ProBALL, switch, x .3": (_proball("found", None, 0.3, "switch"), (45.2, 1.2), (32.8, 1.1)),
    "ProBALL, min, theory": (_proball("found", None, 1.0, "min"), (50.2, 0.9), (32.4, 0.5)),
    "ProBALL, min, x .3": (_proball("found", None, 0.3, "min"), (21.3, 0.5), (11.4, 0.4)),
    "projected, no bonus, x .3": (_proball("found", 0.0, 0.3, "switch"), (14.0, 0.5), (7.8, 0.4)),
    "true subspace, x .3": (_proball("true", 0.0, 0.3, "switch"), (7.1, 0.3), (7.1, 0.3)),
    "LinTS, EB prior": (_thompson("EB"), (31.2, 1.2), (16.6, 0.7)),
    "mean + 1 sd, EB prior": (_ucb("EB"), (14.5, 0.7), (7.3, 0.5)),
    "greedy, EB prior": (lambda known: mmGreedy(known.prior), (15.8, 0.7), (8.8, 0.5)),
    "LinTS, true prior": (_thompson("true"), (10.9, 0.5), (10.9, 0.5)),
    "mmTS, 8 states": (lambda known: mmTS(known.states), (31.3, 1.0), (18.4, 0.9)),
    "mTS, 8 states": (_certain_states, (66.9, 5.7), (49.5, 5.2)),
}
"""Each policy, and the regrets of the reference after 200 and 2,000 users offline."""


def columns(quick: bool) -> list[Column]:
    runs, rounds = (6, 12) if quick else (60, ROUNDS)
    sizes = ((50, None), (100, None)) if quick else ((200, 0.294), (2000, 0.112))
    columns = []
    for place, (n_offline, error) in enumerate(sizes):
        world = SubspaceUsers(n_offline, error)
        rows = {
            name: Row(world, make, Reference(*pair[place], 60))
            for name, (make, *pair) in POLICIES.items()
        }
        columns.append(Column(f"N={n_offline}", rows, runs, rounds))
    return columns


TABLE = RelatedTable("v", "Offline trajectories: users in 3 of 30 dimensions", columns)
