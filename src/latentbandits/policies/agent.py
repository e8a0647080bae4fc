"""A small mutable object around a policy that serves one user at a time."""

from __future__ import annotations

import os
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

import numpy as np
from numpy.typing import ArrayLike

from latentbandits.models.attributes.columns import Row
from latentbandits.models.checks import BoolArray, FloatArray
from latentbandits.models.clicks import AnyClickModel, as_click_model
from latentbandits.models.shown import model_line
from latentbandits.policies.decision import Decision
from latentbandits.policies.lists import ListDecision, decide_list, update_list
from latentbandits.policies.protocol import AnyPolicy, ThreeMethods, adopt, begin, gate_of
from latentbandits.policies.registry import build, inputs_of
from latentbandits.report.drawing import draw_grid
from latentbandits.report.notebook import Shown, plural
from latentbandits.report.report import Table

if TYPE_CHECKING:
    from latentbandits.models.artefacts import Catalogue

_MOST_SHOWN = 20  # sessions that a notebook shows
_MOST_WAITING = 1_000  # decisions of a session that wait for their rewards


Action = TypeVar("Action", bound=int | str)
"""How an agent names actions: by their index, or with a catalogue by their id."""


@dataclass(frozen=True, slots=True, eq=False)
class Chosen(Generic[Action]):
    """One decision for one session; give it back to `update` with its reward."""

    action: Action
    state: int
    propensity: float | None
    session_id: Hashable
    decision: Decision = field(repr=False)
    context: FloatArray | None = field(repr=False)


@dataclass(frozen=True, slots=True, eq=False)
class ChosenList(Generic[Action]):
    """One list for one session; give it back to `update` with the rewards of its positions.

    `propensities` are the probabilities of each action given the actions above it.
    """

    actions: tuple[Action, ...]
    states: tuple[int, ...]
    propensities: tuple[float, ...] | None
    session_id: Hashable
    decision: ListDecision = field(repr=False)
    context: FloatArray | None = field(repr=False)


