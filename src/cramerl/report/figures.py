"""The figures of a report: learning curves, aggregates, performance profiles, settings that were tried."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cramerl import plots
from cramerl.deep.envs.names import game_name
from cramerl.evidence.curves import on_grid
from cramerl.evidence.published import Anchor, anchors_for
from cramerl.evidence.scores import Cell, Normalised, Series, Summary
from cramerl.evidence.statistics import bootstrap_interval, mean_band, performance_profile
from cramerl.report.hover import Panel, Trace
from cramerl.report.tables import AGGREGATES, interval, mean_interval, number, penalty_swept, tail_in_words

_POINTS = 60  # of a learning curve
_MOST_TICKS = 6
_MANY_STEPS = 100_000  # from which on axes count millions
_COLUMNS = 3  # of panels
_STYLES = ("-", "--", "-.", (0, (1, 1)), (0, (5, 1, 1, 1, 1, 1)))  # variants of one agent
_SWEEP_MARK = "at its best for each value"


class Figure(NamedTuple):
    """A drawn figure, the words under it, the panels whose values can be pointed at, and words for its named shapes."""

    name: str
    title: str
    caption: str
    drawing: Any
    panels: list[Panel]
    titles: Mapping[str, str] = MappingProxyType({})


def make_figures(summary: Summary, scale: Normalised | None, seed: int) -> list[Figure]:
    """The figures of a study that have something to show."""
    if not summary.cells:
        return []
    figures = [_curves(summary, seed)]
    if scale is not None and (len(scale.games) > 1 or any(len(cell.scores) > 1 for cell in summary.cells.values())):
        figures += [_aggregates(summary, scale, seed), _profiles(summary, scale, seed)]
    if summary.swept("learning_rate"):
        figures.append(_rates(summary, seed))
    if penalty_swept(summary):
        figures.append(_penalties(summary, seed))
    return figures


def grid_edges(summary: Summary, env: str) -> NDArray[np.float64]:
    """Edges, in steps, of the intervals over which curves of a game are averaged: where the shortest log has rows.

    Elsewhere a row just behind an edge, with what came before it, would count for what comes after.
    """
    logs = [curve.steps for cell in summary.points if cell.env == env for curve in cell.curves]
    rows = min((log[log <= summary.steps[env]] for log in logs), key=len)
    ends = np.arange(1, min(_POINTS, len(rows)) + 1) * len(rows) // min(_POINTS, len(rows)) - 1
    return np.array([0, *rows[ends[:-1]], summary.steps[env]], dtype=np.float64)


def _colour(summary: Summary, series: Series) -> str:
    """The agent's; where there is but one agent, its variants have the colours of the others."""
    own = plots.AGENT_COLOURS.get(series.agent, plots.OTHER_COLOUR)
    if len({one.agent for one in summary.series}) > 1:
        return own
    colours = list(dict.fromkeys([own, *plots.AGENT_COLOURS.values()]))
    return colours[summary.series.index(series) % len(colours)]


def _style(summary: Summary, series: Series) -> Any:
    """Lines of one colour differ in their dashes."""
    alike = [one for one in summary.series if _colour(summary, one) == _colour(summary, series)]
    return _STYLES[alike.index(series) % len(_STYLES)]


def _panels(summary: Summary) -> tuple[Any, list[Any]]:
    """One panel per game, with its name above."""
    rows = math.ceil(len(summary.games) / _COLUMNS)
    columns = math.ceil(len(summary.games) / rows)  # four are two rows of two
    figure, axes = plots.new_figure(columns, rows=rows, height=3.1, width=4.0 if columns > 1 else 5.5)
    axes = list(np.ravel(axes))
    for ax, env in zip(axes, summary.games, strict=False):
        ax.set_title(env, fontsize=10)
    for ax in axes[len(summary.games) :]:
        ax.set_axis_off()
    return figure, axes[: len(summary.games)]


