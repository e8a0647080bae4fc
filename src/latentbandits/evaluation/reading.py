"""Read logged decisions from any table with named columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import polars as pl

from latentbandits.evaluation.log import REQUIRED, Columns, DecisionLog, EvaluationError
from latentbandits.evaluation.logged_actions import LoggedActions
from latentbandits.learning.logs.rows import conversion
from latentbandits.learning.logs.tables import (
    ROW_OF_LIST,
    TableSource,
    by_list,
    column_names,
    latest,
    milliseconds,
    read_table,
)
from latentbandits.models.artefacts import Catalogue
from latentbandits.models.checks import FloatArray, IntArray
from latentbandits.models.clicks import AnyClickModel, ClickModel, as_click_model
from latentbandits.policies.decision import LARGEST_REWARD

ROWS = "none"
"""The name of the session column that makes every row a session of its own."""

_PLACE = "__place"  # the column of a row's position in its list, from 0

COUNTED = 101
"""Draws behind a propensity of kind "counted", as the service makes them by default."""


@dataclass(frozen=True, eq=False)
class ReadLog:
    """A log, and facts about its rows."""

    log: DecisionLog
    warnings: list[str]
    missing_by_action: Mapping[str, float]
    n_unrewarded: int


def read_decisions(
    source: TableSource,
    *,
    model: Any = None,
    catalogue: Catalogue | None = None,
    columns: Columns | None = None,
    unrewarded: float | None = None,
    click_model: AnyClickModel = "each",
) -> ReadLog:
    """Read the sessions of a table with one row for each decision or position of a list.

    Actions are named by the `catalogue`'s ids, or by numbers 0..K-1 of `model`. A model with
    features takes them from the log's `features` column, else from the catalogue.

    Args:
        source: a path, a glob or a list of paths; a polars, pandas or Arrow frame; or a mapping of
            columns.
        model: the model whose actions these are; None: the log's own actions, sorted.
        catalogue: names and features of the actions.
        columns: names of the columns.
        unrewarded: the reward of decisions that got none; None: it stays missing.
        click_model: how users look at lists. What is below the click of a cascade was not observed.

    >>> table = {"session": ["a", "a", "b"], "action": [0, 1, 0], "reward": [1.0, None, 0.0]}
    >>> read_decisions(table).log.reward
    array([[ 1., nan],
           [ 0., nan]])
    """
    names = columns or Columns()
    frame = _sorted(load_decisions(source, names), names)
    clicks, length = as_click_model(click_model), 1
    if names.list_id in frame.columns and frame[names.list_id].null_count() < len(frame):
        frame, length = _in_lists(frame, names, clicks, unrewarded)
    codes, lengths, place = _sessions(frame, names)
    if length > 1:
        place = place * length + frame[_PLACE].to_numpy()
    ids = tuple(frame[names.session].unique(maintain_order=True).cast(pl.String).to_list())
    shape = (len(lengths), length * int(lengths.max()))

    def padded(values: Any, fill: Any, dtype: Any) -> Any:
        array = np.full((*shape, *np.shape(values)[1:]), fill, dtype)
        array[codes, place] = values
        return array

    rewards = _numbers(frame, names.reward)
    chance = _propensities(frame, names)
    decided = _times(frame, names.time)
    actions = LoggedActions(frame, names, model, catalogue)
    eligible = None if actions.eligible is None else padded(actions.eligible, False, np.bool_)
    log = DecisionLog(
        action=padded(actions.index, -1, np.int64),
        reward=padded(rewards, np.nan, np.float64),
        lengths=lengths,
        n_actions=actions.n_actions,
        propensity=None if chance is None else padded(chance, np.nan, np.float64),
        eligible=eligible,
        features=None if actions.features is None else padded(actions.features, 0.0, np.float64),
        items=None if actions.items is None else padded(actions.items, 0, np.int64),
        item_features=actions.item_features,
        applied=_applied(frame, names, padded, lengths) if length == 1 else None,
        session_ids=ids,
        length=length,
        shown=padded(True, False, np.bool_) if length > 1 else None,
        clicks=clicks,
        times=None if decided is None else padded(decided / 1000, np.nan, np.float64),
    )
    warnings = _kind_warnings(frame, names)
    missing = _missing_by_action(frame, names)
    n_unrewarded = int(np.isnan(rewards).sum())
    if unrewarded is not None:
        log = log.filled(unrewarded)
    elif n_unrewarded:
        warnings.append(_missing_warning(missing, n_unrewarded, len(frame)))
    return ReadLog(log, warnings, missing, n_unrewarded)


def load_decisions(source: TableSource, names: Columns, also: Sequence[str] = ()) -> pl.DataFrame:
    """Return the rows of a table of decisions, each decision once; `also` are further columns."""
    parts = source if isinstance(source, (list, tuple)) else [source]
    there = {name for part in parts for name in column_names(part)}
    alone = names.session == ROWS and ROWS not in there
    needed = [names.action, names.reward, *also]
    if not alone:
        needed.insert(0, names.session)
    for field, default in asdict(Columns()).items():
        name = getattr(names, field)
        given = name != default  # by the caller, so required
        if field not in REQUIRED and (name in there or given):
            needed.append(name)
    text = [names.session, names.action, names.eligible, names.list_id]
    frame = read_table(source, needed, text=[c for c in text if c in needed]).frame
    if alone:
        frame = frame.with_columns(pl.int_range(pl.len()).cast(pl.String).alias(ROWS))
    for name in (names.session, names.action):
        if frame[name].null_count():
            row = int(frame[name].is_null().arg_max() or 0)
            raise EvaluationError(f"column {name!r} is empty in row {row + 1} of the log")
    return latest(frame, names.decision, names.cursor)


def _sorted(frame: pl.DataFrame, names: Columns) -> pl.DataFrame:
    frame = frame.with_columns(pl.col(names.session).cast(pl.String))
    by = [names.session]
    if names.round in frame.columns:
        frame = frame.with_columns(_whole_rounds(frame[names.round]))
        by.append(names.round)
    return frame.sort(by, maintain_order=True)


def _whole_rounds(rounds: pl.Series) -> pl.Series:
    """Return the column of rounds as integers; refuse missing values, fractions and text."""
    if rounds.dtype.is_integer() and rounds.null_count() == 0:
        return rounds
    numbers = rounds.cast(pl.Float64, strict=False)  # null where it is not a number
    wrong = numbers.is_null() | (numbers != numbers.floor()).fill_null(True)
    if wrong.any():
        value = rounds[int(wrong.arg_max() or 0)]
        raise EvaluationError(
            f"column {rounds.name!r} must hold whole numbers, a session's rounds; it holds "
            f"{value!r}"
        )
    return rounds.cast(pl.Int64)


def _in_lists(
    frame: pl.DataFrame, names: Columns, clicks: ClickModel, unrewarded: float | None
) -> tuple[pl.DataFrame, int]:
    """Return the rows of lists in order, with the position of each, and the longest length.

    A row without a list is a list of one. Rows that a cascade did not reach are left out.
    """
    if names.list_position not in frame.columns:
        raise EvaluationError(
            f"the log has lists ({names.list_id!r}) and no column {names.list_position!r}: name "
            "the position of every row in its list"
        )
    alone = frame[names.list_id].is_null().to_numpy()
    place = _numbers(frame, names.list_position)
    place = np.where(alone, 1, place)
    first = np.nanmin(place)
    if first not in (0, 1) or np.isnan(place).any() or (place != np.floor(place)).any():
        raise EvaluationError(
            f"column {names.list_position!r} counts positions from 1 at the top; it holds {first:g}"
        )
    frame = frame.with_columns(pl.Series(_PLACE, (place - first).astype(np.int64)))
    frame = by_list(frame, names.list_id, pl.col(_PLACE), names.session)
    if frame.select(pl.struct(ROW_OF_LIST, _PLACE).is_duplicated().any()).item():
        raise EvaluationError(
            f"a position repeats in a list ({names.list_id!r}): every position has one row"
        )
    length = int(frame[_PLACE].max()) + 1  # type: ignore[arg-type]
    if clicks.unrolled:
        frame = _reached(frame, names, clicks, unrewarded, length)
    else:
        clicks.check_length(length)
    return frame, length


def _reached(
    frame: pl.DataFrame, names: Columns, clicks: ClickModel, unrewarded: float | None, length: int
) -> pl.DataFrame:
    """Return the rows of a cascade down to its click; without an answer they are not known."""
    number = frame[ROW_OF_LIST].rank("dense").to_numpy().astype(np.int64) - 1
    place = frame[_PLACE].to_numpy()
    rewards = np.full((number.max() + 1, length), np.nan)
    rewards[number, place] = _numbers(frame, names.reward)
    silent = np.asarray(np.isnan(rewards).all(axis=1))
    if silent.any() and unrewarded is None:
        raise EvaluationError(
            f"{int(silent.sum())} of {len(silent)} lists of a cascade got no answer, so that how "
            "far they were read is not known: --unrewarded 0 (unrewarded=0) takes them as lists "
            "without a click"
        )
    rewards[silent] = 0.0
    try:
        told = clicks.observed(rewards)
    except ValueError as error:
        raise EvaluationError(f"the log is not one of a cascade: {error}") from None
    return frame.filter(pl.Series(~np.isnan(told[number, place])))


def _sessions(frame: pl.DataFrame, names: Columns) -> tuple[IntArray, IntArray, IntArray]:
    """Return each row's session, the sessions' lengths, and each row's place in its session."""
    changes = (frame[names.session] != frame[names.session].shift(1)).fill_null(True).to_numpy()
    codes = np.cumsum(changes) - 1
    starts = np.flatnonzero(changes)
    number = np.arange(len(frame))
    if ROW_OF_LIST in frame.columns:  # the rows of a list are one round
        new = (frame[ROW_OF_LIST] != frame[ROW_OF_LIST].shift(1)).fill_null(True).to_numpy()
        number = np.cumsum(new) - 1
    place = number - number[starts][codes]
    lengths = place[np.append(starts[1:], len(frame)) - 1] + 1
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
    """Return the first decision after each reward came; None if that is always the next one."""
    decided, came = _times(frame, names.time), _times(frame, names.reward_time)
    if decided is None or came is None:  # the order of rounds is used instead
        return None
    times = padded(decided.to_numpy(), np.iinfo(np.int64).max, np.int64)
    arrival = padded(came.fill_null(0).to_numpy(), 0, np.int64)
    n, n_rounds = times.shape
    applied = np.empty((n, n_rounds), np.int64)
    for j in range(n_rounds):
        before = (times[:, j + 1 :] < arrival[:, [j]]).sum(axis=1)
        applied[:, j] = j + 1 + before
    if (applied == np.arange(1, n_rounds + 1)).all():
        return None
    return applied


