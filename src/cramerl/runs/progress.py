"""How a run is going, for whoever watches: a live display in a terminal, plain lines elsewhere."""

from __future__ import annotations

import importlib.util
import math
import os
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO

from cramerl.runs.training import OnProgress, Status

_PERIOD_SECONDS = 10.0  # between plain lines
_WINDOW_SECONDS = 60.0  # the speed that time left is reckoned with


@contextmanager
def progress_display(stream: TextIO, clock: Callable[[], float] = time.monotonic) -> Iterator[OnProgress]:
    """A function to give to `cramerl.train` as ``on_progress``, which shows on a stream how the run is going.

    In a terminal two lines are written over (with `rich`, where it is installed); elsewhere there is a line every ten
    seconds, one when learning starts and one at the end. Messages always get a line of their own.

    Args:
        stream: usually standard error.
        clock: seconds.
    """
    display = _live(stream, clock) or _Lines(stream, clock)
    try:
        yield display.on_progress
    finally:
        display.close()


class _Lines:
    """Plain lines."""

    def __init__(self, stream: TextIO, clock: Callable[[], float]):
        self._stream, self._clock = stream, clock
        self._figures = _Figures()
        self._busy = False
        self._written = -math.inf
        self._waiting: str | None = None

    def on_progress(self, status: Status) -> None:
        """Show a status; may be called from a signal handler, also one that interrupts this very function."""
        if self._busy:
            _write_directly(self._stream, status.message)
            return
        self._busy = True
        try:
            if status.message is not None:
                self._say(status.message)
            now = self._clock()
            started = self._figures.update(status, now)
            self._show(status, now, started)
        finally:
            self._busy = False

    def close(self) -> None:
        """Show what is still waiting."""
        if self._waiting is not None:
            self._say(self._waiting)

    def _say(self, words: str) -> None:
        print(words, file=self._stream, flush=True)

    def _show(self, status: Status, now: float, started: bool) -> None:
        line = "  ".join([self._figures.steps(status), *self._figures.rates(status), *self._figures.left(status)])
        if started or now - self._written >= _PERIOD_SECONDS:
            self._say(line)
            self._written, self._waiting = now, None
        elif status.message is None:
            self._waiting = line


class OnTerminal:
    """What displays that are written over share: where they are drawn, and lines that are said above them."""

    def _open(self, console: Any) -> None:
        from rich.live import Live

        self._display = Live(console=console, auto_refresh=False)
        self._display.start()

    def close(self) -> None:
        """Leave the last state where it is."""
        self._display.stop()

    def _say(self, words: str) -> None:
        self._display.console.print(words, markup=False, highlight=False)


class _Live(OnTerminal, _Lines):
    """Two lines of a terminal, written over."""

    def __init__(self, stream: TextIO, clock: Callable[[], float], console: Any):
        super().__init__(stream, clock)
        self._open(console)

    def _show(self, status: Status, now: float, started: bool) -> None:
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        bar = ProgressBar(status.steps, min(status.step, status.steps), width=30)
        words = "  ".join([self._figures.steps(status), *self._figures.left(status)])
        first = Table.grid(padding=(0, 2))
        first.add_row(bar, Text(words, no_wrap=True, overflow="ellipsis"))
        rates = "  ".join(self._figures.rates(status)) or "starting"
        self._display.update(Group(first, Text(rates, no_wrap=True, overflow="ellipsis")), refresh=True)


class _Figures:
    """The words for a status. Speed is an average over the last minute."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, int]] = deque()
        self._learning = False
        self._row: dict[str, Any] = {}

    def update(self, status: Status, now: float) -> bool:
        """Take in a status; True at the first one after learning has started."""
        self._row |= {k: v for k, v in (status.row or {}).items() if math.isfinite(v)}
        learning = "losses/loss" in (status.row or {})
        started = learning and not self._learning
        if started:
            self._samples.clear()  # filling the replay and compiling say nothing of the speed to come
        self._learning = self._learning or learning
        if not self._samples or status.step > self._samples[-1][1]:
            self._samples.append((now, status.step))
        while len(self._samples) > 2 and self._samples[1][0] <= now - _WINDOW_SECONDS:
            self._samples.popleft()
        return started

    def steps(self, status: Status) -> str:
        """Steps done of all."""
        return f"step {status.step:,}/{status.steps:,}"

    def rates(self, status: Status) -> list[str]:
        """Speed, return, loss, mass: those that are known."""
        words, speed = [], self._speed() or status.steps_per_second
        if speed and status.frames_per_step > 1:
            words.append(f"{speed * status.frames_per_step:,.0f} frames/s ({speed:,.0f} steps/s)")
        elif speed:
            words.append(f"{speed:,.0f} steps/s")
        for name, tag, form in (
            ("return", "charts/episodic_return", ",.2f"),
            ("loss", "losses/loss", ".3g"),
            ("mass", "dist/mass", ".3f"),
        ):
            if tag in self._row:
                words.append(f"{name} {self._row[tag]:{form}}")
        return words

    def left(self, status: Status) -> list[str]:
        """Time to the end, once it can be told."""
        speed, steps = self._speed(), status.steps - status.step
        return [f"{duration(steps / speed)} left"] if self._learning and speed and steps > 0 else []

    def _speed(self) -> float | None:
        if len(self._samples) < 2:
            return None
        (first_time, first), (last_time, last) = self._samples[0], self._samples[-1]
        return (last - first) / max(last_time - first_time, 1e-9)


def _live(stream: TextIO, clock: Callable[[], float]) -> _Live | None:
    """The live display, where there is a terminal that can show it."""
    if not stream.isatty() or importlib.util.find_spec("rich") is None:
        return None
    from rich.console import Console

    console = Console(file=stream)
    return None if console.is_dumb_terminal or not console.is_terminal else _Live(stream, clock, console)


def _write_directly(stream: TextIO, message: str | None) -> None:
    """Past the stream's buffer, which cannot be entered twice."""
    if message is not None:
        with suppress(OSError, ValueError):  # no file behind it, or a closed one
            os.write(stream.fileno(), f"\n{message}\n".encode(errors="replace"))


def duration(seconds: float) -> str:
    """Seconds in words, in the unit that fits."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 48 * 3600 else f"{seconds / 86400:.1f} days"
