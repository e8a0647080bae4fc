"""Read logged decisions from any table with named columns."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from latentbandits.evaluation.log import DecisionLog, EvaluationError
from latentbandits.learning.tables import TableSource, column_names, read_table
from latentbandits.models.artefacts.catalogue import Catalogue
from latentbandits.models.checks import BoolArray, FloatArray, IntArray


@dataclass(frozen=True)
class Columns:
    """Names of a log's columns; the defaults are those that `latentbandits export` writes.

    Only `session`, `action` and `reward` must be there. Without `round`, a session's rows are in
    the order of the table. Several rows of one `decision` count once, the last of them: an export
    writes a decision again when its reward comes late. With `time` and `reward_time` a candidate
    learns from a reward only after it came.
    """

    session: str = "session"
    round: str = "round"
    action: str = "action"
    reward: str = "reward"
    propensity: str = "propensity"
    eligible: str = "eligible"
    features: str = "features"
    propensity_kind: str = "propensity_kind"
    decision: str = "decision_id"
    time: str = "time"
    reward_time: str = "reward_time"


_OPTIONAL = (
    "round",
    "propensity",
    "eligible",
    "features",
    "propensity_kind",
    "decision",
    "time",
    "reward_time",
)


@dataclass(frozen=True, eq=False)
class ReadLog:
    """A log, and what reading it found."""

    log: DecisionLog
    warnings: list[str]
    propensity_kinds: Mapping[str, int]
    missing_by_action: Mapping[str, float]
    n_unrewarded: int


def read_decisions(
    source: TableSource,
    *,
    model: Any = None,
    catalogue: Catalogue | None = None,
    columns: Columns | None = None,
    counted_draws: int = 101,
) -> ReadLog:
    """Return the sessions of a table of decisions, one row each.

    Actions are named by the `catalogue`'s ids, or by numbers 0..K-1 of `model`. A model with
    features takes them from the log's `features` column, else from the catalogue.

    Args:
        source: a path, a glob, a polars, pandas or Arrow frame, or a mapping of columns.
        model: the model whose actions these are; None: the log's own actions, sorted.
        catalogue: names and features of the actions.
        columns: names of the columns.
        counted_draws: draws behind a propensity of kind "counted", for the warning about rare
            actions.

    >>> table = {"session": ["a", "a", "b"], "action": [0, 1, 0], "reward": [1.0, None, 0.0]}
    >>> read_decisions(table).log.reward
    array([[ 1., nan],
           [ 0., nan]])
    """
    names = columns or Columns()
    frame = _sorted(_load(source, names), names)
    codes, lengths, place = _sessions(frame, names)
    ids = tuple(frame[names.session].unique(maintain_order=True).cast(pl.String).to_list())
    shape = (len(lengths), int(lengths.max()))

    def padded(values: Any, fill: Any, dtype: Any) -> Any:
        array = np.full((*shape, *np.shape(values)[1:]), fill, dtype)
        array[codes, place] = values
        return array

    reward = padded(_numbers(frame, names.reward), np.nan, np.float64)
    propensity = None
    if names.propensity in frame.columns:
        chance = _numbers(frame, names.propensity)
        if np.isnan(chance).all():
            propensity = None
        elif np.isnan(chance).any():
            raise EvaluationError(
                f"{int(np.isnan(chance).sum())} of {len(chance)} decisions have no propensity in "
                f"column {names.propensity!r}: leave them out, or log every decision's"
            )
        else:
            propensity = padded(chance, np.nan, np.float64)
    actions = _Actions(frame, names, model, catalogue)
    eligible = None if actions.eligible is None else padded(actions.eligible, False, np.bool_)
    log = DecisionLog(
        action=padded(actions.index, -1, np.int64),
        reward=reward,
        lengths=lengths,
        n_actions=actions.n_actions,
        propensity=propensity,
        eligible=eligible,
        features=None if actions.features is None else padded(actions.features, 0.0, np.float64),
        items=None if actions.items is None else padded(actions.items, 0, np.int64),
        item_features=actions.item_features,
        applied=_applied(frame, names, padded, lengths),
        session_ids=ids,
    )
    kinds = _kinds(frame, names)
    warnings = _kind_warnings(kinds, frame, names, counted_draws)
    missing = _missing_by_action(frame, names)
    unrewarded = int(np.isnan(_numbers(frame, names.reward)).sum())
    if unrewarded:
        warnings += _missing_warning(missing, unrewarded, len(frame))
    return ReadLog(log, warnings, kinds, missing, unrewarded)


def _load(source: TableSource, names: Columns) -> pl.DataFrame:
    there = column_names(source)
    needed = [names.session, names.action, names.reward]
    defaults = Columns()
    for field in _OPTIONAL:
        name = getattr(names, field)
        if name in there or name != getattr(defaults, field):  # named by the caller: must be there
            needed.append(name)
    text = [names.session, names.action, names.eligible]
    frame = read_table(source, needed, text=[c for c in text if c in needed]).frame
    for name in (names.session, names.action):
        if frame[name].null_count():
            row = int(frame[name].is_null().arg_max() or 0)
            raise EvaluationError(f"column {name!r} is empty in row {row + 1} of the log")
    if names.decision in frame.columns:
        frame = frame.unique(names.decision, keep="last", maintain_order=True)
    return frame


def _sorted(frame: pl.DataFrame, names: Columns) -> pl.DataFrame:
    frame = frame.with_columns(pl.col(names.session).cast(pl.String))
    by = [names.session]
    if names.round in frame.columns:
        if not frame[names.round].dtype.is_integer():
            try:
                frame = frame.with_columns(pl.col(names.round).cast(pl.Int64, strict=True))
            except pl.exceptions.PolarsError:
                raise EvaluationError(
                    f"column {names.round!r} must hold whole numbers, a session's rounds; it holds "
                    f"{frame[names.round].dtype}"
                ) from None
        by.append(names.round)
    return frame.sort(by, maintain_order=True)


def _sessions(frame: pl.DataFrame, names: Columns) -> tuple[IntArray, IntArray, IntArray]:
    """Return each row's session, the sessions' lengths, and each row's place in its session."""
    changes = (frame[names.session] != frame[names.session].shift(1)).fill_null(True).to_numpy()
    codes = np.cumsum(changes) - 1
    starts = np.flatnonzero(changes)
    lengths = np.diff(np.append(starts, len(frame)))
    place = np.arange(len(frame)) - starts[codes]
    if names.round in frame.columns:
        rounds = frame[names.round].to_numpy()
        first = int(rounds.min())
        if first not in (0, 1):
            raise EvaluationError(
                f"the log's rounds begin at {first}: rounds of a session are counted from 0 or 1. "
                "Is this a part of a longer log? Give the whole log"
            )
        wrong = rounds - first != place
        if wrong.any():
            i = int(wrong.argmax())
            raise EvaluationError(
                f"session {frame[names.session][i]!r} has round {rounds[i]} where round "
                f"{place[i] + first} should be: its history has a gap or a repeated round, and "
                "what a policy would have known there cannot be told. Give whole sessions, each "
                "decision once"
            )
    return codes, lengths, place


