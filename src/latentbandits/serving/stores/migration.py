"""Make the tables of a store, or bring those of an older version up to date."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from latentbandits.serving.records import (
    ActivationRow,
    DecisionRow,
    ModelRow,
    RewardRow,
    SessionRow,
)
from latentbandits.serving.stores.checksums import checksum
from latentbandits.serving.stores.schema import (
    ADDED,
    INDEXES,
    OLD_INDEXES,
    OLD_TABLES,
    TABLES,
    VERSION_2,
)
from latentbandits.serving.stores.sql import (
    ACTIVATIONS,
    DECISION,
    DECISIONS,
    MODELS,
    REWARD,
    REWARDS,
    SESSIONS,
    Row,
    Run,
)

_TIME_BITS = 21  # 0.1.0 kept milliseconds in the upper bits of its orders
_PAGE = 1_000


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
    for statement in (line for lines in VERSION_2[version:] for line in lines):
        run(statement, ())
    return _copy(run, stream)


def _create(run: Run, stream: Sequence[str]) -> None:
    for statement in (*TABLES, *stream, *INDEXES):
        run(statement, ())


def _copy(run: Run, stream: Sequence[str]) -> int:
    """Copy all rows of version 2 into new tables; returns the first free order."""
    for index in OLD_INDEXES:
        run(f"DROP INDEX {index}", ())
    for table in OLD_TABLES:
        run(f"ALTER TABLE {table} RENAME TO old_{table}", ())
    _create(run, stream)
    last = _copy_sessions(run)
    last = max(last, _copy_decisions(run))
    for model_id, name, files in list(run("SELECT id, name, files FROM old_models", ())):
        run(MODELS.insert, MODELS.values(ModelRow(model_id, name, files)))
    for order, model, mode in list(run("SELECT id, model, mode FROM old_activations", ())):
        row = ActivationRow(order, model, mode, order >> _TIME_BITS)
        run(ACTIVATIONS.insert, ACTIVATIONS.values(row))
        last = max(last, order)
    for name, value in list(run("SELECT name, value FROM old_notes", ())):
        run("INSERT INTO notes VALUES (?, ?, ?)", (name, value, checksum("notes", (name, value))))
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


def _pages(run: Run, columns: str, table: str, key: str) -> Iterator[Row]:
    """Yield all rows in the order of their key, a page at a time."""
    after = -1
    while True:
        rows = list(
            run(f"SELECT {columns} FROM {table} WHERE {key} > ? ORDER BY {key} LIMIT {_PAGE}",
                (after,))
        )  # fmt: skip
        yield from rows
        if len(rows) < _PAGE:
            return
        after = rows[-1][0]


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
    for values in _pages(run, columns, "old_sessions", "key"):
        key, name, group, model, activation, seen, *counts = values
        rounds, rewards, total, last_order, probabilities, is_open, into, at = counts
        row = SessionRow(
            key, name, group, model, activation, key >> _TIME_BITS, seen, rounds, rewards,
            total + 0.0, last_order, probabilities, bool(is_open), into, at, members.get(key, 0),
        )  # fmt: skip
        run(SESSIONS.insert, SESSIONS.values(row))
        last = max(last, key, last_order, at or 0)
    return last


def _copy_decisions(run: Run) -> int:
    last = 0
    columns = (
        "id, token, session, round, model, arm, policy, action, place, n_actions, actions, "
        "features, state, propensity, propensity_kind, probabilities, request_id, fingerprint, "
        "reward, reward_order, reward_status, event_id"
    )
    for values in _pages(run, columns, "old_decisions", "id"):
        order, token, session, round_, *rest = values
        *rest, reward, reward_order, status, event_id = rest
        row = DecisionRow(order, token, session, round_, order >> _TIME_BITS, *rest)
        run(DECISIONS.insert, DECISIONS.values(row))
        last = max(last, order)
        if reward is not None:
            told = RewardRow(
                reward_order, order, session, reward_order, reward + 0.0, "reward", status,
                reward_order >> _TIME_BITS, event_id,
            )  # fmt: skip
            run(REWARDS.insert, REWARDS.values(told))
            last = max(last, reward_order)
    return last
