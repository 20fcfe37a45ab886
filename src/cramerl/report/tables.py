"""The tables of a report, as words: scores, aggregates, comparisons, settings that were tried, diagnostics."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cramerl.deep.envs.names import game_name
from cramerl.evidence.curves import Curve, last_rows
from cramerl.evidence.published import anchors_for
from cramerl.evidence.scores import Cell, Normalised, Series, Summary
from cramerl.evidence.statistics import Interval, bootstrap_interval
from cramerl.runs.lanes import MUCH_CLIPPED

AGGREGATES = {"iqm": "IQM", "mean": "mean", "median": "median", "optimality_gap": "optimality gap"}
_DIAGNOSTICS = {
    "dist/mass": "mass",
    "dist/negative_mass": "negative mass",
    "dist/clipped_mass": "clipped mass",
    "losses/loss": "loss",
}


class Table(NamedTuple):
    """A table of words."""

    name: str
    title: str
    columns: list[str]
    rows: list[list[str]]
    note: str = ""


def make_tables(summary: Summary, scale: Normalised | None, seed: int) -> list[Table]:
    """The tables of a study that have something to say."""
    tables = [_scores(summary, seed)]
    if scale is not None:
        tables.append(_aggregates(scale, seed))
    tables.append(_comparisons(summary, scale, seed))
    if summary.swept("learning_rate"):
        tables.append(_rates(summary, seed))
    if penalty_swept(summary):
        tables.append(_penalties(summary, seed))
    tables.append(_diagnostics(summary))
    if summary.family == "Atari":
        tables.append(_published(summary))
    return [table for table in tables if table.rows]


def penalty_swept(summary: Summary) -> bool:
    """Whether several ways of S51's mass penalty were tried."""
    return any(summary.swept(name) for name in ("mass_penalty", "mass_penalty_scale", "normalisation"))


def tail_in_words(tail: float) -> str:
    """The tail of the steps that is scored."""
    return "fifth" if tail == 0.2 else "tenth" if tail == 0.1 else f"{tail:g}"


def number(value: float, like: float | None = None) -> str:
    """A number with the digits that its size, or that of another, calls for."""
    if not math.isfinite(value):
        return "–"
    size = abs(value if like is None else like)
    digits = 0 if size >= 1000 else 1 if size >= 100 else 2 if size >= 1 else 3
    text = f"{value:,.{digits}f}"
    return text.removeprefix("-") if not text.strip("-0.,") else text


def interval(found: Interval) -> str:
    """An estimate with its interval in brackets, or alone where there is none."""
    text = number(found.estimate)
    if not math.isfinite(found.low):
        return text
    return f"{text} [{number(found.low, found.estimate)}, {number(found.high, found.estimate)}]"


def mean_interval(cell: Cell, seed: int) -> Interval:
    """Mean score over seeds."""
    return bootstrap_interval("mean", [cell.scores], seed=seed)


def pairs(summary: Summary) -> Iterator[tuple[Series, Series]]:
    """Who is compared with whom: u51 with s51, everyone with dqn and with c51, variants with their plain form.

    Of several variants of the other agent it is the one alike in all settings that both have, and the plain one. Where
    an agent has no plain form on a game, each variant is compared with those before it that differ least from it.
    """
    wanted = [("u51", "s51")]
    agents = list(dict.fromkeys(series.agent for series in summary.series))
    for other in ("dqn", "c51"):
        wanted += [(one, other) for one in agents if one not in ("dqn", other)]
    for first, second in [*wanted, *((one, one) for one in agents)]:
        for one in (one for one in summary.series if one.agent == first):
            others = [other for other in summary.series if other.agent == second and _games(summary, one, other)]
            alike = [other for other in others if other != one and _alike(summary, one, other)]
            plain = [other for other in others if not other.variant]
            found = dict.fromkeys(other for other in [*alike, *plain] if other != one)
            if not found and first != second and len(others) == 1:
                found = dict.fromkeys(others)
            if first == second and not plain:
                found = dict.fromkeys(_nearest(one, others[: others.index(one)]))
            yield from ((one, other) for other in found)


def _games(summary: Summary, one: Series, other: Series) -> list[str]:
    """Those that both have played."""
    return [env for env in summary.games if (one, env) in summary.cells and (other, env) in summary.cells]


def _alike(summary: Summary, one: Series, other: Series) -> bool:
    """Whether two series have the same values of what sets either apart, but for settings that one of them has not."""
    env = _games(summary, one, other)[0]
    mine, theirs = (summary.cells[series, env].curves[0].learned_with for series in (one, other))
    named = {name for name, _ in (*one.settings, *other.settings)} & mine.keys() & theirs.keys()
    return one.protocol == other.protocol and all(mine[name] == theirs[name] for name in named)


