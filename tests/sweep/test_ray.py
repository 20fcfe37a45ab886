"""Sweeps on a cluster of several nodes: workers, machines and the driver are killed, and the records are the same."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from lenient import lenient

from cramerl._ray import connect
from cramerl.runs.group import as_group
from cramerl.runs.presets import preset
from cramerl.sweep.execute import State, execute
from cramerl.sweep.folder import find_runs, locked, log_file
from cramerl.sweep.mirror import Mirror
from cramerl.sweep.plan import Job
from cramerl.sweep.ray import (
    RayTasks,
    Resources,
    TaskSettings,
    job_resources,
    run_task,
    scratch_folder,
    shared_variables,
    task_environment,
)

pytest.importorskip("ray")

SETTINGS = {"hidden_units": 8, "steps": 8000, "iteration_steps": 1000, "replay_steps": 2000, "log_steps": 500}
RUNS = ["--agents", "dqn", "--envs", "gym:CartPole-v1", "--preset", "smoke"]
RUNS += [word for name, value in SETTINGS.items() for word in (f"--{name.replace('_', '-')}", str(value))]
JOBS = ["gym-CartPole-v1/dqn__seed-0", "gym-CartPole-v1/dqn__seed-1"]
ENOUGH = 240.0  # seconds, on a machine that is busy with other things


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The same runs, trained in this process and undisturbed."""
    from cramerl import train

    out = tmp_path_factory.mktemp("whole")
    with lenient():
        for seed, folder in enumerate(JOBS):
            settings = SETTINGS | {"hidden_units": (8,), "seed": seed}
            train(preset("smoke", "dqn", "gym:CartPole-v1", **settings), out=out / folder)
    return records(out)


# In another process: JAX has threads here, and Ray forks.
CLUSTER = """
import sys
from ray.cluster_utils import Cluster
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
for _ in range(2):
    cluster.add_node(num_cpus=1)
print(cluster.address, flush=True)
for line in sys.stdin:
    cluster.add_node(num_cpus=1)
    print("added", flush=True)
cluster.shutdown()
"""


class Machines:
    """A cluster of a head without CPUs and nodes of one CPU."""

    def __init__(self) -> None:
        environment = {**os.environ, "RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0"}
        self._process = subprocess.Popen(
            [sys.executable, "-c", CLUSTER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            text=True,
        )
        self.address = self._process.stdout.readline().strip()

    def add(self) -> None:
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        assert self._process.stdout.readline() == "added\n"

    def close(self) -> None:
        self._process.communicate(timeout=ENOUGH)


@pytest.fixture(scope="module")
def machines():
    made = Machines()
    yield made
    made.close()


def records(out: Path) -> dict[str, bytes]:
    """What must not depend on where and how often something was done."""
    return {
        f"{path.parent.name}/{path.name}": path.read_bytes()
        for name in ("metrics.jsonl", "weights.json", "config.json")
        for path in out.glob(f"*/*/{name}")
    }


def wait_for(what: Callable[[], object]) -> None:
    end = time.monotonic() + ENOUGH
    while not what():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)


def starts(log: Path) -> list[int]:
    """The workers that have started a job, one after the other."""
    return [int(pid) for pid in re.findall(r"^--- .*, process (\d+): ", log.read_text(), re.MULTILINE)]


def iterations(folder: Path) -> int:
    return max((int(path.parent.name) for path in folder.glob("checkpoints/0*/manifest.json")), default=0)


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def children(pid: int) -> list[int]:
    return [
        int(word) for task in Path(f"/proc/{pid}/task").iterdir() for word in (task / "children").read_text().split()
    ]


def lose_worker(out: Path, folder: str) -> None:
    """Its child stays behind, and has to notice by itself that nobody waits for it."""
    wait_for(lambda: iterations(out / folder) >= 1)
    os.kill(starts(log_file(out, folder))[-1], signal.SIGKILL)


