"""A small mutable object around a policy that serves one user at a time."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, overload

import numpy as np
from numpy.typing import ArrayLike

from latentbandits.models.attributes.columns import Row
from latentbandits.models.checks import FloatArray
from latentbandits.models.clicks import AnyClickModel, as_click_model
from latentbandits.models.shown import model_line
from latentbandits.policies.decision import Decision
from latentbandits.policies.lists import ListDecision, decide_list, update_list
from latentbandits.policies.protocol import AnyPolicy, ThreeMethods, adopt, begin, gate_of
from latentbandits.report.drawing import draw_grid
from latentbandits.report.notebook import Shown, plural
from latentbandits.report.report import Table

_MOST_SHOWN = 20  # sessions that a notebook shows


@dataclass(frozen=True, slots=True, eq=False)
class Chosen:
    """One decision for one session; give it back to `update` with its reward."""

    action: int
    state: int
    propensity: float | None
    session_id: Hashable
    decision: Decision
    context: FloatArray | None


@dataclass(frozen=True, slots=True, eq=False)
class ChosenList:
    """One list for one session; give it back to `update` with the rewards of its positions.

    `propensities` are those of each action given the actions above it.
    """

    actions: tuple[int, ...]
    states: tuple[int, ...]
    propensities: tuple[float, ...] | None
    session_id: Hashable
    decision: ListDecision
    context: FloatArray | None


class Agent(Shown):
    """Decides and learns for one user at a time; it keeps a belief for every session id.

    Args:
        policy: any policy.
        seed: of the agent's randomness, or a generator.
        click_model: how users look at a list, "each", "cascade" or a `ClickModel`.

    If the policy's model has a gate (`fit(..., user_features=[...])`), the first `decide` of a
    session may state the user's attributes by name.

    >>> from latentbandits import Agent, GaussianArms, mmTS
    >>> agent = Agent(mmTS(GaussianArms([[0.9, 0.1], [0.2, 0.8]], noise=0.1, spread=0.1)), seed=0)
    >>> for _ in range(3):
    ...     chosen = agent.decide("ann")
    ...     agent.update(chosen, reward=0.9 if chosen.action == 0 else 0.1)
    >>> agent.state_probabilities("ann").round(2)
    array([1., 0.])

    With a `length` it chooses a list. None stands for a position that the user did not see.

    >>> from latentbandits import BernoulliArms
    >>> model = BernoulliArms([[9, 1, 5], [1, 9, 5]], [[1, 9, 5], [9, 1, 5]])
    >>> agent = Agent(mmTS(model), seed=0, click_model="cascade")
    >>> shown = agent.decide("ann", length=2)
    >>> agent.update(shown, reward=[1, None])  # ann clicked the first action
    >>> len(set(shown.actions))
    2
    """

    def __init__(
        self,
        policy: AnyPolicy | ThreeMethods[Any],
        seed: int | np.random.Generator = 0,
        click_model: AnyClickModel = "each",
    ) -> None:
        self.policy = adopt(policy, "Agent")
        self.click_model = as_click_model(click_model)
        self._rng = np.random.default_rng(seed)
        self._beliefs: dict[Hashable, Any] = {}
        self._users: dict[Hashable, Row] = {}  # user attributes at the start of each session

    @overload
    def decide(
        self,
        session_id: Hashable,
        context: ArrayLike | None = None,
        eligible: ArrayLike | None = None,
        user_features: Row | None = None,
        length: None = None,
    ) -> Chosen: ...

    @overload
    def decide(
        self,
        session_id: Hashable,
        context: ArrayLike | None = None,
        eligible: ArrayLike | None = None,
        user_features: Row | None = None,
        *,
        length: int,
    ) -> ChosenList: ...

    def decide(
        self,
        session_id: Hashable,
        context: ArrayLike | None = None,
        eligible: ArrayLike | None = None,
        user_features: Row | None = None,
        length: int | None = None,
    ) -> Chosen | ChosenList:
        """Choose an action; `context` is `(n_actions, n_features)`, `eligible` `(n_actions,)`.

        With `length`, choose an ordered list of so many actions. `user_features` hold for the
        whole session: ValueError if a later call states others.
        """
        features = None if context is None else np.asarray(context, np.float64)[None]
        mask = None if eligible is None else np.asarray(eligible)[None]
        if user_features is not None:
            self._state(session_id, user_features)
        belief = self._beliefs.get(session_id)
        if belief is None:
            belief = self._beliefs[session_id] = self._first_belief(session_id)
        if length is not None:
            shown = decide_list(
                self.policy, belief, features, self._rng, length, self.click_model, eligible=mask
            )
            chances = None if shown.propensities is None else tuple(shown.propensities[0].tolist())
            actions, states = shown.actions[0].tolist(), shown.states[0].tolist()
            return ChosenList(tuple(actions), tuple(states), chances, session_id, shown, features)
        decision = self.policy.decide(belief, features, self._rng, eligible=mask)
        chance = None if decision.propensity is None else decision.propensity.item(0)
        return Chosen(
            decision.action.item(0),
            decision.state.item(0),
            chance,
            session_id,
            decision,
            features,
        )

    def update(self, chosen: Chosen | ChosenList, reward: float | Sequence[float | None]) -> None:
        """Learn from the reward of a decision, whenever it arrives.

        The reward of a list is one number for each position, None where nothing was observed.
        """
        if not isinstance(chosen, (Chosen, ChosenList)):
            raise TypeError(
                "update takes what decide returned and its reward: "
                f"agent.update(agent.decide(session_id), reward=...); got {chosen!r}"
            )
        session_id = chosen.session_id
        belief = self._beliefs.get(session_id)
        if belief is None:  # the session was forgotten after its decision
            belief = self._first_belief(session_id)
        policy, context, rewards = self.policy, chosen.context, np.array([reward], np.float64)
        if isinstance(chosen, ChosenList):
            after = update_list(policy, belief, context, chosen.decision, rewards, self.click_model)
        else:
            after = policy.update(belief, context, chosen.decision, rewards)
        self._beliefs[session_id] = after

    def state_probabilities(self, session_id: Hashable) -> FloatArray:
        """Return P(s) of one session, `(n_states,)`."""
        belief = self._beliefs.get(session_id)
        if belief is None:
            belief = self._first_belief(session_id)
        probabilities = self.policy.state_probabilities(belief)
        if probabilities is None:
            raise TypeError(
                f"{self.policy.name} has no method state_probabilities: it keeps no "
                "probabilities of latent states"
            )
        mine: FloatArray = np.asarray(probabilities)[0]
        return mine

    def forget(self, session_id: Hashable) -> None:
        """Drop the belief of a session."""
        self._beliefs.pop(session_id, None)
        self._users.pop(session_id, None)

    def _headline(self) -> str:
        model = self.policy.model_or_none
        on = "" if model is None else f" on {model_line(model)}"
        return f"Agent({self.policy.name}{on}; {plural(len(self._beliefs), 'session')})"

    def _shown_tables(self) -> list[Table]:
        ids, probabilities = self._probabilities(_MOST_SHOWN)
        if not ids:
            return []
        states = tuple(f"state {s + 1}" for s in range(probabilities.shape[1]))
        rows = [
            (str(session_id), *(f"{p:.2f}" for p in row))
            for session_id, row in zip(ids, probabilities, strict=True)
        ]
        title = f"Probability of each state in the latest {plural(len(ids), 'session')}"
        return [Table(title, ("session", *states), rows)]

    def _columns(self) -> dict[str, list[Any]]:
        ids, probabilities = self._probabilities(None)
        n_states = probabilities.shape[1]
        return {
            "session": [session_id for session_id in ids for _ in range(n_states)],
            "state": list(range(n_states)) * len(ids),
            "probability": probabilities.ravel().tolist(),
        }

    def _draw(self) -> Any:
        ids, probabilities = self._probabilities(_MOST_SHOWN)
        if not ids:
            return None
        states = [f"state {s + 1}" for s in range(probabilities.shape[1])]
        return draw_grid(probabilities, [str(i) for i in ids], states, "probability of each state")

    def _probabilities(self, most: int | None) -> tuple[list[Hashable], FloatArray]:
        """Return the ids of the latest sessions and P(s) of each, `(n_sessions, n_states)`.

        There are none if the policy keeps no probabilities of latent states.
        """
        ids = [] if self.policy.n_states == 1 else list(self._beliefs)
        ids = ids if most is None else ids[-most:]
        found = [self.policy.state_probabilities(self._beliefs[session_id]) for session_id in ids]
        if not found or found[0] is None:
            return [], np.empty((0, self.policy.n_states))
        return ids, np.concatenate([np.asarray(one)[:1] for one in found])

    def _state(self, session_id: Hashable, user: Row) -> None:
        """Take the attributes of a session's user, which the first `decide` states."""
        if session_id in self._beliefs:
            known = self._users.get(session_id)
            if known != user:
                raise ValueError(
                    f"session {session_id!r} began with the user features {known}, which hold for "
                    f"the whole session; got {dict(user)}"
                )
            return
        gate = gate_of(self.policy)
        if gate is not None:
            gate.check(user)
        self._users[session_id] = dict(user)

    def _first_belief(self, session_id: Hashable) -> Any:
        user = self._users.get(session_id)
        return self.policy.init(1) if user is None else begin(self.policy, [user])
