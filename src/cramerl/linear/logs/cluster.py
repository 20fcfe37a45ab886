"""Passes over a log on a Ray cluster: each task reads whole episodes from some row groups of the log's files."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from cramerl._extras import load_library
from cramerl._ray import connect
from cramerl.linear.sources.tasks import Tasks
from cramerl.linear.transitions import S

if TYPE_CHECKING:
    from cramerl.linear.logs.log import Log
    from cramerl.linear.logs.rows import LogRows

# Rows of one task, at least, and tasks of one pass, at most.
_SPAN_ROWS, _MOST_SPANS = 100_000, 256


@contextmanager
def connected(log: Log) -> Iterator[Any]:
    """The module ``ray``, connected to the log's cluster while the block runs; None for a log that has none.

    A connection that this process has already is used.
    """
    if log.ray is None:
        yield None
        return
    with connect(None if load_library("ray").is_initialized() else log.ray) as ray:
        yield ray


def total(rows: LogRows, sums: S) -> S:
    """The sums over all rows, merged in their order."""
    with connected(rows.log) as ray:
        return Tasks(ray).total(_add_up, [sums, _plain(rows)], _spans(rows.log), "parts of the log added up")


def mapped(rows: LogRows, function: Callable[..., Any]) -> Iterator[Any]:
    """What a function makes of the rows and of each block, in order."""
    with connected(rows.log) as ray:
        shared = [_Shared(function), _plain(rows)]
        parts = Tasks(ray).mapped(_map, shared, _spans(rows.log), "parts of the log looked at")
    return (found for part in parts for found in part)


class _Shared:
    """A function that is sent once to all tasks."""

    def __init__(self, function: Callable[..., Any]):
        self.function = function


def _spans(log: Log) -> list[Log]:
    return log.spans(max(_SPAN_ROWS, log.num_rows // _MOST_SPANS))


def _plain(rows: LogRows) -> LogRows:
    """Without what was kept for passes here."""
    return rows.of_log(rows.log)


def _add_up(sums: S, rows: LogRows, part: Log) -> tuple[int, S]:
    return 0, rows.of_log(part).total(copy.deepcopy(sums))  # objects in the store are read-only


def _map(shared: _Shared, rows: LogRows, part: Log) -> list[Any]:
    return list(rows.of_log(part).mapped(shared.function))
