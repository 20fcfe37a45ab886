"""The rows of a log that does not fit in memory, read again in every pass, in blocks of whole episodes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cramerl.linear.logs.files import Group, ParquetTable
from cramerl.linear.logs.records import Decoder, Records
from cramerl.linear.logs.tables import Columns, Tables


class Mark(NamedTuple):
    """What comes before a row group."""

    group: Group
    before: int
    """Number of the last episode before it; -1 if there is none."""
    begins: bool
    """Whether its first row begins an episode."""
    rows: int
    """Rows before it."""


class RecordsInFiles:
    """Rows that are in order in their files: those of an episode together, with times that increase.

    Args:
        tables: the files.
        decoder: makes records of their columns.
        mask: (episodes,) which episodes are meant; None: all.
        span: the row groups whose episodes are meant, those that begin from the first mark up to the second one (None:
            to the end); None: all.
    """

    def __init__(
        self,
        tables: Tables,
        decoder: Decoder,
        mask: NDArray[np.bool_] | None = None,
        span: tuple[Mark, Mark | None] | None = None,
    ):
        self._tables, self._decoder, self._mask, self._span = tables, decoder, mask, span
        self._checked = False
        self._marks: list[Mark] = []  # of all row groups, once they have been read

    def parts(self, rows: int) -> Iterator[Records]:
        """As many whole episodes at a time as have at most so many rows, or one that has more."""
        waiting = _Waiting(rows)
        for piece in self._numbered():
            if self._mask is not None:
                if piece.episode[0] >= len(self._mask):
                    break  # all that are wanted have been read
                piece = _masked(piece, self._mask)
            if piece.num_rows:
                waiting.add(piece)
                yield from waiting.whole()
        yield from waiting.rest()

    def take(self, episodes: NDArray[np.intp]) -> RecordsInFiles:
        """Some episodes, in the order of the log."""
        if (np.diff(episodes) <= 0).any():
            raise ValueError(
                "episodes must be a mask or increasing numbers where the log is too large for memory, got others"
            )
        wanted = episodes if self._mask is None else np.flatnonzero(self._mask)[episodes]
        mask = np.zeros(wanted[-1] + 1, dtype=bool)
        mask[wanted] = True
        return self._twin(mask, self._span)

    def spans(self, rows: int) -> list[RecordsInFiles]:
        """Parts that can be read apart, of row groups that have at least so many rows together."""
        cuts: list[Mark | None] = []
        for mark in self._marks:
            if not cuts or mark.rows - cuts[-1].rows >= rows:  # pyright: ignore[reportOptionalMemberAccess]
                cuts.append(mark)
        return [self._twin(self._mask, (start, stop)) for start, stop in pairwise([*cuts, None]) if start is not None]

    def _twin(self, mask: NDArray[np.bool_] | None, span: tuple[Mark, Mark | None] | None) -> RecordsInFiles:
        some = RecordsInFiles(self._tables, self._decoder, mask, span)
        some._checked = self._checked
        some._marks = self._marks if span is None else []
        return some

    def _numbered(self) -> Iterator[Records]:
        """The rows as they come, with the numbers of their episodes; those of a span alone if there is one."""
        if self._span is None:
            yield from (records for _, records in self._read(None))
            return
        start, stop = self._span
        for group, records in self._read(start):
            # An episode that began before the span is another one's, and one that goes on beyond it is read to its end.
            kept = records.episode > start.before
            if stop is not None and group >= stop.group:
                kept &= records.episode <= stop.before
            if kept.any():
                yield records if kept.all() else records.take(kept)
            elif stop is not None and group >= stop.group:
                return

    def _read(self, start: Mark | None) -> Iterator[tuple[Group, Records]]:
        """The rows from a mark on, with their row group; the first pass checks their order and sets the marks."""
        layout, order, number = self._decoder.layout, _Order(), -1 if start is None else start.before
        last: Any = None
        each, marks, rows = layout.episode is None and bool(layout.next_state), [], 0
        for group, chunk in _grouped(self._tables, layout.names(), (0, 0) if start is None else start.group):
            records = self._decoder.decode(chunk)
            new = np.ones(records.num_rows, dtype=bool)
            if not each:
                new[1:] = records.episode[1:] != records.episode[:-1]
                new[0] = records.episode[0] != last if last is not None else start is None or start.begins
                if not self._checked and not order.holds(records, new):
                    raise _unsorted(self._decoder)
                last = records.episode[-1]
            if not marks or marks[-1].group != group:
                marks.append(Mark(group, number, bool(new[0]), rows))
            numbers, rows = number + np.cumsum(new), rows + records.num_rows
            number = int(numbers[-1])
            yield group, records._replace(episode=numbers)
        if not self._checked:
            if not order.differ():
                raise _unsorted(self._decoder)
            self._checked, self._marks = True, marks


def _grouped(tables: Tables, names: Sequence[str], first: Group) -> Iterator[tuple[Group, Columns]]:
    """The chunks with their row groups; without those, all are of one."""
    if isinstance(tables, ParquetTable):
        return tables.grouped(names, first)
    return (((0, 0), chunk) for chunk in tables.chunks(names))


def _masked(piece: Records, mask: NDArray[np.bool_]) -> Records:
    """The rows of the episodes in the mask, which is false beyond its end, with their numbers among these."""
    kept = piece.take((piece.episode < len(mask)) & mask[np.minimum(piece.episode, len(mask) - 1)])
    return kept._replace(episode=(np.cumsum(mask) - 1)[kept.episode])


class _Order:
    """Whether episodes are together and times increase, chunk after chunk."""

    def __init__(self) -> None:
        self._starts: list[NDArray[Any]] = []
        self._last_time: Any = None

    def holds(self, records: Records, new: NDArray[np.bool_]) -> bool:
        """Whether times increase in this chunk, and from the one before."""
        self._starts.append(records.episode[new])
        if records.time is None:
            return True
        before, self._last_time = self._last_time, records.time[-1]
        joined = new[0] or records.time[0] > before
        return bool(joined and (new[1:] | (np.diff(records.time) > 0)).all())

    def differ(self) -> bool:
        """Whether no episode began twice."""
        starts = np.concatenate(self._starts) if self._starts else np.empty(0)
        return len(np.unique(starts)) == len(starts)


class _Waiting:
    """Rows that wait until their block is known to be whole."""

    def __init__(self, rows: int):
        self._rows, self._pieces, self._bounds, self._count, self._last = rows, [], [], 0, None

    def add(self, piece: Records) -> None:
        """Rows that follow those that wait."""
        new = np.ones(piece.num_rows, dtype=bool)
        new[1:] = piece.episode[1:] != piece.episode[:-1]
        new[0] = piece.episode[0] != self._last
        self._bounds += (np.flatnonzero(new) + self._count).tolist()
        self._pieces.append(piece)
        self._count += piece.num_rows
        self._last = piece.episode[-1]

    def whole(self) -> Iterator[Records]:
        """The blocks that no row to come can change."""
        while self._count > self._rows and len(self._bounds) > 1:
            fitting = int(np.searchsorted(self._bounds, self._rows, side="right")) - 1
            yield self._emit(self._bounds[max(1, fitting)])

    def rest(self) -> Iterator[Records]:
        """The blocks that remain at the end."""
        yield from self.whole()
        if self._count:
            yield self._emit(self._count)

    def _emit(self, stop: int) -> Records:
        records = Records.join(self._pieces)
        self._count -= stop
        # A copy, so that the block is not kept in memory by the rows that wait.
        self._pieces = [records.take(np.arange(stop, records.num_rows))] if self._count else []
        self._bounds = [bound - stop for bound in self._bounds if bound >= stop]
        return records.take(slice(None, stop))


def _unsorted(decoder: Decoder) -> ValueError:
    layout = decoder.layout
    keys = " and ".join(repr(name) for name in (layout.episode, layout.time) if name is not None)
    return ValueError(
        f"source must be in order of {keys} if it is too large for memory or read on Ray, got episodes whose rows are "
        f"apart or whose times do not increase: sort the files first, or name next_state columns and no episode"
    )
