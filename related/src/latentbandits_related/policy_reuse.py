"""Bayesian policy reuse (Rosman, Hawasly & Ramamoorthy 2016), on the belief of mTS.

The types are the states, and the library has one policy for each state: the one that plays its best
action. The signal is the reward, so both the performance model and the signal model are the known
model, and learning is Bayes' rule. Only the choice of a policy of the library is new.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from latentbandits.beliefs import joint
from latentbandits.beliefs.joint import KnownBelief
from latentbandits.beliefs.planning import hermite
from latentbandits.models.checks import BoolArray, FloatArray, IntArray
from latentbandits.models.numerics.arrays import blocks
from latentbandits.models.numerics.laws import BINARY
from latentbandits.models.protocol import Context, KnownModel, with_defaults
from latentbandits.policies import decision
from latentbandits.policies.checked import Asked, Choice, Outcome, PosteriorPolicy
from latentbandits.policies.decision import ActionProbabilities
from latentbandits.policies.latent.ucb import check_horizon

Rule = Literal["PI", "EI", "BE", "KG"]


class ReuseBelief(NamedTuple):
    """The posterior over states, and how many rounds it has seen."""

    log_weights: FloatArray  # (n_sessions, n_states)
    rounds: FloatArray  # (n_sessions,)


@dataclass(frozen=True, eq=False)
class PolicyReuse(PosteriorPolicy[ReuseBelief]):
    """Bayesian policy reuse: choose a policy of the library by one of the paper's four rules.

    With w = P(s), U(s, j) the mean reward of policy j's action in state s, E_j = sum w U(s, j) and
    U_bar = max_j E_j:

    - "PI": argmax_j sum w P(U > U_bar | s, j), the probability of improvement;
    - "EI": argmax_j sum w E[(U - U_bar)^+ | s, j]. The paper's integral of a density from U_bar is
      the probability again: `improvement="probability"`;
    - "BE": argmax_j E_j - kappa E[entropy of the belief after j's reward];
    - "KG": argmax_j E_j + kappa (E[max_j' E_j' after j's reward] - U_bar).

    `kappa` is free in the paper. With `horizon` n it is kappa (n - t) in round t from 1 on, because
    the information is used for the rest of the session; this choice is ours. "KG" is then the
    knowledge gradient, `mLookahead(steps=1)`, over the library's actions. For "BE" and "KG" the
    expected reward distribution is Gaussian with the model's noise, or 0 and 1 for `BernoulliArms`;
    "PI" and "EI" take it as Gaussian. A policy of the library plays the first of its best actions.

    Args:
        model: a model of latent states, taken as true.
        rule: "PI", "EI", "BE" or "KG".
        kappa: weight of information, for "BE" and "KG".
        improvement: "expected" or "probability", for "EI".
        horizon: number of rounds n; None if unknown.

    >>> from latentbandits.models import GaussianArms
    >>> policy = PolicyReuse(GaussianArms([[0.9, 0.1], [0.2, 0.8]], noise=0.5), rule="KG")
    >>> policy.decide(policy.init(), None, np.random.default_rng(0)).action
    array([0])
    """

    model: KnownModel
    rule: Rule = "BE"
    kappa: float = 1.0
    improvement: Literal["expected", "probability"] = "expected"
    horizon: int | None = None

    def __post_init__(self) -> None:
        if self.rule not in ("PI", "EI", "BE", "KG"):
            raise ValueError(f"rule must be 'PI', 'EI', 'BE' or 'KG'; got {self.rule!r}")
        if self.improvement not in ("expected", "probability"):
            raise ValueError(
                f"improvement must be 'expected' or 'probability'; got {self.improvement!r}"
            )
        check_horizon(self.horizon)
        if not np.isfinite(self.kappa) or self.kappa < 0:
            raise ValueError(f"kappa must be a finite number of at least 0; got {self.kappa}")

    def init(self, n_sessions: int = 1) -> ReuseBelief:
        log_weights = joint.known_prior(self.model, n_sessions).log_weights
        return ReuseBelief(log_weights, np.zeros(len(log_weights)))

    def _learn(self, belief: ReuseBelief, outcome: Outcome) -> ReuseBelief:
        before = KnownBelief(belief.log_weights)
        after = joint.condition_known(
            self.model, before, outcome.context, outcome.action, outcome.reward
        )
        return ReuseBelief(after.log_weights, belief.rounds + 1)

    def _library(self, context: Context, eligible: BoolArray | None) -> tuple[IntArray, FloatArray]:
        """Return each policy's action `(1 or n, S)`, and its mean reward U `(1 or n, S, J)`."""
        means = self.model.expected_rewards(context)
        allowed = decision.restrict(means, None if eligible is None else eligible[:, None, :])
        action: IntArray = allowed.argmax(axis=2)
        if len(means) < len(action):
            means = np.broadcast_to(means, (len(action), *means.shape[1:]))
        return action, np.take_along_axis(means, action[:, None, :], axis=2)

    def _scores(self, belief: ReuseBelief, utility: FloatArray) -> FloatArray:
        """Return the score of each policy of the library, `(n, J)`."""
        weights = joint.probabilities(belief.log_weights)
        expected: FloatArray = (weights[:, None, :] @ utility)[:, 0]
        if self.rule in ("PI", "EI"):
            return self._improvement(weights, utility, expected.max(axis=1))
        kappa: float | FloatArray = self.kappa
        if self.horizon is not None:
            kappa = self.kappa * np.maximum(self.horizon - belief.rounds - 1, 0.0)[:, None]
        clicks = with_defaults(self.model).support == BINARY
        noise = None if clicks else self.model.noise
        if self.rule == "KG":
            return knowledge_gradient(weights, utility, noise, kappa)
        penalty: FloatArray = kappa * look_ahead(weights, utility, utility, noise).entropy
        return expected - penalty

    def _improvement(
        self, weights: FloatArray, utility: FloatArray, best: FloatArray
    ) -> FloatArray:
        """Return the probability or the expectation of a reward above U_bar."""
        from scipy.special import ndtr

        z = (utility - best[:, None, None]) / self.model.noise
        term: FloatArray = ndtr(z)
        if self.rule == "EI" and self.improvement == "expected":
            density = np.exp(-0.5 * z * z) / np.sqrt(2 * np.pi)
            term = self.model.noise * (z * term + density)
        return (weights[:, None, :] @ term)[:, 0]

    def _choose(self, belief: ReuseBelief, asked: Asked, propensity: bool) -> Choice:
        actions, utility = self._library(asked.context, asked.eligible)
        best = decision.best(self._scores(belief, utility))
        state = decision.pick(best, asked.rng)
        action = actions[0 if len(actions) == 1 else np.arange(len(state)), state]
        if not propensity:
            return Choice(action, state, None, "none")
        same = np.broadcast_to(actions, best.shape) == action[:, None]
        return Choice(action, state, (decision.shares(best) * same).sum(axis=1), "exact")

    def _probabilities(self, belief: ReuseBelief, asked: Asked) -> ActionProbabilities:
        actions, utility = self._library(asked.context, asked.eligible)
        shares = decision.shares(decision.best(self._scores(belief, utility)))
        n_actions = self.checked_context(asked.context, len(shares))[1]
        values = np.zeros((len(shares), n_actions))
        np.add.at(
            values,
            (np.arange(len(shares))[:, None], np.broadcast_to(actions, shares.shape)),
            shares,
        )
        return ActionProbabilities(values, "exact")


# Expectations over one more reward: the state belief after each policy of the library.
#
# The knowledge gradient of a policy is E[max_v E_v after its reward] - max_v E_v, the expected
# gain of the best value; its information is the expected fall of the belief's entropy. Expectations
# over the reward are by Gauss-Hermite quadrature in every state (Gaussian rewards), or exact (0 and
# 1).

N_NODES = 9


class Lookahead(NamedTuple):
    """Expectations over the reward of each candidate action, each `(n, n_candidates)`."""

    best: FloatArray  # E[max_v E_v] after the reward
    entropy: FloatArray  # E[entropy of the belief] after the reward


def look_ahead(
    weights: FloatArray,
    observed: FloatArray,
    values: FloatArray,
    noise: float | None,
    n_nodes: int = N_NODES,
) -> Lookahead:
    """Return expectations of the belief after one reward of each candidate action.

    `weights` `(n, S)` is P(s). `observed` `(1 or n, S, J)` has the mean reward of each of J
    candidates in every state, with Gaussian noise of deviation `noise`; None: rewards are 0 or 1.
    `values` `(1 or n, S, V)` are the values whose expectations are compared: E_v = sum_s P(s)
    values[s, v].

    >>> means = np.array([[[1.0, 0.5], [0.0, 0.5]]])  # the second one is uninformative
    >>> after = look_ahead(np.array([[0.5, 0.5]]), means, means, noise=0.1)
    >>> (after.best - 0.5).round(3), after.entropy.round(3)
    (array([[0.25, 0.  ]]), array([[0.   , 0.693]]))
    """
    n, n_states = weights.shape
    n_candidates = observed.shape[2]
    best, entropy = np.empty((n, n_candidates)), np.empty((n, n_candidates))
    outcomes = n_states * n_nodes if noise is not None else 2
    width = outcomes * max(n_states, values.shape[2])  # array entries per candidate and session
    for block in blocks(n, n_candidates * width):
        means = observed if len(observed) == 1 else observed[block]
        stake = values if len(values) == 1 else values[block]
        chance, posterior = posteriors(weights[block], means, noise, n_nodes)
        after = posterior @ stake[:, None]  # (n, J, nodes, V)
        best[block] = (chance * after.max(axis=3)).sum(axis=2)
        with np.errstate(divide="ignore", invalid="ignore"):
            terms = np.where(posterior > 0, posterior * np.log(posterior), 0.0)
        entropy[block] = -(chance * terms.sum(axis=3)).sum(axis=2)
    return Lookahead(best, entropy)


def knowledge_gradient(
    weights: FloatArray, means: FloatArray, noise: float | None, kappa: float | FloatArray
) -> FloatArray:
    """Return E_j + kappa (E[max_i E_i after j's reward] - max_i E_i), `(n, J)`, for J actions.

    `means` `(1 or n, S, J)` has their mean reward in every state; `kappa` is the number of rounds
    in which the reward's information is used, or `(n, 1)` of them. `noise` as in `look_ahead`.

    >>> means = np.array([[[0.9, 0.5], [0.0, 0.5]]])
    >>> knowledge_gradient(np.array([[0.5, 0.5]]), means, 0.1, kappa=9.0).round(2)
    array([[2.25, 0.5 ]])
    """
    expected = (weights[:, None] @ means)[:, 0]
    after = look_ahead(weights, means, means, noise).best
    score: FloatArray = expected + kappa * (after - expected.max(axis=1, keepdims=True))
    return score


def posteriors(
    weights: FloatArray, observed: FloatArray, noise: float | None, n_nodes: int = N_NODES
) -> tuple[FloatArray, FloatArray]:
    """Return the nodes of each candidate's reward: probability `(n, J, m)`, belief `(n, J, m, S)`.

    >>> chance, belief = posteriors(np.array([[0.2, 0.8]]), np.array([[[0.9], [0.4]]]), None)
    >>> chance[0, 0], belief[0, 0]
    (array([0.5, 0.5]), array([[0.04, 0.96],
           [0.36, 0.64]]))
    """
    n, n_states = weights.shape
    means = np.broadcast_to(observed, (n, n_states, observed.shape[2])).swapaxes(1, 2)  # (n, J, S)
    if noise is None:
        likelihood = np.stack([1 - means, means], axis=2)  # (n, J, 2, S)
        joint = weights[:, None, None, :] * likelihood
        chance = joint.sum(axis=3)
        posterior = joint / np.where(chance > 0, chance, 1.0)[..., None]
        return chance, posterior
    nodes, node_weights = hermite(n_nodes)
    rewards = (means[..., None] + noise * nodes).reshape(n, means.shape[1], -1)  # (n, J, S m)
    chance = np.repeat(weights, n_nodes, axis=1) * np.tile(node_weights, n_states)
    z = (rewards[..., None] - means[:, :, None, :]) / noise
    log_joint = -0.5 * z * z
    with np.errstate(divide="ignore"):
        log_joint += np.log(weights)[:, None, None, :]
    log_joint -= log_joint.max(axis=3, keepdims=True)
    posterior = np.exp(log_joint, out=log_joint)
    posterior /= posterior.sum(axis=3, keepdims=True)
    return np.broadcast_to(chance[:, None], rewards.shape), posterior
