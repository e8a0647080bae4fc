"""Models that a store keeps as differences from another one, such as one with a shorter catalogue.

A difference is a list for each file: bytes as they are, and pairs (begin, length) of bytes to copy
from the same file of the other model. It can be read without knowing the files' format.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

import msgspec
import numpy as np

from latentbandits.models.artefacts import ARRAYS_FILE
from latentbandits.serving.errors import Damaged
from latentbandits.serving.records import ModelRow

Pieces: TypeAlias = list[tuple[int, int] | bytes]

_LARGEST = 1 / 16  # of a model's size: a larger difference is not kept, but the whole model
_MOST_PARTS = 100  # parts of an array that are compared one by one
_files = msgspec.msgpack.Decoder(dict[str, bytes]).decode
_pieces = msgspec.msgpack.Decoder(dict[str, Pieces]).decode


def as_difference(row: ModelRow, find: Callable[[str], ModelRow | None]) -> ModelRow:
    """Return the row that a store keeps: a small difference from `row.base`, or all files."""
    base = None if row.base is None else find(row.base)
    if base is not None and base.base is None:
        old, new = _files(base.files), _files(row.files)
        changed = {name: _difference(name, old.get(name, b""), new[name]) for name in new}
        files = msgspec.msgpack.encode(changed)
        if len(files) <= _LARGEST * len(row.files):
            return msgspec.structs.replace(row, files=files)
    return msgspec.structs.replace(row, base=None)


def whole(row: ModelRow | None, find: Callable[[str], ModelRow | None]) -> ModelRow | None:
    """Return a kept row with all of its files; `find` returns a kept row.

    It raises Damaged if the row is a difference from a model that the store does not have.
    """
    if row is None or row.base is None:
        return row
    base = find(row.base)
    if base is None or base.base is not None:
        raise Damaged(f"model {row.id} is kept as a difference from {row.base}, which is lost")
    old = _files(base.files)
    files = {
        name: b"".join(
            piece
            if isinstance(piece, bytes)
            else old.get(name, b"")[piece[0] : piece[0] + piece[1]]
            for piece in pieces
        )
        for name, pieces in _pieces(row.files).items()
    }
    return msgspec.structs.replace(row, files=msgspec.msgpack.encode(files))


def unneeded(
    bases: Mapping[str, str | None], replaced: Mapping[str, int], oldest: int
) -> list[str]:
    """Return the models that were replaced before the `oldest` session began and are no base.

    `bases` maps each kept model to the model that it is a difference from.

    >>> unneeded({"a": None, "b": "a", "c": "a", "d": None}, {"a": 1, "b": 2, "d": 3}, oldest=3)
    ['b']
    """
    gone = [one for one in bases if replaced.get(one, oldest) < oldest]
    needed = {base for one, base in bases.items() if one not in gone}
    return [one for one in gone if one not in needed]


def _difference(name: str, old: bytes, new: bytes) -> Pieces:
    """Return the pieces of `new`; each array is compared with the array of the same name."""
    if name != ARRAYS_FILE or not old:
        return [new]
    before, now = _arrays(old), _arrays(new)
    pieces: Pieces = []
    done = 0
    for array, (begin, shape, size) in sorted(now.items(), key=lambda item: item[1][0]):
        pieces.append(new[done:begin])
        done = begin + size * math.prod(shape)
        if array in before and before[array][2] == size:
            pieces += _array_pieces(old, new, before[array], (begin, shape, size))
        else:
            pieces.append(new[begin:done])
    pieces.append(new[done:])
    return [piece for piece in pieces if piece]


def _arrays(data: bytes) -> dict[str, tuple[int, list[int], int]]:
    """Return where each array of a safetensors file begins, its shape, and the bytes of a value."""
    length = int.from_bytes(data[:8], "little")
    header: dict[str, Any] = json.loads(data[8 : 8 + length])
    header.pop("__metadata__", None)
    found = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        n = math.prod(entry["shape"])
        found[name] = (8 + length + begin, entry["shape"], (end - begin) // n if n else 0)
    return found


def _array_pieces(
    old: bytes,
    new: bytes,
    before: tuple[int, list[int], int],
    now: tuple[int, list[int], int],
) -> Iterator[tuple[int, int] | bytes]:
    """Yield the pieces of an array to which something may have been added along one axis."""
    (old_begin, old_shape, _), (begin, shape, size) = before, now
    pairs = enumerate(zip(old_shape, shape, strict=False))
    grown = [axis for axis, (before_it, now_it) in pairs if before_it != now_it]
    axis = grown[0] if grown else 0
    parts = math.prod(shape[:axis])
    if len(shape) != len(old_shape) or len(grown) > 1 or not 0 < parts <= _MOST_PARTS:
        yield new[begin : begin + size * math.prod(shape)]
        return
    old_length, length = size * math.prod(old_shape[axis:]), size * math.prod(shape[axis:])
    for part in range(parts):
        start, old_start = begin + part * length, old_begin + part * old_length
        head, tail = _common(
            np.frombuffer(old, np.uint8, old_length, old_start),
            np.frombuffer(new, np.uint8, length, start),
        )
        yield old_start, head
        yield new[start + head : start + length - tail]
        yield old_start + old_length - tail, tail


def _common(one: Any, other: Any) -> tuple[int, int]:
    """Return how many bytes two arrays have in common at the beginning, and how many at the end."""
    n = min(len(one), len(other))
    different = np.flatnonzero(one[:n] != other[:n])
    head = int(different[0]) if len(different) else n
    rest = n - head
    different = np.flatnonzero(one[len(one) - rest :][::-1] != other[len(other) - rest :][::-1])
    return head, int(different[0]) if len(different) else rest
