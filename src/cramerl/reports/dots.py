"""Scores as dots with their intervals, and their numbers beside them: the first thing a report shows."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from cramerl.evidence.scores import Series
from cramerl.evidence.statistics import Interval
from cramerl.evidence.summary import Summary
from cramerl.reports.figures import series_look
from cramerl.reports.tables import interval_text

MOST_PLOTS = 13  # of a study: with more games, all but the aggregate are left to the table
_ROOM = 4.0  # percent of a plot on either side of its outermost mark


class Dot(NamedTuple):
    """A score; places are in percent of the plot's width, and ``low`` and ``high`` are None without an interval."""

    label: str
    colour: str
    text: str
    at: float
    low: float | None
    high: float | None


class DotPlot(NamedTuple):
    """The scores on one game or over all of them, the best first."""

    title: str
    dots: list[Dot]

    @property
    def longest(self) -> int:
        """Letters of its longest name."""
        return max(len(dot.label) for dot in self.dots)


def dot_plots(summary: Summary) -> list[DotPlot]:
    """The plots of a study: over all games if there are several on one scale, then of each game."""
    found = summary.aggregates
    plots = []
    if found is not None and len(found.games) > 1:
        iqms = {series: its["iqm"] for series, its in found.intervals.items()}
        plots.append(_plot(summary, f"IQM over {len(found.games)} games", iqms))
    if len(summary.games) + len(plots) <= MOST_PLOTS or not plots:
        for env in summary.games:
            scores = {series: group.score for (series, game), group in summary.best.items() if game == env}
            plots.append(_plot(summary, env, scores))
    return plots


def _plot(summary: Summary, title: str, scores: Mapping[Series, Interval]) -> DotPlot:
    ends = [end for score in scores.values() for end in score if math.isfinite(end)]
    low, high = min(ends), max(ends)

    def place(value: float) -> float | None:
        share = (value - low) / (high - low) if high > low else 0.5
        return round(_ROOM + (100 - 2 * _ROOM) * share, 2) if math.isfinite(value) else None

    dots = []
    for series, score in sorted(scores.items(), key=lambda pair: -pair[1].estimate):
        its = series_look(summary, series)
        places = (place(score.estimate) or 0.0, place(score.low), place(score.high))
        dots.append(Dot(its["label"], its["colour"], interval_text(score), *places))
    return DotPlot(title, dots)
