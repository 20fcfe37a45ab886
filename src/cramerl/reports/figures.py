"""The figures of a report: learning curves, aggregates, performance profiles, settings that were tried."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from cramerl import plots
from cramerl._arrays import Floats
from cramerl.deep.envs.names import game_name
from cramerl.evidence.aggregates import Aggregates
from cramerl.evidence.curves import on_grid
from cramerl.evidence.published import SPREAD, PublishedScores, published_scores
from cramerl.evidence.scores import ScoreGroup, Series, learning_rate, normalised_penalty
from cramerl.evidence.statistics import mean_band, performance_profile
from cramerl.evidence.summary import Summary
from cramerl.reports.hover import Panel, Trace
from cramerl.reports.labels import short_labels
from cramerl.reports.tables import AGGREGATES, PENALTY_SETTINGS, interval_text, number, tail_text
from cramerl.runs.config import AGENTS

_POINTS = 60  # most points of a learning curve
_MOST_TICKS = 6
_MANY_STEPS = 100_000  # from here on, axes count millions
_COLUMNS = 3  # most panels side by side
_PANEL = 4.0, 3.1  # inches
_WITHIN = 1.1  # a published point is drawn where it belongs if it is this near to the end of the curves
_STYLES = ("-", "--", "-.", (0, (1, 1)), (0, (5, 1, 1, 1, 1, 1)))  # of variants in one colour
_BEST_OF_OTHERS = "for each value, the best of the other settings that were tried"


class Figure(NamedTuple):
    """A figure for a report.

    Attributes:
        name: short name, for files and links.
        title: heading.
        caption: text below it.
        drawing: the matplotlib figure.
        panels: the panels whose values are shown where a reader points.
        titles: tooltips of shapes in the drawing, by their names.
    """

    name: str
    title: str
    caption: str
    drawing: Any
    panels: list[Panel]
    titles: Mapping[str, str] = MappingProxyType({})


def make_figures(summary: Summary, *, panel: tuple[float, float] = _PANEL) -> list[Figure]:
    """The figures of a study that have something to show; ``panel`` is the size of a game's panel in inches."""
    if not summary.best:
        return []
    figures, found = [_curves(summary, panel)], summary.aggregates
    if found is not None and len(found.games) > 1:  # over one game they repeat its scores
        figures += [_aggregates(summary, found), _profiles(summary, found)]
    if summary.tuned("learning_rate"):
        figures.append(_rates(summary, panel))
    if summary.tuned(*PENALTY_SETTINGS):
        figures.append(_penalties(summary, panel))
    return figures


def grid_edges(summary: Summary, env: str) -> Floats:
    """Edges, in steps, of the intervals over which the curves of a game are averaged.

    They are steps at which the shortest log has rows. A row just after any other edge would count for the interval
    that begins there, though its episodes ended before.
    """
    logs = [curve.steps for group in summary.groups if group.env == env for curve in group.curves]
    rows = min((log[log <= summary.steps[env]] for log in logs), key=len)
    ends = np.arange(1, min(_POINTS, len(rows)) + 1) * len(rows) // min(_POINTS, len(rows)) - 1
    return np.array([0, *rows[ends[:-1]], summary.steps[env]], dtype=np.float64)


def series_look(summary: Summary, series: Series) -> dict[str, Any]:
    """Label, colour and line style of a series: an agent has a colour, its variants have different dashes.

    If there is only one agent, its variants take the colours of the others. Agents of other libraries take further
    colours, and those of agents that are not in the report.
    """
    colours = [plots.agent_colours(summary.everyone)[series.agent]]
    variants = [one for one in summary.series if one.agent == series.agent]
    if variants == summary.series:
        colours = list(dict.fromkeys([*colours, *plots.AGENT_COLOURS.values()]))
    style, colour = divmod(variants.index(series), len(colours))
    return {
        "label": short_labels(summary.series)[series],
        "colour": colours[colour],
        "style": _STYLES[style % len(_STYLES)],
    }


def _panels(summary: Summary, size: tuple[float, float]) -> tuple[Any, list[Panel]]:
    """A figure with one panel for each game, titled with its name."""
    rows = math.ceil(len(summary.games) / _COLUMNS)
    columns = math.ceil(len(summary.games) / rows)  # four are two rows of two
    width, height = size
    figure, axes = plots.new_figure(columns, rows=rows, height=height, width=width if columns > 1 else 1.375 * width)
    for ax in np.ravel(axes)[len(summary.games) :]:
        ax.set_axis_off()
    panels = [Panel(env, ax, []) for env, ax in zip(summary.games, np.ravel(axes), strict=False)]
    for panel in panels:
        panel.axes.set_title(panel.title, fontsize=10)
    return figure, panels


