"""A belief as bytes: stored and restored to the last bit, for any policy.

A belief is a tree (tuples, lists, dicts, dataclasses) whose leaves are arrays or numbers, and
`policy.init` shows its structure. So the bytes hold only the leaves and two checks: a digest of the
policy and its model, which refuses another policy's belief, and a checksum, which refuses damage. A
policy whose belief is no such tree can be replayed from its log instead; `can_encode` tells.
Functions inside a model (`FunctionModel`) are in the digest by their names only.

Layout, little-endian: magic, digest, CRC-32 of the rest; then for every leaf its dtype, number of
axes, lengths, and values in C order. An axis of stride zero is stored once.
"""

from __future__ import annotations

import hashlib
import math
import struct
import zlib
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from functools import cached_property, lru_cache, partial
from typing import Any, Protocol
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from latentbandits.models.protocol import KnownModel

_MAGIC = b"LBb1"
_DIGEST_BYTES = 12
_HEADER = struct.Struct(f"<4s{_DIGEST_BYTES}sII")  # magic, digest, checksum, number of leaves
_LEAF = struct.Struct("<BB")  # dtype, number of axes
_DTYPES = tuple(
    np.dtype(code)
    for code in ("?", "i1", "<i2", "<i4", "<i8", "u1", "<u2", "<u4", "<u8", "<f2", "<f4", "<f8")
)
_CODES = {dtype: code for code, dtype in enumerate(_DTYPES)}


class BeliefError(ValueError):
    """The belief cannot be encoded, or the bytes cannot be decoded; the message says why."""


class Encodable(Protocol):
    """The part of a policy that gives a belief its structure."""

    @property
    def model_or_none(self) -> KnownModel | None: ...

    def init(self, n_sessions: int = 1) -> Any: ...


class StandsFor:
    """A wrapper that has the same digest as the value inside it."""

    stands_for: Any


def encode(policy: Encodable, belief: Any) -> bytes:
    """Return the belief of `policy` as bytes.

    Raises:
        BeliefError: the belief is no tree of arrays with the structure of `policy.init()`.

    >>> from latentbandits import GaussianArms, mmTS
    >>> policy = mmTS(GaussianArms([[0.9, 0.1], [0.2, 0.8]], noise=0.5, spread=0.1))
    >>> decode(policy, encode(policy, policy.init())).log_weights.round(2)
    array([[-0.69, -0.69]])
    """
    codec = _codec(policy)
    leaves = [_pack(leaf) for leaf in _leaves(codec.template, belief, [])]
    body = b"".join(leaves)
    return _HEADER.pack(_MAGIC, codec.digest, zlib.crc32(body), len(leaves)) + body


def decode(policy: Encodable, data: bytes) -> Any:
    """Return the belief that `encode(policy, ...)` turned into these bytes, equal to the last bit.

    Raises:
        BeliefError: the bytes are damaged, or of another policy, model or version.
    """
    if len(data) < _HEADER.size or data[:4] != _MAGIC:
        raise BeliefError(f"these {len(data)} bytes are not an encoded belief")
    _, digest, checksum, n_leaves = _HEADER.unpack_from(data)
    body = memoryview(data)[_HEADER.size :]
    if zlib.crc32(body) != checksum:
        raise BeliefError("the encoded belief is damaged: its checksum differs")
    codec = _codec(policy)
    if digest != codec.digest:
        raise BeliefError(
            f"the encoded belief is not one of this {type(policy).__name__}: the policy, its "
            "options, its model or the library has changed; replay the log instead"
        )
    try:
        leaves = _unpack(body, n_leaves)
        belief = _rebuild(codec.template, leaves)
        if next(leaves, None) is not None:
            raise ValueError("there are more arrays than the policy has")
    except (struct.error, ValueError, IndexError, StopIteration, TypeError, OverflowError) as error:
        raise BeliefError(f"the encoded belief is damaged: {error}") from None
    return belief


def can_encode(policy: Encodable) -> bool:
    """Tell whether the beliefs of `policy` are trees of arrays.

    >>> from latentbandits import UCB1
    >>> can_encode(UCB1(3))
    True
    """
    try:
        encode(policy, _codec(policy).template)
    except BeliefError:
        return False
    return True


class _Codec:
    """Facts about a policy that encoding needs, computed once; it keeps no reference to it."""

    def __init__(self, policy: Encodable) -> None:
        model = policy.model_or_none
        self.template = policy.init((model.n_sessions if model is not None else None) or 1)
        digest = hashlib.blake2b(digest_size=_DIGEST_BYTES)
        try:
            _describe(digest, policy)
            _describe(digest, self.template, values=False)
        except RecursionError:
            raise BeliefError(f"this {type(policy).__name__} refers to itself") from None
        self.digest = digest.digest()


_codecs: WeakKeyDictionary[Any, _Codec] = WeakKeyDictionary()


def _codec(policy: Encodable) -> _Codec:
    try:
        codec = _codecs.get(policy)
    except TypeError:  # the policy is not hashable or not weakly referencable
        return _Codec(policy)
    if codec is None:
        codec = _codecs[policy] = _Codec(policy)
    return codec


def _stable_name(kind: Any) -> str:
    """Return package and name of a class or function, without its module, which may move."""
    return f"{kind.__module__.partition('.')[0]}.{kind.__qualname__}"


