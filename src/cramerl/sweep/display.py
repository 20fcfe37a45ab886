"""The progress of a sweep: one bar for each running job and one for all, or plain lines."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

from cramerl.runs.folder import TIMING
from cramerl.runs.progress import ProgressBars, duration
from cramerl.sweep.execute import State
from cramerl.sweep.folder import last_rows
from cramerl.sweep.plan import Job

_LOOK_SECONDS = 1.0  # between looks into the folders of running jobs
_LINE_SECONDS = 60.0  # between plain lines
_MOST_BARS = 12


@contextmanager
def sweep_display(
    stream: TextIO, out: Path, done_before: int, clock: Callable[[], float] = time.monotonic
) -> Iterator[Callable[[State], None]]:
    """A function to give to `execute` as ``on_progress``, which shows the progress of a sweep on a stream.

    Args:
        stream: usually standard error. It may go away (a closed terminal): the sweep continues.
        out: folder of the sweep.
        done_before: jobs that were finished before it started.
        clock: seconds.
    """
    bars = ProgressBars(stream, _LINE_SECONDS, clock)
    said: set[str] = set()
    steps: dict[str, int] = {}  # that this sweep has done, by folder, summed over the runs of a job
    looked = clock() - _LOOK_SECONDS

    def on_progress(state: State) -> None:
        nonlocal looked
        with suppress(OSError, ValueError):
            for text in [text for text in _events(state) if text not in said]:
                said.add(text)
                bars.say(text)
            if clock() - looked >= _LOOK_SECONDS or not state.running:
                looked = clock()
                _show(bars, state, out, done_before, steps)

    try:
        yield on_progress
    finally:
        with suppress(OSError, ValueError):
            bars.close()


def _events(state: State) -> Iterator[str]:
    """A line for each thing that has happened so far."""
    yield from (f"finished {folder}" for folder in state.done)
    yield from (f"failed {folder}: {reason}" for folder, reason in state.failed.items())
    yield from (f"{'resuming' if job.start == 'resume' else 'training'} {job.folder}" for job in state.running)
    if state.stopping and state.running:
        kept = "with checkpoints" if all(job.resumable for job in state.running) else "(without full checkpoints)"
        yield f"stopping jobs {kept}; Ctrl-C again ends them at once"


def _show(bars: ProgressBars, state: State, out: Path, done_before: int, steps: dict[str, int]) -> None:
    shown, fastest = state.running[:_MOST_BARS], 0.0
    for job in state.running:
        step, speed = _progress(out, job)
        fastest += speed
        steps[job.folder] = (step - job.step) * len(job.group)
        if job in shown:
            runs = f" of {len(job.group)} runs" if len(job.group) > 1 else ""
            bars.count(job.folder, step, job.steps)
            text = f"{speed:,.0f} steps/s" if speed else "starting"
            bars.describe(job.folder, f"{job.folder}  step {step:,}/{job.steps:,}{runs}  {text}")
    ahead = sum((job.steps - job.step) * len(job.group) for job in (*state.running, *state.left))
    ahead -= sum(steps[job.folder] for job in state.running)
    done = done_before + len(state.done)
    jobs = done + len(state.failed) + len(state.running) + len(state.left)
    texts = [f"{done}/{jobs} jobs done, {len(state.running)} running, {len(state.left)} waiting"]
    texts[0] += f", {len(state.failed)} failed" if state.failed else ""
    bars.keep(["all", *(job.folder for job in shown)])
    bars.count("all", sum(steps.values()), sum(steps.values()) + ahead)
    average = bars.speed("all")
    texts += [f"{fastest:,.0f} steps/s"] if fastest else []
    texts += [f"{duration(ahead / average)} left"] if average and ahead > 0 and not state.stopping else []
    bars.describe("all", "  ".join(texts))
    bars.show("  ".join(texts))


def _progress(out: Path, job: Job) -> tuple[int, float]:
    """The step of a running job and its speed, as far as it has logged since it started."""
    with suppress(OSError, ValueError):  # being written
        for row in last_rows(out / job.folder / TIMING, 1)[-1:]:
            if row["step"] > job.step:
                return row["step"], row["charts/SPS"]
    return job.step, 0.0
