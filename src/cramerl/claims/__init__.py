"""Every numbered statement of the paper, and some beyond it, recomputed: the numbers behind ``cramerl verify``.

Figures that are closed forms or named counterexamples have to match to their digits. Where a statement is decided by
random trials, the trials have fixed seeds and the inequality that decides it is checked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cramerl.claims import distance, learning, logistic, process, projection, targets, theorems
from cramerl.claims.claim import Claim, Expected, Severity, Verdict
from cramerl.claims.table import format_claim, format_table, to_json

__all__ = ["Claim", "Expected", "Severity", "Verdict", "format_claim", "format_table", "to_json", "verify"]

_SECTIONS = (distance, projection, process, theorems, learning, targets, logistic)


def verify(ids: Sequence[str] = (), *, on_progress: Callable[[str], None] = lambda message: None) -> list[Claim]:
    """Recompute claims, those of the paper first, in the order of the table of verdicts; all of them take some seconds.

    Args:
        ids: the claims to recompute, such as "9f", in capital or small letters; by default, all.
        on_progress: called with a message before each claim.

    Returns:
        The claims. ``all(claim.passed for claim in verify())`` means that every figure is as expected: one that
        is not is a bug here, whatever the verdict about the paper.
    """
    statements = {one.id.lower(): one for section in _SECTIONS for one in section.STATEMENTS}
    for id in ids:
        if id.lower() not in statements:
            known = ", ".join(one.id for one in statements.values())
            raise ValueError(f"a claim must be one of {known}; got {id!r}")
    asked = {id.lower() for id in ids} or statements.keys()
    chosen = [statement for id, statement in statements.items() if id in asked]
    found = []
    for i, statement in enumerate(chosen, start=1):
        on_progress(f"recomputing claim {statement.id} ({i} of {len(chosen)}) ...")
        found.append(statement.check())
    return found
