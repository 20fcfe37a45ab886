"""The values shown where a reader points at a figure: their words, and where they were drawn."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from cramerl.evidence.statistics import Interval
from cramerl.report.tables import interval_text


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
    found = []
    for panel in (panel for panel in panels if any(trace.words for trace in panel.traces)):
        lines = [_points(panel, trace) for trace in panel.traces]
        positions: dict[str, list[float]] = {}
        for points in lines:
            for words, (across, down, _) in points.items():
                positions.setdefault(words, []).append(across if panel.along == "x" else down)
        stops = sorted((_round(sum(at) / len(at)), words) for words, at in positions.items())
        box = panel.axes.get_position()
        found.append(
            {
                "title": panel.title,
                "box": [_round(100 * part) for part in (box.x0, 1 - box.y1, box.width, box.height)],
                "along": panel.along,
                "stops": [[words, at] for at, words in stops],
                "lines": [
                    {"label": trace.label, "colour": trace.colour, "points": [points.get(words) for _, words in stops]}
                    for trace, points in zip(panel.traces, lines, strict=True)
                ],
            }
        )
    return found


def _points(panel: Panel, trace: Trace) -> dict[str, tuple[float, float, str]]:
    """For the words of each point: its place in the panel from the left and the top, and its value."""
    axes, points = panel.axes, {}
    for words, x, *values in zip(trace.words, trace.x, trace.middle, trace.low, trace.high, strict=True):
        found = Interval(*map(float, values))
        if math.isfinite(found.estimate):
            place = (float(x), found.estimate) if panel.along == "x" else (found.estimate, float(x))
            across, up = axes.transAxes.inverted().transform(axes.transData.transform(place))
            points[words] = (_round(100 * across), _round(100 * (1 - up)), interval_text(found))
    return points


def _round(percent: float) -> float:
    """Precise enough for a screen, and equal on machines that differ in the last digits."""
    return round(float(percent), 2)
