"""The log on Spark: buckets of users on the executors, only sums and item vectors on the driver.

The rows are encoded and shuffled once, so that each bucket of users is one row of a cached
DataFrame: its number and its columns as Arrow data. A pass runs `summarise` on the executors
(`mapInArrow`), adds the buckets of each block there, and collects one row of sums for each block.
Blocks are aligned powers of two, so the sums equal the other engines' sums bit for bit.
"""

from __future__ import annotations

import io
import os
import re
import shutil
import socket
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, ClassVar
from urllib.parse import quote

import numpy as np
import polars as pl

from latentbandits.learning import user_hash
from latentbandits.learning.backends.backend import (
    Change,
    LogEngine,
    summed,
    tree_sum,
)
from latentbandits.learning.backends.opening import Opening, is_spark
from latentbandits.learning.backends.out_of_core import MORE, stored_log, stored_rows
from latentbandits.learning.logs.rows import Log, LogColumns, check_several, sort_ids
from latentbandits.learning.logs.tables import LogError, check_columns, files_of
from latentbandits.report.report import Progress

ROWS_OF_A_BLOCK = 2_000_000
"""The approximate number of log rows per task of a pass."""

_SETTINGS = {
    "spark.app.name": "latentbandits",
    "spark.log.level": "ERROR",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "32",
}


@dataclass(eq=False)
class SparkEngine(LogEngine):
    """A log on Spark, with folds that run on the executors that hold the cached buckets."""

    name: ClassVar[str] = "spark"
    blocks: Any  # a cached DataFrame with a row for each bucket
    action_ids: tuple[str, ...]
    n_buckets: int
    n_blocks: int
    changes: tuple[Change, ...] = ()

    def _summed(self, summariser: Any, parameters: Any) -> Iterator[tuple[int, Any]]:
        """Yield the number of the first bucket of each block, and the block's sums."""
        from pyspark.serializers import CPickleSerializer

        size = self.n_buckets // self.n_blocks
        work = _summing(summariser, parameters, self.changes, self.action_ids, size)
        rows = _mapped(self.blocks, work, "bucket int, sums binary").collect()
        read: Any = CPickleSerializer()
        for bucket, data in sorted((row["bucket"], bytes(row["sums"])) for row in rows):
            yield bucket, read.loads(data)

    def mapped(self, change: Change) -> SparkEngine:
        return replace(self, changes=(*self.changes, change))


@contextmanager
def on_spark(log: Any, opening: Opening, progress: Progress) -> Iterator[SparkEngine]:
    """Yield the engine for a Spark DataFrame, or for Parquet files that Spark reads."""
    with _session(log, opening.master) as session:
        progress.start("shuffling the log on Spark", 3)
        frame, columns = _frame(session, log, opening)
        engine = _loaded(session, frame, columns, progress)
        try:
            yield engine
        finally:
            engine.blocks.unpersist()


_MASTERS = (
    r"local|local\[(\*|[1-9]\d*)(, *\d+)?\]|local-cluster\[\d+, *\d+, *\d+\]|yarn|k8s://.+"
    r"|spark://([^:/,]+|\[[^/,]+\]):\d{1,5}(,([^:/,]+|\[[^/,]+\]):\d{1,5})*"
)


def check_spark() -> None:
    """Raise LogError with installation advice if Spark cannot be started."""
    try:
        import pyspark  # noqa: F401
    except ModuleNotFoundError:
        raise LogError(
            "the engine spark needs PySpark: pip install 'latentbandits[spark]'"
        ) from None
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java") if home is None else shutil.which(os.path.join(home, "bin", "java"))
    if java is None:
        where = "there is none on PATH" if home is None else f"JAVA_HOME, {home}, holds none"
        raise LogError(
            f"the engine spark needs Java 17 or later, and {where}: install a JRE (Debian and "
            "Ubuntu: apt-get install openjdk-17-jre-headless) or set JAVA_HOME"
        )


def check_master(master: str) -> None:
    """Raise LogError if `master` is no address of Spark, or if nothing listens there.

    Without this check, Spark prints Java stack traces for a bad address, and tries for minutes to
    reach a master that does not listen.
    """
    if re.fullmatch(_MASTERS, master) is None:
        raise LogError(
            f"master is no address of Spark, got {master!r}: local, local[2], local[*], "
            "spark://HOST:PORT, yarn or k8s://URL"
        )
    if not master.startswith("spark://"):
        return
    addresses = [address.rpartition(":") for address in master.removeprefix("spark://").split(",")]
    for host, _, port in addresses:
        with suppress(OSError), socket.create_connection((host.strip("[]"), int(port)), 5):
            return
    raise LogError(f"no Spark master answers at {master}: start it, or mend the address")