def _legend(figure: Any, panels: list[Panel]) -> None:
    """Add one legend below all panels, in the order of the series."""
    entries: dict[str, Any] = {}
    for panel in panels:
        for handle, label in zip(*panel.axes.get_legend_handles_labels(), strict=True):
            entries.setdefault(label, handle)
    if entries:
        longest = max(map(len, entries))
        room = int(figure.get_figwidth() / (0.7 + 0.073 * longest))  # inches for the line, and for each letter
        columns = max(1, min(len(entries), 6 if longest < 20 else 2, room))
        rows = math.ceil(len(entries) / columns)
        figure.set_figheight(figure.get_figheight() + 0.19 * max(rows - 2, 0))  # panels keep their height
        figure.legend(
            entries.values(), entries.keys(), loc="outside lower center", ncols=columns, frameon=False, fontsize=9
        )


def _curves(summary: Summary, size: tuple[float, float]) -> Figure:
    figure, panels = _panels(summary, size)
    counts, cited = set(), []
    for env, ax, traces, _ in panels:
        counted = next(group.curves[0].unit for group in summary.shown if group.env == env)
        atari = summary.family == "Atari" and counted == "agent step"
        edges = grid_edges(summary, env)
        large = edges[-1] >= _MANY_STEPS
        for group in (group for group in summary.shown if group.env == env):
            band = mean_band([on_grid(curve, edges) for curve in group.curves], seed=summary.scoring.seed)
            frames = group.curves[0].frames[-1] / group.curves[0].steps[-1]
            x = edges[1:] * (frames / 1e6 if atari else 1e-6 if large else 1.0)
            look = series_look(summary, group.series)
            plots.draw_band(ax, x, *band, **look)
            name = "step" if counted == "agent step" else counted
            words = [
                f"{name} {at:,.0f}" + (f" ({at * frames / 1e6:,.3g} M frames)" if atari else "") for at in edges[1:]
            ]
            traces.append(Trace(look["label"], look["colour"], words, x, *band))
            counts.add(len(group.scores))
        unit = "million frames" if atari else f"million {counted}s" if large else f"{counted}s"
        ax.set(xlabel=unit, ylabel="return")
        cited += _draw_published(ax, summary, env) if atari else []
    _legend(figure, panels)
    caption = f"Mean return of episodes over seeds, averaged over up to {_POINTS} intervals of about equal length. "
    caption += "One seed: no interval." if counts == {1} else "Bands: 95 % bootstrap intervals of the mean."
    if counts != {1} and 1 in counts:
        caption += " Lines without a band have one seed."
    if cited:
        caption += " " + _published_words(cited)
    return Figure("curves", "Learning curves", caption, figure, panels)


def _draw_published(ax: Any, summary: Summary, env: str) -> list[tuple[PublishedScores, int]]:
    """Draw published scores of the agents in a panel: those with the same sticky actions, at the nearest frames.

    They are points, with the least and the most of their seeds, as far as the curves reach, or else dotted lines.
    """
    agents = {series.agent for series, game in summary.best if game == env}
    sticky = {protocol.sticky > 0 for protocol in summary.protocols[env] if protocol.known}
    frames = 4 * summary.steps[env]
    published = [one for one in published_scores(game_name(env)) if one.agent in agents and one.sticky in sticky]
    within = [(one, at) for one in published for at in one.scores if at * 1e6 <= _WITHIN * frames]
    pointed = {one.agent for one, _ in within}
    lines = [(one, one.nearest(frames)) for one in published if one.agent not in pointed]
    for one, at in within:
        low, high = one.spread.get(at, (one.scores[at],) * 2)
        ends = [[one.scores[at] - low], [high - one.scores[at]]]
        look = {"color": plots.AGENT_COLOURS[one.agent], "marker": "D", "markersize": 4.5, "capsize": 3}
        ax.errorbar([at], [one.scores[at]], ends, **look, markeredgecolor=plots.INK, linewidth=1.4, zorder=3)
    if within:
        label = SPREAD if any(at in one.spread for one, at in within) else "published"
        ax.plot([], [], "D", color=plots.OTHER_COLOUR, markeredgecolor=plots.INK, markersize=4.5, label=label)
    low, high = ax.get_ylim()
    top = high + 0.5 * (high - low)  # a line further up would flatten the curves
    shown = [(one.agent, one.scores[at]) for one, at in lines if one.scores[at] <= top]
    levels = [level for _, level in shown]
    for agent, level in shown:
        ax.axhline(level, color=plots.AGENT_COLOURS[agent], linewidth=1.0, linestyle=":")
    ax.set_ylim(min([low, *levels]), max([high, *(level + 0.04 * (high - low) for level in levels)]))
    found = within + lines
    several = len({(one.source, at) for one, at in found}) > 1
    words = [ax.get_xlabel(), *([f"{one.source}, {at} M frames:" for one, at in found[:1]] if not several else [])]
    for one, at in sorted(found, key=lambda pair: AGENTS.index(pair[0].agent)):
        words.append(f"{one.agent}: {one.text(at)}" + (f" {one.source} {at} M" if several else ""))
    ax.set_xlabel("\n".join(words), fontsize=8)
    return found


