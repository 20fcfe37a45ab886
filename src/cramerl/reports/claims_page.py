"""The claims, the paper's and those beyond it, as one self-contained HTML page, and as a page of Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from cramerl._extras import load_library
from cramerl._pages import render
from cramerl._pages.formulas import set_formulas
from cramerl.claims.claim import SEVERITIES, Claim, Verdict
from cramerl.claims.table import (
    MAIN_POINTS,
    MARKS,
    VERDICT_WORDS,
    by_importance,
    count,
    count_claims,
    severities_in_words,
    show,
    split,
    summary,
    verdict_in_words,
)

TITLE = "The paper’s claims, recomputed"
# For each verdict: the class that colours it.
_STYLES: dict[Verdict, str] = {"false": "false", "holds with a correction": "corrected", "holds": "holds"}
_PARTS = ("claims of the paper", "claims beyond the paper")


class Group(NamedTuple):
    """Claims with one verdict, of the paper or beyond it."""

    title: str
    verdict: Verdict
    claims: list[Claim]


def claims_context(claims: Sequence[Claim]) -> dict[str, Any]:
    """What templates show of claims from `cramerl.claims.verify`."""
    moved = [claim.id for claim in claims if not claim.passed]
    reproduced = f"All {sum(len(claim.figures) for claim in claims)} figures are reproduced."
    return {
        "claims": claims,
        "claims_title": TITLE,
        "marks": MARKS,
        "styles": _STYLES,
        "verdict_words": VERDICT_WORDS,
        "verdict_in_words": verdict_in_words,
        "counts": count(claims),
        "claim_groups": _groups(claims),
        "severities": {name: words for name, words in SEVERITIES.items() if any(c.severity == name for c in claims)},
        "main_points": MAIN_POINTS if sum(claim.of_paper for claim in claims) > 1 else "",
        "formulas": set_formulas,
        "claim_parts": [(name, part) for name, part in zip(_PARTS, split(claims), strict=True) if part],
        "summary": summary(claims),
        "moved": moved,
        "state": f"Figures have moved in {', '.join(moved)}." if moved else reproduced,
        "show": show,
    }


def _groups(claims: Sequence[Claim]) -> list[Group]:
    """The claims by what is said about them, the most important first."""
    found = []
    for where, some in zip(("of the paper", "beyond the paper"), split(by_importance(claims)), strict=True):
        for verdict, words in VERDICT_WORDS.items():
            its = [claim for claim in some if claim.verdict == verdict]
            said = words if len(its) > 1 else {"false": "is false as printed"}.get(verdict, verdict)
            found += [Group(f"{count_claims(len(its))} {where} {said}", verdict, its)] if its else []
    return found


def to_html(claims: Sequence[Claim]) -> str:
    """A page that needs no network: a summary and a filter on top, and each claim with its correction and figures.

    The most important claims come first. The page can be read on a phone, in light and in dark mode. Claims whose
    figures have moved are open from the start.
    """
    return render("cramerl.reports", "claims.html", generator="cramerl verify", title=TITLE, **claims_context(claims))


def to_markdown(claims: Sequence[Claim]) -> str:
    """A page of Markdown: a table of the verdicts, then each claim with its correction and figures.

    Rounding errors are shown as 0, so that the page is the same on every processor.
    """
    return render("cramerl.reports", "claims.md", plain=_plain, counted=_counted, **claims_context(claims))


def _counted(some: Sequence[Claim]) -> str:
    """The verdicts in words."""
    counts = count(some)
    if counts["holds"] == len(some):
        return "all hold"
    told = ", ".join(f"{counts[verdict]} {VERDICT_WORDS[verdict]}" for verdict in reversed(VERDICT_WORDS))
    severities = severities_in_words(some)
    return f"{told} ({severities})" if severities else told


def _plain(text: str) -> Any:
    """Text with every character escaped that Markdown would interpret."""
    escaped = "".join(f"\\{letter}" if letter in "\\`*_|<>[]$#~^{}" else letter for letter in text)
    return load_library("markupsafe").Markup(escaped)
