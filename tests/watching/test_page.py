"""The HTML of a page, without a browser."""

import json
import re
from importlib.resources import files

import numpy as np
import pytest
from watch_recordings import make_recording

from cramerl.watching.page import page_data, to_html, write_page


def test_the_page_holds_everything_and_asks_for_nothing(tmp_path):
    path = write_page(make_recording(), tmp_path / "deep" / "page.html", highlight="double-negative")
    text = path.read_text(encoding="utf-8")
    assert "agents &lt;on&gt; a game" in text
    assert "{{" not in text
    assert not re.search(r"""(src|href)=["'](?!data:)""", text)
    assert "default-src 'none'" in text
    (found,) = re.findall(r'id="data">(.*?)</script>', text, re.DOTALL)
    data = json.loads(found)
    assert data["open"] == data["phenomena"]["double-negative"]["steps"][0] == 17


def test_a_name_cannot_end_the_script(tmp_path):
    made = make_recording()
    made.facts.append("</script><script>alert(1)</script>")
    text = to_html(page_data(made))
    assert "<script>alert" not in text
    (found,) = re.findall(r'id="data">(.*?)</script>', text, re.DOTALL)
    assert json.loads(found)["facts"] == made.facts


def colours_of_the_page():
    """The variables of the style sheets, in light and in dark."""
    light, dark = {}, {}
    for sheet in (files("cramerl._pages") / "base.css", files("cramerl.watching") / "assets" / "page.css"):
        first, second = re.findall(r":root \{(.*?)\}", sheet.read_text(), re.DOTALL)
        light |= re.findall(r"--([\w-]+): (#[0-9a-f]{6})", first)
        dark |= re.findall(r"--([\w-]+): (#[0-9a-f]{6})", second)
    assert set(light) == set(dark)
    return {"light": light, "dark": dark}


def contrast(one, other):
    """The ratio of WCAG 2: 1 for one colour, 21 for black on white."""

    def brightness(colour):
        parts = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
        return np.where(parts <= 0.03928, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4) @ [0.2126, 0.7152, 0.0722]

    dim, bright = sorted((brightness(one), brightness(other)))
    return (bright + 0.05) / (dim + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colours_stand_out_as_accessibility_asks(scheme):
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    colours = colours_of_the_page()[scheme]
    for ground in (colours["page"], colours["card"]):
        for text in ("text", "soft", "negative-text"):
            assert contrast(colours[text], ground) >= 4.5, text
        for shape in ("positive", "negative", "realised", "second", "fourth", "link"):
            assert contrast(colours[shape], ground) >= 3, shape
    assert contrast(colours["page"], colours["negative-text"]) >= 4.5  # of an error
    sheet = (files("cramerl.watching") / "assets" / "page.css").read_text()
    assert not re.search(r"color: #|stroke: #|fill: #", sheet)  # only the variables are colours


@pytest.mark.parametrize(
    ("highlight", "words"), [("joy", "got 'joy'"), ("disagreement", "got 'disagreement', which needs .* two agents")]
)
def test_a_phenomenon_that_cannot_be_highlighted(highlight, words):
    with pytest.raises(ValueError, match=f"highlight must be one of double-negative, compensation, noise, {words}"):
        page_data(make_recording(views=("dqn",)), highlight=highlight)