def _published_words(cited: list[tuple[PublishedScores, int]]) -> str:
    """What the points, lines and numbers of published scores are."""
    with_spread = any(at in one.spread for one, at in cited)
    sources = "; ".join(dict.fromkeys(f"{one.source} at {at} M frames ({one.protocol})" for one, at in cited))
    return (
        "Diamonds, dotted lines, and numbers below each panel: published training scores, "
        f"{sources}. {f'Bars: {SPREAD}. ' if with_spread else ''}Scores far above the curves have no line."
    )


def _aggregates(summary: Summary, found: Aggregates) -> Figure:
    figure, axes = plots.new_figure(len(AGGREGATES), height=0.9 + 0.34 * len(found.scores), width=3.0)
    looks = [series_look(summary, one) for one in found.scores]
    colours, labels = [look["colour"] for look in looks], [look["label"] for look in looks]
    panels, titles = [], {}
    for ax, (name, title) in zip(axes, AGGREGATES.items(), strict=True):
        intervals = [its[name] for its in found.intervals.values()]
        names = [f"{name}-{i}" for i in range(len(intervals))]
        shown = labels if ax is axes[0] else [""] * len(intervals)
        plots.draw_bars(ax, shown, *np.array(intervals).T, colours=colours, names=names)
        ax.set_title(title + (" (small is good)" if name == "optimality_gap" else ""), fontsize=10)
        traces = []
        for i, (label, one) in enumerate(zip(labels, intervals, strict=True)):
            titles |= dict.fromkeys((names[i], f"{names[i]}-mark"), f"{label}: {title} {interval_text(one)}")
            row = len(intervals) - 1 - i  # bars are drawn from the top down
            traces.append(Trace(label, colours[i], [label], [row], *([value] for value in one)))
        panels.append(Panel(title, ax, traces, "y"))
    caption = _caption(summary, found, "Bars: 95 % stratified bootstrap intervals")
    return Figure("aggregates", "Aggregate scores", caption, figure, panels, titles)


def _caption(summary: Summary, found: Aggregates, intervals: str) -> str:
    """The games, the scale, the kind of intervals, and which series have none."""
    labels = short_labels(summary.series)
    single = [labels[series] for series, scores in found.scores.items() if any(len(runs) < 2 for runs in scores)]
    without = f"; one seed, so no interval: {', '.join(single)}" if single else ""
    return f"Over {', '.join(found.games)}; {found.scale}. {intervals}{without}."


def _profiles(summary: Summary, found: Aggregates) -> Figure:
    figure, ax = plots.new_figure(1, height=3.6, width=6.0)
    values = np.concatenate([runs for scores in found.scores.values() for runs in scores])
    room = 0.02 * max(np.ptp(values), 1e-9)
    thresholds = np.linspace(min(values.min() - room, 0.0), values.max() + room, 201)
    panel = Panel("the profile", ax, [])
    for series, scores in found.scores.items():
        profile = performance_profile(scores, thresholds, seed=summary.scoring.seed)
        look = series_look(summary, series)
        plots.draw_band(ax, thresholds, *profile, **look)
        few = [column[::5] for column in (thresholds, *profile)]
        words = [f"fraction of runs above {number(threshold)}" for threshold in few[0]]
        panel.traces.append(Trace(look["label"], look["colour"], words, *few))
    ax.set(xlabel="normalised score τ", ylabel="fraction of runs above τ", ylim=(-0.02, 1.02))
    _legend(figure, [panel])
    caption = _caption(summary, found, "Bands: pointwise 95 % bootstrap intervals")
    return Figure("profiles", "Performance profiles", caption, figure, [panel])


