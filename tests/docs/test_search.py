"""The documentation is built without a warning, and its search works on pages opened as files, with no server."""

import subprocess
import sys
from pathlib import Path

import chromium as chromium_tools
import pytest

chromium_tools.require_chromium()

from selenium.webdriver.common.by import By  # noqa: E402 - after the check above
from selenium.webdriver.support.ui import WebDriverWait  # noqa: E402

DOCS = Path(__file__).parents[2] / "docs"
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    out = tmp_path_factory.mktemp("built")
    command = [sys.executable, "-m", "sphinx", "-W", "-q", "-d", str(out / "doctrees"), "-b", "html"]
    found = subprocess.run(
        [*command, str(DOCS), str(out / "html")], capture_output=True, text=True, check=False, timeout=600
    )
    assert found.returncode == 0, found.stderr
    return out / "html"


@pytest.fixture(scope="module")
def chromium(tmp_path_factory):
    with chromium_tools.open_chromium(tmp_path_factory.mktemp("profile")) as browser:
        yield browser


def search(chromium, built, words):
    """The pages that a search finds: their files and their titles, best first."""
    chromium_tools.forget(chromium)
    chromium.get((built / "index.html").as_uri())
    chromium.find_element(By.CSS_SELECTOR, "input[name=q]").send_keys(f"{words}\n")
    WebDriverWait(chromium, 60).until(
        lambda page: page.find_element(By.CSS_SELECTOR, "#search-results h2").text == "Search Results"
    )
    found = chromium.find_elements(By.CSS_SELECTOR, "#search-results li a")
    return {Path(one.get_attribute("href").partition("#")[0].partition("?")[0]).name: one.text for one in found}


@pytest.mark.parametrize(
    ("words", "page"),
    [("recommender", "logs.html"), ("phenomenon", "watch.html"), ("nearest_distribution", "api.html")],
)
def test_search_finds_a_page(chromium, built, words, page):
    assert page in search(chromium, built, words)
    assert chromium_tools.problems(chromium) == []
    sent = [url for url in chromium_tools.requests(chromium) if not url.startswith("chrome:")]
    assert all(url.startswith("file:") for url in sent)


def test_search_says_that_it_found_nothing(chromium, built):
    assert search(chromium, built, "zyzzyva") == {}
