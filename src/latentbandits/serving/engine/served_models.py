"""The models that a service has: kept in its store, checked before they are used."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from latentbandits.beliefs.encoding import can_encode
from latentbandits.models.artefacts.catalogue import Catalogue
from latentbandits.models.artefacts.files import (
    ARRAYS_FILE,
    MANIFEST_FILE,
    ArtefactError,
    load_files,
    model_files,
    notes_of,
    read_files,
)
from latentbandits.models.checks import FloatArray
from latentbandits.models.growing import add_average
from latentbandits.models.protocol import is_order_free as model_is_order_free
from latentbandits.policies.protocol import AnyPolicy
from latentbandits.policies.registry import AUTO, PolicySpec
from latentbandits.serving.engine.actions import ActionSpace, action_space
from latentbandits.serving.engine.groups import MAIN
from latentbandits.serving.engine.propensities import make_policy
from latentbandits.serving.engine.reward_range import UNLIMITED, RewardRange, reward_range
from latentbandits.serving.engine.visitors import users_of
from latentbandits.serving.errors import Invalid, NotFound
from latentbandits.serving.records import FALLBACK, ActivationRow, DecisionRow, ModelRow
from latentbandits.serving.stores.protocol import LAST, Store

_MAX_BYTES = 256 * 2**20
_ID_DIGITS = 12
DEFAULT_POLICY = "mmTS"
"""The policy of `auto` where the model has no recommendation and was not tuned."""
_TUNED = "tuned_policy:"  # prefix of the notes with the tuned policy of each model id
_MOST_LOADED = 8  # models; cached sessions also hold references to theirs


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
    can_snapshot: bool
    belief_bytes: int  # size of a new session's belief
    order_free: bool  # see `is_order_free`
    draws_depend_on_order: bool  # see `draws_depend_on_order`
    n_users: int | None = None  # users of a population, for a policy that learns across users


@dataclass(frozen=True, eq=False)
class ServedModel:
    """A model ready to decide: its actions, and a policy for each group."""

    id: str
    name: str
    model: Any
    space: ActionSpace
    policies: Mapping[str, GroupPolicy]
    catalogue: Catalogue | None = None
    rewards: RewardRange = UNLIMITED

    @property
    def is_grown(self) -> bool:
        """Whether actions were added that the model was not learned for."""
        return bool(self.space.new)

    def lacks(self, row: DecisionRow) -> bool:
        """Return whether the action of a decision is one that the caller named by its id, and
        none of this model's.
        """
        return row.features is None and row.policy != FALLBACK and not self.space.has(row.action)

    @property
    def has_population(self) -> bool:
        """Whether the policy of some group learns across users."""
        return any(group.n_users is not None for group in self.policies.values())

    def of_group(self, group: str) -> GroupPolicy:
        """Return the policy of a group; that of the main one for groups of former settings."""
        return self.policies.get(group) or self.policies[MAIN]

    def summary(self) -> ModelSummary:
        """Return the figures of the model that the page shows."""
        return ModelSummary(
            kind=type(self.model).__name__,
            n_states=self.model.n_states,
            n_actions=None if self.space.names is None else len(self.space.names),
            n_features=self.model.n_features,
        )


class Library:
    """Loads models from the store as sessions need them, and knows which one is active."""

    def __init__(self, store: Store, policies: Mapping[str, str], explore: float = 0.0) -> None:
        self._store = store
        self._texts = policies  # policy texts by group
        self._explore = explore
        self._served: OrderedDict[str, ServedModel] = OrderedDict()
        self._grown: OrderedDict[tuple[str, tuple[str, ...]], ServedModel] = OrderedDict()
        self._lacked: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {}
        self._summaries: dict[str, tuple[str, ModelSummary]] = {}
        self._names = ActionNames(store.model)
        self.activations: list[ActivationRow] = []

    def refresh(self) -> None:
        """Read what other processes have activated."""
        last = self.activations[-1].order if self.activations else -1
        self.activations += self._store.activations(after=last)

    def forget(self) -> None:
        """Read the activations from the store again; loaded models stay as they are."""
        self.activations = []

    @property
    def active(self) -> ActivationRow:
        """The latest activation; Invalid if no model was ever activated."""
        if not self.activations:
            raise Invalid(
                "no model is active: give the folder of a saved model, or --demo to see one"
            )
        return self.activations[-1]

    def served(self, model_id: str) -> ServedModel:
        """Return a model ready to serve; the models that were used last are kept."""
        served = self._served.get(model_id)
        if served is None:
            served = self.check(self.row(model_id))
            self._served[model_id] = served
            while len(self._served) > _MOST_LOADED:
                self._served.popitem(last=False)
        self._served.move_to_end(model_id)
        return served

    def row(self, model_id: str) -> ModelRow:
        """Return the row of a model; NotFound if the store has none."""
        row = self._store.model(model_id)
        if row is None:
            raise NotFound("model", model_id)
        return row

    def summaries(self) -> dict[str, tuple[str, ModelSummary]]:
        """Return name and summary of every model that was ever activated, by id."""
        for model_id, (name, summary) in self._store.model_summaries().items():
            if model_id not in self._summaries:
                if summary:
                    decoded = msgspec.json.decode(summary, type=ModelSummary)
                else:  # a model of version 0.1.0 has no summary: load it once, without caching it
                    decoded = self.check(self.row(model_id)).summary()
                self._summaries[model_id] = (name, decoded)
        return self._summaries

    def tuned(self, model_id: str) -> str | None:
        """Return the policy that was tuned for a model, if any."""
        note = self._store.note(_TUNED + model_id)
        return None if note is None else note.decode()

    def keep_tuned(self, model_id: str, text: str) -> None:
        """Keep a tuned policy in the store, so that restarts and other processes use the same."""
        self._store.put_note(_TUNED + model_id, text.encode())

    def _text(self, group: str, row: ModelRow) -> str:
        """Return a group's policy; `auto` is recommended by the model's fit, tuned, or the default.

        With `explore` every policy plays a uniformly random action with that probability.
        """
        text = self._texts[group]
        if text == AUTO:
            text = notes(row).get("recommended_policy") or self.tuned(row.id) or DEFAULT_POLICY
        if self._explore == 0:
            return text
        return str(PolicySpec("Exploring", {"policy": text, "e": self._explore}))

    def grown(self, model_id: str, before: int = LAST) -> ServedModel:
        """Return a model with the actions added that it lacks and other models had.

        These are the models that were activated before the order `before`. A new action has the
        mean of the average action and a wide variance (`models.growing`). The model itself is
        returned where it lacks none, or where its family cannot take new actions.
        """
        base = self.served(model_id)
        new = self._lacking(base, before)
        if not new:
            return base
        grown = self._grown.get((model_id, new))
        if grown is None:
            try:
                model, catalogue = add_average(base.model, named(base), new)
            except ValueError:  # this kind of model does not support new actions
                return base
            policies = self._policies(self.row(model_id), model, catalogue.features)
            space = action_space(model, catalogue, len(new))
            grown = replace(base, model=model, space=space, policies=policies)
            self._grown[model_id, new] = grown
            while len(self._grown) > _MOST_LOADED:
                self._grown.popitem(last=False)
        self._grown.move_to_end((model_id, new))
        return grown

    def _lacking(self, base: ServedModel, before: int) -> tuple[str, ...]:
        if base.space.names is None:  # requests send the features of each action
            return ()
        models = tuple(dict.fromkeys(a.model for a in self.activations if a.order < before))
        models_then, new = self._lacked.get(base.id, ((), ()))
        if models != models_then:
            names = {name: None for one in models for name in self._names.find(one) or ()}
            new = tuple(name for name in names if not base.space.has(name))
            self._lacked[base.id] = models, new
        return new

    def is_new_action(self, row: DecisionRow) -> bool:
        """Return whether a decision's action is one that its model was not learned for."""
        return self._names.lacks(row)

    def changed(self, change: Callable[[Any, Catalogue], tuple[Any, Catalogue]]) -> ModelRow:
        """Return the active model with another catalogue, as a new row.

        `change` takes model and catalogue; a ValueError of it says why it cannot be.
        """
        row = self.row(self.active.model)
        base = self.served(row.id)
        if base.space.names is None:
            raise Invalid("callers bring the features of every action: there is no catalogue")
        try:
            model, catalogue = change(base.model, named(base))
        except ValueError as error:
            raise Invalid(str(error)) from None
        return model_row(model_files(model, catalogue, notes(row)), row.name)

    def check(self, row: ModelRow) -> ServedModel:
        """Return the model of an artefact, ready to decide; Invalid if it never could."""
        model, catalogue = unpack(row)
        if model.n_sessions is not None:
            raise Invalid(
                f"{row.name} has one instance for each of {model.n_sessions} sessions: a service "
                "needs one model that all sessions share"
            )
        items = None if catalogue is None else catalogue.features
        policies = self._policies(row, model, items)
        space = action_space(model, catalogue)
        try:
            rewards = reward_range(model, notes(row))
        except (TypeError, ValueError) as error:
            raise Invalid(f"{row.name}: its note reward_range: {error}") from None
        return ServedModel(row.id, row.name, model, space, policies, catalogue, rewards)

    def _policies(
        self, row: ModelRow, model: Any, items: FloatArray | None
    ) -> dict[str, GroupPolicy]:
        policies = {}
        try:
            for group in self._texts:
                text = self._text(group, row)
                policy = make_policy(text, model, items)
                belief = policy.init(1)
                policies[group] = GroupPolicy(
                    text,
                    policy,
                    can_encode(policy),
                    _bytes_of(belief),
                    is_order_free(policy, model),
                    draws_depend_on_order(belief),
                    users_of(policy),
                )
        except (TypeError, ValueError, OverflowError, MemoryError) as error:
            raise Invalid(f"{row.name}: {error}") from None
        return policies

    def check_successor(self, new: ServedModel) -> None:
        """Refuse a model that could not answer what the active one could.

        Where callers name actions by id, a successor may be of any family, rank, number of states
        or set of actions: actions that it lacks become new ones (`grown`). Where callers bring
        features, it must take as many.
        """
        if not self.activations:
            return
        old = self.served(self.active.model)
        if old.space.names is None:
            old_features = getattr(old.model, "n_features", None)
            new_features = getattr(new.model, "n_features", None)
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


