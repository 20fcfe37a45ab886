"""Doing the jobs of a sweep: the loop that is the same everywhere, and processes of this machine as one executor."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal, NamedTuple, Protocol

from cramerl.sweep.folder import LOGS, Job, clear_folder, look_at

_POLL_SECONDS = 0.1
STOPPED = 130  # exit status of a run that was stopped with a checkpoint
_MEMORY = ("XLA_PYTHON_CLIENT_MEM_FRACTION", "XLA_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_PREALLOCATE")
_MEMORY_SHARE = 0.9  # of an accelerator's memory, for all processes together
_ACCELERATORS = ("/dev/nvidia0", "/dev/kfd", "/dev/accel0", "/dev/vfio/0")


class Ended(NamedTuple):
    """A job that is not running any more.

    Attributes:
        job: which.
        how: "stopped" can be gone on with; "lost" was not the job's own doing, and it is begun again.
        words: why it failed or was lost.
        step: agent steps of whole iterations that were not lost with it.
    """

    job: Job
    how: Literal["done", "stopped", "failed", "lost"]
    words: str = ""
    step: int = 0


class Executor(Protocol):
    """Whatever can do jobs: processes of this machine, or a cluster."""

    def start(self, job: Job) -> None:
        """Begin with a job; does not wait."""
        ...

    def ended(self) -> list[Ended]:
        """Jobs that ended since the last call; does not wait."""
        ...

    def stop(self) -> None:
        """Ask every job to stop with a checkpoint; does not wait."""
        ...

    def kill(self) -> None:
        """End every job at once, and wait for that."""
        ...


class State(NamedTuple):
    """How a sweep is going.

    Attributes:
        done: folders of cells that this sweep has finished.
        failed: folders of those that failed, with a sentence.
        running: jobs, in the order of their start.
        left: jobs that have not begun, or were stopped.
        stopping: no job is begun any more.
        losses: by folder, how jobs were lost, one after the other.
    """

    done: list[str]
    failed: dict[str, str]
    running: list[Job]
    left: list[Job]
    stopping: bool
    losses: dict[str, list[Ended]] = {}  # noqa: RUF012 - only ever replaced


def execute(
    jobs: Sequence[Job],
    executor: Executor,
    slots: int | Callable[[], int],
    *,
    watch: Callable[[State], None] = lambda state: None,
    wish: Callable[[], int] = lambda: 0,
    deadline: float | None = None,
    retries: int = 0,
    clock: Callable[[], float] = time.monotonic,
) -> State:
    """Do jobs, several at once. One that fails does not keep the others from being done.

    A job that is lost is begun again before anything else, unless that came to nothing too often.

    Args:
        jobs: in the order in which they are begun.
        executor: what does them.
        slots: jobs at once; a function where that changes, as when machines come and go.
        watch: called with the state several times a second.
        wish: how often it was wished to stop; once more after stopping has begun stops at once.
        deadline: time of the clock after which to stop with checkpoints.
        retries: how often a job that is lost again and again before it has finished another iteration is begun anew.
        clock: seconds.
    """
    waiting, state = deque(jobs), State([], {}, [], [], False, {})
    heard, killed = 0, False
    most = slots if callable(slots) else lambda: slots
    try:
        while state.running or (waiting and not state.stopping):
            if not state.stopping and (wish() or (deadline is not None and clock() >= deadline)):
                state, heard = state._replace(stopping=True), wish()
                executor.stop()
            if state.stopping and wish() > heard and not killed:
                killed = True
                executor.kill()
            while waiting and not state.stopping and len(state.running) < most():
                state.running.append(waiting.popleft())
                _start(executor, state, waiting)
            watch(state._replace(left=[*state.left, *waiting]))
            if state.running:
                time.sleep(_POLL_SECONDS)
            for ended in executor.ended():
                _take_in(_judged(ended, state, retries), state, waiting)
    finally:
        executor.kill()
    state = state._replace(left=[*state.left, *waiting])
    watch(state)
    return state


def _start(executor: Executor, state: State, waiting: deque[Job]) -> None:
    """A job that cannot even begin has failed like any other."""
    try:
        executor.start(state.running[-1])
    except (OSError, ValueError) as error:
        _take_in(Ended(state.running[-1], "failed", str(error)), state, waiting)


def _judged(ended: Ended, state: State, retries: int) -> Ended:
    """A job that was lost is begun again, unless it never gets further: then it has failed."""
    if ended.how != "lost":
        return ended
    losses = state.losses.setdefault(ended.job.folder, [])
    losses.append(ended)
    best = max(loss.step for loss in losses)
    in_vain = len(losses) - next(i for i, loss in enumerate(losses) if loss.step == best)
    if in_vain <= retries:
        return ended
    times = f"{in_vain} times in a row" if in_vain > 1 else "once"
    return ended._replace(how="failed", words=f"lost {times} without another iteration done: {ended.words}")


def _take_in(ended: Ended, state: State, waiting: deque[Job]) -> None:
    state.running.remove(ended.job)
    if ended.how == "done":
        state.done.append(ended.job.folder)
    elif ended.how == "failed":
        state.failed[ended.job.folder] = ended.words
    elif ended.how == "lost" and not state.stopping:
        waiting.appendleft(ended.job)
    else:
        state.left.append(ended.job)


class LocalProcesses:
    """Each job a process of this machine, which ends when this one does; its output goes to ``OUT/logs``.

    A child is told to stop by SIGINT. It has its own session, so that Ctrl-C in a terminal reaches it through us only,
    and its standard input is a pipe that closes when we are gone, however that came about.

    Args:
        out: folder of the sweep.
        command: what to put before a job's arguments; it must watch its standard input.
        slots: processes at once, which share an accelerator's memory.
        keep_open: descriptor of the sweep's lock, which children hold too.
        environment: variables; os.environ by default.
    """

    def __init__(
        self,
        out: Path,
        command: Sequence[str],
        slots: int,
        keep_open: int,
        environment: Mapping[str, str] | None = None,
    ):
        self._out, self._command, self._keep_open = out, list(command), keep_open
        self._environment = child_environment(os.environ if environment is None else environment, slots)
        self._running: list[tuple[Job, subprocess.Popen[bytes]]] = []
        self._stopping = self._killed = False

    def start(self, job: Job) -> None:
        """Begin with a job."""
        if job.fresh:
            clear_folder(self._out / job.folder)
        log = log_file(self._out, job.folder)
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as output:
            output.write(f"$ {shlex.join(['cramerl', *job.arguments])}\n".encode())
            output.flush()
            process = subprocess.Popen(
                [*self._command, *job.arguments],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=self._environment,
                pass_fds=(self._keep_open,),
            )
        self._running.append((job, process))

    def ended(self) -> list[Ended]:
        """Jobs that ended since the last call."""
        over = [(job, process) for job, process in self._running if process.poll() is not None]
        self._running = [pair for pair in self._running if pair not in over]
        for _, process in over:
            _close(process)
        return [self._ending(job, process.returncode) for job, process in over]

    def stop(self) -> None:
        """Ask every child to stop with a checkpoint; one that keeps none would make its sweep wait for nothing."""
        self._stopping = True
        for job, process in self._running:
            process.send_signal(signal.SIGINT if job.can_go_on else signal.SIGKILL)

    def kill(self) -> None:
        """End every child at once; the last checkpoints stay good."""
        self._killed = True
        for _, process in self._running:
            if process.poll() is None:
                process.kill()
            process.wait()
            _close(process)

    def _ending(self, job: Job, status: int) -> Ended:
        # One that is asked before it listens is ended by the signal.
        killed = self._killed or (self._stopping and not job.can_go_on)
        asked = (self._stopping, -signal.SIGINT), (killed, -signal.SIGKILL)
        stopped = status == STOPPED or any(said and status == by for said, by in asked)
        with suppress(OSError, ValueError):
            # What is there counts: a run may have come to its end just before it was stopped.
            if (stopped or status == 0) and look_at(self._out / job.folder).finished:
                return Ended(job, "done")
        if stopped:
            return Ended(job, "stopped")
        return Ended(job, "failed", failure(status, last_line(log_file(self._out, job.folder))))


def child_environment(environment: Mapping[str, str], slots: float) -> dict[str, str]:
    """Variables for children: several at once must not each take an accelerator's whole memory."""
    if slots <= 1 or any(name in environment for name in _MEMORY):
        return dict(environment)
    return {**environment, _MEMORY[0]: f"{_MEMORY_SHARE / slots:.3f}"}


def default_slots(jobs: int) -> int:
    """Processes at once: one where there is an accelerator, which one program fills; else one per two cores."""
    if any(os.path.exists(path) for path in _ACCELERATORS) and os.environ.get("JAX_PLATFORMS") != "cpu":
        return 1
    return max(1, min(jobs, (os.cpu_count() or 1) // 2))


def log_file(out: Path, folder: str) -> Path:
    """Where the output of a cell's process goes."""
    return out / LOGS / f"{folder}.log"


def failure(status: int, words: str) -> str:
    """Why a child failed: its last words, and the signal that ended it."""
    return f"ended by {signal.Signals(-status).name}; {words}" if status < 0 else words


def _close(process: subprocess.Popen[bytes]) -> None:
    if process.stdin is not None:
        with suppress(OSError):
            process.stdin.close()


def last_line(log: Path) -> str:
    """What a process said last, without our name before it."""
    with log.open("rb") as file:
        file.seek(max(0, file.seek(0, 2) - 8192))
        lines = [line.strip() for line in file.read().decode(errors="replace").splitlines()]
    return next((line.removeprefix("cramerl: ") for line in reversed(lines) if line), "it said nothing")
