"""The models that a service has: kept in its store, checked before they are used."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from latentbandits.models.artefacts.catalogue import Catalogue
from latentbandits.models.artefacts.files import (
    ARRAYS_FILE,
    MANIFEST_FILE,
    ArtefactError,
    load,
    load_catalogue,
    save,
)
from latentbandits.policies.protocol import AnyPolicy
from latentbandits.policies.registry import AUTO
from latentbandits.serving.engine.actions import ActionSpace, action_space
from latentbandits.serving.engine.propensities import make_policy
from latentbandits.serving.errors import Invalid, NotFound
from latentbandits.serving.records import ActivationRow, ModelRow
from latentbandits.serving.stores.protocol import Store

_MAX_BYTES = 256 * 2**20
_ID_DIGITS = 12
DEFAULT_POLICY = "mmTS"
"""The policy of `auto` where the model was saved without a recommendation."""


@dataclass(frozen=True, eq=False)
class ServedModel:
    """A model ready to decide: its actions, and a policy for each group."""

    id: str
    name: str
    model: Any
    space: ActionSpace
    policies: Mapping[str, AnyPolicy]
    policy_texts: Mapping[str, str]
    catalogue: Catalogue | None = None


class Library:
    """Loads models from the store as sessions need them, and knows which one is active."""

    def __init__(self, store: Store, policy: str, holdout: str) -> None:
        self._store = store
        self._names: Mapping[str, str] = {"policy": policy, "holdout": holdout}
        self._served: dict[str, ServedModel] = {}
        self.activations: list[ActivationRow] = []

    def refresh(self) -> None:
        """See what other processes have activated."""
        last = self.activations[-1].order if self.activations else -1
        self.activations += self._store.activations(after=last)

    def forget(self) -> None:
        """Read everything from the store again."""
        self.activations = []
        self._served.clear()

    @property
    def active(self) -> ActivationRow:
        if not self.activations:
            raise Invalid(
                "no model is active: give the folder of a saved model, or --demo to see one"
            )
        return self.activations[-1]

    def served(self, model_id: str) -> ServedModel:
        found = self._served.get(model_id)
        if found is None:
            row = self._store.model(model_id)
            if row is None:
                raise NotFound("model", model_id)
            found = self._served[model_id] = self.check(row)
        return found

    def _policy(self, group: str, row: ModelRow) -> str:
        """The text of a group's policy; `auto` is the one that the fit of the model recommends."""
        name = self._names[group]
        return notes(row).get("recommended_policy", DEFAULT_POLICY) if name == AUTO else name

    def check(self, row: ModelRow) -> ServedModel:
        """The model of an artefact, ready to decide; Invalid if it never could."""
        model, catalogue = unpack(row)
        if model.n_sessions is not None:
            raise Invalid(
                f"{row.name} has one instance for each of {model.n_sessions} sessions: a service "
                "needs one model that all sessions share"
            )
        try:
            items = None if catalogue is None else catalogue.features
            texts = {group: self._policy(group, row) for group in self._names}
            policies = {group: make_policy(text, model, items) for group, text in texts.items()}
        except (TypeError, ValueError) as error:
            raise Invalid(f"{row.name}: {error}") from None
        space = action_space(model, catalogue)
        return ServedModel(row.id, row.name, model, space, policies, texts, catalogue)

    def check_successor(self, new: ServedModel) -> None:
        """Refuse a model that could not answer what the active one could."""
        if not self.activations:
            return
        old = self.served(self.active.model)
        if type(new.model) is not type(old.model):
            raise Invalid(
                f"{new.name} is a {type(new.model).__name__}, the active model a "
                f"{type(old.model).__name__}: requests may fail; send force=true if callers have "
                "changed"
            )
        old_features = getattr(old.model, "n_features", None)
        new_features = getattr(new.model, "n_features", None)
        if old_features != new_features:
            raise Invalid(
                f"{new.name} takes {new_features} features, the active model {old_features}: "
                "requests would fail; send force=true if callers have changed"
            )
        missing = set(old.space.names or ()) - set(new.space.names or ())
        if missing:
            raise Invalid(
                f"{new.name} lacks {len(missing)} actions of the active model, for instance "
                f"{min(missing)!r}: requests would fail; send force=true if callers have changed"
            )


def read_artefact(path: Path, name: str | None = None) -> ModelRow:
    """The files of a saved model, as a row; Invalid if they cannot be read."""
    try:
        files = [path / name for name in (MANIFEST_FILE, ARRAYS_FILE)]
        if sum(file.stat().st_size for file in files) > _MAX_BYTES:
            raise Invalid(f"{path} is larger than {_MAX_BYTES} bytes: it cannot be a model")
        contents = {file.name: file.read_bytes() for file in files}
    except OSError as error:
        lacking = Path(error.filename).name if error.filename else "its files"
        raise Invalid(f"{path} is not a saved model: {lacking}: {error.strerror}") from None
    return model_row(contents, name or path.name)


def notes(row: ModelRow) -> dict[str, Any]:
    """The notes of a row's manifest, such as the recommended policy; empty if there are none."""
    files: dict[str, bytes] = msgspec.msgpack.decode(row.files, type=dict[str, bytes])
    found: dict[str, Any] = msgspec.json.decode(files[MANIFEST_FILE]).get("notes", {})
    return found


def unpack(row: ModelRow) -> tuple[Any, Catalogue | None]:
    """The model of a row, and its catalogue; Invalid if it is not what was saved."""
    files: dict[str, bytes] = msgspec.msgpack.decode(row.files, type=dict[str, bytes])
    with tempfile.TemporaryDirectory(prefix="latentbandits-") as folder:
        for name, content in files.items():
            Path(folder, Path(name).name).write_bytes(content)
        try:
            return load(folder), load_catalogue(folder)
        except ArtefactError as error:
            raise Invalid(str(error).replace(folder, row.name)) from None


class ActionNames:
    """The ids of each model's actions, for a log that names only those that a request did."""

    def __init__(self, find: Callable[[str], ModelRow | None]) -> None:
        self._find = find
        self._known: dict[str, tuple[str, ...] | None] = {}

    def of(self, model_id: str) -> tuple[str, ...] | None:
        """None where they have no names but their numbers."""
        if model_id not in self._known:
            row = self._find(model_id)
            catalogue = None if row is None else unpack(row)[1]
            self._known[model_id] = None if catalogue is None else catalogue.ids
        return self._known[model_id]


def pack(model: Any, name: str, catalogue: Catalogue | None = None) -> ModelRow:
    """A model that was made in this process, as a row."""
    with tempfile.TemporaryDirectory(prefix="latentbandits-") as folder:
        save(model, Path(folder, "model"), catalogue)
        return read_artefact(Path(folder, "model"), name)


def model_row(files: Mapping[str, bytes], name: str) -> ModelRow:
    """A row whose id is that of its content."""
    digest = hashlib.sha256()
    for file_name, content in sorted(files.items()):
        digest.update(f"{file_name}\0{len(content)}\0".encode())
        digest.update(content)
    return ModelRow(digest.hexdigest()[:_ID_DIGITS], name, msgspec.msgpack.encode(dict(files)))
