"""The tables of the SQL stores, version by version, and how older ones are brought up to date.

Rows of decisions and rewards are never changed. A correction is another row of rewards with the
place of the first one in the replay, so that a checksum is computed once and the log can be
followed from any position.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from latentbandits.serving.errors import StoreError
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
    largest_order,
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


# Rows of version 2: the table that they are copied to, where they are, their key, and the fields
# of the new rows. 0.1.0 kept milliseconds in the upper bits of its orders. Adding 0.0 removes
# negative zeros.
_OLD_TABLES = ("sessions", "decisions", "models", "activations", "notes")
_COPIED: tuple[tuple[Table[Any], str, str, str], ...] = (
    (SESSIONS, "old_sessions s", "s.key",
     """s.key, name, arm, model, activation, s.key >> 21, seen, rounds, rewards, reward_sum + 0.0,
     last_order, probabilities, open, merged_into, merged_at,
     (SELECT count(*) FROM old_sessions m WHERE m.merged_into = s.key)"""),
    (DECISIONS, "old_decisions", "id",
     """id, token, session, round, id >> 21, model, arm, policy, action, place, n_actions, actions,
     features, state, propensity, propensity_kind, probabilities, request_id, fingerprint"""),
    (REWARDS, "(SELECT * FROM old_decisions WHERE reward IS NOT NULL) AS told", "id",
     """reward_order, id, session, reward_order, reward + 0.0, 'reward', reward_status,
     reward_order >> 21, event_id"""),
    (MODELS, "old_models", "id", "id, name, files"),
    (ACTIVATIONS, "old_activations", "id", "id, model, mode, id >> 21"),
    (NOTES, "old_notes", "name", "name, value"),
)  # fmt: skip


def _copy(run: Run, stream: Sequence[str]) -> int:
    """Copy all rows of version 2 into new tables; returns the first free order."""
    for name in _OLD_TABLES:
        run(f"ALTER TABLE {name} RENAME TO old_{name}", ())
    _create(run, stream)
    for table, old, key, fields in _COPIED:
        for _, *values in paged(run, f"{key}, {fields}", old, key):
            run(table.insert, table.values(table.record(*values)))
    # In 0.1.0, readers of the log received events sorted by order.
    run(
        f"""INSERT INTO stream (kind, id)
        SELECT kind, id FROM (SELECT {DECISION} AS kind, id FROM decisions
        UNION ALL SELECT {REWARD}, id FROM rewards) AS rows ORDER BY id""",
        (),
    )
    for name in _OLD_TABLES:
        run(f"DROP TABLE old_{name}", ())
    return largest_order(run) + 1
