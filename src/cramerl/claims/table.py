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
    lines: list[str] = []
    for title, part in zip(("the paper says", "beyond the paper"), split(claims), strict=True):
        if part:
            lines += [*_row("", "", [title], ["recomputed"] if figures else [], text, figures), "─" * width]
            lines += [line for claim in part for line in _claim_rows(claim, text, figures)]
            lines.append("─" * width)
    return "\n".join([*lines, *textwrap.wrap(summary(claims), width)])


def split(claims: Sequence[Claim]) -> tuple[list[Claim], list[Claim]]:
    """The claims of the paper, and those beyond it."""
    return [claim for claim in claims if claim.of_paper], [claim for claim in claims if not claim.of_paper]


def summary(claims: Sequence[Claim]) -> str:
    """The verdicts counted, those of the paper apart from those beyond it, and whether all figures stand."""
    parts = zip(("claims of the paper", "beyond the paper"), split(claims), strict=True)
    counted = [f"{len(part)} {name}: {_verdicts(part)}." for name, part in parts if part]
    moved = [claim.id for claim in claims if not claim.passed]
    state = f"FIGURES HAVE MOVED in {', '.join(moved)}" if moved else "All figures reproduced"
    return " ".join([*counted, f"{state}."])


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
            {name: getattr(claim, name) for name in ("id", "of_paper", "statement", "verdict", "correction", "passed")}
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
    return ", ".join(f"{MARKS[v]} {found[v]} {v.replace('holds', 'hold')}" for v in VERDICTS)


def _claim_rows(claim: Claim, text: int, figures: int) -> list[str]:
    """The lines of one claim, with its figures in a second column of that width or, if it is 0, below the statement."""
    found: list[str] = []
    for name, figure in claim.figures.items():
        expected = claim.expected[name]
        moved = "" if expected.admits(figure) else f"  MOVED: expected {expected.text}"
        # Figures that have no column are indented by two, below a statement that fills the line.
        indent = "" if figures else "  "
        line = f"{name}: {show(figure, expected)}{moved}"
        found += textwrap.wrap(line, figures or text, initial_indent=indent, subsequent_indent=indent + "  ")
    return _row(claim.id, MARKS[claim.verdict], textwrap.wrap(claim.statement, text), found, text, figures)


def _row(id: str, mark: str, statement: list[str], found: list[str], text: int, figures: int) -> list[str]:
    start, blank = f"{id:<{_ID}}{mark:<{_MARK}}", " " * (_ID + _MARK)
    columns = (statement, found) if figures else ([*statement, *found],)
    rows = enumerate(zip_longest(*columns, fillvalue=""))
    return [
        f"{blank if i else start}{(' ' * _GAP).join(f'{cell:<{text}}' for cell in row)}".rstrip() for i, row in rows
    ]


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
