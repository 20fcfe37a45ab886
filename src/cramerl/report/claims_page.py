"""The paper's claims as one self-contained HTML page, and as a page of Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from cramerl._pages import render
from cramerl.claims.claim import CORRECTED, FALSE, HOLDS, VERDICTS, Claim, Expected, Verdict
from cramerl.claims.table import MARKS, count, show, summary
from cramerl.report.tables import Table, make_table

_STYLES: dict[Verdict, str] = {HOLDS: "holds", CORRECTED: "corrected", FALSE: "false"}
_COUNTED: dict[Verdict, str] = {HOLDS: "hold", CORRECTED: "hold with a correction", FALSE: "are false"}


class VerdictCount(NamedTuple):
    """How a verdict is shown, and how many claims have it."""

    mark: str
    style: str
    words: str
    number: int


@dataclass(frozen=True)
class CheckedClaims:
    """Claims from `cramerl.claims.verify`, with everything that templates show of them."""

    claims: Sequence[Claim]

    title = "The paper’s claims, recomputed"
    show = staticmethod(show)

    @property
    def verdicts(self) -> list[VerdictCount]:
        """Each verdict with the number of its claims."""
        found = count(self.claims)
        return [VerdictCount(MARKS[one], _STYLES[one], _COUNTED[one], found[one]) for one in VERDICTS]

    def verdict_of(self, claim: Claim) -> VerdictCount:
        """The verdict of a claim."""
        return self.verdicts[VERDICTS.index(claim.verdict)]

    @property
    def moved(self) -> list[str]:
        """The claims with a figure that is not as expected."""
        return [claim.id for claim in self.claims if not claim.passed]

    @property
    def state(self) -> str:
        """Whether all figures are as expected."""
        if self.moved:
            return f"Figures have moved in {', '.join(self.moved)}."
        return f"All {sum(len(claim.figures) for claim in self.claims)} figures are reproduced."

    @staticmethod
    def show_settled(figure: float, expected: Expected) -> str:
        """A figure with rounding errors shown as 0, so that the text is the same on every processor."""
        return "0" if abs(figure) < 1e-6 else show(figure, expected)

    @property
    def table(self) -> Table:
        """All claims in one table."""
        rows = []
        for claim in self.claims:
            figures = [f"{name}: {show(figure, claim.expected[name])}" for name, figure in claim.figures.items()]
            rows.append([claim.id, claim.statement, claim.verdict, claim.correction, "; ".join(figures)])
        columns = ["claim", "the paper says", "verdict", "what is true", "recomputed"]
        return make_table("claims", self.title, columns, rows, summary(self.claims))


def to_html(claims: Sequence[Claim]) -> str:
    """A page that needs no network: the counts on top, and each claim with its correction and figures to be opened.

    It can be read on a phone, in light and in dark mode. Claims whose figures have moved are open from the start.
    """
    checked = CheckedClaims(claims)
    return render("cramerl.report", "claims.html", generator="cramerl verify", title=checked.title, checked=checked)


def to_markdown(claims: Sequence[Claim]) -> str:
    """A page of Markdown: a table of the verdicts, then each claim with its correction and figures.

    Rounding errors are shown as 0, so that the page is the same on every processor.
    """
    return render("cramerl.report", "claims.md", checked=CheckedClaims(claims), plain=_plain)


def _plain(text: str) -> str:
    """Text with every character escaped that Markdown would interpret."""
    return "".join(f"\\{letter}" if letter in "\\`*_|<>[]$#~^{}" else letter for letter in text)
