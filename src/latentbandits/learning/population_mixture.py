"""A mixture of linear regressions from the sums of a population's users: EM with exact evidence.

Each user's parameters come from one of S components N(m_k, S_k). The rewards of a user given a
component are a linear Gaussian model, whose marginal likelihood and posterior follow exactly from
the user's sums (`condition_on_sums`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from latentbandits.learning.linear.clusters import seeds
from latentbandits.models import checks
from latentbandits.models.checks import FloatArray
from latentbandits.models.linear.gaussian import LinearGaussian, UserSums
from latentbandits.models.numerics.arrays import log_sum
from latentbandits.policies.registry import Inputs, build, parse
from latentbandits.policies.shared import Phased

_GAIN = 1e-3  # of the log marginal likelihood per user
_BURN_IN = 10  # sweeps of every restart; only the best is continued


@dataclass(frozen=True, eq=False)
class PopulationMixture:
    """A learner for `Phased`: EM for `n_components` Gaussian components, noise and scale given.

    `scale` is the standard deviation of a weight over the population: the prior of a user before
    any reward is N(0, scale^2 I). The covariance of a component has the prior
    inverse-Wishart(d + 2, prior_variance I), and its means the prior N(0, scale^2 I) worth
    one user's uncertainty. The first means are users chosen by k-means++ with `seed`; of
    `n_restarts` fits the one of the largest marginal likelihood is kept.

    >>> learner = PopulationMixture(n_components=2, noise=0.1, scale=1.0)
    >>> gram = np.tile(np.eye(1) * 50, (6, 1, 1))
    >>> signs = np.array([1.0, -1, 1, -1, 1, -1])
    >>> sums = UserSums(gram, 50 * signs[:, None], np.full(6, 50.5), np.full(6, 50.0))
    >>> np.sort(learner(sums).weights.ravel()).round(2)
    array([-1.,  1.])
    """

    n_components: int
    noise: float
    scale: float
    prior_variance: float = 0.01
    n_restarts: int = 3
    max_sweeps: int = 100
    seed: int = 0

    def __post_init__(self) -> None:
        checks.positive_count("n_components", self.n_components)
        checks.positive_number("noise", self.noise)
        checks.positive_number("scale", self.scale)
        checks.positive_number("prior_variance", self.prior_variance)
        checks.positive_count("n_restarts", self.n_restarts)
        checks.positive_count("max_sweeps", self.max_sweeps)

    def __call__(self, sums: UserSums) -> LinearGaussian:
        """Fit the mixture to the sums `(n_users, ...)` of one population."""
        seen = sums.counts > 0
        known = UserSums(*(field[seen] for field in sums))
        rng = np.random.default_rng(self.seed)
        starts = [
            self._ascend(self._start(known, rng), known, _BURN_IN) for _ in range(self.n_restarts)
        ]
        best = max(starts, key=lambda fit: fit[1])[0]
        return self._ascend(best, known, self.max_sweeps)[0]

    def _ascend(
        self, model: LinearGaussian, sums: UserSums, max_sweeps: int
    ) -> tuple[LinearGaussian, float]:
        """Return the model after EM, and the log marginal likelihood of the last sweep."""
        before = -np.inf
        for _ in range(max_sweeps):
            following, likelihood = self.sweep(model, sums)
            if likelihood - before < _GAIN * len(sums.counts):
                break
            model, before = following, likelihood
        return model, likelihood

    def sweep(self, model: LinearGaussian, sums: UserSums) -> tuple[LinearGaussian, float]:
        """Return the model after one step of EM, and the log marginal likelihood before it."""
        log_evidence, posterior = model.condition_on_sums(sums)
        log_joint = log_evidence + model.log_state_prior
        total = log_sum(log_joint)
        shares = np.exp(log_joint - total[:, None])
        likelihood = float(total.sum())
        return self._maximise(shares, posterior.mean, posterior.covariance), likelihood

    def _maximise(
        self, shares: FloatArray, means: FloatArray, covariances: FloatArray
    ) -> LinearGaussian:
        """Return the M step: moments of the users' posteriors, weighted by `shares` (n, S)."""
        size = shares.sum(axis=0)
        d = means.shape[2]
        centre = np.einsum("ns,nsd->sd", shares, means) / (size + _SHRINK)[:, None]
        offset = means - centre
        spread = np.einsum("ns,nsde->sde", shares, covariances)
        spread += (shares[:, :, None] * offset).transpose(1, 2, 0) @ offset.transpose(1, 0, 2)
        spread += self.prior_variance * np.eye(d)
        spread /= (size + 1)[:, None, None]
        portion = size + 1 / self.n_components
        return LinearGaussian(centre, self.noise, spread, portion / portion.sum())

    def _start(self, sums: UserSums, rng: np.random.Generator) -> LinearGaussian:
        """Return initial components around users chosen by k-means++ on posterior means."""
        d = sums.products.shape[1]
        prior = LinearGaussian(np.zeros((1, d)), self.noise, self.scale**2 * np.eye(d)[None])
        points = prior.condition_on_sums(sums)[1].mean[:, 0]
        centres = far_apart(points, self.n_components, rng, self.scale)
        covariance = np.tile(self.scale**2 / 2 * np.eye(d), (self.n_components, 1, 1))
        return LinearGaussian(centres, self.noise, covariance)


_SHRINK = 1e-3  # users: an empty component has mean 0


def far_apart(
    points: FloatArray, n_points: int, rng: np.random.Generator, scale: float
) -> FloatArray:
    """Choose `n_points` of the points by k-means++.

    If there are fewer points, the rest are drawn from N(0, scale^2 I).
    """
    n = len(points)
    if n < n_points:
        extra = scale * rng.standard_normal((n_points - n, points.shape[1]))
        return np.concatenate([points, extra])
    return seeds(points, n_points, rng)


# The builder of `Phased` with the mixture learner, for the policy registry.


def build_phased(
    n_users: int,
    n_features: int,
    noise: float,
    scale: float = 1.0,
    n_components: int = 15,
    deploy: str = "mmBayesUCB(quantile=0.84)",
    first: int = 2000,
    factor: float = 2.0,
    seed: int = 0,
) -> Phased:
    """Build Phased with the mixture learner.

    `deploy` also plays the first phase, on the prior N(0, scale^2 I). `scale` is the standard
    deviation of a weight over the population. If the belief of `deploy` cannot be computed from
    sums (EXP4), mmBayesUCB plays the first phase instead.
    """
    spec = parse(deploy)

    def deployed(model: LinearGaussian) -> Any:
        return build(spec, Inputs(model))

    prior = LinearGaussian(np.zeros((1, n_features)), noise, scale**2 * np.eye(n_features)[None])
    learner = PopulationMixture(n_components, noise, scale, seed=seed)
    start = "mmBayesUCB(quantile=0.84)" if spec.name == "EXP4" else spec
    first_policy: Any = build(start, Inputs(prior))
    return Phased(first_policy, learner, deployed, n_users, n_features, first=first, factor=factor)