def _nearest(one: Series, others: list[Series]) -> list[Series]:
    """Those that differ from one in the fewest settings; of many values of a setting the first and the last."""
    by_setting: dict[frozenset[str], list[Series]] = {}
    for other in others:
        differ = {name for name, _ in set(one.settings) ^ set(other.settings)}
        differ |= {"protocol"} if one.protocol != other.protocol else set()
        by_setting.setdefault(frozenset(differ), []).append(other)
    least = min(map(len, by_setting), default=0)
    chosen = {end for differ, alike in by_setting.items() if len(differ) == least for end in (alike[0], alike[-1])}
    return [other for other in others if other in chosen]


def _scores(summary: Summary, seed: int) -> Table:
    tried = any(cell.tried > 1 for cell in summary.cells.values())
    rows = []
    for env in summary.games:
        for series in summary.series:
            cell = summary.cells.get((series, env))
            if cell is None:
                continue
            row = [env, series.label, interval(mean_interval(cell, seed)), number(float(cell.whole.mean()))]
            row += [str(len(cell.scores)), f"{cell.steps:,}", _setting_words(cell)]
            rows.append(row)
    columns = ["game", "agent", f"last {tail_in_words(summary.tail)}", "whole run", "seeds", "steps"]
    columns.append("best setting" if tried else "setting")  # agents differ in it, and so it belongs to what is compared
    note = (
        f"Mean return of the episodes that ended in the last {tail_in_words(summary.tail)} of the steps, mean over "
        "seeds with its 95 % bootstrap interval (none with one seed); and the mean over the steps of the whole run."
    )
    return Table("scores", "Scores", columns, rows, note)


def _setting_words(cell: Cell) -> str:
    words = f"learning_rate {cell.setting('learning_rate'):g}"
    if cell.series.agent == "s51":
        words += f", lambda {cell.penalty:g}, {cell.setting('normalisation')}"
    return words + (f" (best of {cell.tried})" if cell.tried > 1 else "")


def _aggregates(scale: Normalised, seed: int) -> Table:
    rows = []
    for series, scores in scale.scores.items():
        found = [interval(bootstrap_interval(name, scores, seed=seed)) for name in AGGREGATES]
        runs = sorted({len(runs) for runs in scores})
        rows.append([series.label, *found, "–".join(map(str, dict.fromkeys((runs[0], runs[-1]))))])
    note = (
        f"Over {', '.join(scale.games)}; {scale.words}. 95 % stratified bootstrap intervals, the scale taken as exact; "
        "none where a game has one seed. Smaller optimality gaps are better."
    )
    return Table("aggregates", "Aggregates", ["agent", *AGGREGATES.values(), "seeds per game"], rows, note)


def _comparisons(summary: Summary, scale: Normalised | None, seed: int) -> Table:
    rows = []
    for first, second in pairs(summary):
        words = f"{first.label} against {second.beside(first)}"
        for env in summary.games:
            ours, theirs = summary.cells.get((first, env)), summary.cells.get((second, env))
            if ours is not None and theirs is not None:
                row = [words, env, *_compared([ours.scores], [theirs.scores], seed)]
                rows.append([*row, _difference([ours.whole], [theirs.whole], seed)])
        if scale is not None and len(scale.games) > 1 and first in scale.scores and second in scale.scores:
            rows.append([words, "all, normalised", *_compared(scale.scores[first], scale.scores[second], seed), ""])
    note = (
        "Difference of mean scores, and the probability that a run of the first beats one of the second (ties count "
        "one half); and the difference of means over the whole run. Each with its 95 % bootstrap interval, not "
        "corrected for their number. Where it holds 0, no difference was shown."
    )
    columns = ["agents", "game", "difference", "P(improvement)", "over the whole run"]
    return Table("comparisons", "Comparisons", columns, rows, note)


def _compared(ours: list[NDArray[np.float64]], theirs: list[NDArray[np.float64]], seed: int) -> list[str]:
    improvement = bootstrap_interval("probability_of_improvement", ours, theirs, seed=seed)
    return [_difference(ours, theirs, seed), interval(improvement) if math.isfinite(improvement.low) else "–"]


def _difference(ours: list[NDArray[np.float64]], theirs: list[NDArray[np.float64]], seed: int) -> str:
    found = bootstrap_interval("difference_of_means", ours, theirs, seed=seed)
    return interval(found) if math.isfinite(found.low) else f"{number(found.estimate)} (one seed: no interval)"


