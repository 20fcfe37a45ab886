"""Sweeps on a cluster of several nodes: workers, machines and the driver are lost, and the records are the same."""

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

from cramerl._ray import connect
from cramerl.sweep.execute import execute, log_file
from cramerl.sweep.folder import Job, survey
from cramerl.sweep.mirror import StoredRun
from cramerl.sweep.ray import RayJobs, Share

pytest.importorskip("ray")

TINY = ["--preset", "smoke", "--hidden-units", "8", "--steps", "10000", "--iteration-steps", "2000"]
TINY += ["--replay-steps", "3000", "--log-steps", "500"]
RUNS = ["--agents", "dqn", "--envs", "gym:CartPole-v1", *TINY]
CELLS = ["gym-CartPole-v1/dqn__seed-0", "gym-CartPole-v1/dqn__seed-1"]
ENOUGH = 240.0  # seconds, on a machine that is busy with other things


@pytest.fixture(scope="module")
def whole(sweep_command, tmp_path_factory):
    """The same sweep by processes of this machine, without any mishap."""
    out = tmp_path_factory.mktemp("whole")
    assert sweep_command(out, *RUNS, "--seeds", "0-1") == 0
    return records(out)


# A process of its own: JAX has threads here, and Ray forks.
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
    """A cluster of a head that does nothing and nodes of one CPU."""

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


def worker_of(out: Path, folder: str) -> int:
    """The process that does a cell now."""
    return int(re.findall(r"\(process (\d+)\)", log_file(out, folder).read_text())[-1])


def iterations(folder: Path) -> int:
    return max((int(path.parent.name) for path in folder.glob("checkpoints/0*/manifest.json")), default=0)


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def children(pid: int) -> list[int]:
    return [
        int(word) for task in Path(f"/proc/{pid}/task").iterdir() for word in (task / "children").read_text().split()
    ]


def lose_worker(out: Path, folder: str) -> None:
    """Its child stays behind, and has to see for itself that nobody waits for it."""
    wait_for(lambda: iterations(out / folder) >= 1)
    os.kill(worker_of(out, folder), signal.SIGKILL)


def lose_machine(out: Path, folder: str) -> None:
    """All its processes at once; to a cluster a machine is gone when its raylet is."""
    wait_for(lambda: iterations(out / folder) >= 1)
    worker = worker_of(out, folder)
    for pid in (parent(worker), *children(worker), worker):
        os.kill(pid, signal.SIGKILL)


def test_a_lost_worker_and_a_lost_machine(sweep_command, whole, machines, tmp_path, capfd):
    out = tmp_path / "out"
    with ThreadPoolExecutor() as pool:
        harm = [pool.submit(lose_worker, out, CELLS[0]), pool.submit(lose_machine, out, CELLS[1])]
        status = sweep_command(out, *RUNS, "--seeds", "0-1", "--ray", machines.address)
        for one in harm:
            one.result()
    machines.add()
    said = capfd.readouterr()
    assert status == 0, said.err
    for folder in CELLS:
        assert re.search(rf"^lost {folder}: its worker on .* is gone; its iterations up to step \d", said.err, re.M)
    assert said.out.startswith(f"2 cells in {out}: 2 done\n")
    assert records(out) == whole
    # A machine cost at most an iteration: its run went on from a checkpoint, and was not begun twice.
    for folder in CELLS:
        commands = re.findall(r"^\$ cramerl (\w+)", log_file(out, folder).read_text(), re.MULTILINE)
        assert commands == ["train", "resume"]


