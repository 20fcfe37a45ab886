"""What commands share: types of arguments, progress on one line, checks of what is installed and where to write."""

from __future__ import annotations

import argparse
import math
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from cramerl._extras import DEEP_LIBRARIES, require_library
from cramerl._files import require_replaceable
from cramerl._printable import printable
from cramerl.runs.hub import is_address, parse_address
from cramerl.runs.names import agent_folder, said_choice

AGENT_HELP = "folder of a run or an export, an agent that comes with cramerl (breakout/l51), or hf://USER/NAME"


def one_agent(name: str) -> Path:
    """The folder of the one agent that a command is given; says which, where only its game was named."""
    say_download(name)
    folder = agent_folder(name)
    if choice := said_choice(name):
        print(f"cramerl: {choice}", file=sys.stderr)
    return folder


def say_download(name: str) -> None:
    """Say that an address of a hub is looked up, which takes seconds."""
    if is_address(name):
        print(f"looking up {parse_address(name)} ...", file=sys.stderr, flush=True)


def integer_from(least: int, most: int | None = None) -> Callable[[str], int]:
    """A type of argument: integers from ``least`` to ``most``."""

    def integer(text: str) -> int:
        if not text.isdecimal() or int(text) < least or (most is not None and int(text) > most):
            end = "" if most is None else f" and <= {most}"
            raise argparse.ArgumentTypeError(f"must be an integer >= {least}{end}, got {text!r}")
        return int(text)

    return integer


def number_in(allowed: str, accept: Callable[[float], bool]) -> Callable[[str], float]:
    """A type of argument: numbers that ``accept`` accepts; ``allowed`` describes them in the error."""

    def number(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not accept(value):
            raise argparse.ArgumentTypeError(f"must be a number {allowed}, got {text!r}")
        return value

    return number


probability = number_in("in [0, 1]", lambda value: 0 <= value <= 1)


def given_flags(options: argparse.Namespace, names: Iterable[str]) -> list[str]:
    """Which of these flags, which have no default, were given."""
    given = [name for name in names if getattr(options, name) is not None and getattr(options, name) is not False]
    return [f"--{name.replace('_', '-')}" for name in given]


def add_lane_flag(parser: argparse.ArgumentParser) -> None:
    """Add ``--lane``, which selects one run of a group."""
    parser.add_argument(
        "--lane",
        type=integer_from(0),
        default=0,
        metavar="N",
        help="which run of a group that was trained in one program, counted from 0 (default: %(default)s)",
    )


def add_trust_flag(parser: Any) -> None:
    """Add ``--trust-modules``, to a parser or a group of arguments."""
    text = "let the folder name a Python module to run, as in the environment MODULE:Env-v0; only if you trust it"
    parser.add_argument("--trust-modules", action="store_true", help=text)


def show_progress(text: str) -> None:
    """Show a line that the next one overwrites, if a person is watching."""
    if sys.stderr.isatty():
        terminal = getattr(sys.stderr, "unfiltered", sys.stderr)
        print(f"\r{printable(text)}\033[K", end="", file=terminal, flush=True)


def say(text: str) -> None:
    """Print a line, wrapped to the terminal if a person is reading; a file or a pipe gets it whole."""
    if sys.stdout.isatty():
        width = max(shutil.get_terminal_size((100, 24)).columns, 40)
        text = textwrap.fill(text, width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
    print(text, flush=True)


def require_deep_libraries() -> None:
    """Say what to install before an agent is trained or played."""
    require_library(*DEEP_LIBRARIES)


def add_overwrite_flag(parser: argparse.ArgumentParser) -> None:
    """Add ``--overwrite``, for `Outputs`."""
    text = "replace files that this command did not write (its own are replaced anyway, and it says so)"
    parser.add_argument("--overwrite", action="store_true", help=text)


class Outputs:
    """The files that a command writes: it replaces its own of earlier times, and others only with ``--overwrite``.

    Args:
        maker: the command, such as "cramerl watch".
        overwrite: whether ``--overwrite`` was given.
    """

    def __init__(self, maker: str, *, overwrite: bool):
        self._maker, self._overwrite = maker, overwrite
        self._replaced: set[Path] = set()

    def check(self, flag: str, path: Path, maker: str | None = None) -> None:
        """Raise ValueError, before work is done for it, if a file must not be written."""
        if require_replaceable(flag, path, maker or self._maker, overwrite=self._overwrite):
            self._replaced.add(path)

    def check_folder(self, out: Path, names: Iterable[str], maker: str | None = None) -> None:
        """Raise ValueError if files must not be written to the folder that ``--out`` names."""
        if out.exists() and not out.is_dir():
            raise ValueError(f"--out must be a folder, {out} is a file")
        for name in names:
            self.check("--out", out / name, maker)

    def say(self, path: Path) -> str:
        """What was done with a file."""
        return f"{'replaced' if path in self._replaced else 'wrote'} {path}"
