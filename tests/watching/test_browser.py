"""The page in a real browser, as a reader uses it: Chromium without a window, driven by keys and clicks."""

import json
import time

import chromium as chromium_tools
import numpy as np
import pytest
from watch_recordings import make_recording

from cramerl.watching.page import write_page
from cramerl.watching.recording import read_evaluation

chromium_tools.require_chromium()

from selenium.webdriver.common.by import By  # noqa: E402 - after the checks above
from selenium.webdriver.common.keys import Keys  # noqa: E402
from watch_page import Page, number  # noqa: E402


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    made = make_recording(60)
    return made, write_page(made, tmp_path_factory.mktemp("page") / "page.html", highlight="double-negative")


@pytest.fixture
def page(chromium, recorded):
    """The page at its strongest step, as it opens; loaded again only if another was shown since."""
    path = recorded[1].as_uri()
    if chromium.current_url.partition("#")[0] == path and chromium.execute_script("return Boolean(window.player)"):
        shown = Page.reset(chromium, 17)
    else:
        shown = Page(chromium, recorded[1])
    yield shown
    assert shown.problems() == []


def test_it_opens_at_the_strongest_step_and_sends_no_request(chromium, recorded):
    page = Page(chromium, recorded[1])
    assert page.step == 17
    assert page.text("h1") == "agents <on> a game"
    assert page.requests() == [recorded[1].as_uri()]
    assert not page.browser.find_element(By.ID, "problem").is_displayed()


def test_scrubbing_shows_what_was_recorded(page, recorded):
    made = recorded[0]
    for step in (0, 17, 59, 33):
        page.scrub(step)
        for i, view in enumerate(made.views):
            row = f"#numbers tbody tr:nth-child({i + 1})"
            for name in ("total", "negative", "clipped"):
                assert number(page.text(f'{row} [data-name="{name}"]')) == pytest.approx(
                    getattr(view, name)[step], abs=6e-4
                )
            assert number(page.text(f'{row} [data-name="mean"]')) == pytest.approx(
                view.values[step, made.action[step]], abs=6e-4
            )
            for action in range(3):
                np.testing.assert_allclose(page.bars(i, action), view.distributions[step, action], atol=2e-3)
        assert page.text('[data-name="action"]') == made.actions[made.action[step]]
        assert number(page.text('[data-name="score so far"]')) == made.score[step]
        taken = page.run("return [...document.querySelectorAll('.chart.taken')].map((c) => Number(c.dataset.action))")
        assert taken == [made.action[step]] * 2


def test_the_picture_is_drawn_in_its_colours(page, recorded):
    made = recorded[0]
    page.scrub(20)
    pixels = page.run(
        "const c = document.getElementById('picture');"
        "return [c.width, c.height, ...c.getContext('2d').getImageData(0, 0, c.width, c.height).data]"
    )
    assert pixels[:2] == [8, 6]
    np.testing.assert_array_equal(np.array(pixels[2:]).reshape(6, 8, 4)[..., :3], made.palette[made.tape[20]])


