"""Figures: at most five labelled lines in a panel, labels that do not overlap, a dark variant."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from tools.figures import dark

from latentbandits import TS, UCB1, mTS, simulate
from latentbandits.environments import Synthetic
from latentbandits.simulation.plots import MOST_LABELLED, draw_results, spread_out


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
