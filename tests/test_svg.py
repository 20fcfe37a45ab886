"""Drawings for notebooks: well-formed, and of the numbers given."""

import xml.etree.ElementTree as ET

import numpy as np
import pytest

from cramerl import _svg

SVG = "{http://www.w3.org/2000/svg}"


def test_bars_have_the_heights_of_the_masses_and_negative_ones_hang_below_the_line():
    masses = np.array([0.25, -0.5, 0.0, 1.0])
    drawing = ET.fromstring(_svg.bars([0.0, 1.0, 2.0, 3.0], masses))
    boxes = [(float(box.get("y")), float(box.get("height")), box.get("fill")) for box in drawing.iter(f"{SVG}rect")]
    assert len(boxes) == 3  # nothing is drawn of a mass of zero
    heights = np.array([height for _, height, _ in boxes])
    np.testing.assert_allclose(heights / heights[-1], [0.25, 0.5, 1.0], atol=0.01)
    line = float(drawing.find(f"{SVG}path").get("d").split()[1].partition("H")[0])
    assert [top + height == pytest.approx(line, abs=0.1) for top, height, _ in boxes] == [True, False, True]
    assert boxes[1][0] == pytest.approx(line, abs=0.1)
    assert len({fill for *_, fill in boxes}) == 2


@pytest.mark.parametrize("masses", [[0.0, 0.0], [1.0], [np.nan, 1.0]])
def test_bars_of_odd_numbers_are_drawn_nevertheless(masses):
    ET.fromstring(_svg.bars(np.arange(len(masses)), masses))


def test_curves_go_through_their_points():
    drawing = ET.fromstring(_svg.curves([[(0, 1.0), (10, 3.0)], [(0, 2.0), (10, 2.0)]], width=240))
    first, second = (line.get("points").split() for line in drawing.iter(f"{SVG}polyline"))
    assert first == ["2.0,58.0", "238.0,2.0"]
    assert second == ["2.0,30.0", "238.0,30.0"]
    assert "from 1 to 3" in str(drawing.get("aria-label"))
    ET.fromstring(_svg.curves([]))


def test_tables_escape_texts_and_keep_drawings():
    page = ET.fromstring(_svg.table(["<b>", "drawn"], [["1 < 2 & 3", _svg.bars([0.0, 1.0], [0.5, 0.5])]]))
    assert [cell.text for cell in page.iter("th")] == ["<b>", "drawn"]
    assert next(page.iter("td")).text == "1 < 2 & 3"
    assert len(list(page.iter(f"{SVG}svg"))) == 1
