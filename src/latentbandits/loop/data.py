"""Prepare the service's log for a fit and for the comparison with the current model."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import numpy as np
import polars as pl

from latentbandits.evaluation.intervals import SessionMean
from latentbandits.models.checks import BoolArray, FloatArray, IntArray
from latentbandits.serving.engine.statistics import GroupTotals
from latentbandits.serving.records import FALLBACK
from latentbandits.serving.settings import uniform

# Divide sessions by fixed hashes: held out of every fit, and thinned by age.

_HOLDOUT, _AGE = b"held out", b"age"  # purposes, whose numbers are independent


def uniforms(sessions: Iterable[str], salt: bytes, purpose: bytes) -> FloatArray:
    """Return a number in [0, 1) for each session id, always the same one.

    >>> uniforms(["ann", "ann"], b"salt", b"age").round(3)
    array([0.015, 0.015])
    """
    return np.array([uniform(name, salt, purpose) for name in sessions], np.float64)


def held_out(sessions: Iterable[str], salt: bytes, share: float) -> BoolArray:
    """Return which sessions no fit may see.

    They are the same in every run, so neither the current model nor a candidate was fitted on one.
    Callers who do not know the salt cannot choose ids of held-out sessions.
    """
    return np.asarray(uniforms(sessions, salt, _HOLDOUT) < share)


def young_enough(
    sessions: Iterable[str], salt: bytes, age: FloatArray, half_life: float
) -> BoolArray:
    """Keep a session of some age with probability 2^(-age / half_life).

    The random numbers differ from the ones of `held_out`: every session to learn from has a large
    number there, so too few of them would be kept.
    """
    number = uniforms(sessions, salt, _AGE)
    return np.asarray(number < 0.5 ** (np.maximum(age, 0.0) / half_life))


MOST_VISITS = 5
"""Sessions of one name that are judged on: nobody who comes again and again decides alone."""


@dataclass(frozen=True, eq=False)
class Divided:
    """The log, divided.

    Attributes:
        recent: decisions that are neither too old nor thinned by age.
        training: recent decisions that a fit may see.
        judging: decisions of held-out sessions whose propensities can be weighted.
        counts: numbers for the record.
    """

    recent: pl.DataFrame
    training: pl.DataFrame
    judging: pl.DataFrame
    counts: dict[str, int]


def divide(
    decisions: pl.DataFrame,
    *,
    salt: bytes,
    share: float,
    since: timedelta | None = None,
    half_life: timedelta | None = None,
    now: datetime | None = None,
) -> Divided:
    """Divide the log's sessions into those to learn from and those to judge on.

    Args:
        decisions: the log, as an export writes it.
        salt: the store's secret, which chooses sessions by a hash of their id.
        share: share of sessions that no fit sees.
        since: leave out decisions older than this.
        half_life: keep a session of age t to learn from with probability 2^(-t / half_life).
        now: the time that ages are measured from.
    """
    now = now or datetime.now(UTC)
    if since is not None:
        decisions = decisions.filter(pl.col("time") >= now - since)
    names = decisions["session"].to_list()
    judged = held_out(names, salt, share)
    kept = np.ones(len(decisions), np.bool_)
    if half_life is not None and len(decisions):
        ages = (now - pl.col("time")).dt.total_milliseconds() / 1000
        age = decisions.select(ages).to_series().to_numpy()
        kept = young_enough(names, salt, age, half_life.total_seconds())
    recent = decisions.filter(pl.Series(kept, dtype=pl.Boolean))
    training = decisions.filter(pl.Series(kept & ~judged, dtype=pl.Boolean))
    judging = numbered_sessions(decisions.filter(pl.Series(judged, dtype=pl.Boolean)))
    usable = weighable(first_visits(judging))
    return Divided(
        recent,
        training,
        usable,
        {
            "decisions": len(decisions),
            "sessions": decisions["session"].n_unique(),
            "training_decisions": len(training),
            "training_sessions": training["session"].n_unique(),
            "held_out_sessions": judging["session"].n_unique(),
            "judged_sessions": usable["session"].n_unique(),
            "unrewarded": int(decisions["reward"].null_count()),
        },
    )


def generation(decisions: pl.DataFrame) -> pl.Expr:
    """Number the sessions of one name from 1.

    A session that ended and began anew counts rounds from the start. The positions of a list share
    a round.

    >>> log = pl.DataFrame({"session": ["ann"] * 4, "round": [1, 2, 1, 2]})
    >>> log.select(generation(log)).to_series().to_list()
    [1, 1, 2, 2]
    """
    again = pl.col("round") <= pl.col("round").shift(1)
    if "list_position" in decisions.columns:
        again &= pl.col("list_position").fill_null(1) == 1
    return 1 + again.fill_null(False).cast(pl.Int64).cum_sum().over("session")


def numbered_sessions(decisions: pl.DataFrame) -> pl.DataFrame:
    """Name each generation of a session: one that ended and began anew is another session."""
    number = generation(decisions).cast(pl.String)
    return decisions.with_columns(
        pl.concat_str(pl.col("session"), pl.lit("#"), number).alias("session")
    )


def first_visits(sessions: pl.DataFrame) -> pl.DataFrame:
    """Return the first sessions of every name, of a table that `numbered_sessions` has named."""
    number = pl.col("session").str.split("#").list.last().cast(pl.Int64)
    return sessions.filter(number <= MOST_VISITS)


def users_of(session_ids: Sequence[str]) -> IntArray:
    """Number the users: sessions that share a name belong to one user.

    >>> users_of(["ann#1", "bob#1", "ann#2"])
    array([0, 1, 0])
    """
    names = [one.rpartition("#")[0] for one in session_ids]
    return np.unique(names, return_inverse=True)[1]


def weighable(decisions: pl.DataFrame) -> pl.DataFrame:
    """Return whole sessions each of whose decisions has a propensity that can be weighted."""
    fine = (
        pl.col("propensity").is_not_null()
        & (pl.col("propensity") > 0)
        & (pl.col("propensity_kind") != "conditional")
        & (pl.col("policy") != FALLBACK)
    )
    place = pl.col("round").rank("dense").over("session")  # positions of a list share their round
    whole = pl.col("round") - pl.col("round").min().over("session") + 1 == place
    first = pl.col("round").min().over("session") == pl.col("round").min()
    return decisions.filter((fine & whole & first).all().over("session"))


def sessions_with_rewards(
    decisions: pl.DataFrame, least: int, after: datetime | None = None
) -> int:
    """Return the number of sessions, begun since a time, with at least `least` rewards.

    >>> log = pl.DataFrame({"session": ["ann", "ann", "bob"], "reward": [1.0, 0.0, 1.0]})
    >>> sessions_with_rewards(log, 2)
    1
    """
    if after is not None:
        decisions = decisions.filter(pl.col("time").min().over("session") >= after)
    counts = decisions.group_by("session").agg(pl.col("reward").count())
    return int((counts["reward"] >= least).sum())


def known_to(decisions: pl.DataFrame, *catalogues: tuple[str, ...]) -> pl.DataFrame:
    """Return the sessions all of whose eligible actions every catalogue has."""
    for ids in catalogues:
        there = pl.col("eligible").list.eval(pl.element().is_in(list(ids))).list.all()
        decisions = decisions.filter(there.all().over("session"))
    return decisions


def typical_rounds(decisions: pl.DataFrame, before: datetime) -> int:
    """Return the median number of rounds of sessions begun before a time; 1 if there are none."""
    sessions = numbered_sessions(decisions).group_by("session")
    begun = sessions.agg(pl.col("round").n_unique(), pl.col("time").min())
    rounds = begun.filter(pl.col("time") < before)["round"].median()
    return 1 if rounds is None else int(np.ceil(rounds))  # type: ignore[arg-type]


def live_groups(
    decisions: pl.DataFrame, after: datetime, horizon: int, unrewarded: float | None
) -> dict[str, SessionMean | None]:
    """Return each live group's mean reward in rounds 1..horizon of sessions begun since a time.

    It is the mean that the page shows: of the rewards that came, with an error over sessions. The
    reward of a list is the sum over its positions.
    """
    sessions = numbered_sessions(decisions)
    came = pl.when(pl.col("reward").count() > 0).then(pl.col("reward").sum())
    reward = pl.col("reward") if unrewarded is None else pl.col("reward").fill_null(unrewarded)
    table = (
        sessions.filter(pl.col("time").min().over("session") >= after)
        .filter(pl.col("round") - pl.col("round").min() < horizon)
        .group_by("session", "round")
        .agg(pl.col("group").first(), came.alias("reward"))
        .group_by("session")
        .agg(pl.col("group").first(), reward.sum().alias("sum"), reward.count().alias("count"))
    )
    totals: dict[str, GroupTotals] = defaultdict(GroupTotals)
    for group, total, count in table.select("group", "sum", "count").iter_rows():
        totals[group].add_session(total, count)
    return {name: one.session_mean() for name, one in totals.items()}
