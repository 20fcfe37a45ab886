"""The jobs of a sweep on a Ray cluster: each is a task, which Ray starts again if its worker or machine disappears."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from cramerl._folders import inside, open_inside
from cramerl._version import __version__
from cramerl.sweep.folder import RECORD, locked, log_file
from cramerl.sweep.job import (
    STOPPED,
    Ended,
    JobFile,
    child_environment,
    judge,
    last_line,
    start_child,
    stop_signal,
)
from cramerl.sweep.mirror import Mirror
from cramerl.sweep.plan import Job

_DOWNLOAD_SECONDS = 2.0  # between downloads of the records of running jobs, for the display
_MOST_CPUS = 2.0  # of a job, unless the user asks for more
_SHARED = ("JAX_", "XLA_")  # variables that results depend on
_THREADS = "_NUM_THREADS"


class JobLost(Exception):  # noqa: N818 - it says what happened
    """A job's process was killed by something else: memory ran out, or the machine is shut down. Ray tries again."""


class Resources(NamedTuple):
    """What one job takes of a cluster: CPUs, and GPUs or a fraction of one."""

    cpus: float
    gpus: float


class TaskSettings(NamedTuple):
    """What all tasks of a sweep share.

    Attributes:
        out: folder of the sweep, absolute; without a storage every machine must see it.
        python: arguments of the interpreter that start a child.
        resources: what each job takes.
        storage: URL where the folders of jobs are kept.
        scratch: folder in which machines train if there is a storage; "" for the temporary folder of each.
        environment: variables that results depend on, see `shared_variables`.
        version: of cramerl.
    """

    out: Path
    python: Sequence[str]
    resources: Resources
    storage: str | None = None
    scratch: str = ""
    environment: Mapping[str, str] = {}
    version: str = __version__


class RayTasks:
    """Each job is a task with a child process, as on one machine; an `Executor` for `execute`.

    A job can be started any number of times, so Ray's own retries are all that a lost worker needs. Tasks end with this
    process, and children with their tasks.

    Args:
        ray: the module, connected.
        settings: of the tasks.
        retries: how often a job may be lost before it has failed.
        checkpoints: whether the sweep's folder gets checkpoints from the storage, not only records.
    """

    def __init__(self, ray: Any, settings: TaskSettings, retries: int, *, checkpoints: bool = False):
        self._ray, self._settings, self._retries, self._checkpoints = ray, settings, retries, checkpoints
        cpus, gpus = settings.resources
        self._task = ray.remote(run_task).options(
            num_cpus=cpus, num_gpus=gpus, max_retries=retries, retry_exceptions=[JobLost]
        )
        self._running: dict[Any, Job] = {}
        self._stopping = self._killed = False
        self._guard = threading.Lock()  # of the sweep's folder, into which two threads download
        printer = getattr(getattr(ray, "_private", None), "worker", None)
        if hasattr(printer, "print_to_stdstream"):  # Ray prints long messages about lost workers to standard output
            printer.print_to_stdstream = lambda *_, **__: None  # pyright: ignore[reportOptionalMemberAccess]
        if settings.storage is not None:
            threading.Thread(target=self._download_records, daemon=True).start()

    def slots(self) -> int:
        """Jobs for which the cluster has resources now; at least one, which waits until there are."""
        total = self._ray.cluster_resources()
        asked = zip(("CPU", "GPU"), self._settings.resources, strict=True)
        return max(1, min((int(total.get(name, 0) / much + 1e-9) for name, much in asked if much), default=1))

    def start(self, job: Job) -> None:
        """Submit a task; it waits until there are resources."""
        if self._settings.storage is not None:
            self._mirror(job).synchronise(checkpoints=self._checkpoints)
        self._running[self._task.remote(self._settings, job)] = job

    def ended(self) -> list[Ended]:
        """Jobs whose task ended since the last call; after `kill`, all."""
        tasks = list(self._running)
        over = tasks if self._killed or not tasks else self._ray.wait(tasks, num_returns=len(tasks), timeout=0)[0]
        return [self._ending(self._running.pop(task), task) for task in over]

    def stop(self) -> None:
        """Cancel every task: one that waits is not started, and one that runs stops its child with a checkpoint."""
        self._stopping = True
        for task in self._running:
            self._ray.cancel(task)

    def kill(self) -> None:
        """Wait for nothing any more: when this process ends, Ray ends the tasks, and their children stop too."""
        if not self._stopping:
            self.stop()
        self._killed = True

    def _ending(self, job: Job, task: Any) -> Ended:
        errors = self._ray.exceptions
        try:
            status, said = self._ray.get(task, timeout=0 if self._killed else None)
        except (errors.TaskCancelledError, errors.GetTimeoutError):
            status, said = STOPPED, ""
        except errors.RayTaskError as error:
            lost = f"lost {self._retries + 1} times: " if isinstance(error.cause, JobLost) else ""
            status, said = 2, f"{lost}{error.cause}"
            # Cancelled just when Ray changes its signal handlers, a task ends with Python's own TypeError.
            if self._stopping and isinstance(error.cause, TypeError):
                status, said = STOPPED, ""
        except errors.RayError as error:
            why = " (memory ran out)" if isinstance(error, errors.OutOfMemoryError) else ""
            status, said = 2, f"lost {self._retries + 1} times: its worker disappeared{why}"
        try:
            if self._settings.storage is not None:
                with self._guard:
                    self._mirror(job).download(checkpoints=self._checkpoints)
        except (OSError, ValueError) as error:
            return Ended(job, "failed", str(error))
        return judge(self._settings.out, job, status, said, stopping=self._stopping)

    def _mirror(self, job: Job) -> Mirror:
        return Mirror.of_job(f"{self._settings.storage}", self._settings.out, job.folder)

    def _download_records(self) -> None:
        while not self._stopping:
            for job in list(self._running.values()):
                with suppress(OSError, ValueError), self._guard:
                    if job in self._running.values():
                        self._mirror(job).download(checkpoints=False)
            time.sleep(_DOWNLOAD_SECONDS)


