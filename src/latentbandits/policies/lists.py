"""Lists: choose an ordered list of actions, and learn from the observed positions.

Position l of a cascade matters only if nothing above it was clicked. So its action is the one that
the policy decides after rewards of 0 for the positions above: the list is the session's own policy,
unrolled on the branch of no click. With `mmGreedy` that is the greedy rule of coverage,
argmax_a sum_s P(s) prod_above (1 - mu_s) mu_s(a), which reaches 1 - 1/e of the best list's value
(Nemhauser et al. 1978). In the other click models nothing above changes what is seen below: every
position is decided on the same belief. Actions stay in the order in which they were chosen, so that
the probability of a list is the product of the propensities of its positions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from latentbandits.models.checks import BoolArray, FloatArray, IntArray, positive_count
from latentbandits.models.clicks import AnyClickModel, ClickModel, as_click_model
from latentbandits.models.numerics.arrays import map_leaves
from latentbandits.policies.decision import (
    Decision,
    PropensityKind,
    check_eligible,
    count_first,
    restrict,
)
from latentbandits.policies.protocol import AnyPolicy, ThreeMethods, adopt, hidden_looks


@dataclass(frozen=True, slots=True, eq=False)
class ListDecision:
    """An ordered list of actions for a batch of sessions.

    Args:
        positions: the decision of each position, from the top; `eligible` of a position has none
            of the actions above it.
    """

    positions: tuple[Decision, ...]

    @property
    def length(self) -> int:
        return len(self.positions)

    @property
    def actions(self) -> IntArray:
        """The actions from the top, `(n_sessions, length)`."""
        return np.stack([one.action for one in self.positions], axis=1)

    @property
    def states(self) -> IntArray:
        """The latent state that was believed at each position, `(n_sessions, length)`."""
        return np.stack([one.state for one in self.positions], axis=1)

    @property
    def propensities(self) -> FloatArray | None:
        """P(action | the actions above), `(n_sessions, length)`; None if it was not computed.

        The probability of the list is their product.
        """
        found = [one.propensity for one in self.positions if one.propensity is not None]
        return np.stack(found, axis=1) if len(found) == self.length else None

    @property
    def propensity_kind(self) -> PropensityKind:
        """The kind of the propensities: the kind of the first position that is not exact."""
        kinds = [one.propensity_kind for one in self.positions]
        return next((kind for kind in kinds if kind != "exact"), "exact")

    @classmethod
    def logged(
        cls,
        actions: ArrayLike,
        states: ArrayLike | None = None,
        propensities: ArrayLike | None = None,
    ) -> ListDecision:
        """Return lists that were decided elsewhere; every argument is `(n_sessions, length)`.

        >>> ListDecision.logged([[2, 0]]).actions
        array([[2, 0]])
        """
        shown = np.asarray(actions)
        if shown.ndim != 2 or shown.shape[1] == 0:
            raise ValueError(f"actions must be of shape (n_sessions, length); got {actions!r}")
        others = [None if a is None else np.asarray(a) for a in (states, propensities)]
        return cls(
            tuple(
                Decision.logged(
                    shown[:, position],
                    *(None if other is None else other[:, position] for other in others),
                )
                for position in range(shown.shape[1])
            )
        )

    def at(self, position: IntArray) -> Decision:
        """Return the decision of each session at its entry of `position`, `(n_sessions,)`."""
        if (position == position[0]).all():
            common: Decision = self.positions[position[0]]
            return common
        session = np.arange(len(position))
        chances, first = self.propensities, self.positions[0]
        return Decision(
            self.actions[session, position],
            self.states[session, position],
            None if chances is None else chances[session, position],
            self.propensity_kind,
            first.policy,
            self._eligible(session, position),
        )

    def _eligible(self, session: IntArray, position: IntArray) -> BoolArray | None:
        masks = [one.eligible for one in self.positions]
        known = next((mask for mask in masks if mask is not None), None)
        if known is None:
            return None
        full = [np.ones_like(known) if mask is None else mask for mask in masks]
        return np.stack(full)[position, session]


def decide_list(
    policy: AnyPolicy | ThreeMethods[Any],
    belief: Any,
    context: Any,
    rng: np.random.Generator,
    length: int,
    click_model: AnyClickModel = "each",
    *,
    eligible: ArrayLike | None = None,
    propensity: bool = True,
) -> ListDecision:
    """Choose an ordered list of `length` different eligible actions for every session.

    A list of one action is decided as `policy.decide` decides, with the same random numbers.

    Args:
        policy: any policy.
        belief: belief of n sessions.
        context: as in `policy.decide`.
        rng: the source of all randomness.
        length: number of positions.
        click_model: "each", "cascade" or a `ClickModel`: how users look at a list.
        eligible: mask of the actions that may be shown, `(n, n_actions)`; None: all.
        propensity: whether positions need the probabilities of their actions.

    >>> from latentbandits import BernoulliArms, mmGreedy
    >>> sweet, sour = [90, 2, 40], [2, 90, 40]  # clicks of each kind on three actions, of 100
    >>> clicks = np.array([sweet, sour])
    >>> model = BernoulliArms(clicks, 100 - clicks, state_prior=[0.6, 0.4])
    >>> policy, rng = mmGreedy(model), np.random.default_rng(0)
    >>> decide_list(policy, policy.init(), None, rng, 2, "each").actions  # the best on average
    array([[0, 2]])
    >>> decide_list(policy, policy.init(), None, rng, 2, "cascade").actions  # one for each kind
    array([[0, 1]])
    """
    policy, clicks = adopt(policy, "decide_list"), as_click_model(click_model)
    positive_count("length", length)
    check_click_model(policy, clicks)
    clicks.check_length(length)

    def decide(belief: Any, eligible: ArrayLike | None) -> Decision:
        return policy.decide(belief, context, rng, eligible=eligible, propensity=propensity)

    return unroll(policy, belief, context, decide, length, clicks, eligible)


def unroll(
    policy: AnyPolicy,
    belief: Any,
    context: Any,
    decide: Callable[[Any, ArrayLike | None], Decision],
    length: int,
    clicks: ClickModel,
    eligible: ArrayLike | None = None,
) -> ListDecision:
    """Return the list that `decide`, called with a belief and a mask, chooses from the top."""
    first = decide(belief, eligible)
    positions = [first]
    if length > 1:
        allowed = _allowed(policy, context, eligible, len(first.action), length)
    for _ in range(length - 1):
        above = positions[-1]
        if clicks.unrolled:
            no_click = np.zeros(len(above.action))
            belief = policy.update_position(belief, context, above, no_click, last=False)
        allowed = allowed.copy()
        allowed[np.arange(len(allowed)), above.action] = False
        positions.append(decide(belief, allowed))
    return ListDecision(tuple(positions))


@dataclass(eq=False)
class CountedDraws:
    """Decide the positions of a list, and count their propensities in one set of posterior draws.

    The first position is decided as `decide_counting` does, each further one by a draw from the
    belief after the positions above. That belief is the first one with the mean rewards theta of
    every draw weighted by the probability of no click above, prod_above (1 - theta(a)), where the
    click model is unrolled. So the weighted share of the first draws that have the played action
    as their best one estimates its propensity.

    Args:
        policy: one that plays the best action of a posterior draw (`draw_rewards`); posteriors of
            its model must be exact if the click model is unrolled.
        context: as in `policy.decide`.
        rng: the source of all randomness.
        drawn: what `draw_rewards` drew: the draw that decides the first position, and others.
        clicks: the click model.
    """

    policy: AnyPolicy
    context: Any
    rng: np.random.Generator
    drawn: tuple[FloatArray, IntArray]
    clicks: ClickModel
    _weights: FloatArray | None = None

    def __post_init__(self) -> None:
        self._rewards, self._state = self.drawn

    def decide(self, belief: Any, eligible: BoolArray | None) -> Decision:
        """Decide the next position."""
        policy, rng = self.policy, self.rng
        if self._weights is None:
            one = count_first(self._rewards, self._state, eligible, policy.name, rng)
            self._rewards = self._rewards[:, 1:]
            self._weights = np.ones(self._rewards.shape[:2])
        else:
            one = policy.decide(belief, self.context, rng, eligible=eligible, propensity=False)
            one = replace(one, propensity=self._chance(one), propensity_kind="counted")
        if self.clicks.unrolled:
            self._weights *= 1 - self._rewards[np.arange(len(one.action)), :, one.action]
        return one

    def _chance(self, one: Decision) -> FloatArray:
        """Return the propensity of a position; the decision itself counts as a draw."""
        assert self._weights is not None
        mask = None if one.eligible is None else one.eligible[:, None, :]
        same = restrict(self._rewards, mask).argmax(axis=-1) == one.action[:, None]
        hits = (self._weights * same).sum(axis=1) / self._weights.mean(axis=1)
        chance: FloatArray = (hits + 1) / (same.shape[1] + 1)
        return chance


def update_list(
    policy: AnyPolicy | ThreeMethods[Any],
    belief: Any,
    context: Any,
    decision: ListDecision,
    rewards: ArrayLike,
    click_model: AnyClickModel = "each",
) -> Any:
    """Return the belief after the rewards of a list, `(n_sessions, length)`; NaN: not observed.

    Time moves on once for a list, after its last observed position. It stands still for a session
    of which nothing was observed. Positions below the click of a cascade count as not observed.

    Args:
        policy: the policy that decided.
        belief: belief of n sessions.
        context: as in `decide_list`.
        decision: what `decide_list` returned, or `ListDecision.logged(actions)`.
        rewards: reward of every position; NaN where nothing was observed.
        click_model: as in `decide_list`.

    >>> from latentbandits import BernoulliArms, mTS
    >>> policy = mTS(BernoulliArms([[9, 5], [1, 5]], [[1, 5], [9, 5]]))
    >>> shown = ListDecision.logged([[1, 0]])
    >>> after = update_list(policy, policy.init(), None, shown, [[0, 1]], "cascade")
    >>> policy.state_probabilities(after)
    array([[0.9, 0.1]])
    """
    policy, clicks = adopt(policy, "update_list"), as_click_model(click_model)
    check_click_model(policy, clicks)
    values = clicks.observed(_rewards(decision, rewards))
    looked = clicks.looked(decision.length)
    seen = ~np.isnan(values)
    counts = seen.sum(axis=1)
    # Observed positions come last here, in their order: then all sessions end with the same step.
    order = np.argsort(seen, axis=1, kind="stable")
    session = np.arange(len(values))
    anything = values[seen][:1]  # stands where nothing was observed; its effect is dropped
    for step in range(decision.length - int(counts.max()), decision.length):
        position = order[:, step]
        learns = seen[session, position]
        reward = np.where(learns, values[session, position], anything)
        after = policy.update_position(
            belief,
            context,
            decision.at(position),
            reward,
            last=step == decision.length - 1,
            looked=None if looked is None else looked[position],
        )
        belief = after if learns.all() else _where(learns, after, belief)
    return belief


def check_click_model(policy: AnyPolicy, clicks: ClickModel) -> None:
    """Raise ValueError if the policy cannot learn from what the click model reveals."""
    if clicks.for_clicks and not policy.for_clicks:
        raise ValueError(
            f"the click model {clicks.name!r} is for rewards of 0 and 1, and the model of "
            f"{policy.name} is a {type(policy.model_or_none).__name__}: take the click model 'each'"
        )
    if clicks.looked(1) is not None and not policy.learns_unseen:
        raise ValueError(hidden_looks(policy.name))


def _allowed(
    policy: AnyPolicy, context: Any, eligible: ArrayLike | None, n: int, length: int
) -> BoolArray:
    """Return the mask of eligible actions, at least `length` for every session."""
    n_actions = policy.checked_context(context, n)[1]
    mask = check_eligible(eligible, n, n_actions)
    allowed = np.ones((n, n_actions), np.bool_) if mask is None else mask
    few = allowed.sum(axis=1) < length
    if few.any():
        session = int(few.argmax())
        raise ValueError(
            f"a list of {length} different actions needs as many that are eligible; session "
            f"{session} has {int(allowed[session].sum())}"
        )
    return allowed


def _rewards(decision: ListDecision, rewards: ArrayLike) -> FloatArray:
    if not isinstance(decision, ListDecision):
        raise TypeError(
            "update_list takes what decide_list returned, or ListDecision.logged(actions); got "
            f"{decision!r}"
        )
    try:
        values = np.asarray(rewards, np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"rewards must be a number for each position: {error}") from None
    shape = decision.actions.shape
    if values.shape != shape:
        raise ValueError(
            f"rewards must be of shape (n_sessions, length) = {shape}; got {values.shape}"
        )
    return values


def _where(learns: BoolArray, after: Any, before: Any) -> Any:
    """Return the belief `after` for the sessions that are marked, else `before`.

    If a belief keeps all rewards, and the marked sessions have more of them now, NaN fills the gap
    of the other sessions.
    """

    def choose(new: Any, old: Any) -> Any:
        if new.shape != old.shape:
            kept, old = old, np.full(new.shape, np.nan)
            old[tuple(map(slice, kept.shape))] = kept
        return np.where(learns.reshape(-1, *[1] * (new.ndim - 1)), new, old)

    return map_leaves(choose, after, before)
