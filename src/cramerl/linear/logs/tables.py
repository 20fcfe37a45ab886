"""Where the rows of a log come from: arrays, data frames and files, all read as columns in chunks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from cramerl._extras import load_library
from cramerl.linear.logs.columns import Column, column_of_array, column_of_arrow
from cramerl.linear.logs.layout import Table

Columns = dict[str, Column]

# Rows of an Arrow table that are made into arrays at a time.
_BATCH_ROWS = 200_000


class Tables(Protocol):
    """A table that can be read in chunks, as often as it is needed."""

    @property
    def table(self) -> Table:
        """The columns that there are."""
        ...

    def size(self, names: Sequence[str]) -> int:
        """Bytes that the columns would need in memory; 0 if they are there already."""
        ...

    def chunks(self, names: Sequence[str]) -> Iterator[Columns]:
        """The named columns, some rows at a time."""
        ...


class ArrayTable:
    """Arrays of one length by name."""

    def __init__(self, arrays: Mapping[str, Any]):
        self._columns: dict[str, Column | ValueError] = {}
        names: list[str] = []
        lists: dict[str, tuple[str, ...]] = {}
        for name, given in ((str(key), given) for key, given in arrays.items()):
            column = _column_or_error(name, given)
            if isinstance(column, ValueError) or column.width is None:
                parts = {name: column}
            else:
                lists[name] = part_names(name, column.width)
                parts = {part: column.part(j) for j, part in enumerate(lists[name])}
            names += parts
            self._columns |= parts
        self.table = Table(require_different(names), lists)
        self._require_one_length()

    def size(self, names: Sequence[str]) -> int:
        """0: they are in memory."""
        return 0

    def chunks(self, names: Sequence[str]) -> Iterator[Columns]:
        """All rows at once."""
        found: Columns = {}
        for name in names:
            column = self._columns[name]
            if isinstance(column, ValueError):
                raise column
            found[name] = column
        yield found

    def _require_one_length(self) -> None:
        lengths = {name: len(c.values) for name, c in self._columns.items() if isinstance(c, Column)}
        if len(set(lengths.values())) > 1:
            short, long = min(lengths, key=lengths.__getitem__), max(lengths, key=lengths.__getitem__)
            raise ValueError(
                f"source must hold arrays of one length, got {lengths[short]} in {short!r} and {lengths[long]} "
                f"in {long!r}"
            )


class ArrowTable:
    """A ``pyarrow.Table``, or what can be made one, such as a data frame of polars."""

    def __init__(self, source: Any):
        self._source = _as_arrow(source)
        self.table = table_of_arrow(self._source.schema, _head(self._source))

    def size(self, names: Sequence[str]) -> int:
        """0: they are in memory."""
        return 0

    def chunks(self, names: Sequence[str]) -> Iterator[Columns]:
        """The rows, a batch at a time."""
        chosen = self._source.select(base_names(self.table, names))
        yield from arrow_chunks(chosen.to_batches(max_chunksize=_BATCH_ROWS), self.table, names)


class PandasTable:
    """A data frame of pandas, its index as columns. Only the columns that are needed are made Arrow's."""

    def __init__(self, frame: Any):
        named = any(name is not None for name in frame.index.names)
        self._frame = (frame.reset_index() if named else frame).rename(columns=str)
        require_different([*self._frame.columns])
        head = _as_arrow(self._frame.head(1).reset_index(drop=True))
        self.table = table_of_arrow(head.schema, _head(head))

    def size(self, names: Sequence[str]) -> int:
        """0: they are in memory."""
        return 0

    def chunks(self, names: Sequence[str]) -> Iterator[Columns]:
        """The rows, a batch at a time."""
        chosen = self._frame[base_names(self.table, names)].reset_index(drop=True)
        yield from arrow_chunks(_as_arrow(chosen).to_batches(max_chunksize=_BATCH_ROWS), self.table, names)


class WithArrays:
    """Another table with more columns."""

    def __init__(self, tables: Tables, arrays: Mapping[str, NDArray[Any]]):
        self._tables, self._arrays = tables, arrays
        self.table = Table((*tables.table.names, *arrays), tables.table.lists)

    def size(self, names: Sequence[str]) -> int:
        """Bytes that the other table's columns need."""
        return self._tables.size([name for name in names if name not in self._arrays])

    def chunks(self, names: Sequence[str]) -> Iterator[Columns]:
        """The named columns, some rows at a time."""
        first = 0
        for chunk in self._tables.chunks([name for name in names if name not in self._arrays]):
            stop = first + len(next(iter(chunk.values())).values)
            own = {name: Column(self._arrays[name][first:stop]) for name in names if name in self._arrays}
            yield chunk | own
            first = stop


