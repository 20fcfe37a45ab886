"""`cramerl report`: runs in, a page with figures and tables out."""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cramerl._extras import require_library
from cramerl.cli.flags import integer_from, number_in, show_progress

if TYPE_CHECKING:
    from cramerl.claims import Claim

EXAMPLES = """\
examples:
  cramerl report runs                      everything that was trained so far
  cramerl report results --out out/study   every study below a folder, each in its own section
  cramerl report runs --verify --pdf       with the paper's claims recomputed, and figures for a paper

A folder made by cramerl sweep is one study. Other runs belong to one study if their folders are next to each other.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Describe the arguments."""
    parser.description = (
        "Learning curves, scores with 95 % bootstrap intervals, aggregates over games (IQM), performance profiles,\n"
        "comparisons of agents and sensitivity to settings. Writes report.html (one page, no network), tables.md,\n"
        "figures/, scores.json (rliable's arrays) and dopamine/ (Dopamine's rows). If runs kept their weights, one of\n"
        "each agent plays a little, and the distributions it predicts are drawn."
    )
    parser.epilog = EXAMPLES
    add = parser.add_argument
    add("runs", nargs="+", type=Path, metavar="RUNS", help="folders of runs, or folders that contain them")
    add("--out", type=Path, default=Path("out/report"), help="folder to write to (default: %(default)s)")
    scored = "fraction of a run's steps, at its end, that is scored (default: %(default)s)"
    add("--tail", type=number_in("in (0, 1]", lambda value: 0 < value <= 1), default=0.2, metavar="X", help=scored)
    add("--seed", type=integer_from(0, 2**31 - 1), default=0, help="seed of the bootstrap (default: %(default)s)")
    add("--evaluation", action="store_true", help="score evaluation episodes instead of training episodes")
    add("--mix-protocols", action="store_true", help="show runs of different protocols side by side, labelled")
    unfinished = "include unfinished runs; all runs on a game are then scored at the length of the shortest"
    add("--unfinished", action="store_true", help=unfinished)
    add("--verify", action="store_true", help="also show the paper's claims, recomputed (takes some seconds)")
    add("--pdf", action="store_true", help="also write the figures as PDF")
    drawn = (
        "draw the distributions that agents predict while they play (default: if runs kept their weights and the extra "
        "'deep' is installed)"
    )
    add("--distributions", action=argparse.BooleanOptionalAction, help=drawn)
    add("--json", action="store_true", help="print the tables as JSON")


def run(options: argparse.Namespace) -> int:
    """Write the report."""
    require_library("matplotlib", "jinja2")
    from cramerl.claims.table import summary, to_json
    from cramerl.evidence.summary import Scoring
    from cramerl.reports.build import PAGE, make_report
    from cramerl.reports.page import to_text

    scoring = Scoring(
        tail=options.tail,
        kind="evaluation" if options.evaluation else "training",
        mix_protocols=options.mix_protocols,
        unfinished=options.unfinished,
        seed=options.seed,
    )
    claims = _verify() if options.verify else []
    shown = {"claims": claims, "distributions": options.distributions, "pdf": options.pdf}
    replaced = (options.out / PAGE).exists()
    sections = make_report(options.runs, options.out, scoring, **shown, on_progress=show_progress)
    page = options.out / PAGE
    if options.json:
        content: dict[str, Any] = {"page": str(page), "studies": []}
        for one in sections:
            tables = [table._asdict() for table in one.tables]
            content["studies"].append({"name": one.summary.title, "notes": one.summary.notes, "tables": tables})
        print(json.dumps(content | ({"theory": to_json(claims)} if claims else {}), indent=2))
    else:
        print(to_text(sections, shutil.get_terminal_size((100, 24)).columns))
        print(f"\n{summary(claims)}" if claims else "", f"{'replaced' if replaced else 'wrote'} {page}", sep="\n")
    return 0 if all(claim.passed for claim in claims) else 1


def write_demo_report(out: Path) -> Path:
    """Write the page of a demonstration: its runs, its process and the paper's claims. An earlier one is replaced."""
    from cramerl.reports.build import PAGE, make_report

    make_report([out], out / "report", claims=_verify(), on_progress=show_progress)
    return out / "report" / PAGE


def _verify() -> list[Claim]:
    from cramerl.claims import verify

    show_progress("recomputing the paper's claims ...")
    try:
        return verify()
    finally:
        show_progress("")
