"""Checkpoints: what is read is what was saved, whatever happened to the process, the disk or the files."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import cramerl
from cramerl.deep.checkpoint import CheckpointStore, Damaged, Saved
from cramerl.deep.manifests import FORMAT
from cramerl.deep.trees import flatten, unflatten, weights_of

PACE, CAPACITY, SHARD = 7, 20, 5 * 28  # rows per iteration, rows in the ring, five rows per shard


# A run whose every iteration is known in advance.


def replay(start: int, stop: int) -> dict[str, np.ndarray]:
    rows = np.arange(start, stop)
    return {
        "frames": np.broadcast_to((rows % 251).astype(np.uint8)[:, None, None], (rows.size, 2, 8)),
        "actions": np.stack([rows, -rows], axis=1).astype(np.int32),
        "done": rows % 3 == 0,
        "pad": np.zeros((rows.size, 3), np.uint8),
    }


def state(i: int) -> dict[str, np.ndarray]:
    return {"['w']": np.full((3, 50), i, np.float32), "step": np.array(PACE * i, np.int64)}


def store_of(folder: Path) -> CheckpointStore:
    return CheckpointStore(folder, shard_bytes=SHARD)


def save(store: CheckpointStore, i: int) -> Path:
    rows = max(0, PACE * i - CAPACITY), PACE * i
    return store.save({"iteration": i}, state(i), rows=rows, replay=replay, capacity=CAPACITY)


def same(left: dict[str, np.ndarray], right: dict[str, np.ndarray]) -> None:
    assert left.keys() == right.keys()
    for name, array in right.items():
        assert left[name].dtype == array.dtype
        assert left[name].shape == array.shape
        np.testing.assert_array_equal(left[name], array)


def live_rows(store: CheckpointStore, saved: Saved) -> dict[str, np.ndarray]:
    parts = []
    expected = saved.info["rows"][0]
    for start, arrays in store.rows(saved):
        assert start == expected
        expected += len(next(iter(arrays.values())))
        parts.append(arrays)
    assert expected == saved.info["rows"][1]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]} if parts else {}


def check(folder: Path) -> int:
    """Iteration of the newest good checkpoint, which holds what that iteration must hold."""
    store = store_of(folder)
    saved = store.latest()
    i = saved.info["iteration"]
    assert saved.info["rows"] == [max(0, PACE * i - CAPACITY), PACE * i]
    same(saved.arrays, state(i))
    same(live_rows(store, saved), replay(*saved.info["rows"]))
    assert store.problems == []
    return i


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def shard_names(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "replay").iterdir())


def only_needed(folder: Path) -> None:
    """The folder holds its checkpoints, what their manifests name, and nothing else."""
    expected = {"replay"}
    for manifest in folder.glob("*/manifest.json"):
        number = manifest.parent.name
        named = json.loads(manifest.read_text())["files"]
        expected |= {number, f"{number}/manifest.json", *(n if "/" in n else f"{number}/{n}" for n in named)}
    assert files(folder) == expected


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "run" / "checkpoints"


@pytest.fixture
def run(folder: Path) -> Path:
    """Four iterations, of which the last two are kept."""
    store = store_of(folder)
    for i in range(1, 5):
        save(store, i)
    return folder


# Round trips.


def test_dtypes_shapes_and_names_come_back(folder):
    rng = np.random.default_rng(0)
    arrays: dict[str, Any] = {}
    for dtype in ("bool", "uint8", "int32", "uint32", "int64", "float32", "float64"):
        values = rng.integers(0, 200, (3, 4)).astype(dtype)
        arrays |= {f"['{dtype}']": values, f"0-d {dtype}": values[0, 0].reshape(()), f"empty {dtype}": values[:0]}
    arrays |= {
        "": np.ones(2),
        'é\n"\\\0/': np.ones(2),
        "turned": np.arange(6).reshape(2, 3).T,
        "cut": np.arange(9)[::2],
    }
    arrays |= {"other end": np.array([1, 2], ">i4"), "odd": np.array([np.nan, -0.0, np.inf])}
    store = CheckpointStore(folder)
    assert store.latest() is None
    assert not folder.exists()
    info = {"iteration": 3, "steps": 10**15, "loss": 0.1, "words": ["a", None]}
    path = store.save(info, arrays)
    assert path == folder / "000003"
    saved = CheckpointStore(folder).latest()
    assert saved.info == info
    assert saved.shards == list(store.rows(saved)) == []
    same(saved.arrays, {k: v.astype(v.dtype.newbyteorder("=")) for k, v in arrays.items()})
    assert np.signbit(saved.arrays["odd"][1])
    only_needed(folder)


def test_the_manifest_says_who_wrote_it(run):
    manifest = json.loads((run / "000004" / "manifest.json").read_text())
    assert (manifest["format"], manifest["cramerl"], manifest["rows"]) == (FORMAT, cramerl.__version__, [8, 28])
    for name, record in manifest["files"].items():
        data = (run / name if "/" in name else run / "000004" / name).read_bytes()
        assert record == {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}


@pytest.mark.parametrize("seed", range(10))
def test_any_sequence_of_saves_gives_back_the_ring(folder, seed):
    rng = np.random.default_rng(seed)
    capacity, row_bytes = int(rng.integers(1, 40)), 2 * 3 + 4
    limit = int(rng.integers(1, 12 * row_bytes))
    history = {"frames": np.zeros((0, 2, 3), np.uint8), "reward": np.zeros(0, np.float32)}
    asked: list[tuple[int, int]] = []

    def ring(start: int, stop: int) -> dict[str, np.ndarray]:
        assert max(0, len(history["reward"]) - capacity) <= start < stop <= len(history["reward"])
        asked.append((start, stop))
        return {name: rows[start:stop] for name, rows in history.items()}

    store, iteration, known = CheckpointStore(folder, shard_bytes=limit), 0, 0
    for _ in range(12):
        new, iteration = int(rng.integers(0, 30)), iteration + int(rng.integers(0, 3))
        history["frames"] = np.concatenate([history["frames"], rng.integers(0, 256, (new, 2, 3), np.uint8)])
        history["reward"] = np.concatenate([history["reward"], rng.random(new, np.float32)])
        written = len(history["reward"])
        live = max(0, written - capacity), written
        asked.clear()
        arrays = {"w": rng.random((2, 3))}
        store.save({"iteration": iteration}, arrays, rows=live, replay=ring, capacity=capacity)
        fresh = max(known, live[0])  # exactly the rows not yet on the disk, once, in pieces within the limit
        assert sorted(row for span in asked[1:] for row in range(*span)) == list(range(fresh, written))
        assert all((stop - start) * row_bytes <= max(limit, row_bytes) for start, stop in asked)
        known = written
        if rng.random() < 0.5:
            store = CheckpointStore(folder, shard_bytes=limit)  # a resumed run
        saved = store.latest()
        assert saved.info == {"iteration": iteration, "rows": list(live)}
        same(saved.arrays, arrays)
        if live[0] < live[1]:
            same(live_rows(store, saved), {name: rows[slice(*live)] for name, rows in history.items()})
        only_needed(folder)
        assert len(list(folder.glob("0*"))) <= 2


def test_shards_are_written_once_and_deleted_when_overwritten(folder):
    store, seen, gone = store_of(folder), {}, set()
    for i in range(1, 12):
        save(store, i)
        for path in (folder / "replay").iterdir():
            stat = path.stat()
            assert path.name not in gone
            assert seen.setdefault(path.name, (stat.st_ino, stat.st_mtime_ns)) == (stat.st_ino, stat.st_mtime_ns)
        gone = seen.keys() - set(shard_names(folder))
        oldest = max(0, PACE * (i - 1) - CAPACITY)  # what the older of the two kept ones needs
        assert all(int(name.split("-")[2].partition(".")[0]) > oldest for name in shard_names(folder))
    assert shard_names(folder)[0] == "rows-000000000049-000000000054.safetensors"
    assert gone


def test_keep_says_how_many(folder):
    store = CheckpointStore(folder, keep=3)
    for i in range(6):
        store.save({"iteration": i}, state(i))
    assert sorted(path.name for path in folder.glob("0*")) == ["000003", "000004", "000005"]
    for arguments in ({"keep": 0}, {"shard_bytes": 0}):
        with pytest.raises(ValueError, match="must be at least 1, got 0"):
            CheckpointStore(folder, **arguments)


def test_the_same_iteration_again_replaces_it(run):
    store = store_of(run)
    before = shard_names(run)
    store.save({"iteration": 4, "again": True}, state(9), rows=(8, 28), replay=lambda a, b: pytest.fail("asked"))
    saved = store.latest()
    assert saved.info == {"iteration": 4, "again": True, "rows": [8, 28]}
    same(saved.arrays, state(9))
    assert shard_names(run) == before
    only_needed(run)


# Damage.


def flip(path: Path, at: int = -1) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def newest_shard(run: Path) -> Path:
    """A shard that the newest checkpoint needs and the one before does not."""
    return run / "replay" / shard_names(run)[-1]


def edit(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


HARM = {
    "state cut": (lambda run: os.truncate(run / "000004/state.safetensors", 100), "state.safetensors has 100 bytes"),
    "state flipped": (lambda run: flip(run / "000004/state.safetensors"), "state.safetensors has been altered"),
    "state gone": (lambda run: (run / "000004/state.safetensors").unlink(), "state.safetensors cannot be read"),
    "shard cut": (lambda run: os.truncate(newest_shard(run), 9), r"rows-.* has 9 bytes, but must have \d+"),
    "shard flipped": (lambda run: flip(newest_shard(run)), "rows-.* has been altered"),
    "shard gone": (lambda run: newest_shard(run).unlink(), r"rows-.* cannot be read \(No such file"),
    "manifest cut": (lambda run: os.truncate(run / "000004/manifest.json", 60), "manifest.json is not JSON"),
    "manifest empty": (lambda run: os.truncate(run / "000004/manifest.json", 0), "manifest.json is not JSON"),
    "manifest a list": (lambda run: (run / "000004/manifest.json").write_text("[]"), "must be a JSON object, got list"),
    "manifest not text": (lambda run: (run / "000004/manifest.json").write_bytes(b"\xff{"), "is not JSON"),
    "manifest altered": (lambda run: edit(run / "000004/manifest.json", rows=[0, 28]), "json has been altered"),
    "other format": (
        lambda run: edit(run / "000004/manifest.json", format=FORMAT + 1, cramerl="9.8.7"),
        f"has format {FORMAT + 1}, written by cramerl 9.8.7; cramerl {cramerl.__version__} reads format {FORMAT}",
    ),
    "renamed": (lambda run: (run / "000004").rename(run / "000005"), "000005 .* belongs to iteration 4"),
    "empty directory": (
        lambda run: (shutil.rmtree(run / "000004"), (run / "000004").mkdir()),
        r"manifest.json cannot be read \(No such file",
    ),
}


@pytest.mark.parametrize(("harm", "sentence"), HARM.values(), ids=HARM.keys())
def test_a_damaged_checkpoint_is_passed_over_and_then_replaced(run, harm, sentence):
    harm(run)
    store = store_of(run)
    saved = store.latest()
    assert saved.info["iteration"] == 3
    same(live_rows(store, saved), replay(1, 21))
    (problem,) = store.problems
    assert re.search(sentence, problem)
    save(store, 4)  # the run goes on from iteration 3
    assert check(run) == 4
    only_needed(run)
    shutil.rmtree(run / "000004")
    assert check(run) == 3


def test_any_byte_of_a_manifest_counts(run):
    path = run / "000004" / "manifest.json"
    data = path.read_bytes()
    whole = json.loads(data)
    store = store_of(run)
    for at in range(0, len(data), 7):
        path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        if store.latest().info["iteration"] == 4:
            assert json.loads(path.read_bytes()) == whole  # a blank between values
        else:
            assert len(store.problems) == 1


def test_none_good(run):
    for number in ("000003", "000004"):
        flip(run / number / "state.safetensors")
    before, store = files(run), store_of(run)
    with pytest.raises(Damaged, match=r"no usable checkpoint.* 000004 .*altered.* 000003 .*altered"):
        store.latest()
    assert len(store.problems) == 2
    with pytest.raises(Damaged, match="no usable checkpoint"):
        save(store, 5)  # nothing is written over what a person may want to look at
    assert files(run) == before


def test_a_passed_over_checkpoint_does_not_take_the_place_of_a_good_one(run):
    flip(run / "000004" / "state.safetensors")
    save(store_of(run), 5)
    assert sorted(path.name for path in run.glob("0*")) == ["000003", "000005"]
    only_needed(run)
    assert check(run) == 5


def test_a_shard_that_no_good_manifest_names_is_not_believed(run):
    orphan = run / "replay" / "rows-000000000028-000000000033.safetensors"
    orphan.write_bytes(newest_shard(run).read_bytes())
    save(store_of(run), 5)
    assert check(run) == 5
    assert orphan.exists()


def test_a_shard_that_was_lost_after_the_check_is_written_again(run):
    store = store_of(run)
    assert store.latest()
    newest_shard(run).unlink()
    save(store, 5)
    assert check(run) == 5


def test_what_killed_processes_left_goes_at_the_next_save(run):
    for name in (".000005.tmp", ".000004.old"):
        shutil.copytree(run / "000004", run / name)
    (run / "replay" / ".rows-000000000028-000000000033-123.safetensors").touch()
    (run / "notes.txt").touch()
    save(store_of(run), 5)
    (run / "notes.txt").unlink()  # not ours, so still there
    only_needed(run)


def test_what_was_left_by_a_run_that_then_ended_goes_when_it_is_resumed(run):
    shutil.copytree(run / "000004", run / ".000002.tmp")
    (run / "replay" / ".rows-000000000028-000000000033-123.safetensors").touch()
    store = store_of(run)
    store.latest()
    store.tidy()
    only_needed(run)
    assert check(run) == 4


def test_beside_damage_nothing_is_removed(run):
    shutil.copytree(run / "000004", run / ".000002.tmp")
    (run / "000004" / "state.safetensors").write_bytes(b"")
    store = store_of(run)
    store.latest()
    store.tidy()
    assert (run / ".000002.tmp").exists()


def test_a_checkpoint_renamed_away_by_a_killed_process_is_found(run):
    (run / "000004").rename(run / ".000004.old")
    assert check(run) == 4
    save(store_of(run), 5)
    only_needed(run)
    shutil.rmtree(run / "000005")
    assert check(run) == 4


# Stops: at random, and before every single thing that is done to the file system.


def in_another_process(function: str, *arguments: Any) -> str:
    """Call a function of this file in a fresh process, which may fork: JAX has not started there."""
    code = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); import test_checkpoint as t; "
    code += f"t.{function}(*sys.argv[1:])"
    command = [sys.executable, "-W", "ignore", "-c", code, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def forked(work: Any) -> int:
    """Pid of a child that does ``work`` and ends with the number it returns, or with 1 after an exception."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        code = work()
    finally:
        os._exit(code)


