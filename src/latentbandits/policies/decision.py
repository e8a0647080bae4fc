"""Decisions of a policy, and the checks of eligible actions, decisions and rewards."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from latentbandits.models.checks import BoolArray, FloatArray, IntArray

PropensityKind = Literal["exact", "quadrature", "counted", "conditional", "explored", "none"]
"""How a propensity was found.

- exact: in closed form.
- quadrature: by a one-dimensional integral, to 1e-6.
- counted: the share of draws that pick the same action, the decision included.
- conditional: in closed form given the posterior draws that the decision was made from. An action
  that is played with some draws can have probability zero given others, so inverse propensity
  weighting is biased.
- explored: in closed form given the draws, and bounded below by exploration (`Exploring`), so that
  inverse weighting is unbiased.
- none: it was not computed.
"""


@dataclass(frozen=True, slots=True, eq=False)
class Decision:
    """Actions for a batch of sessions, every field `(n_sessions,)`.

    Args:
        action: index of the chosen action.
        state: latent state that was believed when the action was chosen.
        propensity: probability with which the policy chooses this action; None if not asked for.
        propensity_kind: how the propensity was found.
        policy: name of the policy.
        eligible: mask of the actions that could be chosen, `(n_sessions, n_actions)`; None: all.
    """

    action: IntArray
    state: IntArray
    propensity: FloatArray | None
    propensity_kind: PropensityKind
    policy: str
    eligible: BoolArray | None = None  # (n_sessions, n_actions); None: all were

    @classmethod
    def logged(
        cls,
        action: ArrayLike,
        state: ArrayLike | None = None,
        propensity: ArrayLike | None = None,
    ) -> Decision:
        """Return a decision that was made elsewhere, for a policy to learn from.

        Args:
            action: index of the action of every session, whole numbers `(n_sessions,)`.
            state: believed latent state of every session; only mUCB and mmUCB learn from it.
            propensity: probability of the action; only EXP4 learns from it.

        >>> Decision.logged([2]).action
        array([2])
        """
        actions = np.atleast_1d(_whole("action", action))
        states = np.full(actions.shape, -1) if state is None else _whole("state", state)
        chances = None if propensity is None else np.asarray(propensity, np.float64)
        return cls(actions, states, chances, "none" if chances is None else "exact", ANYONE)

    def take(self, sessions: IntArray) -> Decision:
        """Return the decision of some of the sessions.

        >>> Decision.logged([2, 0, 1]).take(np.array([2, 0])).action
        array([1, 2])
        """
        return replace(
            self,
            action=self.action[sessions],
            state=self.state[sessions],
            propensity=None if self.propensity is None else self.propensity[sessions],
            eligible=None if self.eligible is None else self.eligible[sessions],
        )


def _whole(name: str, value: ArrayLike) -> IntArray:
    """Return `value` as an array of whole numbers; ValueError if it has other entries."""
    numbers = np.asarray(value)
    if numbers.dtype.kind not in "iuf":
        raise ValueError(f"{name} must be whole numbers; got {value!r}")
    broken = (numbers != np.floor(numbers)) | (np.abs(numbers) > 2**53)
    if broken.any():
        raise ValueError(f"{name} must be whole numbers; got {numbers[broken].flat[0]}")
    return numbers.astype(np.int64)


ANYONE = ""
"""The policy of a logged decision: every policy may learn from it."""


@dataclass(frozen=True, slots=True, eq=False)
class ActionProbabilities:
    """The probability of every action, `(n_sessions, n_actions)`, and how it was found.

    Args:
        values: `(n_sessions, n_actions)`; rows sum to one.
        kind: how they were found (`PropensityKind`).
    """

    values: FloatArray
    kind: PropensityKind


LARGEST_REWARD = 1e100


def check_eligible(eligible: ArrayLike | None, n_sessions: int, n_actions: int) -> BoolArray | None:
    """Return `eligible` as a mask with at least one action per session; None if all are."""
    if eligible is None:
        return None
    mask = np.asarray(eligible)
    if mask.dtype != np.bool_:
        raise ValueError(f"eligible must be a boolean mask; got an array of {mask.dtype}")
    if mask.shape != (n_sessions, n_actions):
        raise ValueError(
            f"eligible must be of shape (n_sessions={n_sessions}, n_actions={n_actions}); "
            f"got {mask.shape}"
        )
    if not mask.any(axis=1).all():
        session = int((~mask.any(axis=1)).argmax())
        raise ValueError(f"session {session} has no eligible action")
    return mask


def check_outcome(
    policy: str, decision: Decision, reward: ArrayLike, n_sessions: int, n_actions: int
) -> tuple[IntArray, FloatArray]:
    """Return the actions and rewards of a round; ValueError before anything has changed."""
    if not isinstance(decision, Decision):
        raise TypeError(
            "update takes the decision that decide returned, or Decision.logged(action); "
            f"got {decision!r}"
        )
    if decision.policy != policy and decision.policy != ANYONE:
        raise ValueError(
            f"this decision was made by {decision.policy}, not by {policy}: update the policy "
            "that decided, or wrap the action in Decision.logged(...)"
        )
    action = decision.action
    if action.shape != (n_sessions,):
        raise ValueError(f"the decision is for {len(action)} sessions, the belief for {n_sessions}")
    if np.maximum.reduce(action.astype(np.uint64)) >= n_actions:  # negative values wrap around
        bad = int(action[(action < 0) | (action >= n_actions)][0])
        raise ValueError(f"action {bad} is out of range: there are {n_actions} actions")
    try:
        rewards = np.asarray(reward, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"reward must be a number per session: {error}") from None
    if rewards.shape != (n_sessions,):
        raise ValueError(f"reward must be of shape ({n_sessions},); got {rewards.shape}")
    # Fast check: if the sum of squares is small, so are all values. Otherwise check each one.
    if not np.vdot(rewards, rewards) <= LARGEST_REWARD**2:
        usable = np.abs(rewards) <= LARGEST_REWARD
        if not usable.all():
            session = int(usable.argmin())
            bound = f"at most {LARGEST_REWARD:g} in size, so that its square does not overflow"
            limit = bound if np.isfinite(rewards[session]) else "finite"
            raise ValueError(f"reward must be {limit}; session {session} has {rewards[session]}")
    return action, rewards


def check_state(decision: Decision, n_states: int) -> IntArray:
    """Return the believed states of a decision, for policies that learn from them."""
    state = decision.state
    if state.shape != decision.action.shape or state.min() < 0 or state.max() >= n_states:
        raise ValueError(
            f"this policy learns from the state that was believed, 0 to {n_states - 1}, in every "
            f"session; the decision has {state}: pass it as Decision.logged(action, state=...)"
        )
    return state


# Choose one action per session: the best, ties at random, or from given probabilities.


class StreamPerSession(ABC):
    """A generator with a separate stream of numbers for each session."""

    @abstractmethod
    def random_where(self, tied: BoolArray, size: tuple[int, ...]) -> FloatArray:
        """Draw uniform numbers for the sessions that are marked; others get zeros."""


def restrict(scores: FloatArray, eligible: BoolArray | None) -> FloatArray:
    """Return the scores `(..., n_actions)` with -inf where an action is not eligible."""
    return scores if eligible is None else np.where(eligible, scores, -np.inf)


def best(scores: FloatArray) -> BoolArray:
    """Mark the largest score of each row of the last axis; several places if they tie.

    >>> best(np.array([[0.1, 0.7, 0.7]]))
    array([[False,  True,  True]])
    """
    rows = scores.reshape(-1, scores.shape[-1])
    top = rows[np.arange(len(rows)), rows.argmax(axis=-1)]  # four times as fast as max
    mask: BoolArray = scores == top.reshape(*scores.shape[:-1], 1)
    return mask


def pick(mask: BoolArray, rng: np.random.Generator) -> IntArray:
    """Pick one of the marked places of each row uniformly; nothing is drawn if no row has a tie."""
    if np.count_nonzero(mask) > len(mask):
        # Tie breakers of a row without a tie may be zero; -1 keeps unmarked places below them.
        places: IntArray = np.where(mask, _tie_breakers(mask, rng), -1.0).argmax(axis=-1)
    else:
        places = mask.argmax(axis=-1)
    return places


def _tie_breakers(mask: BoolArray, rng: np.random.Generator) -> FloatArray:
    """Draw uniform numbers; a generator with a stream per session draws for ties only."""
    if isinstance(rng, StreamPerSession):
        return rng.random_where(mask.sum(axis=-1) > 1, mask.shape)
    return rng.random(mask.shape)


def pick_best_of_draws(
    rewards: FloatArray, eligible: BoolArray | None, rng: np.random.Generator
) -> IntArray:
    """Return the best eligible action of each draw, of rewards `(n, draws, n_actions)`."""
    n, draws, n_actions = rewards.shape
    mask = None if eligible is None else np.repeat(eligible, draws, axis=0)
    return pick_best(rewards.reshape(n * draws, n_actions), mask, rng).reshape(n, draws)


def count_best(rewards: FloatArray, eligible: BoolArray | None) -> ActionProbabilities:
    """Return the share of the draws of rewards `(n, draws, n_actions)` in which an action is best.

    Ties are split, so that the estimate is unbiased.
    """
    restricted = restrict(rewards, None if eligible is None else eligible[:, None, :])
    return ActionProbabilities(shares(best(restricted)).mean(axis=1), "counted")


def count_first(
    rewards: FloatArray,
    state: IntArray,
    eligible: BoolArray | None,
    policy: str,
    rng: np.random.Generator,
) -> Decision:
    """Play the best action of each session's first draw; count all draws for its propensity.

    The share of draws with the same best action is never zero, because the first one counts.
    """
    action = pick_best_of_draws(rewards, eligible, rng)
    chance = (action == action[:, :1]).sum(axis=1) / action.shape[1]
    return Decision(action[:, 0], state[:, 0], chance, "counted", policy, eligible)


def pick_best(scores: FloatArray, eligible: BoolArray | None, rng: np.random.Generator) -> IntArray:
    """Return the eligible action of the largest score, ties at random: `(n_sessions,)`."""
    scores = restrict(scores, eligible)
    places: IntArray = scores.argmax(axis=-1)
    mask = scores == at(scores, places)[:, None]
    return places if np.count_nonzero(mask) == len(mask) else pick(mask, rng)


def shares(mask: BoolArray) -> FloatArray:
    """Return the probability with which `pick` picks each place."""
    weights: FloatArray = mask / mask.sum(axis=-1, keepdims=True)
    return weights


def draw(probabilities: FloatArray, rng: np.random.Generator) -> IntArray:
    """Draw one place per row with the given probabilities; never one of probability zero."""
    exponentials = rng.standard_exponential(probabilities.shape)  # Gumbel-max sampling
    with np.errstate(divide="ignore"):
        places: IntArray = (probabilities / exponentials).argmax(axis=-1)
    return places


def at(values: FloatArray, action: IntArray) -> FloatArray:
    """Return each row's value at its action: `(n_sessions,)`."""
    if len(action) == 1:
        return values.take(action)
    chosen: FloatArray = values.take(action + values.shape[1] * np.arange(len(action)))
    return chosen
