"""The event loop and the writer's thread take turns, and neither can stop the other."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

from latentbandits.serving.engine.engine import Engine
from latentbandits.serving.engine.turns import Turns
from latentbandits.serving.engine.writer import Writer
from latentbandits.serving.stores.sqlite import SqliteStore


def test_the_loop_waits_until_the_writer_has_decided() -> None:
    turns = Turns(on=True)
    events: list[str] = []
    turns.expect_decisions()

    def decide() -> None:
        events.append("decided")
        turns.decided()

    thread = threading.Thread(target=decide)
    thread.start()
    turns.await_decisions()
    events.append("the loop goes on")
    thread.join()
    assert events == ["decided", "the loop goes on"]


def test_an_operation_that_hangs_does_not_stop_the_loop(tmp_path: Path) -> None:
    """The operation ends only if the loop runs on while it hangs."""
    go_on = threading.Event()

    async def run() -> list[Any]:
        writer = Writer(Engine(SqliteStore(tmp_path / "a.sqlite")), 100)
        writer.start()
        hanging = [asyncio.create_task(writer.run(lambda engine: go_on.wait(30))) for _ in range(3)]
        await asyncio.sleep(0.05)
        later = [asyncio.create_task(writer.run(lambda engine: "done")) for _ in range(3)]
        await asyncio.sleep(0.05)
        go_on.set()
        answers = await asyncio.gather(*hanging, *later)
        await writer.close()
        return answers

    assert asyncio.run(run()) == [True] * 3 + ["done"] * 3
