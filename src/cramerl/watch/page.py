"""One page without network: a recording, and the script that plays it."""

from __future__ import annotations

import json
import re
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from cramerl._files import write_text
from cramerl._version import __version__
from cramerl.watch import phenomena
from cramerl.watch.packing import pack
from cramerl.watch.recording import Recording

_SCRIPTS = ("data.js", "charts.js", "reader.js", "player.js", "begin.js")


def write_page(recording: Recording, path: str | Path, *, highlight: str | None = None) -> Path:
    """Write a recording as one HTML file.

    Args:
        recording: what to show.
        path: where to; written whole or not at all.
        highlight: the phenomenon whose moments are marked at first, see `moments`; the page opens at the strongest.
    """
    return write_text(Path(path), to_html(page_data(recording, highlight=highlight)))


def page_data(recording: Recording, *, highlight: str | None = None) -> dict[str, Any]:
    """The page's numbers: a packed recording and the moments of every phenomenon."""
    scores = phenomena.scores(recording)
    if highlight is not None:
        phenomena.require_phenomenon(highlight, scores)
    found = {}
    for name, score in scores.items():
        steps = phenomena.find(score)
        found[name] = {"steps": steps, "scores": [float(score[step]) for step in steps]}
    first = found[highlight]["steps"][:1] if highlight else []
    exact = {step for one in found.values() for step in one["steps"]}
    return pack(recording, exact=exact) | {"found": found, "highlight": highlight, "open": first[0] if first else 0}


def to_html(data: dict[str, Any]) -> str:
    """The page around packed numbers."""
    fields = {
        "title": escape(data["title"]),
        "generator": f"cramerl {__version__}",
        "style": _read("page.css"),
        "script": "\n".join(map(_read, _SCRIPTS)),
        # A name with </script> in it must not end the element.
        "data": json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c"),
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda match: fields[match[1]], _read("page.html"))


def _read(name: str) -> str:
    return files("cramerl.watch").joinpath("assets", name).read_text(encoding="utf-8")
