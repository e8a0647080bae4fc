"""Hostile input: a corpus of bad values in every place, and schemathesis on the document."""

from __future__ import annotations

import asyncio
import json
import random
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from latentbandits import save
from tests.faults.load import arms, linear
from tests.faults.table import Result
from tests.processes.http import Connection
from tests.processes.service import RunningService

_SLOWEST = 1.0  # seconds
_VALUES = [
    b"NaN", b"Infinity", b"-Infinity", b"1e999", b"-1e999", b"1180591620717411303424", b"1e308",
    b"-0.0", b"5e-324", b'"1"', b"true", b"false", b"null", b"[]", b"{}", b"[[]]", b"[[[]]]",
    b'""', b'"\\u0000"', b'"\\ud800"', b'"\\udfff\\ud800"', b'"\xff\xfe"', b'"\xc3\x28"',
    b"\"'; DROP TABLE sessions; --\"", b'"' + b"a" * 100_000 + b'"', b"0" * 5000, b"1" * 5000,
    b"[" * 100_000, b"[" * 1000 + b"]" * 1000, b'{"a":' * 5000 + b"1" + b"}" * 5000,
    b"[1,2],[1]", b"[[1,2],[1]]", b"[[1,2,3],[]]", b'[["1"]]', b"[[null]]", b"[[1e9,1e9,1e9]]",
    b'["0","0"]', b"[0]", b"[[1e-320,0,0]]", b'["0","1","2","3","4"]', b'"\\"', b"-", b".5", b"0x1",
    b"[" + b",".join([b'"x"'] * 1001) + b"]", b"[" + b",".join([b"[0,0,0]"] * 1000) + b"]",
]  # fmt: skip
_FIELDS = {
    "/v1/decide": [b"session", b"actions", b"features", b"request_id", b"default"],
    "/v1/reward": [b"decision_id", b"value", b"event_id"],
    "/v1/sessions/merge": [b"into", b"other"],
    "/v1/models/activate": [b"path", b"model", b"mode", b"force"],
}
_GOOD = {
    b"session": b'"s"', b"actions": b'["0","1"]', b"features": b"[[1,2,3],[4,5,6]]",
    b"request_id": b'"r"', b"default": b'"0"', b"value": b"0.5", b"event_id": b'"e"',
    b"into": b'"s"', b"other": b'"t"', b"path": b'"arms"', b"mode": b'"pinned"', b"force": b"true",
    b"model": b'"m"', b"decision_id": b'"343c1db679600000051193f670094651"',
}  # fmt: skip


def run(folder: Path, full: bool) -> list[Result]:
    cases, examples = (18_000, 300) if full else (1_500, 2)
    save(arms(0), folder / "models" / "arms")
    save(linear(0), folder / "models" / "linear")
    results = []
    for model in ("arms", "linear"):
        with RunningService(folder / "models" / model, folder=folder) as service:
            counts, slowest = asyncio.run(_corpus(service, cases // 2))
            alive = service.ready()
        errors = sum(n for status, n in counts.items() if status >= 500)
        shown = ", ".join(f"{n} x {status}" for status, n in sorted(counts.items()))
        results.append(
            Result(f"hostile corpus ({model})",
                   f"{sum(counts.values())} cases: {shown}; the slowest took {slowest:.2f} s",
                   alive and errors == 0 and slowest < _SLOWEST)
        )  # fmt: skip
    with RunningService(folder / "models" / "arms", folder=folder) as service:
        results.append(_schemathesis(service, folder, examples, full))
    return results


def corpus(seed: int) -> Iterator[tuple[str, bytes]]:
    """Bodies with bad values in one or more places, without end."""
    for path in _FIELDS:
        for value in _VALUES:
            yield path, value
            yield path, b"[" + value + b"]"
    duplicate = b'{"session": "a", "session": "b", "session": 3}'
    million = json.dumps({"session": "a", "actions": [str(i) for i in range(10**6)]}).encode()
    yield from (("/v1/decide", duplicate), ("/v1/decide", million))
    rng = random.Random(seed)
    while True:
        path = rng.choice(list(_FIELDS))
        fields = [name for name in _FIELDS[path] if rng.random() < 0.7]
        members = []
        for name in fields:
            bad = rng.random() < 0.4
            members.append(b'"%s":%s' % (name, rng.choice(_VALUES) if bad else _GOOD[name]))
        body = b"{" + b",".join(members) + b"}"
        if rng.random() < 0.1:
            cut = rng.randrange(len(body))
            body = body[:cut] + rng.randbytes(rng.randrange(4)) + body[cut + 1 :]
        yield path, body


async def _corpus(service: RunningService, cases: int) -> tuple[Counter[int], float]:
    counts: Counter[int] = Counter()
    slowest = 0.0
    connection = Connection(service.port)
    bodies = corpus(7)
    for _ in range(cases):
        path, body = next(bodies)
        begun = time.perf_counter()
        reply = await connection.post(path, body)
        slowest = max(slowest, time.perf_counter() - begun)
        counts[reply.status] += 1
        if reply.status >= 400:
            assert reply.json()["error"]["message"], body[:200]
    connection.close()
    return counts, slowest


def _schemathesis(service: RunningService, folder: Path, examples: int, full: bool) -> Result:
    """All phases and all checks, but one that the document cannot state (see the TOML file)."""
    done = subprocess.run(
        [
            sys.executable, "-m", "schemathesis.cli",
            "--config-file", Path(__file__).with_name("schemathesis.toml"),
            "run", f"{service.url}/openapi.json", "--max-examples", str(examples), "--seed", "1",
            "--max-response-time", str(_SLOWEST), "--suppress-health-check", "all",
            "--phases", "examples,coverage,fuzzing,stateful" if full else "examples,fuzzing",
        ],
        capture_output=True, text=True, timeout=1800, check=False, cwd=folder,
    )  # fmt: skip
    summary = re.search(r"(\d+) generated, (.*)", done.stdout)
    counted = "it did not run: " + (done.stderr or done.stdout)[-500:]
    if summary is not None:
        counted = f"{summary[1]} cases: {summary[2]}"
    if done.returncode != 0:
        failures = re.search(r"Failures:(.*?)\n\n", done.stdout, re.DOTALL)
        counted += "" if failures is None else " ".join(failures[1].split())
    return Result("schemathesis on the OpenAPI document", counted, done.returncode == 0)