def open_frame(source: Any) -> Tables | None:
    """The table that an object in memory holds; None for names of files and for what is no table."""
    if isinstance(source, Mapping):
        return ArrayTable(source)
    if isinstance(source, np.ndarray) and source.dtype.names:
        return ArrayTable({name: source[name] for name in source.dtype.names})
    if type(source).__module__.partition(".")[0] == "pandas" and hasattr(source, "columns"):
        return PandasTable(source)
    if hasattr(source, "__arrow_c_stream__"):
        return ArrowTable(source)
    return None


def table_of_arrow(schema: Any, head: Any) -> Table:
    """The columns of an Arrow schema; the first rows (a batch, or None) tell how long lists are."""
    require_different(schema.names)
    names: list[str] = []
    lists: dict[str, tuple[str, ...]] = {}
    for field in schema:
        width = _width(field.type, None if head is None else head.column(field.name))
        if width is not None:
            lists[field.name] = part_names(field.name, width)
        names += [field.name] if width is None else lists[field.name]
    return Table(require_different(names), lists)


def require_different(names: Sequence[str]) -> tuple[str, ...]:
    """The names, or ValueError if two are the same."""
    if len(set(names)) < len(names):
        again = next(name for name in names if names.count(name) > 1)
        hint = " (the parts of a column of lists have its name and a number)" if again[-1:].isdecimal() else ""
        raise ValueError(f"source must have columns of different names, got {again!r} more than once{hint}")
    return tuple(names)


def arrow_chunks(batches: Any, table: Table, names: Sequence[str]) -> Iterator[Columns]:
    """The named columns of Arrow batches."""
    home = {part: (name, j) for name, parts in table.lists.items() for j, part in enumerate(parts)}
    for batch in batches:
        if not batch.num_rows:
            continue
        read: Columns = {}
        found: Columns = {}
        for name in names:
            column, part = home.get(name, (name, None))
            if column not in read:
                read[column] = column_of_arrow(column, batch.column(column))
                _require_width(read[column], column, table)
            found[name] = read[column] if part is None else read[column].part(part)
        yield found


def base_names(table: Table, names: Sequence[str]) -> list[str]:
    """The columns of a file that hold the named ones."""
    home = {part: name for name, parts in table.lists.items() for part in parts}
    return list(dict.fromkeys(home.get(name, name) for name in names))


def part_names(name: str, width: int) -> tuple[str, ...]:
    """The names of the parts of a column of lists."""
    return tuple(f"{name}{j}" for j in range(width))


def _require_width(column: Column, name: str, table: Table) -> None:
    width = len(table.lists[name]) if name in table.lists else None
    if column.width != width:
        raise ValueError(
            f"column {name!r} must hold lists of one length, got {column.width or 'none'} where the first rows have "
            f"{width or 'none'}"
        )


def _width(kind: Any, first: Any) -> int | None:
    """How long the lists of a column are, None if its type is not one of lists."""
    types = load_library("pyarrow.types")
    kind = getattr(kind, "storage_type", kind)
    if types.is_fixed_size_list(kind):
        return kind.list_size
    if not (types.is_list(kind) or types.is_large_list(kind)):
        return None
    if first is None or first.null_count == len(first):
        return None  # an error if the column is used
    return len(first.drop_null()[0])


def _column_or_error(name: str, given: Any) -> Column | ValueError:
    """The column, or why there is none, which matters only if it is used."""
    try:
        return column_of_array(name, given)
    except ValueError as error:
        return error


def _as_arrow(source: Any) -> Any:
    arrow = load_library("pyarrow")
    try:
        return arrow.table(source)
    except (arrow.ArrowException, ValueError) as error:
        raise ValueError(f"source must be a table with columns of one type each: {error}") from None


def _head(table: Any) -> Any:
    """The first rows as a batch; None if there are none."""
    return next(iter(table.slice(0, 1000).to_batches()), None)
