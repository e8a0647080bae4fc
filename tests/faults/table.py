"""What a fault is here, and the table that all of them make."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple


class Result(NamedTuple):
    """What was done to the service, what must hold, and what was counted."""

    what: str
    counted: str
    holds: bool


class Fault(NamedTuple):
    name: str
    run: Callable[[Path, bool], list[Result]]
    """From a scratch folder, and whether the full form is wanted."""


def render(results: Sequence[Result]) -> str:
    rows = [("what", "counted", "holds"), ("---", "---", "---")]
    rows += [(r.what, r.counted, "yes" if r.holds else "NO") for r in results]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)
