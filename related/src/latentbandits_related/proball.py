"""ProBALL-UCB (Kausik, Tan & Tewari 2025): LinUCB in a subspace that was learned offline.

Users' weights lie near a subspace with basis U, |UU' - truth| <= Delta. The projected regression
C = lambda I + sum U'xx'U gives an upper bound low(x) that pays for Delta, the full one
V = lambda I + sum xx' gives LinUCB's bound full(x).
"""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from latentbandits.models import checks
from latentbandits.models.checks import FloatArray
from latentbandits.models.linear.gaussian import LinearGaussian
from latentbandits.models.protocol import Context
from latentbandits.policies.checked import Asked, LargestScore, Outcome
from latentbandits.policies.shared.base import Sums, add_to_sums


class RoundSums(NamedTuple):
    """Sums over a session's rounds, and how many there were."""

    gram: FloatArray  # (n, d, d)
    products: FloatArray  # (n, d)
    rounds: FloatArray  # (n,)


@dataclass(frozen=True, eq=False)
class ProBALL(LargestScore[RoundSums]):
    """ProBALL-UCB after Kausik, Tan & Tewari (2025), and the minimum of its two upper bounds.

    With m(x) = x'U C^-1 U'b, |theta| <= `bound` = B, |x| <= `length` = L and `error` = Delta:

    - low(x) = m(x) + (r(C) + B L Delta sqrt(t)) |U'x|_{C^-1} + B L Delta,
    - full(x) = x'V^-1 b + r(V) |x|_{V^-1},
    - r(V) = sigma sqrt(ln(det V / lambda^dim) + 2 ln n) + sqrt(lambda) B.

    `combine="switch"` plays low while Delta sqrt(tau t) < threshold and full ever after, which is
    the published rule in spirit: `tau` = d and `threshold` = sqrt(d) are chosen here.
    `combine="min"` plays the largest min(low, full): both are upper bounds, so their minimum is
    one, and it never loses LinUCB's guarantee. `scale` multiplies every bonus; below 1 it explores
    less than the theory asks for. `error` can be estimated by `learn_subspace`.

    Args:
        basis: U, `(n_features, rank)`, with orthonormal columns.
        error: Delta, the error of the subspace.
        noise: sigma, the standard deviation of a reward.
        horizon: n, the number of rounds.
        combine: "switch" or "min".
        ridge: lambda, of both regressions.
        bound: B.
        length: L.
        scale: factor of every bonus.
        tau: see `combine`; None is d.
        threshold: see `combine`; None is sqrt(d).

    >>> policy = ProBALL([[1.0], [0.0]], error=0.0, noise=0.5, horizon=100)
    >>> policy.decide(policy.init(), [[[1.0, 0.0], [0.0, 2.0]]], np.random.default_rng(0)).action
    array([0])
    """

    basis: Any  # (d, k), orthonormal columns
    error: float
    noise: float
    horizon: int
    combine: Literal["switch", "min"] = "min"
    _: KW_ONLY
    ridge: float = 1.0
    bound: float = 1.0
    length: float = 1.0
    scale: float = 1.0
    tau: float | None = None
    threshold: float | None = None

    def __post_init__(self) -> None:
        columns = checks.finite_array("basis", self.basis, (2,))
        if columns.shape[1] > columns.shape[0]:
            raise ValueError(f"basis must be (d, k) with k <= d; got {columns.shape}")
        gap = np.abs(columns.T @ columns - np.eye(columns.shape[1])).max()
        if gap > 1e-6:
            raise ValueError(
                f"basis must have orthonormal columns; U'U differs from I by {gap:.2g}: take the "
                "Q of numpy.linalg.qr"
            )
        if self.combine not in ("switch", "min"):
            raise ValueError(f"combine must be 'switch' or 'min'; got {self.combine!r}")
        if not (math.isfinite(self.error) and self.error >= 0):
            raise ValueError(f"error must be a finite number of at least zero; got {self.error}")
        checks.positive_count("horizon", self.horizon)
        for name in ("noise", "ridge", "bound", "length", "scale", "tau", "threshold"):
            if getattr(self, name) is not None:
                checks.positive_number(name, getattr(self, name))
        object.__setattr__(self, "basis", checks.frozen(columns))

    def init(self, n_sessions: int = 1) -> RoundSums:
        n, d = checks.session_count(n_sessions, None), len(self.basis)
        return RoundSums(np.zeros((n, d, d)), np.zeros((n, d)), np.zeros(n))

    def checked_context(self, context: ArrayLike | None, n_sessions: int) -> tuple[Context, int]:
        features = checks.features(context, n_sessions, len(self.basis))
        return features, features.shape[1]

    def _scores(self, belief: RoundSums, asked: Asked) -> FloatArray:
        """Return the upper bound that is played, `(n, K)`."""
        rounds = belief.rounds[:, None]
        bias = self.scale * self.bound * self.length * self.error
        mean, width, radius = self._regression(
            self.basis.T @ belief.gram @ self.basis, belief.products @ self.basis,
            asked.context @ self.basis,
        )  # fmt: skip
        low = mean + (radius + bias * np.sqrt(rounds)) * width + bias
        d = len(self.basis)
        tau = d if self.tau is None else self.tau
        threshold = math.sqrt(d) if self.threshold is None else self.threshold
        early = self.error * np.sqrt(tau * rounds) < threshold
        if self.combine == "switch" and early.all():
            return low
        mean, width, radius = self._regression(belief.gram, belief.products, asked.context)
        full = mean + radius * width
        return np.where(early, low, full) if self.combine == "switch" else np.minimum(low, full)

    def _regression(
        self, gram: FloatArray, products: FloatArray, features: FloatArray
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return the mean and width |x|_{V^-1} of every action, and the radius r(V) `(n, 1)`."""
        matrix = gram + self.ridge * np.eye(gram.shape[-1])
        inverse = np.linalg.inv(matrix)
        mean = (features @ inverse @ products[:, :, None])[:, :, 0]
        width = np.sqrt(np.maximum(((features @ inverse) * features).sum(axis=2), 0.0))
        log_det = np.linalg.slogdet(matrix)[1] - gram.shape[-1] * math.log(self.ridge)
        radius = self.noise * np.sqrt(log_det + 2 * math.log(self.horizon))
        radius += math.sqrt(self.ridge) * self.bound
        return mean, width, (self.scale * radius)[:, None]

    def _learn(self, belief: RoundSums, outcome: Outcome) -> RoundSums:
        x = outcome.context[np.arange(len(outcome.action)), outcome.action]
        sums = add_to_sums(Sums(belief.gram, belief.products), x, outcome.reward)
        return RoundSums(*sums, belief.rounds + 1)


def build_proball(
    model: LinearGaussian,
    horizon: int,
    rank: int | None = None,
    error: float | None = None,
    combine: Literal["switch", "min"] = "min",
    bound: float | None = None,
    length: float = 1.0,
    scale: float = 1.0,
) -> ProBALL:
    """Build ProBALL in the subspace of a Gaussian prior with one state (see `learn_subspace`).

    The prior's covariance is U diag(e) U' + rest I. `rank` None counts the eigenvalues above the
    rest, and `error` None follows from the rest: error^2 = rest (d - k) / trace(e). `bound` None is
    the root mean square length of the weights.
    """
    if not isinstance(model, LinearGaussian) or model.n_states != 1 or model.n_sessions is not None:
        raise ValueError(
            "ProBALL needs a LinearGaussian with one state, such as learn_subspace(...).prior("
            f"noise); got {type(model).__name__} with {model.n_states} states"
        )
    values, vectors = np.linalg.eigh(model.covariances[0])
    values, vectors = values[::-1], vectors[:, ::-1]
    rest = max(float(values[-1]), 0.0)
    k = int((values > rest + 1e-9 * values[0]).sum()) if rank is None else rank
    if not 1 <= k <= len(values):
        raise ValueError(f"rank must be from 1 to {len(values)}, the number of features; got {k}")
    kept = float((values[:k] - rest).sum())
    if error is None:
        error = min(float(np.sqrt(rest * (len(values) - k) / kept)), 1.0) if kept > 0 else 1.0
    if bound is None:
        bound = float(np.sqrt(values.sum() + (model.weights[0] ** 2).sum()))
    return ProBALL(
        vectors[:, :k],
        error,
        float(model.noise),
        horizon,
        combine,
        bound=bound,
        length=length,
        scale=scale,
    )
