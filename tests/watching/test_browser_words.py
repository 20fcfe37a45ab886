"""What the page says in words, marks on its charts, and shows without scrolling, in a real browser."""

import json
from dataclasses import replace

import chromium as chromium_tools
import numpy as np
import pytest
from watch_recordings import ATOMS, make_recording

from cramerl.watching.page import write_page
from cramerl.watching.recording import make_view, read_evaluation

chromium_tools.require_chromium()

from selenium.webdriver.common.by import By  # noqa: E402 - after the checks above
from watch_page import Page  # noqa: E402


@pytest.fixture
def screen(chromium):
    """Sets the size of the window; resets it afterwards."""

    def resize(width, height):
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        chromium.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)

    yield resize
    chromium.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def predicting(masses, *, steps=20, returns=None, realised=np.nan, names=("s51",)):
    """A recording in which each agent predicts the same masses for all actions at all steps."""
    made = make_recording(steps, views=names)
    distributions = np.broadcast_to(np.asarray(masses, float), (steps, 3, len(ATOMS)))
    views = [make_view(name, ATOMS, distributions, distributions @ ATOMS, made.action) for name in names]
    return replace(made, views=views, returns=returns, realised=np.full(steps, realised, np.float32))


def at(**masses):
    """Masses on some atoms, such as p10=0.5 for the return 10 and m2 for -2."""
    found = np.zeros(len(ATOMS))
    for name, mass in masses.items():
        found[np.argmin(abs(ATOMS - float(name[1:]) * (-1 if name[0] == "m" else 1)))] = mass
    return found


@pytest.mark.parametrize(
    ("masses", "about", "sentence"),
    [
        (at(p2=1.0), {}, ""),
        (
            at(m2=1.0),
            {"returns": (0, 100)},
            "The mean, −2, cannot be true: rewards like those of this recording add up to returns from 0 to 100.",
        ),
        (
            at(p10=2.0, p2=-1.0),
            {"returns": (0, 100)},
            "The mean, 18, lies above the support, which ends at 10: probabilities have no such mean, "
            "signed masses may.",
        ),
        (
            at(p10=1.0),
            {"realised": 12.5},
            "The realised return, 12.5, lies above the support, which ends at 10: this agent cannot predict it.",
        ),
        (at(p2=1.1, p4=-0.1), {}, "The negative mass is 0.10: these masses are not probabilities."),
        (at(p2=0.8), {}, "The total mass is 0.80 instead of 1."),
    ],
)
def test_a_prediction_that_cannot_be_true_is_said_in_one_sentence(chromium, tmp_path, masses, about, sentence):
    page = Page(chromium, write_page(predicting(masses, **about), tmp_path / "page.html"))
    assert page.text(".doubt") == sentence
    assert page.problems() == []


def test_the_sentence_may_be_about_an_action_that_was_not_taken(chromium, tmp_path):
    made = predicting(at(p2=1.0), returns=(0, 100))
    view = made.views[0]
    other = (made.action[0] + 1) % 3
    view.distributions.setflags(write=True)
    distributions = view.distributions.copy()
    distributions[:, other] = at(m4=1.0)
    views = [make_view("s51", ATOMS, distributions, distributions @ ATOMS, made.action)]
    page = Page(chromium, write_page(replace(made, views=views), tmp_path / "page.html"))
    assert page.text(".doubt").startswith(f"The mean of “{made.actions[other]}”, −4, cannot be true")


def test_the_highlighted_step_is_explained_and_shaded(chromium, tmp_path):
    page = Page(chromium, write_page(make_recording(60), tmp_path / "page.html", highlight="double-negative"))
    assert page.step == 17
    words = "Double negative: negative mass lies on negative returns, although the total mass is close to one."
    assert page.text("#moment").startswith(f"{words} Shaded here; its measure is 0.")
    bands = page.run(
        "return player.charts.flat().filter((c) => c.band.style.display !== 'none').map((c) => [c.view.name, c.name,"
        " Number(c.band.getAttribute('x')), Number(c.band.getAttribute('width')), c.across(-8)])"
    )
    ((name, action, left, width, negative),) = bands
    taken = page.text(".chart.taken header b").removeprefix("★ ")
    assert (name, action) == ("s51", taken)
    assert left < negative < left + width
    assert width < 200  # one atom of eleven
    page.scrub(3)
    assert page.text("#moment") == f"{words} The timeline marks the step with most of it."
    assert page.run("return player.charts.flat().every((c) => c.band.style.display === 'none')")
    page.run("const s = document.getElementById('highlight'); s.value = ''; s.dispatchEvent(new Event('change'))")
    page.wait(lambda: page.text("#moment") == "")


def test_disagreement_is_shaded_on_both_agents(chromium, tmp_path):
    page = Page(chromium, write_page(make_recording(60), tmp_path / "page.html", highlight="disagreement"))
    shaded = page.run(
        "return player.charts.map((charts) => charts.filter((c) => c.band.style.display !== 'none').length)"
    )
    assert shaded == [1, 1]


@pytest.mark.parametrize("actions", [3, 6])
def test_everything_is_in_sight_on_a_laptop(chromium, tmp_path, screen, actions):
    screen(1400, 900)
    page = Page(chromium, write_page(make_recording(60, actions=actions), tmp_path / "page.html", highlight="noise"))
    size, last, curves, controls = page.run(
        "const box = (selector) => document.querySelector(selector).getBoundingClientRect();"
        "const charts = [...document.querySelectorAll('.chart')].map((c) => c.getBoundingClientRect().bottom);"
        "return [[document.documentElement.scrollHeight, document.querySelector('main').scrollHeight"
        " - document.querySelector('main').clientHeight], Math.max(...charts),"
        " [box('#curves').top, box('#curves').bottom], [box('#controls').top, box('#controls').bottom]]"
    )
    assert size == [900, 0]
    assert last <= curves[0] < curves[1] <= controls[0] < controls[1] <= 900


