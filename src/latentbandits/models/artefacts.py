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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, is_dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
from numpy.typing import ArrayLike, NDArray
from safetensors import SafetensorError

from latentbandits.models import checks, registry
from latentbandits.models.attributes.parts import PARTS, part_class, parts_of, with_parts
from latentbandits.models.checks import FloatArray, IntArray
from latentbandits.models.clicks import ClickModel, as_click_model
from latentbandits.models.numerics.arrays import json_bytes
from latentbandits.models.protocol import KnownModel, Model, with_defaults
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
    for name in (one.name for one in fields(kind)):
        value = getattr(model, name)
        if isinstance(value, (np.ndarray, int, float)):
            arrays[name] = np.asarray(value)
        elif isinstance(value, tuple):
            for i, part in enumerate(value):
                arrays |= _prefixed(f"{name}:{i}", part)
        elif callable(value):
            raise TypeError(
                f"a {kind.__name__} is made of functions, and functions cannot be saved: save "
                "what they are made of (their arrays, or the fitted estimator by its own library), "
                f"and make the {kind.__name__} again after loading that"
            )
        elif value is not None:
            arrays |= _prefixed(name, value)
    return arrays


def from_arrays(kind: str, arrays: Arrays) -> Model:
    """Build a model of this kind from the result of `to_arrays`."""
    values: dict[str, Any] = {}
    parts: dict[str, dict[str, NDArray[Any]]] = {}
    for name, array in arrays.items():
        if "/" in name:
            prefix, _, rest = name.partition("/")
            parts.setdefault(prefix, {})[rest] = array
        else:
            values[name] = array.item() if array.ndim == 0 else array
    numbered: dict[str, dict[int, Model]] = {}
    for prefix, part_arrays in parts.items():
        name, *index, inner = prefix.split(":")
        values[name] = from_arrays(inner, part_arrays)
        if index:
            numbered.setdefault(name, {})[int(index[0])] = values[name]
    values |= {name: [several[i] for i in sorted(several)] for name, several in numbered.items()}
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
    clicks = with_defaults(model).click_model
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
    """Return the content of a regular file; refuse others, which might have no end."""
    descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as opened:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file")
        return opened.read()


def _identity(folder: Path) -> tuple[int, int] | None:
    """Return numbers by which a folder differs from its replacement."""
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
    """Return the arrays whose names have this prefix, under names without the prefix."""
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


# The actions that a model was learned for: their ids, names and features.

_ROOM = 0.25  # share of the rows that are kept free behind the features of a longer catalogue
_BYTES_OF_ID = 250  # about: the texts of id and name, and their entry in a dictionary
_RETIRED = "retired must name actions of the catalogue, and leave at least one; got "


class Places:
    """The places of the first `n` ids; longer catalogues add theirs to the same dictionary.

    >>> first = Places({"a": 0, "b": 1})
    >>> longer = first.longer(["c"])
    >>> len(first), "c" in first, longer.find(["c", "a"])
    (2, False, [2, 0])
    """

    __slots__ = ("_n", "_of_all")

    def __init__(self, of_all: dict[str, int]) -> None:
        self._of_all = of_all
        self._n = len(of_all)

    def __len__(self) -> int:
        return self._n

    def __contains__(self, name: object) -> bool:
        result: bool = self._of_all.get(name, self._n) < self._n  # type: ignore[call-overload]
        return result

    def __iter__(self) -> Iterator[str]:
        return islice(self._of_all, self._n)

    @property
    def shared(self) -> int:
        """The same number for all places that share a dictionary."""
        return id(self._of_all)

    def get(self, name: str) -> int | None:
        """Return the place of an id; None if it has none."""
        place = self._of_all.get(name, self._n)
        return place if place < self._n else None

    def find(self, names: Iterable[str]) -> list[int]:
        """Return the places of several ids; KeyError with the first that has none."""
        of_all, n = self._of_all, self._n
        places = [of_all[name] for name in names]
        if len(of_all) > n:
            for name, place in zip(names, places, strict=True):
                if place >= n:
                    raise KeyError(name)
        return places

    def sharing(self, other: Places) -> Places | None:
        """Return these places with the dictionary of `other`; None unless one begins the other."""
        mine, theirs = self._of_all, other._of_all
        both = min(self._n, len(theirs))
        if any(mine.get(name) != place for name, place in islice(theirs.items(), both)):
            return None
        shared = Places(theirs)
        shared._n = both
        return shared if both == self._n else shared.longer(list(islice(mine, both, self._n)))

    def longer(self, ids: Sequence[str]) -> Places:
        """Return the places with new ids added at the end."""
        of_all = self._of_all
        if len(of_all) > self._n:  # another catalogue has added ids of its own
            of_all = {name: place for name, place in of_all.items() if place < self._n}
        for name in ids:
            of_all[name] = len(of_all)
        return Places(of_all)


