"""What sweeps on other machines rest on: what is lost is begun again, what is copied is whole, what is asked fits."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from cramerl.runs.presets import preset
from cramerl.sweep import ray_worker
from cramerl.sweep.execute import Ended, execute
from cramerl.sweep.folder import Job, look_at
from cramerl.sweep.mirror import Storage, StoredRun
from cramerl.sweep.ray import Share, room, share_of
from cramerl.sweep.ray_worker import Order, Worker, _environment, _scratch, variables_of

pytest.importorskip("fsspec")


def test_children_that_are_taken_away_are_begun_again_and_those_that_never_get_further_fail(tmp_path):
    jobs = [Job("pong/a", ["train"], 0, 100, 1, True), Job("pong/b", ["train"], 0, 100, 1, True)]
    # What becomes of each attempt, and the steps that are kept of it.
    script = {
        "pong/a": [("lost", 0), ("lost", 0), ("lost", 40), ("lost", 40), ("lost", 40), ("done", 100)],
        "pong/b": [("lost", 40), ("lost", 40), ("lost", 20), ("done", 100)],
    }
    executor, states = Scripted(script), []
    state = execute(jobs, executor, lambda: 1, watch=states.append, retries=2)
    assert (state.done, state.left) == ([], [])
    assert state.failed == {
        "pong/a": "lost 3 times in a row without another iteration done: gone",
        "pong/b": "lost 3 times in a row without another iteration done: gone",
    }
    assert executor.started == ["pong/a"] * 5 + ["pong/b"] * 3
    assert execute(jobs, Scripted(script), lambda: 1, retries=3).done == ["pong/a", "pong/b"]
    (failed,) = execute(jobs[:1], Scripted(script), 1).failed.values()
    assert failed == "lost once without another iteration done: gone"


class Scripted:
    """An executor whose jobs end as it is written."""

    def __init__(self, script: dict[str, list[tuple[str, int]]]):
        self.script = {folder: [*endings] for folder, endings in script.items()}
        self.started, self.running = [], []

    def start(self, job: Job) -> None:
        self.started.append(job.folder)
        self.running.append(job)

    def ended(self) -> list[Ended]:
        jobs, self.running = self.running, []
        return [Ended(job, how, "gone", step) for job in jobs for how, step in [self.script[job.folder].pop(0)]]

    def stop(self) -> None: ...

    def kill(self) -> None: ...


# --- a storage


def a_run(folder: Path, step: int = 500) -> Path:
    """The folder of a run with a checkpoint."""
    (folder / "checkpoints" / "000001").mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(preset("smoke", "dqn", "pong").to_json()))
    (folder / "metrics.jsonl").write_text("".join(f'{{"step": {at}}}\n' for at in range(100, step + 1, 100)))
    (folder / "checkpoints" / "000001" / "manifest.json").write_text("{}")
    (folder / "checkpoints" / "000001" / "state.safetensors").write_bytes(bytes([step % 251]) * 1000)
    return folder


def step_of(stored: StoredRun) -> int:
    return (stored.newest() or {"step": -1})["step"]


def contents(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


class Stopped(Exception):
    """The process is killed here."""


def test_a_copy_that_is_interrupted_anywhere_leaves_the_last_one_good(tmp_path, monkeypatch):
    """Whichever write to the storage is the last one, half of it or all of it, a run can be had from there."""
    import fsspec.implementations.local as local

    writes, last = [0], [10**9]
    for name in ("pipe_file", "put_file"):
        real = getattr(local.LocalFileSystem, name)

        def limited(self, one, two, *rest, real=real, name=name, **options):
            writes[0] += 1
            target = one if name == "pipe_file" else two
            if writes[0] > last[0]:
                Path(target).write_bytes(b'{"format": 1, "fi')  # half of it is there
                raise Stopped
            return real(self, one, two, *rest, **options)

        monkeypatch.setattr(local.LocalFileSystem, name, limited)
    number, ends = -1, False
    while not ends:
        number += 1
        bucket, last[0] = tmp_path / f"bucket-{number}", 10**9
        stored = StoredRun(f"file://{bucket}/pong/x", "me")
        stored.claim()
        first = contents(a_run(tmp_path / "run", 500))
        stored.push(tmp_path / "run")
        second = contents(a_run(tmp_path / "run", 600))
        writes[0], last[0] = 0, number
        try:
            stored.push(tmp_path / "run")
        except Stopped:
            expected = first
        else:
            expected = second
        last[0] = 10**9
        after = StoredRun(f"file://{bucket}/pong/x", "other")
        after.claim()
        assert after.pull(tmp_path / f"back-{number}", checkpoints=True)
        assert contents(tmp_path / f"back-{number}") == expected
        # And the next one writes on as if nothing had happened.
        after.push(a_run(tmp_path / "run", 700))
        assert after.pull(tmp_path / f"back-{number}", checkpoints=True)
        assert contents(tmp_path / f"back-{number}") == contents(tmp_path / "run")
        ends = expected == second
    assert number == 3  # metrics, state and the list


def test_a_copy_belongs_to_one_worker_and_keeps_what_it_needs(tmp_path):
    url, run = f"file://{tmp_path}/bucket/pong/x", tmp_path / "run"
    old, new = StoredRun(url, "old"), StoredRun(url, "new")
    old.claim()
    old.push(a_run(run, 500))
    new.claim()
    with pytest.raises(OSError, match=r"bucket/pong/x has been taken over by another worker; this one stops$"):
        old.push(a_run(run, 600))
    assert step_of(new) == 500
    for step in range(600, 1200, 100):
        new.push(a_run(run, step))
    # Two lists, and of what changes two versions.
    assert len(list((tmp_path / "bucket/pong/x/manifests").iterdir())) == 2
    assert len(list((tmp_path / "bucket/pong/x/objects").iterdir())) == 2 + 2 * 2
    # An object that is not what it was is not used; the list before is.
    manifest = new.newest()
    assert manifest is not None
    name = manifest["files"]["checkpoints/000001/state.safetensors"]["sha256"]
    (tmp_path / "bucket/pong/x/objects" / name).write_bytes(b"x" * 1000)
    assert new.pull(tmp_path / "back", checkpoints=True)
    assert len((tmp_path / "back/metrics.jsonl").read_text().splitlines()) == 10
    assert not StoredRun(f"file://{tmp_path}/bucket/pong/y").pull(tmp_path / "back", checkpoints=True)


def test_whoever_has_got_further_is_right(tmp_path):
    storage = Storage(f"file://{tmp_path}/bucket/", tmp_path / "out")
    a_run(tmp_path / "out/pong/x", 500)
    storage.reconcile("pong/x")
    assert storage.cells() == ["pong/x"]
    worker = StoredRun(f"file://{tmp_path}/bucket/pong/x", "worker")
    worker.claim()
    worker.push(a_run(tmp_path / "run", 800))
    storage.reconcile("pong/x")
    assert look_at(tmp_path / "out/pong/x").step == 800
    a_run(tmp_path / "out/pong/x", 900)  # by `cramerl resume`
    storage.reconcile("pong/x")
    assert step_of(storage.run("pong/x")) == 900
    # Records alone are only a copy.
    worker.claim()
    worker.push(a_run(tmp_path / "run", 800))
    shutil.rmtree(tmp_path / "out/pong/x/checkpoints")
    storage.reconcile("pong/x")
    assert look_at(tmp_path / "out/pong/x").step == 800


# --- what a machine needs, and has


def node(cpus: float, gpus: float = 0, *, alive: bool = True) -> dict[str, object]:
    return {"Alive": alive, "Resources": {"CPU": cpus, **({"GPU": gpus} if gpus else {})}}


def test_resources_of_a_cell():
    assert share_of([node(8), node(16, 4)], None, None) == Share(2, 1)
    assert share_of([node(1), node(0)], None, None) == Share(1, 0)
    assert share_of([node(8, 1)], 3, 0.25) == Share(3, 0.25)
    nodes = [node(8), node(16, 4), node(64, 8, alive=False)]
    assert [room(nodes, share) for share in (Share(2, 1), Share(3, 0), Share(1, 0.1), Share(0, 0))] == [4, 7, 16, 2]
    with pytest.raises(ValueError, match=r"takes 2 CPUs and 0.5 GPUs, and no machine has as much \(1 CPUs, 0 GPUs\)"):
        share_of([node(1)], 2, 0.5)
    assert share_of([node(1)], 2, 0.5, must_fit=False) == Share(2, 0.5)


def test_a_worker_that_is_not_where_the_sweep_is_says_so(tmp_path):
    order = Order(str(tmp_path / "elsewhere"), "pong/x", ["train"], True, {})
    with pytest.raises(ValueError, match=r"does not see .*/elsewhere: put the sweep on a file system .*--storage URL"):
        Worker().run(order)
    with pytest.raises(ValueError, match=r"^every machine must have cramerl 0.0.0, as the one that runs the sweep; "):
        Worker().run(order._replace(version="0.0.0"))


def test_what_killed_attempts_left_on_a_machine_goes(tmp_path):
    with _scratch(str(tmp_path), "first") as (first, _), _scratch(str(tmp_path), "second") as (second, _):
        assert first.is_dir()  # its worker lives
        assert second.is_dir()
    (first / "run").mkdir(parents=True)
    (first / "run" / "replay").write_bytes(b"much")
    with _scratch(str(tmp_path), "third"):
        assert not first.exists()
    assert not list(first.parent.iterdir())


def test_variables_that_runs_depend_on_are_those_of_the_driver(monkeypatch):
    mine = {"JAX_ENABLE_X64": "1", "MKL_NUM_THREADS": "3", "JAX_PLATFORMS": "cuda", "HOME": "/home/me"}
    assert variables_of(mine) == {"JAX_ENABLE_X64": "1", "MKL_NUM_THREADS": "3"}
    for name in ("XLA_PYTHON_CLIENT_PREALLOCATE", "XLA_PYTHON_CLIENT_MEM_FRACTION", "XLA_CLIENT_MEM_FRACTION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # as Ray does
    order = Order("out", "x", [], False, variables_of(mine))
    there = _environment(order)
    assert "OMP_NUM_THREADS" not in there
    assert (there["JAX_ENABLE_X64"], there["JAX_PLATFORMS"]) == ("1", "cpu")
    assert _environment(order._replace(gpus=0.25))["XLA_PYTHON_CLIENT_MEM_FRACTION"] == "0.225"
    assert "XLA_PYTHON_CLIENT_MEM_FRACTION" not in _environment(order._replace(gpus=2.0))


def test_a_place_that_only_this_process_has_is_no_storage(tmp_path):
    with pytest.raises(ValueError, match=r"^storage must be a place that every machine reaches, got 'memory://x', wh"):
        Storage("memory://x", tmp_path)
    with pytest.raises(ValueError, match=r"^storage must be a URL that fsspec knows, got 'nope://x': "):
        Storage("nope://x", tmp_path)


@pytest.mark.parametrize("url", ["", "s3://", "file://", "file:///", "relative/path", "/"])
def test_a_url_without_a_folder_is_refused(url, tmp_path):
    with pytest.raises(ValueError, match="storage must be a URL with a folder, such as s3://bucket/runs"):
        Storage(url, tmp_path)


def test_a_place_that_cannot_be_written_to_is_refused(tmp_path):
    (tmp_path / "file").write_text("not a folder")
    storage = Storage(f"file://{tmp_path}/file", tmp_path / "out")
    with pytest.raises(ValueError, match=r"storage must be a place that can be written to, got 'file://.*/file'"):
        storage.require_writable()
    storage = Storage(f"file://{tmp_path}/bucket", tmp_path / "out")
    storage.require_writable()
    assert not list((tmp_path / "bucket").iterdir())


def test_what_killed_attempts_left_goes_whatever_their_node(tmp_path, monkeypatch):
    monkeypatch.setattr(ray_worker.tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(ray_worker, "_node", lambda: "first")
    with _scratch("", "alive") as (alive, _):
        left = alive.parent / "left"
        left.mkdir()
        (left / "replay").write_text("gigabytes")
        monkeypatch.setattr(ray_worker, "_node", lambda: "second")  # a Ray that was started anew
        with _scratch("", "next") as (place, _):
            assert place.is_dir()
            assert alive.is_dir()
            assert not left.exists()
