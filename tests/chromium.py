"""A real browser for the tests of pages: Debian's Chromium without a window. Without it, they are skipped."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")


def require_chromium() -> None:
    """Skip the calling module if there is no browser."""
    pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    if CHROMIUM is None or DRIVER is None:
        pytest.skip("Chromium is not installed; `make browser` installs it", allow_module_level=True)


@contextmanager
def open_chromium(profile: Path) -> Iterator[Any]:
    """A browser with a new profile, whose logs can be read."""
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM or ""
    for argument in (
        "--headless=new",
        "--no-sandbox",  # root in a container needs this
        "--disable-dev-shm-usage",
        "--disable-background-networking",
        "--window-size=1280,1000",
        f"--user-data-dir={profile}",
    ):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    try:
        yield browser
    finally:
        browser.quit()


def forget(browser: Any) -> None:
    """Leave the page and clear the logs."""
    browser.get("about:blank")
    for log in ("browser", "performance"):
        browser.get_log(log)


def wait_until_ready(browser: Any) -> None:
    """Wait until a page says that it is drawn."""
    from selenium.webdriver.support.ui import WebDriverWait

    script = "return document.documentElement.dataset.ready"
    WebDriverWait(browser, 60).until(lambda _: browser.execute_script(script) == "yes")


def problems(browser: Any) -> list[str]:
    """Messages that the page logged since the last call."""
    return [entry["message"] for entry in browser.get_log("browser")]


def requests(browser: Any) -> list[str]:
    """URLs that were requested since the last call, except those inside the page."""
    sent = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    urls = [one["params"]["request"]["url"] for one in sent if one["method"] == "Network.requestWillBeSent"]
    return [url for url in urls if not url.startswith(("data:", "blob:", "about:"))]