def _applied(
    frame: pl.DataFrame, names: Columns, padded: Callable[..., Any], lengths: IntArray
) -> IntArray | None:
    """Return the first decision after each reward came; None if each came before the next."""
    if names.time not in frame.columns or names.reward_time not in frame.columns:
        return None
    try:
        decided = frame[names.time].cast(pl.Datetime("ms")).to_physical().to_numpy()
        came = frame[names.reward_time].cast(pl.Datetime("ms")).to_physical()
    except pl.exceptions.PolarsError:  # text of another form: the order of rounds must do
        return None
    times = padded(decided, np.iinfo(np.int64).max, np.int64)
    arrival = padded(came.fill_null(0).to_numpy(), 0, np.int64)
    n, n_rounds = times.shape
    applied = np.empty((n, n_rounds), np.int64)
    for j in range(n_rounds):
        before = (times[:, j + 1 :] < arrival[:, [j]]).sum(axis=1)
        applied[:, j] = j + 1 + before
    if (applied == np.arange(1, n_rounds + 1)).all():
        return None
    return applied


def _numbers(frame: pl.DataFrame, name: str) -> FloatArray:
    try:
        column = frame[name].cast(pl.Float64, strict=True)
    except pl.exceptions.PolarsError:
        raise EvaluationError(
            f"column {name!r} must hold numbers; it holds {frame[name].dtype}, such as "
            f"{frame[name].drop_nulls()[0]!r}"
        ) from None
    numbers: FloatArray = column.fill_null(float("nan")).to_numpy()
    if np.isinf(numbers).any():
        raise EvaluationError(f"column {name!r} holds an infinite number")
    return numbers


