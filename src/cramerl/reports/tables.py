"""The tables of a report: scores, aggregates, comparisons, settings that were tried, diagnostics, all settings."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cramerl.deep.envs.names import game_name
from cramerl.evidence.aggregates import Aggregates
from cramerl.evidence.curves import tail_rows
from cramerl.evidence.published import published_scores
from cramerl.evidence.scores import ScoreGroup, learning_rate, normalised_penalty
from cramerl.evidence.statistics import Interval
from cramerl.evidence.subjects import seed_order
from cramerl.evidence.summary import Summary
from cramerl.reports.labels import Labels, compared, full_labels
from cramerl.runs.config import SETTINGS, applies_to_agent
from cramerl.runs.env_options import options_text
from cramerl.runs.scores import MUCH_CLIPPED

AGGREGATES = {"iqm": "IQM", "mean": "mean", "median": "median", "optimality_gap": "optimality gap"}
PENALTY_SETTINGS = ("mass_penalty", "mass_penalty_scale", "normalisation")
_DIAGNOSTICS = {
    "dist/mass": "mass",
    "dist/negative_mass": "negative mass",
    "dist/clipped_mass": "clipped mass",
    "losses/loss": "loss",
}
_MILLION_FRAMES = (10, 20, 25, 40, 50, 100, 200)


class Entry(str):
    """A text in a table that is sorted by a number, ``value``."""

    value: float

    def __new__(cls, text: str, value: float) -> Entry:
        """The text with its number."""
        entry = super().__new__(cls, text)
        entry.value = value
        return entry


class Table(NamedTuple):
    """A table, with a note below it. Some texts of its rows are entries."""

    name: str
    title: str
    columns: list[str]
    rows: list[list[str]]
    note: str = ""


def make_tables(summary: Summary, labels: Labels | None = None) -> list[Table]:
    """The tables of a study that have rows; ``labels`` are the names of its series, by default their full names."""
    labels = full_labels(summary.series) if labels is None else labels
    tables = [_scores(summary, labels)]
    if summary.aggregates is not None:
        tables.append(_aggregates(summary.aggregates, labels))
    tables.append(_comparisons(summary, labels))
    if summary.tuned("learning_rate"):
        tables.append(_rates(summary, labels))
    if summary.tuned(*PENALTY_SETTINGS):
        tables.append(_penalties(summary, labels))
    tables.append(_diagnostics(summary, labels))
    if summary.family == "Atari":
        tables.append(_published(summary))
    return [table for table in tables if table.rows]


def tail_text(tail: float) -> str:
    """The scored part of a run in words: "last fifth"."""
    return "last " + {0.2: "fifth", 0.1: "tenth"}.get(tail, f"{tail:g}")


def number(value: float, like: float | None = None) -> str:
    """A number with as many digits as its size, or the size of ``like``, calls for."""
    if not math.isfinite(value):
        return "–"
    size = abs(value if like is None else like)
    digits = 0 if size >= 1000 else 1 if size >= 100 else 2 if size >= 1 else 3
    text = f"{value:,.{digits}f}"
    return text.removeprefix("-") if not text.strip("-0.,") else text


def interval_text(found: Interval) -> str:
    """An estimate with its interval in brackets, or alone if it has none."""
    text = number(found.estimate)
    if not math.isfinite(found.low):
        return text
    return f"{text} [{number(found.low, found.estimate)}, {number(found.high, found.estimate)}]"


def settings_table(summary: Summary) -> Table:
    """Each setting with its value or, if agents differ in it, each value with the agents that have it.

    Of runs of other libraries, only the seeds are known.
    """
    curves = sorted(summary.curves, key=lambda curve: curve.agent)
    foreign = [curve for curve in curves if curve.subject.config is None]
    curves = [curve for curve in curves if curve.subject.config is not None]
    everyone = {curve.agent for curve in curves}
    rows = []
    for name in (name for name, setting in SETTINGS.items() if setting.role != "subject"):
        agents: dict[str, dict[str, None]] = {}
        for curve in curves:
            if applies_to_agent(name, curve.agent):
                agents.setdefault(_setting_text(name, getattr(curve.config, name)), {})[curve.agent] = None
        if name == "seed":
            text = ", ".join(sorted(agents, key=int))
        elif all(set(found) == everyone for found in agents.values()):
            text = ", ".join(agents)
        else:
            text = "; ".join(f"{value} ({', '.join(found)})" for value, found in agents.items())
        if text:
            rows.append([name, text])
    for agent in dict.fromkeys(curve.agent for curve in foreign):
        seeds = sorted({curve.seed for curve in foreign if curve.agent == agent}, key=seed_order)
        rows.append([f"seed of {agent}, whose settings are not known", ", ".join(map(str, seeds))])
    return Table("settings", "Settings", ["setting", "value"], rows)


def _setting_text(name: str, value: Any) -> str:
    if name == "initial_weights":
        return Path(value).name  # the rest of the path is private to the machine
    if isinstance(value, bool):
        return "on" if value else "off"
    if name == "env_options":
        return options_text(value)
    if isinstance(value, tuple):
        return " × ".join(map(str, value))
    return f"{value:,}" if isinstance(value, int) and name != "seed" else str(value)


def _interval(found: Interval) -> Entry:
    return Entry(interval_text(found), found.estimate)


def _scores(summary: Summary, labels: Labels) -> Table:
    tail = tail_text(summary.scoring.tail)
    rows = []
    for group in summary.shown:
        # Agents differ in these settings, so they belong to what is compared.
        setting = "not known" if group.config is None else f"learning_rate {group.config.learning_rate:g}"
        if group.series.agent == "s51" and group.config is not None:
            setting += f", lambda {group.penalty:g}, {group.config.normalisation}"
        if group.tried > 1:
            setting += f" (best of {group.tried})"
        whole, seeds = float(group.whole.mean()), len(group.scores)
        row = [group.env, labels[group.series], _interval(group.score), Entry(number(whole), whole)]
        rows.append([*row, Entry(str(seeds), seeds), Entry(f"{group.steps:,}", group.steps), setting])
    tried = any(group.tried > 1 for group in summary.shown)
    columns = ["game", "agent", tail, "whole run", "seeds", "steps", "best setting" if tried else "setting"]
    note = (
        f"Mean return of the episodes that ended in the {tail} of the steps, averaged over seeds, with its 95 % "
        "bootstrap interval (none with one seed); and the mean over the steps of the whole run."
    )
    return Table("scores", "Scores", columns, rows, note)


def _aggregates(found: Aggregates, labels: Labels) -> Table:
    rows = []
    for series, scores in found.scores.items():
        runs = sorted({len(runs) for runs in scores})
        seeds = Entry("–".join(map(str, dict.fromkeys((runs[0], runs[-1])))), runs[0])
        rows.append([labels[series], *(_interval(found.intervals[series][name]) for name in AGGREGATES), seeds])
    note = (
        f"Over {', '.join(found.games)}; {found.scale}. 95 % stratified bootstrap intervals, with the scale taken as "
        "exact; none if a game has one seed. Smaller optimality gaps are better."
    )
    return Table("aggregates", "Aggregates", ["agent", *AGGREGATES.values(), "seeds per game"], rows, note)


def _comparisons(summary: Summary, labels: Labels) -> Table:
    def difference(found: Interval | None) -> str:
        if found is None:
            return ""
        missing = "" if math.isfinite(found.low) else " (one seed: no interval)"
        return Entry(interval_text(found) + missing, found.estimate)

    rows = []
    for one in summary.comparisons:
        improvement = _interval(one.improvement) if math.isfinite(one.improvement.low) else "–"
        env = one.env or "all, normalised"
        rows.append([compared(one, labels), env, difference(one.difference), improvement, difference(one.whole)])
    note = (
        "Difference of mean scores; the probability that a run of the first beats a run of the second (ties count one "
        "half); and the difference of means over the whole run. Each with its 95 % bootstrap interval, not corrected "
        "for multiple comparisons. An interval of a difference that contains 0 shows no difference."
    )
    columns = ["agents", "game", "difference", "P(improvement)", "over the whole run"]
    return Table("comparisons", "Comparisons", columns, rows, note)


def _rates(summary: Summary, labels: Labels) -> Table:
    rows = []
    for env, series in itertools.product(summary.games, summary.series):
        found = summary.best_along(series, env, learning_rate)
        scored = {rate: group.score for rate, group in found.items() if group is not None}
        if len(scored) > 1:
            best = max(scored, key=lambda rate: scored[rate].estimate)
            texts = {rate: number(scored[rate].estimate) if rate in scored else "diverged" for rate in found}
            by_rate = ", ".join(f"{rate:g}: {text}" for rate, text in texts.items())
            at_edge = "yes" if best in (min(scored), max(scored)) else "no"
            rows.append([env, labels[series], Entry(f"{best:g}", best), _interval(scored[best]), by_rate, at_edge])
    columns = ["game", "agent", "best rate", "score there", "score by rate", "at the edge"]
    note = (
        "For each rate, the best of the other settings that were tried. A best rate at the edge of the range may not "
        "be the best possible."
    )
    return Table("rates", "Learning rates", columns, rows, note)


def _penalties(summary: Summary, labels: Labels) -> Table:
    rows = []
    for env, series in itertools.product(summary.games, summary.series):
        found = summary.best_along(series, env, normalised_penalty)
        scored = [group for group in found.values() if group is not None and series.agent == "s51"]
        for group in scored if len(scored) > 1 else ():
            config = group.curves[0].config
            row = [env, labels[series], config.normalisation, Entry(f"{group.penalty:g}", group.penalty)]
            given = f"{config.mass_penalty:g} ({config.mass_penalty_scale})"
            row += [Entry(given, config.mass_penalty), _interval(group.score)]
            rows.append(row + [_diagnostic(summary, group, name) for name in ("dist/mass", "dist/negative_mass")])
    columns = ["game", "agent", "normalisation", "lambda", "as given", "score", "mass", "negative mass"]
    note = (
        "Lambda in the orthonormal convention, (lambda / K) times the squared excess of mass; a lambda given on the "
        "total mass is K times as large there. For each lambda, the best of the other settings that were tried."
    )
    return Table("penalties", "Mass penalty of S51", columns, rows, note)


def _diagnostics(summary: Summary, labels: Labels) -> Table:
    logged = [name for name in _DIAGNOSTICS if any(name in curve.metrics for curve in summary.curves)]
    rows, clipped = [], []
    for group in summary.shown if logged else ():
        found = {name: _diagnostic(summary, group, name) for name in logged}
        rows.append([group.env, labels[group.series], *found.values()])
        if getattr(found.get("dist/clipped_mass"), "value", 0) > MUCH_CLIPPED:
            clipped.append(f"{labels[group.series]} on {group.env}")
    note = f"Means over the {tail_text(summary.scoring.tail)} of the steps and over seeds."
    if clipped:
        note += (
            f" More than {MUCH_CLIPPED:.0%} of the mass lay outside the support and was moved to its ends: "
            f"{'; '.join(clipped)}. Returns beyond the ends cannot be told apart."
        )
    columns = ["game", "agent", *(_DIAGNOSTICS[name] for name in logged)]
    return Table("diagnostics", "Diagnostics", columns, rows, note)


def _diagnostic(summary: Summary, group: ScoreGroup, name: str) -> str:
    """The mean of a logged number over the tail of the runs that have it."""
    means = []
    for curve in (curve for curve in group.curves if name in curve.metrics):
        values = curve.metrics[name]
        rows = tail_rows(curve, summary.scoring.tail, group.steps) & np.isfinite(values)
        if rows.any():
            means.append(values[rows].mean())
    return Entry(f"{np.mean(means):.4g}", float(np.mean(means))) if means else "–"


def _published(summary: Summary) -> Table:
    rows = []
    for env in summary.games:
        for one in published_scores(game_name(env)):
            scores = [Entry(one.text(at), one.scores[at]) if at in one.scores else "" for at in _MILLION_FRAMES]
            rows.append([env, one.agent, one.source, one.protocol, *scores])
    note = (
        "Published training scores, to check that ours are plausible. Other codebases with the same settings differ by "
        "more than agents do, so agents are only compared within one codebase. Brackets hold the least and the most of "
        "a source's seeds, where they are known; they are no intervals."
    )
    columns = ["game", "agent", "source", "protocol", *(f"{at} M frames" for at in _MILLION_FRAMES)]
    return Table("published", "Published scores", columns, rows, note)
