"""The models that a service has: kept in its store, checked before they are used."""

from __future__ import annotations

import threading
import weakref
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Any, TypeAlias
from weakref import WeakValueDictionary

import msgspec
import numpy as np

from latentbandits.beliefs.encoding import can_encode
from latentbandits.models.artefacts import Catalogue, model_files, to_arrays
from latentbandits.models.attributes.items import add_items
from latentbandits.models.clicks import ClickModel, Each, as_click_model
from latentbandits.models.growing import add_arms, add_average, add_vectors, plain_features
from latentbandits.models.numerics.arrays import leaves
from latentbandits.models.protocol import with_defaults
from latentbandits.policies.lists import check_click_model
from latentbandits.policies.protocol import AnyPolicy
from latentbandits.policies.registry import AUTO, PolicySpec, build, find, inputs_of, parse
from latentbandits.serving.engine.actions import ActionSpace, action_space
from latentbandits.serving.engine.model_rows import ActionNames, model_row, notes, unpack
from latentbandits.serving.engine.values import NewAction
from latentbandits.serving.errors import Invalid, NotFound
from latentbandits.serving.records import (
    FALLBACK,
    ActivationRow,
    DecisionRow,
    ModelRow,
    shown_actions,
)
from latentbandits.serving.settings import (
    MAIN,
    UNLIMITED,
    EngineSettings,
    RewardRange,
    reward_range,
)
from latentbandits.serving.stores.protocol import LAST, Store

DEFAULT_POLICY = "mmTS"
"""The policy of `auto` where the model has no recommendation and was not tuned."""
_TUNED = "tuned_policy:"  # prefix of the notes with the tuned policy of each model id
_ARRAY_BYTES = 112  # of an array object, beside its numbers
_MOST_LOADED = 8  # models that no cached session uses
_CLOCKS_DIFFER = 3_600_000  # milliseconds by which processes may differ about the time
ModelKey: TypeAlias = tuple[str, tuple[str, ...]]
CatalogueChange: TypeAlias = Callable[[Any, Catalogue], tuple[Any, Catalogue]]


class ModelSummary(msgspec.Struct, frozen=True):
    """Facts about a model for lists of models, kept so that it need not be loaded."""

    kind: str
    n_states: int
    n_actions: int | None
    n_features: int | None


@dataclass(frozen=True, eq=False)
class GroupPolicy:
    """The policy of a group on one model; `text` names it with its options."""

    text: str
    policy: AnyPolicy
    can_snapshot: bool  # not with pauses: then a belief depends on the last decision's time too
    belief_bytes: int  # size of a new session's belief
    order_free: bool  # see `is_order_free`
    draws_depend_on_order: bool  # see `draws_depend_on_order`
    state_prior: tuple[float, ...]  # see `fixed_state_prior`
    n_users: int | None = None  # users of a population, for a policy that learns across users
    session_gap: float | None = None  # seconds after which the belief moves: see `replay.moved_to`


def _noted_click_model(noted: Mapping[str, Any]) -> str:
    """Return the click model's text that a fit noted; "each" where it noted none."""
    told = noted.get("click_model", Each.name)
    if not isinstance(told, Mapping):
        return str(told)
    examination = told.get("examination")
    name = str(told.get("name"))
    return name if examination is None else f"{name}({', '.join(map(str, examination))})"


def read_click_model(text: str, name: str) -> ClickModel:
    """Return the click model of this text; Invalid, naming the model `name`, if there is none."""
    try:
        return as_click_model(text)
    except ValueError as error:
        raise Invalid(f"{name}: {error}") from None


@lru_cache(maxsize=64)
def stored_click_model(text: str) -> ClickModel:
    """Return the click model of a text that the store has."""
    return as_click_model(text)


def make_policy(text: str, model: Any, catalogue: Catalogue | None = None) -> AnyPolicy:
    """Return the policy of this text on `model`; ValueError where they do not go together."""
    if not find(parse(text).name).can_be_served:
        raise ValueError(
            f"{text} learns across users and remembers the order of rewards, so it is for "
            "simulation: of these policies HierTS and HierUCB are served, whose beliefs are sums"
        )
    return build(text, inputs_of(model, catalogue))


