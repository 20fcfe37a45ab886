"""Transitions in Parquet files: which files, which columns, and chunks of rows that fit in memory."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from glob import glob, has_magic
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cramerl.linear.operators import Floats

Columns = str | Sequence[str]
Paths = str | Path | Sequence[str | Path]

# Rows decoded at a time: small enough for a cache, which reads four times as fast as whole chunks and needs half the
# memory (64 + 64 columns).
_PIECE_ROWS = 16_384
# Most numbers in a chunk whose size nobody gave, and most rows: 208 megabytes, and with more rows nothing gets faster.
_CHUNK_NUMBERS, _CHUNK_ROWS = 26_000_000, 200_000


class Chunk(NamedTuple):
    """Some transitions, in the order of `DistributionalLSTD.partial_fit`'s arguments.

    Attributes:
        features: (n, D) of the states.
        rewards: (n,).
        next_features: (n, D) of the states after them.
        terminated: (n,) whether the return ends with the reward.
    """

    features: Floats
    rewards: Floats
    next_features: Floats
    terminated: NDArray[np.bool_]


class Span(NamedTuple):
    """Row groups ``first`` to ``stop`` (not included; None: all that follow) of a file."""

    file: str
    first: int = 0
    stop: int | None = None


class Layout(NamedTuple):
    """Which columns of a table hold what, with names as in `read_parquet`."""

    features: Columns
    reward: str
    next_features: Columns
    terminated: str | None = None
    feature_function: Callable[[Floats], ArrayLike] | None = None

    def columns(self) -> dict[str, Columns]:
        """Argument -> what it names."""
        named = {"features": self.features, "reward": self.reward, "next_features": self.next_features}
        return named if self.terminated is None else named | {"terminated": self.terminated}

    def names(self) -> list[str]:
        """All columns there should be."""
        return sorted({name for given in self.columns().values() for name in _listed(given)})

    def require(self, schema: Any, where: str) -> None:
        """Raise ValueError unless an Arrow schema has the columns, of the kinds they are used as."""
        for argument, given in self.columns().items():
            if not (isinstance(given, str) or (argument.endswith("features") and len(given))):
                allowed = "one column name" + (", or several," if argument.endswith("features") else "")
                raise ValueError(f"{argument} must be {allowed}, got {given!r}")
            for name in _listed(given):
                if name not in schema.names:
                    have = ", ".join(schema.names)
                    raise ValueError(f"{argument} must name columns of {where}, got {name!r}; its columns are {have}")
                _require_kind(argument, name, schema.field(name).type, isinstance(given, str))

    def chunk(self, batch: Any, where: str) -> Chunk:
        """The transitions of an Arrow batch whose schema is as required."""
        x = _table(batch, "features", self.features, where)
        following = _table(batch, "next_features", self.next_features, where)
        reward, ended = _column(batch, "reward", self.reward, where), np.zeros(batch.num_rows)
        if self.terminated is not None:
            ended = _column(batch, "terminated", self.terminated, where)
            if not np.isin(ended, (0, 1)).all():
                wrong = ended[~np.isin(ended, (0, 1))][0]
                raise ValueError(f"terminated must name a column of booleans, got {wrong} among them ({where})")
        if self.feature_function is not None:
            x, following = (_made(self.feature_function, table) for table in (x, following))
        return Chunk(x, reward, following, ended.astype(bool))


def parquet_files(path: Paths) -> list[str]:
    """Files by name: of paths, folders (all ``*.parquet`` below), patterns and URLs that fsspec knows."""
    if not isinstance(path, (str, Path, Sequence)):
        raise _no_parquet(f"{path!r}")
    files: list[str] = []
    for entry in [path] if isinstance(path, (str, Path)) else path:
        files += _files_at_url(entry) if isinstance(entry, str) and "://" in entry else _files_here(str(entry))
    if not files:
        raise _no_parquet(f"{path} with none")
    return files


@contextmanager
def opened(file: str) -> Iterator[Any]:
    """A ``pyarrow.parquet.ParquetFile``, closed at the end."""
    arrow, parquet = load_extra("pyarrow", "read_parquet"), load_extra("pyarrow.parquet", "read_parquet")
    far = "://" in file
    source = load_extra("fsspec", "a URL", "ray").open(file, "rb").open() if far else file
    try:
        # Far away few large reads are fast; here many small ones need less memory.
        content = parquet.ParquetFile(source, pre_buffer=far)
    except arrow.ArrowInvalid as error:
        raise ValueError(f"path must name Parquet files, got {file}: {error}") from None
    try:
        yield content
    finally:
        content.close(force=True)


def read_spans(layout: Layout, spans: Sequence[Span], chunk_rows: int) -> Iterator[Chunk]:
    """The transitions of some parts of files, in chunks."""
    return regrouped(_pieces(layout, spans, min(chunk_rows, _PIECE_ROWS)), chunk_rows)


def _pieces(layout: Layout, spans: Sequence[Span], most: int) -> Iterator[Chunk]:
    for file, first, stop in spans:
        with opened(file) as content:
            layout.require(content.schema_arrow, file)
            for group in range(first, content.num_row_groups if stop is None else stop):
                for batch in content.iter_batches(batch_size=most, row_groups=[group], columns=layout.names()):
                    if batch.num_rows:
                        yield layout.chunk(batch, file)


def regrouped(pieces: Iterator[Chunk], chunk_rows: int) -> Iterator[Chunk]:
    """Join pieces to chunks of at most so many rows; a larger piece stays whole, and an empty one is left out."""
    waiting: list[Chunk] = []
    count = 0
    for piece in pieces:
        if waiting and count + len(piece.rewards) > chunk_rows:
            yield _joined(waiting)
            count = 0
        if len(piece.rewards):
            waiting.append(piece)
            count += len(piece.rewards)
    if waiting:
        yield _joined(waiting)


def _joined(pieces: list[Chunk]) -> Chunk:
    """The pieces as one; lets go of them, so that they are not in memory while the chunk is used."""
    widths = {piece.features.shape[1] for piece in pieces}
    if len(widths) > 1:
        raise ValueError(f"features must be as many in every row, got {min(widths)} to {max(widths)}")
    whole = Chunk(*map(np.concatenate, zip(*pieces, strict=True)))
    pieces.clear()
    return whole


def load_extra(module: str, asked: str, extra: str = "data") -> Any:
    """A module of an extra; ValueError with what to install where it is missing."""
    try:
        return importlib.import_module(module)
    except ImportError:
        package = module.partition(".")[0]
        raise ValueError(f"{asked} needs {package}, which is not installed: pip install 'cramerl[{extra}]'") from None


def first_chunk(layout: Layout, spans: Sequence[Span]) -> Chunk:
    """The first rows, a thousand at most; ValueError where there are none."""
    for chunk in read_spans(layout, spans, 1000):
        return chunk
    raise ValueError(f"path must hold at least one transition, got files with none, such as {spans[0].file}")


def require_rows(chunk_rows: Any) -> None:
    """Raise ValueError unless this is a number of rows."""
    if isinstance(chunk_rows, bool) or not isinstance(chunk_rows, (int, np.integer)) or chunk_rows < 1:
        raise ValueError(f"chunk_rows must be an integer >= 1, got {chunk_rows!r}")


def good_rows(num_features: int) -> int:
    """Rows of a chunk that is large enough to be fast and has 208 megabytes at most."""
    return max(1, min(_CHUNK_ROWS, _CHUNK_NUMBERS // (2 * num_features + 2)))


def _files_here(entry: str) -> list[str]:
    path = Path(entry)
    if path.is_dir():
        return sorted(str(file) for file in path.rglob("*.parquet"))
    if path.is_file():
        return [entry]
    found = sorted(file for file in glob(entry, recursive=True) if Path(file).is_file()) if has_magic(entry) else []
    if not found:
        raise _no_parquet(f"{entry}, where there is none")
    return found


def _files_at_url(entry: str) -> list[str]:
    fsspec = load_extra("fsspec", "a URL", "ray")
    try:
        system, place = fsspec.core.url_to_fs(entry)
    except ImportError as error:  # such as s3fs, which fsspec leaves to its users
        raise ValueError(f"path {entry} needs a package that is not installed: {error}") from None
    if has_magic(place):
        found = system.glob(place)
    elif system.isdir(place):
        found = [file for file in system.find(place) if file.endswith(".parquet")]
    else:
        found = [place] if system.exists(place) else []
    if not found:
        raise _no_parquet(f"{entry}, where there is none")
    return [system.unstrip_protocol(file) for file in sorted(found)]


def _no_parquet(got: str) -> ValueError:
    return ValueError(f"path must name a Parquet file, a folder of them or a sequence of files, got {got}")


def _listed(given: Columns) -> Sequence[str]:
    return [given] if isinstance(given, str) else given


def _require_kind(argument: str, name: str, kind: Any, alone: bool) -> None:
    types = importlib.import_module("pyarrow.types")
    if argument.endswith("features") and alone:
        kind = getattr(kind, "storage_type", kind)  # tensors of Ray are lists underneath
        listed = types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
        if not (listed and _is_number(types, kind.value_type)):
            raise ValueError(
                f"{argument} must name a column of lists of numbers, or be a list of names of columns of numbers, "
                f"got {name!r} of type {kind}"
            )
    elif not _is_number(types, kind):
        raise ValueError(f"{argument} must name columns of numbers, got {name!r} of type {kind}")


def _is_number(types: Any, kind: Any) -> bool:
    return types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)


def _table(batch: Any, argument: str, given: Columns, where: str) -> Floats:
    """(n, D) from D columns of numbers, or from one column of lists."""
    if not isinstance(given, str):
        table = np.empty((batch.num_rows, len(given)))
        for j, name in enumerate(given):
            table[:, j] = _column(batch, argument, name, where)
        return table
    lists = batch.column(given)
    lists = getattr(lists, "storage", lists)
    flat = lists.flatten()  # leaves out missing lists: counted below
    missing = lists.null_count + flat.null_count
    _require_complete(missing, argument, given, where)
    width, rest = divmod(len(flat), batch.num_rows)
    lengths = lists.value_lengths().to_numpy(zero_copy_only=False)
    if rest or not width or (lengths != width).any():
        got = f"lengths {lengths.min()} to {lengths.max()}"
        raise ValueError(f"{argument} must name a column of lists of one length, got {given!r} with {got} ({where})")
    return flat.to_numpy(zero_copy_only=False).astype(np.float64).reshape(batch.num_rows, width)


def _column(batch: Any, argument: str, name: Any, where: str) -> Floats:
    column = batch.column(name)
    if argument != "next_features":  # after the end nothing follows: the estimator looks at what is missing there
        _require_complete(column.null_count, argument, name, where)
    return column.to_numpy(zero_copy_only=False).astype(np.float64)


def _require_complete(missing: int, argument: str, name: str, where: str) -> None:
    if missing:
        raise ValueError(f"{argument} must not have missing values, got {missing} in column {name!r} ({where})")


def _made(function: Callable[[Floats], ArrayLike], table: Floats) -> Floats:
    made = np.asarray(function(table), dtype=np.float64)
    if made.ndim != 2 or len(made) != len(table):
        raise ValueError(
            f"feature_function must give one row of features for each of {len(table)} rows, got shape {made.shape}"
        )
    return made
