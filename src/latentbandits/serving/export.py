"""The decision log as a Parquet table: what evaluation and the next `fit` read."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
import polars

from latentbandits.serving.engine.library import ActionNames
from latentbandits.serving.errors import Refused
from latentbandits.serving.log import cursor_order, log_entry
from latentbandits.serving.log_entries import LogEntry
from latentbandits.serving.stores.protocol import LogReader

_PAGE = 5_000
SCHEMA = polars.Schema(
    {
        "decision_id": polars.String(),
        "session": polars.String(),
        "round": polars.Int64(),
        "time": polars.Datetime("ms", "UTC"),
        "model": polars.String(),
        "group": polars.String(),
        "policy": polars.String(),
        "action": polars.String(),
        "index": polars.Int64(),
        "eligible": polars.List(polars.String()),
        "features": polars.List(polars.List(polars.Float64())),
        "propensity": polars.Float64(),
        "propensity_kind": polars.String(),
        "state_probabilities": polars.List(polars.Float64()),
        "reward": polars.Float64(),
        "reward_status": polars.String(),
        "reward_time": polars.Datetime("ms", "UTC"),
    }
)
_NUMBERED = polars.Schema(
    {
        name: polars.Int64() if isinstance(kind, polars.Datetime) else kind
        for name, kind in SCHEMA.items()
    }
)


def export(reader: LogReader, out: str, since: str = "") -> int:
    """Write all decisions after `since` to the Parquet file `out`, page by page; their number.

    The file appears when it is complete.
    """
    target = Path(out)
    try:
        order = cursor_order(since)
        with tempfile.TemporaryDirectory(prefix=f".{target.name}-", dir=target.parent) as scratch:
            count = 0
            pages = []
            for number, frame in enumerate(_frames(reader, order)):
                pages.append(Path(scratch, f"{number:09d}.parquet"))
                frame.write_parquet(pages[-1])
                count += len(frame)
            whole = Path(scratch, "whole.parquet")
            if pages:
                polars.scan_parquet(pages).sink_parquet(whole)
            else:
                polars.DataFrame(schema=SCHEMA).write_parquet(whole)
            whole.replace(target)
    except Refused as refusal:
        raise ValueError(refusal.message) from None
    except OSError as error:
        raise ValueError(f"cannot write {target}: {error.strerror or error}") from None
    return count


def _frames(reader: LogReader, order: int) -> Iterator[polars.DataFrame]:
    names = ActionNames(reader.model)
    while True:
        rows = reader.read(order, _PAGE)
        if not rows:
            return
        order = rows[-1].row.order
        yield frame([log_entry(row, names) for row in rows])


def frame(entries: list[LogEntry]) -> polars.DataFrame:
    """Log entries as a table, one row for each."""
    rows = [msgspec.structs.asdict(entry) for entry in entries]
    for row in rows:
        for name in ("time", "reward_time"):
            row[name] = None if row[name] is None else round(row[name] * 1000)
    table = polars.DataFrame({name: [row[name] for row in rows] for name in SCHEMA}, _NUMBERED)
    return table.cast(SCHEMA)
