"""Models on disk: a folder with `arrays.safetensors` and a `manifest.json` that verifies it.

The manifest holds the kind of model, the schema version and the SHA-256 of the arrays, and a
SHA-256 of itself: safetensors alone does not notice a flipped bit. Nothing is ever unpickled.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
from numpy.typing import NDArray
from safetensors import SafetensorError

from latentbandits.models import registry
from latentbandits.models.artefacts.catalogue import Catalogue
from latentbandits.models.attributes.parts import PARTS, part_class, parts_of, with_parts
from latentbandits.models.clicks import ClickModel, as_click_model
from latentbandits.models.protocol import KnownModel, Model
from latentbandits.models.registry import find
from latentbandits.replacing import interrupted, replacing_folder

# Turn a model into named arrays and back, models inside models included.

Arrays = Mapping[str, NDArray[Any]]


def to_arrays(model: KnownModel) -> dict[str, NDArray[Any]]:
    """Return every field of a model as an array.

    Fields of a model inside it are named `field:kind/name`, and of the i-th of several
    `field:i:kind/name`. A field that is None is left out.

    >>> from latentbandits import GaussianArms, Markov
    >>> sorted(to_arrays(Markov(GaussianArms([[1.0]], noise=0.5), [[1.0]])))[:2]
    ['model:GaussianArms/means', 'model:GaussianArms/noise']
    """
    kind = _registered_kind(model)
    arrays: dict[str, NDArray[Any]] = {}
    for field in fields(kind):
        value = getattr(model, field.name)
        if isinstance(value, (np.ndarray, int, float)):
            arrays[field.name] = np.asarray(value)
        elif isinstance(value, tuple):
            for i, part in enumerate(value):
                arrays |= _prefixed(f"{field.name}:{i}", part)
        elif callable(value):
            raise TypeError(
                f"a {kind.__name__} is made of functions, and functions cannot be saved: save "
                "what they are made of (their arrays, or the fitted estimator by its own library), "
                f"and make the {kind.__name__} again after loading that"
            )
        elif value is not None:
            arrays |= _prefixed(field.name, value)
    return arrays


def from_arrays(kind: str, arrays: Arrays) -> Model:
    """Build the model of this kind that `to_arrays` took apart."""
    values: dict[str, Any] = {}
    parts: dict[str, dict[str, NDArray[Any]]] = {}
    for name, array in arrays.items():
        if "/" in name:
            prefix, _, rest = name.partition("/")
            parts.setdefault(prefix, {})[rest] = array
        else:
            values[name] = array.item() if array.ndim == 0 else array
    several: dict[str, dict[int, Model]] = {}
    for prefix, part_arrays in parts.items():
        field, *index, inner = prefix.split(":")
        part = from_arrays(inner, part_arrays)
        if index:
            several.setdefault(field, {})[int(index[0])] = part
        else:
            values[field] = part
    for field, numbered in several.items():
        values[field] = [numbered[i] for i in sorted(numbered)]
    model: Model = registry.find(kind)(**values)
    return model


def _registered_kind(model: KnownModel) -> type[Any]:
    kind = type(model)
    known = registry.kinds()
    if known.get(kind.__name__) is not kind:
        raise TypeError(
            f"cannot save a {kind.__name__}: it is not a registered model "
            "(latentbandits.models.register(kind) makes it one); "
            f"the registered models are {', '.join(known)}"
        )
    if not is_dataclass(kind):
        raise TypeError(f"cannot save a {kind.__name__}: it must be a dataclass")
    return kind


def _prefixed(prefix: str, part: KnownModel) -> dict[str, NDArray[Any]]:
    inner = f"{prefix}:{type(part).__name__}/"
    return {inner + name: array for name, array in to_arrays(part).items()}


SCHEMA_VERSION = 1
FORMAT = "latentbandits-model"
ARRAYS_FILE = "arrays.safetensors"
MANIFEST_FILE = "manifest.json"
CATALOGUE = "catalogue."
"""Prefix of the names of a catalogue's arrays."""


class ArtefactError(ValueError):
    """A file that is not a model, or no longer the model that was saved."""


