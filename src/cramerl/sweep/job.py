"""A job of a sweep as its parent process sees it: the file that tells a child what to do, the child, and its end."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal, NamedTuple

from cramerl._files import write_json
from cramerl._folders import LOG_BYTES, inside, open_inside, parse_json, read_inside
from cramerl.runs.group import RunGroup
from cramerl.sweep.folder import inspect_run, log_file
from cramerl.sweep.plan import Job

STOPPED = 130  # exit status of a run that was stopped with a checkpoint
_MEMORY = ("XLA_PYTHON_CLIENT_MEM_FRACTION", "XLA_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_PREALLOCATE")
_MEMORY_FRACTION = 0.9  # of an accelerator's memory, for all processes together


class JobFile(NamedTuple):
    """What a process is told to do.

    Attributes:
        folder: where to train.
        group: the runs.
        log: the file that the process writes its output to.
        mirror: URL of a copy of the folder, which is updated after every checkpoint; None if there is none.
    """

    folder: Path
    group: RunGroup
    log: Path
    mirror: str | None = None

    def write(self, file: Path) -> Path:
        """Write the file."""
        content = {"folder": str(self.folder), "log": str(self.log), "mirror": self.mirror}
        return write_json(inside(file.parent, file.name), content | {"settings": self.group.to_json()})

    @classmethod
    def read(cls, file: Path) -> JobFile:
        """Read a file that `write` wrote."""
        values = parse_json(read_inside(file.parent, file.name))
        group = RunGroup.from_json(values["settings"])
        return cls(Path(values["folder"]), group, Path(values["log"]), values["mirror"])


class Ended(NamedTuple):
    """A job that no longer runs: finished, stopped so that it can be continued, or failed for a reason."""

    job: Job
    how: Literal["done", "stopped", "failed"]
    reason: str = ""


def start_child(
    python: Sequence[str], job: JobFile, environment: Mapping[str, str], *, keep_open: Sequence[int] = ()
) -> subprocess.Popen[bytes]:
    """Start a process for a job, which ends when this one does.

    Its own session makes Ctrl-C in a terminal reach it through us only. Its standard input is a pipe that closes when
    we are gone, for whatever reason.

    Args:
        python: arguments of the interpreter that start the child; the job's file comes after them.
        job: what it is to do.
        environment: its variables.
        keep_open: descriptors, usually of locks, that it holds too.
    """
    file = job.write(job.log.with_suffix(".json"))
    with open_inside(job.log.parent, job.log.name, "append") as output:
        output.write(f"--- {socket.gethostname()}, process {os.getpid()}: {file}\n".encode())
        output.flush()
        return subprocess.Popen(
            [sys.executable, "-P", *python, str(file)],  # a module in the current folder is not imported
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=dict(environment),
            pass_fds=keep_open,
        )


def stop_signal(job: Job) -> signal.Signals:
    """The signal that stops a job: waiting for a checkpoint that it does not write would be in vain."""
    return signal.SIGINT if job.resumable else signal.SIGKILL


def judge(out: Path, job: Job, status: int, said: str | None = None, *, stopping: bool) -> Ended:
    """How a job ended.

    Args:
        out: folder of the sweep.
        job: the job.
        status: exit status of its process, negative for a signal.
        said: the last line of its output; None to read it from the log.
        stopping: whether it was asked to stop.
    """
    # A process that is asked before it listens is ended by the signal.
    stopped = status == STOPPED or (stopping and status in (-signal.SIGINT, -signal.SIGKILL))
    with suppress(OSError, ValueError):
        # The folder counts: a run may have finished just before it was stopped.
        found = inspect_run(out / job.folder)
        if (stopped or status == 0) and found.finished and found.group.first.steps >= job.steps:
            return Ended(job, "done")
    if stopped:
        return Ended(job, "stopped")
    said = last_line(log_file(out, job.folder)) if said is None else said
    return Ended(job, "failed", f"ended by {signal.Signals(-status).name}; {said}" if status < 0 else said)


def last_line(log: Path) -> str:
    """The last line that a process wrote, without the name of the program before it."""
    with open_inside(log.parent, log.name, most=LOG_BYTES) as file:
        file.seek(max(0, file.seek(0, 2) - 8192))
        lines = [line.strip() for line in file.read().decode(errors="replace").splitlines()]
    return next((line.removeprefix("cramerl: ") for line in reversed(lines) if line), "it wrote nothing")


def child_environment(environment: Mapping[str, str], slots: float) -> dict[str, str]:
    """Variables for children: several at once must not each take an accelerator's whole memory."""
    if slots <= 1 or any(name in environment for name in _MEMORY):
        return dict(environment)
    return {**environment, _MEMORY[0]: f"{_MEMORY_FRACTION / slots:.3f}"}
