"""The episodes of Minari datasets as a table with one row for each observation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from cramerl._extras import load_library
from cramerl.linear.logs.columns import Column
from cramerl.linear.logs.layout import Table
from cramerl.linear.logs.tables import Columns, part_names

PREFIX = "minari:"
NAMES: dict[str, Any] = {
    "episode": "episode",
    "time": "step",
    "state": "observation*",
    "action": "action",
    "terminated": "terminated",
    "truncated": "truncated",
}
"""The columns that `Log.read` takes from a dataset, unless others are named."""


class MinariTable:
    """A dataset. The last observation of an episode is a row without an action and a reward."""

    NAMES = NAMES

    def __init__(self, dataset: Any):
        self._dataset = dataset
        first = next(iter(dataset.iterate_episodes()), None)
        if first is None:
            raise ValueError("source must hold at least one episode, got a Minari dataset with none")
        columns, lists = _columns(first)
        self.table = Table(tuple(columns), lists)

    def size(self, names: Sequence[str]) -> int:
        """Bytes that the columns need in memory."""
        return 8 * len(names) * int(self._dataset.total_steps + self._dataset.total_episodes)

    def chunks(self, names: Sequence[str]) -> Iterator[Columns]:
        """The named columns, an episode at a time."""
        for number, episode in enumerate(self._dataset.iterate_episodes()):
            columns, _ = _columns(episode, number)
            yield {name: columns[name] for name in names}

    def __getstate__(self) -> str:
        return self._dataset.spec.dataset_id

    def __setstate__(self, name: str) -> None:
        self.__init__(load_dataset(name))


def open_minari(source: Any) -> MinariTable | None:
    """The table of a Minari dataset or of the name of one; None for anything else."""
    if isinstance(source, str) and source.startswith(PREFIX):
        return MinariTable(load_dataset(source.removeprefix(PREFIX)))
    return MinariTable(source) if hasattr(source, "iterate_episodes") else None


def load_dataset(name: str) -> Any:
    """The dataset of this name on this machine."""
    minari = load_library("minari")
    try:
        return minari.load_dataset(name)
    except FileNotFoundError:
        raise ValueError(
            f"source must be a Minari dataset on this machine (fetch one with `minari download`), got {name!r}"
        ) from None
    except ImportError as error:  # such as h5py, which is an extra of minari
        raise ValueError(f"reading {name!r} needs a package that is not installed: {error}") from None


def _columns(episode: Any, number: int = 0) -> tuple[Columns, dict[str, tuple[str, ...]]]:
    """The columns of an episode, and which of them are parts of one array."""
    steps = len(episode.rewards)
    final = np.arange(steps + 1) == steps
    columns: Columns = {
        "episode": Column(np.full(steps + 1, number)),
        "step": Column(np.arange(steps + 1)),
        "reward": Column(np.append(np.asarray(episode.rewards, dtype=np.float64), np.nan), final),
        "terminated": Column(np.append(np.asarray(episode.terminations, dtype=bool), False), final),
        "truncated": Column(np.append(np.asarray(episode.truncations, dtype=bool), False), final),
    }
    lists: dict[str, tuple[str, ...]] = {}
    for name, array in [*_arrays("observation", episode.observations), *_arrays("action", episode.actions)]:
        rows = array if len(array) > steps else np.concatenate([array, array[-1:]])
        missing = final if len(array) == steps else None
        if rows.ndim == 1:
            columns[name] = _labelled(rows, missing) if rows.dtype.kind in "iu" else Column(rows, missing)
            continue
        table = rows.reshape(len(rows), -1)
        lists[name] = part_names(name, table.shape[1])
        columns |= {part: Column(table[:, j], missing) for j, part in enumerate(lists[name])}
    return columns, lists


def _labelled(codes: Any, missing: Any) -> Column:
    """A column of a discrete space: its numbers are codes."""
    levels, inverse = np.unique(codes, return_inverse=True)
    return Column(inverse, missing, tuple(levels.tolist()))


def _arrays(name: str, given: Any) -> Iterator[tuple[str, Any]]:
    """The arrays of a space that may be made of others, by name."""
    if isinstance(given, dict):
        for key, part in given.items():
            yield from _arrays(f"{name}_{key}", part)
    elif isinstance(given, tuple):
        for number, part in enumerate(given):
            yield from _arrays(f"{name}_{number}", part)
    else:
        yield name, np.asarray(given)
