"""The command line: parse, call, print. Heavy imports wait until a command needs them."""

from __future__ import annotations

import argparse
import importlib.util
import io
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from cramerl import __version__

EXAMPLES = """\
examples:
  cramerl demo                    the mathematics at work, in a few seconds: a table and a picture
  cramerl demo --out pictures     the same, written to another folder

exit status: 0 done, 2 bad input (with a sentence that says what is allowed), 130 stopped by Ctrl-C
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point of the ``cramerl`` command; returns its exit status."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without é still gets its table
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # through the clean-up, not past it
    options = _parser().parse_args(arguments)
    try:
        status = options.run(options)
        sys.stdout.flush()
        return status
    except BrokenPipeError:
        # Whoever read our output has seen enough; keep Python from complaining about it on the way out.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except KeyboardInterrupt:
        print("\ncramerl: stopped; nothing was left half-written", file=sys.stderr)
        return 130
    except (OSError, ValueError) as error:
        print(f"cramerl: {error}", file=sys.stderr)
    return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="cramerl",
        description="Distributional reinforcement learning built on the Cramér distance.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"cramerl {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    demo = commands.add_parser(
        "demo",
        help="what the mathematics does, in a few seconds",
        description="Back up a signed prediction, recompute the condition numbers of Lemma 1, and learn one "
        "distribution by gradient descent on three losses. Prints a table; writes demo.json and demo.png.",
    )
    demo.add_argument("--out", type=Path, default=Path("out/demo"), help="folder to write to (default: %(default)s)")
    demo.add_argument("--atoms", type=_integer_from(3), default=51, metavar="K", help="atoms (default: %(default)s)")
    demo.add_argument(
        "--steps",
        type=_integer_from(1),
        default=5000,
        metavar="N",
        help="gradient steps per loss (default: %(default)s)",
    )
    demo.set_defaults(run=_demo)
    return parser


def _integer_from(least: int):
    def integer(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f"must be an integer >= {least}, got {text!r}")
        return int(text)

    return integer


def _share(error: float) -> str:
    return f"{error:.1e}" if error > 1e-14 else "< 1e-14"


def _require_library(name: str, extra: str) -> None:
    """Say what to install before work is done that would be lost."""
    if importlib.util.find_spec(name) is None:
        raise ValueError(f"{name} is not installed; install cramerl with its extra: pip install 'cramerl[{extra}]'")


def _demo(options: argparse.Namespace) -> int:
    from cramerl.study import demo, records

    _require_library("matplotlib", "plot")
    options.out.mkdir(parents=True, exist_ok=True)
    result = demo.run(options.atoms, options.steps)
    written = [
        records.write_json(options.out / "demo.json", demo.summary(result)),
        demo.draw(result, options.out / "demo.png"),
    ]
    print("Conditioning of the Cramér loss on unit-spaced atoms (Lemma 1 of the paper)")
    print(f"{'atoms':>7}{'raw distance':>15}{'with penalty':>15}   best penalties")
    for row in result.conditioning:
        print(f"{row.num_atoms:>7}{row.raw:>15.2f}{row.best:>15.2f}   [{row.penalty_low:.3f}, {row.penalty_high:.2f}]")
    print(f"\nGradient descent, {options.atoms} atoms: distance left after {options.steps} steps")
    for descent in result.descents:
        print(f"  {descent.name:<36} condition {descent.condition:>8.1f}   left {_share(descent.error[-1])}")
    print()
    for path in written:
        print(f"wrote {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
