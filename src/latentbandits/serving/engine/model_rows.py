"""Models as rows of a store: their files, their notes, and the names of their actions."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from latentbandits.models.artefacts import (
    ARRAYS_FILE,
    MANIFEST_FILE,
    ArtefactError,
    Catalogue,
    Places,
    load_files,
    model_files,
    notes_of,
    read_files,
)
from latentbandits.serving.engine.actions import action_space
from latentbandits.serving.errors import Invalid
from latentbandits.serving.records import FALLBACK, DecisionRow, ModelRow, shown_actions

_MAX_BYTES = 256 * 2**20
_ID_DIGITS = 12
_files = msgspec.msgpack.Decoder(dict[str, bytes]).decode


def read_artefact(path: Path) -> ModelRow:
    """Return the files of a saved model, as a row; Invalid if they cannot be read."""
    try:
        files = [file for file in (path / MANIFEST_FILE, path / ARRAYS_FILE) if file.is_file()]
        if sum(file.stat().st_size for file in files) > _MAX_BYTES:
            raise Invalid(f"{path} is larger than {_MAX_BYTES} bytes: it cannot be a model")
        contents = read_files(path)
    except ArtefactError as error:
        raise Invalid(str(error)) from None
    return model_row(contents, path.name)


def pack(model: Any, name: str, catalogue: Catalogue | None = None) -> ModelRow:
    """Return a model that was made in this process as a row."""
    return model_row(model_files(model, catalogue), name)


def model_row(files: Mapping[str, bytes], name: str) -> ModelRow:
    """Return a row with these files and their hash as its id."""
    return ModelRow(content_id(files), name, msgspec.msgpack.encode(dict(files)))


def content_id(files: Mapping[str, bytes]) -> str:
    """Return the id of a model: a hash of its files."""
    digest = hashlib.sha256()
    for file_name, content in sorted(files.items()):
        digest.update(f"{file_name}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()[:_ID_DIGITS]


def notes(row: ModelRow) -> dict[str, Any]:
    """Return the notes of a row's manifest, such as the recommended policy."""
    return notes_of(_files(row.files), row.name)


def unpack(row: ModelRow) -> tuple[Any, Catalogue | None]:
    """Return the model of a row, and its catalogue; Invalid if it is not what was saved."""
    try:
        return load_files(_files(row.files), row.name)
    except ArtefactError as error:
        raise Invalid(str(error)) from None


class ActionNames:
    """The ids of each model's actions, for a log that holds only the ids named in requests.

    Models whose catalogues begin with the same ids share the memory of these ids.
    """

    def __init__(self, find: Callable[[str], ModelRow | None]) -> None:
        self._find = find
        self._known: dict[str, Places | None] = {}
        self._retired: dict[str, Collection[str]] = {}
        self._longest: list[Places] = []  # of catalogues that do not begin alike

    def find(self, model_id: str) -> Places | None:
        """Return the ids in order; None where actions come with each request."""
        if model_id not in self._known:
            row = self._find(model_id)
            space = None if row is None else action_space(*unpack(row))
            names = None if space is None else space.names
            self._known[model_id] = None if names is None else self._shared(names)
            self._retired[model_id] = () if space is None else space.retired
        return self._known[model_id]

    def _shared(self, names: Sequence[str]) -> Places:
        places = Places({name: i for i, name in enumerate(names)})
        for i, longest in enumerate(self._longest):
            shared = places.sharing(longest)
            if shared is not None:
                self._longest[i] = max(shared, longest, key=len)
                return shared
        self._longest.append(places)
        return places

    def of_all(self, models: Sequence[str]) -> list[str]:
        """Return the ids of the actions that these models have, each once, in order."""
        names: dict[str, None] = {}
        done: dict[int, int] = {}  # how many of the ids that models share are among `names`
        for model in models:
            places = self.find(model)
            if places is not None:
                begin = done.get(places.shared, 0)
                names |= dict.fromkeys(islice(places, begin, None))
                done[places.shared] = max(begin, len(places))
        return list(names)

    def offered(self, model_id: str) -> Sequence[str] | None:
        """Return the ids that were not retired, in order; None as in `find`."""
        known = self.find(model_id)
        if known is None:
            return None
        retired = self._retired[model_id]
        return [name for name in known if name not in retired]

    def lacks(self, row: DecisionRow) -> bool:
        """Return whether a decision has an action that its model was not learned for."""
        if row.features is not None or row.policy == FALLBACK:
            return False
        known = self.find(row.model)
        return known is not None and not all(name in known for name in shown_actions(row))
