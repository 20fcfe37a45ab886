"""A report as one self-contained HTML page, as Markdown, and as lines for a terminal."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from typing import Any, NamedTuple

from cramerl import plots
from cramerl.claims import Claim
from cramerl.claims.table import show, summary
from cramerl.evidence.scores import Summary
from cramerl.report.claims_page import STYLE as CLAIMS_STYLE
from cramerl.report.claims_page import to_fragment
from cramerl.report.settings import settings_table, versions
from cramerl.report.tables import Table

GENERATOR = "cramerl report"
_NETWORK = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:"
_THEORY = "The paper’s claims, recomputed"
_LAWS, _PROCESSES = "Distributions", "Evaluated processes"
_HOW_TO_READ = (
    "A bar is the mass that is predicted on one return. Masses are signed: those below the line, in orange, are "
    "negative mass, which no probability has. The dashed line is the mean."
)
_CHOSEN = " The frame marks the action that was chosen."
_BROAD = 500  # points: a figure that a phone shows in part, to be pushed sideways, for its letters would be too small
_POINT = (
    ' <span class="point">Point at a panel, touch it, or walk through it with the arrow keys, for its values.</span>'
)


class Picture(NamedTuple):
    """A figure as it goes into the page; ``values`` as from `panel_values`, ``file`` without its suffix."""

    name: str
    title: str
    caption: str
    svg: str
    values: list[dict[str, Any]]
    file: str


class Distributions(NamedTuple):
    """Pictures of predicted distributions, and sentences on those there are none of."""

    pictures: Sequence[Picture] = ()
    sentences: Sequence[str] = ()


class Section(NamedTuple):
    """What a report says of one study."""

    summary: Summary
    notes: list[str]
    tables: list[Table]
    pictures: list[Picture]
    distributions: Distributions = Distributions()


def to_html(sections: Sequence[Section], claims: Sequence[Claim] = (), processes: Distributions | None = None) -> str:
    """One page without network, readable on a phone, in light and in dark, and on paper.

    Args:
        sections: what to say of each study.
        claims: of the paper, recomputed; none: the page is silent about them.
        processes: the distributions of processes that were evaluated.
    """
    processes = processes or Distributions()
    body = "".join(_section(i, one) for i, one in enumerate(sections)) + _processes(processes)
    body += _theory(claims) if claims else ""
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{_NETWORK}">
<meta name="generator" content="{GENERATOR}">
<title>Report of {_studies(sections, processes)}</title>
<link rel="icon" href="data:,">
<style>{_read("report.css")}{CLAIMS_STYLE if claims else ""}</style>
</head>
<body>
<h1>Report of {_studies(sections, processes)}</h1>
{_contents(sections, claims, processes)}
{body}<script>{_read("report.js")}</script>
</body>
</html>
"""


def to_markdown(
    sections: Sequence[Section], claims: Sequence[Claim] = (), processes: Distributions | None = None
) -> str:
    """The tables and notes, and where the pictures of distributions are."""
    lines = ["# Tables", "", f"Made by `{GENERATOR}`."]
    for one in sections:
        lines += ["", f"## {one.summary.title}", "", *(f"- {fact}" for fact in _facts(one))]
        for table in one.tables:
            lines += ["", f"### {table.title}", "", *_markdown_table(table)]
        lines += _markdown_distributions(f"### {_LAWS}", one.distributions, _HOW_TO_READ + _CHOSEN)
    lines += _markdown_distributions(f"## {_PROCESSES}", processes or Distributions(), _HOW_TO_READ)
    if claims:
        lines += ["", f"## {_THEORY}", "", *_markdown_table(_claims_table(claims))]
    return "\n".join(lines) + "\n"


def to_text(sections: Sequence[Section], width: int) -> str:
    """A short table per study for a terminal: agents below each other, games side by side."""
    lines: list[str] = []
    for one in sections:
        notes = [*one.notes, *(f"{_LAWS}: {words}" for words in one.distributions.sentences)]
        lines += [
            one.summary.title,
            *_grid(one, width),
            *(line for note in notes for line in textwrap.wrap(f"note: {note}", max(width, 32))),
            "",
        ]
    return "\n".join(lines).rstrip("\n")


