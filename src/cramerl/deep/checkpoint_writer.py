"""Checkpoints that are written while training continues.

What must be consistent is copied to the host's memory first, while training waits: the state, and the rows of the
replay that no earlier checkpoint has written. Hashing and writing them, which takes most of the time, is left to a
thread.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from cramerl.deep.checkpoint import CheckpointStore, ReadRows
from cramerl.deep.trees import Arrays


class CheckpointWriter:
    """Saves to a `CheckpointStore` from a thread, one checkpoint at a time.

    The store must not be used by others between `save` and `wait`.

    Args:
        store: where to.
    """

    def __init__(self, store: CheckpointStore):
        self._store = store
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._running: Future[Path] | None = None

    def save(
        self,
        info: dict[str, Any],
        arrays: Arrays,
        *,
        rows: tuple[int, int] | None = None,
        replay: ReadRows | None = None,
        capacity: int = 0,
    ) -> None:
        """Copy what `CheckpointStore.save` needs, and start it; it has the same arguments. Waits for the one before."""
        self.wait()
        arrays = {name: np.array(array) for name, array in arrays.items()}
        copied = None
        if rows is not None and replay is not None:
            copied = _CopiedRows(replay, self._store.new_shards(rows, replay, capacity))
        self._running = self._thread.submit(self._store.save, info, arrays, rows=rows, replay=copied, capacity=capacity)

    def check(self) -> None:
        """Raise the error of a checkpoint that has failed; do not wait for one that is being written."""
        if self._running is not None and self._running.done():
            self.wait()

    def wait(self) -> None:
        """Wait until the checkpoint is in place. Raises the error if it failed, once."""
        if self._running is not None:
            running, self._running = self._running, None
            running.result()

    def close(self) -> None:
        """Wait, then end the thread."""
        try:
            self.wait()
        finally:
            self._thread.shutdown()


class _CopiedRows:
    """Copies of rows, to be read like the replay they come from."""

    def __init__(self, replay: ReadRows, shards: list[tuple[int, int]]):
        self._parts = [(start, stop, replay(start, stop)) for start, stop in shards]

    def __call__(self, start: int, stop: int) -> Arrays:
        for first, last, arrays in self._parts:
            if first <= start and stop <= last:
                return {name: array[start - first : stop - first] for name, array in arrays.items()}
        raise LookupError(f"rows {start} to {stop} were not copied: a file of the replay was removed meanwhile")
