"""Several sweeps done as one: their jobs share the machine, and a job that would not end in time is not started."""

from __future__ import annotations

import heapq
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from cramerl.deep.envs.names import env_family
from cramerl.runs.folder import TIMING, VERSIONS, read_object
from cramerl.sweep.execute import Executor, uses_accelerator
from cramerl.sweep.folder import Plan, find_runs, last_rows, make_plan
from cramerl.sweep.job import Ended
from cramerl.sweep.plan import Identity, Job, Sweep, identity, wanted_runs

START_SECONDS = 60.0
"""What a job takes beside its steps, as long as no job that ended says so: imports, compiling, making emulators."""
_MARGIN = 1.1  # jobs may take so much longer than those that ended
_ROWS = 10**6  # of a log of times, at most


class Request(NamedTuple):
    """One of the sweeps.

    Attributes:
        name: what it is called, for the user.
        out: its folder; several sweeps may have the same.
        sweep: the runs.
        at_once: how many of its jobs run at once: each takes so large a part of the machine.
        speed: steps a second of all these together, summed over runs, as long as no job that ended says so.
    """

    name: str
    out: Path
    sweep: Sweep
    at_once: int
    speed: float


class Work(NamedTuple):
    """A job, the request that it is for, and its name among the jobs of all folders."""

    job: Job
    request: Request

    @property
    def name(self) -> str:
        """The path of its folder."""
        return str(self.request.out / self.job.folder)

    @property
    def size(self) -> int:
        """Steps that are left, summed over its runs."""
        return (self.job.steps - self.job.step) * len(self.job.group)


class Agenda(NamedTuple):
    """What several sweeps ask for, compared with what their folders hold.

    Attributes:
        work: what is left to do, in the order of the requests.
        plans: of each folder.
        done: how many jobs of each request are finished, in the order of the requests.
    """

    work: list[Work]
    plans: dict[Path, Plan]
    done: list[int]


def make_agenda(requests: Sequence[Request]) -> Agenda:
    """Plan several sweeps. Those of one folder are planned together, so that names do not depend on what is done."""
    plans: dict[Path, Plan] = {}
    work: list[tuple[int, Work]] = []
    done = [0] * len(requests)
    for out in dict.fromkeys(request.out for request in requests):
        mine = [at for at, request in enumerate(requests) if request.out == out]
        plan = plans[out] = make_plan([requests[at].sweep for at in mine], out)
        request_of: dict[Identity, int] = {}
        for at in mine:
            for run in wanted_runs(requests[at].sweep):
                request_of.setdefault(identity(run), at)
        for job in plan.jobs:
            at = _first_request(job, request_of)
            work.append((at, Work(job, requests[at])))
        for job in plan.done:
            done[_first_request(job, request_of)] += 1
    work.sort(key=lambda pair: pair[0])  # stable: a request keeps the order of its plan
    return Agenda([one for _, one in work], plans, done)


def _first_request(job: Job, request_of: Mapping[Identity, int]) -> int:
    return min(at for run in job.group.configs if (at := request_of.get(identity(run))) is not None)


class Durations:
    """How long jobs will take: as the jobs that ended say, with a tenth more, or as the request says.

    Jobs of the same agent in the same environment count, else those in the same environment, else those of the same
    folder; and only those of a machine of the same kind, with an accelerator or without. Their number at once is not
    known, so it should be the request's.

    Args:
        folders: those of sweeps, whose finished jobs are measured.
    """

    def __init__(self, folders: Iterable[Path]):
        self._seconds: dict[tuple[str, ...], list[float]] = {}  # for a step of a run
        for out in dict.fromkeys(folders):
            for run in find_runs(out):
                if run.finished and not run.diverged:
                    self.measure(out, Job(run.folder, run.group))

    def measure(self, out: Path, job: Job) -> None:
        """Take a finished job into account."""
        seconds = measured_seconds(out, job)
        if seconds is not None:
            for key in _alike(out, job):
                self._seconds.setdefault(key, []).append(seconds / (job.steps * len(job.group)))

    def expected(self, work: Work) -> float:
        """Seconds that a job will take."""
        for key in _alike(work.request.out, work.job):
            if key in self._seconds:
                return _MARGIN * statistics.median(self._seconds[key]) * work.size
        return START_SECONDS + work.size * work.request.at_once / work.request.speed


