"""LinUCB whose belief is sums over rounds, so that rounds can be forgotten."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from latentbandits.models import checks
from latentbandits.models.checks import BoolArray, FloatArray, IntArray
from latentbandits.models.protocol import Context
from latentbandits.policies.checked import LargestScore
from latentbandits.policies.decision import Decision


class FeatureSums(NamedTuple):
    """Sums over a session's rounds."""

    squares: FloatArray  # (n_sessions, n_features, n_features), of x x'
    products: FloatArray  # (n_sessions, n_features), of x r


@dataclass(frozen=True, eq=False)
class RidgeUCB(LargestScore[FeatureSums]):
    """x'theta + alpha sqrt(x' A^-1 x), A = ridge I + sum x x', solved anew for every decision.

    >>> policy = RidgeUCB(n_features=2, alpha=1.0, ridge=1.0)
    >>> policy.decide(policy.init(), [[[1.0, 0.0], [0.0, 2.0]]], np.random.default_rng(0)).action
    array([1])
    """

    n_features: int
    alpha: float
    ridge: float

    @property
    def n_states(self) -> int:
        return 1

    def init(self, n_sessions: int = 1) -> FeatureSums:
        n, d = checks.session_count(n_sessions, None), self.n_features
        return FeatureSums(np.zeros((n, d, d)), np.zeros((n, d)))

    def _check_context(self, context: ArrayLike | None, n_sessions: int) -> tuple[Context, int]:
        features = checks.features(context, n_sessions, self.n_features)
        return features, features.shape[1]

    def _scores(
        self, belief: FeatureSums, context: Context, eligible: BoolArray | None
    ) -> FloatArray:
        assert context is not None
        precision = belief.squares + self.ridge * np.eye(self.n_features)
        columns = np.concatenate([belief.products[:, :, None], context.swapaxes(1, 2)], axis=2)
        solved = np.linalg.solve(precision, columns)
        mean = (context @ solved[:, :, :1])[:, :, 0]
        variance = np.einsum("nkd,ndk->nk", context, solved[:, :, 1:])
        index: FloatArray = mean + self.alpha * np.sqrt(np.maximum(variance, 0.0))
        return index

    def _learn(
        self,
        belief: FeatureSums,
        context: Context,
        decision: Decision,
        action: IntArray,
        reward: FloatArray,
    ) -> FeatureSums:
        assert context is not None
        x = context[np.arange(len(action)), action]
        return FeatureSums(
            belief.squares + x[:, :, None] * x[:, None, :], belief.products + x * reward[:, None]
        )
