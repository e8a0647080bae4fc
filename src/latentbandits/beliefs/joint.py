"""Beliefs about states and parameters: exact posteriors given the rewards of a session.

`KnownBelief` is the posterior over states of a model that is taken as true (mTS, Algorithm 2).
`JointBelief` is the posterior over states and parameters (mmTS, Algorithm 3): P(s, theta) is
proportional to P1(s) P1(theta) times the product over ALL rounds of p(r | a, x, s, theta)
(erratum E1). The marginal of s multiplies the running one-step predictive densities (errata E2,
E5); the conditional of theta given s is the model's own conjugate posterior.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from latentbandits.models.checks import FloatArray, IntArray, session_count
from latentbandits.models.numerics import arrays
from latentbandits.models.protocol import Context, KnownModel, Model, Parameters, with_defaults


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
    action of a click model was looked at (`unless_unseen`); None: it was.
    """
    log_density = model.log_likelihood(context, action, reward)
    if looked is not None:
        log_density = unless_unseen(log_density, reward, looked)
    transition = model.transition if moves else None
    return KnownBelief(condition_states(belief.log_weights, log_density, reward, transition))


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
    here = model if moves else with_defaults(model).at_rest
    if looked is not None:
        reward, looked = with_defaults(model).at_looks(reward, looked)
    log_predictive, parameters = here.condition(belief.parameters, context, action, reward)
    if looked is not None:
        log_predictive = unless_unseen(log_predictive, reward, looked)
    transition = model.transition if moves else None
    return JointBelief(
        condition_states(belief.log_weights, log_predictive, reward, transition), parameters
    )


def known_mean_rewards(model: KnownModel, belief: KnownBelief, context: Context) -> FloatArray:
    """Return sum_s P(s) mu_hat(a, x, s), the posterior mean reward: `(n, n_actions)`."""
    weights = probabilities(belief.log_weights)
    return (weights[:, None, :] @ model.expected_rewards(context))[:, 0]


def mean_rewards(model: Model, belief: JointBelief, context: Context) -> FloatArray:
    """Return sum_s P(s) E[mu(a, x, s, theta) | s], the posterior mean reward: `(n, n_actions)`."""
    weights = probabilities(belief.log_weights)
    return with_defaults(model).average_rewards(weights, belief.parameters, context)


# Distributions over latent states, kept as unnormalised log weights `(n_sessions, n_states)`.

log_total = arrays.log_sum
"""The log of the sum of the weights, a session's log evidence: `(n_sessions,)`."""

sample = arrays.sample
"""One state drawn per session, `(n_sessions,)`, from log weights and a generator."""


def probabilities(log_weights: FloatArray) -> FloatArray:
    """Return P(s) from unnormalised log weights of any magnitude.

    >>> probabilities(np.array([[-1e6, -1e6]]))
    array([[0.5, 0.5]])
    """
    # For a single session, ufunc.reduce takes half the time of the methods max and sum.
    shares = log_weights - np.maximum.reduce(log_weights, axis=-1, keepdims=True)
    np.exp(shares, out=shares)
    shares /= np.add.reduce(shares, axis=-1, keepdims=True)
    return shares


def condition_states(
    log_weights: FloatArray,
    log_density: FloatArray,
    reward: FloatArray,
    transition: FloatArray | None = None,
) -> FloatArray:
    """Condition on rewards whose log density under each state is `log_density`; then `move`.

    ValueError if a reward is impossible in every state, or if its density is not a number: the
    weights would never recover from it.

    >>> condition_states(np.zeros((1, 2)), np.log([[0.2, 0.8]]), np.array([1.0])).round(3)
    array([[-1.609, -0.223]])
    """
    updated = log_weights + log_density
    # Fast check: if the sum of squares is finite, so are all values. Otherwise check each one.
    if not math.isfinite(np.vdot(updated, updated)):
        possible = np.isfinite(updated.max(axis=-1))
        if not possible.all():
            session = int(possible.argmin())
            raise ValueError(
                f"no state allows the reward {reward[session]:g} of session {session}: its log "
                f"density under each state is {log_density[session].tolist()}"
            )
    return move(updated, transition)


def unless_unseen(log_density: FloatArray, click: FloatArray, looked: FloatArray) -> FloatArray:
    """Return the log density of clicks on actions that are looked at with probability e = `looked`.

    P(click | s) = e mu_s and P(no click | s) = 1 - e + e (1 - mu_s), where `log_density` (n, S)
    is log mu_s or log(1 - mu_s) (the position-based model, Chuklin et al. 2015).

    >>> np.exp(unless_unseen(np.log([[0.8]]), np.array([0.0]), np.array([0.5])))
    array([[0.9]])
    """
    with np.errstate(divide="ignore"):
        seen = np.log(looked)[:, None] + log_density
        unseen = np.where(click == 0, np.log1p(-looked), -np.inf)[:, None]
    return np.logaddexp(seen, unseen)


def move(log_weights: FloatArray, transition: FloatArray | None) -> FloatArray:
    """Return the log weights of the next round's state: log sum_s exp(log_weights(s)) T(s, s').

    This is the predict step of a hidden Markov model's filter. None is a state that never moves.

    >>> np.exp(move(np.log([[0.5, 0.5]]), np.array([[0.9, 0.1], [0.3, 0.7]])))
    array([[0.6, 0.4]])
    """
    if transition is None:
        return log_weights
    top = log_weights.max(axis=-1, keepdims=True)
    moved: FloatArray = np.exp(log_weights - top) @ transition
    with np.errstate(divide="ignore"):  # a state that cannot be reached has log weight -inf
        np.log(moved, out=moved)
    moved += top
    return moved


def sample_many(log_weights: FloatArray, n_draws: int, rng: np.random.Generator) -> IntArray:
    """Draw `n_draws` states per session by systematic sampling: `(n_sessions, n_draws)`, sorted.

    State s is drawn n_draws * P(s) times on average, and never differs from it by more than one.
    """
    return systematic(log_weights, n_draws, rng.random(len(log_weights)))


def systematic(log_weights: FloatArray, n_draws: int, uniform: FloatArray | float) -> IntArray:
    """Return `n_draws` states per session, sorted, from one number in [0, 1) per session.

    >>> systematic(np.log([[0.5, 0.25, 0.25]]), 4, 0.5)
    array([[0, 0, 1, 2]])
    """
    return arrays.systematic(probabilities(log_weights), n_draws, uniform)
