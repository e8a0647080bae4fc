"""The writer answers 503 where nothing was done, and 504 only where that is not known."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from latentbandits.serving.engine.engine import Engine
from latentbandits.serving.engine.sessions import Rebuilding
from latentbandits.serving.engine.writer import Writer
from latentbandits.serving.errors import Busy
from latentbandits.serving.stores.protocol import Store
from latentbandits.serving.stores.sqlite import MemoryStore, SqliteStore


def in_rebuilding(engine: Engine) -> Any:
    raise Rebuilding(1)


def writer_that_never_completes_a_replay(store: Store) -> Writer:
    engine = Engine(store)
    engine.sessions.rebuild = lambda *_: False  # type: ignore[method-assign]
    return Writer(engine, 100)


@pytest.mark.parametrize("durable", [True, False])
@pytest.mark.parametrize("end", ["refuse_unbegun", "close"])
def test_what_waits_for_a_replay_was_not_done(tmp_path: Path, end: str, durable: bool) -> None:
    async def run() -> list[Any]:
        store = SqliteStore(tmp_path / "a.sqlite") if durable else MemoryStore()
        writer = writer_that_never_completes_a_replay(store)
        writer.start()
        waiting = [asyncio.ensure_future(writer.run(in_rebuilding)) for _ in range(3)]
        done = await writer.run(lambda engine: "done")
        await asyncio.sleep(0.02)
        assert not any(task.done() for task in waiting)
        if end == "refuse_unbegun":
            writer.refuse_unbegun()
        else:
            await writer.close()
        async with asyncio.timeout(5):
            answers = await asyncio.gather(*waiting, return_exceptions=True)
        assert writer.waiting == 0
        if end == "refuse_unbegun":
            await writer.close()
        return [done, *map(type, answers)]

    assert asyncio.run(run()) == ["done", Busy, Busy, Busy]


def test_what_was_begun_is_answered_and_what_comes_is_refused(tmp_path: Path) -> None:
    go_on = threading.Event()
    rebuilding = threading.Event()

    def slow(engine: Engine) -> str:
        go_on.wait(30)
        return "done"

    def slow_and_long(engine: Engine) -> Any:
        rebuilding.wait(30)
        raise Rebuilding(1)

    async def run() -> list[Any]:
        writer = writer_that_never_completes_a_replay(SqliteStore(tmp_path / "a.sqlite"))
        writer.start()
        begun = asyncio.ensure_future(writer.run(slow))
        await asyncio.sleep(0.05)
        waiting = asyncio.ensure_future(writer.run(lambda engine: "never"))
        await asyncio.sleep(0.05)
        writer.refuse_unbegun()
        with pytest.raises(Busy):
            await writer.run(lambda engine: "never")
        go_on.set()
        answers = await asyncio.gather(begun, waiting, return_exceptions=True)
        await writer.close()
        return answers

    async def found_to_be_long() -> type[BaseException]:
        writer = writer_that_never_completes_a_replay(SqliteStore(tmp_path / "b.sqlite"))
        writer.start()
        begun = asyncio.ensure_future(writer.run(slow_and_long))
        await asyncio.sleep(0.05)
        writer.refuse_unbegun()
        rebuilding.set()
        with pytest.raises(Busy) as refused:
            await begun
        await writer.close()
        return refused.type

    done, refused = asyncio.run(run())
    assert done == "done"
    assert isinstance(refused, Busy)
    assert asyncio.run(found_to_be_long()) is Busy


def test_an_operation_that_hangs_does_not_stop_the_loop(tmp_path: Path) -> None:
    """The operation ends only if the loop runs on while it hangs."""
    go_on = threading.Event()

    async def run() -> list[Any]:
        writer = Writer(Engine(SqliteStore(tmp_path / "a.sqlite")), 100)
        writer.start()
        hanging = [
            asyncio.ensure_future(writer.run(lambda engine: go_on.wait(30))) for _ in range(3)
        ]
        await asyncio.sleep(0.05)
        later = [asyncio.ensure_future(writer.run(lambda engine: "done")) for _ in range(3)]
        await asyncio.sleep(0.05)
        go_on.set()
        answers = await asyncio.gather(*hanging, *later)
        await writer.close()
        return answers

    assert asyncio.run(run()) == [True] * 3 + ["done"] * 3
