"""docs/playground.html in a real browser: its numbers are those of the library, and its bars can be dragged."""

import time
from pathlib import Path

import chromium as chromium_tools
import numpy as np
import pytest

from cramerl import Support
from cramerl.cramer import cramer_distance_sq
from cramerl.losses import cramer_loss
from cramerl.measures import clipped_mass, mean, nearest_distribution, negative_mass, total_mass, with_unit_mass
from cramerl.projections import backup, project

chromium_tools.require_chromium()

from selenium.webdriver.common.action_chains import ActionChains  # noqa: E402 - after the checks above
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402

PAGE = Path(__file__).parents[2] / "docs" / "playground.html"
PRESETS = (
    "A coin flip",
    "A delta between two atoms",
    "Negative mass",
    "Reward beyond the support",
    "Mass that is not one",
)
COLUMNS = {"total": total_mass, "mean": mean, "negative": negative_mass}
PHONE = {"width": 390, "height": 844, "deviceScaleFactor": 2, "mobile": True}


@pytest.fixture(scope="module")
def chromium(tmp_path_factory):
    with chromium_tools.open_chromium(tmp_path_factory.mktemp("profile")) as browser:
        yield browser


@pytest.fixture
def opened(chromium):
    """Opens the page at a hash; no message may be logged on it, and nothing else may be requested."""

    def open_page(hash_=""):
        chromium_tools.forget(chromium)
        chromium.get(PAGE.as_uri() + hash_)
        chromium_tools.wait_until_ready(chromium)
        return chromium

    yield open_page
    assert chromium_tools.problems(chromium) == []
    assert {url.partition("#")[0] for url in chromium_tools.requests(chromium)} <= {PAGE.as_uri()}


@pytest.fixture
def page(opened):
    return opened()


def state(page):
    return page.execute_script("return playground.state")


def hash_of(given):
    """An address as a reader would write it."""
    values = {name: ",".join(map(str, one)) if isinstance(one, list) else one for name, one in given.items()}
    return "#" + "&".join(f"{name}={value}" for name, value in values.items())


def wait(condition):
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end, "the page did not reach this state"
        time.sleep(0.02)


def random_state(rng):
    """Signed masses of any total; many zeros, rewards beyond the ends, discounts of zero and one."""
    count = int(rng.integers(5, 52))
    low, width = rng.normal(0, 10), rng.choice([0.1, 1, 8, 60]) * (0.5 + rng.random())
    signs = np.where(rng.random((2, count)) < rng.choice([0, 0.3]), -1, 1)
    masses = rng.dirichlet(np.full(count, rng.choice([0.2, 1, 5])), 2) * signs * rng.choice([0.3, 1, 3], (2, 1))
    masses[rng.random((2, count)) < rng.choice([0, 0.6])] = 0
    return {
        "v_min": low,
        "v_max": low + width,
        "reward": float(rng.choice([0, 0.1, 0.5, 2]) * width * rng.normal()),
        "discount": float(rng.choice([0, 1, rng.random(), 0.99])),
        "mass_penalty": float(rng.choice([0, 1, 20 * rng.random()])),
        "next": masses[0].tolist(),
        "prediction": masses[1].tolist(),
        "nearest": str(rng.choice(["next", "target", "prediction"])),
    }


def expected(given):
    """What the library says: numbers by the ids of the page, and arrays."""
    support = Support.uniform(given["v_min"], given["v_max"], len(given["next"]))
    reward, discount = given["reward"], given["discount"]
    masses, prediction = np.array(given["next"]), np.array(given["prediction"])
    moved = reward + discount * support.atoms
    target = backup(support, reward, discount, masses)
    nearest = nearest_distribution(
        support, {"next": masses, "target": target, "prediction": prediction}[given["nearest"]]
    )
    numbers = {
        "distance": cramer_distance_sq(support, target, prediction, given["mass_penalty"]),
        "loss": cramer_loss(support, target, prediction, given["mass_penalty"]),
        "shape": cramer_distance_sq(support, target, prediction, 0.0),
        "clipped": clipped_mass(support, reward, discount, masses),
        "moved-total": masses.sum(),
        "moved-mean": masses @ moved,
        "moved-negative": negative_mass(support, masses),
    }
    for name, values in {"next": masses, "target": target, "prediction": prediction, "nearest": nearest}.items():
        numbers |= {f"{name}-{column}": measure(support, values) for column, measure in COLUMNS.items()}
    return {name: float(value) for name, value in numbers.items()}, {
        "atoms": support.atoms,
        "moved": moved,
        "target": target,
        "nearest": nearest,
    }


