"""Progress for whoever is watching: bars in a terminal, plain lines elsewhere."""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TextIO

from cramerl._printable import printable

if TYPE_CHECKING:
    from cramerl.runs.trainer import OnProgress, Status

_WINDOW_SECONDS = 300.0  # over which speeds are averaged


def in_notebook() -> bool:
    """Whether this is the kernel of a notebook, whose output is not a terminal but takes carriage returns."""
    ipython = sys.modules.get("IPython")  # a program that starts kernels has imported both, but is none
    return "ipykernel" in sys.modules and (ipython is None or ipython.get_ipython() is not None)


def is_interactive() -> bool:
    """Whether a person waits for the next prompt: in a notebook, in IPython, or in Python's own prompt."""
    return in_notebook() or hasattr(sys, "ps1") or bool(sys.flags.interactive)


def progress_stream() -> TextIO:
    """Where progress goes: standard error, which notebooks paint red, so there standard output."""
    return sys.stdout if in_notebook() else sys.stderr


class ProgressBars:
    """Bars in a terminal, below the lines that are said; elsewhere plain lines now and then (notebooks: one).

    Args:
        stream: usually standard error.
        period: least seconds between plain lines.
        clock: seconds.
    """

    def __init__(self, stream: TextIO, period: float, clock: Callable[[], float] = time.monotonic):
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        stream = getattr(stream, "unfiltered", stream)  # bars move the cursor; texts are filtered here
        console = Console(file=stream)
        self.live = stream.isatty() and console.is_terminal and not console.is_dumb_terminal
        self._overwrite = not self.live and in_notebook()
        self._overwritten = 0  # length of the line that the next one overwrites
        self._stream, self._period, self._clock = stream, period, clock
        self._written, self._waiting = -math.inf, ""
        self._bars: dict[str, tuple[Any, float]] = {}  # task, and its count when speed was first measured
        self._progress = Progress(
            BarColumn(bar_width=20),
            TextColumn("{task.description}", markup=False),
            console=console,
            auto_refresh=False,
            get_time=clock,
            speed_estimate_period=_WINDOW_SECONDS,
        )
        if self.live:
            self._progress.start()

    def say(self, text: str) -> None:
        """Print a line that stays."""
        text = printable(text)
        if self.live:
            self._progress.console.print(text, markup=False, highlight=False)
        elif self._overwrite:
            print(f"\r{text.ljust(self._overwritten)}", file=self._stream, flush=True)
            self._overwritten = 0
        else:
            print(text, file=self._stream, flush=True)

    def count(self, name: str, done: int, total: int, *, restart: bool = False) -> None:
        """Move a bar, or create it; ``restart`` forgets its speed so far."""
        if restart:
            self.keep([other for other in self._bars if other != name])
        if name not in self._bars:
            self._bars[name] = self._progress.add_task("", total=total, completed=done), done
        self._progress.update(self._bars[name][0], completed=done, total=total)

    def speed(self, name: str) -> float | None:
        """Average speed of a bar over the last minutes; None if that cannot be said yet."""
        number, first = self._bars[name]
        task = self._progress._tasks[number]
        return task.speed or (task.completed - first) / task.elapsed if task.elapsed else None

    def describe(self, name: str, text: str) -> None:
        """Set the text beside a bar."""
        self._progress.update(self._bars[name][0], description=printable(text))

    def keep(self, names: list[str]) -> None:
        """Remove all other bars."""
        for name in [name for name in self._bars if name not in names]:
            self._progress.remove_task(self._bars.pop(name)[0])

    def show(self, line: str, *, now: bool = False) -> None:
        """Draw the bars; or print the line, if the last one is old enough or ``now``."""
        line = printable(line)
        if self.live:
            self._progress.refresh()
        elif self._overwrite:
            print(f"\r{line.ljust(self._overwritten)}", end="", file=self._stream, flush=True)
            self._overwritten = len(line)
        elif now or self._clock() - self._written >= self._period:
            self.say(line)
            self._written, self._waiting = self._clock(), ""
        else:
            self._waiting = line

    def close(self) -> None:
        """Leave the last state where it is."""
        if self.live:
            self._progress.stop()
        elif self._overwritten:
            print(file=self._stream, flush=True)
        elif self._waiting:
            self.say(self._waiting)


@contextmanager
def progress_display(stream: TextIO, clock: Callable[[], float] = time.monotonic) -> Iterator[OnProgress]:
    """A function to give to `cramerl.train` as ``on_progress``, which shows the progress of a run on a stream.

    In a terminal there is a bar. Elsewhere there is a line every ten seconds, one when learning starts and one at the
    end. Messages always get their own line.

    Args:
        stream: usually standard error.
        clock: seconds.
    """
    bars = ProgressBars(stream, 10.0, clock)
    row: dict[str, float] = {}
    busy = learning = False

    def on_progress(status: Status) -> None:
        nonlocal busy, learning
        if busy:  # called by a signal handler that interrupted this function, whose buffers cannot be entered twice
            if status.message is not None:
                with suppress(OSError, ValueError):  # the stream is not a file, or is closed
                    os.write(stream.fileno(), f"\n{printable(status.message)}\n".encode(errors="replace"))
            return
        busy = True
        try:
            if status.message is not None:
                bars.say(status.message)
            row.update({name: value for name, value in (status.row or {}).items() if math.isfinite(value)})
            # The speed before says nothing: the replay was filled, and the update compiled.
            starts = "losses/loss" in (status.row or {}) and not learning
            learning = learning or starts
            bars.count("run", status.step, status.steps, restart=starts)
            speed, steps = bars.speed("run"), f"step {status.step:,}/{status.steps:,}"
            figures = _figures(status, speed, row)
            left = []
            if learning and speed and status.step < status.steps:
                left = [f"{duration((status.steps - status.step) / speed)} left"]
            bars.describe("run", f"{'  '.join([steps, *left])}\n{'  '.join(figures) or 'starting'}")
            bars.show("  ".join([steps, *figures, *left]), now=starts)
        finally:
            busy = False

    try:
        yield on_progress
    finally:
        bars.close()


def _figures(status: Status, speed: float | None, row: dict[str, float]) -> list[str]:
    """Speed, return, loss and mass, as far as they are known."""
    texts, speed = [], speed or status.steps_per_second
    if speed and status.frames_per_step > 1:
        texts.append(f"{speed * status.frames_per_step:,.0f} frames/s ({speed:,.0f} steps/s)")
    elif speed:
        texts.append(f"{speed:,.0f} steps/s")
    for name, tag, form in (
        ("return", "charts/episodic_return", ",.2f"),
        ("loss", "losses/loss", ".3g"),
        ("mass", "dist/mass", ".3f"),
    ):
        if tag in row:
            texts.append(f"{name} {row[tag]:{form}}")
    return texts


def duration(seconds: float) -> str:
    """Seconds in words, in the unit that fits."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 48 * 3600 else f"{seconds / 86400:.1f} days"