def _legend(figure: Any, axes: list[Any]) -> None:
    """One legend below all panels, in the order of the series."""
    entries: dict[str, Any] = {}
    for ax in axes:
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
            entries.setdefault(label, handle)
    if entries:
        longest = max(map(len, entries))
        room = int(figure.get_figwidth() / (0.7 + 0.065 * longest))  # inches, of letters in this size
        columns = max(1, min(len(entries), 6 if longest < 20 else 2, room))
        rows = math.ceil(len(entries) / columns)
        figure.set_figheight(figure.get_figheight() + 0.19 * max(rows - 2, 0))  # so that the panels keep theirs
        figure.legend(
            entries.values(), entries.keys(), loc="outside lower center", ncols=columns, frameon=False, fontsize=8
        )


def _curves(summary: Summary, seed: int) -> Figure:
    figure, axes = _panels(summary)
    atari, counts, cited, panels = summary.family == "Atari", set(), [], []
    for ax, env in zip(axes, summary.games, strict=True):
        edges = grid_edges(summary, env)
        large = edges[-1] >= _MANY_STEPS
        panels.append(Panel(env, ax, []))
        for series in summary.series:
            cell = summary.cells.get((series, env))
            if cell is not None:
                band = mean_band([on_grid(curve, edges) for curve in cell.curves], seed=seed)
                frames = cell.curves[0].frames[-1] / cell.curves[0].steps[-1]
                x = edges[1:] * (frames / 1e6 if atari else 1e-6 if large else 1.0)
                style = {"label": series.label, "colour": _colour(summary, series), "style": _style(summary, series)}
                plots.draw_band(ax, x, *band, **style)
                words = _steps_in_words(edges[1:], frames if atari else 0)
                panels[-1].traces.append(Trace(series.label, _colour(summary, series), words, x, *band))
                counts.add(len(cell.scores))
        unit = "million frames" if atari else "million agent steps" if large else "agent steps"
        ax.set(xlabel=unit, ylabel="return")
        cited += _references(ax, summary, env) if atari else []
    _legend(figure, axes)
    caption = f"Mean return of episodes over seeds, averaged over up to {_POINTS} stretches of about equal length. "
    caption += "One seed: no interval." if counts == {1} else "Bands: 95 % bootstrap intervals of the mean."
    if counts != {1} and 1 in counts:
        caption += " One seed, where there is none."
    return Figure("curves", "Learning curves", " ".join([caption, *_cited(cited)]), figure, panels)


def _steps_in_words(steps: NDArray[np.float64], frames: float) -> list[str]:
    """Steps, with the emulator's frames where there are some per step."""
    return [f"step {at:,.0f}" + (f" ({at * frames / 1e6:,.3g} M frames)" if frames else "") for at in steps]


def _references(ax: Any, summary: Summary, env: str) -> list[tuple[Anchor, int]]:
    """Published levels of the agents in a panel, at the nearest number of frames, with or without sticky actions."""
    agents = {series.agent for series, game in summary.cells if game == env}
    sticky = {protocol.sticky > 0 for protocol in summary.protocols[env]}
    published = [one for one in anchors_for(game_name(env)) if one.agent in agents and one.sticky in sticky]
    found = [(one, one.nearest(4 * summary.steps[env])) for one in published]
    low, high = ax.get_ylim()
    top = high + 0.5 * (high - low)  # further away a level would press the curves flat
    shown = [(one, one.scores[at]) for one, at in found if one.scores[at] <= top]
    plots.draw_levels(ax, [level for _, level in shown], [plots.AGENT_COLOURS[one.agent] for one, _ in shown])
    levels = [level for _, level in shown]
    ax.set_ylim(min([low, *levels]), max([high, *(level + 0.04 * (high - low) for level in levels)]))
    lines = [ax.get_xlabel()]
    for agent in dict.fromkeys(one.agent for one, _ in found):
        words = [f"{one.scores[at]:,g} {one.source} {at} M" for one, at in found if one.agent == agent]
        lines.append(f"{agent}: {', '.join(words)}")
    ax.set_xlabel("\n".join(lines), fontsize=8)
    return found


