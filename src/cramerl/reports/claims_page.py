"""The claims, the paper's and those beyond it, as one self-contained HTML page, and as a page of Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cramerl._extras import load_library
from cramerl._pages import render
from cramerl.claims.claim import Claim, Verdict
from cramerl.claims.table import MARKS, count, show, split, summary

TITLE = "The paper’s claims, recomputed"
# For each verdict: the class that colours it, and how many claims "hold", ...
_VERDICTS: dict[Verdict, tuple[str, str]] = {
    "holds": ("holds", "hold"),
    "holds with a correction": ("corrected", "hold with a correction"),
    "false": ("false", "are false"),
}
_PARTS = ("claims of the paper", "claims beyond the paper")


def claims_context(claims: Sequence[Claim]) -> dict[str, Any]:
    """What templates show of claims from `cramerl.claims.verify`."""
    moved = [claim.id for claim in claims if not claim.passed]
    reproduced = f"All {sum(len(claim.figures) for claim in claims)} figures are reproduced."
    return {
        "claims": claims,
        "claims_title": TITLE,
        "marks": MARKS,
        "verdicts": _VERDICTS,
        "claim_parts": [(name, part, count(part)) for name, part in zip(_PARTS, split(claims), strict=True) if part],
        "summary": summary(claims),
        "moved": moved,
        "state": f"Figures have moved in {', '.join(moved)}." if moved else reproduced,
        "show": show,
    }


def to_html(claims: Sequence[Claim]) -> str:
    """A page that needs no network: the counts on top, and each claim with its correction and figures to be opened.

    It can be read on a phone, in light and in dark mode. Claims whose figures have moved are open from the start.
    """
    return render("cramerl.reports", "claims.html", generator="cramerl verify", title=TITLE, **claims_context(claims))


def to_markdown(claims: Sequence[Claim]) -> str:
    """A page of Markdown: a table of the verdicts, then each claim with its correction and figures.

    Rounding errors are shown as 0, so that the page is the same on every processor.
    """
    return render("cramerl.reports", "claims.md", plain=_plain, counted=_counted, **claims_context(claims))


def _counted(counts: Mapping[Verdict, int]) -> str:
    """The verdicts in words."""
    if counts["holds"] == sum(counts.values()):
        return "all hold"
    return ", ".join(f"{counts[verdict]} {words}" for verdict, (_, words) in _VERDICTS.items())


def _plain(text: str) -> Any:
    """Text with every character escaped that Markdown would interpret."""
    escaped = "".join(f"\\{letter}" if letter in "\\`*_|<>[]$#~^{}" else letter for letter in text)
    return load_library("markupsafe").Markup(escaped)
