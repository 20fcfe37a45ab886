"""What the tests of pages of evaluations share: a small log, hostile names, and reading a page."""

from __future__ import annotations

import json
import re
from html import unescape
from typing import Any

from small_worlds import LOGGED, WORLD, read

from cramerl.linear import Log

COMMAND = "cramerl evaluate --data '<log>.parquet'"
HOSTILE = "</script><script>alert(1)</script>", "$\\frac{a}{b}$ <b>bold</b>"


def small_log(episodes: int = 300, **more: int) -> Log:
    """Of the small world."""
    return read(WORLD.play(LOGGED, episodes, **more), discount=0.9)


def words(page: str) -> str:
    """The text of a page, without what its scripts read."""
    text = re.sub(r"<(script|style)\b.*?</\1>", " ", page, flags=re.DOTALL)
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", text)).split())


def values(page: str) -> list[dict[str, Any]]:
    """What each chart shows where a reader points."""
    found = re.findall(r'<script type="application/json" class="values">(.*?)</script>', page)
    return [panel for text in found for panel in json.loads(text)]


def numbers(text: str) -> list[float]:
    """All numbers in a text."""
    return [float(one.replace(",", "")) for one in re.findall(r"-?\d[\d,]*(?:\.\d+)?(?:e-?\d+)?", text)]