class Agent(Shown, Generic[Action]):
    """Decides and learns for one user at a time; it keeps a belief for every session id.

    Args:
        policy: any policy.
        seed: seed of the agent's randomness, or a generator.
        click_model: how users look at a list, "each", "cascade" or a `ClickModel`.
        catalogue: ids and features of the actions. With it the agent names actions by their ids,
            without it by their indices.

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

    With a catalogue, actions have their names.

    >>> from latentbandits.models import Catalogue
    >>> agent = Agent(mmTS(model), seed=0, catalogue=Catalogue(["tea", "milk", "water"]))
    >>> agent.decide("ann", eligible=["tea"]).action
    'tea'
    >>> agent.reward("ann", "tea", 1)
    """

    @overload
    def __init__(
        self: Agent[int],
        policy: AnyPolicy | ThreeMethods[Any],
        seed: int | np.random.Generator = 0,
        click_model: AnyClickModel = "each",
        catalogue: None = None,
    ) -> None: ...

    @overload
    def __init__(
        self: Agent[str],
        policy: AnyPolicy | ThreeMethods[Any],
        seed: int | np.random.Generator = 0,
        click_model: AnyClickModel = "each",
        *,
        catalogue: Catalogue,
    ) -> None: ...

    def __init__(
        self,
        policy: AnyPolicy | ThreeMethods[Any],
        seed: int | np.random.Generator = 0,
        click_model: AnyClickModel = "each",
        catalogue: Catalogue | None = None,
    ) -> None:
        self.policy = adopt(policy, "Agent")
        self.click_model = as_click_model(click_model)
        self.catalogue = catalogue
        self._rng = np.random.default_rng(seed)
        self._beliefs: dict[Hashable, Any] = {}
        self._users: dict[Hashable, Row] = {}  # user attributes at the start of each session
        self._waiting: dict[Hashable, list[Chosen[Action]]] = {}  # decisions without a reward

    @overload
    def decide(
        self,
        session_id: Hashable,
        context: ArrayLike | None = None,
        eligible: ArrayLike | Sequence[str] | None = None,
        user_features: Row | None = None,
        length: None = None,
    ) -> Chosen[Action]: ...

    @overload
    def decide(
        self,
        session_id: Hashable,
        context: ArrayLike | None = None,
        eligible: ArrayLike | Sequence[str] | None = None,
        user_features: Row | None = None,
        *,
        length: int,
    ) -> ChosenList[Action]: ...

    def decide(
        self,
        session_id: Hashable,
        context: ArrayLike | None = None,
        eligible: ArrayLike | Sequence[str] | None = None,
        user_features: Row | None = None,
        length: int | None = None,
    ) -> Chosen[Action] | ChosenList[Action]:
        """Choose an action; `context` is `(n_actions, n_features)`, `eligible` `(n_actions,)`.

        An agent with a catalogue has the features already, and `eligible` may name its actions.
        With `length`, choose an ordered list of so many actions. `user_features` hold for the
        whole session: ValueError if a later call states others.
        """
        features, mask = self._inputs(context, eligible)
        if user_features is not None:
            self._state(session_id, user_features)
        belief = self._beliefs[session_id] = self._belief(session_id)
        if length is not None:
            shown = decide_list(
                self.policy, belief, features, self._rng, length, self.click_model, eligible=mask
            )
            chances = None if shown.propensities is None else tuple(shown.propensities[0].tolist())
            actions = tuple(self._named(action) for action in shown.actions[0].tolist())
            states = tuple(shown.states[0].tolist())
            return ChosenList(actions, states, chances, session_id, shown, features)
        decision = self.policy.decide(belief, features, self._rng, eligible=mask)
        chosen = Chosen(
            self._named(decision.action.item(0)),
            decision.state.item(0),
            None if decision.propensity is None else decision.propensity.item(0),
            session_id,
            decision,
            features,
        )
        waiting = self._waiting.setdefault(session_id, [])
        waiting.append(chosen)
        del waiting[:-_MOST_WAITING]
        return chosen

    def _inputs(
        self, context: ArrayLike | None, eligible: ArrayLike | Sequence[str] | None
    ) -> tuple[FloatArray | None, BoolArray | None]:
        """Return the features and the mask of one session; retired actions are not eligible."""
        features = None if context is None else np.asarray(context, np.float64)[None]
        mask = None if eligible is None else np.asarray(eligible)[None]
        catalogue = self.catalogue
        if catalogue is None:
            return features, mask
        if features is not None:
            raise ValueError(
                "this agent has a catalogue, whose features it uses: leave the context out, or "
                "make an Agent(policy) without a catalogue"
            )
        if catalogue.features is not None:
            features = catalogue.features[None]
        if mask is not None and mask.dtype.kind in "UO":
            names = mask[0].tolist()
            mask = np.zeros((1, len(catalogue)), np.bool_)
            mask[0, catalogue.indices(names)] = True
        if catalogue.retired:
            offered = np.array([[name not in catalogue.retired for name in catalogue.ids]])
            mask = offered if mask is None else mask & offered
        return features, mask

    def _named(self, action: int) -> Action:
        """Return the action as this agent names it."""
        return action if self.catalogue is None else self.catalogue.ids[action]  # type: ignore[return-value]

    def update(
        self, chosen: Chosen[Action] | ChosenList[Action], reward: float | Sequence[float | None]
    ) -> None:
        """Learn from the reward of a decision, whenever it arrives.

        The reward of a list is one number for each position, None where nothing was observed.
        """
        if not isinstance(chosen, (Chosen, ChosenList)):
            raise TypeError(
                "update takes what decide returned and its reward: "
                f"agent.update(agent.decide(session_id), reward=...); got {chosen!r}"
            )
        session_id = chosen.session_id
        belief = self._belief(session_id)  # a new one if the session was forgotten meanwhile
        policy, context, rewards = self.policy, chosen.context, np.array([reward], np.float64)
        if isinstance(chosen, ChosenList):
            after = update_list(policy, belief, context, chosen.decision, rewards, self.click_model)
        else:
            after = policy.update(belief, context, chosen.decision, rewards)
        self._beliefs[session_id] = after
        waiting = self._waiting.get(session_id, [])
        self._waiting[session_id] = [one for one in waiting if one is not chosen]

    def reward(self, session_id: Hashable, action: Action, reward: float) -> None:
        """Learn the reward of an action that `decide` chose for this session.

        If several decisions chose the action, the earliest one without a reward gets it. ValueError
        if all have a reward.
        """
        waiting = self._waiting.get(session_id, [])
        for chosen in waiting:
            if chosen.action == action:
                return self.update(chosen, reward)
        shown = ", ".join(dict.fromkeys(repr(chosen.action) for chosen in waiting)) or "none"
        raise ValueError(
            f"no decision for {session_id!r} with the action {action!r} waits for a reward; "
            f"actions that do: {shown}"
        )

    def state_probabilities(self, session_id: Hashable) -> FloatArray:
        """Return P(s) of one session, `(n_states,)`."""
        probabilities = self.policy.state_probabilities(self._belief(session_id))
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
        self._waiting.pop(session_id, None)

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
        return [Table("Probability of each state, latest sessions", ("session", *states), rows)]

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
        """Set the attributes of a session's user, which the first `decide` gives."""
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

    def _belief(self, session_id: Hashable) -> Any:
        """Return the belief of a session, or that of its start; nothing is stored."""
        if session_id in self._beliefs:
            return self._beliefs[session_id]
        user = self._users.get(session_id)
        return self.policy.init(1) if user is None else begin(self.policy, [user])


def load_agent(
    path: str | os.PathLike[str], policy: str | None = None, seed: int | np.random.Generator = 0
) -> Agent[str]:
    """Return an agent with a saved model, its catalogue and its recommended policy.

    Without a catalogue in the folder, actions are named "0", "1", ... If the features of actions
    come with each request, no agent can know its actions: ValueError.

    Args:
        path: a folder that `fit` or `save` wrote.
        policy: the name of another policy, with options: "mmGreedy", "UCB1(scale=0.5)".
        seed: seed of the agent's randomness, or a generator.

    >>> import tempfile
    >>> from latentbandits import GaussianArms, save
    >>> from latentbandits.models import Catalogue
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     model = GaussianArms([[0.9, 0.1]], noise=0.5, spread=0.1)
    ...     save(model, folder + "/model", Catalogue(["tea", "milk"]))
    ...     agent = load_agent(folder + "/model")
    >>> agent.decide("ann").action
    'tea'
    """
    from latentbandits.models.artefacts import Catalogue, load, load_catalogue, recommended_policy

    model, catalogue = load(path), load_catalogue(path)
    if model.n_features is not None and (catalogue is None or catalogue.features is None):
        raise ValueError(
            f"the features of {os.fspath(path)}'s actions come with each request, so that an agent "
            "cannot name its actions: make Agent(mmTS(load(path))), and give decide the context"
        )
    if catalogue is None:
        assert model.n_actions is not None
        catalogue = Catalogue([str(action) for action in range(model.n_actions)])
    text = policy or recommended_policy(path, "mmTS")
    built = build(text, inputs_of(model, catalogue))
    return Agent(built, seed, catalogue=catalogue)
