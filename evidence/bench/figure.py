"""The figure of the benchmark, drawn from its results.json."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw(results: Mapping[str, Any]) -> Mapping[str, Figure]:
    """Return no figure yet."""
    return {}
