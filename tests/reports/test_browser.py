"""The page of `cramerl report` in a real browser, as a reader uses it."""

import re

import chromium as chromium_tools
import numpy as np
import pytest
from study_runs import write_run
from watch_recordings import ATOMS, make_recording

from cramerl.claims.claim import Claim, printed
from cramerl.evidence.curves import on_grid
from cramerl.evidence.scores import Series
from cramerl.evidence.statistics import Interval, mean_band
from cramerl.reports.build import make_report
from cramerl.reports.distributions import choose_snapshots, draw_distributions
from cramerl.reports.figures import grid_edges
from cramerl.reports.tables import interval_text, number

chromium_tools.require_chromium()

from selenium.webdriver.common.action_chains import ActionChains  # noqa: E402 - after the checks above
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402

GAMES = ("Asterix-MinAtar", "Breakout-MinAtar")
LEVELS = {"dqn": 9.0, "c51": 1100.0, "s51": -8.0}
CLAIM = Claim("1", "1 + 1 = 2", {"sum": 2.0}, {"sum": printed("2.0")}, "holds", "So it is.", True)


RECORDING = make_recording()


def draw_recording(summary, budget, on_progress):
    """A figure of a recording made by hand, as if an agent had played."""
    figure = draw_distributions(RECORDING, "distributions-s51", "s51 on a game", "It plays.")
    return [figure], ["No figure of <b>dqn</b>."]


