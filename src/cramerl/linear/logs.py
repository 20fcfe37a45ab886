"""Transitions from log files, in chunks that fit in memory, for `DistributionalLSTD.partial_fit`.

Parquet files are read through pyarrow, Minari datasets through minari: ``pip install 'cramerl[data]'`` has both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from cramerl.linear.lstd import DistributionalLSTD
from cramerl.linear.operators import Floats
from cramerl.linear.parquet import (
    Chunk,
    Columns,
    Layout,
    Paths,
    Span,
    first_chunk,
    good_rows,
    load_extra,
    opened,
    parquet_files,
    read_spans,
    regrouped,
    require_rows,
)
from cramerl.linear.rows import S, make_rows


def fit_logs(estimator: DistributionalLSTD, chunks: Iterable[Any]) -> DistributionalLSTD:
    """Add every chunk to the estimator, find the fixed point and return the estimator.

    Args:
        estimator: a `DistributionalLSTD`; data it has seen already stays.
        chunks: of (X, rewards, X_next, terminated), as from `read_parquet` and `read_minari`.
    """
    number = 0
    for chunk in chunks:
        number += 1  # not by enumerate, which would hold on to the chunk while the next one is read
        try:
            estimator.partial_fit(*chunk)
        except ValueError as error:
            error.add_note(f"This was chunk {number} of the log; the {number - 1} before it were added.")
            raise
        del chunk
    if not number:
        raise ValueError("chunks must hold at least one chunk of transitions, got none")
    return estimator.solve()


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

    As `DistributionalLSTD.fit` of all rows at once: where no support is given, all of them choose it, and moments that
    would not fit in memory are replaced by passes. Arguments as in `read_parquet`; where ``chunk_rows`` is not given,
    a chunk has 200,000 rows, or 208 MB of them.
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

    Columns are looked at in the first file when this is called, in the others when they are reached.

    Args:
        path: a file, a folder (all ``*.parquet`` below it, by name), a pattern such as ``logs/*.parquet``, a URL that
            fsspec knows (``s3://...``), or a sequence of these.
        features: names of D columns of numbers, or the name of one column that holds lists of D numbers.
        reward: name of a column of numbers.
        next_features: like ``features``, of the next state; may be missing where the return ends.
        terminated: name of a column of booleans (or 0 and 1); None: no return ends. Not the column that says an episode
            was cut off: what was cut off has not ended.
        feature_function: what makes features (n, D) of the columns (n, C), of states and of next states alike, such as
            `with_bias`; None: the columns are the features.
        chunk_rows: most rows in a chunk.

    Returns:
        An iterator over chunks (X, rewards, X_next, terminated).
    """
    return ParquetRows(path, Layout(features, reward, next_features, terminated, feature_function), chunk_rows).chunks()


class ParquetRows:
    """The rows of Parquet files as a source, read from the files again in every pass.

    Args:
        path: as in `read_parquet`.
        layout: the columns.
        chunk_rows: most rows in a chunk; None: as many as are good.
        on_progress: told in words how far a pass has come.
    """

    def __init__(
        self, path: Paths, layout: Layout, chunk_rows: int | None, on_progress: Callable[[str], None] | None = None
    ):
        if chunk_rows is not None:
            require_rows(chunk_rows)
        load_extra("pyarrow.parquet", "read_parquet")
        self.spans, self.layout, self._chunk_rows = [Span(file) for file in parquet_files(path)], layout, chunk_rows
        self._on_progress, self._passes = on_progress or (lambda words: None), 0
        with opened(self.spans[0].file) as content:
            layout.require(content.schema_arrow, self.spans[0].file)

    @cached_property
    def head(self) -> Chunk:
        """The first rows, a thousand at most."""
        return first_chunk(self.layout, self.spans)

    @property
    def num_features(self) -> int:
        """D."""
        return self.head.features.shape[1]

    def chunks(self) -> Iterator[Chunk]:
        """The transitions, a chunk at a time."""
        return read_spans(self.layout, self.spans, self._chunk_rows or good_rows(self.num_features))

    def total(self, sums: S) -> S:
        """The sums over all rows, in one pass over the files."""
        self._passes += 1
        rows = 0
        for chunk in self.chunks():
            rows += len(chunk.rewards)
            sums = make_rows(*chunk, self.num_features).total(sums)
            self._on_progress(f"pass {self._passes}: {rows:,} transitions")
            del chunk  # not in memory while the next one is read
        return sums


def read_minari(
    dataset: Any, feature_function: Callable[[Any], ArrayLike], *, chunk_rows: int = 200_000
) -> Iterator[Chunk]:
    """Transitions from the episodes of a Minari dataset, a chunk at a time.

    Every step of every episode is a transition, the last one too. Where an episode terminated, the return ends. Where
    it was only truncated it does not: Minari keeps the observation after the last step, which is the next state.

    Args:
        dataset: a ``minari.MinariDataset``, or the name of one on this machine, such as "D4RL/pointmaze/open-v2".
        feature_function: features (T + 1, D) of the T + 1 observations of an episode. It is given what Minari holds: an
            array for a space that is an array, else a dictionary or tuple of such.
        chunk_rows: most rows in a chunk, except that an episode stays whole.

    Returns:
        An iterator over chunks (X, rewards, X_next, terminated).
    """
    require_rows(chunk_rows)
    if isinstance(dataset, str):
        minari = load_extra("minari", "read_minari")
        try:
            dataset = minari.load_dataset(dataset)
        except FileNotFoundError:
            raise ValueError(
                f"dataset must be a Minari dataset on this machine (fetch one with `minari download`), got {dataset!r}"
            ) from None
        except ImportError as error:  # such as h5py, which minari leaves to its own extras
            raise ValueError(f"read_minari needs a package that is not installed: {error}") from None
    if not hasattr(dataset, "iterate_episodes"):
        raise ValueError(f"dataset must be a MinariDataset or the name of one, got {type(dataset).__name__}")
    return regrouped((_episode(episode, feature_function) for episode in dataset.iterate_episodes()), chunk_rows)


def _episode(episode: Any, feature_function: Callable[[Any], ArrayLike]) -> Chunk:
    table, length = np.asarray(feature_function(episode.observations), dtype=np.float64), len(episode.rewards)
    if table.ndim != 2 or len(table) != length + 1:
        raise ValueError(
            f"feature_function must give one row of features for each of the {length + 1} observations of an episode, "
            f"got shape {table.shape}"
        )
    rewards = np.asarray(episode.rewards, dtype=np.float64)
    return Chunk(table[:-1], rewards, table[1:], np.asarray(episode.terminations, dtype=bool))
