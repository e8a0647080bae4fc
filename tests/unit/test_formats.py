"""Table files of every format, and every way in which one can be damaged."""

from __future__ import annotations

import gzip
import pathlib

import polars as pl
import pyarrow as pa
import pytest
import zstandard

from latentbandits.learning.logs.rows import Log, read_log
from latentbandits.learning.logs.tables import LogError, TextFormat
from tests.unit.test_logs import TABLE, check

FRAME = pl.DataFrame(TABLE)
CSV = FRAME.write_csv().encode()


def read(source: object, **options: object) -> Log:
    return read_log(source, "who", "what", "paid", text_format=TextFormat(**options))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["log.tsv", "log.jsonl", "log.ndjson.gz", "log.csv.zst",
                                  "log.arrow", "log.feather", "log.parquet.gz", "stream.arrow",
                                  "log.jsonl.zst", "unnamed", "log.dat"])  # fmt: skip
def test_files_of_every_format(tmp_path: pathlib.Path, name: str) -> None:
    path = tmp_path / name
    inner = name.removesuffix(".gz").removesuffix(".zst")
    if inner.endswith(".csv"):
        data = CSV
    elif inner.endswith(".tsv"):
        data = FRAME.write_csv(separator="\t").encode()
    elif inner.endswith(("jsonl", "ndjson")):
        data = FRAME.write_ndjson().encode()
    elif inner.endswith("parquet"):
        FRAME.write_parquet(path)
        data = path.read_bytes()
    elif name == "stream.arrow":
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, FRAME.to_arrow().schema) as writer:
            writer.write_table(FRAME.to_arrow())
        data = sink.getvalue().to_pybytes()
    elif inner.endswith((".arrow", ".feather")):
        FRAME.write_ipc(path, compression="zstd")
        data = path.read_bytes()
    elif name == "log.dat":
        data = zstandard.compress(CSV)  # found by its first bytes
    else:
        data = FRAME.write_ndjson().encode()
    if name.endswith(".gz"):
        data = gzip.compress(data)
    elif name.endswith(".zst"):
        data = zstandard.compress(data)
    path.write_bytes(data)
    check(read(path))


