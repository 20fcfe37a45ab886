"""A flag for every setting of a run, for the commands that train, and help that shows the values they will have."""

from __future__ import annotations

import argparse
import difflib
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Literal, get_args, get_origin

from cramerl.runs.config import LANE_SETTINGS, LARGEST, SETTINGS, meant_setting, setting_types
from cramerl.runs.env_options import Options

Values = Callable[[argparse.Namespace], Mapping[str, Any] | None]
_SIGNS = {"low": ">=", "above": ">", "high": "<="}
_CONSTANTS = {"wandb": ("track", "wandb"), "trackio": ("track", "trackio")}  # flags that mean one value of a setting
_ELSEWHERE = {
    "device": "JAX chooses the device; the environment variable JAX_PLATFORMS, such as cpu, chooses for it",
    "cuda": "JAX uses an accelerator if there is one; JAX_PLATFORMS=cpu turns that off",
}


def add_setting_flags(
    parser: argparse.ArgumentParser, left_out: Collection[str], values: Values = lambda options: None
) -> None:
    """Add a flag for every setting but those left out, in groups; `setting_texts` finds those that were given.

    Args:
        parser: of a command, without help: ``--help`` will show the common settings, ``--help-all`` all of them.
        left_out: settings that have no flag here.
        values: the settings that the words before ``--help`` ask for; None if they do not say.
    """
    # Python 3.11 takes -1e2 for a flag; -1,-2 are values of a sweep.
    parser._negative_number_matcher = re.compile(r"^-(\d+\.?\d*|\.\d+)(e[+-]?\d+)?(,.*)?$", re.IGNORECASE)
    groups: dict[str, Any] = {}
    shown: dict[str, argparse.Action] = {}
    for name, setting in SETTINGS.items():
        if name in left_out:
            continue
        if setting.group not in groups:
            title = "head (what the network's outputs mean)" if setting.group == "head" else setting.group
            groups[setting.group] = parser.add_argument_group(title)
        shown[name] = _add_flags(groups[setting.group].add_argument, name)
    hidden: dict[str, Any] = {"default": argparse.SUPPRESS, "help": argparse.SUPPRESS}
    for flag, (name, value) in _CONSTANTS.items():
        parser.add_argument(f"--{flag}", dest=name, action="store_const", const=value, **hidden)
    for flags, every, text in ((["-h", "--help"], False, "show this"), (["--help-all"], True, "show every setting")):
        help_text = f"{text}, and exit"
        parser.add_argument(*flags, action=_Help, shown=shown, every=every, values=values, help=help_text)


def _add_flags(add: Callable[..., argparse.Action], name: str) -> argparse.Action:
    """The flag of a setting, and hidden ones for its other names."""
    # The text is parsed later, so that a bad value gives a sentence, not a usage page.
    hint, flags = setting_types()[name], [word.replace("_", "-") for word in (name, *SETTINGS[name].aliases)]
    hidden: dict[str, Any] = {"dest": name, "default": argparse.SUPPRESS, "help": argparse.SUPPRESS}
    options: dict[str, Any] = {"metavar": {int: "N", float: "X", float | None: "X", str: "TEXT"}.get(hint, "N,N")}
    if get_origin(hint) is Literal:
        options = {"metavar": "{" + ",".join(get_args(hint)) + "}"}
    if hint == Options:
        flags, options = [_flag(name).removeprefix("--")], {"action": _OnALine, "metavar": "KEY=VALUE"}
    if hint is bool:
        options = {"nargs": "?", "const": "true", "metavar": "BOOL"}
        for flag in flags:
            add(f"--no-{flag}", action="store_const", const="false", **hidden)
    if len(flags) > 1:
        options["action"] = _UnderOneName
    for alias in flags[1:]:
        add(f"--{alias}", **hidden, **options)
    return add(f"--{flags[0]}", **hidden | {"help": SETTINGS[name].help}, **options)