def test_keys(page):
    page.press(Keys.HOME)
    page.at(0)
    page.press(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    page.at(2)
    page.press(Keys.ARROW_LEFT)
    page.at(1)
    page.press(Keys.SHIFT, Keys.ARROW_RIGHT)
    page.at(11)
    page.press(Keys.NULL, Keys.END)
    page.at(59)
    page.press(Keys.HOME)
    page.at(0)
    page.press("]")
    page.at(17)
    page.press("]")
    page.at(17)  # the only one
    page.press(Keys.END)
    page.at(59)
    page.press("[")
    page.at(17)


def test_space_plays_and_pauses(page):
    page.press(Keys.HOME)
    page.at(0)
    page.press(" ")
    page.wait(lambda: page.step >= 3)
    assert page.browser.find_element(By.ID, "play").get_attribute("aria-label") == "pause"
    page.press(" ")
    stopped = page.run("return player.step")
    time.sleep(0.15)
    assert page.run("return player.step") == stopped
    page.run("const s = document.getElementById('speed'); s.value = 120; s.dispatchEvent(new Event('change'))")
    page.press(" ")
    page.at(59)
    page.wait(lambda: not page.run("return player.playing"))  # it ends by itself


def test_two_agents_stay_in_step_while_it_plays(page, recorded):
    made = recorded[0]
    page.press(Keys.HOME, " ")
    for _ in range(4):
        time.sleep(0.05)
        step, first, second = page.run(
            "return [Number(document.documentElement.dataset.shown),"
            " ...player.charts.map((charts) => Array.from(charts[0].distribution))]"
        )
        np.testing.assert_allclose(first, made.views[0].distributions[step, 0], atol=1e-4)
        np.testing.assert_allclose(second, made.views[1].distributions[step, 0], atol=1e-4)
    page.press(" ")


def test_the_link_to_a_step(chromium, recorded):
    shown = Page(chromium, recorded[1], "#t=42")
    assert shown.step == 42
    shown.run("location.hash = '#t=7'")
    shown.at(7)
    shown.press(Keys.ARROW_RIGHT)
    shown.wait(lambda: shown.run("return location.hash") == "#t=8")
    assert Page(chromium, recorded[1], "#t=9999").step == 59


@pytest.mark.parametrize(("link", "step"), [("#t=0", 0), ("#t=abc", 17), ("#elsewhere", 17)])
def test_every_link_opens_a_page_that_is_drawn(chromium, recorded, link, step):
    shown = Page(chromium, recorded[1], link)
    assert shown.step == step
    np.testing.assert_allclose(shown.bars(0, 0), recorded[0].views[0].distributions[step, 0], atol=2e-3)


def test_marks_and_the_choice_of_a_phenomenon(page):
    marks = page.browser.find_elements(By.CSS_SELECTOR, "#marks button")
    assert [mark.get_attribute("data-step") for mark in marks] == ["17"]
    assert marks[0].get_attribute("aria-label").startswith("double negative 0.")
    page.run("const s = document.getElementById('highlight'); s.value = 'noise'; s.dispatchEvent(new Event('change'))")
    found = page.browser.find_elements(By.CSS_SELECTOR, "#marks button")
    assert len(found) > 1
    page.at(int(found[0].get_attribute("data-step")))


def test_one_scale_for_all_and_the_chosen_action_only(page):
    page.scrub(17)
    before = page.run("return document.querySelector('.bars-positive').getAttribute('d')")
    page.press("z")
    page.wait(lambda: page.run("return document.querySelector('.bars-positive').getAttribute('d')") != before)
    page.press("z")
    page.press("c")
    page.wait(lambda: sum(chart.is_displayed() for chart in page.browser.find_elements(By.CLASS_NAME, "chart")) == 2)
    page.press("c")


def test_negative_mass_has_its_own_colour_in_light_and_dark(page):
    page.scrub(17)
    colours = []
    for scheme in ("light", "dark"):
        feature = {"name": "prefers-color-scheme", "value": scheme}
        page.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
        colours.append(
            page.run(
                "return ['.bars-negative', '.bars-positive']"
                ".map((s) => getComputedStyle(document.querySelector(s)).fill)"
                ".concat(getComputedStyle(document.body).backgroundColor)"
            )
        )
    page.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    assert colours[0][:2] == ["rgb(213, 94, 0)", "rgb(0, 114, 178)"]
    assert colours[0][2] != colours[1][2]
    assert len(set(colours[1])) == 3


def test_keys_are_named_where_there_is_a_keyboard(page):
    hint = page.browser.find_element(By.ID, "keys")
    assert hint.is_displayed()
    assert "space plays" in hint.text


def test_charts_of_six_actions_of_two_agents_fit_into_a_window(chromium, tmp_path):
    shown = Page(chromium, write_page(make_recording(20, actions=6), tmp_path / "page.html"))
    metrics = {"width": 1280, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    shown.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    last, controls = shown.run(
        "const bottom = [...document.querySelectorAll('.chart')].map((c) => c.getBoundingClientRect().bottom);"
        "return [Math.max(...bottom), document.getElementById('controls').getBoundingClientRect().top]"
    )
    shown.browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    assert last < controls


def test_printed_it_is_dark_on_white_without_controls(page):
    feature = {"name": "prefers-color-scheme", "value": "dark"}
    page.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print", "features": [feature]})
    ink, slider, place = page.run(
        "return [getComputedStyle(document.body).color, document.getElementById('slider').offsetHeight,"
        " document.getElementById('place').offsetHeight]"
    )
    page.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": []})
    assert ink == "rgb(27, 31, 36)"
    assert (slider, place > 0) == (0, True)


def test_arrows_step_after_a_choice_by_mouse(page):
    page.scrub(3)
    page.browser.find_element(By.ID, "same").click()
    page.press_where_it_is(Keys.ARROW_RIGHT)
    page.at(4)
    page.browser.find_element(By.ID, "same").click()
    page.run(
        "const s = document.getElementById('highlight'); s.focus();"
        "s.dispatchEvent(new PointerEvent('pointerdown')); s.value = ''; s.dispatchEvent(new Event('change'))"
    )
    page.press_where_it_is(Keys.ARROW_RIGHT)
    page.at(5)
    page.run("document.getElementById('speed').focus()")  # by keyboard it keeps its keys
    page.press_where_it_is(Keys.ARROW_RIGHT)
    time.sleep(0.2)
    assert page.step == 5
    page.run("document.activeElement.blur()")


def test_scales_do_not_glide_for_readers_who_want_little_motion(page):
    tops = []
    for value in ("no-preference", "reduce"):
        feature = {"name": "prefers-reduced-motion", "value": value}
        page.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
        tops.append(page.run("player.playing = true; player.scale = [[-9, 9]]; return player.eased(0, [-1, 1])"))
        page.run("player.playing = false")
    page.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    assert tops[0][1] > 5
    assert tops[1] == [-1, 1]


def test_on_a_phone_nothing_sticks_out(page):
    metrics = {"width": 390, "height": 844, "deviceScaleFactor": 2, "mobile": True}
    page.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    page.scrub(5)
    assert page.run("return document.documentElement.scrollWidth") <= 390
    assert not page.browser.find_element(By.ID, "keys").is_displayed()
    page.browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_everything_can_be_reached_by_keyboard_and_has_a_name(chromium, recorded):
    page = Page(chromium, recorded[1])  # a new one, where nothing had the focus yet
    names = page.run(
        "return [...document.querySelectorAll('button, select, input, svg[role=img], canvas')]"
        ".map((n) => n.getAttribute('aria-label') || n.closest('label')?.textContent || '')"
    )
    assert all(name.strip() for name in names)
    reached = []
    for _ in range(12):
        page.press_where_it_is(Keys.TAB)
        reached.append(page.run("return document.activeElement.id || document.activeElement.tagName"))
        assert page.run("return getComputedStyle(document.activeElement).outlineStyle") == "solid"
        if reached[-1] == "chosen":
            break
    order = ["SUMMARY", "slider", "play", "back", "forth", "speed", "highlight", "previous", "next", "same", "chosen"]
    assert reached == order  # the marks are reached by [ and ], not one by one


def test_heads_without_fixed_atoms(chromium, tmp_path):
    made = make_recording(20, views=("qr", "dqn"))
    shown = Page(chromium, write_page(made, tmp_path / "page.html"))
    shown.scrub(7)
    sticks = shown.run(
        "return [...document.querySelectorAll('.bars-positive')].map((p) => p.getAttribute('d').split('z').length - 1)"
    )
    assert sticks == [5, 5, 5, 1, 1, 1]
    assert shown.problems() == []


def test_a_recording_of_one_step(chromium, tmp_path):
    shown = Page(chromium, write_page(make_recording(1), tmp_path / "page.html"), "#t=0")
    for key in (Keys.ARROW_RIGHT, " ", Keys.END):
        shown.press(key)
    shown.at(0)
    assert shown.problems() == []


def test_states_of_a_process(chromium, tmp_path):
    masses = [[0.5, 0.6, -0.1], [0.2, 0.3, 0.5]]
    distributions = {"states": [4, 7], "means": [-0.6, 0.3], "visited": [0.25, 0.75], "masses": masses}
    content = {
        "support": [-1, 0, 1],
        "normalisation": "before",
        "process": "two states",
        "distributions": distributions,
    }
    (tmp_path / "evaluation.json").write_text(json.dumps(content))
    shown = Page(chromium, write_page(read_evaluation(tmp_path), tmp_path / "page.html"))
    assert shown.text('[data-name="state"]') == "4"
    assert number(shown.text('[data-name="negative"]')) == pytest.approx(0.1)
    shown.press(Keys.ARROW_RIGHT)
    shown.at(1)
    assert shown.text('[data-name="state"]') == "7"
    assert shown.text("#place") == "state 7 (t=1 of 1)"
    assert number(shown.text('[data-name="visited"]')) == 0.75
    assert shown.problems() == []


def test_a_page_that_was_cut_says_so(chromium, recorded, tmp_path):
    text = recorded[1].read_text(encoding="utf-8").replace('"numbers":{"action":"', '"numbers":{"action":"AAAA')
    broken = tmp_path / "broken.html"
    broken.write_text(text, encoding="utf-8")
    chromium.get(broken.as_uri())
    deadline = time.monotonic() + 5
    while not chromium.find_element(By.ID, "problem").text and time.monotonic() < deadline:
        time.sleep(0.05)
    assert "The recording cannot be read" in chromium.find_element(By.ID, "problem").text