def _describe(digest: Any, value: Any, values: bool = True) -> None:
    """Feed a value to a digest: its types and names, and unless `values` is False its numbers."""
    if isinstance(value, StandsFor):
        _describe(digest, value.stands_for, values)
    elif isinstance(value, np.ndarray):
        digest.update(f"array {value.dtype.str} {value.shape if values else value.ndim};".encode())
        if values:
            digest.update(np.ascontiguousarray(value).tobytes())
    elif value is None or isinstance(value, (bool, int, float, str, bytes, np.generic)):
        digest.update(f"{type(value).__name__} {value if values else None!r};".encode())
    elif isinstance(value, type) or (callable(value) and hasattr(value, "__qualname__")):
        digest.update(f"function {_stable_name(value)};".encode())
    else:
        kind = type(value)
        digest.update(f"{_stable_name(kind)}(".encode())
        for name, branch in _branches(value):
            digest.update(f"{name}=".encode())
            _describe(digest, branch, values)
        digest.update(b")")


def _branches(value: Any) -> list[tuple[str, Any]]:
    """Return the parts of a value by name, without the values of cached properties."""
    if isinstance(value, (tuple, list)):
        return [(str(i), branch) for i, branch in enumerate(value)]
    if isinstance(value, dict):
        return [(str(key), value[key]) for key in sorted(value, key=str)]
    if is_dataclass(value):
        return [(field.name, getattr(value, field.name)) for field in fields(value)]
    if isinstance(value, partial):
        return [("func", value.func), ("args", value.args), ("keywords", value.keywords)]
    if hasattr(value, "__dict__"):
        cached = (name for kind in type(value).__mro__ for name, kept in vars(kind).items()
                  if isinstance(kept, cached_property))  # fmt: skip
        return sorted((name, v) for name, v in vars(value).items() if name not in set(cached))
    raise BeliefError(f"cannot tell one {type(value).__name__} from another: it has no fields")


def _is_node(value: Any) -> bool:
    return isinstance(value, (tuple, list, dict)) or is_dataclass(value)


def _leaves(template: Any, value: Any, leaves: list[Any]) -> list[Any]:
    """Return the leaves of a belief; BeliefError unless it has the structure of `template`."""
    if isinstance(template, np.ndarray) and isinstance(value, np.ndarray):
        leaves.append(value)
    elif isinstance(template, tuple) and type(value) is type(template):
        if len(value) != len(template):
            raise _other_structure(template, value)
        for inner, branch in zip(template, value, strict=True):
            _leaves(inner, branch, leaves)
    elif _is_node(template) or _is_node(value):
        if type(value) is not type(template):
            raise _other_structure(template, value)
        known, branches = _branches(template), _branches(value)
        if [k for k, _ in known] != [k for k, _ in branches]:
            raise _other_structure(template, value)
        for (_, inner), (_, branch) in zip(known, branches, strict=True):
            _leaves(inner, branch, leaves)
    elif (value is None) != (template is None):
        raise _other_structure(template, value)
    elif value is not None:
        leaves.append(value)
    return leaves


def _other_structure(template: Any, value: Any) -> BeliefError:
    return BeliefError(
        f"a belief must keep the structure of policy.init(): {_outline(template)} there is "
        f"{_outline(value)} now"
    )


def _outline(value: Any) -> str:
    if not _is_node(value):
        return type(value).__name__
    return f"{type(value).__name__}({', '.join(name for name, _ in _branches(value))})"


def _rebuild(template: Any, leaves: Iterator[NDArray[Any]]) -> Any:
    """Return the tree of `template` with these leaves."""
    if isinstance(template, np.ndarray):
        return next(leaves)
    if isinstance(template, tuple):
        values = [_rebuild(branch, leaves) for branch in template]
        return type(template)(*values) if hasattr(template, "_fields") else tuple(values)
    if template is None:
        return None
    if not _is_node(template):
        return type(template)(next(leaves)[()])
    branches = {name: _rebuild(branch, leaves) for name, branch in _branches(template)}
    if isinstance(template, dict):
        return {key: branches[str(key)] for key in template}
    return list(branches.values()) if isinstance(template, list) else replace(template, **branches)


def _pack(leaf: Any) -> bytes:
    array = np.asarray(leaf)
    if array.dtype not in _CODES and array.dtype.kind in "iuf":
        array = array.astype(array.dtype.newbyteorder("<"))
    code = _CODES.get(array.dtype)
    if code is None:
        raise BeliefError(
            f"a belief's leaves are arrays of numbers or booleans; got {type(leaf).__name__} of "
            f"{array.dtype}"
        )
    stored = array
    if 0 in array.strides:
        repeated = (
            stride == 0 < length for stride, length in zip(array.strides, array.shape, strict=True)
        )
        stored = array[tuple(slice(0, 1) if once else slice(None) for once in repeated)]
    lengths = _lengths(array.ndim).pack(*array.shape, *stored.shape)
    return _LEAF.pack(code, array.ndim) + lengths + stored.tobytes()


def _unpack(body: memoryview, n_leaves: int) -> Iterator[NDArray[Any]]:
    place = 0
    for _ in range(n_leaves):
        code, n_axes = _LEAF.unpack_from(body, place)
        place += _LEAF.size
        form = _lengths(n_axes)
        lengths = form.unpack_from(body, place)
        place += form.size
        shape, stored = lengths[:n_axes], lengths[n_axes:]
        dtype = _DTYPES[code]
        array = np.frombuffer(body, dtype, math.prod(stored), place).reshape(stored).copy()
        place += array.nbytes
        yield array if shape == stored else np.broadcast_to(array, shape)
    if place != len(body):
        raise ValueError(f"{len(body) - place} bytes are left over")


@lru_cache
def _lengths(n_axes: int) -> struct.Struct:
    """Return the lengths of an array's axes, and how much of each is stored: all, or one."""
    return struct.Struct(f"<{2 * n_axes}Q")
