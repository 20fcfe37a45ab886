"""Claims as one self-contained HTML page."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from cramerl.linear.claims.claim import CORRECTED, FALSE, HOLDS, VERDICTS, Claim, Verdict
from cramerl.linear.claims.table import MARKS, count, show

_CLASSES: dict[Verdict, str] = {HOLDS: "holds", CORRECTED: "corrected", FALSE: "false"}
_COUNTED: dict[Verdict, str] = {HOLDS: "hold", CORRECTED: "hold with a correction", FALSE: "are false"}

_STYLE = """
:root { color-scheme: light dark; --text: #1b1f24; --soft: #57606a; --page: #ffffff; --card: #f4f6f8; --line: #d0d7de;
  --holds: #0a6b3d; --corrected: #8a5a00; --false: #b3261e; }
@media (prefers-color-scheme: dark) { :root { --text: #e6edf3; --soft: #9aa4af; --page: #0d1117; --card: #161b22;
  --line: #30363d; --holds: #56d364; --corrected: #e3b341; --false: #ff7b72; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1rem; max-width: 60rem; background: var(--page); color: var(--text);
  font: 1rem/1.5 system-ui, sans-serif; }
h1 { font-size: 1.4rem; margin: 0.5rem 0; }
p { margin: 0.5rem 0; }
.soft { color: var(--soft); }
.counts { display: flex; flex-wrap: wrap; gap: 0.5rem; padding: 0; margin: 1rem 0; list-style: none; }
.counts li { flex: 1 1 9rem; padding: 0.6rem 0.8rem; background: var(--card); border-radius: 0.5rem; }
.counts b { display: block; font-size: 1.6rem; line-height: 1.2; }
details { border-top: 1px solid var(--line); }
summary { display: flex; gap: 0.7rem; padding: 0.7rem 0; cursor: pointer; list-style: none; }
summary::-webkit-details-marker { display: none; }
summary::after { content: "+"; margin-left: auto; color: var(--soft); }
details[open] summary::after { content: "\\2212"; }
summary .id { flex: none; width: 2.2rem; font-weight: 600; }
summary .mark { flex: none; width: 1.2rem; font-weight: 700; }
.body { padding: 0 0 1rem 2.9rem; }
table { border-collapse: collapse; width: 100%; margin-top: 0.5rem; font-size: 0.9rem; }
th, td { padding: 0.25rem 0.5rem 0.25rem 0; text-align: left; vertical-align: top; overflow-wrap: anywhere; }
th { color: var(--soft); font-weight: 400; }
td + td { font-variant-numeric: tabular-nums; }
.holds { color: var(--holds); } .corrected { color: var(--corrected); } .false, .moved { color: var(--false); }
.moved { font-weight: 600; }
@media (max-width: 34rem) { .body { padding-left: 0; } }
@media print { details::details-content { content-visibility: visible; } }
"""


def to_html(claims: Sequence[Claim]) -> str:
    """One page without network: the counts on top, each claim to be opened for its correction and its figures.

    Readable on a phone, in light and in dark. Claims whose figures have moved are open from the start.
    """
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>The paper's claims, recomputed</title>
<style>{_STYLE}</style>
</head>
<body>
<h1>The paper’s claims, recomputed</h1>
<p class="soft">Bellemare, Le Roux, Castro and Moitra, Distributional reinforcement learning with linear function
approximation (2019). Open a claim for what is true instead and for its figures.</p>
{_counts(claims)}
{_state(claims)}
<main>
{"".join(map(_claim, claims))}</main>
</body>
</html>
"""


def _counts(claims: Sequence[Claim]) -> str:
    found = count(claims)
    tiles = [f"<li><b>{len(claims)}</b>claims</li>"]
    tiles += [
        f'<li><b class="{_CLASSES[verdict]}">{MARKS[verdict]} {found[verdict]}</b>{_COUNTED[verdict]}</li>'
        for verdict in VERDICTS
    ]
    return f'<ul class="counts">{"".join(tiles)}</ul>'


def _state(claims: Sequence[Claim]) -> str:
    moved = [claim.id for claim in claims if not claim.passed]
    if moved:
        return f'<p class="moved">Figures have moved in {escape(", ".join(moved))}.</p>'
    return f"<p>All {sum(len(claim.figures) for claim in claims)} figures are reproduced.</p>"


def _claim(claim: Claim) -> str:
    verdict = _CLASSES[claim.verdict]
    warning = "" if claim.passed else ' <span class="moved">figures have moved</span>'
    return f"""<details id="claim-{escape(claim.id)}"{"" if claim.passed else " open"}>
<summary><span class="id">{escape(claim.id)}</span><span class="mark {verdict}" title="{claim.verdict}">\
{MARKS[claim.verdict]}</span><span>{escape(claim.statement)}{warning}</span></summary>
<div class="body">
<p><b class="{verdict}">{claim.verdict.capitalize()}.</b> {escape(claim.correction)}</p>
<table>
<tr><th scope="col">figure</th><th scope="col">recomputed</th><th scope="col">expected</th></tr>
{"".join(_figure(claim, name) for name in claim.figures)}</table>
</div>
</details>
"""


def _figure(claim: Claim, name: str) -> str:
    figure, expected = claim.figures[name], claim.expected[name]
    moved = "" if expected.admits(figure) else ' class="moved"'
    cells = (name, show(figure, expected), expected.text)
    return f"<tr{moved}>{''.join(f'<td>{escape(cell)}</td>' for cell in cells)}</tr>\n"
