"""The rows of a log in memory: put in order once, and handed out in blocks of whole episodes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cramerl.linear.logs.layout import LogLayout
from cramerl.linear.logs.records import Records


class RecordsInMemory:
    """Rows in order, with the numbers of their episodes."""

    def __init__(self, records: Records):
        self._records = records
        starts = np.flatnonzero(np.diff(records.episode, prepend=-1))
        self._bounds = np.append(starts, records.num_rows)

    @property
    def num_episodes(self) -> int:
        """Episodes, whether they have transitions or not."""
        return len(self._bounds) - 1

    def parts(self, rows: int) -> Iterator[Records]:
        """As many whole episodes at a time as have at most so many rows, or one that has more."""
        episode = 0
        while episode < self.num_episodes:
            start = self._bounds[episode]
            stop = int(np.searchsorted(self._bounds, start + rows, side="right")) - 1
            episode = max(episode + 1, stop)
            yield self._records.take(slice(start, self._bounds[episode]))

    def take(self, episodes: NDArray[np.intp]) -> RecordsInMemory:
        """Some episodes, in this order; one that is named twice is there twice."""
        lengths = np.diff(self._bounds)[episodes]
        shift = np.repeat(self._bounds[episodes] - (np.cumsum(lengths) - lengths), lengths)
        records = self._records.take(np.arange(lengths.sum()) + shift)
        return RecordsInMemory(records._replace(episode=np.repeat(np.arange(len(episodes)), lengths)))


def in_order(records: Records, layout: LogLayout) -> Records:
    """The rows by episode and time, with numbers for the episodes.

    Rows that are in order stay as they are: those of an episode together, with times that increase. Others are sorted.
    """
    if layout.episode is None and layout.next_state:
        return records._replace(episode=np.arange(records.num_rows))
    if not _is_in_order(records):
        keys = [records.episode] if records.time is None else [records.time, records.episode]
        records = records.take(np.lexsort(keys))
        _require_different_times(records, layout)
    return records._replace(episode=np.cumsum(_changes(records.episode)) - 1)


def _is_in_order(records: Records) -> bool:
    starts = records.episode[_changes(records.episode)]
    if len(np.unique(starts)) < len(starts):
        return False
    return records.time is None or bool((_changes(records.episode)[1:] | (np.diff(records.time) > 0)).all())


def _require_different_times(records: Records, layout: LogLayout) -> None:
    if records.time is None:
        return
    again = ~_changes(records.episode)[1:] & (records.time[1:] == records.time[:-1])
    if again.any():
        raise ValueError(
            f"time must differ between the rows of an episode, got {int(again.sum())} rows with the {layout.time!r} of "
            f"another row" + ("" if layout.episode is None else f" of the same {layout.episode!r}")
        )


def _changes(values: NDArray[Any]) -> NDArray[np.bool_]:
    """(m,) whether a value differs from the one before; true for the first."""
    found = np.ones(len(values), dtype=bool)
    found[1:] = values[1:] != values[:-1]
    return found