def save_for_ever(folder: Path) -> int:
    store = store_of(folder)
    saved = store.latest()
    i = saved.info["iteration"] if saved else 0
    while True:
        i += 1
        save(store, i)
        save(store, i)


def kill_at_random(folder: str, kills: str) -> None:
    """Leave a copy of the folder as it was after each kill."""
    dice = random.Random(0)
    save(store_of(Path(folder)), 1)
    for k in range(int(kills)):
        before = newest(folder)
        pid = forked(lambda: save_for_ever(Path(folder)))
        while newest(folder) == before:  # at least one checkpoint more, however busy the machine is
            time.sleep(0.001)
        time.sleep(dice.uniform(0, 0.05))
        os.kill(pid, signal.SIGKILL)
        assert os.WIFSIGNALED(os.waitpid(pid, 0)[1])
        shutil.copytree(folder, f"{folder}-{k:03d}")


def newest(folder: str) -> int:
    return max(int(path.name) for path in Path(folder).iterdir() if path.name.isdigit())


def test_a_run_killed_at_random_goes_on_from_what_it_had(folder):
    in_another_process("kill_at_random", folder, 15)
    reached = [check(copy) for copy in sorted(folder.parent.glob("*-???"))]
    assert len(reached) == 15
    assert reached == sorted(reached)
    assert reached[-1] > 15
    save(store_of(folder), reached[-1] + 1)
    only_needed(folder)


