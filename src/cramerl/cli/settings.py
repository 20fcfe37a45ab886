"""A flag for every setting of a run, for the commands that train."""

from __future__ import annotations

import argparse
import re
from collections.abc import Collection, Mapping
from typing import Any, get_args, get_origin

from cramerl.runs.config import LANE_SETTINGS, SETTINGS, setting_types

_GROUPS = {
    "run": "run",
    "environment": "environment",
    "learner": "learner",
    "head": "head (what the network's outputs mean)",
    "evaluation": "evaluation",
}


def add_setting_flags(parser: argparse.ArgumentParser, left_out: Collection[str]) -> None:
    """Add a flag for every setting but those left out, in groups; `setting_texts` finds those that were given."""
    # Python 3.11 takes -1e2 for a flag; -1,-2 are values of a sweep.
    parser._negative_number_matcher = re.compile(r"^-(\d+\.?\d*|\.\d+)(e[+-]?\d+)?(,.*)?$", re.IGNORECASE)
    groups = {}
    for name, setting in SETTINGS.items():
        if name not in left_out:
            group = groups.get(setting.group) or parser.add_argument_group(_GROUPS[setting.group])
            groups[setting.group] = group
            several = "; several, separated by commas, train at once (gymnax only)" if name in LANE_SETTINGS else ""
            help_text = f"{setting.help}{several} ({_bounds(setting.bounds)}default: preset)"
            _add_setting(group, name, setting_types()[name], help_text)


def setting_texts(options: argparse.Namespace, left_out: Collection[str]) -> dict[str, str]:
    """The settings whose flags were given, as the user typed them."""
    return {name: getattr(options, name) for name in SETTINGS if name not in left_out and hasattr(options, name)}


def _add_setting(group: Any, name: str, hint: Any, help_text: str) -> None:
    """Add the flag of a setting. Its text is parsed later, so that a bad value gives a sentence, not a usage page."""
    flag, help_text = name.replace("_", "-"), help_text.replace("%", "%%")
    if hint is bool:
        metavar = "BOOL"
        group.add_argument(
            f"--{flag}", nargs="?", const="true", metavar=metavar, default=argparse.SUPPRESS, help=help_text
        )
        off = {"action": "store_const", "const": "false", "default": argparse.SUPPRESS}
        group.add_argument(f"--no-{flag}", dest=name, help=argparse.SUPPRESS, **off)
        return
    metavar = {int: "N", float: "X", str: "TEXT"}.get(hint, "N,N")
    if get_args(hint) and get_origin(hint) is not tuple:
        metavar = "{" + ",".join(get_args(hint)) + "}"
    group.add_argument(f"--{flag}", metavar=metavar, default=argparse.SUPPRESS, help=help_text)


def _bounds(bounds: Mapping[str, float]) -> str:
    signs = {"low": ">=", "above": ">", "high": "<="}
    words = [f"{signs[end]} {bounds[end]}" for end in signs if end in bounds]
    return f"{' and '.join(words)}; " if words else ""
