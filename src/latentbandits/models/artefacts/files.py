"""Models on disk: a folder with `arrays.safetensors` and a `manifest.json` that vouches for it.

The manifest holds the kind of model, the schema version and the SHA-256 of the arrays, and a
SHA-256 of itself: safetensors alone does not notice a flipped bit. Nothing is ever unpickled.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import safetensors.numpy
from numpy.typing import NDArray
from safetensors import SafetensorError

from latentbandits.models.artefacts.arrays import from_arrays, to_arrays
from latentbandits.models.artefacts.catalogue import Catalogue
from latentbandits.models.protocol import KnownModel, Model
from latentbandits.models.registry import find
from latentbandits.replacing import interrupted, replacing_folder

SCHEMA_VERSION = 1
FORMAT = "latentbandits-model"
ARRAYS_FILE = "arrays.safetensors"
MANIFEST_FILE = "manifest.json"
CATALOGUE = "catalogue."
"""What the names of a catalogue's arrays begin with, beside those of the model."""


class ArtefactError(ValueError):
    """A file that is not a model, or no longer the model that was saved."""


def save(
    model: KnownModel,
    path: str | os.PathLike[str],
    catalogue: Catalogue | None = None,
) -> None:
    """Write `model` to the folder `path`: all of it, or nothing.

    `catalogue` says which actions it was learned for; `load_catalogue` reads it again.

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
    """Write the files of a model into a folder that nobody reads yet.

    `notes` are facts about the model as JSON, such as the policy that its fit recommends; they are
    part of the manifest, and `load_notes` reads them again.
    """
    arrays = to_arrays(model)
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
    if notes:
        manifest["notes"] = dict(notes)
    manifest["manifest_sha256"] = _digest(manifest)
    (folder / ARRAYS_FILE).write_bytes(data)
    (folder / MANIFEST_FILE).write_text(json.dumps(manifest, indent=2) + "\n")


def load(path: str | os.PathLike[str]) -> Model:
    """Read the model that `save` wrote; ArtefactError if it is not exactly that."""
    manifest, arrays = _read(Path(path))
    own = {name: array for name, array in arrays.items() if not name.startswith(CATALOGUE)}
    try:
        return from_arrays(manifest["kind"], own)
    except (TypeError, ValueError) as error:
        raise ArtefactError(f"{path} does not hold a {manifest['kind']}: {error}") from None


def load_notes(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the notes that were written with a model; empty if there were none."""
    notes = _read_manifest(Path(path)).get("notes", {})
    if not isinstance(notes, dict):
        raise ArtefactError(f"{path}: the notes of the manifest are not a JSON object")
    return notes


def load_catalogue(path: str | os.PathLike[str]) -> Catalogue | None:
    """The catalogue that was saved with a model; None if there was none.

    >>> import tempfile
    >>> from latentbandits import GaussianArms
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     model = GaussianArms([[0.9, 0.1]], noise=0.5)
    ...     save(model, folder + "/model", Catalogue(["red", "blue"]))
    ...     load_catalogue(folder + "/model").ids
    ('red', 'blue')
    """
    arrays = _read(Path(path))[1]
    own = {n.removeprefix(CATALOGUE): a for n, a in arrays.items() if n.startswith(CATALOGUE)}
    try:
        return Catalogue.from_arrays(own) if own else None
    except (KeyError, TypeError, ValueError) as error:
        raise ArtefactError(f"{path} does not hold a catalogue: {error}") from None


def _read(folder: Path) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return the manifest and the arrays that it vouches for."""
    while True:
        before = _identity(folder)
        try:
            manifest = _read_manifest(folder)
            return manifest, _read_arrays(folder, manifest)
        except ArtefactError:
            if _identity(folder) == before:  # else it was replaced meanwhile: read the new one
                raise


def _identity(folder: Path) -> tuple[int, int] | None:
    """Return numbers that differ between a folder and the one that replaces it."""
    try:
        status = folder.stat()
    except OSError:
        return None
    return status.st_ino, status.st_ctime_ns


def _read_arrays(folder: Path, manifest: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    try:
        data = (folder / ARRAYS_FILE).read_bytes()
    except OSError as error:
        raise ArtefactError(f"{folder}: cannot read {ARRAYS_FILE}: {error.strerror}") from None
    if hashlib.sha256(data).hexdigest() != manifest["arrays_sha256"]:
        raise ArtefactError(
            f"{folder / ARRAYS_FILE} is not the file that was saved (its SHA-256 differs from the "
            "manifest's): it was truncated or altered; save the model again"
        )
    try:
        return safetensors.numpy.load(data)
    except SafetensorError as error:
        raise ArtefactError(f"{folder} does not hold a {manifest['kind']}: {error}") from None


def _read_manifest(folder: Path) -> dict[str, Any]:
    path = folder / MANIFEST_FILE
    if not path.is_file():
        before = interrupted(folder)
        hint = f"; the model before an interrupted save is {before}: move it back" if before else ""
        raise ArtefactError(f"{folder} is not a saved model: it has no {MANIFEST_FILE}{hint}")
    try:
        manifest = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise ArtefactError(f"{path} cannot be read: {error}") from None
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise ArtefactError(f"{path} is not the manifest of a latentbandits model")
    version = manifest.get("schema_version")
    if version != SCHEMA_VERSION:
        raise ArtefactError(
            f"{path} has schema version {version}; this latentbandits reads {SCHEMA_VERSION}: "
            "upgrade latentbandits, or save the model again with this version"
        )
    if manifest.get("manifest_sha256") != _digest(manifest):
        raise ArtefactError(f"{path} was altered: its SHA-256 is not the one it states")
    try:
        find(str(manifest["kind"]))
    except ValueError as error:
        raise ArtefactError(f"{path} holds a model that is not registered here: {error}") from None
    return manifest


def _digest(manifest: Mapping[str, Any]) -> str:
    content = {name: value for name, value in manifest.items() if name != "manifest_sha256"}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
