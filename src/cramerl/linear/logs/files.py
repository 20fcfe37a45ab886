"""Parquet and CSV files as tables that are read in chunks, as often as they are needed."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cramerl._extras import load_library
from cramerl.linear.logs.layout import Table
from cramerl.linear.logs.tables import Columns, arrow_chunks, base_names, require_different, table_of_arrow
from cramerl.linear.sources.parquet import opened, parquet_files

# Rows of a Parquet file (see `cramerl.linear.sources.parquet`), and bytes of a CSV file, that are decoded at a time.
_BATCH_ROWS, _BLOCK_BYTES = 16_384, 16 << 20
# Longest line of a CSV file.
_LINE_BYTES = _BLOCK_BYTES
# What compressed text grows to, roughly.
_GZIP_RATIO = 6
_CSV_ENDINGS = (".csv", ".tsv", ".csv.gz", ".tsv.gz")


Group = tuple[int, int]
"""The number of a file, and of a row group in it."""


class ParquetTable:
    """The rows of Parquet files, one file after the other."""

    def __init__(self, files: list[str]):
        load_library("pyarrow.parquet")
        self._files = files
        with _about_source(), opened(files[0]) as content:
            head = next((batch for batch in content.iter_batches(batch_size=1000)), None)
            self.table = table_of_arrow(content.schema_arrow, head)

    def size(self, names: Sequence[str]) -> int:
        """Bytes that the columns need in memory."""
        rows = 0
        for file in self._files:
            with opened(file) as content:
                rows += content.metadata.num_rows
        return 8 * rows * len(names)

    def chunks(self, names: Sequence[str]) -> Iterator[Columns]:
        """The named columns, some rows at a time."""
        return (chunk for _, chunk in self.grouped(names))

    def grouped(self, names: Sequence[str], first: Group = (0, 0)) -> Iterator[tuple[Group, Columns]]:
        """The chunks with their file and row group, from one of these on."""
        columns = base_names(self.table, names)
        for i, file in enumerate(self._files[first[0] :], first[0]):
            with opened(file) as content:
                for name in columns:
                    if name not in content.schema_arrow.names:
                        raise ValueError(f"source must have the same columns in every file, got no {name!r} in {file}")
                for group in range(first[1] if i == first[0] else 0, content.num_row_groups):
                    batches = content.iter_batches(_BATCH_ROWS, row_groups=[group], columns=columns)
                    for chunk in arrow_chunks(batches, self.table, names):
                        yield (i, group), chunk


class CsvTable:
    """The rows of CSV files with a header, one file after the other; values have one type in all of them."""

    def __init__(self, files: list[str]):
        load_library("pyarrow.csv")
        self._files, self._types = files, {}
        self._header = _header(files[0])
        self.table = Table(require_different(self._header))

    def size(self, names: Sequence[str]) -> int:
        """Bytes that the columns need in memory, roughly those that the text needs."""
        return sum(_bytes_of(file) for file in self._files)

    def chunks(self, names: Sequence[str]) -> Iterator[Columns]:
        """The named columns, some rows at a time."""
        new = [name for name in names if name not in self._types]
        if new:
            self._types |= self._infer(new)
        for table in self._read({name: self._types[name] for name in names}):
            yield from arrow_chunks(table.to_batches(max_chunksize=_BATCH_ROWS), self.table, names)

    def _infer(self, names: list[str]) -> dict[str, Any]:
        """The type of each column, wide enough for all its values."""
        types = dict.fromkeys(names, load_library("pyarrow").null())
        for table in self._read(dict.fromkeys(names)):
            types = {name: _widest(types[name], table.schema.field(name).type) for name in names}
        return types

    def _read(self, types: dict[str, Any]) -> Iterator[Any]:
        """Arrow tables of the named columns, of the given types; None: of the type that the values suggest."""
        arrow, csv = load_library("pyarrow"), load_library("pyarrow.csv")
        convert = csv.ConvertOptions(
            column_types={name: kind for name, kind in types.items() if kind is not None},
            include_columns=list(types),
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        )
        for file in self._files:
            names, delimiter = _header(file), _delimiter(file)
            if lost := [name for name in types if name not in names]:
                raise ValueError(f"source must have the same columns in every file, got no {lost[0]!r} in {file}")
            read = csv.ReadOptions(column_names=names, block_size=_BLOCK_BYTES)
            for block in _blocks(file):
                try:
                    yield csv.read_csv(io.BytesIO(block), read, csv.ParseOptions(delimiter=delimiter), convert)
                except arrow.ArrowInvalid as error:
                    raise ValueError(f"source must name CSV files with a header, got {file}: {error}") from None


def open_files(source: Any) -> ParquetTable | CsvTable | None:
    """The table in the files that paths, folders, patterns or URLs name; None for what names no files."""
    entries = [source] if isinstance(source, str | Path) else source
    if not isinstance(entries, Sequence) or not entries or not all(isinstance(entry, str | Path) for entry in entries):
        return None
    files: list[str] = []
    for entry in map(str, entries):
        with _about_source():
            files += _csv_files(entry) or parquet_files(entry)
    csv = [file.endswith(_CSV_ENDINGS) for file in files]
    if any(csv) and not all(csv):
        raise ValueError(f"source must name Parquet files or CSV files, got both, such as {files[0]} and {files[-1]}")
    return CsvTable(files) if any(csv) else ParquetTable(files)


def _csv_files(entry: str) -> list[str]:
    """The CSV files that an entry names; of a folder only if it has no Parquet files."""
    folder = Path(entry)
    if folder.is_dir():
        if any(folder.rglob("*.parquet")):
            return []
        return sorted(str(file) for file in folder.rglob("*") if file.name.endswith(_CSV_ENDINGS) and not file.is_dir())
    if not entry.endswith(_CSV_ENDINGS):
        return []
    try:
        return parquet_files(entry)
    except ValueError:
        raise ValueError(
            f"source must name a CSV file, a folder of them or a sequence of files, got {entry}, where there are none"
        ) from None


@contextmanager
def _about_source() -> Iterator[None]:
    """Errors about a path as errors about the source, which is what the caller gave."""
    try:
        yield
    except ValueError as error:
        raise ValueError(str(error).replace("path must name", "source must name", 1)) from None


def _opened_text(file: str) -> Any:
    if "://" in file:
        return load_library("fsspec").open(file, "rb", compression="infer").open()
    if not Path(file).is_file():  # a pipe would be waited for
        raise ValueError(f"source must name CSV files, got {file}, which is not a regular file")
    return load_library("pyarrow").input_stream(file)  # which knows compressed files by their names


def _blocks(file: str) -> Iterator[bytes]:
    """The lines after the header, whole ones, some megabytes at a time."""
    with _opened_text(file) as stream:
        rest, seen_header = b"", False
        while data := stream.read(_BLOCK_BYTES):
            block, newline, data = (rest + data).rpartition(b"\n")
            rest = data
            _require_line(file, rest)
            if not newline:
                continue
            if not seen_header:
                seen_header, block = True, block.partition(b"\n")[2]
            if block:
                yield block + b"\n"
        if rest and seen_header:
            yield rest


def _first_line(file: str) -> str:
    with _opened_text(file) as stream:
        data = b""
        while b"\n" not in data and (more := stream.read(1 << 16)):
            data += more
            _require_line(file, data.partition(b"\n")[0])
    try:
        return data.partition(b"\n")[0].decode("utf-8-sig").rstrip("\r")
    except UnicodeDecodeError:
        raise ValueError(f"source must name CSV files in UTF-8, got {file}, whose header is not") from None


def _require_line(file: str, line: bytes) -> None:
    """Refuse what would fill the memory: compressed, a line of any length is a small file."""
    if len(line) > _LINE_BYTES:
        raise ValueError(f"source must name CSV files, got {file}, which has a line of more than {_LINE_BYTES:,} bytes")


def _delimiter(file: str) -> str:
    line = _first_line(file)
    return max(",;\t", key=line.count)


def _header(file: str) -> tuple[str, ...]:
    csv, line = load_library("pyarrow.csv"), _first_line(file)
    if not line.strip():
        raise ValueError(f"source must name CSV files with a header, got {file}, whose first line is empty")
    parse = csv.ParseOptions(delimiter=max(",;\t", key=line.count))
    data = line.encode() + b"\n"
    read = csv.ReadOptions(block_size=max(len(data), 1 << 20))
    return tuple(csv.read_csv(io.BytesIO(data), read, parse).column_names)


def _widest(first: Any, second: Any) -> Any:
    """The type that holds values of both."""
    arrow, types = load_library("pyarrow"), load_library("pyarrow.types")
    if first == second or types.is_null(second):
        return first
    if types.is_null(first):
        return second
    if {first, second} == {arrow.int64(), arrow.float64()}:
        return arrow.float64()
    if all(types.is_date(kind) or (types.is_timestamp(kind) and kind.tz is None) for kind in (first, second)):
        return arrow.timestamp("ns")
    return arrow.string()


def _bytes_of(file: str) -> int:
    if "://" in file:
        fsspec = load_library("fsspec")
        system, place = fsspec.core.url_to_fs(file)
        size = system.size(place)
    else:
        size = Path(file).stat().st_size
    return size * (_GZIP_RATIO if file.endswith(".gz") else 1)
