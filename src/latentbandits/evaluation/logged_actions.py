"""The actions of logged decisions: their places, eligible ones and features."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from latentbandits.evaluation.log import Columns, EvaluationError
from latentbandits.models.artefacts import Catalogue
from latentbandits.models.checks import BoolArray, FloatArray, IntArray
from latentbandits.models.protocol import with_defaults


class LoggedActions:
    """The actions of every row: their places, the eligible ones, and features."""

    index: IntArray
    n_actions: int
    eligible: BoolArray | None = None
    features: FloatArray | None = None
    items: IntArray | None = None
    item_features: FloatArray | None = None

    def __init__(
        self, frame: pl.DataFrame, names: Columns, model: Any, catalogue: Catalogue | None
    ) -> None:
        chosen = frame[names.action].cast(pl.String)
        offered = _lists(frame, names.eligible)
        n_features = with_defaults(model).n_features
        if n_features is not None:
            if names.features in frame.columns and frame[names.features].null_count() == 0:
                self._brought(frame, names, chosen, offered, n_features)
            else:
                self._from_catalogue(names, chosen, offered, catalogue, n_features)
            return
        ids = _ids(model, catalogue, chosen, offered)
        self.n_actions = len(ids)
        places = {name: i for i, name in enumerate(ids)}
        self.index = _places(chosen, places, names.action)
        if offered is not None:
            self.eligible = _mask(offered, places, names.eligible, len(ids))

    def _from_catalogue(
        self,
        names: Columns,
        chosen: pl.Series,
        offered: pl.Series | None,
        catalogue: Catalogue | None,
        n_features: int,
    ) -> None:
        if catalogue is None or catalogue.features is None:
            raise EvaluationError(
                f"the model takes {n_features} features of every action; the log has no column "
                f"{names.features!r}, and the model no catalogue to take them from"
            )
        places = {name: i for i, name in enumerate(catalogue.ids)}
        items = _places(chosen, places, names.action)
        self.item_features = catalogue.features
        if offered is None:
            self.index, self.n_actions = items, len(catalogue)
            return
        row, item = _exploded(offered, places, names.eligible)
        self._fill(len(chosen), row)
        self.items = np.zeros((len(chosen), self.n_actions), np.int64)
        self.items[row, self._place] = item
        self._choose(row, item == items[row], chosen, names.eligible)

    def _brought(
        self,
        frame: pl.DataFrame,
        names: Columns,
        chosen: pl.Series,
        offered: pl.Series | None,
        n_features: int,
    ) -> None:
        column = frame[names.features]
        if column.dtype == pl.String:
            column = _from_json(column, names.features)
        try:
            row = np.repeat(np.arange(len(frame)), column.list.len().to_numpy())
            rows = column.explode()
            widths = rows.list.len().to_numpy()
            if (widths != n_features).any():
                raise EvaluationError(
                    f"column {names.features!r} has rows of {int(widths.min())} to "
                    f"{int(widths.max())} numbers; the model takes {n_features}"
                )
            values = rows.explode().cast(pl.Float64).to_numpy().reshape(-1, n_features)
        except pl.exceptions.PolarsError as error:
            raise EvaluationError(
                f"column {names.features!r} must hold lists of lists of numbers, one list for "
                f"each action: {error}"
            ) from None
        self._fill(len(frame), row)
        self.features = np.zeros((len(frame), self.n_actions, n_features))
        self.features[row, self._place] = values
        if offered is None:
            self.index = _whole(chosen, names.action)
            return
        ids = offered.explode()
        same = (ids == chosen.gather(pl.Series(row))).to_numpy()
        self._choose(row, same, chosen, names.eligible)

    def _fill(self, n: int, row: IntArray) -> None:
        """Lay out ragged rows; `row` is the row of each entry."""
        counts = np.bincount(row, minlength=n)
        self.n_actions = int(counts.max())
        starts = np.cumsum(counts) - counts
        self._place = np.arange(len(row)) - starts[row]
        self.eligible = np.arange(self.n_actions) < counts[:, None]

    def _choose(self, row: IntArray, same: BoolArray, chosen: pl.Series, name: str) -> None:
        """Find the place of each row's action; `same` marks the entries that equal it."""
        self.index = np.full(len(chosen), -1, np.int64)
        self.index[row[same][::-1]] = self._place[same][::-1]  # of several, the first stays
        if (self.index < 0).any():
            bad = int((self.index < 0).argmax())
            raise EvaluationError(
                f"action {chosen[bad]!r} is not among its decision's {name!r} actions"
            )


