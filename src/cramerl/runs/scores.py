"""The score of a run: the mean return of the episodes that ended in the last fifth of its steps."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

TAIL = 0.2
"""The fraction of a run's steps, at its end, that is scored."""
_ROUNDING = 0.01  # of a run's steps by which its lines may miss the beginning of the tail
MUCH_CLIPPED = 0.25
"""Fraction of clipped mass above which a warning is due: clipped returns cannot be told from one another."""
MUCH_CUT = 0.05
"""Fraction of episodes that resets cut above which scores may be biased: long episodes are cut more often than short
ones, so those that are complete are too short on average."""


class TailScore(NamedTuple):
    """Mean return of the episodes in the tail of a run, NaN if there are none, and their number."""

    mean: float
    episodes: int


def in_tail(steps: ArrayLike, end: int, tail: float = TAIL) -> NDArray[np.bool_]:
    """Which of the steps lie in the last part of a run that ends at step ``end``."""
    if not 0 < tail <= 1:
        raise ValueError(f"tail must be in (0, 1], got {tail!r}")
    steps = np.asarray(steps)
    # Without slack, rounding would count step 800 of 1000 as a part of the last fifth, or not, as it falls.
    return (steps > end - tail * end + 1e-9 * end) & (steps <= end)


def tail_score(rows: Iterable[Mapping[str, Any]], tail: float = TAIL) -> TailScore:
    """Score the rows of a run's log.

    Example:
        >>> rows = [{"step": 50 * i, "charts/episodes": 2, "charts/episodic_return": i} for i in range(1, 11)]
        >>> tail_score(rows)
        TailScore(mean=9.5, episodes=4)
    """
    rows = list(rows)
    end = max((row["step"] for row in rows), default=0)
    ended = [row for row in rows if row.get("charts/episodes") and in_tail(row["step"], end, tail)]
    episodes = sum(row["charts/episodes"] for row in ended)
    if not episodes:
        return TailScore(math.nan, 0)
    return TailScore(sum(row["charts/episodes"] * row["charts/episodic_return"] for row in ended) / episodes, episodes)


def tail_in_words(rows: Iterable[Mapping[str, Any]]) -> str:
    """The steps that `tail_score` counts: a line of the log stands for all steps since the one before.

    Example:
        >>> tail_in_words([{"step": step, "charts/episodes": 2} for step in (500, 1000)])
        'the steps after 500'
    """
    steps = [row["step"] for row in rows if "charts/episodes" in row]
    end = max(steps, default=0)
    start = max((step for step in steps if not in_tail(step, end)), default=0)
    if start >= (1 - TAIL - _ROUNDING) * end:
        return "the last fifth of the steps"
    return f"the steps after {start:,}" if start else "all steps"