TOUCHES = ("open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.scandir", "os.listdir")
UNTOUCHED = 3  # exit code of a save that was over before it could be stopped


def stop_at_each_touch(folder: str, iteration: str, how: str) -> None:
    """Save into copies of the folder; in the k-th copy be stopped at the k-th touch of the file system."""
    for k in range(1000):
        copy = Path(f"{folder}-{k:03d}")
        shutil.copytree(folder, copy)
        pid = forked(lambda copy=copy, k=k: stop_at_touch(copy, int(iteration), how, k))
        if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == UNTOUCHED:
            break


def stop_at_touch(folder: Path, iteration: int, how: str, k: int) -> int:
    store, left = store_of(folder), k
    assert store.latest()

    def hook(event: str, arguments: Any) -> None:
        nonlocal left
        if event not in TOUCHES or left < 0:
            return
        left -= 1
        if left < 0:
            if how == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            raise KeyboardInterrupt if how == "interrupt" else OSError(errno.ENOSPC, "No space left on device")

    sys.addaudithook(hook)
    save(store, iteration)
    return UNTOUCHED if left >= 0 else 0


@pytest.mark.parametrize(("iteration", "how"), [(4, "kill"), (5, "kill"), (4, "interrupt"), (5, "error")])
def test_stopped_at_any_touch_of_the_file_system(run, iteration, how):
    before = files(run)
    in_another_process("stop_at_each_touch", run, iteration, how)
    copies = sorted(run.parent.glob("*-???"))
    assert len(copies) > 15
    outcomes = []
    for copy in copies:
        outcomes.append(check(copy))
        if how == "error" and outcomes[-1] == 4:
            assert files(copy) == before  # nothing is left of what was not written
        save(store_of(copy), 5)
        assert check(copy) == 5
        only_needed(copy)
    assert (outcomes[0], outcomes[-1]) == (4, iteration)


