"""A flag for every setting of a run, for the commands that train."""

from __future__ import annotations

import argparse
import re
from collections.abc import Collection
from typing import Literal, get_args, get_origin

from cramerl.runs.config import LANE_SETTINGS, SETTINGS, setting_types


def add_setting_flags(parser: argparse.ArgumentParser, left_out: Collection[str]) -> None:
    """Add a flag for every setting but those left out, in groups; `setting_texts` finds those that were given."""
    # Python 3.11 takes -1e2 for a flag; -1,-2 are values of a sweep.
    parser._negative_number_matcher = re.compile(r"^-(\d+\.?\d*|\.\d+)(e[+-]?\d+)?(,.*)?$", re.IGNORECASE)
    groups, signs = {}, {"low": ">=", "above": ">", "high": "<="}
    for name, setting in SETTINGS.items():
        if name in left_out:
            continue
        if setting.group not in groups:
            title = "head (what the network's outputs mean)" if setting.group == "head" else setting.group
            groups[setting.group] = parser.add_argument_group(title)
        several = "; several, separated by commas, train at once (gymnax only)" if name in LANE_SETTINGS else ""
        bounds = " and ".join(f"{signs[end]} {setting.bounds[end]}" for end in signs if end in setting.bounds)
        allowed = f"{bounds}; " if bounds else ""
        help_text = f"{setting.help}{several} ({allowed}default: preset)"
        # The text is parsed later, so that a bad value gives a sentence, not a usage page.
        common = {"default": argparse.SUPPRESS, "help": help_text.replace("%", "%%")}
        add, flag, hint = groups[setting.group].add_argument, name.replace("_", "-"), setting_types()[name]
        if hint is bool:
            add(f"--{flag}", nargs="?", const="true", metavar="BOOL", **common)
            add(f"--no-{flag}", dest=name, action="store_const", const="false", **common | {"help": argparse.SUPPRESS})
            continue
        metavar = {int: "N", float: "X", float | None: "X", str: "TEXT"}.get(hint, "N,N")
        if get_origin(hint) is Literal:
            metavar = "{" + ",".join(get_args(hint)) + "}"
        add(f"--{flag}", metavar=metavar, **common)


def setting_texts(options: argparse.Namespace, left_out: Collection[str]) -> dict[str, str]:
    """The settings whose flags were given, as the user typed them."""
    return {name: getattr(options, name) for name in SETTINGS if name not in left_out and hasattr(options, name)}