@contextmanager
def _session(log: Any, master: str | None) -> Iterator[Any]:
    """Yield the DataFrame's session, the active one, or a new one that is stopped at the end."""
    # Workers must run the same interpreter as the driver.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if is_spark(log):
        if master is not None:
            raise LogError("a DataFrame of Spark has its master already: leave master out")
        yield log.sparkSession
        return
    check_spark()
    if master is not None:
        check_master(master)
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None:
        yield active
        return
    builder = SparkSession.builder.master(master or "local[*]")
    for name, value in _SETTINGS.items():
        builder = builder.config(name, value)
    try:
        with warnings.catch_warnings():  # about a pandas version that is not used
            warnings.simplefilter("ignore", FutureWarning)
            session = builder.getOrCreate()
    except (PySparkException, OSError, RuntimeError) as error:
        lines = str(error).strip().splitlines()
        raise LogError(
            f"Spark could not be started on {master or 'local[*]'}: {lines[0]}"
        ) from None
    try:
        yield session
    finally:
        session.stop()


def _frame(session: Any, log: Any, opening: Opening) -> tuple[Any, LogColumns]:
    """Return columns user, action, reward, order, file and row, and their original names."""
    from pyspark.sql import functions as f

    if is_spark(log):
        frame, file, row = log, f.lit(0), f.monotonically_increasing_id()
    else:
        paths = files_of(log)
        wrong = next((path for path in paths if path.suffix != ".parquet"), None)
        if wrong is not None:
            raise LogError(
                f"the engine spark reads Parquet files or a DataFrame; {wrong} is none. Write it "
                "as Parquet (polars.read_csv(...).write_parquet(...)), or use --engine out_of_core"
            )
        numbers = {quote(str(path.resolve())): i for i, path in enumerate(paths)}
        frame = session.read.parquet(*(str(path.resolve()) for path in paths))
        number = f.create_map(*(f.lit(part) for pair in numbers.items() for part in pair))
        # Files are sorted by name, as on the other engines.
        name = f.regexp_replace(f.col("_metadata.file_path"), "^file:/+", "/")
        file, row = number[name], f.col("_metadata.row_index")
    columns = opening.columns_among(frame.columns)
    check_columns(columns.names, frame.columns, "the log")
    kinds = dict(frame.dtypes)
    texts = [_text(frame, name, kinds[name]) for name in (columns.user, columns.action)]
    ordered = f.lit(0) if columns.order is None else f.col(columns.order)
    return (
        frame.select(
            texts[0].alias("user"),
            texts[1].alias("action"),
            f.expr(f"try_cast(`{columns.reward}` as double)").alias("reward"),
            ordered.alias("order"),
            file.alias("file"),
            row.alias("row"),
            *(f.col(f"`{name}`").alias(MORE + name) for name in columns.more),
        ),
        columns,
    )


def _text(frame: Any, name: str, kind: str) -> Any:
    """Return ids as text; whole floats become the integers they were before missing values."""
    from pyspark.sql import functions as f

    column = f.col(name)
    if kind in ("float", "double"):
        fractions = frame.filter(column != f.floor(column)).limit(1).count()
        if not fractions:
            column = column.cast("bigint")
    return column.cast("string")


