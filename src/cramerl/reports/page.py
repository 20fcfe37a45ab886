"""A report as one self-contained HTML page, as Markdown, and as lines for a terminal."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Sequence
from typing import Any, NamedTuple

from cramerl import plots
from cramerl._pages import render
from cramerl.claims import Claim
from cramerl.evidence.summary import Summary
from cramerl.reports.claims_page import claims_context
from cramerl.reports.dots import DotPlot, dot_plots
from cramerl.reports.figures import Figure
from cramerl.reports.headline import headline
from cramerl.reports.labels import left_out, short_labels
from cramerl.reports.tables import Table, interval_text, make_tables, settings_table, tail_text
from cramerl.reports.telling import telling_tables

GENERATOR = "cramerl report"
_MOST_SOURCES = 10
_HOW_TO_READ = (
    "A bar is the mass predicted on one return. Masses are signed: bars below the line, in orange, are negative mass, "
    "which no probability distribution has. The vertical line is the mean."
)


class Picture(NamedTuple):
    """A figure as the page shows it.

    Attributes:
        figure: its name, title and caption.
        svg: the drawing, see `inline_svg`.
        width: its width in points.
        values: the values shown where a reader points, see `panel_values`.
        file: name of its files, without suffix.
    """

    figure: Figure
    svg: str
    width: float
    values: list[dict[str, Any]]
    file: str


class Distributions(NamedTuple):
    """Pictures of predicted distributions, and sentences on those that are missing."""

    pictures: Sequence[Picture] = ()
    sentences: Sequence[str] = ()

    def __bool__(self) -> bool:
        return bool(self.pictures or self.sentences)


NOTHING_DRAWN = Distributions()


class Section(NamedTuple):
    """What a report says about one study."""

    summary: Summary
    tables: list[Table]
    pictures: list[Picture]
    distributions: Distributions = NOTHING_DRAWN

    @property
    def origin(self) -> list[str]:
        """How the runs were made, played and scored."""
        summary = self.summary
        by_protocol: dict[str, list[str]] = {}
        for env in summary.games:
            for protocol in summary.protocols[env]:
                by_protocol.setdefault(protocol.sentence, []).append(env)
        facts = [f"Protocol ({', '.join(envs)}): {sentence}." for sentence, envs in by_protocol.items()]
        read = dict.fromkeys(curve.place for curve in summary.curves if curve.subject.config is None)
        if read:
            more = f" and {len(read) - _MOST_SOURCES} more" if len(read) > _MOST_SOURCES else ""
            facts.append(f"Logs of other libraries: {', '.join(list(read)[:_MOST_SOURCES])}{more}.")
        return [f"Made by: {summary.study.command}", *facts] if summary.study.command else facts

    @property
    def finding(self) -> str:
        """What the study found, in words."""
        return headline(self.summary)

    @property
    def dots(self) -> list[DotPlot]:
        """The scores as dots."""
        return dot_plots(self.summary)

    @property
    def notes(self) -> list[str]:
        """What is missing or was chosen, and what short names stand for."""
        return [*self.summary.notes, *left_out(self.summary.series)]

    def telling(self) -> tuple[list[Table], str]:
        """The tables of the page, with short names, and a sentence on what is hidden."""
        return telling_tables(self.summary, make_tables(self.summary, short_labels(self.summary.series)))

    @property
    def versions(self) -> list[str]:
        """The versions of libraries that runs were made with, each combination once."""
        curves = self.summary.curves
        found = {", ".join(f"{name} {value}" for name, value in curve.versions.items()) for curve in curves}
        return [f"Versions: {words}." for words in sorted(found) if words]


def to_html(sections: Sequence[Section], claims: Sequence[Claim] = (), processes: Distributions = NOTHING_DRAWN) -> str:
    """One page that needs no network; it can be read on a phone, in light and in dark mode, and on paper.

    Args:
        sections: what to say about each study.
        claims: the paper's claims, recomputed; if empty, they are not mentioned.
        processes: the distributions of evaluated processes.
    """
    runs, evaluated = sum(len(one.summary.curves) for one in sections), len(processes.pictures)
    counts = [f"{runs:,} {'run' if runs == 1 else 'runs'}"] if runs or not evaluated else []
    counts += [f"{evaluated:,} evaluated {'process' if evaluated == 1 else 'processes'}"] if evaluated else []
    return _render(
        "report.html", sections, claims, processes, dots_note=_dots_note, title=f"Report of {' and '.join(counts)}"
    )


def to_markdown(
    sections: Sequence[Section], claims: Sequence[Claim] = (), processes: Distributions = NOTHING_DRAWN
) -> str:
    """The tables and notes, with links to the figures of distributions; see `to_html`."""
    return _render("tables.md", sections, claims, processes)


def _render(
    template: str, sections: Sequence[Section], claims: Sequence[Claim], processes: Distributions, **more: Any
) -> str:
    values = {"generator": GENERATOR, "how_to_read": _HOW_TO_READ, "sections": sections, "processes": processes}
    values |= {"settings_table": settings_table} | claims_context(claims) | more
    return render("cramerl.reports", template, **values)


def _dots_note(summary: Summary) -> str:
    """What the dots are."""
    single = any(not math.isfinite(group.score.low) for group in summary.shown)
    interval = "; a bar is a 95 % bootstrap interval" + (", which one seed does not have" if single else "")
    tail = tail_text(summary.scoring.tail)
    return (
        f"A dot is the mean return in the {tail} of the steps, over seeds{interval}. Lines run from the lowest to the "
        "highest value on them."
    )


def inline_svg(svg: str, prefix: str) -> str:
    """A drawing as part of a page, without its opening ``<svg``, to which templates add attributes.

    The names of its parts begin with ``prefix``, and words and background take the page's colours.
    """
    svg = svg[svg.index("<svg") + len("<svg") :].strip("\n")
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{prefix}-", svg)
    return svg.replace(plots.INK, "currentColor").replace(f"fill: {plots.PAPER}", "fill: none")


def to_text(sections: Sequence[Section], width: int) -> str:
    """A short table for each study, for a terminal: agents below each other, games side by side."""
    lines: list[str] = []
    for one in sections:
        notes = [*one.notes, *(f"Distributions: {words}" for words in one.distributions.sentences)]
        lines += [one.summary.title, *textwrap.wrap(one.finding, max(width, 32)), *_grid(one.summary, width)]
        lines += [line for note in notes for line in textwrap.wrap(f"note: {note}", max(width, 32))]
        lines.append("")
    return "\n".join(lines).rstrip("\n")


def _grid(summary: Summary, width: int) -> list[str]:
    """The scores of each agent, in as many blocks of columns as the width needs."""
    if not summary.best:
        return ["no scores"]
    columns = {
        env: {series: best.score for (series, game), best in summary.best.items() if game == env}
        for env in summary.games
    }
    if summary.aggregates is not None and len(summary.games) > 1:
        columns["IQM"] = {series: found["iqm"] for series, found in summary.aggregates.intervals.items()}
    agents = ["", *short_labels(summary.series).values()]
    blocks: list[list[list[str]]] = []
    for title, found in columns.items():
        column = [title, *(interval_text(found[one]) if one in found else "" for one in summary.series)]
        if not blocks or sum(max(map(len, one)) + 2 for one in [*blocks[-1], column]) > width:
            blocks.append([agents])
        blocks[-1].append(column)
    lines = []
    for block in blocks:
        sizes = [max(map(len, column)) for column in block]
        for row in zip(*block, strict=True):
            lines.append("  " + "  ".join(f"{cell:<{size}}" for cell, size in zip(row, sizes, strict=True)).rstrip())
    return lines
