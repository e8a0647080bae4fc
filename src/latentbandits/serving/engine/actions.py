"""Translate between the ids and features of requests and the actions of the policy."""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import msgspec
import numpy as np

from latentbandits.models.artefacts import Catalogue, Places
from latentbandits.models.attributes.columns import Encoder
from latentbandits.models.attributes.parts import part
from latentbandits.models.checks import BoolArray, FloatArray
from latentbandits.models.growing import offset_place
from latentbandits.models.protocol import KnownModel, with_defaults
from latentbandits.models.visit import Visit
from latentbandits.serving.engine.values import DecisionRequest
from latentbandits.serving.errors import Invalid
from latentbandits.serving.records import DecisionRow

CallerFeatures: TypeAlias = Mapping[str, Any] | Sequence[Sequence[float] | Mapping[str, Any]]
"""Features of a request: a row for each action, of numbers or by name, or one row for all."""


class Named(msgspec.Struct, frozen=True, omit_defaults=True):
    """The names in a request: eligible actions, excluded actions, and the user.

    Without `actions`, all actions of the model but the ones in `exclude` are eligible. `visitor` is
    the row of the user in the population, where the policy has one.
    """

    actions: list[str] | None = None
    exclude: list[str] | None = None
    user: str | None = None
    visitor: int | None = None


_decode = msgspec.json.Decoder(list[str] | Named).decode


def encode_names(named: Named) -> bytes | None:
    """Return the names of a request as the log keeps them; None: it has none.

    >>> encode_names(Named(exclude=["a"])), encode_names(Named(actions=["a"]))
    (b'{"exclude":["a"]}', b'["a"]')
    """
    if named.exclude is None and named.user is None:
        return None if named.actions is None else msgspec.json.encode(named.actions)
    return msgspec.json.encode(named)


def decode_names(data: bytes | None) -> Named:
    """Return the names that `encode_names` turned into these bytes."""
    decoded = Named() if data is None else _decode(data)
    return Named(decoded) if isinstance(decoded, list) else decoded


def decode_features(row: DecisionRow) -> list[list[float]] | None:
    """Return the features that a decision's request sent, a row for each action."""
    if row.features is None:
        return None
    rows: list[list[float]] = np.frombuffer(row.features).reshape(row.n_actions, -1).tolist()
    return rows


class UnknownAction(Invalid):
    """An action that the model does not have; a request's `default` can stand in."""

    code = "unknown_action"


class PolicyInputs(NamedTuple):
    """A request in the form that the policy takes."""

    context: FloatArray | None  # (1, n_actions, n_features)
    eligible: BoolArray | None  # (1, n_actions)
    n_actions: int  # number of actions in the request
    names: Sequence[str] | None  # ids of these actions; None: their indices
    places: Sequence[int] | None  # their indices in the policy's actions; None: the same
    brought: bytes | None = None  # float64 (n_actions, n_features) that the request sent
    visitor: int | None = None  # the user's row, if the policy learns across users

    def answer(self, action: int) -> tuple[str, int]:
        """Return the id of the policy's action, and its index in the request."""
        index = action if self.places is None else self.places.index(action)
        return (str(index) if self.names is None else self.names[index]), index


LARGE = 2**16
"""Numbers in the features of a request from which on it is decided and learned alone."""


class Recalled(NamedTuple):
    """A logged decision as the policy takes it."""

    context: FloatArray | None
    eligible: BoolArray | None
    action: int


def visit(row: int, features: FloatArray | None) -> Any:
    """Return the context of a population policy for the user of this row."""
    return Visit(np.array([row]), features)


