"""A report as one self-contained HTML page, as Markdown, and as lines for a terminal."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from cramerl.study import plots
from cramerl.study.report_tables import Table
from cramerl.study.summaries import Summary

GENERATOR = "cramerl report"
_STYLE = """
:root { color-scheme: light dark; --text: #1b1f24; --soft: #57606a; --page: #ffffff; --card: #f4f6f8; --line: #d0d7de; }
@media (prefers-color-scheme: dark) { :root { --text: #e6edf3; --soft: #9aa4af; --page: #0d1117; --card: #161b22;
  --line: #30363d; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1rem; max-width: 72rem; background: var(--page); color: var(--text);
  font: 1rem/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; margin: 0.5rem 0; }
h2 { font-size: 1.25rem; margin: 2.5rem 0 0.5rem; border-top: 1px solid var(--line); padding-top: 1rem; }
h3 { font-size: 1rem; margin: 1.5rem 0 0.3rem; }
p, ul { margin: 0.5rem 0; max-width: 60rem; }
.soft, figcaption { color: var(--soft); font-size: 0.9rem; }
figure { margin: 1rem 0; }
figure svg { max-width: 100%; height: auto; color: var(--text); }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: 0.9rem; font-variant-numeric: tabular-nums; }
th, td { padding: 0.2rem 1rem 0.2rem 0; text-align: left; vertical-align: top; white-space: nowrap; }
th { color: var(--soft); font-weight: 400; border-bottom: 1px solid var(--line); }
code { background: var(--card); padding: 0.1rem 0.3rem; overflow-wrap: anywhere; }
"""


class Picture(NamedTuple):
    """A figure as it goes into the page."""

    name: str
    title: str
    caption: str
    svg: str


class Section(NamedTuple):
    """What a report says of one study."""

    summary: Summary
    notes: list[str]
    tables: list[Table]
    pictures: list[Picture]


def to_html(sections: Sequence[Section]) -> str:
    """One page without network, readable on a phone, in light and in dark."""
    links = "".join(f'<li><a href="#study-{i}">{escape(one.summary.title)}</a></li>' for i, one in enumerate(sections))
    body = "".join(_section(i, one) for i, one in enumerate(sections))
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="generator" content="{GENERATOR}">
<title>Report of {_studies(sections)}</title>
<style>{_STYLE}</style>
</head>
<body>
<h1>Report of {_studies(sections)}</h1>
{f"<ul>{links}</ul>" if len(sections) > 1 else ""}
{body}</body>
</html>
"""


def to_markdown(sections: Sequence[Section]) -> str:
    """The tables and notes."""
    lines = ["# Tables", "", f"Made by `{GENERATOR}`."]
    for one in sections:
        lines += ["", f"## {one.summary.title}", "", *(f"- {fact}" for fact in _facts(one))]
        for table in one.tables:
            lines += ["", f"### {table.title}", "", _markdown_row(table.columns)]
            lines += [_markdown_row(["---"] * len(table.columns)), *map(_markdown_row, table.rows)]
            lines += ["", table.note] if table.note else []
    return "\n".join(lines) + "\n"


def to_text(sections: Sequence[Section], width: int) -> str:
    """A short table per study for a terminal: agents below each other, games side by side."""
    lines: list[str] = []
    for one in sections:
        lines += [one.summary.title, *_grid(one, width), *(f"note: {note}" for note in one.notes), ""]
    return "\n".join(lines).rstrip("\n")


def _studies(sections: Sequence[Section]) -> str:
    runs = sum(len(one.summary.curves) for one in sections)
    return f"{runs:,} {'run' if runs == 1 else 'runs'}"


def _section(i: int, one: Section) -> str:
    facts = "".join(f"<li>{escape(fact)}</li>" for fact in _facts(one))
    pictures = "".join(_picture(f"s{i}-{picture.name}", picture) for picture in one.pictures)
    tables = "".join(map(_table, one.tables))
    title = escape(one.summary.title)
    return f'<section id="study-{i}">\n<h2>{title}</h2>\n<ul class="soft">{facts}</ul>\n{pictures}{tables}</section>\n'


def _facts(one: Section) -> list[str]:
    """How the runs were made and scored, and what is missing."""
    summary = one.summary
    facts = [f"Made by: {summary.study.command}"] if summary.study.command else []
    by_protocol: dict[str, list[str]] = {}
    for env in summary.games:
        for protocol in summary.protocols[env]:
            by_protocol.setdefault(protocol.sentence, []).append(env)
    facts += [f"Protocol ({', '.join(envs)}): {words}." for words, envs in by_protocol.items()]
    facts += [f"Versions: {', '.join(words)}." for words in _versions(summary)]
    return facts + one.notes


def _versions(summary: Summary) -> list[list[str]]:
    found = {tuple(f"{name} {value}" for name, value in curve.versions.items()): None for curve in summary.curves}
    return [list(words) for words in sorted(found) if words]


def _picture(prefix: str, picture: Picture) -> str:
    caption = f"<figcaption>{escape(picture.caption)}</figcaption>"
    return f"<h3>{escape(picture.title)}</h3>\n<figure>\n{inline_svg(prefix, picture)}\n{caption}\n</figure>\n"


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
    return f'<h3>{escape(table.title)}</h3>\n<div class="wide"><table>\n<tr>{head}</tr>\n{rows}</table></div>\n{note}'


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