@pytest.fixture(scope="module")
def chromium(tmp_path_factory):
    with chromium_tools.open_chromium(tmp_path_factory.mktemp("profile")) as browser:
        yield browser


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Three agents on two games at two learning rates; the page, and what it should show."""
    root = tmp_path_factory.mktemp("report")
    for env in GAMES:
        for agent, level in LEVELS.items():
            settings = {"level": level, "seeds": 3, "learning_rate": (1e-4, 5e-4)}
            write_run(root / "runs" / f"{env}-{agent}", agent, env, **settings)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("cramerl.reports.build.draw_agents", draw_recording)
        (section,) = make_report([root / "runs"], root / "out", claims=[CLAIM])
    return root / "out" / "report.html", section.summary


@pytest.fixture
def page(chromium, made):
    chromium_tools.forget(chromium)
    chromium.get(made[0].as_uri())
    chromium_tools.wait_until_ready(chromium)
    yield chromium
    assert chromium_tools.problems(chromium) == []


def panel(page, figure="curves", which=0):
    found = page.find_elements(By.CSS_SELECTOR, f"#study-0-figure-{figure} + figure .panel")[which]
    page.execute_script("arguments[0].scrollIntoView({block: 'center'})", found)
    return found


def shown(page):
    """The words beside the line: where it stands, and the value of each agent."""
    tip = page.find_element(By.CLASS_NAME, "tip")
    assert tip.is_displayed()
    cells = [
        [cell.text for cell in row.find_elements(By.TAG_NAME, "td")[1:]]
        for row in tip.find_elements("css selector", "tr")
    ]
    return tip.find_element(By.TAG_NAME, "b").text, dict(cells)


def recorded(summary, env, stop):
    edges = grid_edges(summary, env)
    words = {}
    for series in summary.series:
        group = summary.best[series, env]
        band = mean_band([on_grid(curve, edges) for curve in group.curves], seed=0)
        words[series.label] = interval_text(Interval(*(float(column[stop]) for column in band)))
    return f"{env}, step {edges[stop + 1]:,.0f}", words


def point(page, node, share):
    """Move the mouse to a share of the width of a node, counted from its left."""
    size = node.size
    ActionChains(page, duration=0).move_to_element_with_offset(node, round((share - 0.5) * size["width"]), 0).perform()


def column(page, table, i):
    rows = page.find_elements(By.CSS_SELECTOR, f"#study-0-table-{table} + .wide tbody tr")
    return [row.find_elements(By.TAG_NAME, "td")[i].text for row in rows]


def test_it_loads_and_sends_no_request(page, made):
    assert page.find_element(By.TAG_NAME, "h1").text == "Report of 36 runs"
    assert chromium_tools.requests(page) == [made[0].as_uri()]


@pytest.mark.parametrize("which", [0, 1])
def test_pointing_shows_what_was_recorded(page, made, which):
    node = panel(page, which=which)
    stops = page.execute_script("return JSON.parse(document.querySelector('script.values').textContent)[0].stops")
    for stop in (0, 4, 9):
        point(page, node, stops[stop][1] / 100)
        assert shown(page) == recorded(made[1], GAMES[which], stop)
    ActionChains(page).move_to_element(page.find_element(By.TAG_NAME, "figcaption")).perform()
    assert not page.find_element(By.CLASS_NAME, "tip").is_displayed()


def test_values_do_not_cover_the_axis_and_the_legend(page):
    node = panel(page)
    point(page, node, 0.5)
    bottom, top = page.execute_script(
        "return [arguments[0].parentElement.getBoundingClientRect().bottom,"
        " document.querySelector('.tip').getBoundingClientRect().top]",
        node,
    )
    assert top >= bottom


def test_marks_stand_on_the_lines(page, made):
    """The mark of an agent covers a corner of the line that was drawn, wherever the layout put it."""
    node = panel(page)
    point(page, node, 0.5)
    marks = page.execute_script(
        "return [...arguments[0].querySelectorAll('.dot')].map((dot) => { const box = dot.getBoundingClientRect();"
        " return [box.x + box.width / 2, box.y + box.height / 2, getComputedStyle(dot).backgroundColor] })",
        node,
    )
    corners = page.execute_script(
        """return [...document.querySelectorAll('.plot')[0].querySelectorAll('svg path')].flatMap((path) => {
            const at = path.getScreenCTM(), d = path.getAttribute('d') || '';
            return [...d.matchAll(/[ML] ([-\\d.]+) ([-\\d.]+)/g)].map((found) => {
                const p = new DOMPoint(Number(found[1]), Number(found[2])).matrixTransform(at);
                return [p.x, p.y, getComputedStyle(path).stroke] }) })"""
    )
    assert len(marks) == 3
    for x, y, colour in marks:
        near = [np.hypot(x - a, y - b) for a, b, stroke in corners if stroke == colour]
        assert min(near) < 1.0


def test_the_keyboard_walks_through_a_panel(page, made):
    node = panel(page)
    node.send_keys(Keys.HOME)
    assert shown(page) == recorded(made[1], GAMES[0], 0)
    node.send_keys(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT, Keys.ARROW_LEFT)
    place, values = recorded(made[1], GAMES[0], 1)
    assert shown(page) == (place, values)
    assert node.get_attribute("role") == "slider"
    said = "; ".join(f"{label} {value}" for label, value in values.items())
    assert node.get_attribute("aria-valuetext") == f"{place.partition(', ')[2]}: {said}"
    page.execute_script("scrollTo(0, document.body.scrollHeight)")
    page.execute_script("dispatchEvent(new Event('scroll'))")
    assert not page.find_element(By.CLASS_NAME, "tip").is_displayed()  # nor does it stay behind
    node.send_keys(Keys.END, Keys.ARROW_RIGHT)
    assert shown(page)[0].endswith("step 1,000")
    node.send_keys(Keys.ESCAPE)
    assert not page.find_element(By.CLASS_NAME, "tip").is_displayed()


def test_a_finger_shows_values_too(page, made):
    node = panel(page)
    box = page.execute_script(
        "const b = arguments[0].getBoundingClientRect(); return [b.x, b.y, b.width, b.height]", node
    )
    spot = {"x": box[0] + 0.99 * box[2], "y": box[1] + box[3] / 2}
    page.execute_cdp_cmd("Input.dispatchTouchEvent", {"type": "touchStart", "touchPoints": [spot]})
    page.execute_cdp_cmd("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    assert shown(page) == recorded(made[1], GAMES[0], 9)


def test_bars_show_their_values(page):
    """From the top down: by mouse, finger and keys, the words of the table."""
    expected = dict(zip(column(page, "aggregates", 0), column(page, "aggregates", 1), strict=True))
    node, agents = panel(page, "aggregates"), list(expected)
    assert node.get_attribute("aria-orientation") == "vertical"
    height = node.size["height"]
    for share, agent in ((0.02, agents[0]), (0.98, agents[-1])):
        ActionChains(page, duration=0).move_to_element_with_offset(node, 0, round((share - 0.5) * height)).perform()
        assert shown(page) == (f"IQM, {agent}", {agent: expected[agent]})
    node.send_keys(Keys.HOME, Keys.ARROW_DOWN)
    assert shown(page) == (f"IQM, {agents[1]}", {agents[1]: expected[agents[1]]})
    assert node.get_attribute("aria-valuetext") == f"{agents[1]}: {agents[1]} {expected[agents[1]]}"
    node.send_keys(Keys.ARROW_UP)
    assert shown(page)[0] == f"IQM, {agents[0]}"
    box = page.execute_script(
        "const b = arguments[0].getBoundingClientRect(); return [b.x, b.y, b.width, b.height]", node
    )
    spot = {"x": box[0] + 0.5 * box[2], "y": box[1] + 0.98 * box[3]}
    page.execute_cdp_cmd("Input.dispatchTouchEvent", {"type": "touchStart", "touchPoints": [spot]})
    page.execute_cdp_cmd("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    assert shown(page)[0] == f"IQM, {agents[-1]}"


def open_distributions(page):
    page.find_element(By.CSS_SELECTOR, "#study-0-distributions > summary").click()


def test_pictures_show_negative_mass(page):
    """It hangs below the zero line, in its own colour, and says what it is."""
    assert not page.find_element(By.CSS_SELECTOR, "#study-0-distributions .distributions").is_displayed()
    open_distributions(page)
    shapes = page.execute_script(
        """const found = document.querySelectorAll('#study-0-distributions .distributions g[id$=negative]');
        return [...found].map((group) => {
            const other = document.getElementById(group.id.replace(/negative$/, 'positive'));
            const [mine, its] = [group, other].map((one) => one.querySelector('path').getBoundingClientRect());
            return [getComputedStyle(group.querySelector('path')).fill, group.querySelector('title').textContent,
                    mine.top - its.bottom, mine.height] })"""
    )
    assert len(shapes) == 3 * len(RECORDING.actions)
    for colour, words, below, height in shapes:
        assert colour == "rgb(213, 94, 0)"
        assert words.startswith("negative mass 0.")
        assert abs(below) < 1.0
        assert height > 3
    assert "in orange, are negative mass" in page.find_element(By.CSS_SELECTOR, "#study-0-distributions > p").text
    assert "No figure of <b>dqn</b>." in page.find_element(By.ID, "study-0").text


def test_pointing_at_a_distribution_shows_its_masses(page):
    open_distributions(page)
    panels = page.find_elements(By.CSS_SELECTOR, "#study-0-distributions .distributions .panel")
    page.execute_script("arguments[0].scrollIntoView({block: 'center'})", panels[0])
    step, action = next(iter(choose_snapshots(RECORDING))), 0
    masses = RECORDING.views[0].distribution(step, action)[1]
    for key, atom in ((Keys.HOME, 0), (Keys.END, len(ATOMS) - 1)):
        panels[0].send_keys(key)
        name = "negative mass" if masses[atom] < 0 else "mass"
        place = f"step {step}, {RECORDING.actions[action]}, return {ATOMS[atom]:.4g}"
        assert shown(page) == (place, {name: number(float(masses[atom]))})


def test_learning_rates_are_shown_together(page, made):
    point(page, panel(page, "rates"), 0.95)
    place, values = shown(page)
    assert place == f"{GAMES[0]}, learning rate 0.0005"
    assert values["c51"] == interval_text(made[1].best[Series("c51"), GAMES[0]].score)
    assert set(values) == set(LEVELS)


def test_headers_sort(page):
    head = page.find_elements(By.CSS_SELECTOR, "#study-0-table-scores + .wide th")[2]
    button = head.find_element(By.TAG_NAME, "button")
    written = column(page, "scores", 2)
    numbers = sorted(float(re.split(r"[ \[]", text.replace(",", ""))[0]) for text in written)
    orders = {"ascending": numbers, "descending": numbers[::-1]}
    for way, act in (("ascending", button.click), ("descending", lambda: button.send_keys(Keys.ENTER))):
        act()
        assert head.get_attribute("aria-sort") == way
        found = [float(re.split(r"[ \[]", text.replace(",", ""))[0]) for text in column(page, "scores", 2)]
        assert found == orders[way]
    button.click()
    assert head.get_attribute("aria-sort") == "none"
    assert column(page, "scores", 2) == written
    page.find_elements(By.CSS_SELECTOR, "#study-0-table-scores + .wide th button")[1].click()
    assert column(page, "scores", 1) == sorted(column(page, "scores", 1))


def test_contents_lead_to_every_part(page):
    for link in page.find_elements(By.CSS_SELECTOR, "nav a"):
        target = link.get_attribute("href").partition("#")[2]
        assert page.find_elements(By.ID, target), target
    titles = [link.text for link in page.find_elements(By.CSS_SELECTOR, "nav a")]
    assert {
        "Learning curves",
        "Distributions",
        "Scores",
        "Settings and versions",
        "The paper’s claims, recomputed",
    } <= set(titles)


def test_on_paper_everything_is_open_and_nothing_can_be_pressed(page):
    settings = page.find_element(By.CSS_SELECTOR, "details.settings")
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    assert not page.find_element(By.TAG_NAME, "nav").is_displayed()
    for name in ("panel", "point"):
        assert not page.find_element(By.CLASS_NAME, name).is_displayed()
    page.execute_script("dispatchEvent(new Event('beforeprint'))")
    assert settings.get_attribute("open")
    page.execute_script("dispatchEvent(new Event('afterprint'))")
    assert not settings.get_attribute("open")
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})


@pytest.mark.parametrize(("width", "beside"), [(1400, True), (700, False)])
def test_curves_are_beside_the_scores_where_there_is_room(chromium, tmp_path, width, beside):
    write_run(tmp_path / "runs" / "s51", "s51", GAMES[0])
    make_report([tmp_path / "runs"], tmp_path / "out")
    chromium.get((tmp_path / "out" / "report.html").as_uri())
    chromium.set_window_size(width, 1000)
    parts = chromium.find_elements(By.CSS_SELECTOR, ".first > div")
    scores, curves = (part.rect for part in parts)
    chromium.set_window_size(1280, 1000)
    assert (scores["y"] == curves["y"]) == beside
    assert (scores["x"] + scores["width"] <= curves["x"]) == beside


def test_dots_stand_where_their_scores_are(page, made):
    """From the left to the right in the order of the scores, in the colour that the agent's curve has."""
    rows = page.find_elements(By.CSS_SELECTOR, ".dots:nth-child(2) tr")
    shown = {series.label: made[1].best[series, GAMES[0]].score for series in made[1].series}
    assert [row.find_element(By.TAG_NAME, "th").text for row in rows] == sorted(shown, key=lambda x: -shown[x].estimate)
    curves = page.execute_script("return JSON.parse(document.querySelector('script.values').textContent)[0].lines")
    places = []
    for row in rows:
        label, dot = row.find_element(By.TAG_NAME, "th").text, row.find_element(By.CSS_SELECTOR, ".dot")
        places.append(dot.rect["x"])
        assert row.find_elements(By.TAG_NAME, "td")[-1].text == interval_text(shown[label])
        (colour,) = (line["colour"] for line in curves if line["label"] == label)
        assert dot.get_attribute("style").endswith(f"background: {rgb(colour)};")
    assert places == sorted(places, reverse=True)