def _cited(found: list[tuple[Anchor, int]]) -> list[str]:
    if not found:
        return []
    sources = dict.fromkeys(f"{one.source} at {at} M frames ({one.protocol})" for one, at in found)
    words = f"Dotted, and below each panel: published training scores, {'; '.join(sources)}."
    return [words + " Those far beyond the curves have no line."]


def _aggregates(summary: Summary, scale: Normalised, seed: int) -> Figure:
    figure, axes = plots.new_figure(len(AGGREGATES), height=0.9 + 0.34 * len(scale.scores), width=3.0)
    colours, labels = [_colour(summary, series) for series in scale.scores], [series.label for series in scale.scores]
    panels, titles = [], {}
    for ax, (name, title) in zip(axes, AGGREGATES.items(), strict=True):
        found = [bootstrap_interval(name, scores, seed=seed) for scores in scale.scores.values()]
        names = [f"{name}-{i}" for i in range(len(found))]
        shown = labels if ax is axes[0] else [""] * len(found)
        plots.draw_bars(ax, shown, *np.array(found).T, colours=colours, names=names)
        ax.set_title(title + (" (small is good)" if name == "optimality_gap" else ""), fontsize=10)
        for bar, label, one in zip(names, labels, found, strict=True):
            titles |= dict.fromkeys((bar, f"{bar}-mark"), f"{label}: {title} {interval(one)}")
        rows = zip(labels, colours, reversed(range(len(found))), found, strict=True)
        traces = [Trace(label, colour, [label], [row], *([value] for value in one)) for label, colour, row, one in rows]
        panels.append(Panel(title, ax, traces, "y"))
    caption = f"Over {', '.join(scale.games)}; {scale.words}. Bars: 95 % stratified bootstrap intervals"
    return Figure("aggregates", "Aggregate scores", caption + _missing(scale) + ".", figure, panels, titles)


def _missing(scale: Normalised) -> str:
    single = [series.label for series, scores in scale.scores.items() if any(len(runs) < 2 for runs in scores)]
    return f"; one seed, so no interval: {', '.join(single)}" if single else ""


def _profiles(summary: Summary, scale: Normalised, seed: int) -> Figure:
    figure, ax = plots.new_figure(1, height=3.6, width=6.0)
    values = np.concatenate([runs for scores in scale.scores.values() for runs in scores])
    room = 0.02 * max(np.ptp(values), 1e-9)
    thresholds = np.linspace(min(values.min() - room, 0.0), values.max() + room, 201)
    panel = Panel("the profile", ax, [])
    for series, scores in scale.scores.items():
        found = performance_profile(scores, thresholds, seed=seed)
        style = {"label": series.label, "colour": _colour(summary, series), "style": _style(summary, series)}
        plots.draw_band(ax, found.thresholds, found.fraction, found.low, found.high, **style)
        few = [column[::5] for column in (found.thresholds, found.fraction, found.low, found.high)]
        words = [f"fraction of runs above {number(threshold)}" for threshold in few[0]]
        panel.traces.append(Trace(series.label, _colour(summary, series), words, *few))
    ax.set(xlabel="normalised score τ", ylabel="fraction of runs above τ", ylim=(-0.02, 1.02))
    _legend(figure, [ax])
    caption = f"Over {', '.join(scale.games)}; {scale.words}. Bands: pointwise 95 % bootstrap intervals"
    return Figure("profiles", "Performance profiles", caption + _missing(scale) + ".", figure, [panel])