def assert_agrees(page):
    """The numbers on the page, in full and as printed, are those that the library has for the page's state."""
    given = state(page)
    numbers, arrays = expected(given)
    texts = page.execute_script(
        "return Object.fromEntries(arguments[0].map((id) => {"
        " const node = document.getElementById(id); return [id, [node.dataset.value, node.textContent]] }))",
        list(numbers),
    )
    found = page.execute_script("return playground.compute()")
    size = 1 + max(abs(given["v_min"]), abs(given["v_max"]), abs(given["reward"]))
    for name, value in numbers.items():
        np.testing.assert_allclose(float(texts[name][0]), value, rtol=1e-9, atol=1e-13 * size, err_msg=name)
        printed = float(texts[name][1].replace("−", "-"))
        assert printed == pytest.approx(
            value, abs=0.0501 if abs(value) >= 1000 else 0.00501 if abs(value) >= 100 else 6e-5
        )
    for name, values in arrays.items():
        np.testing.assert_allclose(found[name], values, rtol=1e-9, atol=1e-13 * size, err_msg=name)


def handle(page, name, index):
    return page.find_elements(By.CSS_SELECTOR, f"#{name}-handles .handle")[index]


def press(page, text):
    next(one for one in page.find_elements(By.TAG_NAME, "button") if one.text == text).click()


def fill(page, id_, text):
    field = page.find_element(By.ID, id_)
    field.send_keys(Keys.CONTROL + "a")
    field.send_keys(text)


def top_of(page, name, index):
    """Where the bar of an atom ends on the screen, and where zero is."""
    node = handle(page, name, index)
    page.execute_script("arguments[0].scrollIntoView({block: 'center'})", node)
    return page.execute_script(
        """const [name, index] = arguments, column = document.querySelectorAll(`#${name}-handles .handle`)[index];
        const middle = column.getBoundingClientRect().x + column.getBoundingClientRect().width / 2;
        const bars = [...document.querySelectorAll(`#${name}-chart .bar`)].map((bar) => bar.getBoundingClientRect());
        const bar = bars.find((box) => Math.abs(box.x + box.width / 2 - middle) < 1);
        const zero = document.querySelector(`#${name}-chart .axis`).getBoundingClientRect().y;
        return [middle, bar ? [bar.top, bar.bottom] : [zero, zero], zero]""",
        name,
        index,
    )


def test_numbers_are_those_of_the_library(page, rng):
    for _ in range(150):
        page.execute_script("playground.set(arguments[0])", random_state(rng))
        assert_agrees(page)


def test_a_hash_opens_a_state(opened, rng):
    for _ in range(4):
        given = random_state(rng)
        page = opened(hash_of(given))
        assert state(page) == given
        assert not page.find_element(By.ID, "problem").is_displayed()
        assert_agrees(page)


@pytest.mark.parametrize("name", PRESETS)
def test_presets(page, name):
    press(page, name)
    assert_agrees(page)
    given = state(page)
    numbers, _ = expected(given)
    assert (numbers["clipped"] > 0) == (name == "Reward beyond the support")
    assert (numbers["next-negative"] > 0) == (name == "Negative mass")
    assert (abs(numbers["next-total"] - 1) > 0.1) == (name == "Mass that is not one")
    if name == "A delta between two atoms":
        assert sorted(page.execute_script("return playground.compute().target"))[-2:] == [0.5, 0.5]
    press(page, "Reset")
    assert state(page) == page.execute_script("return playground.presets['A coin flip']")


def test_the_address_holds_the_state(opened):
    page = opened()
    press(page, "Negative mass")
    fill(page, "reward", "1.25")
    given = state(page)
    assert given["reward"] == 1.25
    wait(lambda: "reward=1.25" in page.current_url)
    address = page.current_url
    assert state(opened(address.removeprefix(PAGE.as_uri()))) == given


def test_going_to_another_address_opens_it(page, rng):
    given = random_state(rng)
    page.execute_script("location.hash = arguments[0]", hash_of(given))
    wait(lambda: state(page) == given)
    assert_agrees(page)


