"""Try what nobody means: `make fuzz`, or python tests/fuzz/fuzz.py --help. Prints a table of trials, clean and bad.

A trial follows from the seed, its kind and its number alone, so that ``--only KIND:NUMBER`` repeats any of them.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]
    import conftest  # noqa: F401 - how tests set up JAX

import fuzz_calls
import fuzz_commands
import fuzz_folders
import fuzz_kills
import fuzz_pages

Trial = Callable[[np.random.Generator, Any, Path], str | None]


class Kind(NamedTuple):
    """One kind of trials: what is made once for all of them, one trial, how many there are, seconds for one."""

    prepare: Callable[[Path], Any]
    trial: Trial
    trials: int
    seconds: int
    text: str


KINDS = {
    "commands": Kind(lambda place: None, fuzz_commands.trial, 10_000, 60, "command lines"),
    "calls": Kind(lambda place: None, fuzz_calls.trial, 100_000, 60, "calls of functions, on NumPy, JAX and PyTorch"),
    "folders": Kind(fuzz_folders.prepare, fuzz_folders.trial, 5_000, 120, "commands on tampered folders"),
    "kills": Kind(fuzz_kills.prepare, fuzz_kills.trial, 100, 600, "runs killed or stopped at random, then resumed"),
    "pages": Kind(fuzz_pages.prepare, fuzz_pages.trial, 30, 300, "reports of hostile names"),
}


class TooLong(BaseException):
    """A trial did not end in its time."""


def attempt(kind: str, number: int, seed: int, made: Any) -> str | None:
    """What was bad about a trial; None if nothing was."""
    rng = np.random.default_rng([seed, list(KINDS).index(kind), number])
    previous = signal.signal(signal.SIGALRM, too_long)
    signal.alarm(KINDS[kind].seconds)
    try:
        with tempfile.TemporaryDirectory(prefix="cramerl-fuzz-") as place:
            return KINDS[kind].trial(rng, made, Path(place))
    except TooLong:
        return f"it did not end within {KINDS[kind].seconds} seconds"
    except BaseException:  # whatever comes out of a trial is bad
        return traceback.format_exc(limit=-4)
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, previous)


def too_long(*_: object) -> None:
    """End a trial that hangs."""
    raise TooLong


def main(words: list[str] | None = None) -> int:
    """Run the trials; the exit status is 1 if any was bad."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="another seed, other trials (default: 0)")
    parser.add_argument("--only", metavar="KIND:NUMBER", help="repeat one trial and print what was bad")
    for kind, about in KINDS.items():
        parser.add_argument(
            f"--{kind}", type=int, default=about.trials, metavar="N", help=f"{about.text} ({about.trials})"
        )
    options = parser.parse_args(words)
    wanted = {kind: range(getattr(options, kind)) for kind in KINDS}
    if options.only:
        kind, _, number = options.only.partition(":")
        wanted = {kind: range(int(number), int(number) + 1)}
    print(f"seed {options.seed}; python tests/fuzz/fuzz.py --seed {options.seed} --only KIND:NUMBER repeats a trial")
    print(f"{'kind':<10}{'trials':>9}{'clean':>9}{'bad':>6}   what")
    total = 0
    for kind, numbers in wanted.items():
        if not numbers:
            continue
        with tempfile.TemporaryDirectory(prefix="cramerl-fuzz-") as place:
            made = KINDS[kind].prepare(Path(place))
            bad = {number: found for number in numbers if (found := attempt(kind, number, options.seed, made))}
        print(
            f"{kind:<10}{len(numbers):>9,}{len(numbers) - len(bad):>9,}{len(bad):>6}   {KINDS[kind].text}", flush=True
        )
        for number, found in list(bad.items())[:20]:
            print(f"  {kind}:{number}: {found}", flush=True)
        total += len(bad)
    return 1 if total else 0


if __name__ == "__main__":
    sys.exit(main())
