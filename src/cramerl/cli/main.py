"""The ``cramerl`` command: find the command that was asked for, run it, turn errors into sentences.

Each command is a module of this package with two functions: ``configure`` describes its arguments, ``run`` does the
work and returns the exit status. Only the module of the command that was asked for is imported.
"""

from __future__ import annotations

import argparse
import importlib
import io
import os
import shlex
import signal
import sys
import warnings
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from typing import Any

from cramerl._printable import PrintableStream
from cramerl._version import __version__
from cramerl.runs.stop_signals import end_on_signal

COMMANDS = {
    "demo": "what it does, in a few seconds (with --train-steps, agents too)",
    "verify": "every claim of the paper, and some beyond it, recomputed",
    "evaluate": "return distributions of a policy, with a certificate",
    "predict": "return distributions of new rows, from an evaluation of a log",
    "train": "train an agent",
    "resume": "continue a run from its last checkpoint",
    "play": "let a trained agent play, and print its scores",
    "export": "write a trained agent into a folder that can be shared",
    "sweep": "train agents x environments x seeds, in several sessions if need be",
    "report": "figures, tables and statistics of runs",
    "watch": "see what an agent predicts while it plays: page, video, picture, live",
}

WITH_SETTINGS = ("train", "sweep")
"""The commands with a flag for every setting, whose help comes with these flags (`cramerl.cli.settings`)."""

EXAMPLES = """\
examples:
  cramerl demo                             what it does, in a few seconds: tables and pictures
  cramerl verify                           every claim of the paper, recomputed
  cramerl evaluate FrozenLake-v1           return distributions of a uniform policy, with a certificate
  cramerl evaluate queue --features fourier:5 --discount 0.99
  cramerl evaluate --data example:machines   the same from a log, with intervals and a verdict; also logs of yours
  cramerl predict out/evaluate --data example:machines   and of single rows
  cramerl watch breakout                   what trained agents that come with it predict, as a page to scrub through
  cramerl train s51 Breakout-MinAtar --steps 1e6 --seed 0
  cramerl sweep runs/all --agents s51,u51 --envs CartPole-v1 --seeds 0-4
  cramerl report runs                      learning curves, tables and intervals of all runs below a folder
  cramerl play runs/RUN                    scores of a trained agent; also: resume, export
  cramerl watch runs/RUN                   what it predicts while it plays

exit status: 0 done; 1 a claim did not come out as expected, or a loss was not finite; 2 bad input (a sentence says
what is allowed); 3 an answer is not to be used (evaluate --strict); 130 stopped by Ctrl-C, 143 by SIGTERM, 141 by a
reader who closed the output
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point of the ``cramerl`` command; returns its exit status."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the parent process
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 - open for the life of the process
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that cannot show é still gets its table
    words = sys.argv[1:] if arguments is None else list(arguments)
    # Names in the folders of others are printed, and a terminal does what it is told.
    streams = redirect_stdout(_printable_stream(sys.stdout)), redirect_stderr(_printable_stream(sys.stderr))
    with streams[0], streams[1], warnings.catch_warnings():
        warnings.showwarning = _show_warning
        return exit_status(lambda: _run(words))


def _show_warning(message: Warning | str, category: type[Warning], *place: Any) -> None:
    """Print what a user is warned of as a sentence, and everything else with its place."""
    if category is UserWarning:
        print(f"cramerl: {message}", file=sys.stderr)
    else:
        sys.stderr.write(warnings.formatwarning(message, category, *place[:2]))


def _printable_stream(stream: Any) -> Any:
    return stream if isinstance(stream, PrintableStream) else PrintableStream(stream)


def _run(arguments: list[str]) -> int:
    options = _parse(arguments)
    options.typed = shlex.join(["cramerl", *arguments])
    return options.run(options)


def exit_status(work: Callable[[], int]) -> int:
    """Do the work of a command; print the errors a user can cause in one line each."""
    came: list[int] = []
    try:
        with end_on_signal() as came:
            return _status(work)
    except (KeyboardInterrupt, SystemExit) as end:
        if isinstance(end, KeyboardInterrupt) and set(came) <= {128 + signal.SIGINT}:
            print("\ncramerl: stopped; nothing was left half-written", file=sys.stderr)
            return 128 + signal.SIGINT
        if came:  # a library may have replaced the status on the way
            return came[0]
        raise


def _status(work: Callable[[], int]) -> int:
    try:
        status = work()
        sys.stdout.flush()
        return status
    except BrokenPipeError:
        # The reader of our output has closed it. Point stdout elsewhere, or Python complains when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except (OSError, ValueError) as error:
        notes = [note for note in getattr(error, "__notes__", []) if "JAX has removed" not in note]
        print(" ".join([f"cramerl: {error}", *notes]), file=sys.stderr)
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError) and "memory" not in str(error).lower():
            raise
        print("cramerl: there is not enough memory for this; ask for something smaller", file=sys.stderr)
    return 2


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = make_parser(next((word for word in arguments if not word.startswith("-")), None))
    for word in arguments:
        if word.startswith("-") and word.endswith("=--"):  # argparse would take it for a flag without a value
            parser.error(f"argument {word.removesuffix('=--')}: must have a value, got '--'")
    options, unknown = parser.parse_known_args(arguments)
    if unknown:
        from cramerl.cli.settings import explain_flag

        options.parser.error(f"unrecognized arguments: {' '.join(unknown)}{explain_flag(unknown[0], options.flags)}")
    return options


def make_parser(command: str | None = None) -> argparse.ArgumentParser:
    """The parser of the whole command line, with the arguments of one command."""
    parser = argparse.ArgumentParser(
        prog="cramerl",
        description="Distributional reinforcement learning built on the Cramér distance.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"cramerl {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for name, help_line in COMMANDS.items():
        subparser = commands.add_parser(
            name,
            help=help_line,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            add_help=name not in WITH_SETTINGS,
            allow_abbrev=False,  # a new flag must not change what an old script means
        )
        if name == command:
            module = importlib.import_module(f"cramerl.cli.{name}")
            module.configure(subparser)
            flags = list(subparser._option_string_actions)
            subparser.set_defaults(run=module.run, parser=subparser, flags=flags)
    return parser
