"""Every numbered statement of the paper, and some beyond it, recomputed: the numbers behind ``cramerl verify``.

Figures that are closed forms or named counterexamples have to match to their digits. Where a statement is decided by
random trials, the trials have fixed seeds and the inequality that decides it is checked.
"""

from __future__ import annotations

from cramerl.claims import distance, learning, logistic, process, projection, targets, theorems
from cramerl.claims.claim import Claim, Expected, Verdict
from cramerl.claims.table import format_table, to_json

__all__ = ["Claim", "Expected", "Verdict", "format_table", "to_json", "verify"]


def verify() -> list[Claim]:
    """Recompute every claim, those of the paper first, in the order of the table of verdicts; takes some seconds.

    Returns:
        The claims. ``all(claim.passed for claim in verify())`` means that every figure is as expected: one that
        is not is a bug here, whatever the verdict about the paper.
    """
    sections = (distance, projection, process, theorems, learning, targets, logistic)
    return [statement.check() for section in sections for statement in section.STATEMENTS]