class ActionSpace(ABC):
    """The ids, titles and features of a model's actions.

    The model was not learned for the last `n_new` actions of the catalogue. Without a catalogue,
    actions come with each request.
    """

    def __init__(self, catalogue: Catalogue | None, n_new: int) -> None:
        self.catalogue = catalogue
        ids, titles = ((), ()) if catalogue is None else (catalogue.ids, catalogue.names)
        known = len(ids) - n_new
        self.names: Sequence[str] | None = None if catalogue is None else ids[:known]
        self.titles = titles[:known]
        self.new: Sequence[str] = ids[known:]  # known, but never chosen by default
        self.retired = frozenset() if catalogue is None else catalogue.retired
        self._places = Places({}) if catalogue is None else catalogue.places
        offered = [i < known and name not in self.retired for i, name in enumerate(ids)]
        self._mask = None if all(offered) else np.array([offered])

    def has(self, name: str) -> bool:
        """Return whether this is one of `names` or `new`."""
        return name in self._places

    @abstractmethod
    def ask(self, request: DecisionRequest) -> PolicyInputs:
        """Return the request as the policy takes it; Invalid if the model cannot answer it."""

    def _eligible(self, exclude: Sequence[str] | None) -> BoolArray | None:
        """Return the mask of eligible actions for a request that names no actions."""
        return self._mask if exclude is None else self._all_but(exclude, self._mask)

    def _past_mask(self, named: Named, action: int) -> BoolArray | None:
        """Return the mask of a past decision among all actions that chose `action`.

        If `action` is no longer offered, all actions were eligible.
        """
        mask = self._mask if self._mask is not None and self._mask[0, action] else None
        return mask if named.exclude is None else self._all_but(named.exclude, mask)

    def _all_but(self, exclude: Sequence[str], within: BoolArray | None) -> BoolArray:
        """Return the mask of all actions `within` but `exclude`; unknown ids change nothing."""
        mask = np.ones((1, len(self._places)), np.bool_) if within is None else within.copy()
        mask[0, self._places.find([name for name in exclude if name in self._places])] = False
        if not mask.any():
            raise Invalid("`exclude` names every action of the model: none is left to choose")
        return mask

    @abstractmethod
    def recall(self, row: DecisionRow) -> Recalled | None:
        """Return a logged decision for learning; None if the model lacks the played action."""


class FixedActions(ActionSpace):
    """A model with a fixed set of actions, named "0", "1", ... unless the catalogue names them."""

    def __init__(self, n_actions: int, catalogue: Catalogue | None = None, n_new: int = 0) -> None:
        if catalogue is not None and len(catalogue) != n_actions:
            raise Invalid(
                f"the catalogue has {len(catalogue)} actions, the model {n_actions}: they do not "
                "belong together"
            )
        super().__init__(catalogue or Catalogue(list(map(str, range(n_actions)))), n_new)
        self._n_known = n_actions - n_new

    def ask(self, request: DecisionRequest) -> PolicyInputs:
        if request.features is not None:
            raise Invalid("the actions of this model have no features: leave `features` out")
        _check_exclusion(request)
        if request.actions is not None:
            return PolicyInputs(None, *self._restrict(request.actions))
        mask = self._eligible(request.exclude)
        return PolicyInputs(None, mask, self._n_known, self.names, None)

    def _restrict(
        self, actions: Sequence[str], *, past: bool = False
    ) -> tuple[BoolArray, int, Sequence[str], Sequence[int]]:
        places = _find(self._places, actions, () if past else self.retired)
        mask = np.zeros((1, len(self._places)), np.bool_)
        mask[0, places] = True
        return mask, len(actions), actions, places

    def recall(self, row: DecisionRow) -> Recalled | None:
        named = decode_names(row.actions)
        action = self._places.get(row.action)
        if action is None:
            return None
        if named.actions is None:
            return Recalled(None, self._past_mask(named, action), action)
        there = [name for name in named.actions if name in self._places]
        return Recalled(None, self._restrict(there, past=True)[0], action)


