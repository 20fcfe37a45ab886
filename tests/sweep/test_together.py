"""Several sweeps done as one, and only what is expected to end in time."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from sweep_folders import GAME, asked, put_run

from cramerl.sweep.folder import write_record
from cramerl.sweep.job import Ended
from cramerl.sweep.plan import Job
from cramerl.sweep.together import START_SECONDS, Agenda, Durations, Executors, Request, Schedule, foresee, make_agenda

STEPS = 2000  # of the preset smoke


def request(out: Path, name: str = "first", at_once: int = 2, speed: float = 100.0, **options) -> Request:
    return Request(name, out, asked(allow_variants=True, **options), at_once, speed)


def put_timed(out: Path, job: Job, seconds: float, device: str = "cpu: cpu") -> None:
    """A finished job that trained for so many seconds."""
    folder = put_run(out, job.folder, job.group)
    half = STEPS // 2
    rows = [{"step": step, "charts/SPS": len(job.group) * STEPS / seconds} for step in (half, STEPS)]
    (folder / "timing.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "versions.json").write_text(json.dumps({"device": device}))


@pytest.fixture(autouse=True)
def _no_accelerator(monkeypatch):
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")


def names(agenda: Agenda) -> list[str]:
    return [Path(one.name).name for one in agenda.work]


def test_names_do_not_depend_on_what_is_done(tmp_path):
    both = [request(tmp_path, "wide", changes={"v_min": -10, "v_max": 10}), request(tmp_path, "own")]
    agenda = make_agenda(both)
    assert [one.request.name for one in agenda.work] == ["wide", "own"]
    assert len(set(names(agenda))) == 2
    assert "v-min--10__v-max-10" in names(agenda)[0]
    for line in both:
        write_record(tmp_path, agenda.plans[tmp_path], line.name, [], {})
    put_run(tmp_path, agenda.work[0].job.folder, agenda.work[0].job.group)
    later = make_agenda(both)
    assert names(later) == names(agenda)[1:]
    assert later.done == [1, 0]


def test_jobs_come_in_the_order_of_the_requests(tmp_path):
    lines = [
        request(tmp_path / "a", "1", seeds="5"),
        request(tmp_path / "b", "2", seeds="0-1"),
        request(tmp_path / "a", "3", seeds="0", agents="dqn"),
    ]
    assert [one.request.name for one in make_agenda(lines).work] == ["1", "2", "3"]


def test_how_long_a_job_takes_follows_from_those_that_ended(tmp_path):
    agenda = make_agenda([request(tmp_path, agents="s51,c51,dqn", envs=f"{GAME},Asterix-MinAtar")])
    first, *others = agenda.work
    assert Durations([tmp_path]).expected(first) == START_SECONDS + 2 * STEPS * 2 / 100
    put_timed(tmp_path, first.job, 100)
    durations = Durations([tmp_path])
    assert durations.expected(first) == pytest.approx(1.1 * 120)  # 20 seconds are not in the log
    assert durations.expected(others[0]) == pytest.approx(1.1 * 120)  # another agent
    put_timed(tmp_path, others[0].job, 300)
    durations.measure(tmp_path, others[0].job)
    assert durations.expected(others[0]) == pytest.approx(1.1 * 320)
    assert durations.expected(others[1]) == pytest.approx(1.1 * 220)  # the median of the two
    assert durations.expected(others[2]) == pytest.approx(1.1 * 220)  # another game


def test_another_kind_of_machine_says_nothing(tmp_path):
    agenda = make_agenda([request(tmp_path)])
    put_timed(tmp_path, agenda.work[0].job, 1, "gpu: NVIDIA H200")
    assert Durations([tmp_path]).expected(agenda.work[0]) > START_SECONDS


def test_what_does_not_end_in_time_is_not_started(tmp_path):
    agenda = make_agenda(
        [
            request(tmp_path / "long", "long", at_once=1, speed=1.0, envs="pong"),
            request(tmp_path / "short", "short", at_once=2, agents="s51,dqn,c51"),
        ]
    )
    durations = Durations([])
    short = START_SECONDS + 2 * STEPS * 2 / 100
    assert [one.request.name for one in foresee(agenda.work, durations, 1.5 * short)[0]] == ["short", "short"]
    started, end = foresee(agenda.work, durations, 2 * short)
    assert ([one.request.name for one in started], end) == (["short"] * 3, 2 * short)
    assert len(foresee(agenda.work, durations)[0]) == len(agenda.work)
    work = {one.name: one for one in agenda.work}
    long, *others = [one.job._replace(folder=name) for name, one in work.items()]
    now = [0.0]
    schedule = Schedule(work, durations, 1.5 * short, lambda: now[0])
    assert not schedule.may_start(long, [])
    assert schedule.may_start(others[-1], others[-2:-1])
    assert not schedule.may_start(others[-1], others[-3:-1])  # two fill the machine
    now[0] = short
    assert not schedule.may_start(others[-1], [])


def test_each_job_is_done_in_its_folder(tmp_path):
    agenda = make_agenda([request(tmp_path / "a", "a"), request(tmp_path / "b", "b")])
    work = {one.name: one for one in agenda.work}
    done: dict[Path, list[Job]] = {tmp_path / "a": [], tmp_path / "b": []}

    class Does:
        def __init__(self, out):
            self.start = done[out].append
            self.ended = lambda: [Ended(job, "done") for job in done[out]]
            self.stop = self.kill = lambda: None

    together = Executors(work, {out: Does(out) for out in done})
    for name, one in work.items():
        together.start(one.job._replace(folder=name))
    assert [[job.folder for job in jobs] for jobs in done.values()] == [[one.job.folder] for one in agenda.work]
    assert [ended.job.folder for ended in together.ended()] == list(work)