def save(
    model: KnownModel,
    path: str | os.PathLike[str],
    catalogue: Catalogue | None = None,
) -> None:
    """Write `model` to the folder `path`: all of it, or nothing.

    Args:
        model: any registered model.
        path: a folder that does not exist, or one with a saved model, which is replaced.
        catalogue: the actions that the model was learned for; `load_catalogue` reads it again.

    >>> import tempfile
    >>> from latentbandits import GaussianArms
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(GaussianArms([[0.9, 0.1]], noise=0.5), folder + "/model")
    ...     load(folder + "/model").means
    array([[0.9, 0.1]])
    """
    with replacing(path) as fresh:
        write(model, fresh, catalogue)


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield an empty folder for a model, which takes the place of `path` if the block ends well.

    FileExistsError if there is something at `path` that is not a saved model.
    """
    target = Path(path)
    if target.exists() and not (target / MANIFEST_FILE).is_file():
        raise FileExistsError(f"{target} exists and is not a saved model: choose another path")
    with replacing_folder(target) as fresh:
        yield fresh


def write(
    model: KnownModel,
    folder: Path,
    catalogue: Catalogue | None = None,
    notes: Mapping[str, Any] | None = None,
) -> None:
    """Write the files of a model into a folder that no other process reads yet."""
    for name, content in model_files(model, catalogue, notes).items():
        (folder / name).write_bytes(content)


def model_files(
    model: KnownModel,
    catalogue: Catalogue | None = None,
    notes: Mapping[str, Any] | None = None,
) -> dict[str, bytes]:
    """Return the files of a model, by name.

    `notes` are facts about the model as JSON, such as the policy that its fit recommends; they are
    part of the manifest, and `load_notes` reads them again. A model of clicks at positions notes
    its click model.
    """
    arrays = to_arrays(model)
    for part, value in parts_of(model).items():
        arrays |= {f"{part}.{name}": array for name, array in value.to_arrays().items()}
    if catalogue is not None:
        arrays |= {CATALOGUE + name: array for name, array in catalogue.to_arrays().items()}
    data = safetensors.numpy.save(arrays)
    manifest = {
        "format": FORMAT,
        "schema_version": SCHEMA_VERSION,
        "kind": type(model).__name__,
        "arrays": {name: list(array.shape) for name, array in arrays.items()},
        "arrays_sha256": hashlib.sha256(data).hexdigest(),
    }
    clicks = getattr(model, "click_model", None)
    noted = {} if clicks is None else {"click_model": clicks.text}
    noted |= notes or {}
    if noted:
        manifest["notes"] = noted
    manifest["manifest_sha256"] = _digest(manifest)
    text = json.dumps(manifest, indent=2) + "\n"
    return {ARRAYS_FILE: data, MANIFEST_FILE: text.encode()}


def load(path: str | os.PathLike[str]) -> Model:
    """Read the model that `save` wrote to the folder `path`; ArtefactError if it is damaged."""
    return _model(path, *_verify(read_files(path), path))


def load_notes(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the notes that were written with a model; empty if there were none."""
    return notes_of(read_files(path), path)


def recommended_policy(path: str | os.PathLike[str], default: str) -> str:
    """Return the policy that the fit of a saved model recommends, or `default` if none."""
    results = Path(path, "results.json")
    recommended = load_notes(path).get("recommended_policy")
    if recommended is None and results.is_file():
        recommended = json.loads(results.read_bytes()).get("recommended_policy")
    return default if recommended is None else str(recommended)


def notes_of(files: Mapping[str, bytes], path: Any) -> dict[str, Any]:
    """Return the notes of files that are in memory; `path` is for errors."""
    notes: dict[str, Any] = _manifest(files, path).get("notes", {})
    return notes


def load_click_model(path: str | os.PathLike[str]) -> ClickModel | None:
    """Return the click model that belongs to the model at `path`; None if there is none."""
    notes = load_notes(path)
    return as_click_model(notes["click_model"]) if "click_model" in notes else None


def load_catalogue(path: str | os.PathLike[str]) -> Catalogue | None:
    """Return the catalogue that was saved with the model at `path`; None if there was none.

    >>> import tempfile
    >>> from latentbandits import GaussianArms
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     model = GaussianArms([[0.9, 0.1]], noise=0.5)
    ...     save(model, folder + "/model", Catalogue(["red", "blue"]))
    ...     load_catalogue(folder + "/model").ids
    ('red', 'blue')
    """
    return _catalogue(path, _verify(read_files(path), path)[1])


def load_files(files: Mapping[str, bytes], name: str) -> tuple[Model, Catalogue | None]:
    """Return the model and the catalogue of files that are in memory; `name` is for errors.

    >>> from latentbandits import GaussianArms
    >>> load_files(model_files(GaussianArms([[0.9, 0.1]], noise=0.5)), "mine")[0].means
    array([[0.9, 0.1]])
    """
    manifest, arrays = _verify(files, name)
    return _model(name, manifest, arrays), _catalogue(name, arrays)


def read_files(path: str | os.PathLike[str]) -> dict[str, bytes]:
    """Return the contents of a saved model's files; the two belong together."""
    folder = Path(path)
    while True:
        before = _identity(folder)
        try:
            files = _read_files(folder)
        except ArtefactError:
            if _identity(folder) == before:
                raise
        else:
            if _identity(folder) == before:
                return files
        # The folder was replaced during the read: read the new one.


