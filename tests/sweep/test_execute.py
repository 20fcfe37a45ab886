"""Jobs as processes of this machine: they end when they should, and one that fails does not stop the others."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from sweep_folders import put_run

from cramerl.runs.group import as_group
from cramerl.runs.presets import preset
from cramerl.sweep.execute import LocalProcesses, State, default_slots, execute
from cramerl.sweep.folder import inspect_run, locked, log_file
from cramerl.sweep.job import JobFile, child_environment
from cramerl.sweep.plan import Job

# What a child does is the name of its folder.
CHILD = """
import json, os, signal, sys, time
what = json.load(open(sys.argv[1]))["folder"].rpartition("/")[2].partition("-")[0]
if what in ("wait", "deaf", "stay"):
    handlers = {"wait": lambda *_: os._exit(130), "deaf": signal.SIG_DFL, "stay": signal.SIG_IGN}
    signal.signal(signal.SIGINT, handlers[what])
    print("ready", flush=True)
    time.sleep(60)
if what == "crash":
    os.kill(os.getpid(), signal.SIGSEGV)
print("the last words")
sys.exit(int(what == "fail"))
"""


def job(out: Path, what: str, **changes) -> Job:
    """A job for the child above; its folder is that of a finished run if it is to be done."""
    config = preset("smoke", "dqn", "pong", **changes)
    if what == "done":
        put_run(out, f"pong/{what}", config)
    return Job(f"pong/{what}", as_group(config))


def processes(out: Path, jobs: list[Job], **options) -> State:
    with locked(out) as lock:
        return execute(jobs, LocalProcesses(out, 2, lock, ["-c", CHILD]), lambda: 2, **options)


def ready(out: Path, jobs: list[Job]) -> bool:
    logs = [log_file(out, job.folder) for job in jobs]
    return all(log.exists() and "ready" in log.read_text() for log in logs)


def test_a_job_that_fails_does_not_stop_the_others(tmp_path):
    state = processes(tmp_path, [job(tmp_path, what) for what in ("fail", "crash", "empty", "done")])
    assert state.done == ["pong/done"]
    assert len(state.failed) == 3
    assert state.failed["pong/fail"] == "the last words"
    assert state.failed["pong/crash"].startswith("ended by SIGSEGV; --- ")
    assert state.failed["pong/empty"] == "the last words"  # status 0, but no run
    first, *lines = log_file(tmp_path, "pong/fail").read_text().splitlines()
    assert first.startswith("--- ")
    assert lines == ["the last words"]
    assert json.loads(Path(first.rpartition(": ")[2]).read_text())["folder"] == str(tmp_path / "pong/fail")


def test_a_run_that_is_stopped_before_it_listens_has_not_failed(tmp_path):
    jobs = [job(tmp_path, "deaf")]
    state = processes(tmp_path, jobs, stop_requests=lambda: int(ready(tmp_path, jobs)))
    assert ([job.folder for job in state.left], state.failed) == (["pong/deaf"], {})


def test_after_the_deadline_running_jobs_are_stopped_and_no_job_starts(tmp_path):
    jobs = [job(tmp_path, f"wait-{i}") for i in range(3)]
    now = [0.0]
    state = processes(
        tmp_path,
        jobs,
        deadline=1.0,
        clock=lambda: now[0],
        on_progress=lambda state: now.__setitem__(0, 2.0 if ready(tmp_path, jobs[:2]) else 0.0),
    )
    assert (state.done, state.failed) == ([], {})
    assert sorted(job.folder for job in state.left) == ["pong/wait-0", "pong/wait-1", "pong/wait-2"]
    assert not log_file(tmp_path, "pong/wait-2").exists()


def test_a_second_request_ends_jobs_at_once(tmp_path):
    jobs, requests = [job(tmp_path, "stay")], [0]

    def on_progress(state: State) -> None:
        requests[0] += ready(tmp_path, jobs)

    state = processes(tmp_path, jobs, on_progress=on_progress, stop_requests=lambda: requests[0])
    assert ([job.folder for job in state.left], state.failed) == (["pong/stay"], {})


def test_a_job_without_checkpoints_is_not_waited_for(tmp_path):
    jobs = [job(tmp_path, "stay", checkpoints="none")]
    state = processes(tmp_path, jobs, stop_requests=lambda: int(ready(tmp_path, jobs)))
    assert ([job.folder for job in state.left], state.failed) == (["pong/stay"], {})


def test_a_job_that_cannot_start_has_failed(tmp_path):
    (tmp_path / "logs").write_text("not a folder")
    state = processes(tmp_path, [job(tmp_path, "done")])
    assert "logs" in state.failed["pong/done"]


def test_a_job_that_may_not_start_is_passed_over_and_left(tmp_path):
    jobs = [job(tmp_path, what) for what in ("fail", "stay", "empty")]
    beside = []

    def may_start(job: Job, running) -> bool:
        beside.append(len(running))
        return "stay" not in job.folder and not running

    state = processes(tmp_path, jobs, may_start=may_start)
    assert sorted(state.failed) == ["pong/empty", "pong/fail"]  # both were done, one after the other
    assert ([job.folder for job in state.left], state.stopping) == (["pong/stay"], False)
    assert not log_file(tmp_path, "pong/stay").exists()
    assert max(beside) == 1


def test_children_share_the_memory_of_an_accelerator(monkeypatch):
    assert child_environment({"A": "b"}, 1) == {"A": "b"}
    assert child_environment({}, 3) == {"XLA_PYTHON_CLIENT_MEM_FRACTION": "0.300"}
    mine = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    assert child_environment(mine, 3) == mine
    monkeypatch.setattr("cramerl.sweep.execute._ACCELERATORS", ["/dev/null"])
    monkeypatch.delenv("JAX_PLATFORMS", raising=False)
    assert default_slots(8) == 1
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    monkeypatch.setattr("os.cpu_count", lambda: 16)
    assert [default_slots(jobs) for jobs in (0, 3, 20)] == [1, 3, 8]


# --- a job can be started any number of times


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    from lenient import lenient

    from cramerl.sweep.train_job import train_job

    folder = tmp_path_factory.mktemp("job") / "run"
    config = preset("smoke", "dqn", "CartPole-v1", steps=400, iteration_steps=200, hidden_units=(8,))
    job = JobFile(folder, as_group(config), folder.parent / "log")
    with lenient():
        assert train_job(JobFile.read(job.write(folder.parent / "job.json"))).finished
    return job


def test_a_finished_job_is_left_alone_and_a_longer_one_resumed(finished, lenient_jax):
    from cramerl.sweep.train_job import train_job

    log = finished.folder / "metrics.jsonl"
    before, written = log.read_bytes(), log.stat().st_mtime_ns
    assert train_job(finished).finished
    assert log.stat().st_mtime_ns == written
    longer = finished._replace(group=finished.group.replace(steps=600))
    assert train_job(longer).step == 600
    assert log.read_bytes().startswith(before)
    assert inspect_run(finished.folder).group.first.steps == 600


def test_a_job_without_full_checkpoints_starts_again(finished, lenient_jax, tmp_path):
    from cramerl.sweep.train_job import train_job

    group = finished.group.replace(checkpoints="none", steps=400)
    path = put_run(tmp_path, "run", group, 100)
    assert train_job(JobFile(path, group, tmp_path / "log")).finished
    assert "losses/loss" in (path / "metrics.jsonl").read_text()


def test_a_module_in_the_current_folder_is_not_run(tmp_path, monkeypatch):
    """Neither by ``-c`` nor by ``-m``, which both look there first unless they are told not to."""
    (tmp_path / "queue.py").write_text("open('PWNED', 'w').close()")
    monkeypatch.chdir(tmp_path)
    done = job(tmp_path, "done")
    with locked(tmp_path) as lock:
        for python in (["-c", "import queue"], ["-m", "queue"]):
            execute([done], LocalProcesses(tmp_path, 1, lock, python), lambda: 1)
    assert "Error" not in log_file(tmp_path, done.folder).read_text()
    assert not (tmp_path / "PWNED").exists()
