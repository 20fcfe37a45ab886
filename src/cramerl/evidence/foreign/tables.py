"""CSV and Parquet files with a row for each point of a learning curve."""

from __future__ import annotations

import csv
import io
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cramerl._extras import load_library
from cramerl._folders import open_inside
from cramerl.evidence.foreign.columns import FRAMES, find_columns, plain_name
from cramerl.evidence.foreign.games import atari_game
from cramerl.evidence.foreign.run_logs import FILE_BYTES, Points, RunLog, RunName, name_text, number, seed_of

Rows = Iterator[tuple[int, Sequence[Any]]]
"""Rows with their numbers."""
TABLES = (".csv", ".tsv", ".parquet")
MOST_RUNS = 10_000
_ATARI_FRAMES = 4  # of a step
_PARQUET_ROWS = 10_000_000


def read_table(file: Path, columns: Mapping[str, str]) -> list[RunLog]:
    """The runs in a table; ``columns`` names columns by what they mean."""
    with opened_rows(file) as (names, rows):
        places = find_columns(names, columns, file)
        return _read(file, names, places, rows(places.values()))


@contextmanager
def opened_rows(file: Path, folder: Path | None = None) -> Iterator[tuple[list[str], Callable[[Iterable[int]], Rows]]]:
    """The names of the columns of a table, and a function from the places of columns that are needed to its rows.

    Args:
        file: the table.
        folder: that the file was found in: the file is then no link. None: the user named the file.
    """
    place = file.resolve() if folder is None else file
    with open_inside(place.parent, place.name, most=FILE_BYTES) as content:
        if file.suffix == ".parquet":
            yield _parquet_rows(file, content)
        else:
            # Some programs write a mark before the first letter (utf-8-sig).
            with io.TextIOWrapper(content, encoding="utf-8-sig", newline="") as text:
                rows = _csv_rows(file, text)
                names = next(rows, None)
                if names is None:
                    raise ValueError(f"{file} is empty")
                yield names[1], lambda places: rows


def _csv_rows(file: Path, text: Iterable[str]) -> Iterator[tuple[int, list[str]]]:
    """The rows of a CSV file that are neither empty nor comments, with the numbers of their lines."""
    reader = csv.reader(text, delimiter="\t" if file.suffix == ".tsv" else ",")
    width = 0
    while True:
        try:
            row = next(reader)
        except StopIteration:
            return
        except UnicodeDecodeError:
            raise ValueError(f"{file} is not a text in UTF-8") from None
        except csv.Error as error:
            raise ValueError(f"{file} line {reader.line_num} is not CSV: {error}") from None
        if not any(row) or (not width and row[0].startswith("#")):
            continue
        width = width or len(row)
        if len(row) != width:
            raise ValueError(f"{file} line {reader.line_num} has {len(row)} values, but there are {width} columns")
        yield reader.line_num, row


def _parquet_rows(file: Path, content: Any) -> tuple[list[str], Callable[[Iterable[int]], Rows]]:
    arrow, parquet = load_library("pyarrow"), load_library("pyarrow.parquet")
    try:
        table = parquet.ParquetFile(content)
    except (arrow.ArrowException, OSError) as error:
        raise ValueError(f"{file} is not a Parquet file: {error}") from None
    if table.metadata.num_rows > _PARQUET_ROWS:
        raise ValueError(f"{file} must have at most {_PARQUET_ROWS:,} rows, it has {table.metadata.num_rows:,}")

    names = list(table.schema_arrow.names)

    def values(batch: Any, place: int) -> list[Any]:
        try:
            return batch.column(place).to_pylist()
        except Exception as error:  # times out of range, bytes that are no text: each type has errors of its own
            raise ValueError(f"{file}: the column {names[place]!r:.60} cannot be read: {error}") from None

    def rows(places: Iterable[int]) -> Rows:
        line, wanted = 0, set(places)
        try:
            for batch in table.iter_batches(batch_size=16_384):
                columns = [values(batch, i) if i in wanted else itertools.repeat(None) for i in range(len(names))]
                for row in zip(*columns, strict=False):
                    line += 1
                    yield line, row
        except (arrow.ArrowException, OSError) as error:
            raise ValueError(f"{file} cannot be read: {error}") from None

    return names, rows


def _read(file: Path, names: Sequence[str], places: Mapping[str, int], rows: Rows) -> list[RunLog]:
    agent_at, seed_at, episodes_at = places.get("agent"), places.get("seed"), places.get("episodes")
    env_at, step_at, return_at = places["env"], places["step"], places["return"]
    frames = plain_name(names[step_at]) in FRAMES
    found: dict[RunName, Points] = {}
    names_of: dict[tuple[Any, ...], RunName] = {}  # seeds 1 and 1.0 are the same run
    for line, row in rows:
        try:
            key = (
                file.stem if agent_at is None else row[agent_at],
                row[env_at],
                0 if seed_at is None else row[seed_at],
            )
            if key not in names_of:
                names_of[key] = RunName(name_text(key[0], "agent"), name_text(key[1], "env"), seed_of(key[2]))
                found.setdefault(names_of[key], Points())
                if len(found) > MOST_RUNS:
                    raise ValueError(f"a file may have at most {MOST_RUNS:,} runs")
            step = row[step_at]
            if frames and atari_game(names_of[key].env):
                step = number(step) // _ATARI_FRAMES
            found[names_of[key]].add(step, row[return_at], 1.0 if episodes_at is None else row[episodes_at])
        except (ValueError, TypeError) as error:  # TypeError: a Parquet file may hold lists
            raise ValueError(f"{file} {'row' if file.suffix == '.parquet' else 'line'} {line}: {error}") from None
    if not found:
        raise ValueError(f"{file} has columns but no rows")
    remarks = [] if seed_at is not None else [f"{file.name} has no column of seeds, so an agent has one run on a game."]
    if frames and any(atari_game(name.env) for name in found):
        remarks.append(f"{file.name} counts frames: on Atari games, {_ATARI_FRAMES} of them are taken for a step.")
    return [points.log(name, file, remarks=remarks) for name, points in found.items()]