def _ids(
    model: Any, catalogue: Catalogue | None, chosen: pl.Series, offered: pl.Series | None
) -> Sequence[str]:
    if catalogue is not None:
        return catalogue.ids
    if model is not None and model.n_actions is not None:
        return [str(i) for i in range(model.n_actions)]
    seen = chosen if offered is None else pl.concat([chosen, offered.explode()])
    ids = seen.unique().drop_nulls().to_list()
    return sorted(ids, key=lambda name: (len(name), name))


def _lists(frame: pl.DataFrame, name: str) -> pl.Series | None:
    """Return the column of lists of action ids; texts are JSON lists, or split at | , or blanks."""
    if name not in frame.columns or frame[name].null_count() == len(frame):
        return None
    column = frame[name]
    if column.null_count():
        raise EvaluationError(
            f"column {name!r} is empty in {column.null_count()} rows and filled in others: name "
            "the eligible actions of every decision, or of none"
        )
    if column.dtype == pl.String:
        if column.str.starts_with("[").all():
            column = _from_json(column, name)
        else:
            column = column.str.replace_all(r"[|,;\s]+", "|").str.strip_chars("|").str.split("|")
    if not isinstance(column.dtype, pl.List):
        raise EvaluationError(
            f"column {name!r} must hold lists of action ids; it holds {column.dtype}"
        )
    return column.cast(pl.List(pl.String))


def _from_json(column: pl.Series, name: str) -> pl.Series:
    try:
        return pl.Series(name, [json.loads(text) for text in column.to_list()])
    except (TypeError, ValueError) as error:
        raise EvaluationError(f"column {name!r} is not JSON: {error}") from None


def _places(chosen: pl.Series, places: Mapping[str, int], name: str) -> IntArray:
    indices = chosen.replace_strict(dict(places), default=None, return_dtype=pl.Int64)
    if indices.null_count():
        unknown = chosen.filter(indices.is_null())
        raise EvaluationError(
            f"column {name!r} has {unknown.n_unique()} actions that the model does not have, such "
            f"as {unknown[0]!r}; the model has {len(places)}, such as {next(iter(places))!r}: is "
            "this the model of these actions?"
        )
    numbers: IntArray = indices.to_numpy()
    return numbers


def _exploded(
    offered: pl.Series, places: Mapping[str, int], name: str
) -> tuple[IntArray, IntArray]:
    row = np.repeat(np.arange(len(offered)), offered.list.len().to_numpy())
    return row, _places(offered.explode(), places, name)


def _mask(
    offered: pl.Series, places: Mapping[str, int], name: str, n_actions: int
) -> BoolArray | None:
    if (offered.list.len() == n_actions).all():
        return None
    row, item = _exploded(offered, places, name)
    mask = np.zeros((len(offered), n_actions), np.bool_)
    mask[row, item] = True
    return mask


def _whole(chosen: pl.Series, name: str) -> IntArray:
    try:
        numbers: IntArray = chosen.cast(pl.Int64, strict=True).to_numpy()
    except pl.exceptions.PolarsError:
        raise EvaluationError(
            f"column {name!r} names actions, and without a column of eligible actions their place "
            "among the features cannot be told: log the eligible actions, or use numbers 0, 1, ..."
        ) from None
    return numbers