def _read_files(folder: Path) -> dict[str, bytes]:
    if not (folder / MANIFEST_FILE).exists():
        before = interrupted(folder)
        hint = f"; the model before an interrupted save is {before}: move it back" if before else ""
        raise ArtefactError(f"{folder} is not a saved model: it has no {MANIFEST_FILE}{hint}")
    files = {}
    for name in (MANIFEST_FILE, ARRAYS_FILE):
        try:
            files[name] = _read(folder / name)
        except OSError as error:
            raise ArtefactError(f"{folder}: cannot read {name}: {error.strerror}") from None
    return files


def _read(file: Path) -> bytes:
    """Return what is in a regular file: a pipe or a device might have no end."""
    descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as opened:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file")
        return opened.read()


def _identity(folder: Path) -> tuple[int, int] | None:
    """Return numbers that differ between a folder and the one that replaces it."""
    try:
        status = folder.stat()
    except OSError:
        return None
    return status.st_ino, status.st_ctime_ns


def _model(path: Any, manifest: Mapping[str, Any], arrays: Mapping[str, Any]) -> Model:
    beside = (CATALOGUE, *(f"{part}." for part in PARTS))
    fields = {name: array for name, array in arrays.items() if not name.startswith(beside)}
    try:
        parts = {
            part: part_class(part).from_arrays(part_arrays)
            for part in PARTS
            if (part_arrays := _named(arrays, f"{part}."))
        }
        model = from_arrays(manifest["kind"], fields)
        return with_parts(model, **parts) if parts else model
    except (TypeError, ValueError, KeyError) as error:
        raise ArtefactError(f"{path} does not hold a {manifest['kind']}: {error}") from None


def _named(arrays: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """Return the arrays whose names have this prefix, without it."""
    return {n.removeprefix(prefix): a for n, a in arrays.items() if n.startswith(prefix)}


def _catalogue(path: Any, arrays: Mapping[str, Any]) -> Catalogue | None:
    fields = _named(arrays, CATALOGUE)
    try:
        return Catalogue.from_arrays(fields) if fields else None
    except (KeyError, TypeError, ValueError) as error:
        raise ArtefactError(f"{path} does not hold a catalogue: {error}") from None


def _verify(
    files: Mapping[str, bytes], path: Any
) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return the manifest, and the arrays whose SHA-256 it holds."""
    manifest = _manifest(files, path)
    data = files.get(ARRAYS_FILE)
    if data is None:
        raise ArtefactError(f"{path}: cannot read {ARRAYS_FILE}: there is none")
    if hashlib.sha256(data).hexdigest() != manifest.get("arrays_sha256"):
        raise ArtefactError(
            f"{path}/{ARRAYS_FILE} is not the file that was saved (its SHA-256 differs from the "
            "manifest's): it was truncated or altered; save the model again"
        )
    try:
        return manifest, safetensors.numpy.load(data)
    except (SafetensorError, KeyError) as error:  # KeyError: a type that numpy lacks
        raise ArtefactError(f"{path} does not hold a {manifest['kind']}: {error}") from None


def _manifest(files: Mapping[str, bytes], folder: Any) -> dict[str, Any]:
    if MANIFEST_FILE not in files:
        raise ArtefactError(f"{folder} is not a saved model: it has no {MANIFEST_FILE}")
    path = f"{folder}/{MANIFEST_FILE}"
    try:
        manifest = json.loads(files[MANIFEST_FILE])
        digest = _digest(manifest) if isinstance(manifest, dict) else None
    except (ValueError, RecursionError) as error:
        raise ArtefactError(f"{path} cannot be read: {error}") from None
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise ArtefactError(f"{path} is not the manifest of a latentbandits model")
    version = manifest.get("schema_version")
    if version != SCHEMA_VERSION:
        raise ArtefactError(
            f"{path} has schema version {version}; this latentbandits reads {SCHEMA_VERSION}: "
            "upgrade latentbandits, or save the model again with this version"
        )
    if manifest.get("manifest_sha256") != digest:
        raise ArtefactError(f"{path} was altered: its SHA-256 is not the one it states")
    try:
        find(str(manifest.get("kind"))[:100])
    except ValueError as error:
        raise ArtefactError(f"{path} holds a model that is not registered here: {error}") from None
    if not isinstance(manifest.get("notes", {}), dict):
        raise ArtefactError(f"{folder}: the notes of the manifest are not a JSON object")
    return manifest


def _digest(manifest: Mapping[str, Any]) -> str:
    content = {name: value for name, value in manifest.items() if name != "manifest_sha256"}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