def rgb(colour):
    return f"rgb({', '.join(str(int(colour[i : i + 2], 16)) for i in (1, 3, 5))})"


@pytest.fixture
def phone(page):
    metrics = {"width": 390, "height": 844, "deviceScaleFactor": 2, "mobile": True}
    page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    yield page
    page.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_on_a_phone_nothing_sticks_out(phone):
    panel(phone, which=1).send_keys(Keys.END)
    box = phone.execute_script(
        "const b = document.querySelector('.tip').getBoundingClientRect(); return [b.left, b.right]"
    )
    assert box[0] >= 0
    assert box[1] <= 390
    open_distributions(phone)
    assert phone.execute_script("return document.documentElement.scrollWidth") <= 390
    plot = phone.find_element(By.CSS_SELECTOR, "#study-0-distributions .distributions .plot")
    assert plot.size["width"] > 600  # to be pushed sideways: its letters stay readable
    cue = phone.find_element(By.CSS_SELECTOR, "#study-0-distributions .distributions .cue")
    assert "push it sideways" in cue.text
    assert cue.rect["x"] + cue.rect["width"] <= 390


def test_on_a_phone_every_number_of_a_table_is_in_sight(phone):
    cells = phone.find_elements(By.CSS_SELECTOR, ".dots td:last-child, .sortable td")
    assert len(cells) > 100
    ends = [(cell.text, cell.rect["x"] + cell.rect["width"]) for cell in cells if cell.is_displayed()]
    assert [text for text, end in ends if end > 390] == []
    row = phone.find_element(By.CSS_SELECTOR, "#study-0-table-comparisons + .wide tbody tr")
    names = phone.execute_script(
        "return [...arguments[0].cells].map((one) => getComputedStyle(one, '::before').content)", row
    )
    assert names[2] == 'attr(data-label) " "' or names[2].strip('"').startswith("difference")


def test_a_link_opens_what_is_folded(page):
    settings = page.find_element(By.CSS_SELECTOR, "details.settings")
    assert not settings.get_attribute("open")
    page.find_element(By.CSS_SELECTOR, 'nav a[href="#study-0-settings"]').click()
    chromium_tools.wait_until_ready(page)
    assert settings.get_attribute("open")