class _Actions:
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
        n_features = getattr(model, "n_features", None)
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
        assert self.eligible is not None
        self.index = _first_match(self.items, items, self.eligible, chosen)

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
        self.index = np.full(len(frame), -1, np.int64)
        self.index[row[same]] = self._place[same]
        if (self.index < 0).any():
            bad = int((self.index < 0).argmax())
            raise EvaluationError(
                f"action {chosen[bad]!r} is not among its decision's {names.eligible!r} actions"
            )

    def _fill(self, n: int, row: IntArray) -> None:
        """Lay out ragged rows: `row` says whose each entry is."""
        counts = np.bincount(row, minlength=n)
        self.n_actions = int(counts.max())
        starts = np.cumsum(counts) - counts
        self._place = np.arange(len(row)) - starts[row]
        self.eligible = np.arange(self.n_actions) < counts[:, None]
        if counts.min() == self.n_actions:
            self.eligible = np.ones((n, self.n_actions), np.bool_)


def _ids(
    model: Any, catalogue: Catalogue | None, chosen: pl.Series, offered: pl.Series | None
) -> Sequence[str]:
    if catalogue is not None:
        return catalogue.ids
    if model is not None and model.n_actions is not None:
        return [str(i) for i in range(model.n_actions)]
    seen = chosen if offered is None else pl.concat([chosen, offered.explode()])
    found = seen.unique().drop_nulls().to_list()
    return sorted(found, key=lambda name: (len(name), name))


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
    found = chosen.replace_strict(dict(places), default=None, return_dtype=pl.Int64)
    if found.null_count():
        unknown = chosen.filter(found.is_null())
        raise EvaluationError(
            f"column {name!r} has {unknown.n_unique()} actions that the model does not have, such "
            f"as {unknown[0]!r}; the model has {len(places)}, such as {next(iter(places))!r}: is "
            "this the model of these actions?"
        )
    numbers: IntArray = found.to_numpy()
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


def _first_match(
    items: IntArray, chosen: IntArray, eligible: BoolArray, names: pl.Series
) -> IntArray:
    same = (items == chosen[:, None]) & eligible
    if not same.any(axis=1).all():
        bad = int((~same.any(axis=1)).argmax())
        raise EvaluationError(f"action {names[bad]!r} is not among its decision's eligible actions")
    index: IntArray = same.argmax(axis=1)
    return index


def _whole(chosen: pl.Series, name: str) -> IntArray:
    try:
        numbers: IntArray = chosen.cast(pl.Int64, strict=True).to_numpy()
    except pl.exceptions.PolarsError:
        raise EvaluationError(
            f"column {name!r} names actions, and without a column of eligible actions their place "
            "among the features cannot be told: log the eligible actions, or use numbers 0, 1, ..."
        ) from None
    return numbers


def _kinds(frame: pl.DataFrame, names: Columns) -> Mapping[str, int]:
    if names.propensity_kind not in frame.columns:
        return {}
    counts = frame[names.propensity_kind].cast(pl.String).fill_null("none").value_counts()
    return {str(kind): int(count) for kind, count in counts.iter_rows()}


def _kind_warnings(
    kinds: Mapping[str, int], frame: pl.DataFrame, names: Columns, draws: int
) -> list[str]:
    if kinds.get("conditional"):
        raise EvaluationError(
            f"{kinds['conditional']} decisions have propensities of kind 'conditional' (exact only "
            "given the posterior draws): an action that is sometimes played can have propensity 0, "
            "so that inverse weights are badly biased. Log with exploration: serve --explore 0.1, "
            "or Exploring(policy, 0.1)"
        )
    if not kinds.get("counted"):
        return []
    counted = frame.filter(pl.col(names.propensity_kind) == "counted")[names.propensity]
    rare = int((counted <= 3 / draws).sum())
    if rare == 0:
        return []
    return [
        f"{rare} of {len(counted)} counted propensities are at most 3/{draws}, the resolution of "
        f"their {draws} draws: rare actions are underweighted (E[1/p] = 1 - (1-p)^{draws}). Log "
        "with exploration (serve --explore) or more draws."
    ]


def _missing_by_action(frame: pl.DataFrame, names: Columns) -> Mapping[str, float]:
    reward = pl.col(names.reward).cast(pl.Float64)
    share = (
        frame.group_by(pl.col(names.action).cast(pl.String).alias("action"))
        .agg((reward.is_null() | reward.is_nan()).mean().alias("missing"))
        .sort("action")
    )
    return {str(action): float(missing) for action, missing in share.iter_rows()}


def _missing_warning(missing: Mapping[str, float], count: int, total: int) -> list[str]:
    low, high = min(missing.values()), max(missing.values())
    text = (
        f"{count} of {total} decisions have no reward ({100 * low:.0f}% to {100 * high:.0f}% by "
        "action)."
    )
    if high - low > 0.1:
        return [
            text + " Dropping them assumes that missingness does not depend on the action, and the "
            "shares differ: give the reward that a missing one means, for instance --unrewarded 0 "
            "for clicks."
        ]
    return [text + " They are dropped from averages; --unrewarded VALUE counts them instead."]
