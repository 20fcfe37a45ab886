"""The lines of a run's log."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

MUCH_CLIPPED = 0.25
"""Fraction of clipped mass above which a warning is due: clipped returns cannot be told from one another."""


def log_line(
    heading: dict[str, Any],
    totals: Any,
    exploration: Any,
    updates: int,
    support: tuple[float, float] | None = None,
) -> dict[str, Any]:
    """One line of the log.

    Args:
        heading: step, frames, iteration and what tells the run from others of its group.
        totals: sums since the last line.
        exploration: the current fraction of random actions.
        updates: made so far.
        support: smallest and largest return, of a support that finds itself.
    """
    row = heading | {"charts/episodes": int(totals.episodes), "charts/epsilon": _short(exploration)}
    if totals.episodes:
        row["charts/episodic_return"] = _short(totals.returns / totals.episodes)
        row["charts/episodic_length"] = _short(totals.lengths / totals.episodes)
    if totals.blocks:
        tags = {"losses/loss": "loss", "losses/q_values": "q_values"}
        tags |= {"dist/mass": "mass", "dist/negative_mass": "negative_mass"}
        values = {tag: _short(getattr(totals.info, name) / totals.blocks) for tag, name in tags.items()}
        values["dist/clipped_mass"] = _short((totals.info.clipped_below + totals.info.clipped_above) / totals.blocks)
        row |= {tag: value for tag, value in values.items() if math.isfinite(value)}  # dqn and qr have no masses
        row["charts/updates"] = updates
        if support is not None:
            row |= {"dist/v_min": _short(support[0]), "dist/v_max": _short(support[1])}
    return row


def _short(value: Any) -> float:
    """The value with the digits of single precision, which keeps logs small."""
    return float(str(np.float32(value)))