class FeaturedActions(ActionSpace):
    """A model that takes features: the caller's, or a catalogue's for named actions.

    Features that callers bring lack the offsets of the catalogue's uncertain actions
    (`models.growing`).
    """

    def __init__(
        self, model: KnownModel, catalogue: Catalogue | None = None, n_new: int = 0
    ) -> None:
        width = with_defaults(model).n_features
        if width is None:
            raise Invalid(f"a {type(model).__name__} does not say how many features it takes")
        features = None if catalogue is None else catalogue.features
        if features is not None and features.shape[1] != width:
            raise Invalid(
                f"the catalogue has {features.shape[1]} features, the model {width}: they do not "
                "belong together"
            )
        super().__init__(None if features is None else catalogue, 0 if features is None else n_new)
        n_offsets = 0 if catalogue is None else catalogue.n_offsets
        self._n_features = width - n_offsets
        self._offsets = [offset_place(model, self._n_features)] * n_offsets
        self._pack = struct.Struct(f"{self._n_features}d").pack
        self._encoder: Encoder | None = part(model, "encoder")
        self._rows = np.empty((0, width)) if features is None else features

    def ask(self, request: DecisionRequest) -> PolicyInputs:
        _check_exclusion(request)
        actions = request.actions
        if request.features is not None:
            return self._of_caller(actions, request.features)
        if self.names is None:
            raise Invalid(
                "this model has no catalogue of actions: send `features`, one row of "
                f"{self._n_features} numbers for each action"
            )
        if actions is None:
            mask = self._eligible(request.exclude)
            return PolicyInputs(self._rows[None], mask, len(self.names), self.names, None)
        rows = self._rows[_find(self._places, actions, self.retired)]
        return PolicyInputs(rows[None], None, len(actions), actions, None)

    def _by_name(self, actions: Sequence[str] | None, features: CallerFeatures) -> Any:
        """Return rows of numbers for features that may be given by name."""
        assert not isinstance(features, Mapping)
        if set(map(type, features)) <= {list, tuple}:  # faster than isinstance checks for Mapping
            return features
        encoder = self._encoder
        if encoder is None:
            raise Invalid(
                "this model knows no names of features: send each row as a list of "
                f"{self._n_features} numbers"
            )
        encoded: list[Any] = []
        for i, row in enumerate(features):
            if not isinstance(row, Mapping):
                encoded.append(row)
                continue
            named = dict(row)
            if encoder.action is not None and actions is not None:
                named.setdefault(encoder.action, actions[i])
            try:
                encoder.check(named, f"features[{i}]")
            except ValueError as error:
                raise Invalid(str(error)) from None
            encoded.append(encoder.encode([named])[0].tolist())
        return encoded

    def _of_caller(self, actions: Sequence[str] | None, features: CallerFeatures) -> PolicyInputs:
        if isinstance(features, Mapping):
            if actions is None:
                raise Invalid(
                    "features that all actions share need `actions`: which are to choose from?"
                )
            features = [features] * len(actions)
        if actions is not None and len(actions) != len(features):
            raise Invalid(
                f"actions and features must go together; got {len(actions)} actions and "
                f"{len(features)} rows of features"
            )
        if actions is not None and len(set(actions)) != len(actions):
            raise Invalid(_twice(actions))
        features = self._by_name(actions, features)
        try:  # takes a third of the time of np.array, and checks the length of each row
            numbers = b"".join([self._pack(*row) for row in features])
        except struct.error:
            n = self._n_features
            i, wrong = next((i, len(row)) for i, row in enumerate(features) if len(row) != n)
            raise Invalid(f"features[{i}] has {wrong} numbers; this model takes {n}") from None
        context = np.frombuffer(numbers).reshape(1, len(features), self._n_features)
        return PolicyInputs(self._widened(context), None, len(features), actions, None, numbers)

    def _widened(self, context: FloatArray) -> FloatArray:
        return np.insert(context, self._offsets, 0.0, axis=-1) if self._offsets else context

    def recall(self, row: DecisionRow) -> Recalled | None:
        if row.features is not None:
            context = np.frombuffer(row.features).reshape(1, row.n_actions, -1)
            if context.shape[2] != self._n_features:
                return None
            return Recalled(self._widened(context), None, row.index)
        if row.action not in self._places:
            return None
        named = decode_names(row.actions)
        if named.actions is None:  # the whole catalogue, which is not copied
            action = self._places.find([row.action])[0]
            return Recalled(self._rows[None], self._past_mask(named, action), action)
        names: Sequence[str] = named.actions
        if not all(name in self._places for name in names):
            names = [row.action]  # others were removed; learning needs the played action only
        rows = self._rows[self._places.find(names)]
        return Recalled(rows[None], None, list(names).index(row.action))


def action_space(
    model: KnownModel, catalogue: Catalogue | None = None, n_new: int = 0
) -> ActionSpace:
    """Return the action space of `model`; Invalid if the catalogue is another model's.

    The model was not learned for the last `n_new` actions of the catalogue.
    """
    if model.n_actions is not None:
        return FixedActions(model.n_actions, catalogue, n_new)
    return FeaturedActions(model, catalogue, n_new)


def _check_exclusion(request: DecisionRequest) -> None:
    named = request.actions is not None or request.features is not None
    if request.exclude is not None and named:
        raise Invalid(
            "`exclude` names actions of the model that are not eligible: leave `actions` and "
            "`features` out"
        )


def _find(places: Places, actions: Sequence[str], retired: Collection[str]) -> list[int]:
    try:
        indices = places.find(actions)
    except KeyError as error:
        raise UnknownAction(
            f"the model has no action {error.args[0]!r}: name actions that it has, or send a "
            "`default` to fall back on"
        ) from None
    if len(set(indices)) != len(indices):
        raise Invalid(_twice(actions))
    gone = [name for name in actions if name in retired]
    if gone:
        raise UnknownAction(
            f"the action {gone[0]!r} was retired: leave it out, or send a `default` to fall back on"
        )
    return indices


def _twice(actions: Sequence[str]) -> str:
    name = next(name for i, name in enumerate(actions) if name in actions[:i])
    return f"actions names {name!r} twice"
