"""The page of an evaluation in a real browser, as a reader uses it."""

import chromium as chromium_tools
import numpy as np
import pytest
from log_pages import numbers

chromium_tools.require_chromium()

from selenium.webdriver.common.action_chains import ActionChains  # noqa: E402 - after the checks above
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402


@pytest.fixture
def opened(chromium, pages):
    """Opens a page; no message may be logged on it."""

    def open_page(name: str):
        chromium_tools.forget(chromium)
        chromium.get(pages[name].as_uri())
        chromium_tools.wait_until_ready(chromium)
        return chromium

    yield open_page
    assert chromium_tools.problems(chromium) == []


def panel(page, chart: str):
    found = page.find_element(By.CSS_SELECTOR, f".chart.{chart} .panel")
    page.execute_script("arguments[0].scrollIntoView({block: 'center'})", found)
    return found


def shown(page) -> tuple[str, str]:
    """The words of the tip: where it stands, and the value there."""
    tip = page.find_element(By.CLASS_NAME, "tip")
    assert tip.is_displayed()
    return tip.find_element(By.TAG_NAME, "b").text, tip.find_elements(By.TAG_NAME, "td")[-1].text


def assert_is_cdf(page, found) -> float:
    """The tip holds the CDF with its interval at the return it names, which is returned."""
    place, value = shown(page)
    atoms = found.distribution.support.atoms
    atom = float(atoms[np.abs(atoms - numbers(place)[0]).argmin()])
    np.testing.assert_allclose(numbers(value), 100 * np.array(found.cdf(atom)[:3]), atol=0.0501)
    return atom


@pytest.mark.parametrize("name", ["own", "few", "several"])
def test_it_loads_and_sends_no_request(opened, pages, name):
    page = opened(name)
    assert page.find_element(By.TAG_NAME, "h1").text.startswith("Returns of ")
    assert chromium_tools.requests(page) == [pages[name].as_uri()]


def test_pointing_shows_the_cdf_there(opened, own):
    page = opened("own")
    node = panel(page, "cdf")
    ticks = page.execute_script(
        """return [...document.querySelectorAll('.chart.cdf .across')].map((one) => {
            const box = one.getBoundingClientRect(); return [Number(one.textContent), box.x + box.width / 2] })"""
    )
    returns, pixels = np.array(ticks).T  # the axis, as it was drawn
    slope, offset = np.polyfit(pixels, returns, 1)
    atoms = own.distribution.support.atoms
    for share in (0.2, 0.5, 0.7):
        move = round((share - 0.5) * node.size["width"])
        ActionChains(page, duration=0).move_to_element_with_offset(node, move, 0).perform()
        pointed = slope * (node.location["x"] + node.size["width"] / 2 + move) + offset
        atom = assert_is_cdf(page, own)
        assert abs(atom - pointed) <= np.abs(atoms - pointed).min() + 0.05
    ActionChains(page).move_to_element(page.find_element(By.TAG_NAME, "h2")).perform()
    assert not page.find_element(By.CLASS_NAME, "tip").is_displayed()


def test_keys_and_fingers_show_it_too(opened, own):
    page = opened("own")
    node = panel(page, "cdf")
    node.send_keys(Keys.HOME)
    first = assert_is_cdf(page, own)
    node.send_keys(Keys.ARROW_RIGHT)
    assert assert_is_cdf(page, own) > first
    node.send_keys(Keys.ESCAPE)
    assert not page.find_element(By.CLASS_NAME, "tip").is_displayed()
    box = page.execute_script(
        "const b = arguments[0].getBoundingClientRect(); return [b.x, b.y, b.width, b.height]", node
    )
    spot = {"x": box[0] + 0.5 * box[2], "y": box[1] + 0.5 * box[3]}
    page.execute_cdp_cmd("Input.dispatchTouchEvent", {"type": "touchStart", "touchPoints": [spot]})
    page.execute_cdp_cmd("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    assert_is_cdf(page, own)


def test_the_dot_stands_on_the_line(opened):
    page = opened("own")
    node = panel(page, "cdf")
    node.send_keys(Keys.HOME, *[Keys.ARROW_RIGHT] * 15)
    dot = page.execute_script(
        "const b = arguments[0].querySelector('.dot').getBoundingClientRect();"
        " return [b.x + b.width / 2, b.y + b.height / 2]",
        node,
    )
    inside = page.execute_script(
        """const path = document.querySelector('.chart.cdf path.line'), at = path.getScreenCTM().inverse();
        const p = new DOMPoint(arguments[0], arguments[1]).matrixTransform(at);
        const length = path.getTotalLength();
        let least = 1e9;
        for (let i = 0; i <= 4000; i += 1) {
            const q = path.getPointAtLength(length * i / 4000);
            least = Math.min(least, Math.hypot(p.x - q.x, p.y - q.y));
        }
        return least""",
        *dot,
    )
    assert inside < 0.5  # in percent of the chart


@pytest.mark.parametrize("name", ["own", "few", "several"])
def test_on_a_phone_nothing_sticks_out(opened, name):
    page = opened(name)
    metrics = {"width": 390, "height": 844, "deviceScaleFactor": 2, "mobile": True}
    page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    page.execute_script("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    assert page.execute_script("return document.documentElement.scrollWidth") <= 390
    panel(page, "cdf").send_keys(Keys.END)
    box = page.execute_script(
        "const b = document.querySelector('.tip').getBoundingClientRect(); return [b.left, b.right]"
    )
    assert box[0] >= 0
    assert box[1] <= 390
    page.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_what_is_not_to_be_used_is_subdued(opened):
    """Its number is smaller and paler than that of an answer to use, and below the verdict."""

    def look(page):
        return page.execute_script(
            """const number = document.querySelector('.answers b'), style = getComputedStyle(number);
            const badge = document.querySelector('.verdict').getBoundingClientRect();
            return [parseFloat(style.fontSize), style.color, number.getBoundingClientRect().top > badge.top]"""
        )

    size, colour, below = look(opened("own"))
    other_size, other_colour, other_below = look(opened("few"))
    assert other_size < 0.6 * size
    assert other_colour != colour
    assert (below, other_below) == (False, True)


def test_on_paper_everything_is_open(opened):
    page = opened("several")
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    assert not page.find_element(By.TAG_NAME, "nav").is_displayed()
    assert not page.find_element(By.CLASS_NAME, "panel").is_displayed()
    page.execute_script("dispatchEvent(new Event('beforeprint'))")
    assert page.find_element(By.TAG_NAME, "details").get_attribute("open")
    page.execute_script("dispatchEvent(new Event('afterprint'))")
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