def is_order_free(policy: AnyPolicy, model: Any) -> bool:
    """Return whether the order of a session's rewards does not matter to its belief, to rounding.

    That holds for exact posteriors; models and policies declare it.
    """
    exact = bool(with_defaults(model).order_free) and model.transition is None
    return exact and bool(policy.order_free) and policy.learns_from == "any"


def fixed_state_prior(policy: AnyPolicy, belief: Any) -> tuple[float, ...]:
    """Return P1(s) of a session without rewards; empty where the policy keeps no posterior over
    states, there is a single state, or the state moves.
    """
    model = policy.model_or_none
    prior = policy.state_probabilities(belief)
    if prior is None or prior.shape[1] < 2 or (model is not None and model.transition is not None):
        return ()
    return tuple(prior[0].tolist())


def draws_depend_on_order(belief: Any) -> bool:
    """Return whether draws from a belief depend on the order of its rewards, to more than rounding.

    A posterior declares this even where its distribution does not depend on the order: see
    `LinearPosterior`.
    """
    if not isinstance(belief, tuple):
        return False
    return getattr(belief, "draws_depend_on_order", False) or any(
        map(draws_depend_on_order, belief)
    )


@dataclass(frozen=True, eq=False)
class ServedModel:
    """A model ready to decide: its actions, and a policy for each group."""

    id: str
    name: str
    model: Any
    space: ActionSpace
    policies: Mapping[str, GroupPolicy]
    rewards: RewardRange = UNLIMITED
    clicks: ClickModel = Each()  # noqa: RUF009 - a frozen value: what the model's fit says of lists

    @property
    def catalogue(self) -> Catalogue:
        """The catalogue of the model's actions; actions without names are numbered."""
        assert self.space.catalogue is not None
        return self.space.catalogue

    def parts(self) -> dict[int, int]:
        """Return the bytes of the model's arrays, by identity: versions of a model share arrays."""
        parts = {id(self): 4 * len(self.space.names or ())}  # masks
        if self.space.catalogue is not None:
            parts |= self.space.catalogue.parts()
        with suppress(TypeError):  # a model that cannot be saved
            large = (array for array in to_arrays(self.model).values() if array.nbytes > 1024)
            parts |= {id(array): array.nbytes for array in large}
        return parts

    @cached_property
    def bytes(self) -> int:
        """The approximate size of the model in bytes."""
        return sum(self.parts().values())

    @cached_property
    def is_grown(self) -> bool:
        """True if actions were added that the model was not learned for."""
        return bool(self.space.new)

    def lacks(self, row: DecisionRow) -> bool:
        """Return whether the caller named an action by its id that this model lacks."""
        return (
            row.features is None
            and row.policy != FALLBACK
            and not all(map(self.space.has, shown_actions(row)))
        )

    @property
    def has_population(self) -> bool:
        """True if the policy of some group learns across users."""
        return any(group.n_users is not None for group in self.policies.values())

    def of_group(self, group: str) -> GroupPolicy:
        """Return the policy of a group; groups of former settings get the main group's policy."""
        return self.policies.get(group) or self.policies[MAIN]

    def summary(self) -> ModelSummary:
        """Return the figures of the model that the page shows."""
        return ModelSummary(
            kind=type(self.model).__name__,
            n_states=self.model.n_states,
            n_actions=None if self.space.names is None else len(self.space.names),
            n_features=self.model.n_features,
        )


def extended(
    model: Any, catalogue: Catalogue, actions: Sequence[NewAction]
) -> tuple[Any, Catalogue]:
    """Return model and catalogue with these actions added at the end; ValueError if impossible."""
    for action in actions:
        title = None if action.name is None else [action.name]
        if action.vector is None:
            model, catalogue = add_items(model, catalogue, [action.id], [action.attributes], title)
            continue
        if action.attributes is not None:
            raise ValueError(f"{action.id!r}: give attributes or a vector, not both")
        vector = np.array(action.vector)
        if catalogue.features is not None:
            width = plain_features(model, catalogue).shape[1]
            _check_length(action, width, "features")
            model, catalogue = add_vectors(model, catalogue, [action.id], vector[None], None, title)
            continue
        _check_length(action, model.n_states, "mean rewards, one for each state")
        variance = model.posterior_rewards(model.parameters(1), None)[1][0].mean(axis=1)
        model, catalogue = add_arms(
            model, catalogue, [action.id], vector[:, None], variance[:, None], title
        )
    return model, catalogue


