"""`cramerl verify`: every claim of the paper, and some beyond it, recomputed."""

from __future__ import annotations

import argparse
import json
import re
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cramerl import _files
from cramerl.cli.flags import Outputs, add_overwrite_flag, show_progress

if TYPE_CHECKING:
    from cramerl.claims import Claim

EXAMPLES = """\
examples:
  cramerl verify                           a summary, and each claim in one line
  cramerl verify 9f 10b                    two claims in full
  cramerl verify --html out/claims.html    a page to filter and to open
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Describe the arguments."""
    parser.description = (
        "Recompute every numbered statement of the paper with this package's own code,\n"
        "and say whether it holds, holds with a correction, or is false as printed.\n"
        "Then the statements that this package adds (B1, B2, ...). Exit status 1 if a\n"
        "figure is not as expected."
    )
    parser.epilog = EXAMPLES
    one = "a claim, such as 9f, in full: what is true instead, and its figures (default: all, in one line each)"
    parser.add_argument("claims", nargs="*", metavar="CLAIM", help=one)
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
    show_progress("recomputing the claims ...")
    from cramerl import claims

    outputs = _check_outputs(options)
    found = claims.verify(options.claims, on_progress=show_progress)
    show_progress("")
    wanted = [(options.json, json.dumps(claims.to_json(found), indent=2))]
    if options.html or options.markdown:
        from cramerl.reports.claims_page import to_html, to_markdown

        wanted += [(options.html, to_html(found)), (options.markdown, to_markdown(found))]
    printed = [text for place, text in wanted if place == "-"]
    written = [_files.write_text(Path(place), text) for place, text in wanted if place not in (None, "-")]
    width = shutil.get_terminal_size((100, 24)).columns
    for text in printed or [_text(found, width, single=bool(options.claims))]:
        print(text)
    for path in written:
        print(outputs.say(path), file=sys.stderr if printed else sys.stdout)
    if not printed:
        print(*_what_next(options, found), sep="\n")
    return 0 if all(claim.passed for claim in found) else 1


def _check_outputs(options: argparse.Namespace) -> Outputs:
    """Raise ValueError if a file cannot be written, before work is done for it."""
    places = [Path(place) for place in (options.json, options.html, options.markdown) if place not in (None, "-")]
    if len({place.resolve() for place in places}) < len(places):
        raise ValueError(f"--json, --html and --markdown must be different files, got {places[0]} and {places[-1]}")
    outputs = Outputs("cramerl verify", overwrite=options.overwrite)
    for flag in ("json", "html", "markdown"):
        if re.fullmatch(r"b?\d+[a-z]?", getattr(options, flag) or "", re.IGNORECASE):
            raise ValueError(f"--{flag} must be followed by a file, got {getattr(options, flag)}: write claims first")
        if getattr(options, flag) not in (None, "-"):
            outputs.check(f"--{flag}", Path(getattr(options, flag)))
    return outputs


def _text(found: Sequence[Claim], width: int, *, single: bool) -> str:
    """Claims in full if they were asked for, otherwise all of them in one line each."""
    from cramerl.claims.table import format_claim, format_table

    return "\n\n".join(format_claim(claim, width) for claim in found) if single else format_table(found, width)


def _what_next(options: argparse.Namespace, found: Sequence[Claim]) -> list[str]:
    """The commands worth typing afterwards."""
    from cramerl.claims.table import by_importance

    lines = [
        "",
        "all claims:          cramerl verify"
        if options.claims
        else f"one claim in full:   cramerl verify {by_importance(found)[0].id}",
    ]
    if options.html:
        return [*lines, f"to read the page:    open {shlex.quote(options.html)}"]
    return [*lines, "as a page to filter: cramerl verify --html out/claims.html"]
