"""Linear mmTS as printed in the paper's appendix (Algorithm 5); for comparison, not for use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from latentbandits.beliefs import states
from latentbandits.models.checks import BoolArray, FloatArray, IntArray, session_count
from latentbandits.models.linear.gaussian import LinearGaussian
from latentbandits.models.numerics.normal import log_normal_density
from latentbandits.models.protocol import Context
from latentbandits.policies import choice
from latentbandits.policies.checked import Choice
from latentbandits.policies.decision import ActionProbabilities, Decision, check_state
from latentbandits.policies.latent import PosteriorPolicy


class PrintedLinearBelief(NamedTuple):
    """Sums over the rounds that count for each state, as in Algorithm 5."""

    log_weights: FloatArray  # (n_sessions, n_states)
    counts: FloatArray  # (n_sessions, n_states): N
    grams: FloatArray  # (n_sessions, n_states, d, d): sum of x x'
    moments: FloatArray  # (n_sessions, n_states, d): F, sum of x r


@dataclass(frozen=True, eq=False)
class PrintedLinearThompson(PosteriorPolicy[PrintedLinearBelief]):
    """Algorithm 5 with each of its errors on or off; all off gives the exact mmTS.

    E1 (`indicator`): only rounds in which s was sampled count for s. E2 (`prior_predictive`):
    a product of prior predictives. E3 (`inverse`): their variance is x' Sigma^-1 x + sigma^2.
    E4 (`repeated`): the precision is Sigma^-1 + N (I + sum x x') / sigma^2.
    """

    model: LinearGaussian
    indicator: bool = True
    prior_predictive: bool = True
    inverse: bool = True
    repeated: bool = True

    def init(self, n_sessions: int = 1) -> PrintedLinearBelief:
        n, s, d = session_count(n_sessions, None), self.model.n_states, self.model.n_features
        weights = np.broadcast_to(self.model.log_state_prior, (n, s))
        return PrintedLinearBelief(
            weights, np.zeros((n, s)), np.zeros((n, s, d, d)), np.zeros((n, s, d))
        )

    def _choose(
        self,
        belief: PrintedLinearBelief,
        context: Context,
        eligible: BoolArray | None,
        rng: np.random.Generator,
        propensity: bool,
    ) -> Choice:
        assert context is not None
        state = states.sample(belief.log_weights, rng)
        chosen = np.arange(len(state)), state
        precision, mean = self._posterior(belief, chosen)
        noise = rng.standard_normal((len(state), self.model.n_features, 1))
        root = np.linalg.cholesky(precision).swapaxes(1, 2)
        theta = mean[..., None] + np.linalg.solve(root, noise)
        rewards = (context @ theta)[..., 0]
        return Choice(choice.pick_best(rewards, eligible, rng), state, None, "none")

    def _posterior(
        self, belief: PrintedLinearBelief, chosen: tuple[IntArray, IntArray]
    ) -> tuple[FloatArray, FloatArray]:
        """Return K^-1 and M of the states in `chosen` (session, state)."""
        _, state = chosen
        precision = np.asarray(np.linalg.inv(self.model.covariances), np.float64)[state]
        target = (precision @ self.model.weights[state][..., None])[..., 0]
        gram, moment = belief.grams[chosen], belief.moments[chosen]
        if self.repeated:
            times = belief.counts[chosen]
            gram = times[:, None, None] * (gram + np.eye(self.model.n_features))
            moment = times[:, None] * moment
        precision = precision + gram / self.model.noise**2
        target = target + moment / self.model.noise**2
        mean = np.linalg.solve(precision, target[..., None])[..., 0]
        return precision, np.asarray(mean, np.float64)

    def _learn(
        self,
        belief: PrintedLinearBelief,
        context: Context,
        decision: Decision,
        action: IntArray,
        reward: FloatArray,
    ) -> PrintedLinearBelief:
        assert context is not None
        n_states = self.model.n_states
        believed = np.eye(n_states)[check_state(decision, n_states)]
        x = context[np.arange(len(action)), action]
        counted = believed if self.indicator else np.ones_like(believed)
        log_predictive = np.stack(
            [self._log_predictive(belief, s, x, reward) for s in range(n_states)], axis=1
        )
        outer = x[:, :, None] * x[:, None, :]
        return PrintedLinearBelief(
            belief.log_weights + counted * log_predictive,
            belief.counts + counted,
            belief.grams + counted[..., None, None] * outer[:, None],
            belief.moments + counted[..., None] * (x * reward[:, None])[:, None],
        )

    def _log_predictive(
        self, belief: PrintedLinearBelief, s: int, x: FloatArray, reward: FloatArray
    ) -> FloatArray:
        n = len(x)
        if self.prior_predictive:
            covariance = np.broadcast_to(self.model.covariances[s], (n, *x.shape[1:], x.shape[1]))
            mean = np.broadcast_to(self.model.weights[s], x.shape)
        else:
            precision, mean = self._posterior(belief, (np.arange(n), np.full(n, s)))
            covariance = np.linalg.inv(precision)
        if self.inverse:
            covariance = np.linalg.inv(covariance)
        variance = np.einsum("nd,nde,ne->n", x, covariance, x) + self.model.noise**2
        return log_normal_density(reward - np.einsum("nd,nd->n", x, mean), variance)

    def _probabilities(
        self,
        belief: PrintedLinearBelief,
        context: Context,
        eligible: BoolArray | None,
        rng: np.random.Generator,
    ) -> ActionProbabilities:
        _, n_actions = self._check_context(context, len(belief.log_weights))
        shape = (len(belief.log_weights), n_actions)
        return ActionProbabilities(np.full(shape, np.nan), "none")
