"""The contents of a report: claims, tables, figures and frames, as data."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from latentbandits.report.estimate import Estimate

if TYPE_CHECKING:
    import polars
    from matplotlib.figure import Figure


class Claim(NamedTuple):
    """A claim: its prediction, the measurement, and whether it holds.

    `holds` is None where the runs are too few to tell.
    """

    id: str
    claim: str
    predicted: str
    measured: str
    holds: bool | None


@dataclass(frozen=True, eq=False)
class Table:
    """Rows for a terminal."""

    title: str
    columns: tuple[str, ...]
    rows: list[tuple[str, ...]]


@dataclass(frozen=True, eq=False)
class Report:
    """The results of a command: data for results.json, tables, figures and frames."""

    experiment: str | None  # None: the command is not an experiment
    settings: Mapping[str, Any]
    seconds: float
    policies: list[dict[str, Any]]
    command: str = "reproduce"
    warnings: list[str] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    figures: Mapping[str, Figure] = field(default_factory=dict)
    frames: Mapping[str, polars.DataFrame] = field(default_factory=dict)

    def drawn_by(self, draw: Callable[[Mapping[str, Any]], Mapping[str, Figure]]) -> Report:
        """Return the report with the figures that `draw` makes of the content of results.json.

        So a figure can be drawn again from the file alone (`python -m tools.figures`).
        """
        results = {"settings": self.settings, "policies": self.policies}
        return replace(self, figures=draw(results))


def all_positive(differences: Iterable[Estimate]) -> bool | None:
    """Return whether all differences are above zero by more than two standard errors.

    False if one is below zero by as much, else None: too few runs to tell.

    >>> all_positive([Estimate(1.0, 0.3)]), all_positive([Estimate(1.0, 0.6)])
    (True, None)
    """
    scores = [(difference.mean, 2 * difference.stderr) for difference in differences]
    if all(mean > margin for mean, margin in scores):
        return True
    return False if any(mean < -margin for mean, margin in scores) else None
