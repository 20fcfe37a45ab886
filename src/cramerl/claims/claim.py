"""One statement, of the paper or beyond it: what it says, what is recomputed, and what figures are expected."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, SupportsFloat, get_args

Verdict = Literal["holds", "holds with a correction", "false"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
Severity = Literal["misprint", "constant", "theorem"]
SEVERITIES: dict[Severity, str] = {
    "theorem": "a statement, or a step of a proof, needs another assumption or another argument",
    "constant": "a constant or a condition has to be another one; the argument then stands",
    "misprint": "a sign, an exponent, a subscript or a word; what is meant stands",
}
"""What has to change where a claim does not hold as printed, the most important first."""


@dataclass(frozen=True)
class Expected:
    """What a figure must be."""

    low: float  # smallest value allowed
    high: float  # largest value allowed
    text: str  # the same in words
    style: str  # format of the figure: the digits worth showing

    def admits(self, figure: float) -> bool:
        """Whether the figure is allowed; NaN never is."""
        return self.low <= figure <= self.high


def printed(text: str) -> Expected:
    """A figure known to the digits given: half a unit of the last one is allowed."""
    value, decimals = float(text), len(text.partition(".")[2])
    slack = 0.5 * 10.0**-decimals
    return Expected(value - slack, value + slack, text, f".{decimals}f")


def exactly(value: float, slack: float = 1e-9) -> Expected:
    """A closed form; the slack is for rounding only."""
    return Expected(value - slack, value + slack, f"{value:.10g}", ".10g" if slack <= 1e-9 else ".6g")


def at_most(value: float) -> Expected:
    """An upper bound."""
    return Expected(-math.inf, value, f"at most {value:.4g}", ".4g")


def at_least(value: float) -> Expected:
    """A lower bound."""
    return Expected(value, math.inf, f"at least {value:.4g}", ".4g")


# A ratio that theory keeps below one, with room for rounding.
WITHIN_ONE = Expected(-math.inf, 1 + 1e-9, "at most 1", ".4g")
ROUNDING = at_most(1e-9)

Figures = dict[str, tuple[SupportsFloat, Expected]]


@dataclass(frozen=True)
class Claim:
    """A statement, recomputed.

    Attributes:
        id: number in the table of verdicts, for instance "9f"; "B1" and so on beyond the paper.
        statement: what the paper says, in one line; or what this library adds to it.
        figures: the recomputed numbers, by name.
        expected: what each of them must be, under the same names.
        verdict: what the figures decide about the statement.
        correction: what is true instead (or besides), with the smallest counterexample where it is false.
        passed: whether every figure is as expected. This means that the verdict stands, not that the paper is right.
        of_paper: whether the paper makes the statement; otherwise it is this library's own.
        severity: what has to change, one of `SEVERITIES`; None if it holds.
    """

    id: str
    statement: str
    figures: dict[str, float]
    expected: dict[str, Expected]
    verdict: Verdict
    correction: str
    passed: bool
    of_paper: bool = True
    severity: Severity | None = None

    def moved(self) -> list[str]:
        """Names of the figures that are not as expected."""
        return [name for name, figure in self.figures.items() if not self.expected[name].admits(figure)]


@dataclass(frozen=True)
class Statement:
    """A statement that can be checked: its words, its verdict, and the function that measures it."""

    id: str
    statement: str
    verdict: Verdict
    correction: str
    measure: Callable[[], Figures]
    of_paper: bool = True
    severity: Severity | None = None

    def __post_init__(self) -> None:
        if (self.verdict == "holds") != (self.severity is None):
            raise ValueError(f"claim {self.id} must have a severity if and only if it does not hold")

    def check(self) -> Claim:
        """Recompute the figures and compare them with what is expected."""
        found = self.measure()
        figures = {name: float(figure) for name, (figure, _) in found.items()}
        expected = {name: wanted for name, (_, wanted) in found.items()}
        passed = bool(found) and all(expected[name].admits(figure) for name, figure in figures.items())
        words = (self.verdict, self.correction)
        return Claim(self.id, self.statement, figures, expected, *words, passed, self.of_paper, self.severity)


Measure = Callable[[], Figures]


def states(
    id: str, statement: str, verdict: Verdict, correction: str, severity: Severity | None = None
) -> Callable[[Measure], Statement]:
    """Decorator: the function measures this statement of the paper."""
    return lambda measure: Statement(id, statement, verdict, correction, measure, severity=severity)


def beyond(id: str, statement: str, verdict: Verdict, correction: str) -> Callable[[Measure], Statement]:
    """Decorator: the function measures this statement, which the paper does not make."""
    return lambda measure: Statement(id, statement, verdict, correction, measure, of_paper=False)