# Full disks.


def save_within_limits(folder: str, *limits: str) -> None:
    """Save iteration 5 into copies of the folder, where no file may grow beyond a limit (Python ignores SIGXFSZ)."""
    for limit in limits:
        shutil.copytree(folder, f"{folder}-{limit}")
        os.waitpid(forked(lambda limit=limit: save_within(Path(f"{folder}-{limit}"), int(limit))), 0)


def save_within(folder: Path, limit: int) -> int:
    store, report = store_of(folder), folder.with_suffix(".json").open("w")
    store.latest()
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    try:
        save(store, 5)
    except OSError as error:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        with report:
            json.dump([error.errno, error.strerror, error.filename], report)
    return 0


def test_a_file_that_cannot_be_written(run):
    before = files(run)
    in_another_process("save_within_limits", run, 50, 600, 900)
    for limit, file in ((50, "replay/rows-000000000028-"), (600, "000005"), (900, "000005")):
        copy = run.with_name(f"{run.name}-{limit}")
        number, sentence, filename = json.loads(copy.with_suffix(".json").read_text())
        assert number == errno.EFBIG
        assert sentence == "File too large: checkpoint of iteration 5 was not written; the last good one is iteration 4"
        assert filename.startswith(str(copy / file))
        assert files(copy) == before
        assert check(copy) == 4


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=128k", "tmpfs", str(disk)]
    try:
        mounted = subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        mounted = False
    if not mounted:
        pytest.skip("mounting is not allowed here")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def test_a_full_disk(small_disk):
    folder = small_disk / "checkpoints"
    store = store_of(folder)
    save(store, 1)
    before = files(folder)
    for size in (200_000, 60_000):  # too big at once; too big beside what is there
        with pytest.raises(OSError, match=r"No space left.* iteration 2 was not written; .* good one is iteration 1"):
            store.save({"iteration": 2}, {"w": np.ones(size, np.uint8)}, rows=(0, 900), replay=replay)
        assert files(folder) == before
        assert check(folder) == 1
    save(store, 2)
    assert check(folder) == 2


