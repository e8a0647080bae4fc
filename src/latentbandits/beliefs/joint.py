"""Beliefs about states and parameters: exact posteriors given the rewards of a session.

`KnownBelief` is the posterior over states of a model that is taken as true (mTS, Algorithm 2).
`JointBelief` is the posterior over states and parameters (mmTS, Algorithm 3): P(s, theta) is
proportional to P1(s) P1(theta) times the product over ALL rounds of p(r | a, x, s, theta)
(erratum E1). The marginal of s multiplies the running one-step predictive densities (errata E2,
E5); the conditional of theta given s is the model's own conjugate posterior.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from latentbandits.beliefs import states
from latentbandits.models.checks import FloatArray, IntArray, session_count
from latentbandits.models.clicks import PositionClicks
from latentbandits.models.protocol import (
    Context,
    KnownModel,
    Model,
    Parameters,
    at_rest,
    average_rewards,
)


class KnownBelief(NamedTuple):
    """log P1(s) + sum over ALL rounds of log p(r | a, x, s); of the next round's s if it moves."""

    log_weights: FloatArray  # (n_sessions, n_states)


class JointBelief(NamedTuple):
    """log P1(s) + log evidence of the session's rewards under s, and P(theta | s, rewards)."""

    log_weights: FloatArray  # (n_sessions, n_states)
    parameters: Parameters


def known_prior(model: KnownModel, n_sessions: int) -> KnownBelief:
    """Return the belief of sessions without rewards in a model that is taken as true."""
    n = session_count(n_sessions, model.n_sessions)
    return KnownBelief(np.broadcast_to(model.log_state_prior, (n, model.n_states)))


def prior(model: Model, n_sessions: int) -> JointBelief:
    """Return the belief of sessions without rewards."""
    weights = known_prior(model, n_sessions).log_weights
    return JointBelief(weights, model.parameters(len(weights)))


def condition_known(
    model: KnownModel,
    belief: KnownBelief,
    context: Context,
    action: IntArray,
    reward: FloatArray,
    *,
    moves: bool = True,
    looked: FloatArray | None = None,
) -> KnownBelief:
    """Return the belief after one more reward of each session; `belief` is unchanged.

    With `moves=False` the state stays where it is. `looked` (n,) is the probability that the
    action of a click model was looked at (`states.unless_unseen`); None: it was.
    """
    log_density = model.log_likelihood(context, action, reward)
    if looked is not None:
        log_density = states.unless_unseen(log_density, reward, looked)
    transition = model.transition if moves else None
    return KnownBelief(states.condition(belief.log_weights, log_density, reward, transition))


def condition(
    model: Model,
    belief: JointBelief,
    context: Context,
    action: IntArray,
    reward: FloatArray,
    *,
    moves: bool = True,
    looked: FloatArray | None = None,
) -> JointBelief:
    """Return the belief after one more reward of each session; `belief` is unchanged.

    `moves` and `looked` are as in `condition_known`; `looked` is for a model of clicks at
    positions, or a certain one.
    """
    here = model if moves else at_rest(model)
    if looked is not None and isinstance(model, PositionClicks):
        reward, looked = model.outcomes(reward, model.position_of(looked)), None
    log_predictive, parameters = here.condition(belief.parameters, context, action, reward)
    if looked is not None:
        log_predictive = states.unless_unseen(log_predictive, reward, looked)
    transition = model.transition if moves else None
    return JointBelief(
        states.condition(belief.log_weights, log_predictive, reward, transition), parameters
    )


def known_mean_rewards(model: KnownModel, belief: KnownBelief, context: Context) -> FloatArray:
    """Return sum_s P(s) mu_hat(a, x, s), the posterior mean reward: `(n, n_actions)`."""
    weights = states.probabilities(belief.log_weights)
    return (weights[:, None, :] @ model.expected_rewards(context))[:, 0]


def mean_rewards(model: Model, belief: JointBelief, context: Context) -> FloatArray:
    """Return sum_s P(s) E[mu(a, x, s, theta) | s], the posterior mean reward: `(n, n_actions)`."""
    weights = states.probabilities(belief.log_weights)
    return average_rewards(model, weights, belief.parameters, context)
