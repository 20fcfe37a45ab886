"""One way to draw a distribution."""

import numpy as np
import pytest
from matplotlib.colors import to_hex

from cramerl import plots

ATOMS, MASSES = np.arange(-2.0, 3.0), np.array([0.1, -0.2, 0.6, 0.0, 0.5])


def draw(**settings):
    figure, ax = plots.new_figure(1)
    plots.draw_distribution(ax, ATOMS, MASSES, **settings)
    return figure, ax


def test_masses_are_bars_in_the_colour_of_their_sign():
    _, ax = draw(name="here")
    shapes = {shape.get_gid(): shape for shape in ax.patches}
    assert set(shapes) == {"here-positive", "here-negative"}
    negative = shapes["here-negative"]
    assert to_hex(negative.get_facecolor()) == plots.NEGATIVE.lower()
    corners = negative.get_path().vertices
    assert corners[:, 0].mean() == pytest.approx(-1, abs=0.3)
    assert corners[:, 1].min() == pytest.approx(-0.2)
    assert np.ptp(corners[:, 0]) == pytest.approx(0.9)
    assert shapes["here-positive"].get_path().vertices[:, 1].max() == pytest.approx(0.6)


def test_axes_have_room_for_bars_and_never_magnify_tiny_masses():
    _, ax = draw()
    assert ax.get_xlim() == (-2.5, 2.5)
    assert ax.get_ylim() == pytest.approx((1.08 * -0.2, 1.08 * 0.6))
    assert plots.mass_limits(0.0, 1e-5) == plots.mass_limits(0.0, 0.02)
    assert plots.mass_limits(0.3, 0.5)[0] < 0  # the line of zero is always inside
    low, high = plots.return_limits(1.0, 1.0)
    assert low < 1 < high


def test_lines_mark_the_mean_and_the_realised_return():
    _, ax = draw(mean=1.5, realised=-1.0)
    assert [line.get_xdata()[0] for line in ax.lines[1:]] == [1.5, -1.0]  # after the line of zero
    _, ax = draw(mean=7.0, realised=np.nan)
    assert [line.get_xdata()[0] for line in ax.lines[1:]] == [2.5]  # at the end; an unknown return is not drawn


def test_quantiles_are_sticks_wherever_they_are():
    _, ax = plots.new_figure(1)
    plots.draw_distribution(ax, [3.0, -1.0, 0.5], np.full(3, 1 / 3), sticks=True)
    (shape,) = ax.patches
    corners = shape.get_path().vertices
    assert set(corners[:, 0]) == {3.0, -1.0, 0.5}
    assert corners[:, 1].max() == pytest.approx(1 / 3)
    assert shape.get_linewidth() > 1
    assert ax.get_xlim() == pytest.approx((-1.08, 3.08))


def test_panels_that_share_limits_fit_all_of_them():
    _, (left, right) = plots.new_figure(2)
    left.set(xlim=(-1, 5), ylim=(0, 2))
    right.set(xlim=(-3, 1), ylim=(-1, 1))
    plots.share_limits([left, right], "x")
    assert left.get_xlim() == right.get_xlim() == (-3, 5)
    assert left.get_ylim() == (0, 2)
    plots.share_limits([], "y")


def test_states_side_by_side_with_a_legend():
    figure = plots.draw_state_distributions(ATOMS, [3, 5, 8, 9], np.tile(MASSES, (4, 1)), [0.1, 0.2, 0.3, 0.4])
    shown = [ax.get_title() for ax in figure.axes if ax.get_visible()]
    assert shown == ["state 3: mean 0.1", "state 5: mean 0.2", "state 8: mean 0.3", "state 9: mean 0.4"]
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["mass", "negative mass, below the line", "mean"]


def test_settings_that_diverged_are_crossed_and_others_change_nothing():
    _, ax = plots.new_figure(1)
    plots.draw_diverged(ax, [], "black")
    assert not ax.lines
    plots.draw_diverged(ax, [1e-3, 1e-2], "black")
    (line,) = ax.lines
    assert (line.get_marker(), list(line.get_xdata())) == ("x", [1e-3, 1e-2])


def test_a_colour_means_one_thing():
    """An agent is never drawn in a colour of masses."""
    colours = list(plots.AGENT_COLOURS.values())
    assert len(set(colours)) == len(colours)
    assert not {plots.POSITIVE, plots.NEGATIVE} & set(colours)