def _studies(sections: Sequence[Section], processes: Distributions) -> str:
    runs, evaluated = sum(len(one.summary.curves) for one in sections), len(processes.pictures)
    words = [f"{runs:,} {'run' if runs == 1 else 'runs'}"] if runs or not evaluated else []
    words += [f"{evaluated:,} evaluated {'process' if evaluated == 1 else 'processes'}"] if evaluated else []
    return " and ".join(words)


def _contents(sections: Sequence[Section], claims: Sequence[Claim], processes: Distributions) -> str:
    """Links to every study, and below each to its figures and tables."""
    items = []
    for i, one in enumerate(sections):
        parts = [(f"study-{i}-figure-{part.name}", part.title) for part in one.pictures]
        parts += [(f"study-{i}-distributions", _LAWS)] if any(one.distributions) else []
        parts += [(f"study-{i}-table-{part.name}", part.title) for part in one.tables]
        parts += [(f"study-{i}-settings", "Settings and versions")]
        links = "".join(f"<li>{_link(*part)}</li>" for part in parts)
        items.append(f"<li>{_link(f'study-{i}', one.summary.title)}<ul>{links}</ul></li>\n")
    items += [f"<li>{_link('processes', _PROCESSES)}</li>\n"] if any(processes) else []
    items += [f"<li>{_link('theory', _THEORY)}</li>\n"] if claims else []
    return f'<nav aria-label="Contents"><ul>\n{"".join(items)}</ul></nav>'


def _link(target: str, words: str) -> str:
    return f'<a href="#{target}">{escape(words)}</a>'


def _section(i: int, one: Section) -> str:
    facts = "".join(f"<li>{escape(fact)}</li>" for fact in [*_made_by(one.summary), *one.notes])
    place = f"study-{i}"
    pictures = "".join(
        _heading(f"{place}-figure-{part.name}", part.title) + _picture(place, part) for part in one.pictures
    )
    distributions = (
        _heading(f"{place}-distributions", _LAWS)
        + _distribution_pictures(place, one.distributions, _HOW_TO_READ + _CHOSEN)
        if any(one.distributions)
        else ""
    )
    tables = "".join(_heading(f"study-{i}-table-{table.name}", table.title) + _table(table) for table in one.tables)
    return f"""<section id="study-{i}">
<h2>{escape(one.summary.title)}</h2>
<ul class="soft">{facts}</ul>
{pictures}{distributions}{tables}{_settings(i, one.summary)}</section>
"""


def _settings(i: int, summary: Summary) -> str:
    words = "".join(f"<p>{escape(fact)}</p>\n" for fact in _versions(summary))
    table = _table(settings_table(summary))
    return f"""<details class="settings" id="study-{i}-settings">
<summary>Settings and versions</summary>
{words}{table}</details>
"""


def _distribution_pictures(place: str, distributions: Distributions, how: str) -> str:
    how = f"<p>{how}</p>\n" if distributions.pictures else ""
    pictures = [
        f"<h4>{escape(part.title)}</h4>\n{_picture(place, part, 'distributions')}" for part in distributions.pictures
    ]
    words = "".join(f'<p class="soft">{escape(sentence)}</p>\n' for sentence in distributions.sentences)
    return f"{how}{''.join(pictures)}{words}"


def _processes(distributions: Distributions) -> str:
    body = _distribution_pictures("process", distributions, _HOW_TO_READ)
    return f'<section id="processes">\n<h2>{_PROCESSES}</h2>\n{body}</section>\n' if any(distributions) else ""


def _theory(claims: Sequence[Claim]) -> str:
    return f"""<section id="theory">
<h2>{_THEORY}</h2>
<p class="soft">Bellemare, Le Roux, Castro and Moitra, Distributional reinforcement learning with linear function
approximation (2019). Open a claim for what is true instead and for its figures.</p>
{to_fragment(claims)}</section>
"""


def _heading(name: str, words: str) -> str:
    return f'<h3 id="{name}">{escape(words)}</h3>\n'


def _facts(one: Section) -> list[str]:
    """How the runs were made and scored, and what is missing."""
    return [*_made_by(one.summary), *_versions(one.summary), *one.notes]


def _made_by(summary: Summary) -> list[str]:
    facts = [f"Made by: {summary.study.command}"] if summary.study.command else []
    by_protocol: dict[str, list[str]] = {}
    for env in summary.games:
        for protocol in summary.protocols[env]:
            by_protocol.setdefault(protocol.sentence, []).append(env)
    return facts + [f"Protocol ({', '.join(envs)}): {words}." for words, envs in by_protocol.items()]