class _Rows:
    """Features with room for more: longer catalogues write theirs behind them."""

    __slots__ = ("_array", "_used")

    def __init__(self, features: FloatArray, room: int) -> None:
        self._array = np.empty((len(features) + room, features.shape[1]))
        self._array[: len(features)] = features
        self._used = len(features)

    @property
    def nbytes(self) -> int:
        """The bytes of the rows, with the room behind them."""
        return self._array.nbytes

    def extended(self, n: int, rows: FloatArray) -> _Rows:
        """Return rows whose first `n` are these, with `rows` behind them."""
        end = n + len(rows)
        if n != self._used or end > len(self._array):
            return _Rows(self._array[:n], max(len(rows), int(_ROOM * n))).extended(n, rows)
        self._array[n:end] = rows
        self._used = end
        return self

    def first(self, n: int) -> FloatArray:
        """Return the first `n` rows, which cannot be changed through the answer."""
        return checks.frozen(self._array[:n])


@dataclass(frozen=True, eq=False, init=False)
class Catalogue:
    """Action ids in the order of a model's actions, their names, and their features.

    Args:
        ids: one text for each action, all different.
        names: texts for people; None is the ids.
        features: `(n_actions, n_features)` for a model with features, None for arms.
        retired: ids of actions that are never chosen again. They keep their places, so that
            decisions of the past can be read.
        n_offsets: how many of the features are offsets of actions whose vectors are uncertain
            (see `models.growing`).
        averages: average reward of every action in the log, `(n_actions,)`, NaN where it has none;
            the policy `popularity` shows the largest. None: `popularity` uses the model's means.

    >>> catalogue = Catalogue(["m1", "m2"], features=[[1.0, 0.2], [1.0, 0.7]])
    >>> catalogue.context(["m2"])
    array([[[1. , 0.7]]])
    """

    ids: tuple[str, ...]
    names: tuple[str, ...]
    features: FloatArray | None
    retired: frozenset[str]
    n_offsets: int
    averages: FloatArray | None
    places: Places = field(init=False, repr=False)
    _rows: _Rows | None = field(init=False, repr=False)

    def __init__(
        self,
        ids: Sequence[str],
        names: Sequence[str] | None = None,
        features: ArrayLike | None = None,
        retired: Iterable[str] = (),
        n_offsets: int = 0,
        averages: ArrayLike | None = None,
    ) -> None:
        unique = tuple(ids)
        if (
            not unique
            or len(set(unique)) < len(unique)
            or not all(isinstance(i, str) for i in unique)
        ):
            raise ValueError("ids must be different texts, at least one")
        labels = unique if names is None else tuple(names)
        if len(labels) != len(unique) or not all(isinstance(n, str) for n in labels):
            raise ValueError(f"names must be one text for each of {len(unique)} ids")
        vectors = None if features is None else checks.finite_array("features", features, (2,))
        if vectors is not None and len(vectors) != len(unique):
            raise ValueError(f"features must have a row for each of {len(unique)} ids")
        means = None if averages is None else np.asarray(averages, np.float64)
        if means is not None and (means.shape != (len(unique),) or np.isinf(means).any()):
            raise ValueError(f"averages must be a number or NaN for each of {len(unique)} ids")
        gone = frozenset(retired)
        if not gone < set(unique):
            raise ValueError(_RETIRED + str(sorted(gone - set(unique)) or "all of them"))
        object.__setattr__(self, "retired", gone)
        object.__setattr__(self, "n_offsets", checks.count("n_offsets", n_offsets))
        object.__setattr__(self, "averages", None if means is None else checks.frozen(means))
        object.__setattr__(self, "ids", unique)
        object.__setattr__(self, "names", labels)
        object.__setattr__(self, "features", None if vectors is None else checks.frozen(vectors))
        object.__setattr__(self, "places", Places({name: i for i, name in enumerate(unique)}))
        object.__setattr__(self, "_rows", None)

    def longer(
        self, ids: Sequence[str], names: Sequence[str] | None = None, rows: ArrayLike | None = None
    ) -> Catalogue:
        """Return a catalogue with more actions at the end, which shares the memory of this one.

        `rows` are their features, where the catalogue has any. ValueError if an id is not new.

        >>> longer = Catalogue(["m1"], features=[[1.0, 0.2]]).longer(["m2"], rows=[[1.0, 0.7]])
        >>> longer.ids, longer.features.tolist()
        (('m1', 'm2'), [[1.0, 0.2], [1.0, 0.7]])
        """
        self.check_new(ids)
        added = Catalogue(ids, names, rows)  # checks them
        if (added.features is None) != (self.features is None):
            raise ValueError("new actions have features where the others do, and only there")
        n = len(self)
        features, shared = self.features, self._rows
        if features is not None and added.features is not None:
            if added.features.shape[1] != features.shape[1]:
                raise ValueError(f"new actions must have {features.shape[1]} features")
            shared = (shared or _Rows(features, 0)).extended(n, added.features)
            features = shared.first(n + len(added))
        averages = self.averages
        if averages is not None:
            averages = checks.frozen(np.append(averages, np.full(len(added), np.nan)))
        return self._with(
            ids=self.ids + added.ids,
            names=self.names + added.names,
            features=features,
            averages=averages,
            places=self.places.longer(added.ids),
            _rows=shared,
        )

    def check_new(self, ids: Sequence[str]) -> None:
        """Raise ValueError if one of these ids is in the catalogue, or twice among them."""
        seen: set[str] = set()
        for name in ids:
            if name in self.places or name in seen:
                again = " (it is retired)" if name in self.retired else ""
                raise ValueError(f"the catalogue has an action {name!r} already{again}")
            seen.add(name)

    def retire(self, ids: Sequence[str]) -> Catalogue:
        """Return the catalogue with these actions retired: they are never chosen again."""
        self.indices(ids)
        gone = self.retired | set(ids)
        if len(gone) == len(self):
            raise ValueError(_RETIRED + "all of them")
        return self._with(retired=gone)

    def sharing(self, other: Catalogue) -> Catalogue:
        """Return this catalogue in the memory of `other`, if one begins like the other."""
        n = len(other)
        if self.ids[:n] != other.ids or self.names[:n] != other.names:
            return self
        rows = None
        if self.features is not None and other.features is not None:
            if not np.array_equal(self.features[:n], other.features):
                return self
            rows = self.features[n:]
        elif self.features is not other.features:
            return self
        longer = other if n == len(self) else other.longer(self.ids[n:], self.names[n:], rows)
        return longer._with(retired=self.retired, n_offsets=self.n_offsets, averages=self.averages)

    def parts(self) -> dict[int, int]:
        """Return the bytes of the shared parts and of the rest of this catalogue, by identity."""
        parts = {id(self): 32 * len(self), self.places.shared: _BYTES_OF_ID * len(self)}
        if self._rows is not None:
            parts[id(self._rows)] = self._rows.nbytes
        elif self.features is not None:
            parts[id(self.features)] = self.features.nbytes
        return parts

    def _with(self, **changes: Any) -> Catalogue:
        """Return the catalogue with other values, which were checked."""
        changed = object.__new__(Catalogue)
        changed.__dict__.update(self.__dict__ | changes)
        return changed

    def __len__(self) -> int:
        return len(self.ids)

    def indices(self, ids: Sequence[str]) -> IntArray:
        """Return the positions of these ids; ValueError names the first that is not there."""
        try:
            return np.array(self.places.find(ids), np.int64)
        except KeyError as error:
            raise ValueError(
                f"the catalogue has no action {error.args[0]!r}; it has {len(self)} actions, such "
                f"as {self.ids[0]!r}"
            ) from None

    def context(self, ids: Sequence[str]) -> FloatArray:
        """Return the features of these actions as the context of one session: `(1, n, d)`."""
        if self.features is None:
            raise ValueError("this catalogue has no features: its model takes no context")
        return self.features[None, self.indices(ids)]

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays of an artefact; texts are the bytes of a JSON list."""
        arrays: dict[str, NDArray[Any]] = {
            "ids": json_bytes(self.ids),
            "names": json_bytes(self.names),
        }
        if self.features is not None:
            arrays["features"] = self.features
        if self.retired:
            arrays["retired"] = json_bytes(sorted(self.retired))
        if self.n_offsets:
            arrays["n_offsets"] = np.array(self.n_offsets)
        if self.averages is not None:
            arrays["averages"] = self.averages
        return arrays

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Catalogue:
        """Return the catalogue that `to_arrays` took apart."""
        ids, names = (json.loads(arrays[name].tobytes()) for name in ("ids", "names"))
        retired = json.loads(arrays["retired"].tobytes()) if "retired" in arrays else ()
        n_offsets = int(arrays.get("n_offsets", np.array(0)))
        return cls(ids, names, arrays.get("features"), retired, n_offsets, arrays.get("averages"))
