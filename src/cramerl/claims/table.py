"""Claims as a table for a terminal, and as plain values for a JSON file."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

from cramerl.claims.claim import VERDICTS, Claim, Expected, Verdict

MARKS: dict[Verdict, str] = {"holds": "✓", "holds with a correction": "~", "false": "✗"}
_ID, _MARK, _GAP = 4, 3, 2
# A narrower terminal has no room for two columns of text: figures go below the statement.
_TWO_COLUMNS = 72


def format_table(claims: Sequence[Claim], width: int) -> str:
    """A table of id, mark of the verdict, statement and figures, wrapped to a width in characters.

    Args:
        claims: from `verify`.
        width: of the terminal; at least 30 is used.
    """
    width = max(30, width)
    text, figures = width - _ID - _MARK, 0
    if width >= _TWO_COLUMNS:
        both = text - _GAP
        text = both * 9 // 20
        figures = both - text
    lines = _row("", "", ["the paper says"], ["recomputed"], text, figures) if figures else []
    lines.append("─" * width)
    for claim in claims:
        statement = textwrap.wrap(claim.statement, text)
        found: list[str] = []
        for name, figure in claim.figures.items():
            expected = claim.expected[name]
            moved = "" if expected.admits(figure) else f"  MOVED: expected {expected.text}"
            # Figures that have no column are indented by two, below a statement that fills the line.
            indent = "" if figures else "  "
            line = f"{name}: {show(figure, expected)}{moved}"
            found += textwrap.wrap(line, figures or text, initial_indent=indent, subsequent_indent=indent + "  ")
        lines += _row(claim.id, MARKS[claim.verdict], statement, found, text, figures)
    lines += ["─" * width, *textwrap.wrap(summary(claims), width)]
    return "\n".join(lines)


def summary(claims: Sequence[Claim]) -> str:
    """One sentence: the verdicts counted, and whether all figures stand."""
    found = count(claims)
    verdicts = ", ".join(f"{MARKS[v]} {found[v]} {v.replace('holds', 'hold')}" for v in VERDICTS)
    moved = [claim.id for claim in claims if not claim.passed]
    state = f"FIGURES HAVE MOVED in {', '.join(moved)}" if moved else "All figures reproduced"
    return f"{len(claims)} claims: {verdicts}. {state}."


def count(claims: Sequence[Claim]) -> dict[Verdict, int]:
    """How many claims have each verdict."""
    return {verdict: sum(claim.verdict == verdict for claim in claims) for verdict in VERDICTS}


def show(figure: float, expected: Expected) -> str:
    """A figure with the digits worth showing: two of what rounding leaves, ten of one that has moved."""
    if figure and abs(figure) < 1e-6:
        return f"{figure:.1e}"
    return format(figure, expected.style if expected.admits(figure) else ".10g")


def to_json(claims: Sequence[Claim]) -> dict[str, Any]:
    """Plain values: every claim, the verdicts counted, and whether all passed. Bounds that are infinite are None."""
    return {
        "made_by": "cramerl verify",
        "passed": all(claim.passed for claim in claims),
        "counts": dict(count(claims)),
        "claims": [
            {name: getattr(claim, name) for name in ("id", "statement", "verdict", "correction", "passed")}
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


def _row(id: str, mark: str, statement: list[str], found: list[str], text: int, figures: int) -> list[str]:
    start, blank = f"{id:<{_ID}}{mark:<{_MARK}}", " " * (_ID + _MARK)
    columns = (statement, found) if figures else ([*statement, *found],)
    rows = enumerate(zip_longest(*columns, fillvalue=""))
    return [
        f"{blank if i else start}{(' ' * _GAP).join(f'{cell:<{text}}' for cell in row)}".rstrip() for i, row in rows
    ]


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
