"""Verify a store: checksums, totals, the stream, models and snapshots, against its own log."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple, cast

import msgspec
import numpy as np

from latentbandits.beliefs.encoding import BeliefError, decode
from latentbandits.models.artefacts import ArtefactError, load_files
from latentbandits.serving.engine.model_rows import content_id
from latentbandits.serving.engine.models import Library, ServedModel
from latentbandits.serving.engine.replay import first_belief, replay_rewards
from latentbandits.serving.engine.statistics import STATISTICS, decode_totals
from latentbandits.serving.errors import Damaged, Invalid, NotFound, StoreUnavailable
from latentbandits.serving.records import SnapshotRow
from latentbandits.serving.settings import MAIN, EngineSettings
from latentbandits.serving.stores.protocol import Store
from latentbandits.serving.stores.sql import NOTES, TABLES, SqlReader, paged

_TOLERANCE = 1e-9
_APPLIED = """FROM rewards r WHERE r.session = s.key AND r.status = 'applied' AND NOT EXISTS (
    SELECT 1 FROM rewards x WHERE x.decision = r.decision AND x.id > r.id
    AND x.status = 'applied')"""
_TOTALS = f"""s.key, s.name, s.rounds, s.rewards, s.reward_sum, s.merged_into, s.members,
    (SELECT count(*) FROM decisions d WHERE d.session = s.key),
    (SELECT count(*) {_APPLIED}), (SELECT COALESCE(sum(r.value), 0.0) {_APPLIED})"""


class CheckResult(NamedTuple):
    """The checks that were made, by name, and the problems that were found."""

    counts: dict[str, int]
    problems: list[str]


def check(tables: SqlReader, progress: Callable[[str], None] = lambda text: None) -> CheckResult:
    """Verify everything; each problem is one sentence that names its place."""
    counts: dict[str, int] = {}
    problems: list[str] = []
    steps: tuple[tuple[str, Callable[[], Iterator[str]]], ...] = (
        ("file", tables.file_problems),
        ("rows", lambda: _rows(tables, counts)),
        ("stream", lambda: _stream(tables)),
        ("totals", lambda: _totals(tables)),
        ("models", lambda: _models(tables)),
        ("snapshots", lambda: _snapshots(tables, counts, progress)),
    )
    for name, step in steps:
        progress(name)
        try:
            problems += step()
        except (Damaged, StoreUnavailable) as error:
            problems.append(f"{name}: {error.message}")
    return CheckResult(counts, problems)


def _rows(tables: SqlReader, counts: dict[str, int]) -> Iterator[str]:
    """Compare every row with its checksum."""
    for table in TABLES:
        name = table.name
        counts[name] = 0
        try:
            for values in paged(tables.run, table.listed(), name, table.columns[0]):
                counts[name] += 1
                try:
                    table.verified(values)
                except Damaged as damaged:
                    yield damaged.message
        except (Damaged, StoreUnavailable) as error:
            yield f"table {name}, after {counts[name]} rows: {error.message}"


def _stream(tables: SqlReader) -> Iterator[str]:
    """Check that every decision and every reward has one position in the stream."""
    for table in ("decisions", "rewards"):
        missing = tables.run(
            f"SELECT id FROM {table} t WHERE NOT EXISTS "
            "(SELECT 1 FROM stream s WHERE s.id = t.id) LIMIT 20"
        )
        for (order,) in missing:
            yield f"row {order} of the table {table} is not in the stream: readers never see it"
    extra = tables.run(
        "SELECT position, id FROM stream s WHERE NOT EXISTS (SELECT 1 FROM decisions d "
        "WHERE d.id = s.id) AND NOT EXISTS (SELECT 1 FROM rewards r WHERE r.id = s.id) "
        "AND NOT EXISTS (SELECT 1 FROM audit a WHERE a.id = s.id) LIMIT 20"
    )
    for position, order in extra:
        yield f"position {position} of the stream is of row {order}, which does not exist"


def _totals(tables: SqlReader) -> Iterator[str]:
    """Check that counts and sums of sessions match their rows, members included."""
    trees: dict[int, list[Any]] = {}  # sessions that were merged or merged into
    for row in paged(tables.run, _TOTALS, "sessions s", "s.key"):
        key, name, rounds, rewards, total, into, members, *counted = row
        if into is not None or members:
            trees[key] = [into, (name, rounds, rewards, total), counted]
        else:
            yield from _compare(name, (rounds, rewards, total), counted)
    sums: dict[int, list[float]] = {}
    for key, (_, _, counted) in trees.items():
        root = key
        while root in trees and trees[root][0] is not None:
            root = trees[root][0]
        into = sums.setdefault(root, [0, 0, 0.0])
        for i, value in enumerate(counted):
            into[i] += value
    for root, counted in sums.items():
        if root in trees:
            name, *stated = trees[root][1]
            yield from _compare(name, stated, counted)
    decided = 0
    for values in tables.run(NOTES.select):
        if values[0].startswith(STATISTICS):
            try:
                totals = decode_totals(NOTES.row(values).value)
            except (Damaged, msgspec.DecodeError) as error:
                yield f"the note {values[0]} is damaged; the next start computes it anew ({error})"
                return
            decided += totals.counts.get("decisions", 0)
    ((rows,),) = tables.run("SELECT count(*) FROM decisions")
    if decided < rows:
        yield f"the totals count {decided} decisions, the log has {rows}"


def _compare(name: str, stated: Sequence[float], counted: Sequence[float]) -> Iterator[str]:
    for what, said, actual in zip(
        ("rounds", "rewards", "reward sum"), stated, counted, strict=True
    ):
        if abs(said - actual) > _TOLERANCE * max(1.0, abs(actual)) * 1e3:
            yield f"session {name!r} states {what} {said}; its log has {actual}"


def _models(tables: SqlReader) -> Iterator[str]:
    for model_id in tables.model_summaries():
        try:
            row = tables.model(model_id)
            assert row is not None
            files = msgspec.msgpack.decode(row.files, type=dict[str, bytes])
            if content_id(files) != model_id:
                yield f"model {model_id} ({row.name}) is not the one that was stored (SHA-256)"
            load_files(files, row.name)
        except (Damaged, msgspec.DecodeError, ArtefactError) as error:
            yield f"model {model_id}: {error}"


def _versions(library: Library, model: str) -> Iterator[ServedModel]:
    """Yield a model as it is, then grown by the actions that it lacked, newest first.

    A session that played an action of another model has a belief on the grown model, grown by all
    actions that existed when the snapshot was written.
    """
    yield library.served(model)
    yield library.grown(model)
    for activation in reversed(library.activations):
        yield library.grown(model, before=activation.order)


def _snapshots(
    tables: SqlReader, counts: dict[str, int], progress: Callable[[str], None]
) -> Iterator[str]:
    """Replay the log of every snapshot and compare the beliefs."""

    @cache
    def library(policy: str) -> Library:
        """Return the models, served with the policy of a snapshot."""
        made = Library(cast(Store, tables), EngineSettings(policy=policy))
        made.refresh()
        return made

    keys = [key for (key,) in paged(tables.run, "session", "snapshots", "session")]
    for number, key in enumerate(keys):
        if number % 100 == 0:
            progress(f"snapshots: {number} of {len(keys)}")
        try:
            snapshot, session = tables.snapshot(key), tables.session(key)
            assert snapshot is not None
            if session is None:
                yield f"the snapshot of session {key} has no session"
                continue
            if session.revision != snapshot.revision or session.model != snapshot.model:
                continue  # a stale snapshot, which is never used
            models = _versions(library(snapshot.policy), snapshot.model)
            served, belief = _decoded(snapshot, models)
            rows = tables.applied(key, merged=session.members > 0, limit=snapshot.learned)
            last = rows[-1].reward.applies_at if rows and rows[-1].reward is not None else -1
            if len(rows) != snapshot.learned or last != snapshot.learned_to:
                yield f"the snapshot of session {session.name!r} is not one of its log"
                continue
            group = served.of_group(MAIN)
            first = first_belief(group.policy, session)
            worst = _difference(belief, replay_rewards(group, served, rows, first))
            if not worst <= _TOLERANCE:
                yield (
                    f"the snapshot of session {session.name!r} differs by {worst:.1e} from the "
                    "replay of its log"
                )
        except (Damaged, Invalid, NotFound, ValueError, BeliefError) as error:
            yield f"the snapshot of session {key}: {error}"


def _decoded(snapshot: SnapshotRow, models: Iterator[ServedModel]) -> tuple[ServedModel, Any]:
    """Return the first model that the snapshot's belief fits, and the belief."""
    wrong: list[BeliefError] = []
    for served in models:
        try:
            return served, decode(served.of_group(MAIN).policy, snapshot.belief)
        except BeliefError as error:
            wrong.append(error)
    raise wrong[0]


def _difference(one: Any, other: Any) -> float:
    """Return the largest difference of two beliefs, relative where they are large."""
    if isinstance(one, tuple):
        return max((_difference(a, b) for a, b in zip(one, other, strict=True)), default=0.0)
    if one is None:
        return 0.0
    a, b = np.asarray(one, float), np.asarray(other, float)
    if a.shape != b.shape:
        return np.inf
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    gaps = np.abs(np.where(same, 0.0, a) - np.where(same, 0.0, b))
    return float((gaps / np.maximum(1.0, np.abs(np.where(same, 1.0, b)))).max(initial=0.0))