def test_the_first_save_fails(tmp_path):
    (tmp_path / "checkpoints").touch()  # a file where the folder should be
    with pytest.raises(OSError, match="iteration 0 was not written; there is no earlier one"):
        CheckpointStore(tmp_path / "checkpoints").save({"iteration": 0}, {})


# Refusals.


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"info": {}}, r'info\["iteration"\] must be an integer >= 0, got None'),
        ({"info": {"iteration": -1}}, "must be an integer >= 0, got -1"),
        ({"info": {"iteration": True}}, "must be an integer >= 0, got True"),
        ({"info": {"iteration": 3}}, r'info\["iteration"\] must be at least 4, the last good one in .*, got 3'),
        ({"info": {"iteration": 5, "loss": float("nan")}}, "not JSON compliant"),
        ({"arrays": {"z": np.ones(2, complex)}}, "array 'z' must have a dtype of .*float64, got complex128"),
        ({"arrays": {"o": np.array([None])}}, "array 'o' must have a dtype of .*, got object"),
        ({"arrays": {"__metadata__": np.ones(2)}}, "'__metadata__', which safetensors reserves"),
        ({"rows": (9, 8)}, r"rows must be 0 <= start <= stop, got \(9, 8\)"),
        ({"rows": (-1, 8)}, r"rows must be 0 <= start <= stop, got \(-1, 8\)"),
        ({"rows": (1, 27), "replay": replay}, "rows must end at 28 or later, as in iteration 4, got 27"),
        ({"rows": (8, 30)}, "replay must be given if rows are"),
        (
            {"rows": (8, 30), "replay": lambda a, b: {"x": np.zeros((3, 2))}},
            r"replay\(28, 29\) must return 1 rows, got 'x' of \(3, 2\)",
        ),
    ],
)
def test_refusals_leave_everything_as_it_was(run, arguments, sentence):
    before = files(run)
    with pytest.raises(ValueError, match=sentence):
        store_of(run).save(**({"info": {"iteration": 5}, "arrays": {}} | arguments))
    assert files(run) == before
    assert check(run) == 4


