"""All of a block is committed at its end, or none of it."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from latentbandits.serving.engine.engine import Engine


class Transaction:
    """`engine.begin()` ... `engine.commit()`, or `engine.rollback()` if anything goes wrong."""

    __slots__ = ("_engine",)

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def __enter__(self) -> None:
        try:
            self._engine.begin()
        except BaseException:
            self._engine.rollback()
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None:
            self._engine.rollback()
            return
        try:
            self._engine.commit()
        except BaseException:
            self._engine.rollback(certain=False)
            raise