def run_task(settings: TaskSettings, job: Job) -> tuple[int, str]:
    """Do a job on the machine of a worker: start a child, and wait for it.

    Returns:
        Its exit status, and the last line it wrote.

    Raises:
        JobLost: something else ended the child.
    """
    here = f"{socket.gethostname()} (process {os.getpid()})"
    if settings.version != __version__:
        raise ValueError(f"every machine must have cramerl {settings.version}, {here} has {__version__}")
    stopping = False
    with ExitStack() as stack:
        if settings.storage is None:
            if not (settings.out / RECORD).is_file():
                raise ValueError(
                    f"{here} does not see {settings.out}: put the sweep on a file system that all machines share, or "
                    "use --storage URL"
                )
            file, locks = JobFile(inside(settings.out, job.folder), job.group, log_file(settings.out, job.folder)), ()
        else:
            place, lock = stack.enter_context(scratch_folder(settings.scratch))
            mirror = Mirror(f"{settings.storage}/{job.folder}", place / "run", place / "log")
            file, locks = JobFile(place / "run", job.group, place / "log", mirror.url), (lock,)
            mirror.download(checkpoints=True)
        process = start_child(settings.python, file, task_environment(settings), keep_open=locks)
        while True:
            try:
                # In short waits: ray.cancel raises KeyboardInterrupt, but not in the middle of a system call.
                status = process.wait(timeout=0.1)
                break
            except subprocess.TimeoutExpired:
                continue
            except KeyboardInterrupt:
                stopping = True
                process.send_signal(stop_signal(job))
        process.communicate()  # closes its input
        if not stopping and status in (STOPPED, -signal.SIGKILL, -signal.SIGTERM, 128 + signal.SIGTERM):
            raise JobLost(f"its process was ended by something else, status {status}")
        return status, last_line(file.log)


def shared_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Variables that results depend on, which other machines get too; which accelerator there is differs."""
    names = [name for name in environment if name.startswith(_SHARED) or name.endswith(_THREADS)]
    return {name: environment[name] for name in names if name != "JAX_PLATFORMS"}


def task_environment(settings: TaskSettings) -> dict[str, str]:
    """The variables of a child: this machine's, but those that results depend on from where the sweep was started.

    Ray sets the number of threads to the CPUs of a task, and sums in another order are other sums.
    """
    own = {name: text for name, text in os.environ.items() if not name.endswith(_THREADS)}
    if settings.resources.gpus == 0:
        own["JAX_PLATFORMS"] = "cpu"  # an accelerator on this machine belongs to others
    return child_environment(own | dict(settings.environment), 1 / (settings.resources.gpus or 1))


@contextmanager
def scratch_folder(root: str) -> Iterator[tuple[Path, int]]:
    """A new folder and the descriptor of its lock; folders that killed tasks left behind are removed.

    Args:
        root: where to create it; "" for the temporary folder of this machine.
    """
    base = Path(root) if root else Path(tempfile.gettempdir()) / f"cramerl-{os.getuid()}"
    base.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not root and (base.is_symlink() or base.stat().st_uid != os.getuid()):  # every folder in it may be removed
        raise ValueError(f"scratch must be given: {base}, the default, belongs to another user")
    with ExitStack() as stack:
        with open_inside(base, ".lock", "update") as guard:
            fcntl.flock(guard, fcntl.LOCK_EX)  # a folder that was just created is not locked yet
            for left in [path for path in base.iterdir() if path.is_dir()]:
                with suppress(ValueError, OSError), locked(left):  # locked as long as its task or its child lives
                    shutil.rmtree(left, ignore_errors=True)
            place = Path(tempfile.mkdtemp(dir=base))
            lock = stack.enter_context(locked(place))
        yield place, lock
        shutil.rmtree(place, ignore_errors=True)  # not after an error: the child may still be saving its checkpoint


def job_resources(
    nodes: Iterable[dict[str, Any]], cpus: float | None, gpus: float | None, *, must_fit: bool = True
) -> Resources:
    """The resources of a job: by default one GPU if the cluster has any, and up to two CPUs.

    Args:
        nodes: as Ray lists them.
        cpus: what the user asked for, or None.
        gpus: likewise.
        must_fit: raise ValueError if no machine has as much; otherwise jobs wait for a machine that may be added.
    """
    machines = [node["Resources"] for node in nodes if node["Alive"]]
    most = {name: max((machine.get(name, 0.0) for machine in machines), default=0.0) for name in ("CPU", "GPU")}
    cpus = min(_MOST_CPUS, most["CPU"]) if cpus is None else cpus
    gpus = min(1.0, most["GPU"]) if gpus is None else gpus
    if must_fit and not any(m.get("CPU", 0.0) >= cpus and m.get("GPU", 0.0) >= gpus for m in machines):
        has = "; ".join(f"{machine.get('CPU', 0):g} CPUs, {machine.get('GPU', 0):g} GPUs" for machine in machines)
        raise ValueError(
            f"a job takes {cpus:g} CPUs and {gpus:g} GPUs, but no machine has as much ({has}); see "
            "--cpus-per-run and --gpus-per-run, and --jobs for machines that will be added"
        )
    return Resources(cpus, gpus)
