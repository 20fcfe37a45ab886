"""The command `cramerl report`: runs in, a page with figures and tables out."""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from cramerl._extras import require_library
from cramerl.cli.flags import integer_from, positive_fraction, require_deep_libraries, show_progress

if TYPE_CHECKING:
    from cramerl.claims import Claim
    from cramerl.report.scenes import DistributionPictures

EXAMPLES = """\
examples:
  cramerl report runs                      everything that was trained so far
  cramerl report results --out out/study   every study below a folder, each in its own section
  cramerl report runs --verify --pdf       with the paper's claims recomputed, and figures for a paper

A folder that cramerl sweep made is one study; other runs belong together with those beside them.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Describe the arguments."""
    parser.description = (
        "Learning curves, scores with 95 % bootstrap intervals, aggregates over games (IQM), performance profiles,\n"
        "comparisons of agents and sensitivity to settings. Writes report.html (one page, no network), tables.md,\n"
        "figures/, scores.json (rliable's arrays) and dopamine/ (Dopamine's rows). Where runs kept their weights, one\n"
        "of each agent plays a little and its predictions are drawn."
    )
    parser.epilog = EXAMPLES
    add = parser.add_argument
    add("runs", nargs="+", type=Path, metavar="RUNS", help="folders of runs, or folders with such folders below them")
    add("--out", type=Path, default=Path("out/report"), help="folder to write to (default: %(default)s)")
    add(
        "--tail",
        type=positive_fraction,
        default=0.2,
        metavar="X",
        help="fraction of the steps, at the end of a run, that is scored (default: %(default)s)",
    )
    add("--seed", type=integer_from(0, 2**31 - 1), default=0, help="of the bootstrap (default: %(default)s)")
    add("--evaluation", action="store_true", help="score evaluation episodes, not those of training")
    add("--mix-protocols", action="store_true", help="show runs of different protocols beside each other, labelled")
    add(
        "--unfinished",
        action="store_true",
        help="include unfinished runs; all runs on a game are then scored at the length of the shortest",
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


def run(options: argparse.Namespace) -> int:
    """Write the report."""
    require_library("matplotlib")
    from cramerl.claims.table import summary, to_json
    from cramerl.report.build import PAGE, make_report
    from cramerl.report.page import to_text

    runs, look, evaluations = _distributions(options)
    claims = _claims() if options.verify else []
    sections = make_report(
        runs,
        options.out,
        tail=options.tail,
        seed=options.seed,
        mix_protocols=options.mix_protocols,
        unfinished=options.unfinished,
        scores="evaluation" if options.evaluation else "training",
        pdf=options.pdf,
        claims=claims,
        look=look,
        evaluations=evaluations,
        on_progress=show_progress,
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


def _distributions(options: argparse.Namespace) -> tuple[list[Path], DistributionPictures | None, list[Path]]:
    """The paths that may hold runs, what draws the distributions they predict, and folders of evaluated processes."""
    if options.distributions is False:
        return options.runs, None, []
    from cramerl.report.scenes import DistributionPictures, find_evaluations, has_weights

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
    return runs, DistributionPictures(on_progress=show_progress), evaluations


def _claims() -> list[Claim]:
    from cramerl.claims import verify

    show_progress("recomputing the paper's claims ...")
    try:
        return verify()
    finally:
        show_progress("")


def write_demo_report(out: Path) -> Path:
    """The page of a demonstration: its runs, its process and the paper's claims; in place of an earlier one."""
    from cramerl.report.build import PAGE, make_report
    from cramerl.report.scenes import DistributionPictures
    from cramerl.watch.recording import is_evaluation

    make_report(
        [out / "runs"],
        out / "report",
        claims=_claims(),
        look=DistributionPictures(on_progress=show_progress),
        evaluations=[out] if is_evaluation(out) else [],
        on_progress=show_progress,
    )
    return out / "report" / PAGE
