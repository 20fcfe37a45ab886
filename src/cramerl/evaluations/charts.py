"""Charts of a page: shapes in percent of an area that is stretched, and the words at its sides, which are not."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from cramerl._arrays import Floats
from cramerl.evaluations.numerals import NOTHING, interval_of
from cramerl.linear.logs.estimates import Estimate

# Letters for which there is room below an axis on a phone.
_MOST_LETTERS = 26


class Shape(NamedTuple):
    """A path of an SVG whose area is 100 by 100, and the class that says how it looks."""

    kind: str
    path: str


class Tick(NamedTuple):
    """A number at an axis, in percent of its length from the left or from the bottom."""

    at: float
    words: str


class Axis(NamedTuple):
    """The numbers that an axis shows, from ``low`` to ``high``."""

    low: float
    high: float

    @classmethod
    def around(cls, values: Iterable[float], room: float = 0.04, least: float = 0.0) -> Axis:
        """One that shows all finite values, with some room at its ends, and is not narrower than ``least``."""
        finite = [value for value in values if math.isfinite(value)]
        low, high = min(finite, default=0.0), max(finite, default=1.0)
        missing = max(0.0, least - (high - low))
        low, high = low - 0.5 * missing, high + 0.5 * missing
        width = high - low
        margin = room * width if width > max(NOTHING, 1e-9 * max(abs(low), abs(high))) else 0.1 * abs(low) or 1.0
        return cls(low - margin, high + margin)

    def at(self, value: Any) -> Any:
        """Percent of the length, from the start; what lies beyond the axis is at its ends."""
        return np.clip(100 * (np.asarray(value, np.float64) - self.low) / (self.high - self.low), 0.0, 100.0)

    def ticks(self) -> list[Tick]:
        """Round numbers, as few as have room."""
        for most in (6, 4, 3):
            step = _round_step((self.high - self.low) / most)
            numbers: Floats = np.arange(math.ceil(self.low / step), math.floor(self.high / step) + 1) * np.float64(step)
            words = _short(numbers, step)
            if len("".join(words)) <= _MOST_LETTERS:
                break
        return [Tick(round(float(self.at(number)), 2), text) for number, text in zip(numbers, words, strict=True)]


class Line(NamedTuple):
    """What is shown where a reader points: a label, a colour, and for each stop a height in percent and words."""

    label: str
    colour: str
    heights: Floats
    words: Sequence[str]


class Chart(NamedTuple):
    """A chart: shapes, numbers at its axes, and what it says where a reader points."""

    name: str
    title: str
    shapes: list[Shape]
    across: list[Tick]
    up: list[Tick]
    across_title: str
    up_title: str
    values: list[dict[str, Any]]


class Dot(NamedTuple):
    """A row of a dot plot.

    Attributes:
        name: what it is about.
        value: the number, to read.
        interval: its interval, to read; or nothing.
        at: its place in percent; None where there is none.
        low: the start of its interval in percent; None without one.
        high: its end.
        beyond: whether the interval goes on beyond the start, and beyond the end, of the axis.
        note: more about it.
        main: whether it is the row the others are compared with.
        badge: a verdict; or none.
    """

    name: str
    value: str
    interval: str
    at: float | None
    low: float | None
    high: float | None
    beyond: tuple[bool, bool] = (False, False)
    note: str = ""
    main: bool = False
    badge: str = ""


class DotPlot(NamedTuple):
    """Numbers in rows with one axis, and a number that is marked in all of them (its place and words, or None)."""

    title: str
    dots: list[Dot]
    across: list[Tick]
    reference: Tick | None = None


class Row(NamedTuple):
    """What a row of a dot plot is made from."""

    name: str
    estimate: Estimate
    value: str
    note: str = ""
    main: bool = False
    badge: str = ""


def dot_plot(title: str, rows: Sequence[Row], least: float, reference: tuple[float, str] | None = None) -> DotPlot:
    """A dot plot of rows. All dots are on the axis; an interval far wider than the others may go on beyond it.

    Args:
        title: what the rows are about.
        rows: their numbers.
        least: differences much smaller than this are not magnified.
        reference: a number that is marked in all rows, and its words.
    """
    dots = [row.estimate.value for row in rows] + ([] if reference is None else [reference[0]])
    own = [end for row in rows if row.main for end in (row.estimate.low, row.estimate.high)]
    near, all_ends = Axis.around(dots + own, 0.6, least), [end for row in rows for end in row.estimate[1:3]]
    ends = [min(max(end, near.low), near.high) for end in all_ends if math.isfinite(end)]
    axis = Axis.around(dots + own + ends, least=least)
    mark = None if reference is None else Tick(_place(axis, reference[0]) or 0.0, reference[1])
    return DotPlot(title, [_dot(axis, row) for row in rows], axis.ticks(), mark)


def steps(axis: Axis, up: Axis, places: Floats, heights: Floats) -> str:
    """A path along heights (K,), each from its place (K,) to the next one's, and the last to the end of the axis."""
    x, y = axis.at(places), 100 - up.at(heights)
    parts = [f"M{x[0]:.2f} {y[0]:.2f}"]
    parts += [f"H{a:.2f}V{b:.2f}" for a, b in zip(x[1:], y[1:], strict=True)]
    return "".join([*parts, "H100"])