def named(served: ServedModel) -> Catalogue:
    """Return the catalogue of a model; one of numbers where its actions were given no names."""
    assert served.space.names is not None
    return served.catalogue or Catalogue(served.space.names)


def read_artefact(path: Path, name: str | None = None) -> ModelRow:
    """Return the files of a saved model, as a row; Invalid if they cannot be read."""
    try:
        if sum(_size(path / file) for file in (MANIFEST_FILE, ARRAYS_FILE)) > _MAX_BYTES:
            raise Invalid(f"{path} is larger than {_MAX_BYTES} bytes: it cannot be a model")
        contents = read_files(path)
    except ArtefactError as error:
        raise Invalid(str(error)) from None
    return model_row(contents, name or path.name)


def _size(file: Path) -> int:
    return file.stat().st_size if file.is_file() else 0


def notes(row: ModelRow) -> dict[str, Any]:
    """Return the notes of a row's manifest, such as the recommended policy."""
    files: dict[str, bytes] = msgspec.msgpack.decode(row.files, type=dict[str, bytes])
    return notes_of(files, row.name)


def unpack(row: ModelRow) -> tuple[Any, Catalogue | None]:
    """Return the model of a row, and its catalogue; Invalid if it is not what was saved."""
    files: dict[str, bytes] = msgspec.msgpack.decode(row.files, type=dict[str, bytes])
    try:
        return load_files(files, row.name)
    except ArtefactError as error:
        raise Invalid(str(error)) from None


