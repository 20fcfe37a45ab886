"""Transitions in Parquet files, through pyarrow: ``pip install 'cramerl[data]'``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from glob import glob, has_magic
from pathlib import Path
from typing import Any, NamedTuple

from numpy.typing import ArrayLike

from cramerl._arrays import Floats
from cramerl._checks import require_count
from cramerl._extras import load_library
from cramerl.linear.lstd import DistributionalLSTD
from cramerl.linear.sources.chunks import default_chunk_rows, regroup
from cramerl.linear.sources.layout import Columns, Layout
from cramerl.linear.transitions import Chunk, Rows, S, make_rows

Paths = str | Path | Sequence[str | Path]

# Rows decoded at a time: they fit in a cache, which reads four times as fast as whole chunks and needs half the memory
# (64 + 64 columns).
_PIECE_ROWS = 16_384


def fit_parquet(
    estimator: DistributionalLSTD,
    path: Paths,
    *,
    features: Columns,
    reward: str,
    next_features: Columns,
    terminated: str | None = None,
    feature_function: Callable[[Floats], ArrayLike] | None = None,
    chunk_rows: int | None = None,
) -> DistributionalLSTD:
    """Fit the estimator to all rows of Parquet files, in as many passes as it takes, and return it.

    The result is that of `DistributionalLSTD.fit` with all rows at once: if no support is given all rows choose it, and
    moments that do not fit in memory are replaced by passes. Arguments as in `read_parquet`; by default a chunk has
    200,000 rows, or 208 MB of them.
    """
    layout = Layout(features, reward, next_features, terminated, feature_function)
    return estimator.fit_source(ParquetRows(path, layout, chunk_rows))


def read_parquet(
    path: Paths,
    *,
    features: Columns,
    reward: str,
    next_features: Columns,
    terminated: str | None = None,
    feature_function: Callable[[Floats], ArrayLike] | None = None,
    chunk_rows: int = 200_000,
) -> Iterator[Chunk]:
    """Transitions from Parquet files with one row for each, a chunk at a time.

    The columns of the first file are checked by this call, those of the others when they are reached.

    Args:
        path: a file, a folder (all ``*.parquet`` below it, by name), a pattern such as ``logs/*.parquet``, a URL that
            fsspec knows (``s3://...``), or a sequence of these.
        features: names of D columns of numbers, or the name of one column that holds lists of D numbers.
        reward: name of a column of numbers.
        next_features: like ``features``, of the next state; may be missing where the return ends.
        terminated: name of a column of booleans (or 0 and 1); None: no return ends. This is not a column that says
            where episodes were cut off (truncated): their returns have not ended.
        feature_function: makes features (n, D) from the columns (n, C), of states and of next states alike, such as
            `with_bias`; None: the columns are the features.
        chunk_rows: most rows in a chunk.

    Returns:
        An iterator over chunks (X, rewards, X_next, terminated).
    """
    layout = Layout(features, reward, next_features, terminated, feature_function)
    return (chunk[:4] for chunk in ParquetRows(path, layout, chunk_rows).chunks())


class ParquetRows:
    """The rows of Parquet files as a source, read from the files again in every pass; arguments as in `fit_ray`."""

    def __init__(
        self, path: Paths, layout: Layout, chunk_rows: int | None, on_progress: Callable[[str], None] | None = None
    ):
        if chunk_rows is not None:
            require_count("chunk_rows", chunk_rows)
        load_library("pyarrow.parquet")
        self.spans, self.layout, self._chunk_rows = [Span(file) for file in parquet_files(path)], layout, chunk_rows
        self._on_progress, self._passes = on_progress or (lambda text: None), 0
        with opened(self.spans[0].file) as content:
            layout.require(content.schema_arrow, self.spans[0].file)

    @cached_property
    def head(self) -> Rows:
        """The first rows, a thousand at most."""
        return first_chunk(self.layout, self.spans)

    @property
    def num_features(self) -> int:
        """D."""
        return self.head.features.shape[1]

    def chunks(self) -> Iterator[Rows]:
        """The transitions, a chunk at a time."""
        return read_spans(self.layout, self.spans, self._chunk_rows or default_chunk_rows(self.num_features))

    def total(self, sums: S) -> S:
        """The sums over all rows, in one pass over the files."""
        self._passes += 1
        rows = 0
        for chunk in self.chunks():
            rows += len(chunk.rewards)
            sums = make_rows(*chunk[:4], num_features=self.num_features).total(sums)
            self._on_progress(f"pass {self._passes}: {rows:,} transitions")
            del chunk  # so that it is not in memory while the next one is read
        return sums


class Span(NamedTuple):
    """Row groups ``first`` to ``stop`` (exclusive; None: to the end) of a file."""

    file: str
    first: int = 0
    stop: int | None = None


def parquet_files(path: Paths) -> list[str]:
    """The files that paths, folders (all ``*.parquet`` below), patterns and URLs name; fsspec opens the URLs."""
    if not isinstance(path, (str, Path, Sequence)):
        raise _no_parquet(f"{path!r}")
    files: list[str] = []
    for entry in [path] if isinstance(path, (str, Path)) else path:
        found = _files_at_url(entry) if isinstance(entry, str) and "://" in entry else _files_here(str(entry))
        if not found and not Path(entry).is_dir():
            raise _no_parquet(f"{entry}, where there are none")
        files += found
    if not files:
        raise _no_parquet(f"{path}, which has none")
    return files


@contextmanager
def opened(file: str) -> Iterator[Any]:
    """A ``pyarrow.parquet.ParquetFile``, closed at the end."""
    arrow, parquet = load_library("pyarrow"), load_library("pyarrow.parquet")
    remote = "://" in file
    if not remote and not Path(file).is_file():  # a pipe would be waited for
        raise ValueError(f"path must name Parquet files, got {file}, which is not a regular file")
    source = load_library("fsspec").open(file, "rb").open() if remote else file
    try:
        # A few large reads are fastest from a remote store; many small ones need less memory from a disk.
        content = parquet.ParquetFile(source, pre_buffer=remote)
    except arrow.ArrowInvalid as error:
        raise ValueError(f"path must name Parquet files, got {file}: {error}") from None
    try:
        yield content
    finally:
        content.close(force=True)


def read_spans(layout: Layout, spans: Sequence[Span], chunk_rows: int) -> Iterator[Rows]:
    """The transitions of parts of files, in chunks."""

    def pieces() -> Iterator[Rows]:
        size, columns = min(chunk_rows, _PIECE_ROWS), layout.names()
        for file, first, stop in spans:
            with opened(file) as content:
                layout.require(content.schema_arrow, file)
                for group in range(first, content.num_row_groups if stop is None else stop):
                    for batch in content.iter_batches(batch_size=size, row_groups=[group], columns=columns):
                        if batch.num_rows:
                            yield layout.chunk(batch, file)

    return regroup(pieces(), chunk_rows)


def first_chunk(layout: Layout, spans: Sequence[Span]) -> Rows:
    """The first rows, a thousand at most; ValueError if there are none."""
    for chunk in read_spans(layout, spans, 1000):
        return chunk
    raise ValueError(f"path must hold at least one transition, got files with none, such as {spans[0].file}")


def _files_here(entry: str) -> list[str]:
    path = Path(entry)
    if path.is_dir():
        return sorted(str(file) for file in path.rglob("*.parquet") if not file.is_dir())
    if path.is_file():
        return [entry]
    return sorted(file for file in glob(entry, recursive=True) if Path(file).is_file()) if has_magic(entry) else []


def _files_at_url(entry: str) -> list[str]:
    fsspec = load_library("fsspec")
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
    return [system.unstrip_protocol(file) for file in sorted(found)]


def _no_parquet(got: str) -> ValueError:
    return ValueError(f"path must name a Parquet file, a folder of them or a sequence of files, got {got}")
