"""Transitions in chunks that fit in memory, for `DistributionalLSTD.partial_fit`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from cramerl.linear.lstd import DistributionalLSTD
from cramerl.linear.transitions import Rows

# Most numbers in a chunk if the caller gave no size, and most rows: 208 megabytes, and more rows are not faster.
_CHUNK_NUMBERS, _CHUNK_ROWS = 26_000_000, 200_000


def fit_logs(estimator: DistributionalLSTD, chunks: Iterable[Any]) -> DistributionalLSTD:
    """Add every chunk to the estimator, find the fixed point and return the estimator.

    Args:
        estimator: a `DistributionalLSTD`; it keeps the data it has seen already.
        chunks: of (X, rewards, X_next, terminated), as from `read_parquet` and `read_minari`.
    """
    if not isinstance(estimator, DistributionalLSTD):
        raise ValueError(f"estimator must be a DistributionalLSTD, got {type(estimator).__name__}")
    if not isinstance(chunks, Iterable):
        raise ValueError(f"chunks must be an iterable of chunks, got {type(chunks).__name__}")
    number = 0
    for chunk in chunks:
        if not isinstance(chunk, tuple | list) or not 3 <= len(chunk) <= 4:
            raise ValueError(f"chunks must be tuples (X, rewards, X_next, terminated), got {type(chunk).__name__}")
        number += 1  # enumerate would hold on to the chunk while the next one is read
        try:
            estimator.partial_fit(*chunk)
        except ValueError as error:
            error.add_note(f"This was chunk {number} of the log; the {number - 1} before it were added.")
            raise
        del chunk
    if not number:
        raise ValueError("chunks must hold at least one chunk of transitions, got none")
    return estimator.solve()


def regroup(pieces: Iterator[Rows], chunk_rows: int) -> Iterator[Rows]:
    """Join pieces to chunks of at most ``chunk_rows`` rows; a larger piece stays whole, and empty ones are dropped."""
    waiting: list[Rows] = []
    count = 0
    for piece in pieces:
        if waiting and count + len(piece.rewards) > chunk_rows:
            yield _join(waiting)
            count = 0
        if len(piece.rewards):
            waiting.append(piece)
            count += len(piece.rewards)
    if waiting:
        yield _join(waiting)


def default_chunk_rows(num_features: int) -> int:
    """Rows of a chunk that is large enough to be fast and has at most 208 megabytes."""
    return max(1, min(_CHUNK_ROWS, _CHUNK_NUMBERS // (2 * num_features + 2)))


def _join(pieces: list[Rows]) -> Rows:
    """The pieces as one. Empties the list, so that the pieces are not in memory while the chunk is used."""
    widths = {piece.features.shape[1] for piece in pieces}
    if len(widths) > 1:
        raise ValueError(f"features must have one length in every row, got {min(widths)} to {max(widths)}")
    columns: list[Any] = [None if p[0] is None else np.concatenate(p) for p in zip(*pieces, strict=True)]
    pieces.clear()
    return Rows(*columns)
