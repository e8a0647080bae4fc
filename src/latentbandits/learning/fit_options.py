"""Check the options of `fit` before any work; LogError gives the reason for a refusal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, get_args

import polars as pl

from latentbandits.learning.arms.families import Rewards
from latentbandits.learning.arms.learner import Method
from latentbandits.learning.backends.backend import AnyLog, Engine
from latentbandits.learning.logs.formats import LogError, TextFormat
from latentbandits.learning.logs.rows import Log
from latentbandits.learning.logs.summary import LogSummary
from latentbandits.learning.logs.tables import TableSource, read_table
from latentbandits.learning.transforms import TRANSFORMS, Transform
from latentbandits.models.checks import BoolArray, FloatArray, positive_count
from latentbandits.models.registry import reward_families, reward_family

Kind = Literal["auto", "linear", "arms"]
Form = Literal["linear", "arms"]
Auto = Literal["auto"]
Mask = Callable[[FloatArray], BoolArray]

MOST_ARMS = 50
"""Largest number of actions for which `auto` learns a model of arms."""


def check_kind(kind: Form) -> Form:
    """Refuse an unknown kind of model."""
    _one_of("kind", kind, get_args(Kind))
    return kind


def kind_of(kind: Kind, log: AnyLog) -> Form:
    """Return the kind of model to learn; "auto" is arms up to 50 actions."""
    if kind == "auto":
        return "arms" if log.n_actions <= MOST_ARMS else "linear"
    return check_kind(kind)


def check_options(
    kind: Form,
    method: Method,
    reg: float | Auto,
    rewards: Rewards | Auto,
    transform: Transform | None,
    noise: float | None,
) -> None:
    """Refuse an option that only the other kind of model has, instead of ignoring it."""
    _one_of("rewards", rewards, ("auto", *reward_families()))
    _one_of("method", method, get_args(Method))
    if transform is not None:
        _one_of("transform", transform, tuple(TRANSFORMS))
        if rewards not in ("auto", "gaussian"):
            raise LogError(
                f"--transform {transform} makes rewards that are modelled as gaussian; leave "
                f"--rewards {rewards} out, or the transform"
            )
    if kind == "linear" and method != "em":
        raise LogError(f"method {method} is for models of --kind arms; this one is linear")
    if kind == "linear" and rewards not in ("auto", "gaussian", "bernoulli"):
        raise LogError(
            f"--rewards {rewards} is for models of --kind arms; a linear model takes gaussian or "
            "bernoulli rewards"
        )
    if kind == "arms" and reg != "auto":
        raise LogError("reg is for models of --kind linear; a model of arms has none")
    if noise is not None and rewards not in ("auto", "gaussian"):
        raise LogError(f"noise is for gaussian rewards; these are {rewards}")


def check_sizes(kind: Form, states: int | Auto, rank: int | Auto, log: AnyLog) -> None:
    """Refuse more states or a higher rank than the log can have."""
    if states != "auto" and positive_count("states", states) > log.n_users:
        raise LogError(
            f"{states} states are more than the log's {log.n_users:,} users: ask for fewer"
        )
    if rank == "auto":
        return
    if kind == "arms":
        raise LogError("rank is for models of --kind linear; a model of arms has none")
    most = min(log.n_users, log.n_actions)
    if positive_count("rank", rank) > most:
        raise LogError(
            f"rank {rank} is above what the data hold: {log.n_users:,} users x "
            f"{log.n_actions:,} actions have rank {most} at most"
        )


def check_rewards(
    log: LogSummary,
    rewards: Rewards | Auto,
    transform: Transform | None,
    source: TableSource | AnyLog,
    column: str | None,
    text_format: TextFormat,
) -> None:
    """Refuse rewards outside the domain of the requested family or transform."""
    if transform is not None and transform in TRANSFORMS:
        kind = TRANSFORMS[transform]
        wanted = "above -1" if transform == "log1p" else "not negative"
        what, outside = f"--transform {transform}", log.rewards.outside[transform]
        mask: Mask = kind.outside
        help_ = "shift the rewards, or leave the transform out"
    elif rewards != "auto":
        family = reward_family(rewards)
        wanted, what, mask = family.takes(), f"--rewards {rewards}", family.outside
        outside = log.rewards.outside[rewards]
        help_ = "choose another family, or --rewards auto"
    else:
        return
    if outside.n:
        first = _first_row(source, column, text_format, mask) or outside.where
        raise LogError(
            f"{what} takes rewards that are {wanted}; {outside.n:,} of {log.n_events:,} "
            f"are not, the first is {first}: {help_}"
        )


def _first_row(
    source: TableSource | AnyLog, column: str | None, text_format: TextFormat, mask: Mask
) -> str | None:
    """Return the row of the first reward in `mask`; None if the source is not a table."""
    if isinstance(source, (Log, Engine)) or column is None:
        return None
    table = read_table(source, [column], text=(column,), text_format=text_format)
    numbers = table.frame[column].cast(pl.Float64, strict=False).fill_null(0.0).to_numpy()
    outside = mask(numbers)
    if not outside.any():
        return None
    row = int(outside.argmax())
    return f"{table.where(row)}: {numbers[row]:g}"


def _one_of(name: str, value: object, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise LogError(f"{name} must be one of {', '.join(allowed)}; got {value!r}")