@pytest.mark.parametrize(
    ("part", "words"),
    [
        ({"discount": 1.5}, "discount must be a number from 0 to 1, got 1.5"),
        ({"reward": ""}, 'reward must be a number from -10000 to 10000, got "".'),
        ({"v_min": 7.0}, "v_max must exceed v_min by 0.001 or more, got v_min 7 and v_max 2"),
        ({"next": [0.0, 1.0]}, "next must have 5 to 51 masses, got 2"),
        ({"next": [0.5] * 6}, "next and prediction must have as many masses, got 6 and 5"),
        ({"next": [0.0, "x", 0.0, 0.0, 1.0]}, 'a mass of next must be a number from -100 to 100, got "x".'),
        ({"nearest": "moved"}, "nearest must be next, target, prediction, got moved"),
        ({"gamma": 1}, "gamma is not a setting"),
        ({"mass_penalty": None}, "mass_penalty is missing"),
    ],
)
def test_a_bad_address_is_ignored_with_a_sentence(opened, part, words):
    flat = [0.2] * 5
    good = {"v_min": -2.0, "v_max": 2.0, "reward": 0.0, "discount": 0.5, "mass_penalty": 1.0}
    given = good | {"next": flat, "prediction": flat, "nearest": "next"} | part
    page = opened(hash_of({name: value for name, value in given.items() if value is not None}))
    problem = page.find_element(By.ID, "problem")
    assert problem.text.startswith(f"The state in the address was ignored: {words}")
    assert state(page) == page.execute_script("return playground.presets['A coin flip']")
    assert_agrees(page)
    press(page, "Negative mass")
    assert not problem.is_displayed()


@pytest.mark.parametrize("name", ["next", "prediction"])
def test_dragging_changes_a_mass(page, name):
    """The bar ends where the mouse stands, above zero and below."""
    before = state(page)
    middle, _, zero = top_of(page, name, 4)
    for move, sign in ((-30, 1), (15, -1)):
        start = ActionChains(page, duration=0)
        start.w3c_actions.pointer_action.move_to_location(round(middle), round(zero) - 10)
        start.w3c_actions.pointer_action.pointer_down()
        start.w3c_actions.pointer_action.move_to_location(round(middle) + 40, round(zero) + move)
        start.w3c_actions.pointer_action.pointer_up()
        start.perform()
        after = state(page)
        changed = [i for i in range(11) if after[name][i] != before[name][i]]
        assert changed == [4]
        assert np.sign(after[name][4]) == sign
        assert_agrees(page)
        _, (top, bottom), line = top_of(page, name, 4)
        unit = (bottom - top) / abs(after[name][4])
        assert (line - top if sign > 0 else bottom - line) == pytest.approx(abs(move), abs=1.5 + 0.005 * unit)
    assert page.find_element(By.CSS_SELECTOR, f"#{name}-chart .negative").is_displayed()