def _check_length(action: NewAction, wanted: int, what: str) -> None:
    assert action.vector is not None
    if len(action.vector) != wanted:
        raise ValueError(
            f"the vector of {action.id!r} has {len(action.vector)} numbers; this model takes "
            f"{wanted} {what}"
        )


class Memory:
    """Counts the bytes of loaded models that something still uses, each shared part once."""

    def __init__(self) -> None:
        self._users: Counter[int] = Counter()
        self._lock = threading.RLock()  # the last user of a model may be another thread
        self._bytes = 0
        self._active: ServedModel | None = None
        self.counted = 0  # bytes, without those of the active model

    def spare(self, active: ServedModel | None) -> None:
        """Do not count the active model, which is needed in any case."""
        self._active = active
        self.counted = self._bytes - (0 if active is None else active.bytes)

    def add(self, served: ServedModel) -> None:
        """Count a model until nothing refers to it any more."""
        parts = served.parts()
        self._change(parts, 1)
        weakref.finalize(served, self._change, parts, -1)

    def _change(self, parts: Mapping[int, int], sign: int) -> None:
        with self._lock:
            for part, size in parts.items():
                before = self._users[part]
                self._users[part] += sign
                if before == 0 or self._users[part] == 0:
                    self._bytes += sign * size
                if self._users[part] == 0:
                    del self._users[part]
            self.spare(self._active)


