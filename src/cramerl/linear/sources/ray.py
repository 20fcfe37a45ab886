"""Least squares over logs that are larger than one machine: the passes of a fit as map and reduce on Ray.

Parquet files are cut into blocks of whole row groups, by their metadata alone. A Ray task reads its block in chunks and
adds them up; a tree of tasks merges the sums in the order of the blocks. So the sums do not depend on which worker did
what or how often: Ray runs a task again if its worker or node was lost, and the result is the same to the last bit (on
processors of one kind). ``pip install 'cramerl[ray]'``.
"""

from __future__ import annotations

import copy
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from numpy.typing import ArrayLike

from cramerl._arrays import Floats
from cramerl._checks import require_count
from cramerl._ray import connect
from cramerl.linear.lstd import DistributionalLSTD
from cramerl.linear.sources.chunks import default_chunk_rows
from cramerl.linear.sources.layout import Columns, Layout
from cramerl.linear.sources.parquet import Paths, Span, first_chunk, opened, parquet_files, read_spans
from cramerl.linear.sources.tasks import OnProgress, Tasks
from cramerl.linear.transitions import S, make_rows

# Blocks of a log, so that many cores have work, and most chunks in a block. A block's sums travel, so a block should
# have much more data than its sums.
_BLOCKS, _MOST_CHUNKS = 256, 5
# Files whose metadata one task reads.
_FILES_AT_ONCE = 32


def fit_ray(
    estimator: DistributionalLSTD,
    path: Paths,
    *,
    features: Columns,
    reward: str,
    next_features: Columns,
    terminated: str | None = None,
    feature_function: Callable[[Floats], ArrayLike] | None = None,
    chunk_rows: int | None = None,
    address: str | None = None,
    on_progress: OnProgress | None = None,
) -> DistributionalLSTD:
    """Fit the estimator to all rows of Parquet files on a Ray cluster, and return it.

    The result is that of `DistributionalLSTD.fit` and `fit_parquet`, up to rounding. Every pass reads the files again,
    so every machine of the cluster must be able to read them. A worker needs memory for Python, two chunks of
    16 (2 D + 2) bytes a row, and one set of moments (at most 8 K² D² bytes or a gigabyte), whatever the size of the
    log; so does this process.

    Arguments as in `fit_parquet`; ``feature_function`` runs on the workers. ``address`` is that of the cluster, as in
    ``ray.init``. None: the cluster that this process is connected to, else the one that RAY_ADDRESS names, else one on
    this machine for the duration of the fit. ``on_progress`` is called with a line of text as a pass advances.
    """
    layout = Layout(features, reward, next_features, terminated, feature_function)
    with ray_rows(path, layout, chunk_rows, address, on_progress) as source:
        return estimator.fit_source(source)


@contextmanager
def ray_rows(
    path: Paths,
    layout: Layout,
    chunk_rows: int | None = None,
    address: str | None = None,
    on_progress: OnProgress | None = None,
) -> Iterator[ClusterFiles]:
    """A source on a cluster that this block is connected to; arguments as in `fit_ray`."""
    if chunk_rows is not None:
        require_count("chunk_rows", chunk_rows)
    with connect(address) as ray:
        yield ClusterFiles(ray, path, layout, chunk_rows, on_progress or (lambda text: None))


class ClusterFiles:
    """The rows of Parquet files as a source whose passes run on a cluster, through a connected module ``ray``."""

    def __init__(self, ray: Any, path: Paths, layout: Layout, chunk_rows: int | None, on_progress: OnProgress):
        self._tasks, self._layout, self._passes = Tasks(ray, on_progress), layout, 0
        # Workers may have another current folder.
        files = [file if "://" in file else str(Path(file).absolute()) for file in parquet_files(path)]
        some = [files[i : i + _FILES_AT_ONCE] for i in range(0, len(files), _FILES_AT_ONCE)]
        sizes = self._tasks.mapped(_group_sizes, [layout], some, "metadata of files read")
        (self.head,) = self._tasks.mapped(first_chunk, [layout], [[*map(Span, files)]], "first rows read")
        self._chunk_rows = chunk_rows or default_chunk_rows(self.num_features)
        groups = [size for part in sizes for size in part]
        even = sum(map(sum, groups)) // _BLOCKS
        self.blocks = cut_blocks(files, groups, min(max(even, self._chunk_rows), _MOST_CHUNKS * self._chunk_rows))

    @property
    def num_features(self) -> int:
        """D."""
        return self.head.features.shape[1]

    def total(self, sums: S) -> S:
        """The sums over all rows: mapped over blocks, reduced in their order."""
        self._passes += 1
        fixed = [sums, self._layout, self._chunk_rows, self.num_features]
        return self._tasks.total(_add_up, fixed, self.blocks, f"pass {self._passes}: blocks added up")


def cut_blocks(files: list[str], sizes: list[list[int]], block_rows: int) -> list[list[Span]]:
    """Blocks of consecutive row groups, each with just enough groups to reach ``block_rows`` rows.

    ``sizes`` has the rows of each row group, of each file.
    """
    blocks: list[list[Span]] = [[]]
    rows = 0
    for file, groups in zip(files, sizes, strict=True):
        first = 0
        for i, size in enumerate(groups):
            rows += size
            if rows >= block_rows:
                blocks[-1].append(Span(file, first, i + 1))
                blocks.append([])
                first, rows = i + 1, 0
        if any(groups[first:]):
            blocks[-1].append(Span(file, first, len(groups)))
    return [block for block in blocks if block]


def _group_sizes(layout: Layout, files: list[str]) -> list[list[int]]:
    found = []
    for file in files:
        try:
            with opened(file) as content:
                layout.require(content.schema_arrow, file)
                about = content.metadata
                found.append([about.row_group(i).num_rows for i in range(about.num_row_groups)])
        except FileNotFoundError:
            raise ValueError(
                f"path must name files that every machine of the cluster can read, got {file}, which "
                f"{socket.gethostname()} cannot"
            ) from None
    return found


def _add_up(empty: S, layout: Layout, chunk_rows: int, num_features: int, block: list[Span]) -> tuple[int, S]:
    """Rows of a block, and their sums."""
    sums, rows = copy.deepcopy(empty), 0  # objects in the store are read-only
    for chunk in read_spans(layout, block, chunk_rows):
        rows += len(chunk.rewards)
        try:
            sums = make_rows(*chunk[:4], num_features=num_features).total(sums)
        except ValueError as error:
            error.add_note(f"This was in the block from row group {block[0].first} of {block[0].file}.")
            raise
        del chunk  # so that it is not in memory while the next one is read
    return rows, sums
