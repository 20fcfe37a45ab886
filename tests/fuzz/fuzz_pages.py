"""Reports of runs whose names are HTML, Markdown, formulas or commands of a terminal."""

from __future__ import annotations

import atexit
import json
import re
from contextlib import ExitStack
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import chromium as chromium_tools
import numpy as np
from commands import run
from study_runs import write_run

PIECES = [
    "<script>window.pwned=1</script>",
    '<img src=x onerror="window.pwned=1">',
    "<svg onload=window.pwned=1>",
    '"><a href=javascript:window.pwned=1>',
    "](javascript:window.pwned=1)",
    "</script><script>window.pwned=1//",
    "</style><b onmouseover=window.pwned=1>",
    "{{7*7}}",
    r"$\frac$",
    "&lt;b&gt;",
    "'; window.pwned=1; '",
    "|",
    "\\",
    "]]>",
    "<!--",
]


_OPEN = ExitStack()  # the browser is closed when the process ends
atexit.register(_OPEN.close)


class Elements(HTMLParser):
    """The elements and attributes of a page that must not be there."""

    def __init__(self) -> None:
        super().__init__()
        self.bad: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Look at one element."""
        for name, value in attrs:
            if name.startswith("on") or (re.match(r"\s*(javascript|https?):", value or "") and name in ("href", "src")):
                self.bad.append(f"{tag} {name}={value}")
        if tag in ("iframe", "object", "embed", "form") or (tag == "img" and ("src", "x") in attrs):
            self.bad.append(tag)


def prepare(place: Path) -> Any:
    """A browser, if there is one."""
    if None in (chromium_tools.CHROMIUM, chromium_tools.DRIVER):
        print("no Chromium is installed (make browser): pages are parsed, but not run")
        return None
    return _OPEN.enter_context(chromium_tools.open_chromium(place / "profile"))


def trial(rng: np.random.Generator, browser: Any, place: Path) -> str | None:
    """Put pieces into every name that a report shows."""

    def name() -> str:
        return "".join(PIECES[i] for i in rng.integers(len(PIECES), size=int(rng.integers(1, 3))))

    env, folder = f"gym:{name()}-v0", place / "runs" / name().replace("/", "")
    for seed in range(2):
        write_run(folder / f"{name().replace('/', '')}{seed}", "s51", env, seed=seed)
        (next(folder.glob(f"*{seed}")) / "versions.json").write_text(json.dumps({name(): name(), "device": name()}))
    (folder / "sweep.json").write_text(json.dumps({"command": name()}))
    found = run("report", place / "runs", "--out", place / "report")
    if found.returncode:
        return f"{env}: {found.stderr[-500:]}"
    page = (place / "report/report.html").read_text()
    elements = Elements()
    elements.feed(page)
    if elements.bad:
        return f"{env}: {elements.bad[:3]}"
    tables = (place / "report/tables.md").read_text()
    if "<" in tables or "](javascript" in tables:
        return f"{env}: tables.md holds HTML or a link"
    if browser is not None:
        browser.get((place / "report/report.html").as_uri())
        if browser.execute_script("return window.pwned"):
            return f"{env}: it ran in Chromium"
        if problems := chromium_tools.problems(browser):
            return f"{env}: {problems[:2]}"
    return None
