"""Verify a store: checksums, totals, the stream, models and snapshots, against its own log."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np

from latentbandits.beliefs.encoding import BeliefError, decode
from latentbandits.models.artefacts.files import ArtefactError, load_files
from latentbandits.serving.engine.actions import action_space
from latentbandits.serving.engine.propensities import make_policy
from latentbandits.serving.engine.replay import replay
from latentbandits.serving.engine.served_models import GroupPolicy, content_id
from latentbandits.serving.engine.totals import STATISTICS, decode_totals
from latentbandits.serving.engine.visitors import users_of
from latentbandits.serving.errors import Damaged, Invalid, StoreUnavailable
from latentbandits.serving.records import ModelRow, SnapshotRow
from latentbandits.serving.stores.checksums import verified
from latentbandits.serving.stores.sql import TABLES, Row, SqlQueries
from latentbandits.serving.stores.tables import Tables, pages

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


class _ReadOnly(SqlQueries):
    """The queries of a store on a view of its tables."""

    def __init__(self, tables: Tables) -> None:
        super().__init__()
        self._tables = tables

    def _run(self, statement: str, values: Sequence[Any] = ()) -> list[Row]:
        return list(self._tables.run(statement, values))


def check(tables: Tables, progress: Callable[[str], None] = lambda text: None) -> CheckResult:
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


def _rows(tables: Tables, counts: dict[str, int]) -> Iterator[str]:
    """Compare every row with its checksum."""
    layouts = [(table.name, table.columns) for table in TABLES]
    layouts.append(("notes", ("name", "value", "checksum")))
    for name, columns in layouts:
        counts[name] = 0
        try:
            for values in pages(tables, ", ".join(columns), name, columns[0]):
                counts[name] += 1
                try:
                    verified(name, values)
                except Damaged as damaged:
                    yield damaged.message
        except (Damaged, StoreUnavailable) as error:
            yield f"table {name}, after {counts[name]} rows: {error.message}"


def _stream(tables: Tables) -> Iterator[str]:
    """Check that every decision and every reward has one position in the stream."""
    for table in ("decisions", "rewards"):
        missing = list(
            tables.run(
                f"SELECT id FROM {table} t WHERE NOT EXISTS "
                "(SELECT 1 FROM stream s WHERE s.id = t.id) LIMIT 20"
            )
        )
        for (order,) in missing:
            yield f"row {order} of the table {table} is not in the stream: readers never see it"
    extra = list(
        tables.run(
            "SELECT position, id FROM stream s WHERE NOT EXISTS (SELECT 1 FROM decisions d "
            "WHERE d.id = s.id) AND NOT EXISTS (SELECT 1 FROM rewards r WHERE r.id = s.id) "
            "AND NOT EXISTS (SELECT 1 FROM audit a WHERE a.id = s.id) LIMIT 20"
        )
    )
    for position, order in extra:
        yield f"position {position} of the stream is of row {order}, which does not exist"


def _totals(tables: Tables) -> Iterator[str]:
    """Check that counts and sums of sessions match their rows, members included."""
    trees: dict[int, list[Any]] = {}  # sessions that were merged or merged into
    for row in pages(tables, _TOTALS, "sessions s", "s.key"):
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
    for name, value, expected in list(tables.run("SELECT name, value, checksum FROM notes")):
        if name.startswith(STATISTICS):
            try:
                verified("notes", (name, value, expected))
                totals = decode_totals(value)
            except (Damaged, msgspec.DecodeError) as error:
                yield f"the note {name} is damaged; the next start computes it anew ({error})"
                return
            decided += totals.counts.get("decisions", 0)
    (rows,) = next(iter(tables.run("SELECT count(*) FROM decisions")))
    if decided < rows:
        yield f"the totals count {decided} decisions, the log has {rows}"


def _compare(name: str, stated: Sequence[float], counted: Sequence[float]) -> Iterator[str]:
    for what, said, actual in zip(
        ("rounds", "rewards", "reward sum"), stated, counted, strict=True
    ):
        if abs(said - actual) > _TOLERANCE * max(1.0, abs(actual)) * 1e3:
            yield f"session {name!r} states {what} {said}; its log has {actual}"


def _models(tables: Tables) -> Iterator[str]:
    store = _ReadOnly(tables)
    for model_id in store.model_summaries():
        try:
            row = store.model(model_id)
            assert row is not None
            files = msgspec.msgpack.decode(row.files, type=dict[str, bytes])
            if content_id(files) != model_id:
                yield f"model {model_id} ({row.name}) is not the one that was stored (SHA-256)"
            load_files(files, row.name)
        except (Damaged, msgspec.DecodeError, ArtefactError) as error:
            yield f"model {model_id}: {error}"


class _Policies:
    """Policies of snapshots, built once for each model and text."""

    def __init__(self, store: SqlQueries) -> None:
        self._store = store
        self._made: dict[tuple[str, str], Any] = {}

    def find(self, snapshot: SnapshotRow) -> Any:
        """Return the policy that a snapshot is a belief of."""
        place = (snapshot.model, snapshot.policy)
        if place not in self._made:
            row = self._store.model(snapshot.model)
            if row is None:
                raise Invalid(f"there is no model {snapshot.model}")
            self._made[place] = self._make(row, snapshot.policy)
        return self._made[place]

    def _make(self, row: ModelRow, text: str) -> Any:
        files = msgspec.msgpack.decode(row.files, type=dict[str, bytes])
        model, catalogue = load_files(files, row.name)
        items = None if catalogue is None else catalogue.features
        return make_policy(text, model, items), action_space(model, catalogue)


def _snapshots(
    tables: Tables, counts: dict[str, int], progress: Callable[[str], None]
) -> Iterator[str]:
    """Replay the log of every snapshot and compare the beliefs."""
    store = _ReadOnly(tables)
    policies = _Policies(store)
    keys = [row[0] for row in pages(tables, "session", "snapshots", "session")]
    for number, key in enumerate(keys):
        if number % 100 == 0:
            progress(f"snapshots: {number} of {len(keys)}")
        try:
            snapshot, session = store.snapshot(key), store.session(key)
            assert snapshot is not None
            if session is None:
                yield f"the snapshot of session {key} has no session"
                continue
            if session.revision != snapshot.revision or session.model != snapshot.model:
                continue  # a stale snapshot, which is never used
            policy, space = policies.find(snapshot)
            group = GroupPolicy(
                snapshot.policy,
                policy,
                can_snapshot=True,
                belief_bytes=0,
                order_free=False,
                draws_depend_on_order=True,
                n_users=users_of(policy),
            )
            belief = decode(policy, snapshot.belief)
            rows = store.applied(key, merged=session.members > 0, limit=snapshot.learned)
            last = rows[-1].reward.applies_at if rows and rows[-1].reward is not None else -1
            if len(rows) != snapshot.learned or last != snapshot.learned_to:
                yield f"the snapshot of session {session.name!r} is not one of its log"
                continue
            worst = _difference(belief, replay(group, snapshot.model, space, rows))
            if not worst <= _TOLERANCE:
                yield (
                    f"the snapshot of session {session.name!r} differs by {worst:.1e} from the "
                    "replay of its log"
                )
        except (Damaged, Invalid, ValueError, BeliefError) as error:
            yield f"the snapshot of session {key}: {error}"


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
