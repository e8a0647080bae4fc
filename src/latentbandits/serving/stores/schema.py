"""The tables of the SQL stores, version by version, and how older ones are brought up to date.

Rows of decisions and rewards are never changed. A correction is another row of rewards with the
place of the first one in the replay, so that a checksum is computed once and the log can be
followed from any position.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from latentbandits.serving.errors import StoreError
from latentbandits.serving.records import (
    ActivationRow,
    DecisionRow,
    ModelRow,
    NoteRow,
    RewardRow,
    SessionRow,
)
from latentbandits.serving.stores.sql import (
    ACTIVATIONS,
    DECISION,
    DECISIONS,
    MODELS,
    NOTES,
    REWARD,
    REWARDS,
    SESSIONS,
    TABLES,
    Run,
    Table,
    paged,
)

# Version 2 is that of latentbandits 0.1.0. Version 3 has orders from a sequence, separate times,
# rewards as separate events, a stream in the order of commits, snapshots of beliefs, an audit log,
# and a checksum in every row.
_REWARDS_BY_TOKEN = (
    "CREATE UNIQUE INDEX rewards_by_token ON rewards (token) WHERE token IS NOT NULL"
)
INDEXES = (
    "CREATE INDEX sessions_by_name ON sessions (name, key)",
    "CREATE UNIQUE INDEX sessions_open_name ON sessions (name) WHERE open = 1",
    "CREATE INDEX sessions_members ON sessions (merged_into) WHERE merged_into IS NOT NULL",
    "CREATE INDEX sessions_unseen_open ON sessions (seen) WHERE open = 1",
    "CREATE INDEX sessions_unseen_closed ON sessions (seen) WHERE open = 0",
    "CREATE INDEX decisions_of_session ON decisions (session, id)",
    """CREATE UNIQUE INDEX decisions_by_request ON decisions (request_id)
        WHERE request_id IS NOT NULL""",
    "CREATE INDEX rewards_of_decision ON rewards (decision, id)",
    "CREATE INDEX rewards_of_session ON rewards (session, applies_at)",
    "CREATE UNIQUE INDEX rewards_by_event ON rewards (event_id) WHERE event_id IS NOT NULL",
    "CREATE UNIQUE INDEX stream_of_row ON stream (id)",
    _REWARDS_BY_TOKEN,
)
OLD_TABLES = ("sessions", "decisions", "models", "activations", "notes")
OLD_INDEXES = (
    "sessions_name", "sessions_open", "sessions_merged", "sessions_seen_open",
    "sessions_seen_closed", "decisions_session", "decisions_request", "decisions_event",
)  # fmt: skip
ADDED: Sequence[Sequence[str]] = (
    ("ALTER TABLE sessions ADD COLUMN user_features BLOB",),
    (
        "ALTER TABLE decisions ADD COLUMN click_model TEXT",
        "ALTER TABLE rewards ADD COLUMN token BLOB",
        "ALTER TABLE models ADD COLUMN base TEXT",
        "ALTER TABLE activations ADD COLUMN click_model TEXT",
        _REWARDS_BY_TOKEN,
    ),
    (
        "DROP INDEX IF EXISTS decisions_of_list",  # of columns that were never filled
        "ALTER TABLE decisions ADD COLUMN below BLOB",
        "ALTER TABLE rewards ADD COLUMN observed BLOB",
    ),
)
"""The statements from version 3 to 4, from 4 to 5, and so on. A row that has none of the added
columns keeps its checksum."""

SCHEMA_VERSION = 3 + len(ADDED)


def check_version(place: str, version: int, *, exactly: bool = False) -> None:
    """Refuse tables of a version that this program does not know, `exactly` also an older one."""
    if version > SCHEMA_VERSION:
        raise StoreError(
            f"{place} has schema version {version}; this latentbandits knows up to "
            f"{SCHEMA_VERSION}: upgrade latentbandits, or use another store"
        )
    if exactly and version < SCHEMA_VERSION:
        raise StoreError(
            f"{place} was written by an older version: start `latentbandits serve` on it once, "
            "which brings it up to date"
        )


_TIME_BITS = 21  # 0.1.0 kept milliseconds in the upper bits of its orders


def migrate(run: Run, version: int, stream: Sequence[str]) -> int | None:
    """Bring tables of any version up to date; version 0 is an empty database.

    `stream` makes the tables that differ between databases. Returns the first free order where
    rows were copied, else None.
    """
    if version >= 3:
        for statement in (line for lines in ADDED[version - 3 :] for line in lines):
            run(statement, ())
        return None
    if version == 0:
        _create(run, stream)
        return None
    return _copy(run, stream)


def _create(run: Run, stream: Sequence[str]) -> None:
    for statement in (*(table.create for table in TABLES), *stream, *INDEXES):
        run(statement, ())


def _copy(run: Run, stream: Sequence[str]) -> int:
    """Copy all rows of version 2 into new tables; returns the first free order."""
    for index in OLD_INDEXES:
        run(f"DROP INDEX IF EXISTS {index}", ())  # version 1 lacks two of them
    for table in OLD_TABLES:
        run(f"ALTER TABLE {table} RENAME TO old_{table}", ())
    _create(run, stream)
    last = _copy_sessions(run)
    last = max(last, _copy_decisions(run))
    for model_id, name, files in list(run("SELECT id, name, files FROM old_models", ())):
        _insert(run, MODELS, ModelRow(model_id, name, files))
    for order, model, mode in list(run("SELECT id, model, mode FROM old_activations", ())):
        _insert(run, ACTIVATIONS, ActivationRow(order, model, mode, order >> _TIME_BITS))
        last = max(last, order)
    for name, value in list(run("SELECT name, value FROM old_notes", ())):
        _insert(run, NOTES, NoteRow(name, value))
    # In 0.1.0, readers of the log received events sorted by order.
    run(
        f"""INSERT INTO stream (kind, id)
        SELECT kind, id FROM (SELECT {DECISION} AS kind, id FROM decisions
        UNION ALL SELECT {REWARD}, id FROM rewards) AS rows ORDER BY id""",
        (),
    )
    for table in OLD_TABLES:
        run(f"DROP TABLE old_{table}", ())
    return last + 1


def _insert(run: Run, table: Table[Any], row: Any) -> None:
    run(table.insert, table.values(row))


def _copy_sessions(run: Run) -> int:
    last = 0
    columns = (
        "key, name, arm, model, activation, seen, rounds, rewards, reward_sum, last_order, "
        "probabilities, open, merged_into, merged_at"
    )
    counted = run(
        "SELECT merged_into, count(*) FROM old_sessions WHERE merged_into IS NOT NULL "
        "GROUP BY merged_into",
        (),
    )
    members: dict[int, int] = {row[0]: row[1] for row in counted}
    for values in paged(run, columns, "old_sessions", "key"):
        key, name, group, model, activation, seen, *counts = values
        rounds, rewards, total, last_order, probabilities, is_open, into, at = counts
        row = SessionRow(
            key, name, group, model, activation, key >> _TIME_BITS, seen, rounds, rewards,
            total + 0.0, last_order, probabilities, bool(is_open), into, at, members.get(key, 0),
        )  # fmt: skip
        _insert(run, SESSIONS, row)
        last = max(last, key, last_order, at or 0)
    return last


def _copy_decisions(run: Run) -> int:
    last = 0
    columns = (
        "id, token, session, round, model, arm, policy, action, place, n_actions, actions, "
        "features, state, propensity, propensity_kind, probabilities, request_id, fingerprint, "
        "reward, reward_order, reward_status, event_id"
    )
    for values in paged(run, columns, "old_decisions", "id"):
        order, token, session, round_, *rest = values
        *rest, reward, reward_order, status, event_id = rest
        row = DecisionRow(order, token, session, round_, order >> _TIME_BITS, *rest)
        _insert(run, DECISIONS, row)
        last = max(last, order)
        if reward is not None:
            told = RewardRow(
                reward_order, order, session, reward_order, reward + 0.0, "reward", status,
                reward_order >> _TIME_BITS, event_id,
            )  # fmt: skip
            _insert(run, REWARDS, told)
            last = max(last, reward_order)
    return last
