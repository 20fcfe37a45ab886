"""One page without network: a recording and the script that plays it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cramerl._files import write_text
from cramerl._pages import render
from cramerl._version import __version__
from cramerl.watching import phenomena
from cramerl.watching.packing import pack
from cramerl.watching.recording import MADE_BY, Recording


def write_page(recording: Recording, path: str | Path, *, highlight: str | None = None) -> Path:
    """Write a recording as one HTML file.

    Args:
        recording: what to show.
        path: the file, written whole or not at all.
        highlight: the phenomenon that is marked at first (`phenomena`); the page opens at its strongest step.
    """
    return write_text(Path(path), to_html(page_data(recording, highlight=highlight)))


def page_data(recording: Recording, *, highlight: str | None = None) -> dict[str, Any]:
    """The data of the page: a packed recording and the strongest steps of every phenomenon."""
    scores = phenomena.scores(recording)
    if highlight not in (None, *scores):
        hint = ", which needs a recording of two agents or more" if highlight in phenomena.PHENOMENA else ""
        raise ValueError(f"highlight must be one of {', '.join(scores)}, got {highlight!r}{hint}")
    found = {name: phenomena.strongest_steps(score) for name, score in scores.items()}
    exact = {step for steps in found.values() for step in steps}
    return pack(recording, exact=exact) | {
        "phenomena": {
            name: {
                "meaning": phenomena.MEANINGS[name],
                "steps": steps,
                "scores": [float(scores[name][step]) for step in steps],
                "marks": [phenomena.marks(recording, name, step) for step in steps],
            }
            for name, steps in found.items()
        },
        "highlight": highlight,
        "open": next(iter(found[highlight]), 0) if highlight else 0,
    }


def to_html(data: dict[str, Any]) -> str:
    """The page around packed data."""
    return render("cramerl.watching", "page.html", title=data["title"], generator=f"{MADE_BY} {__version__}", data=data)
