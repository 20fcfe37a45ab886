"""The page of `cramerl verify` and its Markdown: what is there, nothing unescaped, and in a browser, a filter."""

from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import chromium as chromium_tools
import pytest

from cramerl.claims.table import by_importance
from cramerl.reports.claims_page import to_html, to_markdown


class Page(HTMLParser):
    """Collects tags, attributes and text, with formulas as they were written; sees that tags are closed in order."""

    VOID = ("meta", "link", "br", "input")

    def __init__(self, text):
        super().__init__()
        self.open, self.seen, self.text = [], [], ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))
        if tag == "math":
            self.text += dict(attrs)["alttext"] or ""
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += "" if "math" in self.open else data


def with_moved_figure(claim):
    name = next(iter(claim.figures))
    return replace(claim, figures=claim.figures | {name: 1e6}, passed=False)


def in_order(claims):
    return [claim for of_paper in (True, False) for claim in by_importance(claims) if claim.of_paper == of_paper]


def test_the_most_important_claims_come_first_with_all_they_say(claims):
    text = to_html(claims)
    page = Page(text)
    assert page.open == []
    bodies = [a["id"] for tag, a in page.seen if tag == "div" and a.get("class") == "body"]
    assert bodies == [f"claim-{claim.id}" for claim in in_order(claims)]
    assert not any("open" in a for tag, a in page.seen if tag == "details")
    for claim in claims:
        assert claim.statement in page.text
        assert claim.correction in page.text
        for name in claim.figures:
            assert name in page.text
    assert page.text.count("False as printed.") == 15
    assert "15 claims of the paper are false as printed" in page.text
    assert "prefers-color-scheme: dark" in text
    assert "width=device-width" in text


def test_it_asks_the_network_for_nothing(claims):
    text = to_html(claims)
    page = Page(text)
    assert not {tag for tag, _ in page.seen} & {"script", "img", "iframe", "object", "base", "form"}
    links = {a["href"] for _, a in page.seen if "href" in a}
    assert links == {"data:,", *(f"#claim-{claim.id}" for claim in claims)}
    assert not any({"src", "srcset", "action"} & a.keys() for _, a in page.seen)
    assert not any(word in text for word in ("http:", "https:", "url(", "@import"))


def test_it_escapes_and_opens_what_has_moved(claims):
    odd = replace(with_moved_figure(claims[0]), statement='<script>alert("&")</script> λ<b>x_1</b>')
    page = Page(to_html([odd]))
    assert odd.statement in page.text
    assert not {"script", "b"} & {tag for tag, a in page.seen if "class" not in a}
    assert [("open" in a) for tag, a in page.seen if tag == "details"] == [True]
    assert "FIGURES HAVE MOVED in 1a." in page.text


def test_the_page_of_the_documentation_is_up_to_date(claims):
    """Digits may differ on another processor, so the recomputed column is left to `verify`; all else is compared."""

    def without_figures(page):
        rows = (line.split(" | ") for line in page.splitlines())
        return [row[:1] + row[2:] if row[0].startswith("| ") and len(row) == 3 else row for row in rows]

    file = Path(__file__).parents[2] / "docs" / "claims.md"
    again = "make it again with: cramerl verify --markdown docs/claims.md"
    page = file.read_text(encoding="utf-8")
    assert without_figures(page) == without_figures(to_markdown(claims)), again
    for claim in claims:
        assert f"## Claim {claim.id}\n" in page


@pytest.fixture(scope="module")
def chromium(claims, tmp_path_factory):
    chromium_tools.require_chromium()
    page = tmp_path_factory.mktemp("page") / "claims.html"
    page.write_text(to_html(claims), encoding="utf-8")
    with chromium_tools.open_chromium(tmp_path_factory.mktemp("profile")) as browser:
        browser.get(page.as_uri())
        yield browser


@pytest.mark.parametrize(
    ("value", "verdict"),
    [("false", "false"), ("corrected", "holds with a correction"), ("holds", "holds"), ("all", "")],
)
def test_a_filter_shows_one_verdict(chromium, claims, value, verdict):
    chromium.find_element("css selector", f"input[value={value}]").click()
    shown = [one.text for one in chromium.find_elements("css selector", ".id") if one.is_displayed()]
    assert shown == [claim.id for claim in in_order(claims) if verdict in ("", claim.verdict)]


def test_a_link_opens_its_claim(chromium):
    chromium.find_element("css selector", "input[value=all]").click()
    chromium.execute_script("location.hash = '#claim-9f'")
    body = chromium.find_element("id", "claim-9f")
    assert body.is_displayed()
    assert "zero-sum features" in body.text
    assert not chromium.find_element("id", "claim-9h").is_displayed()


def test_formulas_are_drawn(chromium):
    """An index is smaller than its letter and stands beside it, and the page has no complaint."""
    sizes = chromium.execute_script(
        """const shown = [...document.querySelectorAll('msub')].filter((one) => one.getClientRects().length);
        return shown.map((one) => [...one.children].map((part) =>
            [parseFloat(getComputedStyle(part).fontSize), part.getBoundingClientRect().left])).map(([base, index]) =>
            index[0] < base[0] && index[1] > base[1])"""
    )
    assert len(sizes) > 5
    assert all(sizes)
    assert chromium_tools.problems(chromium) == []


def test_on_a_phone_nothing_sticks_out(chromium):
    metrics = {"width": 390, "height": 844, "deviceScaleFactor": 2, "mobile": True}
    chromium.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    chromium.execute_script("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    width = chromium.execute_script("return document.documentElement.scrollWidth")
    chromium.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    assert width <= 390