def _loaded(session: Any, frame: Any, columns: LogColumns, progress: Progress) -> SparkEngine:
    from pyspark import StorageLevel
    from pyspark.sql import functions as f

    bad = {
        columns.user: f.col("user").isNull(),
        columns.action: f.col("action").isNull(),
        columns.reward: f.col("reward").isNull()
        | f.isnan("reward")
        | (f.abs("reward") == f.lit(float("inf"))),
    }
    if columns.order is not None:
        bad[columns.order] = f.col("order").isNull()
    counts = frame.agg(
        f.count(f.lit(1)).alias("rows"),
        f.countDistinct("user").alias("users"),
        *(f.sum(mask.cast("bigint")).alias(f"bad {i}") for i, mask in enumerate(bad.values())),
    ).first()
    if not counts["rows"]:
        raise LogError("the log has no rows")
    for i, name in enumerate(bad):
        if counts[f"bad {i}"]:
            what = "is not a finite number" if name == columns.reward else "has no value"
            raise LogError(
                f"{name} {what} in {counts[f'bad {i}']:,} of {counts['rows']:,} rows: mend or drop "
                "those rows"
            )
    progress.advance(1)
    met = [row[0] for row in frame.select("action").distinct().collect()]
    action_ids = tuple(sort_ids(pl.Series(met, dtype=pl.String)))
    check_several("action", action_ids, columns.action)
    n_users = counts["users"]
    check_several("user", (frame.first()["user"],) if n_users == 1 else ("", ""), columns.user)
    n_buckets = user_hash.bucket_count(n_users)
    wanted = max(1, counts["rows"] // ROWS_OF_A_BLOCK, session.sparkContext.defaultParallelism)
    n_blocks = min(n_buckets, 1 << (wanted - 1).bit_length())
    progress.advance(1)
    encoded = _mapped(
        frame,
        encoding(action_ids, n_buckets, n_blocks, _salts(session, n_blocks), columns.more),
        "salt bigint, bucket int, key bigint, user string, action int, reward double, "
        f"order {_kind(frame, 'order')}, file int, row bigint"
        + "".join(f", `{MORE}{name}` {_kind(frame, MORE + name)}" for name in columns.more),
    )
    shuffled = encoded.repartition(n_blocks, "salt").sortWithinPartitions("bucket", "file", "row")
    blocks = _mapped(shuffled, collecting, "bucket int, rows binary, users binary")
    blocks = blocks.persist(StorageLevel.MEMORY_AND_DISK)
    blocks.count()
    progress.advance(1)
    return SparkEngine(blocks, action_ids, n_buckets, n_blocks)


def _kind(frame: Any, name: str) -> str:
    return str(frame.schema[name].dataType.simpleString())


def _mapped(frame: Any, work: Callable[[Batches], Batches], schema: str) -> Any:
    """Return `frame.mapInArrow` without its warning about a pandas that is not used."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        return frame.mapInArrow(work, schema)


def _salts(session: Any, n: int) -> list[int]:
    """Return, for each of `n` partitions, a number that Spark's hash assigns to it."""
    from pyspark.sql import functions as f

    salts: dict[int, int] = {}
    tried = session.range(0, 40 * n).select("id", f.pmod(f.hash("id"), f.lit(n)).alias("place"))
    for row in tried.collect():
        salts.setdefault(row["place"], row["id"])
    return [salts[place] for place in range(n)]


def _summing(
    summariser: Any,
    parameters: Any,
    changes: tuple[Change, ...],
    action_ids: tuple[str, ...],
    size: int,
) -> Callable[[Batches], Batches]:
    """Return the function that sums the `size` buckets of each block, on the executors."""

    def buckets(batches: Batches) -> Iterator[tuple[int, Log]]:
        for batch in batches:
            columns = (column.to_pylist() for column in batch.columns)
            for number, *tables in zip(*columns, strict=True):
                rows, users = (pl.read_ipc(io.BytesIO(table)) for table in tables)
                yield number, stored_log(rows, users, action_ids)

    def work(batches: Batches) -> Batches:
        from pyspark.serializers import CPickleSerializer

        write: Any = CPickleSerializer()
        sums = summed(buckets(batches), changes, summariser, parameters)
        for block, members in groupby(sums, lambda pair: pair[0] // size):
            numbered = ((number % size, part) for number, part in members)
            data = write.dumps(tree_sum(numbered, size))
            first = pl.Series([block * size], dtype=pl.Int32)
            yield from batches_of(pl.DataFrame({"bucket": first, "sums": [data]}))

    return work


# Functions that run on Spark's executors: they encode rows and collect them into buckets.

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
                    pl.Series("key", keys.view(np.int64)),
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
    tables = (pl.DataFrame(batch) for batch in batches)
    parts = (part for table in tables for part in table.partition_by("bucket", maintain_order=True))
    for _, members in groupby(parts, lambda part: part["bucket"][0]):
        yield from batches_of(_bucket_row(pl.concat(members)))


def _bucket_row(rows: pl.DataFrame) -> pl.DataFrame:
    """Return a bucket as its number, and its rows and users as Arrow data."""
    stored = stored_rows(rows.with_columns(pl.col("key").reinterpret(signed=False)))
    row: dict[str, Any] = {"bucket": rows["bucket"][:1].cast(pl.Int32)}
    for name, table in zip(("rows", "users"), stored, strict=True):
        row[name] = [table.write_ipc(None, compression="lz4").getvalue()]
    return pl.DataFrame(row)


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