class Library:
    """Loads models from the store as sessions need them, and knows which one is active.

    Half of the memory for sessions may hold models besides the active one that no session uses.
    """

    def __init__(self, store: Store, settings: EngineSettings) -> None:
        self._store = store
        self._texts = settings.policies()  # by group
        self._settings = settings
        self._capacity_bytes = int(settings.cached_megabytes * 2**20) // 2
        self.memory = Memory()
        # By model id and the new actions that a model was grown by: all that something refers to,
        # and those that were used last.
        self._alive: WeakValueDictionary[ModelKey, ServedModel] = WeakValueDictionary()
        self._used: OrderedDict[ModelKey, ServedModel] = OrderedDict()
        self._lacked: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {}
        self._summaries: dict[str, tuple[str, ModelSummary]] = {}
        self._names = ActionNames(store.model)
        self._catalogue: Catalogue | None = None  # the latest, whose memory the next may share
        self.activations: list[ActivationRow] = []
        self.order = -1  # of the latest activation

    def refresh(self) -> None:
        """Read what other processes have activated."""
        last = self.activations[-1].order if self.activations else -1
        self.activations += self._store.activations(after=last)
        if self.activations:
            self.order = self.activations[-1].order

    def forget(self) -> None:
        """Read the activations from the store again; loaded models stay as they are."""
        self.activations = []
        self.order = -1

    @property
    def active(self) -> ActivationRow:
        """The latest activation that is not a trial; Invalid if no model was ever activated."""
        for one in reversed(self.activations):
            if one.mode != "trial":
                return one
        raise Invalid("no model is active: give the folder of a saved model, or --demo to see one")

    @property
    def trial(self) -> ActivationRow | None:
        """The activation of a model on trial; any later activation ends it."""
        last = self.activations[-1] if self.activations else None
        return last if last is not None and last.mode == "trial" else None

    def successor(self, model: str, activation: int) -> str | None:
        """Return the next model of a session of `model`, last used under `activation`.

        None: a later activation ended the session.
        """
        before = ""  # the model that was active before
        for one in self.activations:
            if one.mode == "trial":
                continue
            if one.order > activation:
                if one.mode == "restarted":
                    return None
                if one.mode == "migrated" or (one.mode == "extended" and model == before):
                    model = one.model
            before = one.model
        return model

    def served(self, model_id: str) -> ServedModel:
        """Return a model ready to serve; recently used models stay in memory."""
        key: ModelKey = (model_id, ())
        served = self._alive.get(key)
        if served is None:
            served = self.check(self.row(model_id))
            self.keep(served)
        elif next(reversed(self._used), None) != key:
            self._use(key, served)
        return served

    def keep(self, served: ServedModel, grown_by: tuple[str, ...] = ()) -> None:
        """Keep a new model in memory, unless the same one is there."""
        key = served.id, grown_by
        if key not in self._alive:
            self.memory.add(served)
            self._alive[key] = served
            self._use(key, served)

    def _use(self, key: ModelKey, served: ServedModel) -> None:
        self._used[key] = served
        self._used.move_to_end(key)
        if self.activations and served.id == self.active.model and not served.is_grown:
            self.memory.spare(served)
        while len(self._used) > 1 and (
            len(self._used) > _MOST_LOADED or self.memory.counted > self._capacity_bytes
        ):
            self._used.popitem(last=False)

    def row(self, model_id: str) -> ModelRow:
        """Return the row of a model; NotFound if the store has none."""
        row = self._store.model(model_id)
        if row is None:
            raise NotFound("model", model_id)
        return row

    def summaries(self) -> dict[str, tuple[str, ModelSummary]]:
        """Return name and summary of every model that was ever activated, by id."""
        self._summaries = {
            model_id: self._summaries.get(model_id) or (name, self._summary(model_id, summary))
            for model_id, (name, summary) in self._store.model_summaries().items()
        }
        return self._summaries

    def _summary(self, model_id: str, summary: bytes) -> ModelSummary:
        if summary:
            return msgspec.json.decode(summary, type=ModelSummary)
        # A model of version 0.1.0 has no summary: load it once, without caching it.
        return self.check(self.row(model_id)).summary()

    def prune(self, now: int) -> list[str]:
        """Have the store forget former catalogues that no session can have used; returns their ids.

        Only a changed catalogue ever replaced these models, so all their actions are in a model
        that stays.
        """
        replaced: dict[str, int] = {}
        staying = {one.model for one in self.activations if one.mode == "trial"}
        whole = [one for one in self.activations if one.mode != "trial"]
        for one, after in pairwise(whole):
            if after.mode == "extended":
                replaced[one.model] = after.time + _CLOCKS_DIFFER
            else:
                staying.add(one.model)
        staying.add(self.active.model)
        former = {one: time for one, time in replaced.items() if one not in staying and time < now}
        return self._store.prune_models(former) if former else []

    def tuned(self, model_id: str) -> str | None:
        """Return the policy that was tuned for a model, if any."""
        note = self._store.note(_TUNED + model_id)
        return None if note is None else note.decode()

    def keep_tuned(self, model_id: str, text: str) -> None:
        """Keep a tuned policy in the store, so that restarts and other processes use the same."""
        self._store.put_note(_TUNED + model_id, text.encode())

    def _text(self, group: str, row: ModelRow) -> str:
        """Return a group's policy; `auto` is the recommended, the tuned, or the default policy.

        With `explore` every policy plays a uniformly random action with that probability.
        """
        text = self._texts[group]
        if text == AUTO:
            text = notes(row).get("recommended_policy") or self.tuned(row.id) or DEFAULT_POLICY
        explore = self._settings.explore
        if explore == 0:
            return text
        return str(PolicySpec("Exploring", {"policy": text, "e": explore}))

    def grown(self, model_id: str, before: int = LAST) -> ServedModel:
        """Return a model grown by the actions that it lacks and earlier models had.

        Earlier models are the ones that were activated before the order `before`. A new action has
        the mean of the average action and a wide variance (`models.growing`). A model that lacks
        none, or whose family cannot take new actions, is returned as it is. A session uses the
        grown model only if a request names a new action or the session learned from one. That
        follows from the log, so that a decision can be made again.
        """
        base = self.served(model_id)
        new = self._lacking(base, before)
        if not new:
            return base
        key = (model_id, new)
        grown = self._alive.get(key)
        if grown is None:
            try:
                model, catalogue = add_average(base.model, base.catalogue, new)
            except ValueError:  # this kind of model does not support new actions
                return base
            policies = self._policies(self.row(model_id), model, catalogue)
            space = action_space(model, catalogue, len(new))
            grown = replace(base, model=model, space=space, policies=policies)
            self.keep(grown, new)
        self._use(key, grown)
        return grown

    def _lacking(self, base: ServedModel, before: int) -> tuple[str, ...]:
        if base.space.names is None:  # requests send the features of each action
            return ()
        models = tuple(dict.fromkeys(a.model for a in self.activations if a.order < before))
        models_then, new = self._lacked.get(base.id, ((), ()))
        if models != models_then:
            new = tuple(name for name in self._names.of_all(models) if not base.space.has(name))
            if len(self._lacked) >= _MOST_LOADED:
                self._lacked.clear()
            self._lacked[base.id] = models, new
        return new

    def is_new_action(self, row: DecisionRow) -> bool:
        """Return whether a decision has an action that its model was not learned for."""
        return self._names.lacks(row)

    def changed(self, change: CatalogueChange) -> ModelRow:
        """Return the active model with another catalogue, as a new row.

        `change` receives model and catalogue, and raises ValueError if the change is impossible.
        """
        row = self.row(self.active.model)
        base = self.served(row.id)
        if base.space.names is None:
            raise Invalid("callers bring the features of every action: there is no catalogue")
        try:
            model, catalogue = change(base.model, base.catalogue)
        except ValueError as error:
            raise Invalid(str(error)) from None
        self._catalogue = catalogue
        changed = model_row(model_files(model, catalogue, notes(row)), row.name)
        return msgspec.structs.replace(changed, base=row.base or row.id)

    def check(self, row: ModelRow) -> ServedModel:
        """Return the model of an artefact, ready to decide; Invalid if it cannot be served."""
        model, catalogue = unpack(row)
        if model.n_sessions is not None:
            raise Invalid(
                f"{row.name} has one instance for each of {model.n_sessions} sessions: a service "
                "needs one model that all sessions share"
            )
        if catalogue is not None:
            if self._catalogue is not None:
                catalogue = catalogue.sharing(self._catalogue)
            self._catalogue = catalogue
        policies = self._policies(row, model, catalogue)
        space = action_space(model, catalogue)
        try:
            rewards = self._settings.limits(reward_range(model, notes(row)))
        except (TypeError, ValueError) as error:
            raise Invalid(f"{row.name}: its note reward_range: {error}") from None
        clicks = read_click_model(_noted_click_model(notes(row)), row.name)
        return ServedModel(row.id, row.name, model, space, policies, rewards, clicks)

    def click_model(self, served: ServedModel) -> ClickModel:
        """Return the click model of lists: the activation's, or else the fit's."""
        latest = (one.click_model for one in reversed(self.activations) if one.model == served.id)
        text = next(latest, None)
        return served.clicks if text is None else stored_click_model(text)

    def _policies(
        self, row: ModelRow, model: Any, catalogue: Catalogue | None
    ) -> dict[str, GroupPolicy]:
        policies = {}
        try:
            for group in self._texts:
                text = self._text(group, row)
                policy = make_policy(text, model, catalogue)
                belief = policy.init(1)
                gap = with_defaults(policy.model_or_none).session_gap
                policies[group] = GroupPolicy(
                    text,
                    policy,
                    can_encode(policy) and gap is None,
                    sum(leaf.nbytes + _ARRAY_BYTES for leaf in leaves(belief)),
                    is_order_free(policy, model),
                    draws_depend_on_order(belief),
                    fixed_state_prior(policy, belief),
                    policy.population_size,
                    gap,
                )
        except (TypeError, ValueError, OverflowError, MemoryError) as error:
            raise Invalid(f"{row.name}: {error}") from None
        return policies

    def check_click_model(self, text: str, served: ServedModel) -> str:
        """Return the text of a click model that every group's policy can learn from."""
        clicks = read_click_model(text, served.name)
        for group in served.policies.values():
            try:
                check_click_model(group.policy, clicks)
            except ValueError as error:
                raise Invalid(f"{served.name}: {error}") from None
        return clicks.text

    def check_successor(self, new: ServedModel) -> None:
        """Refuse a model that cannot answer all requests that the active model answers.

        Where callers name actions by id, a successor may have any family, rank, number of states
        and set of actions: actions that the successor lacks are added to it (`grown`). Where
        callers send features, the successor must take the same number of features.
        """
        if not self.activations:
            return
        old = self.served(self.active.model)
        if old.space.names is None:
            old_features = with_defaults(old.model).n_features
            new_features = with_defaults(new.model).n_features
            if old_features != new_features:
                raise Invalid(
                    f"{new.name} takes {new_features or 'no'} features, callers send "
                    f"{old_features}: requests would fail; send force=true if callers have changed"
                )
            return
        if new.space.names is None:
            raise Invalid(
                f"{new.name} has no catalogue, and callers name actions by their ids: requests "
                "would fail; send force=true if callers have changed"
            )
