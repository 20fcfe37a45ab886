"""Lanes of one program: how they are called, their lines of the log, and which of them are lost."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

DIVERGED = "diverged"
"""Tag of a lane's last line, where its loss or its weights are not finite any more."""
MUCH_CLIPPED = 0.25
"""Share of the mass put on the support's ends that is worth a word: returns beyond them cannot be told apart."""
_MOST_NAMED = 20


def lane_words(lane: Mapping[str, Any]) -> str:
    """What sets a lane apart.

    Example:
        >>> lane_words({"learning_rate": 1e-3, "seed": 4})
        'learning_rate 0.001, seed 4'
    """
    return ", ".join(f"{name} {value}" for name, value in lane.items())


def named_lanes(lanes: Sequence[Mapping[str, Any]], which: Iterable[int] | None = None) -> str:
    """Lanes by number and settings, all of them or those of some numbers.

    Example:
        >>> named_lanes([{"seed": 4}, {"seed": 5}])
        '0 (seed 4), 1 (seed 5)'
    """
    numbers = list(range(len(lanes)) if which is None else which)
    words = [f"{number} ({lane_words(lanes[number])})" for number in numbers[:_MOST_NAMED]]
    more = f" and {len(numbers) - _MOST_NAMED} more" if len(numbers) > _MOST_NAMED else ""
    return ", ".join(words) + more


def of_lane(row: Mapping[str, Any], lane: Mapping[str, Any]) -> bool:
    """Whether a line of the log is a lane's; lines of evaluation say no more than the seed."""
    return all(row.get(name, value) == value for name, value in lane.items())


def diverged_lanes(rows: Iterable[Mapping[str, Any]], lanes: Sequence[Mapping[str, Any]]) -> list[int]:
    """The lanes that are lost according to the lines of a log."""
    gone = {tuple(row.get(name) for name in lanes[0]) for row in rows if row.get(DIVERGED) is True}
    return [number for number, lane in enumerate(lanes) if tuple(lane.values()) in gone]


def not_finite(totals: Sequence[Any], weights: Collection[np.ndarray], updates: int) -> dict[int, tuple[int, str]]:
    """Lanes whose loss or weights are not finite: at which update, and which of the two.

    Args:
        totals: sums since the last line, one for each lane.
        weights: of all lanes, which are the first axis where there are several.
        updates: that were made so far.
    """
    many, bad = len(totals) > 1, {}
    for lane, total in enumerate(totals):
        if total.info.first_bad >= 0:
            bad[lane] = int(total.info.first_bad), "loss is"
        elif not all(np.isfinite(array[lane] if many else array).all() for array in weights):
            bad[lane] = updates - 1, "weights are"
    return bad


def log_line(heading: dict[str, Any], totals: Any, exploration: Any, updates: int) -> dict[str, Any]:
    """One line of the log.

    Args:
        heading: step, frames, iteration and what sets the lane apart.
        totals: sums since the last line.
        exploration: share of random actions now.
        updates: that were made so far.
    """
    row = heading | {"charts/episodes": int(totals.episodes), "charts/epsilon": _short(exploration)}
    if totals.episodes:
        row["charts/episodic_return"] = _short(totals.returns / totals.episodes)
        row["charts/episodic_length"] = _short(totals.lengths / totals.episodes)
    if totals.blocks:
        tags = {"losses/loss": "loss", "losses/q_values": "q_values"}
        tags |= {f"dist/{name}": name for name in ("mass", "negative_mass", "clipped_mass")}
        values = {tag: _short(getattr(totals.info, name) / totals.blocks) for tag, name in tags.items()}
        row |= {tag: value for tag, value in values.items() if math.isfinite(value)}  # dqn and qr have no masses
        row["charts/updates"] = updates
    return row


def diverged_words(lanes: Sequence[Mapping[str, Any]], now: Collection[int], lost: Collection[int], where: str) -> str:
    """What to say of lanes that are lost now, ``lost`` being all of them so far."""
    which = f"{'lane' if len(now) == 1 else 'lanes'} {named_lanes(lanes, now)}"
    return f"lost {which}: {where}; {len(lanes) - len(lost)} of {len(lanes)} lanes go on"


def clipped_words(rows: Iterable[Mapping[str, Any]], v_min: float, v_max: float) -> str | None:
    """What to say of lines of the log by which a support does not hold the returns; None where it does."""
    share = max((row.get("dist/clipped_mass", 0.0) for row in rows), default=0.0)
    if share <= MUCH_CLIPPED:
        return None
    return (
        f"{share:.0%} of the mass to learn from lies beyond the support [{v_min:g}, {v_max:g}] and is put on its ends, "
        "where returns cannot be told apart: v_min and v_max may be too close together"
    )


def _short(value: Any) -> float:
    """In the digits single precision has, which keeps logs small."""
    return float(str(np.float32(value)))