def _times(frame: pl.DataFrame, name: str) -> pl.Series | None:
    """Return a column of times in milliseconds; None if there is none, or it holds no times."""
    if name not in frame.columns:
        return None
    try:
        return milliseconds(frame[name])
    except pl.exceptions.PolarsError:
        return None


def _numbers(frame: pl.DataFrame, name: str) -> FloatArray:
    values = frame[name].drop_nulls()
    try:
        column = frame[name].cast(pl.Float64, strict=False)
        wrong = values.filter(values.cast(pl.Float64, strict=False).is_null())
    except pl.exceptions.PolarsError:
        column, wrong = frame[name], values
    if len(wrong):
        raise EvaluationError(
            f"column {name!r} must hold numbers; it holds {frame[name].dtype}, such as "
            f"{wrong[0]!r}. {conversion(wrong)}"
        )
    numbers: FloatArray = column.fill_null(float("nan")).to_numpy()
    if (np.abs(numbers) > LARGEST_REWARD).any():
        largest = numbers[np.nanargmax(np.abs(numbers))]
        raise EvaluationError(
            f"column {name!r} holds {largest:g}, which is beyond {LARGEST_REWARD:g}: mend or drop "
            "such rows"
        )
    return numbers


def _propensities(frame: pl.DataFrame, names: Columns) -> FloatArray | None:
    """Return the propensity of every decision; None where the log has none."""
    if names.propensity not in frame.columns:
        return None
    chance = _numbers(frame, names.propensity)
    lacking = np.isnan(chance)
    if lacking.all():
        return None
    if lacking.any():
        raise EvaluationError(
            f"{int(lacking.sum())} of {len(chance)} decisions have no propensity in column "
            f"{names.propensity!r}: leave them out, or log every decision's"
        )
    return chance