def lose_machine(out: Path, folder: str) -> None:
    """All its processes at once; to a cluster a machine is gone when its raylet is."""
    wait_for(lambda: iterations(out / folder) >= 1)
    worker = starts(log_file(out, folder))[-1]
    for pid in (parent(worker), *children(worker), worker):
        os.kill(pid, signal.SIGKILL)


@pytest.mark.slow
def test_a_lost_worker_and_a_lost_machine(sweep_command, whole, machines, tmp_path, capfd):
    out = tmp_path / "out"
    with ThreadPoolExecutor() as pool:
        harm = [pool.submit(lose_worker, out, JOBS[0]), pool.submit(lose_machine, out, JOBS[1])]
        status = sweep_command(out, *RUNS, "--seeds", "0-1", "--ray", machines.address)
        for one in harm:
            one.result()
    machines.add()
    said = capfd.readouterr()
    assert status == 0, said.err
    assert said.out.startswith(f"2 jobs in {out}: 2 done\n")
    assert records(out) == whole
    # A machine cost at most an iteration: its run was resumed from a checkpoint, not started again.
    for folder in JOBS:
        text = log_file(out, folder).read_text()
        assert len(starts(log_file(out, folder))) == 2
        assert text.count("step 0/8,000") == 1


def test_a_job_fails_by_its_own_error_at_once_and_by_losses_after_its_retries(machines, tmp_path):
    group = as_group(preset("smoke", "dqn", "pong"))
    jobs = [Job("pong/x", group)]

    def run(code: str) -> str:
        with connect(machines.address) as ray:
            tasks = RayTasks(ray, TaskSettings(tmp_path, ["-c", code], Resources(1, 0)), 1)
            return execute(jobs, tasks, tasks.slots).failed["pong/x"]

    assert f" does not see {tmp_path}: put the sweep on a file system that all machines share" in run("")
    (tmp_path / "sweep.json").write_text("{}")
    assert run("import sys; sys.exit('cramerl: agent must be ...')") == "agent must be ..."
    assert len(starts(log_file(tmp_path, "pong/x"))) == 1
    killed = "import os; os.kill(os.getpid(), 9)"
    assert run(killed) == "lost 2 times: its process was ended by something else, status -9"
    assert len(starts(log_file(tmp_path, "pong/x"))) == 1 + 2
    worker = "import os; os.kill(os.getppid(), 9)"
    assert run(worker) == "lost 2 times: its worker disappeared"


def test_workers_do_not_look_for_modules_in_the_current_folder(machines, tmp_path, monkeypatch):
    (tmp_path / "a_module_of_this_folder.py").touch()
    monkeypatch.chdir(tmp_path)

    def found() -> bool:
        import importlib.util

        return importlib.util.find_spec("a_module_of_this_folder") is not None

    for wanted in (False, True):
        with connect(machines.address, import_from_here=wanted) as ray:
            assert ray.get(ray.remote(found).remote()) is wanted
    assert Path.cwd() == tmp_path


def test_a_second_request_to_stop_does_not_wait(machines, tmp_path):
    (tmp_path / "sweep.json").write_text("{}")
    jobs = [Job(f"pong/{name}", as_group(preset("smoke", "dqn", "pong"))) for name in ("running", "waiting", "more")]
    stubborn = "import signal, sys; signal.signal(signal.SIGINT, signal.SIG_IGN); print('ready', flush=True); "
    stubborn += "sys.stdin.read()"
    requests = [0]

    def on_progress(state: State) -> None:
        log = log_file(tmp_path, "pong/running")
        requests[0] += log.exists() and "ready" in log.read_text()

    with connect(machines.address) as ray:
        tasks = RayTasks(ray, TaskSettings(tmp_path, ["-c", stubborn], Resources(1, 0)), 3)
        state = execute(jobs, tasks, lambda: 3, on_progress=on_progress, stop_requests=lambda: requests[0])
    assert (state.done, state.failed, {job.folder for job in state.left}) == ([], {}, {job.folder for job in jobs})


# SIGINT is ignored in processes started in the background; a terminal does not do that, so restore the default.
FROM_A_TERMINAL = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from cramerl.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


