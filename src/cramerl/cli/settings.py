"""A flag for every setting of a run, for the commands that train."""

from __future__ import annotations

import argparse
import re
from collections.abc import Collection
from typing import Any, Literal, get_args, get_origin

from cramerl.runs.config import LANE_SETTINGS, SETTINGS, setting_types
from cramerl.runs.env_options import Options


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
        add, hint = groups[setting.group].add_argument, setting_types()[name]
        if hint is bool:
            add(_flag(name), nargs="?", const="true", metavar="BOOL", **common)
            add(
                f"--no-{name.replace('_', '-')}",
                dest=name,
                action="store_const",
                const="false",
                **common | {"help": argparse.SUPPRESS},
            )
            continue
        if hint == Options:
            add(_flag(name), dest=name, action=_OnALine, metavar="KEY=VALUE", **common)
            continue
        metavar = {int: "N", float: "X", float | None: "X", str: "TEXT"}.get(hint, "N,N")
        if get_origin(hint) is Literal:
            metavar = "{" + ",".join(get_args(hint)) + "}"
        add(_flag(name), metavar=metavar, **common)


def setting_words(name: str, text: str) -> list[str]:
    """The flag of a setting with its text, as words of a command line."""
    texts = text.split("\n") if setting_types()[name] == Options else [text]
    return [word for one in texts for word in (_flag(name), one)]


def setting_texts(options: argparse.Namespace, left_out: Collection[str]) -> dict[str, str]:
    """The settings whose flags were given, as the user typed them."""
    return {name: getattr(options, name) for name in SETTINGS if name not in left_out and hasattr(options, name)}


def _flag(name: str) -> str:
    """A flag that can be given several times names one of several."""
    word = name.removesuffix("s") if setting_types()[name] == Options else name
    return f"--{word.replace('_', '-')}"


class _OnALine(argparse.Action):
    """Adds a text on a line of its own to those given before."""

    def __call__(self, parser: Any, namespace: argparse.Namespace, values: Any, option_string: Any = None) -> None:
        before = getattr(namespace, self.dest, None)
        setattr(namespace, self.dest, values if before is None else f"{before}\n{values}")