def _rates(summary: Summary, seed: int) -> Table:
    rows = []
    for env in summary.games:
        for series in summary.series:
            found = summary.best_along(series, env, lambda cell: cell.setting("learning_rate"))
            if len(found) > 1:
                rate, best = max(found, key=lambda item: item[1].mean)
                lost = summary.lost_along(series, env, lambda cell: cell.setting("learning_rate"))
                tried = [(value, number(cell.mean)) for value, cell in found] + [(value, "diverged") for value in lost]
                others = ", ".join(f"{value:g}: {words}" for value, words in sorted(tried))
                at_edge = "yes" if rate in (found[0][0], found[-1][0]) else "no"
                rows.append([env, series.label, f"{rate:g}", interval(mean_interval(best, seed)), others, at_edge])
    columns = ["game", "agent", "best rate", "score there", "score by rate", "at the edge"]
    note = "Whatever else was tried is at its best for each rate. A best rate at the edge may not be the best there is."
    return Table("rates", "Learning rates", columns, rows, note)


def _penalties(summary: Summary, seed: int) -> Table:
    rows = []
    for env in summary.games:
        for series in summary.series:
            if series.agent != "s51":
                continue
            found = summary.best_along(series, env, lambda cell: (cell.setting("normalisation"), cell.penalty))
            for (normalisation, penalty), cell in found if len(found) > 1 else []:
                written = f"{cell.setting('mass_penalty'):g} ({cell.setting('mass_penalty_scale')})"
                score = interval(mean_interval(cell, seed))
                diagnostics = [_diagnostic(cell, name, summary.tail) for name in ("dist/mass", "dist/negative_mass")]
                rows.append([env, series.label, normalisation, f"{penalty:g}", written, score, *diagnostics])
    columns = ["game", "agent", "normalisation", "lambda", "as given", "score", "mass", "negative mass"]
    note = (
        "Lambda in the orthonormal convention, (lambda / K) times the squared excess of mass; one given on the total "
        "mass is K times as large there. Whatever else was tried is at its best for each."
    )
    return Table("penalties", "Mass penalty of S51", columns, rows, note)


def _diagnostics(summary: Summary) -> Table:
    there = [name for name in _DIAGNOSTICS if any(name in curve.metrics for curve in summary.curves)]
    rows = [
        [env, series.label, *(_diagnostic(summary.cells[series, env], name, summary.tail) for name in there)]
        for env in summary.games
        for series in summary.series
        if (series, env) in summary.cells
    ]
    note = f"Means over the last {tail_in_words(summary.tail)} of the steps and over seeds."
    clipped = [
        f"{series.label} on {env}"
        for env in summary.games
        for series in summary.series
        if (series, env) in summary.cells
        and _mean_diagnostic(summary.cells[series, env], "dist/clipped_mass", summary.tail) > MUCH_CLIPPED
    ]
    if clipped:
        note += (
            f" More than {MUCH_CLIPPED:.0%} of the mass lay beyond the support and was put on its ends: "
            f"{'; '.join(clipped)}. Returns beyond the ends cannot be told apart."
        )
    columns = ["game", "agent", *(_DIAGNOSTICS[name] for name in there)]
    return Table("diagnostics", "Diagnostics", columns, rows if there else [], note)


def _diagnostic(cell: Cell, name: str, tail: float) -> str:
    mean = _mean_diagnostic(cell, name, tail)
    return f"{mean:.4g}" if math.isfinite(mean) else "–"


def _mean_diagnostic(cell: Cell, name: str, tail: float) -> float:
    """Over the curves that have it; NaN where none has."""
    found = [_last_mean(curve, name, tail, cell.steps) for curve in cell.curves]
    found = [value for value in found if math.isfinite(value)]
    return float(np.mean(found)) if found else math.nan


def _last_mean(curve: Curve, name: str, tail: float, steps: int) -> float:
    values = curve.metrics.get(name, np.full(len(curve.steps), np.nan))
    rows = last_rows(curve, tail, steps) & np.isfinite(values)
    return float(values[rows].mean()) if rows.any() else math.nan


def _published(summary: Summary) -> Table:
    millions = (10, 20, 25, 40, 50, 100, 200)
    rows = []
    for env in summary.games:
        for one in anchors_for(game_name(env)):
            scores = [number(one.scores[at]) if at in one.scores else "" for at in millions]
            rows.append([env, one.agent, one.source, one.protocol, *scores])
    note = (
        "Published training scores, to see whether ours are in a sane range: other codes under the same settings "
        "differ by more than agents do. Agents are compared inside one code only."
    )
    columns = ["game", "agent", "source", "protocol", *(f"{at} M frames" for at in millions)]
    return Table("published", "Published scores", columns, rows, note)
