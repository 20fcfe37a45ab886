"""Claims as text for a terminal, and as plain values for a JSON file."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from typing import Any

from cramerl.claims.claim import SEVERITIES, VERDICTS, Claim, Expected, Severity, Verdict

MARKS: dict[Verdict, str] = {"holds": "✓", "holds with a correction": "~", "false": "✗"}
# How many claims "hold", ...; the most important first.
VERDICT_WORDS: dict[Verdict, str] = {
    "false": "are false as printed",
    "holds with a correction": "hold with a correction",
    "holds": "hold",
}
MAIN_POINTS = (
    "The paper's main points stand: the Cramér distance and its condition number (3, 5), projections that keep the "
    "mean (6, 7), convergence to one fixed point (9c), and error bounds once their conditions are complete (9f, 10a)."
)
_PLURALS: dict[Severity, str] = {"theorem": "theorems or arguments", "constant": "constants", "misprint": "misprints"}
_PLAIN = ("id", "of_paper", "statement", "verdict", "severity", "correction", "passed")
_LEAST_WIDTH = 30
_ID, _MARK, _SEVERITY = 5, 2, 10
# A narrower terminal has no room for the column of severities.
_WITH_SEVERITY = 60


def format_table(claims: Sequence[Claim], width: int) -> str:
    """A summary, then one line for each claim, the most important first, wrapped to a width in characters.

    Args:
        claims: from `verify`.
        width: of the terminal; at least 30 is used.
    """
    width = max(_LEAST_WIDTH, width)
    of_paper, beyond = split(by_importance(claims))
    lines = textwrap.wrap(summary(claims), width)
    if len(of_paper) > 1:
        lines += textwrap.wrap(MAIN_POINTS, width)
    for verdict, words in VERDICT_WORDS.items():
        part = [claim for claim in of_paper if claim.verdict == verdict]
        lines += _part(f"{len(part)} {words}", part, width)
    lines += _part(f"{len(beyond)} beyond the paper", beyond, width)
    found = {claim.severity for claim in of_paper}
    lines += [""] if found - {None} else []
    for severity, words in SEVERITIES.items():
        lines += textwrap.wrap(f"{severity}: {words}", width, subsequent_indent="  ") if severity in found else []
    return "\n".join(lines)


def format_claim(claim: Claim, width: int) -> str:
    """One claim in full: what the paper says, what is true instead, and the figures."""
    width = max(_LEAST_WIDTH, width)
    said = "The paper says" if claim.of_paper else "This library says"
    lines = textwrap.wrap(f"Claim {claim.id}: {MARKS[claim.verdict]} {verdict_in_words(claim)}", width)
    for title, text in ((said, claim.statement), ("What is true", claim.correction)):
        lines += ["", title, *_indented(text, width)]
    lines += ["", "Figures"]
    for name, figure in claim.figures.items():
        lines += _indented(f"{name}: {_figure(claim, name, figure)}", width, more="  ")
    return "\n".join(lines)


def verdict_in_words(claim: Claim) -> str:
    """The verdict about a claim and, if it does not hold, what has to change."""
    verdict = "false as printed" if claim.verdict == "false" else claim.verdict
    return verdict if claim.severity is None else f"{verdict} ({claim.severity}: {SEVERITIES[claim.severity]})"


def by_importance(claims: Sequence[Claim]) -> list[Claim]:
    """The claims that are false first, then those with a correction; theorems before constants before misprints."""
    verdicts, severities = list(VERDICT_WORDS), [*SEVERITIES, None]
    return sorted(claims, key=lambda claim: (verdicts.index(claim.verdict), severities.index(claim.severity)))


def split(claims: Sequence[Claim]) -> tuple[list[Claim], list[Claim]]:
    """The claims of the paper, and those beyond it."""
    return [claim for claim in claims if claim.of_paper], [claim for claim in claims if not claim.of_paper]


def summary(claims: Sequence[Claim]) -> str:
    """The verdicts counted, those of the paper apart from those beyond it, and whether all figures stand."""
    parts = zip(("of the paper", "beyond the paper"), split(claims), strict=True)
    counted = [f"{count_claims(len(part))} {name}: {_verdicts(part)}." for name, part in parts if part]
    moved = [claim.id for claim in claims if not claim.passed]
    figures = sum(len(claim.figures) for claim in claims)
    state = f"FIGURES HAVE MOVED in {', '.join(moved)}" if moved else f"All {figures} figures are reproduced"
    return " ".join([*counted, f"{state}."])


def count_claims(number: int) -> str:
    """A number of claims in words."""
    return f"{number} {'claim' if number == 1 else 'claims'}"


def severities_in_words(claims: Sequence[Claim]) -> str:
    """What has to change in those that are false, counted; empty if none is."""
    false = [claim.severity for claim in claims if claim.verdict == "false"]
    return ", ".join(f"{false.count(one)} {_PLURALS[one]}" for one in SEVERITIES if one in false)


def count(claims: Sequence[Claim]) -> dict[Verdict, int]:
    """How many claims have each verdict."""
    return {verdict: sum(claim.verdict == verdict for claim in claims) for verdict in VERDICTS}


def show(figure: float, expected: Expected) -> str:
    """A figure with the digits worth showing: two of what rounding leaves, ten of one that has moved."""
    if figure and abs(figure) < 1e-6:
        return f"{figure:.1e}"
    return format(figure, expected.style if expected.admits(figure) else ".10g")


def to_json(claims: Sequence[Claim]) -> dict[str, Any]:
    """Plain values: every claim, the verdicts counted (the paper's and others), and whether all passed.

    Bounds that are infinite are None.
    """
    of_paper, beyond = split(claims)
    return {
        "made_by": "cramerl verify",
        "passed": all(claim.passed for claim in claims),
        "counts": dict(count(of_paper)),
        "counts_beyond_paper": dict(count(beyond)),
        "claims": [
            {name: getattr(claim, name) for name in _PLAIN}
            | {
                "figures": {name: _finite(figure) for name, figure in claim.figures.items()},
                "expected": {
                    name: {"low": _finite(e.low), "high": _finite(e.high), "text": e.text}
                    for name, e in claim.expected.items()
                },
            }
            for claim in claims
        ],
    }


def _verdicts(claims: Sequence[Claim]) -> str:
    found = count(claims)
    if found["holds"] == len(claims):
        return f"{MARKS['holds']} all hold"
    told = [f"{MARKS[v]} {found[v]} {VERDICT_WORDS[v]}" for v in VERDICTS]
    severities = severities_in_words(claims)
    return ", ".join(told) + (f" ({severities})" if severities else "")


def _part(title: str, claims: Sequence[Claim], width: int) -> list[str]:
    """A title, and the lines of each claim; nothing if there are none."""
    lines = ["", title] if claims else []
    for claim in claims:
        severity = f"{claim.severity or '':<{_SEVERITY}}" if width >= _WITH_SEVERITY else ""
        start = f"{claim.id:<{_ID}}{MARKS[claim.verdict]:<{_MARK}}{severity}"
        indent = " " * (_ID + _MARK + len(severity))
        lines += textwrap.wrap(claim.statement, width, initial_indent=start, subsequent_indent=indent)
        for name in claim.moved():
            lines += textwrap.wrap(
                f"{name}: {_figure(claim, name, claim.figures[name])}",
                width,
                initial_indent=indent,
                subsequent_indent=indent,
            )
    return lines


def _figure(claim: Claim, name: str, figure: float) -> str:
    expected = claim.expected[name]
    moved = "" if expected.admits(figure) else "MOVED, "
    return f"{show(figure, expected)} ({moved}expected {expected.text})"


def _indented(text: str, width: int, more: str = "") -> list[str]:
    return textwrap.wrap(text, width, initial_indent="  ", subsequent_indent="  " + more)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
