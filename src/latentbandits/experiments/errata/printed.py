"""mmTS as printed in the paper's appendix (Algorithm 4); for comparison, not for use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from latentbandits.beliefs import states
from latentbandits.models.arms.gaussian import GaussianArms
from latentbandits.models.checks import BoolArray, FloatArray, IntArray, session_count
from latentbandits.models.numerics.normal import log_normal_density
from latentbandits.models.protocol import Context
from latentbandits.policies import choice
from latentbandits.policies.checked import Choice
from latentbandits.policies.decision import ActionProbabilities, Decision, check_state
from latentbandits.policies.latent import PosteriorPolicy


class PrintedBelief(NamedTuple):
    """The counts N_t(a, s) and sums S_t(a, s) of each state, as Algorithm 4 prints them."""

    log_weights: FloatArray  # (n_sessions, n_states)
    counts: FloatArray  # (n_sessions, n_states, n_actions)
    sums: FloatArray  # (n_sessions, n_states, n_actions)


@dataclass(frozen=True, eq=False)
class PrintedThompson(PosteriorPolicy[PrintedBelief]):
    """Algorithm 4 with each of its errors on or off; all off gives the exact mmTS.

    Erratum E1 is the indicator 1{B_l = s}: in the marginal of s (`marginal_indicator`) and in
    the parameters (`parameter_indicator`). Erratum E2 is the product of prior predictives
    (`prior_predictive`) where rewards of one action share their theta.
    """

    model: GaussianArms
    marginal_indicator: bool = True
    parameter_indicator: bool = True
    prior_predictive: bool = True

    def init(self, n_sessions: int = 1) -> PrintedBelief:
        model = self.model
        n = session_count(n_sessions, model.n_sessions)
        shape = (n, model.n_states, model.n_actions)
        weights = np.broadcast_to(model.log_state_prior, shape[:2])
        return PrintedBelief(weights, np.zeros(shape), np.zeros(shape))

    def _choose(
        self,
        belief: PrintedBelief,
        context: Context,
        eligible: BoolArray | None,
        rng: np.random.Generator,
        propensity: bool,
    ) -> Choice:
        state = states.sample(belief.log_weights, rng)
        mean, variance = self._posterior(belief)
        session = np.arange(len(state))
        draws = rng.standard_normal(mean[session, state].shape)
        rewards = mean[session, state] + draws * np.sqrt(variance[session, state])
        action = choice.pick(choice.best(choice.restrict(rewards, eligible)), rng)
        return Choice(action, state, None, "none")

    def _learn(
        self,
        belief: PrintedBelief,
        context: Context,
        decision: Decision,
        action: IntArray,
        reward: FloatArray,
    ) -> PrintedBelief:
        believed = np.eye(self.model.n_states)[check_state(decision, self.model.n_states)]
        session = np.arange(len(action))
        if self.prior_predictive:
            mean, variance = self._prior()
        else:
            mean, variance = self._posterior(belief)
        log_predictive = log_normal_density(
            reward[:, None] - mean[session, :, action],
            variance[session, :, action] + self.model.noise**2,
        )
        counted = believed if self.parameter_indicator else np.ones_like(believed)
        counts, sums = belief.counts.copy(), belief.sums.copy()
        counts[session, :, action] += counted
        sums[session, :, action] += counted * reward[:, None]
        weighed = believed if self.marginal_indicator else 1.0
        return PrintedBelief(belief.log_weights + weighed * log_predictive, counts, sums)

    def _probabilities(
        self,
        belief: PrintedBelief,
        context: Context,
        eligible: BoolArray | None,
        rng: np.random.Generator,
    ) -> ActionProbabilities:
        shape = (len(belief.log_weights), self.model.n_actions)
        return ActionProbabilities(np.full(shape, np.nan), "none")

    def _prior(self) -> tuple[FloatArray, FloatArray]:
        return self.model.means, self.model.spread**2

    def _posterior(self, belief: PrintedBelief) -> tuple[FloatArray, FloatArray]:
        """Return K and M of Algorithm 4, as printed."""
        mean, variance = self._prior()
        noise = self.model.noise**2
        posterior_variance = 1 / (1 / variance + belief.counts / noise)
        posterior_mean = posterior_variance * (mean / variance + belief.sums / noise)
        return posterior_mean, posterior_variance