def test_the_chosen_action_is_in_sight_on_a_phone(chromium, tmp_path, screen):
    screen(390, 844)
    page = Page(chromium, write_page(make_recording(60, actions=6), tmp_path / "page.html"))
    for step in range(0, 30, 3):
        page.scrub(step)
        taken, controls = page.run(
            "return [[...document.querySelectorAll('.chart.taken')].map((c) => c.getBoundingClientRect().toJSON()),"
            " document.getElementById('controls').getBoundingClientRect().top]"
        )
        assert len(taken) == 2
        for box in taken:
            assert box["top"] >= 0
            assert box["bottom"] <= controls


def test_axes_have_names_and_numbers(chromium, tmp_path):
    page = Page(chromium, write_page(predicting(at(p2=0.7, m2=0.3)), tmp_path / "page.html"))
    assert page.text(".masses .name") == "mass"
    assert float(page.text(".masses .top")) == pytest.approx(1.08 * 0.7, abs=0.01)
    zero, line = page.run(
        "const tick = document.querySelector('.masses .zero').getBoundingClientRect(),"
        " line = document.querySelector('line.zero').getBoundingClientRect();"
        "return [(tick.top + tick.bottom) / 2, (line.top + line.bottom) / 2]"
    )
    assert zero == pytest.approx(line, abs=2)
    assert page.text(".axis i") == "return"


def test_charts_of_two_agents_have_one_baseline(chromium, tmp_path):
    page = Page(chromium, write_page(make_recording(60), tmp_path / "page.html", highlight="double-negative"))
    heights = page.run("return [...document.querySelectorAll('line.zero')].map((l) => l.getAttribute('y1'))")
    assert len(heights) == 6
    assert np.ptp([float(height) for height in heights]) < 0.01


def test_the_realised_return_of_a_cut_episode(chromium, tmp_path):
    made = make_recording(40)
    realised = np.where(np.arange(40) < 20, 99.3, np.nan).astype(np.float32)
    page = Page(chromium, write_page(replace(made, realised=realised, cut=np.ones(40, bool)), tmp_path / "page.html"))
    page.scrub(3)
    assert page.text('[data-name="realised return"]') == "99.300, to within 1 %: the episode was cut off"
    page.scrub(30)
    assert page.text('[data-name="realised return"]') == "not known: the episode was cut off"


@pytest.mark.parametrize(
    ("ends", "ticks"),
    [
        ([-1.7207, 12.045], [0, 5, 10]),
        ([-10, 10], [-10, -5, 0, 5, 10]),
        ([0, 1], [0, 0.5, 1]),
        ([0, 0.3], [0, 0.1, 0.2, 0.3]),
        ([-4e6, 5], [-4e6, -3e6, -2e6, -1e6, 0]),
        ([3, 3], [3]),
    ],
)
def test_ticks_are_round(chromium, tmp_path, ends, ticks):
    page = Page(chromium, write_page(make_recording(5), tmp_path / "page.html"))
    assert page.run(f"return roundTicks({ends})") == ticks


def test_charts_of_quantiles_reach_to_the_realised_return(chromium, tmp_path):
    made = replace(make_recording(20, views=("qr",)), realised=np.full(20, 50, np.float32))
    page = Page(chromium, write_page(made, tmp_path / "page.html"))
    assert page.run("return player.limits.x[1]") == 50


def test_clipped_mass_that_is_not_known_leaves_a_gap(chromium, tmp_path):
    made = make_recording(40, views=("s51",))
    clipped = made.views[0].clipped.copy()
    clipped[[0, 7]] = np.nan
    page = Page(
        chromium, write_page(replace(made, views=[made.views[0]._replace(clipped=clipped)]), tmp_path / "p.html")
    )
    page.scrub(7)
    assert page.text('[data-name="clipped"]') == "–"
    paths = page.run("return [...document.querySelectorAll('#curves path')].map((p) => p.getAttribute('d'))")
    assert all(path.startswith("M") and "NaN" not in path and "Infinity" not in path for path in paths)


def test_every_word_on_the_page_is_defined(chromium, tmp_path):
    page = Page(chromium, write_page(make_recording(60), tmp_path / "page.html"))
    page.browser.find_element(By.TAG_NAME, "summary").click()
    defined = [node.text for node in page.browser.find_elements(By.CSS_SELECTOR, ".words dt") if node.text]
    used = ["return", "mass", "support", "total mass", "negative mass", "mean", "★ favourite", "clipped mass"]
    used += ["score so far", "realised return", "double negative", "compensation", "noise", "disagreement"]
    assert defined == used


def test_a_state_without_visits_has_no_prediction(chromium, tmp_path):
    distributions = {"states": [0, 1], "means": [0.5, 0.0], "visited": [1.0, 0.0], "masses": [[0.5, 0.5], [0.0, 0.0]]}
    content = {"support": [0, 1], "normalisation": "before", "distributions": distributions}
    (tmp_path / "evaluation.json").write_text(json.dumps(content))
    page = Page(chromium, write_page(read_evaluation(tmp_path), tmp_path / "page.html"))
    assert page.text(".doubt") == ""
    page.scrub(1)
    assert page.text(".doubt") == "The policy spends no time in this state, so nothing is predicted for it."
    assert page.text('[data-name="total"]') == "–"
    assert page.problems() == []
