"""The values shown where a reader points at a figure: their words, and where they were drawn."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from cramerl.evidence.statistics import Interval
from cramerl.reports.tables import interval_text


class Trace(NamedTuple):
    """One line of a panel, as sequences of equal length.

    Attributes:
        label: what the line shows.
        colour: its colour.
        words: for each point, its position along the panel in words; points with the same words are shown together.
        x: for each point, that position as a number on the axis.
        middle: values; NaN where there is none.
        low: lower ends of their intervals; NaN where there is none.
        high: upper ends.
    """

    label: str
    colour: str
    words: Sequence[str]
    x: Any
    middle: Any
    low: Any
    high: Any


class Panel(NamedTuple):
    """The axes of one panel, its name and its lines; ``along`` is "y" if it is read from the top down."""

    title: str
    axes: Any
    traces: list[Trace]
    along: Literal["x", "y"] = "x"


def panel_values(panels: Sequence[Panel]) -> list[dict[str, Any]]:
    """Panels as plain values. Call this after the figure has been drawn: before, its layout is not known.

    Returns:
        For each panel with values: its title; its box (left, top, width, height, in percent of the figure); the axis
        along which it is read; its stops in order (words and position); and for each line a (left, top, words) per
        stop, None where it has no value. Positions inside a panel are in percent of the panel.
    """

    def percent(fraction: float) -> float:
        # Precise enough for a screen, and equal on machines that differ in the last digits.
        return round(float(100 * fraction), 2)

    found = []
    for title, axes, traces, along in (panel for panel in panels if any(trace.words for trace in panel.traces)):
        lines, positions = [], dict[str, list[float]]()
        for trace in traces:
            lines.append(dict[str, tuple[float, float, str]]())
            for words, x, *values in zip(trace.words, trace.x, trace.middle, trace.low, trace.high, strict=True):
                interval = Interval(*map(float, values))
                if math.isfinite(interval.estimate):
                    place = (float(x), interval.estimate) if along == "x" else (interval.estimate, float(x))
                    across, up = axes.transAxes.inverted().transform(axes.transData.transform(place))
                    at = (percent(across), percent(1 - up))
                    lines[-1][words] = (*at, interval_text(interval))
                    positions.setdefault(words, []).append(at[0] if along == "x" else at[1])
        stops = sorted((round(sum(at) / len(at), 2), words) for words, at in positions.items())
        box = axes.get_position()
        found.append(
            {
                "title": title,
                "box": [percent(part) for part in (box.x0, 1 - box.y1, box.width, box.height)],
                "along": along,
                "stops": [[words, at] for at, words in stops],
                "lines": [
                    {"label": trace.label, "colour": trace.colour, "points": [points.get(words) for _, words in stops]}
                    for trace, points in zip(traces, lines, strict=True)
                ],
            }
        )
    return found
