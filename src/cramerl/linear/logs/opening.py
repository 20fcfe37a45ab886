"""What a log or a table of states can be: data frames, arrays, files, Minari datasets and examples."""

from __future__ import annotations

from collections.abc import Iterator
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cramerl.linear.logs.example_logs import open_example
from cramerl.linear.logs.files import open_files
from cramerl.linear.logs.layout import listed
from cramerl.linear.logs.minari import open_minari
from cramerl.linear.logs.observations import Observations
from cramerl.linear.logs.records import Decoder, require_present
from cramerl.linear.logs.tables import Columns, Tables, open_frame


def open_table(source: Any, argument: str = "source") -> Tables:
    """The table that a source holds."""
    tables = open_frame(source) or open_example(source) or open_minari(source) or open_files(source)
    if tables is None:
        raise ValueError(
            f"{argument} must be a data frame, a dictionary of arrays, a structured array, a Minari dataset or paths "
            f"of Parquet or CSV files, got {type(source).__name__}"
        )
    return tables


def encode_table(decoder: Decoder, table: Any) -> Observations:
    """The states in a table with the columns of a log's state, or in an array with them in order."""
    columns = decoder.layout.state
    if isinstance(table, list | tuple) and table and not any(isinstance(row, dict | str | PathLike) for row in table):
        table = np.array(table)
    if isinstance(table, np.ndarray) and not table.dtype.names and table.ndim == 1 and len(columns) == 1:
        table = table[:, None]
    if isinstance(table, np.ndarray) and not table.dtype.names and table.ndim == 2:
        table = _named(table, columns)
    parts = [observations for observations, _ in encoded_chunks(decoder, open_table(table, "table"))]
    if not parts:
        raise ValueError("table must have at least one row")
    return Observations.join(parts)


def encoded_chunks(
    decoder: Decoder, tables: Tables, others: tuple[str, ...] = ()
) -> Iterator[tuple[Observations, Columns]]:
    """The states in a table, some rows at a time, and these rows of other columns."""
    state, policy = decoder.layout.state, decoder.layout.policy
    if lost := [name for name in state if name not in tables.table.names]:
        raise ValueError(f"table must have the columns of the state, {lost[0]!r} is missing; it has {tables.table}")
    known = policy if all(name in tables.table.names for name in policy) else ()
    for chunk in tables.chunks(tuple(dict.fromkeys([*state, *known, *others]))):
        for name in state:
            require_present("table", name, chunk[name])
        yield decoder.encode(chunk), {name: chunk[name] for name in others}


def _named(array: NDArray[Any], names: tuple[str, ...]) -> dict[str, NDArray[Any]]:
    if array.shape[1] != len(names):
        raise ValueError(f"table must have {len(names)} columns ({listed(names)}), got {array.shape[1]}")
    return {name: array[:, j] for j, name in enumerate(names)}
