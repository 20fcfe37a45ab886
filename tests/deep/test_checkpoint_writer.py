"""Checkpoints written in a thread: what they hold is what there was when they were asked for."""

import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cramerl.deep.checkpoint import CheckpointStore
from cramerl.deep.checkpoint_writer import CheckpointWriter

ROW_BYTES, CAPACITY = 8, 10


class Training:
    """A state and a ring that change all the time, in place."""

    def __init__(self) -> None:
        self.state, self.ring, self.row = np.zeros(3), np.zeros((CAPACITY, 1)), 0

    def go_on(self, rows: int) -> None:
        self.state += 1
        for _ in range(rows):
            self.ring[self.row % CAPACITY] = self.row
            self.row += 1

    def read(self, start: int, stop: int) -> dict[str, np.ndarray]:
        return {"x": self.ring[np.arange(start, stop) % CAPACITY]}

    def save(self, writer: Any, number: int) -> None:
        live = max(0, self.row - CAPACITY), self.row
        writer.save({"iteration": number}, {"w": self.state}, rows=live, replay=self.read, capacity=CAPACITY)


def held(folder: Path) -> tuple[int, float, list[float]]:
    """Number, state and rows of the last checkpoint."""
    store = CheckpointStore(folder)
    saved = store.latest()
    assert saved is not None
    assert store.problems == []
    rows = [float(x) for _, part in store.rows(saved) for x in part["x"][:, 0]]
    return saved.info["iteration"], float(saved.arrays["w"][0]), rows


@pytest.fixture(name="slow_disk")
def fixture_slow_disk(monkeypatch) -> threading.Event:
    """Nothing is on the disk before the event is set."""
    ready, real = threading.Event(), os.fsync

    def fsync(descriptor: int) -> None:
        assert ready.wait(60)
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    return ready


def test_training_goes_on_and_the_checkpoint_does_not_see_it(slow_disk, tmp_path):
    training, writer = Training(), CheckpointWriter(CheckpointStore(tmp_path / "c", shard_bytes=3 * ROW_BYTES))
    training.go_on(13)
    training.save(writer, 1)
    training.go_on(20)  # every slot is overwritten
    writer.check()
    assert not (tmp_path / "c" / "000001").exists()
    slow_disk.set()
    writer.wait()
    assert held(tmp_path / "c") == (1, 1.0, [float(row) for row in range(3, 13)])
    training.save(writer, 2)
    training.go_on(4)
    training.save(writer, 3)  # waits for the one before
    writer.close()
    assert held(tmp_path / "c") == (3, 3.0, [float(row) for row in range(27, 37)])
    assert sorted(path.name for path in (tmp_path / "c").iterdir()) == ["000002", "000003", "replay"]


def test_the_files_are_those_of_a_store_that_is_not_in_a_thread(tmp_path):
    stores = [CheckpointStore(tmp_path / name, shard_bytes=3 * ROW_BYTES) for name in ("a", "b")]
    writer, training = CheckpointWriter(stores[1]), Training()
    for number, rows in enumerate((4, 5, 0, 16)):
        training.go_on(rows)
        new = stores[0].new_shards((max(0, training.row - CAPACITY), training.row), training.read, CAPACITY)
        before = set((tmp_path / "a" / "replay").glob("*"))
        training.save(stores[0], number)
        training.save(writer, number)
        names = {f"rows-{start:012d}-{stop:012d}.safetensors" for start, stop in new}
        assert {path.name for path in set((tmp_path / "a" / "replay").glob("*")) - before} == names
    writer.close()
    files = [
        {path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()}
        for root in (tmp_path / "a", tmp_path / "b")
    ]
    assert files[0] == files[1]
    assert len(files[0]) > 4


@pytest.mark.parametrize("ask", ["check", "wait", "close", "save"])
def test_an_error_is_told_once_whoever_asks_first(ask, tmp_path):
    (tmp_path / "c").write_text("a file where the folder should be")
    training, writer = Training(), CheckpointWriter(CheckpointStore(tmp_path / "c"))
    training.go_on(3)
    training.save(writer, 1)
    assert writer._running is not None
    assert writer._running.exception(timeout=60) is not None
    with pytest.raises(OSError, match="checkpoint of iteration 1 was not written; there is no earlier one"):
        training.save(writer, 2) if ask == "save" else getattr(writer, ask)()
    writer.check()
    writer.close()


def test_rows_that_were_not_copied_are_an_error(slow_disk, tmp_path):
    """A file that another process removes while a checkpoint is written."""
    training, store = Training(), CheckpointStore(tmp_path / "c", shard_bytes=3 * ROW_BYTES)
    slow_disk.set()
    training.go_on(6)
    training.save(store, 1)
    slow_disk.clear()
    writer = CheckpointWriter(store)
    training.go_on(3)
    kept = store._kept
    removed = sorted((tmp_path / "c" / "replay").iterdir())[0]

    def remove_and_look(live: tuple[int, int]) -> Any:
        if threading.current_thread() is not threading.main_thread():
            removed.unlink()
        return kept(live)

    store._kept = remove_and_look
    training.save(writer, 2)
    slow_disk.set()
    with pytest.raises(LookupError, match="rows 0 to 1 were not copied: a file of the replay was removed meanwhile"):
        writer.close()
