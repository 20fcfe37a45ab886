"""What a reader of a figure is shown where they point: the values that were drawn, in words, and where they are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from cramerl.evidence.statistics import Interval
from cramerl.report.tables import interval


class Trace(NamedTuple):
    """One line of a panel, as arrays of equal length.

    Attributes:
        label: whose line it is.
        colour: it is drawn in.
        words: for each point, where it stands along the panel; points with the same words are shown together.
        x: for each point, where that is on the axis along which the panel is read.
        middle: its values; NaN where there is none.
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
    """The axes of one panel, its name and its lines; ``along`` is "y" where it is read from the top down."""

    title: str
    axes: Any
    traces: list[Trace]
    along: Literal["x", "y"] = "x"


def panel_values(panels: Sequence[Panel]) -> list[dict[str, Any]]:
    """Panels as plain values, once their figure has been drawn: before, its layout is not known.

    Returns:
        For each panel its name, its place (left, top, width, height, in percent of the figure), along which axis it is
        read, its stops in order (words and place) and for each line a (left, top, words) per stop, None where it has no
        value. Places inside a panel are in percent of the panel.
    """
    return [_panel(panel) for panel in panels if any(trace.words for trace in panel.traces)]


def _panel(panel: Panel) -> dict[str, Any]:
    box = panel.axes.get_position()
    found = [_points(panel, trace) for trace in panel.traces]
    places: dict[str, list[float]] = {}
    for points in found:
        for words, point in points.items():
            places.setdefault(words, []).append(point[0] if panel.along == "x" else point[1])
    stops = sorted((_round(sum(at) / len(at)), words) for words, at in places.items())
    return {
        "title": panel.title,
        "box": [_round(100 * part) for part in (box.x0, 1 - box.y1, box.width, box.height)],
        "along": panel.along,
        "stops": [[words, at] for at, words in stops],
        "lines": [
            {"label": trace.label, "colour": trace.colour, "points": [points.get(words) for _, words in stops]}
            for trace, points in zip(panel.traces, found, strict=True)
        ],
    }


def _points(panel: Panel, trace: Trace) -> dict[str, tuple[float, float, str]]:
    axes, points = panel.axes, {}
    for words, x, *values in zip(trace.words, trace.x, trace.middle, trace.low, trace.high, strict=True):
        found = Interval(*map(float, values))
        if math.isfinite(found.estimate):
            place = (float(x), found.estimate) if panel.along == "x" else (found.estimate, float(x))
            across, up = axes.transAxes.inverted().transform(axes.transData.transform(place))
            points[words] = (_round(100 * across), _round(100 * (1 - up)), interval(found))
    return points


def _round(percent: float) -> float:
    """Enough for a place on a screen, and the same on machines that differ in the last digits."""
    return round(float(percent), 2)
