"""Claims as one self-contained HTML page, and as a page of Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from cramerl.claims.claim import CORRECTED, FALSE, HOLDS, VERDICTS, Claim, Verdict
from cramerl.claims.table import MARKS, count, show

_CLASSES: dict[Verdict, str] = {HOLDS: "holds", CORRECTED: "corrected", FALSE: "false"}
_COUNTED: dict[Verdict, str] = {HOLDS: "hold", CORRECTED: "hold with a correction", FALSE: "are false"}

_PAGE_STYLE = """
:root { color-scheme: light dark; --text: #1b1f24; --soft: #57606a; --page: #ffffff; --card: #f4f6f8; --line: #d0d7de; }
@media (prefers-color-scheme: dark) { :root { --text: #e6edf3; --soft: #9aa4af; --page: #0d1117; --card: #161b22;
  --line: #30363d; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1rem; max-width: 60rem; background: var(--page); color: var(--text);
  font: 1rem/1.5 system-ui, sans-serif; }
h1 { font-size: 1.4rem; margin: 0.5rem 0; }
p { margin: 0.5rem 0; }
.soft { color: var(--soft); }
"""
# Of the claims alone, for pages that show them among other things. They bring --text, --soft, --card and --line.
STYLE = """
.claims { --holds: #0a6b3d; --corrected: #8a5a00; --false: #b3261e; }
@media (prefers-color-scheme: dark) { .claims { --holds: #56d364; --corrected: #e3b341; --false: #ff7b72; } }
.claims .counts { display: flex; flex-wrap: wrap; gap: 0.5rem; padding: 0; margin: 1rem 0; list-style: none; }
.claims .counts li { flex: 1 1 9rem; padding: 0.6rem 0.8rem; background: var(--card); border-radius: 0.5rem; }
.claims .counts b { display: block; font-size: 1.6rem; line-height: 1.2; }
.claims details { border-top: 1px solid var(--line); }
.claims summary { display: flex; gap: 0.7rem; padding: 0.7rem 0; cursor: pointer; list-style: none; }
.claims summary::-webkit-details-marker { display: none; }
.claims summary::after { content: "+"; margin-left: auto; color: var(--soft); }
.claims details[open] summary::after { content: "\\2212"; }
.claims summary .id { flex: none; width: 2.2rem; font-weight: 600; }
.claims summary .mark { flex: none; width: 1.2rem; font-weight: 700; }
.claims .body { padding: 0 0 1rem 2.9rem; }
.claims table { border-collapse: collapse; width: 100%; margin-top: 0.5rem; font-size: 0.9rem; }
.claims th, .claims td { padding: 0.25rem 0.5rem 0.25rem 0; text-align: left; vertical-align: top;
  white-space: normal; overflow-wrap: anywhere; }
.claims th { color: var(--soft); font-weight: 400; }
.claims td + td { font-variant-numeric: tabular-nums; }
.claims .holds { color: var(--holds); } .claims .corrected { color: var(--corrected); }
.claims .false, .claims .moved { color: var(--false); }
.claims .moved { font-weight: 600; }
@media (max-width: 34rem) { .claims .body { padding-left: 0; } }
@media print { .claims details::details-content { content-visibility: visible; height: auto; } }
"""


_MARKDOWN_START = """\
# The paper's claims

Every numbered statement of Bellemare, Le Roux, Castro and Moitra, *Distributional reinforcement learning with linear
function approximation* (2019), recomputed by this library. This page is made by `cramerl verify --markdown FILE`.
"""
_MARKDOWN_LETTERS = r"""
A figure that is not what is expected would be a bug here, whatever the verdict about the paper: then `cramerl verify`
ends with exit status 1. What is below 1e-6, as rounding leaves it, is shown as 0.

Letters: p and q are masses on k atoms z; u = 1/k, e = 1/√k; C is the lower-triangular matrix of ones, C\_0 is C'C (or
CC') centred in rows and columns, C\_λ = C\_0 + λee'; M\_r is the projected backup r + γz; Φ are features, ξ the weights
of states, Π\_Φ the projection onto the features. T' is the backup of all states; any other prime is a transpose."""


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
<style>{_PAGE_STYLE}{STYLE}</style>
</head>
<body>
<h1>The paper’s claims, recomputed</h1>
<p class="soft">Bellemare, Le Roux, Castro and Moitra, Distributional reinforcement learning with linear function
approximation (2019). Open a claim for what is true instead and for its figures.</p>
<main>
{to_fragment(claims)}</main>
</body>
</html>
"""


def to_fragment(claims: Sequence[Claim]) -> str:
    """The counts and the claims as a part of a page that has `STYLE`."""
    return f"""<div class="claims">
{_counts(claims)}
{_state(claims)}
{"".join(map(_claim, claims))}</div>
"""


def to_markdown(claims: Sequence[Claim]) -> str:
    """A page of Markdown: a table of the verdicts, then each claim with its correction and its figures.

    What rounding leaves is shown as 0, so that the page is the same on another processor.
    """
    found = count(claims)
    verdicts = ", ".join(f"{found[verdict]} {_COUNTED[verdict]}" for verdict in VERDICTS)
    rows = [
        f"| [{claim.id}](#claim-{claim.id}) | {_plain(claim.statement)} | {MARKS[claim.verdict]} {claim.verdict} |"
        for claim in claims
    ]
    parts = [
        _MARKDOWN_START,
        f"**Of {len(claims)} statements {verdicts}.** {_moved(claims)}\n",
        "| claim | the paper says | verdict |",
        "| --- | --- | --- |",
        *rows,
        _MARKDOWN_LETTERS,
        *(line for claim in claims for line in _markdown_claim(claim)),
    ]
    return "\n".join(parts) + "\n"


def _markdown_claim(claim: Claim) -> list[str]:
    figures = [
        f"| {_plain(name)} | {_settled(claim, name)} | {_plain(claim.expected[name].text)} |" for name in claim.figures
    ]
    return [
        "",
        f"## Claim {claim.id}",
        "",
        f"> {_plain(claim.statement)}",
        "",
        f"**{claim.verdict.capitalize()}.** {_plain(claim.correction)}",
        "",
        "| figure | recomputed | expected |",
        "| --- | --- | --- |",
        *figures,
    ]


def _settled(claim: Claim, name: str) -> str:
    figure = claim.figures[name]
    return "0" if abs(figure) < 1e-6 else show(figure, claim.expected[name])


def _plain(text: str) -> str:
    """Text in which Markdown finds nothing to mark up."""
    return "".join(f"\\{letter}" if letter in "\\`*_|<>[]$#~^{}" else letter for letter in text)


def _counts(claims: Sequence[Claim]) -> str:
    found = count(claims)
    tiles = [f"<li><b>{len(claims)}</b>claims</li>"]
    tiles += [
        f'<li><b class="{_CLASSES[verdict]}">{MARKS[verdict]} {found[verdict]}</b>{_COUNTED[verdict]}</li>'
        for verdict in VERDICTS
    ]
    return f'<ul class="counts">{"".join(tiles)}</ul>'


def _state(claims: Sequence[Claim]) -> str:
    mark = "" if all(claim.passed for claim in claims) else ' class="moved"'
    return f"<p{mark}>{escape(_moved(claims))}</p>"


def _moved(claims: Sequence[Claim]) -> str:
    moved = [claim.id for claim in claims if not claim.passed]
    if moved:
        return f"Figures have moved in {', '.join(moved)}."
    return f"All {sum(len(claim.figures) for claim in claims)} figures are reproduced."


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
