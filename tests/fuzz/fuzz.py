"""Try what nobody means: `make fuzz`, or python tests/fuzz/fuzz.py --help. Prints a table of trials, clean and bad.

A trial follows from the seed, its kind and its number alone, so that ``--only KIND:NUMBER`` repeats any of them.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

if __name__ in ("__main__", "__mp_main__"):  # the latter in the processes of --jobs
    sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]
    import conftest  # noqa: F401 - how tests set up JAX

import fuzz_calls
import fuzz_commands
import fuzz_evaluations
import fuzz_folders
import fuzz_kills
import fuzz_pages
import fuzz_stops

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
    "kills": Kind(fuzz_kills.prepare, fuzz_kills.trial, 200, 600, "runs killed or stopped, then resumed"),
    "pages": Kind(fuzz_pages.prepare, fuzz_pages.trial, 30, 300, "reports of hostile names"),
    "evaluations": Kind(lambda place: None, fuzz_evaluations.trial, 1_000, 120, "fixed points, discounts to 1 - 1e-9"),
    "stops": Kind(fuzz_stops.prepare, fuzz_stops.trial, 300, 300, "any command, ended by Ctrl-C or SIGTERM"),
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


_made: dict[str, Any] = {}  # in each process of --jobs


def prepare_process(kind: str, place: Path) -> None:
    """Make what the trials of a kind share, once in each process."""
    own = place / str(os.getpid())
    own.mkdir()
    _made[kind] = KINDS[kind].prepare(own)


def attempt_here(kind: str, seed: int, number: int) -> str | None:
    """A trial in a process that was prepared."""
    return attempt(kind, number, seed, _made[kind])


def attempts(kind: str, numbers: range, seed: int, jobs: int) -> Iterator[str | None]:
    """What was bad about each trial, in order."""
    one = partial(attempt_here, kind, seed)
    with tempfile.TemporaryDirectory(prefix="cramerl-fuzz-") as place:
        if jobs == 1 or kind == "pages":  # which have a browser
            prepare_process(kind, Path(place))
            yield from map(one, numbers)
            return
        os.environ["OMP_NUM_THREADS"] = "1"
        context, chunk = get_context("spawn"), max(1, min(50, len(numbers) // (8 * jobs)))
        with ProcessPoolExecutor(jobs, context, prepare_process, (kind, Path(place))) as pool:
            yield from pool.map(one, numbers, chunksize=chunk)


def main(words: list[str] | None = None) -> int:
    """Run the trials; the exit status is 1 if any was bad."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="another seed, other trials (default: 0)")
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time (default: 1)")
    parser.add_argument("--only", metavar="KIND:NUMBER", help="repeat one trial and print what was bad")
    for kind, about in KINDS.items():
        parser.add_argument(f"--{kind}", type=int, metavar="N", help=f"{about.text} ({about.trials})")
    options = parser.parse_args(words)
    given = {kind: getattr(options, kind) for kind in KINDS}
    left_out = any(number is not None for number in given.values())  # kinds that are not asked for
    default = {kind: 0 if left_out else about.trials for kind, about in KINDS.items()}
    wanted = {kind: range(default[kind] if number is None else number) for kind, number in given.items()}
    if options.only:
        kind, _, number = options.only.partition(":")
        wanted = {kind: range(int(number), int(number) + 1)}
    print(f"seed {options.seed}; python tests/fuzz/fuzz.py --seed {options.seed} --only KIND:NUMBER repeats a trial")
    print(f"{'kind':<12}{'trials':>9}{'clean':>9}{'bad':>6}{'seconds':>9}   what")
    found = [_run(kind, numbers, options) for kind, numbers in wanted.items() if numbers]
    return 1 if any(found) else 0


def _run(kind: str, numbers: range, options: argparse.Namespace) -> int:
    """Run the trials of a kind, and print a line for it and one for each that was bad."""
    begun = time.monotonic()
    found = attempts(kind, numbers, options.seed, options.jobs)
    bad = {number: what for number, what in zip(numbers, found, strict=True) if what}
    counts = f"{len(numbers):>9,}{len(numbers) - len(bad):>9,}{len(bad):>6}{time.monotonic() - begun:>9,.0f}"
    print(f"{kind:<12}{counts}   {KINDS[kind].text}", flush=True)
    for number, what in list(bad.items())[:20]:
        print(f"  {kind}:{number}: {what}", flush=True)
    return len(bad)


if __name__ == "__main__":
    sys.exit(main())
