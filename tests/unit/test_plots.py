"""Figures: at most five labelled lines in a panel, labels that do not overlap, a dark variant."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.text import Text
from tools.figures import dark, kept
from tools.figures.__main__ import drawn as drawn_from

from latentbandits import TS, UCB1, mTS, simulate
from latentbandits.environments import Synthetic
from latentbandits.learning.assess.figures import _candidates
from latentbandits.report.drawing import MOST_LABELLED, NARROW, SMALL, spread_out
from latentbandits.simulation.plots import draw_results


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8).map(sorted))
def test_labels_are_apart_and_in_order(heights):
    placed = spread_out(heights, 0.1)
    assert len(placed) == len(heights)
    assert (np.diff(placed) >= 0.1 - 1e-9).all()
    assert max(placed) <= 1 + 1e-9


def test_labels_that_are_apart_stay_where_they_are():
    assert np.allclose(spread_out([0.1, 0.5, 0.9], 0.1), [0.1, 0.5, 0.9])


def drawn(n):
    players = {f"UCB {i}": UCB1(10, scale=0.1 * (i + 1)) for i in range(n)}
    results = simulate(players, Synthetic(model_noise=0.1), n_runs=20, horizon=10)
    return draw_results(results, "title", "reward")


def test_few_lines_are_labelled_where_they_end_and_many_by_a_legend():
    few, many = drawn(MOST_LABELLED), drawn(MOST_LABELLED + 1)
    assert not few.legends
    assert [text.get_text() for text in few.axes[0].texts] != []
    assert len(few.axes[0].texts) == MOST_LABELLED
    assert len(many.legends) == 1
    assert not many.axes[0].texts


def test_axes_end_where_the_data_ends():
    axes = drawn(2).axes[0]
    assert axes.get_xlim() == (1, 10)


def test_everything_is_light_on_a_dark_page():
    players = {"TS": TS(10, noise=0.5), "mTS": mTS}
    results = simulate(players, Synthetic(model_noise=0.1), n_runs=20, horizon=10)
    figure = draw_results(results, "title", "reward")
    dark.recolour(figure)
    assert isinstance(figure, Figure)
    ink = [text.get_color() for text in figure.findobj(lambda a: hasattr(a, "get_text"))]
    ink += [line.get_color() for line in figure.axes[0].get_lines()]
    assert min(sum(to_rgb(colour)) for colour in ink) > 0.9
    assert sum(to_rgb(figure.get_facecolor())) < 0.3


RESULTS = Path(__file__).parents[2] / "docs" / "figures" / "results"


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*.json")), ids=lambda path: path.stem)
def test_every_kept_result_is_drawn_with_few_labelled_lines_and_readable_text(path):
    """Text of 9 points or more on a narrow figure, no legend, at most five lines in a panel."""
    for stem, figure in drawn_from(kept.read(path)).items():
        assert (RESULTS.parent / f"{stem}.png").exists()
        assert (RESULTS.parent / f"{stem}-dark.png").exists()
        assert figure.get_figwidth() <= NARROW
        assert not figure.legends
        for axes in figure.axes:
            names = [str(line.get_label()) for line in axes.get_lines()]
            assert sum(not name.startswith("_") for name in names) <= MOST_LABELLED
            assert axes.get_legend() is None
        shown = [text for text in figure.findobj(Text) if text.get_text() and text.get_visible()]
        assert min(text.get_fontsize() for text in shown) >= SMALL


def test_kept_results_are_read_as_they_were_written(tmp_path):
    rows = [
        {"policy": "TS", "setting": "a", "table": "i", "regret": 1 / 3, "chosen": "x"},
        {"policy": "mTS", "setting": "b", "table": "ii", "regret": None},
    ]
    kept.write({"experiment": "related", "settings": {"seed": 0}, "policies": rows}, tmp_path)
    one, other = (kept.read(tmp_path / f"related-{table}.json") for table in ("i", "ii"))
    assert one["policies"] == [rows[0] | {"regret": 0.333333}]
    assert other["policies"] == [rows[1]]
    assert one["experiment"] == other["experiment"] == "related"


def test_bars_of_errors_are_light_on_a_dark_page():
    figure = Figure()
    axes = figure.subplots()
    axes.errorbar([1], [1], [1], color="#000000")
    dark.recolour(figure)
    bars = axes.collections[0].get_edgecolor()
    assert sum(to_rgb(bars[0])) > 2


@pytest.mark.parametrize(("difference", "flat"), [(1e-6, True), (0.1, False)])
def test_scores_that_hardly_differ_are_drawn_as_a_flat_line(difference, flat):
    """The line of a log without states fell or rose over the whole panel by a millionth."""
    rows = [
        {"states": n, "rank": None, "evidence": -1.4 + n * difference, "chosen": n == 1}
        for n in (1, 2, 3)
    ]
    axes = Figure().subplots()
    _candidates(axes, {"selection": rows}, "evidence", "log density")
    low, high = axes.get_ylim()
    assert low < -1.4 + difference
    assert high > -1.4 + 3 * difference
    assert (2 * difference < 0.01 * (high - low)) == flat