# Trees.


def tree() -> Any:
    return {"conv": [jnp.ones((2, 3)), {"b/'": jnp.zeros(0, jnp.int32)}], "count": jnp.uint32(4), "none": None, "n": 3}


def test_a_tree_comes_back_as_numpy(folder):
    arrays = flatten(tree())
    assert list(arrays) == ["conv.0", "conv.1.b/'", "count", "n"]
    store = CheckpointStore(folder)
    store.save({"iteration": 0}, arrays)
    arrays = store.latest().arrays
    shapes = jax.eval_shape(tree) | {"n": 3}
    for like in (tree(), shapes):
        back = unflatten(like, arrays)
        assert jax.tree.structure(back) == jax.tree.structure(tree())
        assert all(isinstance(leaf, np.ndarray) for leaf in jax.tree.leaves(back))
        same(flatten(back), arrays)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"count": None}, "the weights has no array named 'count'"),
        ({"extra": np.ones(2)}, "the weights has an array named 'extra', which does not belong to it"),
        ({"count": np.ones(1, np.uint32)}, r"'count' has shape \(1,\) in the weights, but must have shape \(\)"),
        ({"count": np.array(4)}, "'count' has dtype int64 in the weights, but must have dtype uint32"),
    ],
)
def test_a_tree_that_does_not_fit(changes, sentence):
    arrays = {name: array for name, array in (flatten(tree()) | changes).items() if array is not None}
    with pytest.raises(Damaged, match=sentence):
        unflatten(tree(), arrays, what="weights")


def test_weights_are_the_leaves_of_params():
    state = ({"learner": {"params": {"conv1": {"bias": 1}}, "target_params": {"conv1": {"bias": 2}}}}, {"count": 3})
    assert weights_of(flatten(state)) == {"conv1.bias": 1}
    assert weights_of(flatten({"params": {"outputs": {"weights": 4}}})) == {"outputs.weights": 4}