def band(axis: Axis, up: Axis, places: Floats, low: Floats, high: Floats) -> str:
    """The closed path between two lines of `steps`."""
    over, x, y = steps(axis, up, places, high), axis.at(places), 100 - up.at(low)
    back = [f"V{b:.2f}H{a:.2f}" for a, b in zip(x[::-1], y[::-1], strict=True)]
    return "".join([over, *back, "Z"])


def upright(axis: Axis, value: float) -> str:
    """A line from the bottom to the top."""
    return f"M{axis.at(value):.2f} 0V100"


def box(axis: Axis, up: Axis, left: float, right: float, height: float) -> str:
    """A bar from zero."""
    a, b = axis.at([left, right])
    return f"M{a:.2f} {100 - up.at(0.0):.2f}V{100 - up.at(height):.2f}H{b:.2f}V{100 - up.at(0.0):.2f}Z"


def pointed(
    title: str, axis: Axis, places: Floats, stops: Sequence[str], lines: Sequence[Line]
) -> list[dict[str, Any]]:
    """What the page's script shows where a reader points, at these stops in order."""
    x = [round(float(at), 2) for at in axis.at(places)]
    found = []
    for line in lines:
        heights = [round(100 - float(height), 2) for height in line.heights]
        points = [[*point] for point in zip(x, heights, line.words, strict=True)]
        found.append({"label": line.label, "colour": line.colour, "points": points})
    named = [[words, at] for words, at in zip(stops, x, strict=True)]
    return [{"title": title, "box": [0, 0, 100, 100], "along": "x", "stops": named, "lines": found}]


def _dot(axis: Axis, row: Row) -> Dot:
    value, low, high, _ = row.estimate
    beyond = low < axis.low, high > axis.high
    at, start, end = (_place(axis, number) for number in (value, low, high))
    return Dot(row.name, row.value, interval_of(row.estimate), at, start, end, beyond, row.note, row.main, row.badge)


def _place(axis: Axis, value: float) -> float | None:
    return round(float(axis.at(value)), 2) if math.isfinite(value) else None


def _round_step(least: float) -> float:
    power = 10.0 ** math.floor(math.log10(least))
    return next(power * part for part in (1, 2, 2.5, 5, 10) if power * part >= least * (1 - 1e-9))


def _short(numbers: Floats, step: float) -> list[str]:
    """Numbers at an axis: thousands and millions as such."""
    largest = float(np.abs(numbers).max(initial=0.0))
    units = [(size, name) for size, name in ((1e6, "M"), (1e3, "k")) if largest >= 10 * size and step >= 0.1 * size]
    unit, name = units[0] if units else (1.0, "")
    step /= unit
    decimals = max(0, -math.floor(math.log10(step) + 1e-9) + (not _is_whole(step)))
    texts = [f"{number / unit:,.{decimals}f}" for number in numbers + 0.0]
    return [f"{text}{name}" if text != "0" else text for text in texts]


def _is_whole(step: float) -> bool:
    """Whether a round step has one significant digit."""
    part = step / 10.0 ** math.floor(math.log10(step) + 1e-9)
    return abs(part - round(part)) < 1e-6
