"""How a sweep is going, for whoever watches: a live table in a terminal, plain lines elsewhere."""

from __future__ import annotations

import importlib.util
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from cramerl.runs.progress import OnTerminal, duration
from cramerl.sweep.execute import State
from cramerl.sweep.folder import Job, last_speed

_LOOK_SECONDS = 1.0  # between looks into the folders of running cells
_LINE_SECONDS = 60.0  # between plain lines
_WINDOW_SECONDS = 300.0  # the speed that time left is reckoned with; gaps between cells count
_ROWS = 12


class Progress(NamedTuple):
    """Steps of one running cell.

    Attributes:
        job: which.
        step: agent steps done.
        speed: steps per second, over all lanes.
    """

    job: Job
    step: int
    speed: float


@contextmanager
def sweep_display(
    stream: TextIO, out: Path, done_before: int, clock: Callable[[], float] = time.monotonic
) -> Iterator[Callable[[State], None]]:
    """A function to give to `execute` as ``watch``, which shows on a stream how the sweep is going.

    Args:
        stream: usually standard error. It may go away (a closed terminal): the sweep does not notice.
        out: folder of the sweep.
        done_before: cells that were finished before it began.
        clock: seconds.
    """
    console = _console(stream)
    display = _Lines(stream, out, done_before, clock)
    if console is not None:
        display = _Live(stream, out, done_before, clock, console)
    try:
        yield display.watch
    finally:
        with suppress(OSError, ValueError):
            display.close()


class _Lines:
    """Plain lines."""

    def __init__(self, stream: TextIO, out: Path, done_before: int, clock: Callable[[], float]):
        self._stream, self._out, self._before, self._clock = stream, out, done_before, clock
        self._looked = self._written = clock() - _LINE_SECONDS
        self._samples: deque[tuple[float, float]] = deque()
        self._steps: dict[str, float] = {}  # by folder, over all lanes, of this sweep's cells
        self._said: set[str] = set()
        self._stopping = False

    def watch(self, state: State) -> None:
        """Show a state."""
        with suppress(OSError, ValueError):
            self._events(state)
            now = self._clock()
            if now - self._looked >= _LOOK_SECONDS or not state.running:
                self._looked = now
                self._show(state, [_progress(self._out, job) for job in state.running], now)

    def close(self) -> None:
        """Nothing is waiting."""

    def _events(self, state: State) -> None:
        """A line for whatever has happened since the last state."""
        for folder in state.done:
            if self._once(f"done {folder}"):
                self._say(f"finished {folder}")
        for folder, words in state.failed.items():
            if self._once(f"failed {folder}"):
                self._say(f"failed {folder}: {words}")
        for folder, losses in state.losses.items():
            for number, loss in enumerate(losses):
                if self._once(f"lost {number} {folder}"):
                    self._say(f"lost {folder}: {loss.words}; its iterations up to step {loss.step:,} are kept")
        for job in state.running:
            if self._once(f"begin {job.folder}"):
                self._say(f"{'training' if job.arguments[0] == 'train' else 'resuming'} {job.folder}")
        if state.stopping and state.running and self._once("stopping"):
            count = len(state.running)
            kept = "with checkpoints" if all(job.can_go_on for job in state.running) else "(without full checkpoints)"
            self._say(f"stopping {count} {'cell' if count == 1 else 'cells'} {kept}; Ctrl-C now stops at once")

    def _once(self, event: str) -> bool:
        new = event not in self._said
        self._said.add(event)
        return new

    def _say(self, words: str) -> None:
        print(words, file=self._stream, flush=True)

    def _show(self, state: State, running: list[Progress], now: float) -> None:
        line = self._total(state, running, now)
        if now - self._written >= _LINE_SECONDS:
            self._say(line)
            self._written = now

    def _total(self, state: State, running: list[Progress], now: float) -> str:
        """Cells and steps of the whole sweep in one line."""
        done = self._before + len(state.done)
        cells = done + len(state.failed) + len(running) + len(state.left)
        words = [f"{done}/{cells} cells done, {len(running)} running, {len(state.left)} waiting"]
        if state.failed:
            words[0] += f", {len(state.failed)} failed"
        speed = self._speed(running, now)
        lately = sum(progress.speed for progress in running)
        if lately:
            words.append(f"{lately:,.0f} steps/s")
        ahead = sum((p.job.steps - p.step) * p.job.runs for p in running)
        ahead += sum((job.steps - job.step) * job.runs for job in state.left)
        if speed and ahead > 0 and not state.stopping:
            words.append(f"{duration(ahead / speed)} left")
        return "  ".join(words)

    def _speed(self, running: list[Progress], now: float) -> float:
        """Steps per second over the last minutes, gaps included."""
        for progress in running:
            self._steps[progress.job.folder] = (progress.step - progress.job.step) * progress.job.runs
        total = sum(self._steps.values())
        if not self._samples or total > self._samples[-1][1]:
            self._samples.append((now, total))
        while len(self._samples) > 2 and self._samples[1][0] <= now - _WINDOW_SECONDS:
            self._samples.popleft()
        (first_time, first), (_, last) = self._samples[0], self._samples[-1]
        return (last - first) / max(now - first_time, 1e-9)


class _Live(OnTerminal, _Lines):
    """A table of the running cells, written over."""

    def __init__(self, stream: TextIO, out: Path, done_before: int, clock: Callable[[], float], console: Any):
        super().__init__(stream, out, done_before, clock)
        self._open(console)

    def _show(self, state: State, running: list[Progress], now: float) -> None:
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        table = Table.grid(padding=(0, 2))
        for progress in running[:_ROWS]:
            job = progress.job
            speed = f"{progress.speed:,.0f} steps/s" if progress.speed else "starting"
            steps = f"step {progress.step:,}/{job.steps:,}" + (f" of {job.runs} runs" if job.runs > 1 else "")
            bar = ProgressBar(job.steps, min(progress.step, job.steps), width=20)
            table.add_row(
                bar, *(Text(words, no_wrap=True, overflow="ellipsis") for words in (job.folder, steps, speed))
            )
        more = [Text(f"and {len(running) - _ROWS} more")] if len(running) > _ROWS else []
        total = Text(self._total(state, running, now), no_wrap=True, overflow="ellipsis")
        self._display.update(Group(table, *more, total), refresh=True)


def _progress(out: Path, job: Job) -> Progress:
    """Where a running cell is: what it has logged since it was begun."""
    try:
        step, speed = last_speed(out / job.folder)
    except (OSError, ValueError):  # being written
        step, speed = 0, 0.0
    return Progress(job, step, speed) if step > job.step else Progress(job, job.step, 0.0)


def _console(stream: TextIO) -> Any:
    """A terminal that can show a table, or None."""
    if not stream.isatty() or importlib.util.find_spec("rich") is None:
        return None
    from rich.console import Console

    console = Console(file=stream)
    return None if console.is_dumb_terminal or not console.is_terminal else console
