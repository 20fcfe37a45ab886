"""`cramerl report`: runs in, a page with figures and tables out."""

from __future__ import annotations

import argparse
import json
import shlex
import shutil
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cramerl._extras import require_library
from cramerl.cli.flags import Outputs, add_overwrite_flag, integer_from, number_in, show_progress

if TYPE_CHECKING:
    from cramerl.claims import Claim
    from cramerl.reports.page import Section

EXAMPLES = """\
examples:
  cramerl report runs                      everything that was trained so far
  cramerl report results --out out/study   each study below a folder by itself
  cramerl report runs --claims --pdf       with the paper's claims recomputed,
                                           and figures for a paper
  cramerl report theirs.csv                another library's runs: a table with
                                           agent, env, seed, step and return
  cramerl report theirs.csv --columns agent=algo,step=frames
                                           with other names of columns
  cramerl report cleanrl/runs sb3/logs     event files of TensorBoard, monitors
  cramerl report runs theirs.csv --mix-protocols
                                           ours and theirs side by side

A folder made by cramerl sweep is one study. Other runs belong to one study if
their folders are next to each other.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Describe the arguments."""
    parser.description = (
        "Say which agent is ahead, by how much, and what cannot be said with so few\n"
        "runs. Then learning curves, scores with 95 % bootstrap intervals, aggregates\n"
        "over games (IQM), performance profiles, comparisons of agents and sensitivity\n"
        "to settings. Writes report.html (one page, no network), tables.md, figures/,\n"
        "scores.json (rliable's arrays) and dopamine/ (Dopamine's rows). If runs kept\n"
        "their weights, one of each agent plays a little, and the distributions it\n"
        "predicts are drawn."
    )
    parser.epilog = EXAMPLES
    add = parser.add_argument
    runs = (
        "folders of runs, or folders that contain them; logs of other libraries: CSV, TSV or Parquet tables, folders "
        "with event files of TensorBoard or monitors of Stable-Baselines3, JSON files of Dopamine's rows"
    )
    add("runs", nargs="+", type=Path, metavar="RUNS", help=runs)
    add("--out", type=Path, default=Path("out/report"), help="folder to write to (default: %(default)s)")
    scored = "fraction of a run's steps, at its end, that is scored (default: %(default)s)"
    add("--tail", type=number_in("in (0, 1]", lambda value: 0 < value <= 1), default=0.2, metavar="X", help=scored)
    add("--seed", type=integer_from(0, 2**31 - 1), default=0, help="seed of the bootstrap (default: %(default)s)")
    add("--evaluation", action="store_true", help="score evaluation episodes instead of training episodes")
    columns = "names of columns of tables, as in step=global_step,return=score; for event files, return=TAG"
    add("--columns", type=_pairs, metavar="PAIRS", help=columns)
    add("--mix-protocols", action="store_true", help="show runs of different protocols side by side, labelled")
    unfinished = "include unfinished runs; all runs on a game are then scored at the length of the shortest"
    add("--unfinished", action="store_true", help=unfinished)
    claims = "also show the paper's claims, recomputed (takes some seconds); --verify is the same"
    add("--claims", "--verify", action="store_true", help=claims)
    add("--pdf", action="store_true", help="also write the figures as PDF")
    drawn = (
        "draw the distributions that agents predict while they play (default: if runs kept their weights and the extra "
        "'deep' is installed)"
    )
    add("--distributions", action=argparse.BooleanOptionalAction, help=drawn)
    add("--json", action="store_true", help="print the tables as JSON")
    add_overwrite_flag(parser)


def run(options: argparse.Namespace) -> int:
    """Write the report."""
    show_progress("reading runs ...")
    require_library("matplotlib", "jinja2")
    from cramerl.claims.table import summary, to_json
    from cramerl.evidence.summary import Scoring
    from cramerl.reports.build import PAGE, make_report
    from cramerl.reports.page import GENERATOR, to_text

    page, outputs = options.out / PAGE, Outputs(GENERATOR, overwrite=options.overwrite)
    outputs.check_folder(options.out, (PAGE,))
    scoring = Scoring(
        tail=options.tail,
        kind="evaluation" if options.evaluation else "training",
        mix_protocols=options.mix_protocols,
        unfinished=options.unfinished,
        seed=options.seed,
    )
    claims = _verify() if options.claims else []
    shown = {"columns": options.columns, "claims": claims, "distributions": options.distributions, "pdf": options.pdf}
    shown |= {"overwrite": options.overwrite, "on_progress": show_progress}
    try:
        sections = make_report(options.runs, options.out, scoring, **shown)
    except ValueError as error:  # which names the argument of the function
        raise ValueError(str(error).replace("as in columns ", "as in --columns ")) from error
    if options.json:
        content: dict[str, Any] = {"page": str(page), "studies": []}
        for one in sections:
            tables = [table._asdict() for table in one.tables]
            content["studies"].append({"name": one.summary.title, "notes": one.summary.notes, "tables": tables})
        print(json.dumps(content | ({"theory": to_json(claims)} if claims else {}), indent=2))
    else:
        width = shutil.get_terminal_size((100, 24)).columns
        texts = [to_text(sections, width), textwrap.fill(summary(claims), width) if claims else ""]
        print("\n\n".join([text for text in texts if text] + [outputs.say(page)]))
        print(*_what_next(sections, page), sep="\n")
    return 0 if all(claim.passed for claim in claims) else 1


def _what_next(sections: Sequence[Section], page: Path) -> list[str]:
    """The commands worth typing after a report: an agent whose masses may be negative is worth watching."""
    from cramerl.reports.playing import SIGNED, has_weights

    lines = [f"to read it:             open {shlex.quote(str(page))}"]
    found = [curve for section in sections for curve in section.summary.curves if curve.subject.config is not None]
    curves = [curve for curve in found if has_weights(curve.source)]
    for curve in sorted(curves, key=lambda one: one.agent not in SIGNED)[:1]:
        lines.append(f"to see its predictions: cramerl watch {shlex.quote(str(curve.source))}")
    return lines


def _pairs(text: str) -> dict[str, str]:
    """Names of columns by what they mean."""
    pairs = [part.partition("=") for part in text.split(",")]
    if not all(role.strip() and name.strip() for role, _, name in pairs):
        raise argparse.ArgumentTypeError(f"must be pairs such as agent=algo,step=global_step, got {text!r}")
    return {role.strip(): name.strip() for role, _, name in pairs}


def write_demo_report(out: Path) -> Path:
    """Write the page of a demonstration: its runs and its process. An earlier one is replaced."""
    from cramerl.reports.build import PAGE, make_report

    make_report([out], out / "report", on_progress=show_progress)
    return out / "report" / PAGE


def _verify() -> list[Claim]:
    from cramerl.claims import verify

    show_progress("recomputing the paper's claims ...")
    try:
        return verify()
    finally:
        show_progress("")