class _Help(argparse.Action):
    """Shows the help of a command that trains: the common settings or all, with the values they will have."""

    def __init__(self, option_strings: Any, dest: str, *, shown: Any, every: bool, values: Values, help: str):
        super().__init__(option_strings, dest=argparse.SUPPRESS, default=argparse.SUPPRESS, nargs=0, help=help)
        self._shown, self._every, self._values = shown, every, values

    def __call__(self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, *_: Any) -> None:
        try:
            values = self._values(namespace)
        except (OSError, ValueError) as error:
            parser.error(str(error))
        for name, action in self._shown.items():
            wanted = (self._every or SETTINGS[name].common) and (values is None or name in values)
            text = _help_text(name, every=self._every)
            if values is not None and wanted:
                text += f" (here: {_text(values[name])})"
            action.help = text.replace("%", "%%") if wanted else argparse.SUPPRESS
        parser.print_help()
        parser.exit()


def _help_text(name: str, *, every: bool) -> str:
    setting = SETTINGS[name]
    ends = [end for end in _SIGNS if setting.bounds.get(end, LARGEST) != LARGEST]
    bounds = " and ".join(f"{_SIGNS[end]} {setting.bounds[end]}" for end in ends)
    several = "; several, separated by commas, train at once (gymnax only)" if name in LANE_SETTINGS else ""
    also = f"; also {', '.join(f'--{word}'.replace('_', '-') for word in setting.aliases)}" if setting.aliases else ""
    return f"{setting.help}{several}{also if every else ''}{f' ({bounds})' if bounds and every else ''}"


def _text(value: Any) -> str:
    """A value as it is typed."""
    if isinstance(value, list):
        return ",".join(map(_text, value))
    if isinstance(value, float):
        return f"{value:g}"
    return "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value) or "none"


def setting_words(name: str, text: str) -> list[str]:
    """The flag of a setting with its text, as words of a command line."""
    texts = text.split("\n") if setting_types()[name] == Options else [text]
    return [word for one in texts for word in (_flag(name), one)]


def setting_texts(options: argparse.Namespace, left_out: Collection[str]) -> dict[str, str]:
    """The settings whose flags were given, as the user typed them."""
    return {name: getattr(options, name) for name in SETTINGS if name not in left_out and hasattr(options, name)}


def explain_flag(flag: str, known: Iterable[str]) -> str:
    """What to use instead of a flag that a command does not have, as the end of a sentence."""
    word, known = flag.partition("=")[0].lstrip("-"), list(known)
    if word in _ELSEWHERE and "--preset" in known:
        return f"; {_ELSEWHERE[word]}"
    meant = meant_setting(word)
    if meant is not None and f"--{meant.replace('_', '-')}" in known:
        return f"; did you mean --{meant.replace('_', '-')}? ({SETTINGS[meant].help})"
    near = difflib.get_close_matches(flag.partition("=")[0], known, n=1)
    return f"; did you mean {near[0]}?" if near else ""


def _flag(name: str) -> str:
    """A flag that can be given several times names one of several."""
    word = name.removesuffix("s") if setting_types()[name] == Options else name
    return f"--{word.replace('_', '-')}"


class _UnderOneName(argparse.Action):
    """Keeps a text; refuses another one that is given under another name of the setting."""

    def __call__(self, parser: Any, namespace: argparse.Namespace, values: Any, option_string: Any = None) -> None:
        before = getattr(namespace, f"{self.dest} is given as", option_string)
        if before != option_string:
            raise argparse.ArgumentError(self, f"{self.dest} must be given once, got {before} and {option_string}")
        setattr(namespace, f"{self.dest} is given as", option_string)
        setattr(namespace, self.dest, values)


class _OnALine(argparse.Action):
    """Adds a text on a line of its own to those given before."""

    def __call__(self, parser: Any, namespace: argparse.Namespace, values: Any, option_string: Any = None) -> None:
        before = getattr(namespace, self.dest, None)
        setattr(namespace, self.dest, values if before is None else f"{before}\n{values}")
