"""The command `cramerl report`: runs in, a page with figures and tables out."""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cramerl.cli_agents import integer_from, require_deep_libraries, require_library, show_progress

if TYPE_CHECKING:
    from cramerl.linear.claims import Claim
    from cramerl.study.report_scenes import LawPictures

REPORT_EXAMPLES = """\
examples:
  cramerl report runs                      everything that was trained so far
  cramerl report results --out out/study   every study below a folder, each in its own section
  cramerl report runs --verify --pdf       with the paper's claims recomputed, and figures for a paper

A folder that cramerl sweep made is one study; other runs belong together with those beside them.
"""


def add_report_command(commands: Any) -> None:
    """Add report to the command line."""
    report = commands.add_parser(
        "report",
        help="figures, tables and statistics of runs",
        description="Learning curves, scores with 95 % bootstrap intervals, aggregates over games (IQM), performance "
        "profiles,\ncomparisons of agents and sensitivity to what was tried. Writes report.html (one page, no network),"
        "\ntables.md, figures/, scores.json (rliable's arrays) and dopamine/ (Dopamine's rows).\nWhere runs kept their "
        "weights, one of each agent is played a little and what it predicts is drawn.",
        epilog=REPORT_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = report.add_argument
    add("runs", nargs="+", type=Path, metavar="RUNS", help="folders of runs, or folders with such folders below them")
    add("--out", type=Path, default=Path("out/report"), help="folder to write to (default: %(default)s)")
    add(
        "--share", type=_share, default=0.2, metavar="X", help="last share of the steps to score (default: %(default)s)"
    )
    add("--seed", type=integer_from(0, 2**31 - 1), default=0, help="of the bootstrap (default: %(default)s)")
    add("--evaluation", action="store_true", help="score evaluation episodes, not those of training")
    add("--mix-protocols", action="store_true", help="show runs of different protocols beside each other, labelled")
    add(
        "--unfinished",
        action="store_true",
        help="also score runs that are not finished though others on the same game are: all where the shortest ends",
    )
    add("--verify", action="store_true", help="also show the paper's claims, recomputed (some seconds)")
    add("--pdf", action="store_true", help="also write the figures as PDF")
    add(
        "--distributions",
        action=argparse.BooleanOptionalAction,
        help="pictures of what agents predict while they play (default: where runs kept their weights and the extra "
        "'deep' is installed)",
    )
    add("--json", action="store_true", help="print the tables as JSON")
    report.set_defaults(run=_report)


def _share(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= 1:
        raise argparse.ArgumentTypeError(f"must be a number in (0, 1], got {text!r}")
    return value


def _report(options: argparse.Namespace) -> int:
    require_library("matplotlib", "plot")
    from cramerl.linear.claims.table import summary, to_json
    from cramerl.study.report import PAGE, make_report
    from cramerl.study.report_page import to_text

    runs, look, evaluations = _distributions(options)
    claims = _claims() if options.verify else []
    sections = make_report(
        runs,
        options.out,
        share=options.share,
        seed=options.seed,
        mix_protocols=options.mix_protocols,
        unfinished=options.unfinished,
        scores="evaluation" if options.evaluation else "training",
        pdf=options.pdf,
        claims=claims,
        look=look,
        evaluations=evaluations,
        tell=show_progress,
    )
    page = options.out / PAGE
    if options.json:
        studies = [
            {"name": one.summary.title, "notes": one.notes, "tables": [table._asdict() for table in one.tables]}
            for one in sections
        ]
        theory = {"theory": to_json(claims)} if claims else {}
        print(json.dumps({"page": str(page), "studies": studies} | theory, indent=2))
    else:
        print(to_text(sections, shutil.get_terminal_size((100, 24)).columns))
        print(f"\n{summary(claims)}" if claims else "", f"wrote {page}", sep="\n")
    return 0 if all(claim.passed for claim in claims) else 1


def _distributions(options: argparse.Namespace) -> tuple[list[Path], LawPictures | None, list[Path]]:
    """The paths that may hold runs, what draws the laws they predict, and folders of evaluated processes."""
    if options.distributions is False:
        return options.runs, None, []
    from cramerl.study.report_scenes import LawPictures, find_evaluations, has_weights

    runs, evaluations = find_evaluations(options.runs)
    if options.distributions:
        if any(has_weights(path) for path in runs):
            require_deep_libraries()
        elif not evaluations:
            given = ", ".join(map(str, options.runs))
            raise ValueError(
                "--distributions needs runs that kept their weights (their setting checkpoints is full or weights) or "
                f"what cramerl evaluate wrote, there is none in {given}"
            )
    return runs, LawPictures(tell=show_progress), evaluations


def _claims() -> list[Claim]:
    from cramerl.linear.claims import verify

    show_progress("recomputing the paper's claims ...")
    try:
        return verify()
    finally:
        show_progress("")


def write_demo_report(out: Path) -> Path:
    """The page of a demonstration: its runs, its process and the paper's claims; in place of an earlier one."""
    from cramerl.study.report import PAGE, make_report
    from cramerl.study.report_scenes import LawPictures
    from cramerl.study.watch.process import is_evaluation

    make_report(
        [out / "runs"],
        out / "report",
        claims=_claims(),
        look=LawPictures(tell=show_progress),
        evaluations=[out] if is_evaluation(out) else [],
        tell=show_progress,
    )
    return out / "report" / PAGE
