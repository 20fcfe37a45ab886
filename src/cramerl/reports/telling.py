"""Which tables of a study say something with its seeds and games, and a sentence on those that do not."""

from __future__ import annotations

import math
from collections.abc import Sequence

from cramerl.evidence.summary import Summary
from cramerl.reports.headline import count_text
from cramerl.reports.tables import Table


def telling_tables(summary: Summary, tables: Sequence[Table]) -> tuple[list[Table], str]:
    """The tables with the rows that say something, and what was hidden and why; empty if nothing was.

    Args:
        summary: of the study.
        tables: all of its tables, see `make_tables`.
    """
    shown, hidden = [], []
    for table in tables:
        if table.name == "aggregates" and summary.aggregates is not None and len(summary.aggregates.games) == 1:
            hidden.append("the aggregates, which repeat the scores on a single game")
        elif table.name == "comparisons":
            kept = _with_intervals(summary, table)
            left = len(table.rows) - len(kept.rows)
            if left:
                many = f"{count_text(left)} comparisons, which have" if left > 1 else "a comparison, which has"
                hidden.append(f"{many} no interval because of a single seed")
            shown += [kept] if kept.rows else []
        else:
            shown.append(table)
    return shown, f"Hidden because they say nothing here: {'; '.join(hidden)}. tables.md has them." if hidden else ""


def _with_intervals(summary: Summary, table: Table) -> Table:
    pairs = zip(summary.comparisons, table.rows, strict=True)
    return table._replace(rows=[row for one, row in pairs if math.isfinite(one.difference.low)])
