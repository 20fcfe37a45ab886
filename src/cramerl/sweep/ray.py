"""The jobs of a sweep on a Ray cluster: each is an actor with its resources, and is begun again if it is lost."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from cramerl.runs.folder import CONFIG
from cramerl.sweep.execute import STOPPED, Ended, failure, log_file
from cramerl.sweep.folder import Job, gone_on_with, look_at
from cramerl.sweep.mirror import Storage
from cramerl.sweep.ray_worker import Order, Outcome, Worker, variables_of

_FETCH_SECONDS = 2.0  # between looks into a storage, for the display
_KILL_SECONDS = 10.0  # for workers to end their children
_THREADS = 4  # of an actor: it waits for its child, and is told to stop meanwhile
_DIVERGED = -9  # status of a child whose worker is gone
_TAKEN = (_DIVERGED, -15, 143, STOPPED)  # ended by others: memory ran out, the machine is being taken back
_MOST_CPUS = 2.0  # of a run, unless more are asked for


class Share(NamedTuple):
    """What one run takes of a cluster: CPUs, and accelerators or a fraction of one."""

    cpus: float
    gpus: float


class _Running(NamedTuple):
    """A job on its way: its actor, where that is once it is anywhere, and how the job will have ended."""

    job: Job
    actor: Any
    place: Any
    outcome: Any


class RayJobs:
    """Each job an actor, which has a child process as on one machine; an `Executor` for `execute`.

    An actor is not restarted by Ray: a job that was lost with its worker or machine is handed back as "lost", and the
    next attempt begins from the checkpoint that is there then. Actors end with this process, and children with them.

    Args:
        ray: the module, connected.
        out: folder of the sweep; without a storage every machine must see it.
        share: what each job takes.
        storage: where copies of the runs are kept.
        scratch: folder for runs on the other machines, with a storage.
    """

    def __init__(self, ray: Any, out: Path, share: Share, storage: Storage | None = None, scratch: str = ""):
        self._ray, self._given, self._out, self._share, self._scratch = ray, out, out.resolve(), share, scratch
        self._records = None if storage is None else _Records(storage)
        self._actor = ray.remote(Worker).options(
            num_cpus=share.cpus, num_gpus=share.gpus, max_restarts=0, max_concurrency=_THREADS
        )
        self._running: list[_Running] = []
        self._begun: set[str] = set()
        self._stopping = False
        _keep_quiet(ray)

    def slots(self) -> int:
        """Jobs that the cluster takes at once, as it is now; at least one, which then waits."""
        return max(1, room(self._ray.nodes(), self._share))

    def start(self, job: Job) -> None:
        """Begin with a job, or go on with one that was lost; Ray lets it wait until there is room."""
        now = gone_on_with(job, self._given) if job.folder in self._begun else job
        if self._records and not job.fresh and job.folder not in self._begun:
            self._records.storage.reconcile(job.folder)  # what was begun on this machine goes on elsewhere
        given, path = str(self._given / job.folder), str(self._out / job.folder)
        order = Order(
            str(self._out),
            job.folder,
            [path if word == given else word for word in now.arguments],
            now.fresh,
            variables_of(os.environ),
            self._share.gpus,
            self._records.storage.url if self._records else None,
            self._scratch,
        )
        actor = self._actor.remote()
        self._running.append(_Running(job, actor, actor.place.remote(), actor.run.remote(order)))
        self._begun.add(job.folder)
        if self._records:
            self._records.follow([running.job.folder for running in self._running])

    def ended(self) -> list[Ended]:
        """Jobs that ended since the last call."""
        if not self._running:
            return []
        waited = {running.outcome: running for running in self._running}
        over, _ = self._ray.wait(list(waited), num_returns=len(waited), timeout=0)
        self._running = [running for running in self._running if running.outcome not in over]
        if self._records:
            self._records.follow([running.job.folder for running in self._running])
        return [self._ending(waited[outcome]) for outcome in over]

    def stop(self) -> None:
        """Ask every job to stop with a checkpoint; one that still waits for room is taken back."""
        self._stopping = True
        for running in self._running:
            if self._ray.wait([running.place], timeout=0)[0]:
                running.actor.stop.remote()
            else:
                self._ray.kill(running.actor)

    def kill(self) -> None:
        """End every job at once; the last checkpoints stay good."""
        self._stopping = True
        for running in self._running:
            running.actor.kill.remote()
        outcomes = [running.outcome for running in self._running]
        if outcomes:
            self._ray.wait(outcomes, num_returns=len(outcomes), timeout=_KILL_SECONDS)
        for running in self._running:
            self._ray.kill(running.actor)
        if self._records:
            self._records.follow([])

    def _ending(self, running: _Running) -> Ended:
        job, outcome = running.job, self._outcome(running)
        path, finished, step = self._out / job.folder, False, 0
        try:
            if self._records:
                self._records.take(job.folder, outcome, self._out)
            if (path / CONFIG).exists():
                found = look_at(path)
                finished, step = found.finished, found.step - found.step % found.config.iteration_steps
        except (OSError, ValueError) as error:
            return Ended(job, "failed", str(error))
        # What is there counts: a run may have come to its end just before it was stopped or lost.
        if finished and outcome.status in (0, *_TAKEN):
            return Ended(job, "done")
        if outcome.status not in _TAKEN:
            return Ended(job, "failed", failure(outcome.status, outcome.words))
        if self._stopping:
            return Ended(job, "stopped")
        return Ended(job, "lost", outcome.words, step)

    def _outcome(self, running: _Running) -> Outcome:
        """How a job ended; a worker that is gone counts as a child that was killed."""
        errors = self._ray.exceptions
        try:
            outcome = self._ray.get(running.outcome)
            if outcome.status in _TAKEN:
                return outcome._replace(words=f"its process was ended from outside, status {outcome.status}")
            return outcome
        except errors.RayTaskError as error:  # something over there was not as it should be, and says so
            return Outcome(2, str(error.cause))
        except errors.RayError as error:
            if getattr(error, "actor_init_failed", False):
                return Outcome(2, f"a worker could not begin, cramerl may be missing there: {_last_line(error)}")
            return Outcome(_DIVERGED, f"its worker{self._where(running)} is gone{_why(error)}")
        finally:
            with suppress(errors.RayError):
                self._ray.kill(running.actor)  # gives its resources back

    def _where(self, running: _Running) -> str:
        with suppress(self._ray.exceptions.RayError):
            return f" on {self._ray.get(running.place, timeout=0)}"
        return ""


class _Records:
    """Brings records from a storage to this machine, now and then for the display and at the end for good."""

    def __init__(self, storage: Storage):
        self.storage = storage
        self._guard, self._folders = threading.Lock(), []
        self._thread: threading.Thread | None = None

    def follow(self, folders: list[str]) -> None:
        """Fetch the records of these from now on."""
        self._folders = folders
        if folders and (self._thread is None or not self._thread.is_alive()):
            self._thread = threading.Thread(target=self._fetch, daemon=True)
            self._thread.start()

    def take(self, folder: str, outcome: Outcome, out: Path) -> None:
        """Fetch the records of a job that ended, and put down what its process said."""
        log = log_file(out, folder)
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("a", encoding="utf-8") as file:
            file.write(outcome.output or f"{outcome.words}\n")
        with self._guard:
            self.storage.fetch(folder, running=outcome.status != 0)

    def _fetch(self) -> None:
        while self._folders:
            for folder in self._folders:
                with suppress(OSError, ValueError), self._guard:
                    if folder in self._folders:
                        self.storage.fetch(folder, running=True)
            time.sleep(_FETCH_SECONDS)


def room(nodes: Iterable[dict[str, Any]], share: Share) -> int:
    """Jobs that fit on the nodes of a cluster at once, whatever else runs there.

    Args:
        nodes: as Ray lists them.
        share: what each job takes.
    """
    return sum(_fitting(node["Resources"], share) for node in nodes if node["Alive"])


def share_of(
    nodes: Iterable[dict[str, Any]], cpus: float | None, gpus: float | None, *, must_fit: bool = True
) -> Share:
    """What a job takes unless it is said: an accelerator where there are any, and two CPUs where machines have them.

    Args:
        nodes: as Ray lists them.
        cpus: as it was said, or None.
        gpus: likewise.
        must_fit: refuse what no machine has; else jobs wait for one that a cluster which grows may yet get.
    """
    machines = [node["Resources"] for node in nodes if node["Alive"]]
    most_gpus = max((machine.get("GPU", 0.0) for machine in machines), default=0.0)
    most_cpus = max((machine.get("CPU", 0.0) for machine in machines), default=0.0)
    share = Share(min(_MOST_CPUS, most_cpus) if cpus is None else cpus, min(1.0, most_gpus) if gpus is None else gpus)
    if must_fit and not any(_fitting(machine, share) for machine in machines):
        has = "; ".join(f"{machine.get('CPU', 0):g} CPUs, {machine.get('GPU', 0):g} GPUs" for machine in machines)
        raise ValueError(
            f"a cell takes {share.cpus:g} CPUs and {share.gpus:g} GPUs, and no machine has as much ({has}); "
            "see --cpus-per-run and --gpus-per-run, and --jobs for machines that are yet to come"
        )
    return share


def _fitting(machine: dict[str, float], share: Share) -> int:
    asked = {"CPU": share.cpus, "GPU": share.gpus}
    return min((int(machine.get(name, 0.0) / much + 1e-9) for name, much in asked.items() if much), default=1)


def _why(error: Exception) -> str:
    """What can be told from Ray's many words; most of them are guesses."""
    words = str(error).lower()
    for sign, meaning in (("memory", ", for memory ran out"), ("preempt", ", for its machine was taken back")):
        if sign in words and "memory usage" not in words:
            return meaning
    return ""


def _last_line(error: Exception) -> str:
    return next((line.strip() for line in reversed(str(error).splitlines()) if line.strip()), type(error).__name__)


def _keep_quiet(ray: Any) -> None:
    """Ray prints what its daemons say about lost workers on standard output; we say it once, in our words."""
    worker = getattr(getattr(ray, "_private", None), "worker", None)
    if hasattr(worker, "print_to_stdstream"):
        worker.print_to_stdstream = lambda *_, **__: None  # pyright: ignore[reportOptionalMemberAccess]