def _rates(summary: Summary, seed: int) -> Figure:
    figure, axes = _panels(summary)
    panels = [Panel(env, ax, []) for ax, env in zip(axes, summary.games, strict=True)]
    for env, ax, traces, _ in panels:
        for series in summary.series:
            found = summary.best_along(series, env, lambda cell: cell.setting("learning_rate"))
            aside = 1.03 ** (summary.series.index(series) - len(summary.series) / 2)
            trace = _trace(found, seed, series.label, _colour(summary, series), "learning rate", aside)
            traces += _draw_tried(ax, trace, _style(summary, series))
            lost = summary.lost_along(series, env, lambda cell: cell.setting("learning_rate"))
            plots.draw_diverged(ax, [value * aside for value in lost], _colour(summary, series))
        ax.set(xscale="log", xlabel="learning rate", ylabel=f"score, last {tail_in_words(summary.tail)}")
        rates = sorted({cell.setting("learning_rate") for cell in [*summary.points, *summary.lost] if cell.env == env})
        if len(rates) <= _MOST_TICKS:  # a search tries more than there is room for
            ax.set_xticks(rates, [f"{rate:g}" for rate in rates])
            ax.set_xticks([], minor=True)
    _legend(figure, axes)
    caption = f"Mean score over seeds with its 95 % bootstrap interval; whatever else was tried is {_SWEEP_MARK}. "
    caption += "Agents are drawn a little beside each other."
    caption += " A cross at the bottom: runs diverged." if summary.lost else ""
    return Figure("rates", "Sensitivity to the learning rate", caption, figure, panels)


def _penalties(summary: Summary, seed: int) -> Figure:
    figure, axes = _panels(summary)
    kinds = {"after": plots.NEGATIVE, "before": plots.POSITIVE}
    panels = [Panel(env, ax, []) for ax, env in zip(axes, summary.games, strict=True)]
    for env, ax, traces, _ in panels:
        for series in (one for one in summary.series if one.agent == "s51"):
            for kind, colour in kinds.items():
                found = summary.best_along(series, env, _penalty_if(kind))
                found = [(value, cell) for value, cell in found if value >= 0]
                trace = _trace(found, seed, f"{series.label}, normalised {kind}", colour, "lambda")
                traces += _draw_tried(ax, trace, _style(summary, series))
                lost = summary.lost_along(series, env, _penalty_if(kind))
                plots.draw_diverged(ax, [value for value in lost if value >= 0], colour)
        positive = [cell.penalty for cell in summary.points if cell.series.agent == "s51" and cell.penalty > 0]
        ax.set_xscale("symlog", linthresh=min(positive, default=1.0))
        ax.set(xlabel="lambda (orthonormal)", ylabel=f"score, last {tail_in_words(summary.tail)}")
        ax.set_xlim(left=0 - 0.1 * min(positive, default=1.0))
    _legend(figure, axes)
    caption = (
        "S51 by its mass penalty in the orthonormal convention (lambda on the total mass counts K times), normalised "
        "after or before the backup. Mean over seeds with 95 % bootstrap intervals; whatever else was tried is "
        f"{_SWEEP_MARK}."
    )
    return Figure("penalties", "Sensitivity of S51 to its mass penalty", caption, figure, panels)


def _penalty_if(kind: str) -> Callable[[Cell], float]:
    """The penalty of cells of one normalisation; -1 for the others."""
    return lambda cell: cell.penalty if cell.setting("normalisation") == kind else -1.0


def _trace(found: list[tuple[float, Cell]], seed: int, label: str, colour: str, axis: str, aside: float = 1.0) -> Trace:
    """Scores by a setting; a factor sets lines aside, so that intervals stand beside each other."""
    columns = np.array([mean_interval(cell, seed) for _, cell in found]).reshape(-1, 3).T
    words = [f"{axis} {value:g}" for value, _ in found]
    return Trace(label, colour, words, [value * aside for value, _ in found], *columns)


def _draw_tried(ax: Any, trace: Trace, style: Any) -> list[Trace]:
    """Draw a trace, and give it back, unless it has no points."""
    if not trace.words:
        return []
    plots.draw_points(
        ax, trace.x, trace.middle, trace.low, trace.high, label=trace.label, colour=trace.colour, style=style
    )
    return [trace]