def _kind_warnings(frame: pl.DataFrame, names: Columns) -> list[str]:
    if names.propensity_kind not in frame.columns:
        return []
    kinds = frame[names.propensity_kind].cast(pl.String)
    conditional = int((kinds == "conditional").sum())
    if conditional:
        raise EvaluationError(
            f"{conditional} decisions have propensities of kind 'conditional' (exact only "
            "given the posterior draws): an action that is sometimes played can have propensity 0, "
            "so that inverse weights are badly biased. Log with exploration: serve --explore 0.1, "
            "or Exploring(policy, 0.1)"
        )
    if not (kinds == "counted").any():
        return []
    counted = frame.filter(kinds == "counted")[names.propensity]
    rare = int((counted <= 3 / COUNTED).sum())
    if rare == 0:
        return []
    return [
        f"{rare} of {len(counted)} counted propensities are at most 3/{COUNTED}, the resolution "
        f"of {COUNTED} draws: rare actions are underweighted (E[1/p] = 1 - (1-p)^{COUNTED}). Log "
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


def _missing_warning(missing: Mapping[str, float], count: int, total: int) -> str:
    low, high = min(missing.values()), max(missing.values())
    return (
        f"{count} of {total} decisions have no reward ({100 * low:.0f}% to {100 * high:.0f}% by "
        "action). Those that came stand for them, divided by the share that came for the same "
        "action and round. This assumes that nothing else decides which rewards come; where a "
        "missing reward means a value (clicks: 0), --unrewarded VALUE counts it instead."
    )
