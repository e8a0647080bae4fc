"""Show a result in a notebook: one line of text, and HTML with tables and a picture.

A class that inherits from `Shown` says what its line, tables, picture and columns are.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from html import escape
from typing import TYPE_CHECKING, Any

from latentbandits.extras import missing
from latentbandits.report.report import Table

if TYPE_CHECKING:
    import pandas
    import polars
    from matplotlib.figure import Figure

_COLOURS = {"helps": "#009e73", "harms": "#d55e00"}
_GREY = "#8c8c8c"


class Shown:
    """Base class of values that a notebook shows, and that can be drawn and read as a table."""

    def _headline(self) -> str:
        """Return one line of text about the value."""
        raise NotImplementedError

    def _shown_tables(self) -> list[Table]:
        """Return the tables that a notebook shows."""
        raise NotImplementedError

    def _columns(self) -> Mapping[str, Sequence[Any]]:
        """Return the columns of the value's table, all of one length."""
        raise NotImplementedError

    def _draw(self) -> Any:
        """Return the picture, a matplotlib figure; None if there is nothing to draw."""
        raise NotImplementedError

    def _verdict(self) -> tuple[str, str] | None:
        """Return a verdict ("helps", "harms" or another) and its sentence; None: there is none."""
        return None

    def __repr__(self) -> str:
        return self._headline()

    def _repr_html_(self) -> str:
        parts = [f"<p><b>{escape(self._headline())}</b></p>"]
        verdict = self._verdict()
        if verdict is not None:
            colour = _COLOURS.get(verdict[0], _GREY)
            style = f"border-left: 6px solid {colour}; padding: 0.3rem 0.8rem"
            parts.append(f"<p style='{style}'>{escape(verdict[1])}</p>")
        parts += [titled(table) for table in self._shown_tables()]
        try:
            figure = self._draw()
        except ModuleNotFoundError:  # the tables are worth showing without matplotlib too
            figure = None
        if figure is not None:
            parts.append(image(png(figure), self._headline()))
        return f"<div>{''.join(parts)}</div>"

    def plot(self) -> Figure:
        """Return the picture as a matplotlib figure, which a notebook shows."""
        try:
            figure: Figure | None = self._draw()
        except ModuleNotFoundError as error:
            raise missing(error, "plot", "learning") from None
        if figure is None:
            raise ValueError(f"there is nothing to draw yet: {self._headline()}")
        # IPython knows how to show the figures that pyplot made, and this one is not.
        figure._repr_png_ = partial(png, figure)  # type: ignore[attr-defined]
        return figure

    def to_polars(self) -> polars.DataFrame:
        """Return the value as a polars table."""
        try:
            import polars
        except ModuleNotFoundError as error:
            raise missing(error, "to_polars", "learning") from None
        return polars.DataFrame(self._columns())

    def to_pandas(self) -> pandas.DataFrame:
        """Return the value as a pandas table."""
        try:
            import pandas
        except ModuleNotFoundError:
            raise ModuleNotFoundError(
                "to_pandas needs the package 'pandas': pip install pandas", name="pandas"
            ) from None
        return pandas.DataFrame(self._columns())


def columns_of(rows: Iterable[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Return rows with the same keys as columns.

    >>> columns_of([{"round": 1, "reward": 0.5}, {"round": 2, "reward": 0.7}])
    {'round': [1, 2], 'reward': [0.5, 0.7]}
    """
    columns: dict[str, list[Any]] = {}
    for row in rows:
        for name, value in row.items():
            columns.setdefault(name, []).append(value)
    return columns


def plural(count: int, noun: str) -> str:
    """Format a count with its noun.

    >>> plural(1, "state"), plural(2_000, "user")
    ('1 state', '2,000 users')
    """
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def png(figure: Figure) -> bytes:
    """Return a figure as a PNG file."""
    file = io.BytesIO()
    figure.savefig(file, dpi=110)
    return file.getvalue()


def image(content: bytes, title: str) -> str:
    """Return a PNG file as an HTML image."""
    source = base64.b64encode(content).decode()
    return f"<img alt='{escape(title)}' src='data:image/png;base64,{source}'>"


def titled(table: Table) -> str:
    """Return a table with its title as HTML."""
    return f"<h2>{escape(table.title)}</h2>" + html_table(table.columns, table.rows)


def html_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table as HTML.

    >>> html_table(["action"], [["<tea>"]])
    '<table><tr><th>action</th></tr><tr><td>&lt;tea&gt;</td></tr></table>'
    """
    lines = [_cells("th", columns), *(_cells("td", row) for row in rows)]
    return f"<table>{''.join(lines)}</table>"


def _cells(tag: str, texts: Sequence[str]) -> str:
    """Return one row of a table; a cell may have several lines."""
    cells = (escape(text).replace("\n", "<br>") for text in texts)
    return "<tr>" + "".join(f"<{tag}>{cell}</{tag}>" for cell in cells) + "</tr>"
