"""`cramerl verify`: every claim of the paper, and some beyond it, recomputed."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from pathlib import Path

from cramerl import _files
from cramerl.cli.flags import Outputs, add_overwrite_flag, show_progress


def configure(parser: argparse.ArgumentParser) -> None:
    """Describe the arguments."""
    parser.description = (
        "Recompute every numbered statement of the paper with this package's own code: the claim, the figure, and\n"
        "whether it holds, holds with a correction, or is false (with a counterexample). Then the statements that\n"
        "this package adds (B1, B2, ...). Exit status 1 if a figure is not as expected."
    )
    for kind, what in (
        ("json", "the figures as JSON"),
        ("html", "a page to read in a browser"),
        ("markdown", "Markdown"),
    ):
        help_text = f"also write {what}; without FILE, print it instead of the table"
        parser.add_argument(f"--{kind}", nargs="?", const="-", metavar="FILE", help=help_text)
    add_overwrite_flag(parser)


def run(options: argparse.Namespace) -> int:
    """Recompute the claims."""
    from cramerl import claims

    places = [Path(place) for place in (options.json, options.html, options.markdown) if place not in (None, "-")]
    if len({place.resolve() for place in places}) < len(places):
        raise ValueError(f"--json, --html and --markdown must be different files, got {places[0]} and {places[-1]}")
    outputs = Outputs("cramerl verify", overwrite=options.overwrite)
    for flag in ("json", "html", "markdown"):
        if getattr(options, flag) not in (None, "-"):
            outputs.check(f"--{flag}", Path(getattr(options, flag)))
    show_progress("recomputing the claims ...")
    found = claims.verify()
    show_progress("")
    wanted = [(options.json, json.dumps(claims.to_json(found), indent=2))]
    if options.html or options.markdown:
        from cramerl.reports.claims_page import to_html, to_markdown

        wanted += [(options.html, to_html(found)), (options.markdown, to_markdown(found))]
    printed = [text for place, text in wanted if place == "-"]
    written = [_files.write_text(Path(place), text) for place, text in wanted if place not in (None, "-")]
    for text in printed or [claims.format_table(found, shutil.get_terminal_size((100, 24)).columns)]:
        print(text)
    for path in written:
        print(outputs.say(path), file=sys.stderr if printed else sys.stdout)
    return 0 if all(claim.passed for claim in found) else 1
