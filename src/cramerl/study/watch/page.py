"""One page without network: a recording, and the script that plays it."""

from __future__ import annotations

import json
import re
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from cramerl import __version__
from cramerl._files import write_text
from cramerl.study.watch import moments
from cramerl.study.watch.packing import pack
from cramerl.study.watch.recording import Recording

_SCRIPTS = ("data.js", "charts.js", "reader.js", "player.js", "begin.js")


def write_page(recording: Recording, path: str | Path, *, find: str | None = None) -> Path:
    """Write a recording as one HTML file.

    Args:
        recording: what to show.
        path: where to; written whole or not at all.
        find: the phenomenon whose moments are marked at first, see `moments`; the page opens at the strongest.
    """
    return write_text(Path(path), to_html(page_data(recording, find=find)))


def page_data(recording: Recording, *, find: str | None = None) -> dict[str, Any]:
    """The page's numbers: a packed recording and the moments of every phenomenon."""
    scores = moments.scores(recording)
    if find is not None:
        moments.require_phenomenon(find, scores)
    found = {}
    for name, score in scores.items():
        steps = moments.find(score)
        found[name] = {"steps": steps, "scores": [float(score[step]) for step in steps]}
    first = found[find]["steps"][:1] if find else []
    exact = {step for one in found.values() for step in one["steps"]}
    return pack(recording, exact=exact) | {"found": found, "find": find, "open": first[0] if first else 0}


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
    return files("cramerl.study.watch").joinpath(name).read_text(encoding="utf-8")