@pytest.mark.parametrize("separator", [",", ";", "\t", "|", "::"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
def test_separator_and_encoding_are_detected(
    tmp_path: pathlib.Path, separator: str, encoding: str
) -> None:
    rows = [["when", "who", "what", "paid"], ["1", "Zoë", "thé", "0.5"], ["2", "b", "x", "1"]]
    path = tmp_path / "log.txt"
    path.write_bytes("\r\n".join(separator.join(row) for row in rows).encode(encoding))
    log = read(path)
    assert log.user_ids == ("Zoë", "b") or log.user_ids == ("b", "Zoë")
    assert sorted(log.action_ids) == ["thé", "x"]


def test_given_separator_and_encoding(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "log.csv"
    path.write_bytes("who~what~paid\na~x,1~1\nЯ~y~0\n".encode("koi8-r"))
    assert read(path, separator="~", encoding="koi8-r").user_ids == ("a", "Я")


def test_a_file_without_a_header(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "ratings.dat"
    path.write_text("1::1193::5::978300760\n1::661::3::978302109\n2::661::4::978302110\n")
    log = read(path, columns=("who", "what", "paid", "when"))
    assert log.action_ids == ("661", "1193")
    assert log.rewards.tolist() == [5, 3, 4]
    with pytest.raises(LogError, match=r"first line holds numbers.*--columns"):
        read(path)
    path.write_text("ann::1193::5::1\nbob::661::4::2\n")
    with pytest.raises(LogError, match=r"first line holds numbers.*--columns"):
        read(path)
    with pytest.raises(LogError, match=r"4 fields in its first line, but 3 columns were named"):
        read(path, columns=("who", "what", "paid"), separator="::")


@pytest.mark.parametrize("words", [("true", "false"), ("True", "FALSE")])
def test_booleans_are_ones_and_zeros(tmp_path: pathlib.Path, words: tuple[str, str]) -> None:
    path = tmp_path / "log.csv"
    path.write_text(f"who,what,paid\na,x,{words[0]}\nb,y,{words[1]}\n")
    assert read(path).rewards.tolist() == [1.0, 0.0]
    lines = f'{{"who":1,"what":2,"paid":{words[0].lower()}}}\n{{"who":2,"what":3,"paid":0}}\n'
    (tmp_path / "log.jsonl").write_text(lines)
    assert read(tmp_path / "log.jsonl").rewards.tolist() == [1.0, 0.0]
    assert read({"who": [1, 2], "what": [1, 2], "paid": [True, False]}).rewards.tolist() == [1, 0]


def test_several_files_of_different_formats(tmp_path: pathlib.Path) -> None:
    FRAME[:2].write_parquet(tmp_path / "old.parquet")  # actions are integers there
    FRAME[2:].with_columns(extra=pl.lit(1)).write_csv(tmp_path / "new.csv")
    check(read([tmp_path / "old.parquet", tmp_path / "new.csv"]))
    with pytest.raises(LogError, match=r"old.parquet is named twice"):
        read([tmp_path / "old.parquet", tmp_path / "new.csv", tmp_path / "old.parquet"])
    with pytest.raises(LogError, match="paths"):
        read([FRAME, FRAME])


def test_exact_duplicates_are_counted_and_dropped_on_request() -> None:
    table = {"who": [1, 1, 1, 2], "what": list("xxxy"), "paid": [1, 1, 0, 1], "when": [1, 1, 1, 1]}
    log = read_log(table, "who", "what", "paid", order="when")
    assert log.n_repeated_rows == 1
    assert log.n_duplicates == 2
    dropped = log.merged("drop")
    assert dropped.rewards.tolist() == [1, 0, 1]
    assert dropped.n_repeated_rows == 0
    table["when"] = [1, 2, 3, 4]
    assert read_log(table, "who", "what", "paid", order="when").n_repeated_rows == 0


MANY = b"who,what,paid\n" + b"a,x,1\nb,y,2\n" * 700


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (MANY + b"a,x,1,9\n" + b"b,y,2\n", r"line 1402 has 4 fields, but there are 3 columns"),
        (MANY + b"a,\x00\x8f,1\n", r"line 1402 holds bytes that are no text \(the first is 0x00"),
        (MANY + "Zoë,x,1\n".encode() + b"\xff,y,2\n", r"line 1403 holds bytes that are no text"),
        (MANY + b'a,"x,1\nb,y,2\n', r"line 1402 .* quotation mark that is not closed"),
        (b"who,what,who,paid\na,x,b,1\n", r"two columns 'who'"),
        (b"", r"cannot be read as CSV: the file is empty"),
    ],
)
def test_damaged_text_is_refused_with_its_line(
    tmp_path: pathlib.Path, content: bytes, message: str
) -> None:
    path = tmp_path / "log.csv"
    path.write_bytes(content)
    with pytest.raises(LogError, match=message):
        read(path)


def test_a_long_row_is_found_in_columns_that_are_not_read(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("who,what,paid,note\na,x,1,fine\nb,y,2,one,two\n")
    with pytest.raises(LogError, match="line 3 has 5 fields"):
        read(path)
    path.write_text('who,what,paid,note\na,x,1,7" single\nb,y,2,"one,two"\n')
    assert read(path).n_events == 2


def test_damaged_json_and_compression(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text('{"who":1,"what":2,"paid":1}\n{"who":1,"what":2,\n')
    with pytest.raises(LogError, match="line 2 is not JSON"):
        read(path)
    path.write_text('{"who":1,"what":2,"paid":1}\n[1,2]\n')
    with pytest.raises(LogError, match="line 2 is not a JSON object"):
        read(path)
    for name, data in (
        ("log.csv.gz", gzip.compress(CSV)),
        ("log.csv.zst", zstandard.compress(CSV)),
    ):
        (tmp_path / name).write_bytes(data[: len(data) // 2])
        with pytest.raises(LogError, match="cannot be decompressed"):
            read(tmp_path / name)
        (tmp_path / name).write_bytes(b"not compressed at all")
        with pytest.raises(LogError, match="cannot be decompressed"):
            read(tmp_path / name)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"separator": ""}, "separator must be one or more characters"),
        ({"encoding": "klingon"}, "'klingon' is not an encoding"),
        ({"columns": ("a", "a")}, "different names"),
    ],
)
def test_text_formats_that_cannot_be(options: dict[str, object], message: str) -> None:
    with pytest.raises(LogError, match=message):
        TextFormat(**options)  # type: ignore[arg-type]


def test_a_given_encoding_that_does_not_fit_names_the_line(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "log.csv"
    path.write_bytes("who,what,paid\na,x,1\nJürgen,y,0\n".encode("cp1252"))
    with pytest.raises(LogError, match="line 3 is not text in utf-8"):
        read(path, encoding="utf-8")


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf_16_without_a_mark_is_suggested(tmp_path: pathlib.Path, encoding: str) -> None:
    path = tmp_path / "log.csv"
    path.write_bytes("who,what,paid\na,x,1\nb,y,0\n".encode(encoding))
    with pytest.raises(LogError, match=f"try --encoding {encoding}$"):
        read(path)
    assert read(path, encoding=encoding).rewards.tolist() == [1.0, 0.0]