def _bytes_of(tree: Any) -> int:
    size = getattr(tree, "nbytes", None)
    if size is not None:
        return int(size) + 112  # size of a numpy array object
    return sum(map(_bytes_of, tree)) if isinstance(tree, tuple) else 64


class ActionNames:
    """The ids of each model's actions, for a log that names only those that a request did."""

    def __init__(self, find: Callable[[str], ModelRow | None]) -> None:
        self._find = find
        self._known: dict[str, dict[str, None] | None] = {}
        self._retired: dict[str, Collection[str]] = {}

    def find(self, model_id: str) -> Mapping[str, None] | None:
        """Return the ids in order; None where actions come with each request."""
        if model_id not in self._known:
            row = self._find(model_id)
            space = None if row is None else action_space(*unpack(row))
            names = None if space is None else space.names
            self._known[model_id] = None if names is None else dict.fromkeys(names)
            self._retired[model_id] = () if space is None else space.retired
        return self._known[model_id]

    def offered(self, model_id: str) -> Sequence[str] | None:
        """Return the ids that were not retired, in order; None as in `find`."""
        known = self.find(model_id)
        if known is None:
            return None
        retired = self._retired[model_id]
        return [name for name in known if name not in retired]

    def lacks(self, row: DecisionRow) -> bool:
        """Return whether a decision's action is one that its model was not learned for."""
        if row.features is not None or row.policy == FALLBACK:
            return False
        known = self.find(row.model)
        return known is not None and row.action not in known


def pack(model: Any, name: str, catalogue: Catalogue | None = None) -> ModelRow:
    """Return a model that was made in this process as a row."""
    return model_row(model_files(model, catalogue), name)


def content_id(files: Mapping[str, bytes]) -> str:
    """Return the id of a model: a hash of its files."""
    digest = hashlib.sha256()
    for file_name, content in sorted(files.items()):
        digest.update(f"{file_name}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()[:_ID_DIGITS]


def model_row(files: Mapping[str, bytes], name: str) -> ModelRow:
    """Return a row whose id is that of its content."""
    return ModelRow(content_id(files), name, msgspec.msgpack.encode(dict(files)))


def is_order_free(policy: AnyPolicy, model: Any) -> bool:
    """Return whether the order of a session's rewards does not matter to its belief, to rounding.

    That holds for models whose posteriors are exact; a model or a policy has to say so.
    """
    exact = hasattr(model, "order_free") and model_is_order_free(model)
    return exact and bool(policy.order_free) and policy.learns_from == "any"


def draws_depend_on_order(belief: Any) -> bool:
    """Return whether draws from a belief depend on the order of its rewards, to more than rounding.

    A posterior says so itself where its distribution does not: see `LinearPosterior`.
    """
    if not isinstance(belief, tuple):
        return False
    return getattr(belief, "draws_depend_on_order", False) or any(
        map(draws_depend_on_order, belief)
    )
