"""A page of `cramerl watch` as its reader sees it, in Chromium."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import chromium as chromium_tools
import numpy as np
from selenium.webdriver.common.by import By
from watch_recordings import ATOMS


class Page:
    """A page as its reader sees it."""

    def __init__(self, browser, path: Path | str, hash_: str = ""):
        self.browser = browser
        chromium_tools.forget(browser)
        browser.get((path if isinstance(path, str) else path.as_uri()) + hash_)
        chromium_tools.wait_until_ready(browser)

    @classmethod
    def reset(cls, browser: Any, step: int) -> Page:
        """A page that is loaded already, as if it had just opened at ``step``."""
        page = cls.__new__(cls)
        page.browser = browser
        page.run(
            """player.playing = false;
            for (const name of ["same", "chosen"]) document.getElementById(name).checked = false;
            const list = document.getElementById("highlight");
            list.value = player.store.meta.highlight;
            document.activeElement.blur();
            player.mark(list.value, false);
            player.seek(arguments[0]);""",
            step,
        )
        page.at(step)
        return page

    def run(self, script, *arguments):
        return self.browser.execute_script(script, *arguments)

    def wait(self, condition):
        end = time.monotonic() + 10
        while not condition():
            assert time.monotonic() < end, "the page did not reach this state"
            time.sleep(0.02)

    @property
    def step(self) -> int:
        return int(self.run("return document.documentElement.dataset.shown"))

    def at(self, step):
        self.wait(lambda: self.step == step)

    def press(self, *keys):
        self.browser.find_element(By.TAG_NAME, "body").send_keys(*keys)

    def press_where_it_is(self, *keys):
        """Keys that go to whatever has the focus."""
        self.browser.switch_to.active_element.send_keys(*keys)

    def scrub(self, step):
        self.run(
            "const s = document.getElementById('slider'); s.value = arguments[0]; s.dispatchEvent(new Event('input'))",
            step,
        )
        self.at(step)

    def text(self, selector) -> str:
        return self.browser.find_element(By.CSS_SELECTOR, selector).text

    def bars(self, agent, action) -> np.ndarray:
        """Masses read off the drawing, by the scale of the chart."""
        paths = self.run(
            """const chart = document.querySelectorAll('.agent')[arguments[0]].querySelectorAll('.chart')[arguments[1]];
            return [...chart.querySelectorAll('path')].map((p) => p.getAttribute('d'))""",
            agent,
            action,
        )
        x, y = self.run("return [player.limits.x, player.charts[arguments[0]][arguments[1]].y]", agent, action)
        masses = np.zeros(len(ATOMS))
        for path in paths:
            for bar in filter(None, path.split("z")):
                left, zero, end, wide = map(float, bar[1:].replace("V", " ").replace("h", " ").split()[:4])
                atom = x[0] + (left + wide / 2) / 1000 * (x[1] - x[0])
                masses[np.argmin(abs(ATOMS - atom))] = (zero - end) / 100 * (y[1] - y[0])
        return masses

    def problems(self):
        return chromium_tools.problems(self.browser)

    def requests(self):
        return chromium_tools.requests(self.browser)


def number(text: str) -> float:
    return float(text.replace("−", "-").replace(",", ""))