def _rates(summary: Summary, size: tuple[float, float]) -> Figure:
    figure, panels = _panels(summary, size)
    for panel in panels:
        for i, series in enumerate(summary.series):
            found = summary.best_along(series, panel.title, learning_rate)
            shift = 1.03 ** (i - len(summary.series) / 2)  # so that the intervals of agents do not overlap
            _draw_tried(panel, found, series_look(summary, series), "learning rate", shift)
        panel.axes.set(xscale="log", xlabel="learning rate", ylabel=f"score, {tail_text(summary.scoring.tail)}")
        groups = [group for group in [*summary.groups, *summary.diverged] if group.env == panel.title]
        rates = sorted({learning_rate(group) for group in groups if group.config is not None})
        if len(rates) <= _MOST_TICKS:  # a search tries more than there is room for
            panel.axes.set_xticks(rates, [f"{rate:g}" for rate in rates])
            panel.axes.set_xticks([], minor=True)
    _legend(figure, panels)
    caption = f"Mean score over seeds with its 95 % bootstrap interval; {_BEST_OF_OTHERS}. "
    caption += "Agents are shifted slightly so that their intervals do not overlap."
    caption += " A cross at the bottom marks a rate at which runs diverged." if summary.diverged else ""
    return Figure("rates", "Sensitivity to the learning rate", caption, figure, panels)


def _penalties(summary: Summary, size: tuple[float, float]) -> Figure:
    figure, panels = _panels(summary, size)
    positive = [group.penalty for group in summary.groups if group.series.agent == "s51" and group.penalty > 0]
    least = min(positive, default=1.0)
    for panel in panels:
        for series in (one for one in summary.series if one.agent == "s51"):
            found = summary.best_along(series, panel.title, normalised_penalty)
            look = series_look(summary, series)
            ways = {"after": {}, "before": {"colour": plots.OTHER_COLOUR, "style": _STYLES[1]}}
            for kind, its_look in ways.items():
                kind_look = look | {"label": f"{look['label']}, normalised {kind}"} | its_look
                tried = {at: group for (its, at), group in found.items() if its == kind}
                _draw_tried(panel, tried, kind_look, "lambda")
        panel.axes.set_xscale("symlog", linthresh=least)
        panel.axes.set(xlabel="lambda (orthonormal)", ylabel=f"score, {tail_text(summary.scoring.tail)}")
        panel.axes.set_xlim(left=0 - 0.1 * least)
    _legend(figure, panels)
    caption = (
        "S51 by its mass penalty in the orthonormal convention (lambda on the total mass counts K times), normalised "
        f"after or before the backup. Mean over seeds with 95 % bootstrap intervals; {_BEST_OF_OTHERS}."
    )
    return Figure("penalties", "Sensitivity of S51 to its mass penalty", caption, figure, panels)


def _draw_tried(
    panel: Panel, groups: Mapping[float, ScoreGroup | None], look: dict[str, Any], name: str, shift: float = 1.0
) -> None:
    """Draw the score at each value of a setting, or a cross where runs diverged, shifted by a factor."""
    scored = {value: group.score for value, group in groups.items() if group is not None}
    if scored:
        x, columns = [value * shift for value in scored], np.array(list(scored.values())).T
        for at, bottom, top in zip(x, *columns[1:], strict=True):
            ends = {"color": look["colour"], "linewidth": 3.0, "alpha": 0.35, "solid_capstyle": "butt"}
            panel.axes.plot([at, at], [bottom, top], **ends)
        middle = {"color": look["colour"], "linestyle": look["style"], "label": look["label"]}
        panel.axes.plot(x, columns[0], linewidth=1.4, marker="o", markersize=4, **middle)
        words = [f"{name} {value:g}" for value in scored]
        panel.traces.append(Trace(look["label"], look["colour"], words, x, *columns))
    plots.draw_diverged(panel.axes, [value * shift for value in groups if value not in scored], look["colour"])
