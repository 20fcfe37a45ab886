"""Transitions from log files, in chunks that fit in memory, for `DistributionalLSTD.partial_fit`.

Parquet files are read through pyarrow, Minari datasets through minari: ``pip install 'cramerl[data]'`` has both.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cramerl.linear.lstd import DistributionalLSTD
from cramerl.linear.operators import Floats

Columns = str | Sequence[str]

# Rows decoded at a time: small enough for a cache, which reads four times as fast as whole chunks and needs half the
# memory (64 + 64 columns).
_PIECE_ROWS = 16_384


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


def read_parquet(
    path: str | Path | Sequence[str | Path],
    *,
    features: Columns,
    reward: str,
    next_features: Columns,
    terminated: str | None = None,
    chunk_rows: int = 200_000,
) -> Iterator[Chunk]:
    """Transitions from Parquet files with one row for each, a chunk at a time.

    Columns are looked at in the first file when this is called, in the others when they are reached.

    Args:
        path: a file, a folder (all ``*.parquet`` below it, by name), or a sequence of files.
        features: names of D columns of numbers, or the name of one column that holds lists of D numbers.
        reward: name of a column of numbers.
        next_features: like ``features``, of the next state; may be missing where the return ends.
        terminated: name of a column of booleans (or 0 and 1); None: no return ends. Not the column that says an episode
            was cut off: what was cut off has not ended.
        chunk_rows: most rows in a chunk.

    Returns:
        An iterator over chunks (X, rewards, X_next, terminated).
    """
    _require_rows(chunk_rows)
    parquet = _extra("pyarrow.parquet", "read_parquet")
    files = _files(path)
    columns = {"features": features, "reward": reward, "next_features": next_features}
    columns |= {} if terminated is None else {"terminated": terminated}
    _require_columns(parquet, files[0], columns)
    return _regrouped(_parquet_pieces(parquet, files, columns, min(chunk_rows, _PIECE_ROWS)), chunk_rows)


def _parquet_pieces(parquet: Any, files: list[Path], columns: dict[str, Columns], most: int) -> Iterator[Chunk]:
    names = sorted({name for given in columns.values() for name in ([given] if isinstance(given, str) else given)})
    for file in files:
        _require_columns(parquet, file, columns)
        with parquet.ParquetFile(file, pre_buffer=False) as source:
            for batch in source.iter_batches(batch_size=most, columns=names):
                if not batch.num_rows:
                    continue
                x, following = (_table(batch, name, columns[name], file) for name in ("features", "next_features"))
                reward = _column(batch, "reward", columns["reward"], file)
                if "terminated" in columns:
                    ended = _column(batch, "terminated", columns["terminated"], file)
                    if not np.isin(ended, (0, 1)).all():
                        wrong = ended[~np.isin(ended, (0, 1))][0]
                        raise ValueError(f"terminated must name a column of booleans, got {wrong} among them ({file})")
                else:
                    ended = np.zeros(batch.num_rows)
                yield Chunk(x, reward, following, ended.astype(bool))


def _files(path: Any) -> list[Path]:
    given = [path] if isinstance(path, (str, Path)) else list(path)
    files: list[Path] = []
    for entry in map(Path, given):
        files += sorted(entry.rglob("*.parquet")) if entry.is_dir() else [entry]
    missing = [file for file in files if not file.is_file()]
    if missing or not files:
        got = str(missing[0]) if missing else f"{path} with none"
        raise ValueError(f"path must name a Parquet file, a folder of them or a sequence of files, got {got}")
    return files


def _require_columns(parquet: Any, file: Path, columns: dict[str, Columns]) -> None:
    """Raise ValueError unless the file has the columns, of the kinds they are used as."""
    arrow = importlib.import_module("pyarrow")
    try:
        schema = parquet.read_schema(file)
    except arrow.ArrowInvalid as error:
        raise ValueError(f"path must name Parquet files, got {file}: {error}") from None
    for argument, given in columns.items():
        if not (isinstance(given, str) or (argument.endswith("features") and len(given))):
            allowed = "one column name" + (", or several," if argument.endswith("features") else "")
            raise ValueError(f"{argument} must be {allowed}, got {given!r}")
        for name in [given] if isinstance(given, str) else given:
            if name not in schema.names:
                have = ", ".join(schema.names)
                raise ValueError(f"{argument} must name columns of {file}, got {name!r}; its columns are {have}")
            _require_kind(arrow.types, argument, name, schema.field(name).type, isinstance(given, str))


def _require_kind(types: Any, argument: str, name: str, kind: Any, alone: bool) -> None:
    if argument.endswith("features") and alone:
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


def _table(batch: Any, argument: str, given: Columns, file: Path) -> Floats:
    """(n, D) from D columns of numbers, or from one column of lists."""
    if not isinstance(given, str):
        table = np.empty((batch.num_rows, len(given)))
        for j, name in enumerate(given):
            table[:, j] = _column(batch, argument, name, file)
        return table
    lists = batch.column(given)
    flat = lists.flatten()  # leaves out missing lists: counted below
    missing = lists.null_count + flat.null_count
    _require_complete(missing, argument, given, file)
    width, rest = divmod(len(flat), batch.num_rows)
    lengths = lists.value_lengths().to_numpy(zero_copy_only=False)
    if rest or not width or (lengths != width).any():
        got = f"lengths {lengths.min()} to {lengths.max()}"
        raise ValueError(f"{argument} must name a column of lists of one length, got {given!r} with {got} ({file})")
    return flat.to_numpy(zero_copy_only=False).astype(np.float64).reshape(batch.num_rows, width)


def _column(batch: Any, argument: str, name: Any, file: Path) -> Floats:
    column = batch.column(name)
    if argument != "next_features":  # after the end nothing follows: the estimator looks at what is missing there
        _require_complete(column.null_count, argument, name, file)
    return column.to_numpy(zero_copy_only=False).astype(np.float64)


def _require_complete(missing: int, argument: str, name: str, file: Path) -> None:
    if missing:
        raise ValueError(f"{argument} must not have missing values, got {missing} in column {name!r} ({file})")


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
    _require_rows(chunk_rows)
    if isinstance(dataset, str):
        minari = _extra("minari", "read_minari")
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
    return _regrouped((_episode(episode, feature_function) for episode in dataset.iterate_episodes()), chunk_rows)


def _episode(episode: Any, feature_function: Callable[[Any], ArrayLike]) -> Chunk:
    table, length = np.asarray(feature_function(episode.observations), dtype=np.float64), len(episode.rewards)
    if table.ndim != 2 or len(table) != length + 1:
        raise ValueError(
            f"feature_function must give one row of features for each of the {length + 1} observations of an episode, "
            f"got shape {table.shape}"
        )
    rewards = np.asarray(episode.rewards, dtype=np.float64)
    return Chunk(table[:-1], rewards, table[1:], np.asarray(episode.terminations, dtype=bool))


def _regrouped(pieces: Iterator[Chunk], chunk_rows: int) -> Iterator[Chunk]:
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
    whole = Chunk(*map(np.concatenate, zip(*pieces, strict=True)))
    pieces.clear()
    return whole


def _extra(module: str, asked: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError:
        package = module.partition(".")[0]
        raise ValueError(f"{asked} needs {package}, which is not installed: pip install 'cramerl[data]'") from None


def _require_rows(chunk_rows: Any) -> None:
    if isinstance(chunk_rows, bool) or not isinstance(chunk_rows, (int, np.integer)) or chunk_rows < 1:
        raise ValueError(f"chunk_rows must be an integer >= 1, got {chunk_rows!r}")