def _versions(summary: Summary) -> list[str]:
    return [f"Versions: {', '.join(words)}." for words in versions(summary)]


def _picture(place: str, picture: Picture, kind: str = "") -> str:
    width = re.search(r'<svg[^>]* width="([\d.]+pt)"', picture.svg)
    size = f' style="width: {width[1]}"' if width else ""
    broad = " broad" if width and float(width[1].removesuffix("pt")) > _BROAD else ""
    values = json.dumps(picture.values, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    data = '<script type="application/json" class="values">' + values.replace("<", "\\u003c") + "</script>\n"
    return f"""<figure{f' class="{kind}"' if kind else ""}>
<div class="plot{broad}"{size}>
{inline_svg(f"{place}-{picture.name}", picture)}
{data if picture.values else ""}</div>
<figcaption>{escape(picture.caption)}{_POINT if picture.values else ""}</figcaption>
</figure>
"""


def inline_svg(prefix: str, picture: Picture) -> str:
    """The drawing as part of a page: names of its own, the page's colours for words and ground."""
    svg = picture.svg[picture.svg.index("<svg") :].strip()
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{prefix}-", svg)
    svg = svg.replace(plots.INK, "currentColor").replace(f"fill: {plots.PAPER}", "fill: none")
    return svg.replace("<svg", f'<svg role="img" aria-label="{escape(picture.title)}"', 1)


def _table(table: Table) -> str:
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in table.columns)
    rows = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>\n" for row in table.rows)
    note = f'<p class="soft">{escape(table.note)}</p>\n' if table.note else ""
    parts = f"<thead><tr>{head}</tr></thead>\n<tbody>\n{rows}</tbody>"
    return f'<div class="wide"><table class="sortable">\n{parts}</table></div>\n{note}'


def _read(name: str) -> str:
    return files("cramerl.report").joinpath("assets", name).read_text(encoding="utf-8")


def _markdown_table(table: Table) -> list[str]:
    head = [_markdown_row(table.columns), _markdown_row(["---"] * len(table.columns))]
    return [*head, *map(_markdown_row, table.rows), *(["", table.note] if table.note else [])]


def _markdown_distributions(heading: str, distributions: Distributions, how: str) -> list[str]:
    lines = ["", heading, ""] if any(distributions) else []
    lines += [how, ""] if distributions.pictures else []
    for part in distributions.pictures:
        lines += [f"![{part.title}: {_LAWS.lower()}](figures/{part.file}.svg)", "", part.caption, ""]
    lines += [words for sentence in distributions.sentences for words in (sentence, "")]
    return lines[:-1]


def _claims_table(claims: Sequence[Claim]) -> Table:
    rows = []
    for claim in claims:
        figures = [f"{name}: {show(figure, claim.expected[name])}" for name, figure in claim.figures.items()]
        rows.append([claim.id, claim.statement, claim.verdict, claim.correction, "; ".join(figures)])
    columns = ["claim", "the paper says", "verdict", "what is true", "recomputed"]
    return Table("claims", _THEORY, columns, rows, summary(claims))


def _markdown_row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _grid(one: Section, width: int) -> list[str]:
    scores = next((table for table in one.tables if table.name == "scores"), None)
    if scores is None:
        return ["no scores"]
    cells = {(row[1], row[0]): row[2] for row in scores.rows}
    agents = list(dict.fromkeys(agent for agent, _ in cells))
    columns = [[env, *(cells.get((agent, env), "") for agent in agents)] for env in one.summary.games]
    aggregates = next((table for table in one.tables if table.name == "aggregates"), None)
    if aggregates is not None and len(one.summary.games) > 1:
        found = {row[0]: row[1] for row in aggregates.rows}
        columns.append(["IQM", *(found.get(agent, "") for agent in agents)])
    first = ["", *agents]
    lines, place = [], 0
    while place < len(columns):
        taken = [first]
        while place < len(columns) and (len(taken) == 1 or _width([*taken, columns[place]]) <= width):
            taken.append(columns[place])
            place += 1
        sizes = [max(map(len, column)) for column in taken]
        for row in zip(*taken, strict=True):
            lines.append("  " + "  ".join(f"{cell:<{size}}" for cell, size in zip(row, sizes, strict=True)).rstrip())
    return lines


def _width(columns: list[list[str]]) -> int:
    return sum(max(map(len, column)) + 2 for column in columns)
