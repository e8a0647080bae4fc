"""Functions that run on Spark's executors: they encode rows and collect them into buckets."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import polars as pl

from latentbandits.learning import user_hash
from latentbandits.learning.backends.out_of_core import MORE, beside_of, further_names
from latentbandits.learning.logs.rows import Log

Batches = Iterator[Any]  # iterators of pyarrow.RecordBatch


def encoding(
    action_ids: tuple[str, ...],
    n_buckets: int,
    n_blocks: int,
    salts: list[int],
    more: tuple[str, ...] = (),
) -> Callable[[Batches], Batches]:
    """Return the function that adds each row's bucket and encodes its action, on the executors."""

    def encode(batches: Batches) -> Batches:
        enum = pl.Enum(list(action_ids))
        for batch in batches:
            frame = pl.DataFrame(batch)
            ids = frame["user"].unique()
            place = frame["user"].cast(pl.Enum(ids)).to_physical().to_numpy()
            keys = user_hash.user_keys(ids.to_list())[place]
            bucket = user_hash.buckets(keys, n_buckets)
            salt = np.array(salts, np.int64)[bucket // (n_buckets // n_blocks)]
            yield from batches_of(
                frame.select(
                    pl.Series("salt", salt),
                    pl.Series("bucket", bucket.astype(np.int32)),
                    pl.Series("key", (keys ^ np.uint64(2**63)).view(np.int64)),
                    "user",
                    pl.col("action").cast(enum).to_physical().cast(pl.Int32).alias("action"),
                    "reward",
                    "order",
                    pl.col("file").cast(pl.Int32),
                    pl.col("row").cast(pl.Int64),
                    *(MORE + name for name in more),
                )
            )

    return encode


def collecting(batches: Batches) -> Batches:
    """Turn each bucket of sorted rows into one row; only one bucket is in memory at a time."""
    held: list[pl.DataFrame] = []
    for batch in batches:
        for part in pl.DataFrame(batch).partition_by("bucket", maintain_order=True):
            if held and held[0]["bucket"][0] != part["bucket"][0]:
                yield from batches_of(_bucket_row(pl.concat(held)))
                held = []
            held.append(part)
    if held:
        yield from batches_of(_bucket_row(pl.concat(held)))


def _bucket_row(rows: pl.DataFrame) -> pl.DataFrame:
    """Return a bucket as its number and its Arrow data."""
    first = rows.sort("file", "row").with_columns(
        pl.struct("user", "action", "reward", "order").is_first_distinct().alias("first")
    )
    repeats = ~first.sort("key", "user", "order", "file", "row")["first"]
    new = (rows["user"] != rows["user"].shift(1)).fill_null(True)
    more = further_names(rows.columns)
    compact = rows.select(
        (new.cast(pl.Int32).cum_sum() - 1).alias("user"), "action", "reward", *more
    ).with_columns(repeats.alias("repeat"))
    users = rows.filter(new).select(pl.col("user").alias("id"), "key")
    data = io.BytesIO()
    for table in (compact, users):
        part = io.BytesIO()
        table.write_ipc(part, compression="lz4")
        data.write(len(part.getvalue()).to_bytes(8, "little") + part.getvalue())
    bucket = rows["bucket"][0]
    return pl.DataFrame({"bucket": pl.Series([bucket], dtype=pl.Int32), "data": [data.getvalue()]})


def bucket_log(data: bytes, action_ids: tuple[str, ...]) -> Log:
    """Return the log of a bucket from its Arrow data."""
    stream = io.BytesIO(data)
    rows, users = (
        pl.read_ipc(io.BytesIO(stream.read(int.from_bytes(stream.read(8), "little"))))
        for _ in range(2)
    )
    repeats = rows["repeat"].to_numpy().astype(np.bool_)
    keys = users["key"].to_numpy().astype(np.int64).view(np.uint64) ^ np.uint64(2**63)
    return Log(
        rows["user"].to_numpy().astype(np.int64),
        rows["action"].to_numpy().astype(np.int64),
        rows["reward"].to_numpy().astype(np.float64),
        tuple(users["id"]),
        action_ids,
        repeats if repeats.any() else None,
        keys,
        beside=beside_of(rows),
    )


def batches_of(frame: pl.DataFrame) -> Iterator[Any]:
    """Yield Arrow batches with the plain types that Spark declares."""
    import pyarrow as pa

    table = frame.to_arrow(compat_level=pl.CompatLevel.oldest())
    plain = {pa.large_string(): pa.string(), pa.large_binary(): pa.binary()}
    fields = []
    for field in table.schema:
        kind = plain.get(field.type, field.type)
        if pa.types.is_large_list(kind):
            kind = pa.list_(plain.get(kind.value_type, kind.value_type))
        fields.append(pa.field(field.name, kind))
    yield from table.cast(pa.schema(fields)).to_batches()