def _alike(out: Path, job: Job) -> list[tuple[str, ...]]:
    """What jobs that take as long have in common, the closest first."""
    config = job.group.first
    return [("env, agent", config.env, config.agent), ("env", config.env), ("folder", str(out))]


def measured_seconds(out: Path, job: Job) -> float | None:
    """How long a finished job took, from its log of times; None if that was on another kind of machine."""
    folder = out / job.folder
    if not (folder / TIMING).is_file() or not (folder / VERSIONS).is_file():
        return None
    device = str(read_object(folder, VERSIONS, lambda values: values.get("device", "")))
    if device.startswith("cpu") == uses_accelerator():
        return None
    # Imports, and emulators made one after another, are not in the log.
    seconds, before = 20.0 if env_family(job.group.first.env) == "gymnax" else 45.0, 0
    for row in last_rows(folder / TIMING, _ROWS):
        seconds += (row["step"] - before) * len(job.group) / row["charts/SPS"]
        before = row["step"]
    return seconds if before else None


class Schedule:
    """Whether a job may start: if there is room beside those that run, and it is expected to end in time.

    Args:
        work: all jobs, by name.
        durations: how long they will take.
        deadline: time of the clock at which all must have ended; None if there is time enough.
        clock: seconds.
    """

    def __init__(
        self, work: Mapping[str, Work], durations: Durations, deadline: float | None, clock: Callable[[], float]
    ):
        self._work, self._durations, self._deadline, self._clock = work, durations, deadline, clock

    def may_start(self, job: Job, running: Sequence[Job]) -> bool:
        """For `execute`, whose jobs have the names of all folders."""
        if self._deadline is not None and self._clock() + self.seconds(job) > self._deadline:
            return False
        return sum(self._share(one) for one in (*running, job)) < 1 + 1e-6

    def seconds(self, job: Job) -> float:
        """How long a job will take."""
        return self._durations.expected(self._work[job.folder])

    def _share(self, job: Job) -> float:
        return 1 / self._work[job.folder].request.at_once


def foresee(work: Sequence[Work], durations: Durations, seconds: float | None = None) -> tuple[list[Work], float]:
    """Which jobs would be started within so many seconds, and when the last of them would end."""
    names = {one.name: one for one in work}
    now, last = 0.0, 0.0
    schedule = Schedule(names, durations, seconds, lambda: now)
    waiting = [one.job._replace(folder=one.name) for one in work]
    started: list[Work] = []
    ends: list[tuple[float, str]] = []
    running: dict[str, Job] = {}
    while waiting or running:
        for job in [*waiting]:
            if schedule.may_start(job, [*running.values()]):
                waiting.remove(job)
                running[job.folder] = job
                started.append(names[job.folder])
                heapq.heappush(ends, (now + schedule.seconds(job), job.folder))
        if not running:
            break
        now, name = heapq.heappop(ends)
        last = max(last, now)
        del running[name]
    return started, last


class Executors:
    """An executor for each folder, as one executor whose jobs have the names of all folders.

    Args:
        work: all jobs, by name.
        executors: what does the jobs of each folder.
    """

    def __init__(self, work: Mapping[str, Work], executors: Mapping[Path, Executor]):
        self._work, self._executors = work, executors

    def start(self, job: Job) -> None:
        """Start a job."""
        one = self._work[job.folder]
        self._executors[one.request.out].start(one.job)

    def ended(self) -> list[Ended]:
        """Jobs that ended since the last call."""
        return [
            Ended(job._replace(folder=str(out / job.folder)), how, reason)
            for out, executor in self._executors.items()
            for job, how, reason in executor.ended()
        ]

    def stop(self) -> None:
        """Ask every job to stop."""
        for executor in self._executors.values():
            executor.stop()

    def kill(self) -> None:
        """End every job."""
        for executor in self._executors.values():
            executor.kill()
