"""Figures of predicted distributions: what is chosen and drawn."""

from functools import cache

import numpy as np
import pytest
from watch_recordings import ATOMS, make_recording

from cramerl import plots
from cramerl.reports.distributions import choose_snapshots, draw_distributions


@cache
def drawn(agent):
    """A recording of an agent and the figure of it."""
    recording = make_recording(views=(agent,))
    return recording, draw_distributions(recording, "distributions", "a title", "A caption.")


def test_snapshots_of_an_episode():
    found = choose_snapshots(make_recording(views=("s51",)))
    assert list(found.items()) == [(0, "start"), (20, "middle"), (17, "most negative mass")]
    found = choose_snapshots(make_recording(views=("c51",)))
    assert list(found.items()) == [(0, "start"), (20, "middle"), (39, "end")]
    found = choose_snapshots(make_recording(steps=1, views=("s51",)))
    assert found == {0: "start, middle, most negative mass"}


def test_what_is_drawn_is_what_was_recorded(tmp_path):
    recording, figure = drawn("s51")
    view = recording.views[0]
    assert figure.caption.startswith("A caption. Most negative mass: ")
    assert f"{view.negative[17]:.2g}, at step 17" in figure.caption
    assert len(figure.panels) == 9
    panel = figure.panels[2 * 3 + int(recording.action[17])]  # the third row
    heading = panel.axes.get_title(loc="left")
    assert heading.splitlines()[0] == f"{recording.actions[recording.action[17]]}, chosen"
    assert heading.splitlines()[1].startswith(f"mean {view.values[17, recording.action[17]]:.2f}")
    assert panel.axes.get_title(loc="right") == f"negative {view.negative[17]:.2f}"
    masses = view.distribution(17, int(recording.action[17]))[1]
    positive, negative = panel.traces
    np.testing.assert_array_equal(np.nan_to_num(positive.middle) + np.nan_to_num(negative.middle), masses)
    (shape,) = (patch for patch in panel.axes.patches if patch.get_gid().endswith("negative"))
    assert shape.get_path().vertices[:, 1].min() == pytest.approx(masses.min())
    assert plots.NEGATIVE.lower() in (plots.save_same(figure.drawing, tmp_path / "a.svg")).read_text()


@pytest.mark.parametrize("agent", ["s51", "c51", "qr"])
def test_actions_of_a_snapshot_have_one_scale_that_holds_them(agent):
    recording, figure = drawn(agent)
    for row, step in enumerate(choose_snapshots(recording)):
        masses = [recording.views[0].distribution(step, action)[1] for action in range(3)]
        limits = {panel.axes.get_ylim() for panel in figure.panels[3 * row : 3 * row + 3]}
        ((low, high),) = limits
        assert low < min(np.min(masses), 0)
        assert np.max(masses) < high < 2 * np.max(masses)


def test_of_many_actions_those_taken_are_shown():
    recording = make_recording(views=("s51",))
    view = recording.views[0]
    many = view._replace(
        distributions=np.repeat(view.distributions, 6, axis=1), values=np.repeat(view.values, 6, axis=1)
    )
    names = [f"action {i}" for i in range(18)]
    changed = type(recording)(**(vars(recording) | {"views": [many], "actions": names}))
    figure = draw_distributions(changed, "distributions", "a title", "A caption.")
    assert len(figure.panels) == 3 * 4
    assert "Shown are 4 of 18 actions" in figure.caption
    chosen = [panel for panel in figure.panels if ", chosen" in panel.axes.get_title(loc="left")]
    assert len(chosen) == 3


def test_atoms_are_those_of_the_recording():
    panel = drawn("s51")[1].panels[0]
    assert list(panel.traces[0].words) == [f"return {atom:.4g}" for atom in ATOMS]


def test_quantiles_are_drawn_as_sticks():
    figure = drawn("qr")[1]
    assert "Sticks of equal mass stand at the predicted quantiles." in figure.caption
    assert len(figure.panels[0].traces[0].words) == 5
