"""The tables of the SQL stores, version by version."""

from __future__ import annotations

from collections.abc import Sequence

VERSION_2: Sequence[Sequence[str]] = (  # the statements of latentbandits 0.1.0, unchanged
    (
        """CREATE TABLE sessions (
            key BIGINT PRIMARY KEY, name TEXT NOT NULL, arm TEXT NOT NULL, model TEXT NOT NULL,
            activation BIGINT NOT NULL, seen BIGINT NOT NULL, rounds BIGINT NOT NULL,
            rewards BIGINT NOT NULL, reward_sum DOUBLE PRECISION NOT NULL,
            last_order BIGINT NOT NULL, probabilities BLOB NOT NULL, open SMALLINT NOT NULL,
            merged_into BIGINT, merged_at BIGINT)""",
        "CREATE INDEX sessions_name ON sessions (name, key)",
        "CREATE UNIQUE INDEX sessions_open ON sessions (name) WHERE open = 1",
        "CREATE INDEX sessions_merged ON sessions (merged_into) WHERE merged_into IS NOT NULL",
        """CREATE TABLE decisions (
            id BIGINT PRIMARY KEY, token BIGINT NOT NULL, session BIGINT NOT NULL,
            round BIGINT NOT NULL, model TEXT NOT NULL, arm TEXT NOT NULL, policy TEXT NOT NULL,
            action TEXT NOT NULL, place BIGINT NOT NULL, n_actions BIGINT NOT NULL,
            actions BLOB, features BLOB, state BIGINT NOT NULL, propensity DOUBLE PRECISION,
            propensity_kind TEXT NOT NULL, probabilities BLOB NOT NULL,
            request_id TEXT, fingerprint BLOB, reward DOUBLE PRECISION, reward_order BIGINT,
            reward_status TEXT, event_id TEXT)""",
        "CREATE INDEX decisions_session ON decisions (session)",
        """CREATE UNIQUE INDEX decisions_request ON decisions (request_id)
            WHERE request_id IS NOT NULL""",
        """CREATE UNIQUE INDEX decisions_event ON decisions (event_id)
            WHERE event_id IS NOT NULL""",
        """CREATE TABLE models (id TEXT PRIMARY KEY, name TEXT NOT NULL, files BLOB NOT NULL)""",
        """CREATE TABLE activations (
            id BIGINT PRIMARY KEY, model TEXT NOT NULL, mode TEXT NOT NULL)""",
        "CREATE TABLE notes (name TEXT PRIMARY KEY, value BLOB NOT NULL)",
    ),
    (
        "CREATE INDEX sessions_seen_open ON sessions (seen) WHERE open = 1",
        "CREATE INDEX sessions_seen_closed ON sessions (seen) WHERE open = 0",
    ),
)

# Version 3 has orders from a sequence, separate times, rewards as separate events, a stream in the
# order of commits, snapshots of beliefs, an audit log, and a checksum in every row.
TABLES = (
    """CREATE TABLE sessions (
        key BIGINT PRIMARY KEY, name TEXT NOT NULL, group_name TEXT NOT NULL, model TEXT NOT NULL,
        activation BIGINT NOT NULL, started BIGINT NOT NULL, seen BIGINT NOT NULL,
        rounds BIGINT NOT NULL, rewards BIGINT NOT NULL, reward_sum DOUBLE PRECISION NOT NULL,
        last_order BIGINT NOT NULL, probabilities BLOB NOT NULL, open SMALLINT NOT NULL,
        merged_into BIGINT, merged_at BIGINT, members BIGINT NOT NULL, revision BIGINT NOT NULL,
        user_features BLOB, checksum BIGINT NOT NULL)""",
    """CREATE TABLE decisions (
        id BIGINT PRIMARY KEY, token BIGINT NOT NULL, session BIGINT NOT NULL,
        round BIGINT NOT NULL, time BIGINT NOT NULL, model TEXT NOT NULL,
        group_name TEXT NOT NULL, policy TEXT NOT NULL, action TEXT NOT NULL,
        place BIGINT NOT NULL, n_actions BIGINT NOT NULL, actions BLOB, features BLOB,
        state BIGINT NOT NULL, propensity DOUBLE PRECISION, propensity_kind TEXT NOT NULL,
        probabilities BLOB NOT NULL, request_id TEXT, fingerprint BLOB, list_id BIGINT,
        list_position BIGINT, click_model TEXT, checksum BIGINT NOT NULL)""",
    """CREATE TABLE rewards (
        id BIGINT PRIMARY KEY, decision BIGINT NOT NULL, session BIGINT NOT NULL,
        applies_at BIGINT NOT NULL, value DOUBLE PRECISION NOT NULL, kind TEXT NOT NULL,
        status TEXT NOT NULL, time BIGINT NOT NULL, event_id TEXT, who TEXT NOT NULL,
        token BLOB, checksum BIGINT NOT NULL)""",
    """CREATE TABLE snapshots (
        session BIGINT PRIMARY KEY, model TEXT NOT NULL, policy TEXT NOT NULL,
        revision BIGINT NOT NULL, learned BIGINT NOT NULL, learned_to BIGINT NOT NULL,
        belief BLOB NOT NULL, checksum BIGINT NOT NULL)""",
    """CREATE TABLE models (
        id TEXT PRIMARY KEY, name TEXT NOT NULL, files BLOB NOT NULL, summary BLOB NOT NULL,
        base TEXT, checksum BIGINT NOT NULL)""",
    """CREATE TABLE activations (
        id BIGINT PRIMARY KEY, model TEXT NOT NULL, mode TEXT NOT NULL, time BIGINT NOT NULL,
        who TEXT NOT NULL, click_model TEXT, checksum BIGINT NOT NULL)""",
    """CREATE TABLE audit (
        id BIGINT PRIMARY KEY, time BIGINT NOT NULL, who TEXT NOT NULL, action TEXT NOT NULL,
        detail TEXT NOT NULL, checksum BIGINT NOT NULL)""",
    "CREATE TABLE notes (name TEXT PRIMARY KEY, value BLOB NOT NULL, checksum BIGINT NOT NULL)",
)
_INDEXES_5 = (
    "CREATE INDEX decisions_of_list ON decisions (list_id) WHERE list_id IS NOT NULL",
    "CREATE UNIQUE INDEX rewards_by_token ON rewards (token) WHERE token IS NOT NULL",
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
    *_INDEXES_5,
)
OLD_TABLES = ("sessions", "decisions", "models", "activations", "notes")
OLD_INDEXES = (
    "sessions_name", "sessions_open", "sessions_merged", "sessions_seen_open",
    "sessions_seen_closed", "decisions_session", "decisions_request", "decisions_event",
)  # fmt: skip
ADDED: Sequence[Sequence[str]] = (
    ("ALTER TABLE sessions ADD COLUMN user_features BLOB",),
    (
        "ALTER TABLE decisions ADD COLUMN list_id BIGINT",
        "ALTER TABLE decisions ADD COLUMN list_position BIGINT",
        "ALTER TABLE decisions ADD COLUMN click_model TEXT",
        "ALTER TABLE rewards ADD COLUMN token BLOB",
        "ALTER TABLE models ADD COLUMN base TEXT",
        "ALTER TABLE activations ADD COLUMN click_model TEXT",
        *_INDEXES_5,
    ),
)
"""The statements from version 3 to 4, from 4 to 5, and so on. A row that has none of the added
columns keeps its checksum."""

SCHEMA_VERSION = 3 + len(ADDED)
