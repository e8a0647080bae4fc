"""Click models: how a user looks at a list, and so what is observed of it and what it is worth.

A list has one reward per position, `(n_sessions, length)`. NaN is a reward that was not observed.
See Chuklin, Markov & de Rijke (2015), Click Models for Web Search.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from latentbandits.models.checks import BoolArray, FloatArray
from latentbandits.names import one_of


class ClickModel(ABC):
    """The base class: a value that knows what is observed of a list and what the list is worth."""

    name: ClassVar[str]
    unrolled: ClassVar[bool] = False
    """Whether a position is seen only if nothing above it was clicked."""
    for_clicks: ClassVar[bool] = True
    """Whether rewards must be 0 or 1."""

    @property
    def text(self) -> str:
        """The name, with all that `as_click_model` needs to return an equal click model."""
        return self.name

    def looked(self, length: int) -> FloatArray | None:
        """Return P(the user looks at each position), `(length,)`; None: it is observed."""
        return None

    def check_length(self, length: int) -> None:  # noqa: B027 - most allow every length
        """Raise ValueError if lists cannot be so long."""

    def observed(self, rewards: FloatArray) -> FloatArray:
        """Return the rewards that were observed, and NaN for others.

        ValueError if no user can have reacted so.
        """
        if self.for_clicks:
            wrong = ~((rewards == 0) | (rewards == 1) | np.isnan(rewards))
            if wrong.any():
                raise ValueError(
                    f"rewards of the click model {self.name!r} are 1 for a click, 0 for none, or "
                    f"NaN where nothing was observed; {_at(wrong, rewards)}"
                )
        return rewards

    def react(self, attractions: FloatArray, uniform: FloatArray) -> FloatArray:
        """Return what is observed of lists whose actions would have these rewards if looked at.

        `uniform` (n, length) are uniform random numbers, for users who may not look.
        """
        return attractions

    @abstractmethod
    def value(self, means: FloatArray) -> FloatArray:
        """Return the expected value of lists whose actions have these mean rewards: `(n,)`."""

    def best_value(self, means: FloatArray, length: int) -> FloatArray:
        """Return the value of the best list of `length` actions, -inf marks those not eligible.

        >>> Cascade().best_value(np.array([[0.5, 0.1, 0.2]]), 2)
        array([0.6])
        """
        return self.value(-np.sort(-means, axis=1)[:, :length])


@dataclass(frozen=True)
class Each(ClickModel):
    """The user reacts to every action: the value is the sum of the rewards.

    >>> Each().value(np.array([[0.5, 0.2]]))
    array([0.7])
    """

    name: ClassVar[str] = "each"
    for_clicks: ClassVar[bool] = False

    def value(self, means: FloatArray) -> FloatArray:
        total: FloatArray = means.sum(axis=1)
        return total


@dataclass(frozen=True)
class Cascade(ClickModel):
    """The user reads from the top, clicks the first attractive action, and stops.

    The value is P(click) = 1 - prod_l (1 - mu_l) (Craswell et al. 2008, Kveton et al. 2015).

    >>> Cascade().react(np.array([[0.0, 1.0, 1.0]]), np.zeros((1, 3)))
    array([[ 0.,  1., nan]])
    """

    name: ClassVar[str] = "cascade"
    unrolled: ClassVar[bool] = True

    def observed(self, rewards: FloatArray) -> FloatArray:
        super().observed(rewards)
        twice = (rewards == 1).sum(axis=1) > 1
        if twice.any():
            raise ValueError(
                "in a cascade the user stops at the first click, so a list has at most one; "
                f"this one{_of_session(twice, int(twice.argmax()))} has "
                f"{rewards[twice][0].tolist()}"
            )
        told = self.react(rewards, rewards)
        missing = np.isnan(told) & ~_below_click(rewards)
        gap = missing[:, :-1] & ~np.isnan(told[:, 1:])
        if gap.any():
            session, position = np.argwhere(gap)[0]
            raise ValueError(
                "in a cascade the user reads from the top, so every position above one that was "
                f"seen has a reward; position {position}{_of_session(gap, session)} has none"
            )
        return told

    def react(self, attractions: FloatArray, uniform: FloatArray) -> FloatArray:
        return np.where(_below_click(attractions), np.nan, attractions)

    def value(self, means: FloatArray) -> FloatArray:
        clicked: FloatArray = 1 - np.prod(1 - means, axis=1)
        return clicked


@dataclass(frozen=True)
class Positions(ClickModel):
    """The user looks at position l with probability e_l, and clicks there if attracted.

    P(click at l) = e_l mu_l, and the value is sum_l e_l mu_l; whether a position was looked at is
    hidden (the position-based model, Richardson et al. 2007).

    Args:
        examination: e_l of every position, in (0, 1]; e_1 = 1 fixes the scale.

    >>> Positions((1.0, 0.5)).value(np.array([[0.5, 0.2]]))
    array([0.6])
    """

    examination: tuple[float, ...]
    name: ClassVar[str] = "positions"

    def __init__(self, examination: Sequence[float] | ArrayLike) -> None:
        values = np.asarray(examination, np.float64)
        if values.ndim != 1 or len(values) == 0 or not ((values > 0) & (values <= 1)).all():
            raise ValueError(
                "examination must be the probabilities of looking at each position, above 0 and "
                f"at most 1; got {examination!r}"
            )
        if values[0] != 1:
            raise ValueError(
                "the first position is always looked at: examination must begin with 1; got "
                f"{values[0]:g}"
            )
        object.__setattr__(self, "examination", tuple(values.tolist()))

    @property
    def text(self) -> str:
        return f"{self.name}({', '.join(map(repr, self.examination))})"

    def looked(self, length: int) -> FloatArray:
        self.check_length(length)
        return np.array(self.examination[:length])

    def check_length(self, length: int) -> None:
        if length > len(self.examination):
            raise ValueError(
                f"examination has {len(self.examination)} positions, so lists cannot have {length}"
            )

    def react(self, attractions: FloatArray, uniform: FloatArray) -> FloatArray:
        return np.where(uniform < self.looked(attractions.shape[1]), attractions, 0.0)

    def value(self, means: FloatArray) -> FloatArray:
        return means @ self.looked(means.shape[1])

    def best_value(self, means: FloatArray, length: int) -> FloatArray:
        best = -np.sort(-means, axis=1)[:, :length]
        return best @ -np.sort(-self.looked(length))


AnyClickModel: TypeAlias = ClickModel | str


def as_click_model(model: AnyClickModel) -> ClickModel:
    """Return the click model of this name or text, or the click model itself.

    >>> as_click_model("cascade"), as_click_model("positions(1, 0.6)")
    (Cascade(), Positions(examination=(1.0, 0.6)))
    """
    if isinstance(model, ClickModel):
        return model
    examination = re.fullmatch(r"positions\((.*)\)", model)
    if examination is not None:
        try:
            return Positions([float(part) for part in examination[1].split(",")])
        except ValueError as error:
            raise ValueError(f"the click model {model!r}: {error}") from None
    if model == Positions.name:
        raise ValueError(
            "the click model 'positions' needs the probabilities of looking at each position: "
            "Positions([1, 0.6, 0.4]), or the text positions(1, 0.6, 0.4)"
        )
    return {"each": Each, "cascade": Cascade}[one_of("click model", model, ("each", "cascade"))]()


def _below_click(rewards: FloatArray) -> BoolArray:
    """Mark the positions below the first click."""
    clicks = (rewards == 1).cumsum(axis=1)
    below: BoolArray = (clicks - (rewards == 1)) > 0
    return below


def _at(wrong: BoolArray, rewards: FloatArray) -> str:
    session, position = np.argwhere(wrong)[0]
    place = f"position {position}{_of_session(wrong, session)}"
    return f"{place} has {rewards[session, position]:g}"


def _of_session(marked: BoolArray, session: int) -> str:
    """Name the session of a list; a single one needs no name."""
    return f" of session {session}" if len(marked) > 1 else ""