def start(words: list[object], bucket: Path) -> subprocess.Popen[str]:
    """A driver in another process, whose job has just uploaded another iteration."""
    before = stored_step(bucket)
    command = [sys.executable, "-c", FROM_A_TERMINAL, "sweep", *map(str, words)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    wait_for(lambda: stored_step(bucket) > before or process.poll() is not None)
    assert process.poll() is None, process.communicate()[0]
    return process


def stored_step(bucket: Path) -> int:
    return Mirror(f"file://{bucket}/{JOBS[0]}", bucket, bucket).step() or 0


def is_unlocked(folder: Path) -> bool:
    try:
        with locked(folder):
            return True
    except ValueError:
        return False


def lose_scratch(bucket: Path, scratch: Path) -> None:
    """A worker and its child, when another iteration is stored."""
    before = stored_step(bucket)
    wait_for(lambda: stored_step(bucket) > before)
    (log,) = [path for path in scratch.glob("*/log") if (path.parent / "run/config.json").exists()]
    worker = starts(log)[-1]
    for pid in (*children(worker), worker):
        os.kill(pid, signal.SIGKILL)


@pytest.mark.slow
def test_the_driver_killed_and_stopped_with_all_that_counts_in_a_storage(sweep_command, whole, machines, tmp_path):
    out, bucket, scratch = tmp_path / "out", tmp_path / "bucket", tmp_path / "scratch"
    words = [out, *RUNS, "--seeds", "0", "--ray", machines.address, "--storage", f"file://{bucket}"]
    words += ["--scratch", scratch]
    process = start(words, bucket)
    process.kill()
    process.communicate()
    wait_for(lambda: all(map(is_unlocked, scratch.glob("*/"))))  # its task and child end, too
    shutil.rmtree(out)  # the storage is enough

    process = start(words, bucket)
    process.send_signal(signal.SIGINT)
    said = process.communicate(timeout=ENOUGH)[0]
    assert process.returncode == 130, said
    assert "stopping jobs with checkpoints; Ctrl-C again ends them at once" in said
    assert "Traceback" not in said
    if f"1 job in {out}: 1 done" in said:
        pytest.skip("this machine is so busy that the job was done before it could be stopped")
    assert f"1 job in {out}: 0 done, 1 left" in said
    (run,) = find_runs(out)
    assert (run.finished, run.has_checkpoint, run.step % 500) == (False, False, 0)
    assert stored_step(bucket) == run.step

    with ThreadPoolExecutor() as pool:
        harm = pool.submit(lose_scratch, bucket, scratch)
        assert sweep_command(*words, "--download", "all") == 0
        harm.result()
    assert records(out) == {name: data for name, data in whole.items() if name.startswith("dqn__seed-0")}
    (run,) = find_runs(out)
    assert (run.finished, run.has_checkpoint) == (True, True)
    assert len(starts(log_file(out, JOBS[0]))) >= 3
    assert not [path for path in scratch.iterdir() if path.is_dir() and (path / "run").exists()]


# --- what a machine needs, and has


def node(cpus: float, gpus: float = 0, *, alive: bool = True) -> dict[str, object]:
    return {"Alive": alive, "Resources": {"CPU": cpus, **({"GPU": gpus} if gpus else {})}}


def test_resources_of_a_job():
    assert job_resources([node(8), node(16, 4)], None, None) == Resources(2, 1)
    assert job_resources([node(1), node(0)], None, None) == Resources(1, 0)
    assert job_resources([node(8, 1), node(64, 8, alive=False)], 3, 0.25) == Resources(3, 0.25)
    with pytest.raises(ValueError, match=r"takes 2 CPUs and 0.5 GPUs, but no machine has as much \(1 CPUs, 0 GPUs\)"):
        job_resources([node(1)], 2, 0.5)
    assert job_resources([node(1)], 2, 0.5, must_fit=False) == Resources(2, 0.5)


def test_a_worker_with_another_version_says_so(tmp_path):
    job = Job("pong/x", as_group(preset("smoke", "dqn", "pong")))
    with pytest.raises(ValueError, match=r"^every machine must have cramerl 0.0.0, "):
        run_task(TaskSettings(tmp_path, [], Resources(1, 0), version="0.0.0"), job)


def test_what_killed_tasks_left_on_a_machine_is_removed(tmp_path):
    with scratch_folder(str(tmp_path)) as (first, _), scratch_folder(str(tmp_path)) as (second, _):
        assert first.is_dir()  # its task lives
        assert second.is_dir()
    (first / "run").mkdir(parents=True)
    (first / "run" / "replay").write_bytes(b"much")
    with scratch_folder(str(tmp_path)):
        assert not first.exists()
    assert [path.name for path in tmp_path.iterdir()] == [".lock"]
    with pytest.raises(KeyboardInterrupt), scratch_folder(str(tmp_path)) as (left, _):
        raise KeyboardInterrupt
    assert left.is_dir()  # its child may be saving a checkpoint


def test_variables_that_results_depend_on_are_those_of_the_driver(tmp_path, monkeypatch):
    mine = {"JAX_ENABLE_X64": "1", "MKL_NUM_THREADS": "3", "JAX_PLATFORMS": "cuda", "HOME": "/home/me"}
    assert shared_variables(mine) == {"JAX_ENABLE_X64": "1", "MKL_NUM_THREADS": "3"}
    for name in ("XLA_PYTHON_CLIENT_PREALLOCATE", "XLA_PYTHON_CLIENT_MEM_FRACTION", "XLA_CLIENT_MEM_FRACTION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # as Ray does
    asked = TaskSettings(tmp_path, [], Resources(1, 0), environment=shared_variables(mine))
    there = task_environment(asked)
    assert "OMP_NUM_THREADS" not in there
    assert (there["JAX_ENABLE_X64"], there["JAX_PLATFORMS"]) == ("1", "cpu")
    assert task_environment(asked._replace(resources=Resources(1, 0.25)))["XLA_PYTHON_CLIENT_MEM_FRACTION"] == "0.225"
    assert "XLA_PYTHON_CLIENT_MEM_FRACTION" not in task_environment(asked._replace(resources=Resources(1, 2)))


# --- the command


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--storage", "s3://x"], "--storage is used only with --ray: leave it out, or add --ray"),
        (["--ray", "auto", "--download", "all"], "--download is used only with --storage: leave it out"),
        (["--ray", "auto", "--gpus-per-run", "1.5"], "--gpus-per-run: must be a number >= 0, whole above 1, got '1.5'"),
        (["--ray", "auto", "--cpus-per-run", "x"], "--cpus-per-run: must be a number >= 0, got 'x'"),
        (["--ray", "127.0.0.1:1"], "got '127.0.0.1:1': Connection refused"),
        (["--ray", "nowhere"], "a Ray cluster's address must be host:port of its head"),
    ],
)
def test_bad_input(words, sentence, sweep_command, tmp_path, capfd):
    try:
        status = sweep_command(tmp_path / "out", *RUNS, "--seeds", "0", *words)
    except SystemExit as end:
        status = end.code
    said = capfd.readouterr()
    assert status == 2, said.err
    assert sentence in said.err.splitlines()[-1]
    assert not list(tmp_path.iterdir())


def test_without_ray_the_command_says_how_to_install_it(sweep_command, tmp_path, capfd, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    assert sweep_command(tmp_path / "out", *RUNS, "--seeds", "0", "--ray") == 2
    assert "pip install 'cramerl[ray]'" in capfd.readouterr().err.splitlines()[-1]
    assert not list(tmp_path.iterdir())


def test_a_scratch_folder_that_somebody_else_has_put_there_is_refused(tmp_path, monkeypatch):
    """Every folder in it that no task holds is removed."""
    (tmp_path / "home/photos").mkdir(parents=True)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / f"cramerl-{os.getuid()}").symlink_to(tmp_path / "home")
    with (
        pytest.raises(ValueError, match=r"scratch must be given: .*, the default, belongs to another user"),
        scratch_folder(""),
    ):
        pass
    assert (tmp_path / "home/photos").is_dir()
