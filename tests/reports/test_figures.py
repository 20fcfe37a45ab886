"""The figures of a report: which there are, and their layout."""

import itertools

import numpy as np
import pytest
from study_runs import read_rows, summary_of, write_rows, write_run

from cramerl.evidence.curves import on_grid, read_curves
from cramerl.evidence.summary import summarise
from cramerl.reports.figures import grid_edges, make_figures

GAMES = ("Asterix-MinAtar", "Breakout-MinAtar", "Seaquest-MinAtar", "SpaceInvaders-MinAtar")


def test_figures_are_those_that_say_something(tmp_path):
    for i, env in enumerate(GAMES):
        write_run(tmp_path / str(i), "c51", env)
        write_run(tmp_path / f"dqn{i}", "dqn", env)
    curves, *others = make_figures(summary_of(tmp_path))
    assert curves.drawing.axes[0].get_subplotspec().get_geometry()[:2] == (2, 2)
    assert [figure.name for figure in others] == ["aggregates", "profiles"]
    (summary,) = summarise([curve for curve in read_curves([tmp_path]) if curve.env == GAMES[0]])
    assert [figure.name for figure in make_figures(summary)] == ["curves"]  # one run each: a score, and no more


def test_few_rates_are_ticks(study):
    (drawing,) = (figure.drawing for figure in make_figures(summary_of(study / "rates")) if figure.name == "rates")
    assert [label.get_text() for label in drawing.axes[0].get_xticklabels()] == ["0.0001", "0.0005"]


def test_penalties_have_a_line_for_each_normalisation(study):
    (figure,) = (one for one in make_figures(summary_of(study / "lambda")) if one.name == "penalties")
    labels = [trace.label for trace in figure.panels[0].traces]
    assert labels == ["s51, normalised after", "s51, normalised before"]
    assert figure.panels[0].traces[0].x == [1, 10, 51, 510]


def test_curves_are_cut_where_logs_have_rows(tmp_path):
    run = write_run(tmp_path / "run", "c51", rows=4, steps=20_000)
    steps = (5008, 10016, 15024, 20000)
    write_rows(run, [row | {"step": step} for row, step in zip(read_rows(run), steps, strict=True)])
    edges = grid_edges(summary_of(run), "Breakout-MinAtar")
    assert edges.tolist() == [0, *steps]
    (curve,) = read_curves([run])
    np.testing.assert_array_equal(on_grid(curve, edges), curve.returns)
    edges = grid_edges(summary_of(write_run(tmp_path / "long", "c51", rows=100)), "Breakout-MinAtar")
    assert (len(edges), edges[0], edges[-1]) == (61, 0, 1000)
    assert set(np.diff(edges)) == {10, 20}


@pytest.mark.parametrize("steps", [99_000, 200_000])
def test_a_legend_has_room_and_an_axis_short_numbers(steps, tmp_path):
    """Six series in one narrow panel."""
    for i, (agent, v_max) in enumerate(itertools.product(("c51", "s51", "u51"), (10.0, 100.0))):
        write_run(tmp_path / f"runs/{i}", agent, steps=steps, v_max=v_max)
    drawing = make_figures(summary_of(tmp_path))[0].drawing
    drawing.draw_without_rendering()
    box, page = drawing.legends[0].get_window_extent(), drawing.bbox
    assert page.x0 <= box.x0 < box.x1 <= page.x1
    assert len(drawing.legends[0].get_texts()) == 6
    axis = drawing.axes[0]
    unit, last = ("million agent steps", 0.2) if steps > 1e5 else ("agent steps", 99_000)
    assert axis.get_xlabel() == unit
    assert max(line.get_xdata().max() for line in axis.get_lines()) == pytest.approx(last)


def test_panels_keep_their_height_above_a_long_legend(tmp_path):
    for i in range(14):
        settings = {"n_step": 1 + i, "v_max": 10.0 + i, "base_distribution": "zero", "mean_weight": 0.1}
        write_run(tmp_path / f"runs/{i}", "u51", **settings)
    drawing = make_figures(summary_of(tmp_path))[0].drawing
    drawing.draw_without_rendering()
    assert drawing.axes[0].get_window_extent().height > 1.5 * drawing.dpi


def test_published_scores_are_points_as_far_as_the_curves_reach(tmp_path):
    for agent in ("c51", "dqn", "s51"):
        write_run(tmp_path / agent, agent, "pong", preset="paper", steps=2_500_000, num_envs=128)
    figure = make_figures(summary_of(tmp_path))[0]
    (ax,) = figure.drawing.axes
    points = [
        tuple(map(float, line.get_xydata()[0]))
        for line in ax.lines
        if line.get_marker() == "D" and len(line.get_xdata())
    ]
    assert sorted(points) == [(10.0, -12.9), (10.0, -7.2)]
    assert ax.get_xlabel() == "million frames\nDQN Zoo, 10 M frames:\ndqn: -12.9 [-16.5, -8.1]\nc51: -7.2 [-12.8, -0.5]"
    assert "DQN Zoo, 5 seeds (min to max)" in figure.caption
    assert "CleanRL" not in figure.caption  # its score is of 40 M frames