def test_what_fails_by_its_own_fault_is_not_begun_again(machines, tmp_path):
    jobs = [Job("pong/x", ["train", "s52", "pong"], 0, 100, 1, fresh=True)]
    with connect(machines.address) as ray:
        unseen = execute(jobs, RayJobs(ray, tmp_path, Share(1, 0)), 1, retries=3)
        (tmp_path / "sweep.json").write_text("{}")
        state = execute(jobs, RayJobs(ray, tmp_path, Share(1, 0)), 1, retries=3)
    assert (
        f" does not see {tmp_path}: put the sweep on a file system that all machines share" in unseen.failed["pong/x"]
    )
    assert (unseen.losses, state.losses) == ({}, {})
    assert state.failed["pong/x"].startswith("agent must be one of dqn, c51, s51")
    assert log_file(tmp_path, "pong/x").read_text().count("$ cramerl train s52 pong") == 1


# SIGINT is ignored in processes started in the background; a terminal does not do that, so put the default back.
FROM_A_TERMINAL = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from cramerl.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


def start(words: list[object], bucket: Path) -> subprocess.Popen[str]:
    """A driver as a process of its own, when its run has stored another iteration."""
    before = stored_step(bucket)
    command = [sys.executable, "-c", FROM_A_TERMINAL, "sweep", *map(str, words)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    wait_for(lambda: stored_step(bucket) > before or process.poll() is not None)
    assert process.poll() is None, process.communicate()[0]
    return process


def stored_step(bucket: Path) -> int:
    return (StoredRun(f"file://{bucket}/{CELLS[0]}").newest() or {"step": 0})["step"]


def lose_scratch(bucket: Path, scratch: Path) -> None:
    """A worker and its child, when another iteration is stored."""
    before = stored_step(bucket)
    wait_for(lambda: stored_step(bucket) > before)
    (log,) = [path for path in scratch.glob("*/*/log") if (path.parent / "run/config.json").exists()]
    worker = int(re.findall(r"\(process (\d+)\)", log.read_text())[-1])
    for pid in (*children(worker), worker):
        os.kill(pid, signal.SIGKILL)


@pytest.mark.slow
def test_the_driver_killed_and_stopped_with_all_that_counts_in_a_storage(
    sweep_command, whole, machines, tmp_path, capfd
):
    out, bucket, scratch = tmp_path / "out", tmp_path / "bucket", tmp_path / "scratch"
    words = [out, *RUNS, "--seeds", "0", "--ray", machines.address, "--storage", f"file://{bucket}"]
    words += ["--scratch", scratch]
    process = start(words, bucket)
    process.kill()
    process.communicate()
    shutil.rmtree(out)  # the storage is enough

    process = start(words, bucket)
    process.send_signal(signal.SIGINT)
    said = process.communicate(timeout=ENOUGH)[0]
    assert process.returncode == 130, said
    assert "stopping 1 cell with checkpoints; Ctrl-C now stops at once" in said
    assert f"1 cell in {out}: 0 done, 1 left" in said
    assert "Traceback" not in said
    (cell,) = survey(out)
    assert (cell.finished, cell.has_checkpoint, cell.step % 500) == (False, False, 0)
    assert stored_step(bucket) == cell.step

    with ThreadPoolExecutor() as pool:
        harm = pool.submit(lose_scratch, bucket, scratch)
        assert sweep_command(*words, "--pull", "all") == 0
        harm.result()
    assert f"lost {CELLS[0]}: its worker on " in capfd.readouterr().err
    assert records(out) == {name: data for name, data in whole.items() if name.startswith("dqn__seed-0")}
    (cell,) = survey(out)
    assert (cell.finished, cell.has_checkpoint) == (True, True)
    assert all(len(path.name) == 12 for path in scratch.iterdir())  # a folder for each node


# --- the command


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--storage", "s3://x"], "--storage belongs to --ray and would be ignored here: leave it out, or give --ray"),
        (["--ray", "auto", "--pull", "all"], "--pull belongs to --storage and would be ignored here: leave it out"),
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


def test_help_teaches():
    words = subprocess.run(
        [sys.executable, "-m", "cramerl", "sweep", "--help"], capture_output=True, text=True, check=True
    ).stdout
    for word in ("--ray [ADDRESS]", "--storage URL", "--cpus-per-run", "--gpus-per-run", "--retries", "s3://"):
        assert word in words
