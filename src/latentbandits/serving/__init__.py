"""The decision service: an engine without HTTP, its stores, and the app that translates."""

from __future__ import annotations

from typing import TYPE_CHECKING

from latentbandits.lazy import lazy_exports

if TYPE_CHECKING:
    from latentbandits.serving.embedding import Embedded, embed

__all__ = ["Embedded", "embed"]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "Embedded": "latentbandits.serving.embedding",
        "embed": "latentbandits.serving.embedding",
    },
)
