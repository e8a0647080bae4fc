"""The posterior over states when the model is taken as true (mTS, Algorithm 2)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from latentbandits.beliefs import states
from latentbandits.models.checks import FloatArray, IntArray, session_count
from latentbandits.models.protocol import Context, KnownModel


class KnownBelief(NamedTuple):
    """log P1(s) + sum over ALL rounds of log p(r | a, x, s); of the next round's s if it moves."""

    log_weights: FloatArray  # (n_sessions, n_states)


def prior(model: KnownModel, n_sessions: int) -> KnownBelief:
    """Return the belief of sessions without rewards."""
    n = session_count(n_sessions, model.n_sessions)
    return KnownBelief(np.broadcast_to(model.log_state_prior, (n, model.n_states)))


def condition(
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


def mean_rewards(model: KnownModel, belief: KnownBelief, context: Context) -> FloatArray:
    """Return sum_s P(s) mu_hat(a, x, s), the posterior mean reward: `(n, n_actions)`."""
    weights = states.probabilities(belief.log_weights)
    return (weights[:, None, :] @ model.expected_rewards(context))[:, 0]