def test_a_finger_drags_too(page):
    middle, _, zero = top_of(page, "next", 5)
    moves = [("touchStart", 5), *[("touchMove", move) for move in (10, 20, 30, 20, -10, -50)], ("touchEnd", None)]
    for kind, move in moves:
        points = [] if move is None else [{"x": middle, "y": zero + move}]
        page.execute_cdp_cmd("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
        if kind == "touchStart":
            assert state(page)["next"][5] < 0
    wait(lambda: state(page)["next"][5] > 0.2)
    assert_agrees(page)
    _, (top, bottom), _ = top_of(page, "next", 5)
    assert bottom - top == pytest.approx(50, abs=3)


def test_the_keyboard_changes_a_mass(page):
    node = handle(page, "next", 5)
    assert node.get_attribute("role") == "slider"
    page.execute_script("arguments[0].focus()", node)
    mass = state(page)["next"][5]
    keys = {Keys.ARROW_UP: 0.01, Keys.PAGE_UP: 0.1, Keys.ARROW_DOWN: -0.01, Keys.PAGE_DOWN: -0.1}
    for key, step in [*keys.items(), (Keys.PAGE_DOWN, -0.1)]:
        page.switch_to.active_element.send_keys(key)
        mass += step
        assert state(page)["next"][5] == pytest.approx(mass, abs=1e-9)
    assert mass < 0
    assert node.get_attribute("aria-valuetext") == "−0.1000"
    assert_agrees(page)
    page.switch_to.active_element.send_keys(Keys.DELETE)
    assert state(page)["next"][5] == 0
    page.switch_to.active_element.send_keys(Keys.ARROW_RIGHT, Keys.ARROW_UP)
    assert state(page)["next"][6] == 0.01
    page.switch_to.active_element.send_keys(Keys.END, Keys.ARROW_RIGHT, Keys.ARROW_UP)
    assert state(page)["next"][10] == 0.01
    page.switch_to.active_element.send_keys(Keys.HOME, Keys.ARROW_UP)
    assert state(page)["next"][0] == 0.01
    assert page.switch_to.active_element.get_attribute("aria-label") == "mass at return 0"


def test_fields_change_the_state(page):
    for name, text in (
        ("reward", "-1.5"),
        ("discount", "0.25"),
        ("mass_penalty", "3"),
        ("v_min", "-20"),
        ("v_max", "4"),
    ):
        fill(page, name, text)
        assert state(page)[name] == float(text)
    handle(page, "prediction", 2).click()
    fill(page, "prediction-mass", "-0.125")
    assert state(page)["prediction"][2] == -0.125
    page.find_element(By.CSS_SELECTOR, "#nearest option[value=target]").click()
    assert state(page)["nearest"] == "target"
    assert_agrees(page)


def test_a_value_that_cannot_be_used_is_named_and_not_used(page):
    before = state(page)
    fill(page, "discount", "2")
    problem = page.find_element(By.ID, "problem")
    assert problem.text == "discount must be a number from 0 to 1, got 2."
    assert page.find_element(By.ID, "discount").get_attribute("aria-invalid") == "true"
    assert state(page) == before
    page.switch_to.active_element.send_keys(Keys.TAB)
    assert not problem.is_displayed()
    assert page.find_element(By.ID, "discount").get_attribute("value") == str(before["discount"])


def test_another_number_of_atoms_projects_the_masses(page):
    """And going back loses nothing."""
    press(page, "Negative mass")
    before = state(page)
    old = Support.uniform(-5, 5, 11)
    for count in (51, 5, 8):
        page.execute_script(
            "const field = document.getElementById('num_atoms-range'); field.value = arguments[0];"
            " field.dispatchEvent(new Event('input'))",
            count,
        )
        after = state(page)
        for name in ("next", "prediction"):
            masses = project(Support.uniform(-5, 5, count), old.atoms, np.array(before[name]))
            np.testing.assert_allclose(after[name], masses, atol=1e-12)
        assert_agrees(page)
    fill(page, "num_atoms", "11")
    assert state(page) == before


def test_buttons_below_the_charts(page):
    press(page, "Mass that is not one")
    given = state(page)
    page.find_element(By.ID, "next-unit").click()
    support = Support.uniform(given["v_min"], given["v_max"], 11)
    np.testing.assert_allclose(state(page)["next"], with_unit_mass(support, np.array(given["next"])), rtol=1e-12)
    page.find_element(By.ID, "prediction-copy").click()
    np.testing.assert_allclose(state(page)["prediction"], expected(state(page))[1]["target"], rtol=1e-12)
    assert float(page.find_element(By.ID, "distance").text) == 0
    for name in ("next", "prediction"):
        page.find_element(By.ID, f"{name}-clear").click()
        assert state(page)[name] == [0] * 11
    assert_agrees(page)


def test_the_area_between_the_cdfs_is_drawn(page):
    """Its squares, weighted by widths, are the part of the distance that is about shape."""
    for name in PRESETS:
        press(page, name)
        boxes = page.execute_script(
            """const box = (one) => ["x", "y", "width", "height", "y1"].map((key) => Number(one.getAttribute(key)));
            const lines = [...document.querySelectorAll("#cdf-chart .grid")].map((one) => box(one)[4]);
            const words = [...document.querySelectorAll("#cdf-chart text")].slice(0, lines.length);
            const heights = words.map((one) => Number(one.textContent.replace("−", "-")));
            return [[...document.querySelectorAll("#cdf-chart .between")].map(box), lines, heights]"""
        )
        unit = (boxes[1][0] - boxes[1][-1]) / (boxes[2][-1] - boxes[2][0])
        given = state(page)
        column = page.execute_script("return parseFloat(document.querySelector('#next-handles .handle').style.width)")
        spacing = (given["v_max"] - given["v_min"]) / (len(given["next"]) - 1)
        area = sum(width / column * spacing * (height / unit) ** 2 for _, _, width, height, _ in boxes[0])
        assert area == pytest.approx(expected(given)[0]["shape"], rel=1e-3, abs=1e-9)


@pytest.mark.parametrize("discount", [0.0, 0.4, 1.0])
@pytest.mark.parametrize("name", PRESETS)
def test_moved_bars_stand_at_the_moved_atoms(page, name, discount):
    """As high as the masses; those beyond the support are marked. Measured by the ends and the grid of the chart."""
    press(page, name)
    page.execute_script("playground.set({...playground.state, discount: arguments[0]})", discount)
    bars, ends, lines, words = page.execute_script(
        """const all = (what) => [...document.querySelectorAll(`#moved-chart ${what}`)];
        const read = (one, ...keys) => keys.map((key) => Number(one.getAttribute(key)));
        const bars = all('.bar').map((bar) => [...read(bar, 'x', 'y', 'width', 'height'),
            bar.classList.contains('clipped'), bar.classList.contains('negative')]);
        return [bars, all('.end').map((end) => read(end, 'x1')[0]), all('.grid').map((line) => read(line, 'y1')[0]),
            all('text').map((text) => Number(text.textContent.replace("−", "-")))]"""
    )
    given = state(page)
    numbers, arrays = expected(given)
    pixel = (given["v_max"] - given["v_min"]) / (ends[1] - ends[0])
    unit = (words[len(lines) - 1] - words[0]) / (lines[0] - lines[-1])
    places = [given["v_min"] + pixel * (x + width / 2 - ends[0]) for x, _, width, *_ in bars]
    masses = [(-unit if negative else unit) * height for _, _, _, height, _, negative in bars]
    if discount == 0:
        assert places == pytest.approx([given["reward"]])
        assert masses == pytest.approx([numbers["next-total"]])
    else:
        held = np.flatnonzero(given["next"])
        np.testing.assert_allclose(places, arrays["moved"][held], atol=1e-6)
        np.testing.assert_allclose(masses, np.array(given["next"])[held], atol=1e-6)
        clipped = np.array([bar[4] for bar in bars])
        share = np.abs(masses)[clipped].sum() / np.abs(masses).sum()
        assert share == pytest.approx(numbers["clipped"], abs=1e-6)


def test_bars_stay_within_their_charts(page, rng):
    """Also where a discount of zero puts all mass in one place."""
    for discount in (0.0, 1.0, 0.9) * 10:
        given = random_state(rng) | {"discount": discount}
        given["reward"] = (1 - discount) * (given["v_min"] + given["v_max"]) / 2
        page.execute_script("playground.set(arguments[0])", given)
        outside = page.execute_script(
            """return [...document.querySelectorAll('.bar, .between, .cdf')].filter((one) => {
                const box = one.getBoundingClientRect(), around = one.closest('svg').getBoundingClientRect();
                return box.top < around.top || box.bottom > around.bottom - 15; }).map((one) => one.outerHTML)"""
        )
        assert outside == []


def test_everything_can_be_reached_by_keyboard_and_has_a_name(page):
    """Each group of bars is one stop, as a slider is."""
    names, first = [], None
    for _ in range(60):
        page.switch_to.active_element.send_keys(Keys.TAB)
        active = page.switch_to.active_element
        if active == first or active.tag_name == "body":
            break
        first = first or active
        assert active.accessible_name, active.get_attribute("outerHTML")
        names.append(active.accessible_name)
    assert {*PRESETS, "Reset", "discount, roughly", "v_min", "Copy target"} <= set(names)
    assert sum(name.startswith("mass at return") for name in names) == 2


@pytest.mark.parametrize("preset", PRESETS)
def test_on_a_phone_nothing_sticks_out(page, preset):
    page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", PHONE)
    try:
        press(page, preset)
        assert page.execute_script("return document.documentElement.scrollWidth") <= 390
        wide = page.execute_script(
            "return [...document.querySelectorAll('main *')].filter((one) => one.getBoundingClientRect().right > 390)"
            ".map((one) => one.outerHTML.slice(0, 80))"
        )
        assert wide == []
    finally:
        page.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_has_a_light_and_a_dark_side(page, scheme):
    feature = {"name": "prefers-color-scheme", "value": scheme}
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
    colour = page.execute_script("return getComputedStyle(document.body).backgroundColor")
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    assert colour == {"light": "rgb(255, 255, 255)", "dark": "rgb(13, 17, 23)"}[scheme]


def test_the_front_page_leads_to_it():
    docs = PAGE.parent
    assert '<a href="playground.html">' in (docs / "index.md").read_text(encoding="utf-8")
    assert 'html_extra_path = ["playground.html"]' in (docs / "conf.py").read_text(encoding="utf-8")
