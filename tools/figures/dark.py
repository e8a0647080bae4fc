"""Recolour a figure for a dark page."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.collections import Collection
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.spines import Spine
from matplotlib.text import Text

PAGE = "#0d1117"
INK = "#e6edf3"
LIGHTER = {
    "#000000": INK,
    "#4d4d4d": "#c9d1d9",
    "#8c8c8c": "#a0a8b0",
    "#0072b2": "#58a6ff",
    "#009e73": "#3fd0a0",
    "#ffffff": PAGE,
}
"""Colours that would be too dark, and what stands for them."""


def recolour(figure: Figure) -> None:
    """Turn a figure that was drawn for a light page into one for a dark page, in place."""
    figure.set_facecolor(PAGE)
    for axes in figure.findobj(Axes):
        axes.set_facecolor(PAGE)
        axes.tick_params(colors=INK, which="both")
    for artist in figure.findobj():
        if isinstance(artist, Text):
            artist.set_color(_lighter(artist.get_color()))
        elif isinstance(artist, Spine):
            artist.set_color(INK)
        elif isinstance(artist, Line2D):
            artist.set_color(_lighter(artist.get_color()))
            artist.set_markerfacecolor(_lighter(artist.get_markerfacecolor()))
            artist.set_markeredgecolor(_lighter(artist.get_markeredgecolor()))
        elif isinstance(artist, Collection):
            _recolour_collection(artist)
        elif isinstance(artist, Patch) and artist.get_facecolor() is not None:
            artist.set_facecolor(_with_alpha(artist.get_facecolor()))


def _recolour_collection(artist: Collection) -> None:
    """Lighten faces and edges apart: the bars of errors have edges only."""
    faces, edges = artist.get_facecolor(), artist.get_edgecolor()
    if len(edges):
        artist.set_edgecolor([_with_alpha(one) for one in edges])
    if len(faces):
        artist.set_facecolor([_with_alpha(one) for one in faces])


def _lighter(colour: object) -> str:
    if isinstance(colour, str) and colour == "none":
        return "none"
    known = to_hex(colour)  # type: ignore[arg-type]
    return LIGHTER.get(known, known)


def _with_alpha(colour: object) -> tuple[str, float]:
    return _lighter(colour), float(colour[3])  # type: ignore[index]
