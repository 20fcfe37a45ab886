"""Doing the jobs of a sweep: the loop that every executor shares, and processes of this machine as one executor."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from cramerl._folders import inside
from cramerl.sweep.folder import log_file
from cramerl.sweep.job import Ended, JobFile, child_environment, judge, start_child, stop_signal
from cramerl.sweep.plan import Job

_POLL_SECONDS = 0.1
_ACCELERATORS = ("/dev/nvidia0", "/dev/kfd", "/dev/accel0", "/dev/vfio/0")


class Executor(Protocol):
    """Something that can do jobs: processes of this machine, or a cluster. No method waits."""

    def start(self, job: Job) -> None:
        """Start a job."""
        ...

    def ended(self) -> list[Ended]:
        """Jobs that ended since the last call."""
        ...

    def stop(self) -> None:
        """Ask every job to stop with a checkpoint."""
        ...

    def kill(self) -> None:
        """End every job at once; the last checkpoints stay good."""
        ...


class State(NamedTuple):
    """How far a sweep is.

    Attributes:
        done: folders of jobs that this sweep has finished.
        failed: folders of jobs that failed, with the reason.
        running: jobs, in the order of their start.
        left: jobs that have not started, or were stopped.
        stopping: whether no further job is started.
    """

    done: list[str]
    failed: dict[str, str]
    running: list[Job]
    left: list[Job]
    stopping: bool


def execute(
    jobs: Sequence[Job],
    executor: Executor,
    slots: Callable[[], int],
    *,
    on_progress: Callable[[State], None] = lambda state: None,
    stop_requests: Callable[[], int] = lambda: 0,
    may_start: Callable[[Job, Sequence[Job]], bool] = lambda job, running: True,
    deadline: float | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> State:
    """Do jobs, several at once. A job that fails does not keep the others from being done.

    Args:
        jobs: in the order in which they are started.
        executor: what does them.
        slots: how many jobs may run at once; a function, because machines come and go.
        on_progress: called with the state several times a second.
        stop_requests: how often a user asked to stop; a further request while jobs are stopping ends them at once.
        may_start: whether a job may start beside those that run; the jobs after one that may not are asked about too. A
            job that may not start while nothing runs is left.
        deadline: time of the clock after which jobs are stopped with checkpoints.
        clock: seconds.
    """
    waiting, state = list(jobs), State([], {}, [], [], False)
    requests = 0
    try:
        while state.running or (waiting and not state.stopping):
            if not state.stopping and (stop_requests() or (deadline is not None and clock() >= deadline)):
                state, requests = state._replace(stopping=True), stop_requests()
                executor.stop()
            if state.stopping and stop_requests() > requests:
                executor.kill()
            ended, refused = [], 0
            for job in () if state.stopping else tuple(waiting):
                if len(state.running) >= slots():
                    break
                if not may_start(job, state.running):
                    refused += 1
                    continue
                waiting.remove(job)
                state.running.append(job)
                try:
                    executor.start(job)
                except (OSError, ValueError) as error:  # one job that cannot start has failed like any other
                    ended.append(Ended(job, "failed", str(error)))
            if refused and not state.running:
                break
            on_progress(state._replace(left=[*state.left, *waiting]))
            if state.running:
                time.sleep(_POLL_SECONDS)
            for job, how, reason in (*ended, *executor.ended()):
                state.running.remove(job)
                if how == "done":
                    state.done.append(job.folder)
                elif how == "failed":
                    state.failed[job.folder] = reason
                else:
                    state.left.append(job)
    finally:
        executor.kill()
    state = state._replace(left=[*state.left, *waiting])
    on_progress(state)
    return state


class LocalProcesses:
    """Each job is a process of this machine, which ends when this process ends; its output goes to ``OUT/logs``.

    Args:
        out: folder of the sweep.
        slots: processes at once, which share an accelerator's memory.
        keep_open: descriptor of the sweep's lock, which children hold too.
        python: arguments of the interpreter that start a child; it must watch its standard input.
    """

    def __init__(self, out: Path, slots: int, keep_open: int, python: Sequence[str]):
        self._out, self._python, self._keep_open = out, python, keep_open
        self._environment = child_environment(os.environ, slots)
        self._running: list[tuple[Job, subprocess.Popen[bytes]]] = []
        self._stopping = False

    def start(self, job: Job) -> None:
        """Start a process."""
        file = JobFile(inside(self._out, job.folder), job.group, log_file(self._out, job.folder))
        process = start_child(self._python, file, self._environment, keep_open=(self._keep_open,))
        self._running.append((job, process))

    def ended(self) -> list[Ended]:
        """Jobs whose process ended since the last call."""
        over = [(job, process) for job, process in self._running if process.poll() is not None]
        self._running = [pair for pair in self._running if pair not in over]
        for _, process in over:
            process.communicate()  # closes its input
        return [judge(self._out, job, process.returncode, stopping=self._stopping) for job, process in over]

    def stop(self) -> None:
        """Ask every process to stop."""
        self._stopping = True
        for job, process in self._running:
            process.send_signal(stop_signal(job))

    def kill(self) -> None:
        """End every process."""
        self._stopping = True
        for _, process in self._running:
            process.kill()
            process.communicate()


def uses_accelerator() -> bool:
    """Whether jobs of this machine run on an accelerator; found out without using it."""
    return any(os.path.exists(path) for path in _ACCELERATORS) and os.environ.get("JAX_PLATFORMS") != "cpu"


def default_slots(jobs: int) -> int:
    """Processes at once: one where there is an accelerator, because one program fills it; else one per two cores."""
    if uses_accelerator():
        return 1
    return max(1, min(jobs, (os.cpu_count() or 1) // 2))
