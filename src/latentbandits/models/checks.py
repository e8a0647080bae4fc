"""Checks of the arguments of models and policies, and the messages that they raise."""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

Context: TypeAlias = FloatArray | None
"""None, or the features of every action: `(n_sessions, n_actions, n_features)`."""

_SUM_TOLERANCE = 1e-6
_SYMMETRY_TOLERANCE = 1e-9
_LARGEST = 1e150


def frozen(array: FloatArray) -> FloatArray:
    """Make `array` read-only, because many sessions share it."""
    array.flags.writeable = False
    return array


def finite_array(name: str, value: ArrayLike, dimensions: tuple[int, ...]) -> FloatArray:
    """Return `value` as a float64 array of its own; ValueError if ragged, empty or not finite."""
    try:
        array = np.array(value, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be an array of numbers: {error}") from None
    if array.ndim not in dimensions:
        expected = " or ".join(str(d) for d in dimensions)
        raise ValueError(
            f"{name} must have {expected} dimensions; got {array.ndim}, of shape {array.shape}"
        )
    if array.size == 0:
        raise ValueError(f"{name} is empty: its shape is {array.shape}")
    if not np.isfinite(array).all():
        raise ValueError(f"{name} must be finite; {_first(name, array, ~np.isfinite(array))}")
    return array


def _first(name: str, array: FloatArray, wrong: BoolArray) -> str:
    """Name the first wrong entry of an array, and its value."""
    where = tuple(int(i) for i in np.argwhere(wrong)[0])
    return f"{name}{list(where) if where else ''} is {array[where]}"


def positive_number(name: str, value: Any) -> float:
    """Return `value` as a float above zero."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be a number; got {value!r}") from None
    if not math.isfinite(number) or number <= 0:
        raise ValueError(f"{name} must be a finite number above zero; got {number}")
    if number > _LARGEST:
        raise ValueError(
            f"{name} must be at most {_LARGEST:g}, so that its square is finite; got {number}"
        )
    return number


def positive_count(name: str, value: Any) -> int:
    """Return `value` as a whole number of at least one."""
    return count(name, value, least=1)


def count(name: str, value: Any, least: int = 0) -> int:
    """Return `value` as a whole number of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
        raise ValueError(f"{name} must be a whole number of at least {least}; got {value!r}")
    return int(value)


def non_negative_array(name: str, value: ArrayLike, shape: tuple[int, ...]) -> FloatArray:
    """Return `value` broadcast to `shape`; ValueError if an entry is negative."""
    array = finite_array(name, value, tuple(range(len(shape) + 1)))
    if (array < 0).any():
        raise ValueError(f"{name} must not be negative; {_first(name, array, array < 0)}")
    try:
        return np.broadcast_to(array, shape).copy()
    except ValueError:
        raise ValueError(
            f"{name} must be one number or of shape {shape}; got shape {array.shape}"
        ) from None


def state_prior(
    value: ArrayLike | None, arrays: FloatArray, name: str = "state_prior"
) -> FloatArray:
    """Return P1(s), `(n_states,)` or `(n_sessions, n_states)`; None is uniform.

    The arrays of the model are `(n_states, ...)` or `(n_sessions, n_states, ...)`.
    """
    n_states = arrays.shape[-2]
    if value is None:
        return np.full(n_states, 1.0 / n_states)
    array = finite_array(name, value, (1, 2) if arrays.ndim == 3 else (1,))
    if array.shape[-1] != n_states or (array.ndim == 2 and len(array) != len(arrays)):
        expected = f"({n_states},)" + (f" or {arrays.shape[:2]}" if arrays.ndim == 3 else "")
        raise ValueError(f"{name} must be of shape {expected}; got {array.shape}")
    if (array < 0).any():
        raise ValueError(f"{name} must not be negative; its smallest entry is {array.min()}")
    totals = array.sum(axis=-1, keepdims=True)
    if (np.abs(totals - 1) > _SUM_TOLERANCE).any():
        worst = float(totals.ravel()[np.abs(totals - 1).argmax()])
        raise ValueError(f"{name} must sum to one; it sums to {worst}: divide it by its sum")
    probabilities: FloatArray = array / totals
    return probabilities


def log_prior(prior: FloatArray) -> FloatArray:
    """Return log P1(s) as `(1 or n_sessions, n_states)`; a state of probability zero is -inf."""
    with np.errstate(divide="ignore"):
        return np.log(prior.reshape(-1, prior.shape[-1]))


def covariances(name: str, value: ArrayLike | None, shape: tuple[int, ...]) -> FloatArray:
    """Return symmetric positive semi-definite matrices of `shape`; None is zero."""
    if value is None:
        return np.zeros(shape)
    array = finite_array(name, value, (len(shape),))
    if array.shape != shape:
        raise ValueError(f"{name} must be of shape {shape}; got {array.shape}")
    scale = np.abs(array).max()
    skew = np.abs(array - array.swapaxes(-1, -2))
    if skew.max() > _SYMMETRY_TOLERANCE * scale:
        where = tuple(int(i) for i in np.unravel_index(skew.argmax(), skew.shape))
        raise ValueError(f"{name} must be symmetric; {name}{list(where)} differs by {skew[where]}")
    array = (array + array.swapaxes(-1, -2)) / 2
    smallest = np.linalg.eigvalsh(array)[..., 0]
    if smallest.min() < -_SYMMETRY_TOLERANCE * scale:
        index = tuple(int(i) for i in np.unravel_index(smallest.argmin(), smallest.shape))
        raise ValueError(
            f"{name} must be positive semi-definite; {name}{list(index)} has the eigenvalue "
            f"{smallest[index]}"
        )
    return array


def set_fields(value: object, **fields: Any) -> None:
    """Fill a frozen value's fields, once, in its constructor; arrays become read-only."""
    for name, field in fields.items():
        if isinstance(field, np.ndarray):
            frozen(field)
        object.__setattr__(value, name, field)


def session_count(n_sessions: int, model_sessions: int | None) -> int:
    """Return a count of sessions that fits a model of `model_sessions` (None: any number)."""
    n = positive_count("n_sessions", n_sessions)
    if model_sessions is not None and n != model_sessions:
        raise ValueError(
            f"the model has one instance for each of {model_sessions} sessions; got {n_sessions}"
        )
    return n


def no_context(kind: str, context: ArrayLike | None) -> None:
    """Refuse a context where the model's actions have no features."""
    if context is not None:
        raise ValueError(
            f"{kind} takes no context (its actions have no features): pass None; "
            f"got an array of shape {np.shape(context)}"
        )


def features(context: ArrayLike | None, n_sessions: int, n_features: int) -> FloatArray:
    """Return `context` as finite features `(n_sessions, n_actions, n_features)`."""
    if context is None:
        raise ValueError(
            "this model needs a context: the features of every action, of shape "
            f"(n_sessions={n_sessions}, n_actions, n_features={n_features}); got None"
        )
    array = np.asarray(context)
    if array.dtype != np.float64:
        try:
            array = array.astype(np.float64)
        except (TypeError, ValueError) as error:
            raise ValueError(f"context must be an array of numbers: {error}") from None
    shape = array.shape
    if len(shape) != 3 or shape[0] != n_sessions or shape[2] != n_features or shape[1] < 1:
        raise ValueError(
            f"context must be of shape (n_sessions={n_sessions}, n_actions, "
            f"n_features={n_features}); got {shape}"
        )
    # Fast check: if the sum of squares is finite, so are all values. Otherwise check each one.
    if not math.isfinite(np.vdot(array, array)) and not np.isfinite(array).all():
        session, action, feature = (int(i) for i in np.argwhere(~np.isfinite(array))[0])
        raise ValueError(
            f"context must be finite; session {session}, action {action}, feature {feature} "
            f"is {array[session, action, feature]}"
        )
    return array


def required(context: Context) -> FloatArray:
    """Return the context of a model with features, which `check_context` never leaves None."""
    if context is None:
        raise ValueError("this model needs a context: the features of every action; got None")
    return context


def played(context: Context, action: IntArray) -> FloatArray:
    """Return the features of each session's action: `(n_sessions, n_features)`."""
    return required(context)[np.arange(len(action)), action]


def positive_arrays(**values: ArrayLike) -> dict[str, FloatArray]:
    """Return arrays above zero of one shape, `(n_states, n_actions)` or with sessions first."""
    arrays = {name: finite_array(name, value, (0, 1, 2, 3)) for name, value in values.items()}
    for name, array in arrays.items():
        if (array <= 0).any():
            raise ValueError(f"{name} must be above zero; {_first(name, array, array <= 0)}")
    shapes = {name: array.shape for name, array in arrays.items()}
    try:
        shape = np.broadcast_shapes(*shapes.values())
    except ValueError:
        raise ValueError(f"these shapes do not fit each other: {shapes}") from None
    if len(shape) not in (2, 3):
        raise ValueError(
            f"one of {', '.join(arrays)} must have 2 or 3 dimensions, (n_states, n_actions) or "
            f"with n_sessions first; got the shapes {shapes}"
        )
    return {name: np.broadcast_to(array, shape).copy() for name, array in arrays.items()}


def set_positive(value: object, prior: ArrayLike | None, **arrays: ArrayLike) -> None:
    """Fill a frozen value's fields with arrays above zero of one shape, and with P1(s)."""
    fields = positive_arrays(**arrays)
    set_fields(value, **fields, state_prior=state_prior(prior, next(iter(fields.values()))))


def above(name: str, array: FloatArray, least: float, why: str) -> None:
    """Refuse entries that are not above `least`."""
    if (array <= least).any():
        wrong = _first(name, array, array <= least)
        raise ValueError(f"{name} must be above {least:g}, {why}; {wrong}")


def with_one_more(array: FloatArray, other: FloatArray, axis: int) -> FloatArray:
    """Return a model's array with one more state, taken from `other`, at the end of the axis."""
    shape = list(array.shape)
    shape[axis] = 1
    return np.concatenate([array, np.broadcast_to(other, shape)], axis=axis)


def extended_prior(prior: FloatArray, probability: float) -> FloatArray:
    """Return P1(s) with one more state of this probability; the others shrink by one factor."""
    if not 0 < probability < 1:
        raise ValueError(f"the probability of one more state must be in (0, 1); got {probability}")
    last = np.full((*prior.shape[:-1], 1), probability)
    return np.concatenate([prior * (1 - probability), last], axis=-1)


def transition_matrix(value: ArrayLike, n_states: int, name: str = "transition") -> FloatArray:
    """Return P(next state | state), `(n_states, n_states)`; ValueError unless rows sum to one."""
    array = finite_array(name, value, (2,))
    if array.shape != (n_states, n_states):
        raise ValueError(
            f"{name} must be of shape (n_states, n_states) = {(n_states, n_states)}; "
            f"got {array.shape}"
        )
    if (array < 0).any():
        raise ValueError(f"{name} must not be negative; {_first(name, array, array < 0)}")
    totals = array.sum(axis=1)
    wrong = np.abs(totals - 1) > _SUM_TOLERANCE
    if wrong.any():
        row = int(wrong.argmax())
        raise ValueError(
            f"every row of {name} must sum to one; row {row} sums to {totals[row]:g}: "
            "divide each row by its sum"
        )
    # A row that sums to one but for rounding stays: a saved matrix is the same when it is loaded.
    rounded = np.abs(totals - 1) <= n_states * np.finfo(np.float64).eps
    rows: FloatArray = np.where(rounded[:, None], array, array / totals[:, None])
    return rows
