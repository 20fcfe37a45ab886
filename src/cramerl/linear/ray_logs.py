"""Least squares over logs that are larger than one machine: the passes of a fit as map and reduce on Ray.

Parquet files are cut into blocks of whole row groups, by their metadata alone. A task of Ray reads its block in chunks
and adds it up; a tree of tasks, by the number of the block, merges the sums. So sums do not depend on which worker did
what or how often: a task that was lost with its worker or node is run again by Ray, and the result is the same to the
last bit (on processors of one kind). ``pip install 'cramerl[ray]'``.
"""

from __future__ import annotations

import copy
import functools
import importlib
import logging
import pickle
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from numpy.typing import ArrayLike

from cramerl._ray import connect
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
    opened,
    parquet_files,
    read_spans,
    require_rows,
)
from cramerl.linear.rows import S, Sums, make_rows

# Blocks of a log, so that many cores have work, and most chunks in a block: the sums of a large log, which travel, are
# then small beside what was read for them.
_BLOCKS, _MOST_CHUNKS = 256, 5
# Sums that one task merges: they lie in shared memory, and the result in its own.
_MERGED_AT_ONCE = 8
# Files whose metadata one task reads.
_FILES_AT_ONCE = 32
# How often a task may lose its worker or node before the fit is given up.
_RETRIES = 20

OnProgress = Callable[[str], None]


def fit_ray(
    estimator: DistributionalLSTD,
    data: Any,
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
    """Fit the estimator to all rows of a Ray dataset or of Parquet files on a Ray cluster, and return it.

    The result is that of `DistributionalLSTD.fit` and `fit_parquet`, up to rounding. Every pass reads the files again,
    from where every machine of the cluster must see them. Of a dataset every pass runs again what it is made of, unless
    it is ``dataset.materialize()``. Beside Python itself a worker holds two chunks, 16 (2 D + 2) bytes a row, and one
    set of moments, at most 8 K² D² bytes or a gigabyte, whatever the size of the log; so does this process.

    Args:
        estimator: a `DistributionalLSTD`; data it has seen is forgotten.
        data: a ``ray.data.Dataset``, or Parquet files as in `read_parquet`.
        features: as in `read_parquet`, like the other columns; in a dataset, a tensor column does as a column of lists.
        reward: name of a column of numbers.
        next_features: like ``features``, of the next state.
        terminated: name of a column of booleans; None: no return ends.
        feature_function: what makes features (n, D) of the columns (n, C); it runs on the workers.
        chunk_rows: most rows in a chunk; None: 200,000, or as many as make 208 MB.
        address: of the cluster, as in ``ray.init``; None: the one this process is connected to, else the one that
            RAY_ADDRESS names, else one on this machine for the duration of the fit.
        on_progress: told in words how far a pass has come.
    """
    layout = Layout(features, reward, next_features, terminated, feature_function)
    with ray_rows(data, layout, chunk_rows, address, on_progress) as source:
        return estimator.fit_source(source)


@contextmanager
def ray_rows(
    data: Any,
    layout: Layout,
    chunk_rows: int | None = None,
    address: str | None = None,
    on_progress: OnProgress | None = None,
) -> Iterator[ClusterFiles | ClusterDataset]:
    """A source on a cluster, for as long as the block lasts; arguments as in `fit_ray`."""
    if chunk_rows is not None:
        require_rows(chunk_rows)
    with connect(address) as ray:
        kind = ClusterDataset if hasattr(data, "map_batches") else ClusterFiles
        with _plain_errors(ray):
            source = kind(ray, data, layout, chunk_rows, on_progress or (lambda words: None))
        yield source


class ClusterFiles:
    """The rows of Parquet files as a source whose passes run on a cluster.

    Args:
        ray: the module, connected.
        path: of the files.
        layout: the columns.
        chunk_rows: most rows in a chunk; None: as many as are good.
        on_progress: told in words how far a pass has come.
    """

    def __init__(self, ray: Any, path: Paths, layout: Layout, chunk_rows: int | None, on_progress: OnProgress):
        self._ray, self._layout, self._on_progress, self._passes = ray, ray.put(layout), on_progress, 0
        self._add_up = ray.remote(_add_up).options(num_returns=2, max_retries=_RETRIES)
        self._merge, look, read = (
            ray.remote(function).options(max_retries=_RETRIES) for function in (_merged, _group_sizes, first_chunk)
        )
        files = parquet_files(path)
        some = [files[i : i + _FILES_AT_ONCE] for i in range(0, len(files), _FILES_AT_ONCE)]
        sizes = self._finished([look.remote(self._layout, part) for part in some], "metadata of files read")
        self.head: Chunk = ray.get(read.remote(self._layout, [*map(Span, files)]))
        self._chunk_rows = chunk_rows or good_rows(self.num_features)
        groups = [size for part in sizes for size in part]
        share = sum(map(sum, groups)) // _BLOCKS
        self.blocks = cut_blocks(files, groups, min(max(share, self._chunk_rows), _MOST_CHUNKS * self._chunk_rows))

    @property
    def num_features(self) -> int:
        """D."""
        return self.head.features.shape[1]

    def total(self, sums: S) -> S:
        """The sums over all rows: mapped over blocks, reduced by their number."""
        self._passes += 1
        empty = self._ray.put(sums)
        fixed = empty, self._layout, self._chunk_rows, self.num_features
        pairs = [self._add_up.remote(*fixed, block) for block in self.blocks]
        counts, level = [count for count, _ in pairs], [part for _, part in pairs]
        del pairs  # what is merged leaves the store
        while len(level) > 1:
            level = [self._merge.remote(*level[i : i + _MERGED_AT_ONCE]) for i in range(0, len(level), _MERGED_AT_ONCE)]
        with _plain_errors(self._ray):
            self._finished(counts, f"pass {self._passes}: blocks added up")
            return copy.deepcopy(self._ray.get(level[0]))  # what lies in the store cannot be written to

    def _finished(self, tasks: list[Any], what: str) -> list[Any]:
        """Results of tasks; on an error or Ctrl-C those that still run are called off."""
        waiting, ray = tasks, self._ray
        try:
            while waiting:
                done, waiting = ray.wait(waiting, num_returns=len(waiting), timeout=0.5)
                ray.get(done)  # an error comes up at once, not when all is done
                self._on_progress(f"{what}: {len(tasks) - len(waiting)} of {len(tasks)}")
            return ray.get(tasks)
        except BaseException:
            for task in waiting:
                ray.cancel(task)
            raise


class ClusterDataset:
    """The rows of a ``ray.data.Dataset`` as a source; a pass streams through it. Arguments as of `ClusterFiles`."""

    def __init__(self, ray: Any, dataset: Any, layout: Layout, chunk_rows: int | None, on_progress: OnProgress):
        self._ray, self._dataset, self._layout, self._on_progress, self._passes = ray, dataset, layout, on_progress, 0
        with _in_order(dataset):
            for batch in dataset.limit(1000).iter_batches(batch_size=1000, batch_format="pyarrow"):
                self.head = _one_chunk(layout, batch)
                self._chunk_rows = chunk_rows or good_rows(self.num_features)
                return
        raise ValueError("data must hold at least one transition, got a dataset with none")

    @property
    def num_features(self) -> int:
        """D."""
        return self.head.features.shape[1]

    def total(self, sums: S) -> S:
        """The sums over all rows: one for each batch, merged here as they come."""
        self._passes += 1
        add_up = functools.partial(_batch_sums, empty=sums, layout=self._layout, num_features=self.num_features)
        parts = self._dataset.map_batches(
            add_up, batch_size=self._chunk_rows, batch_format="pyarrow", zero_copy_batch=True
        )
        whole, number = copy.deepcopy(sums), 0
        with _plain_errors(self._ray), _in_order(self._dataset):
            for row in parts.iter_rows():
                if row["problem"]:
                    raise ValueError(row["problem"])
                whole.merge(pickle.loads(row["sums"]))
                number += 1
                self._on_progress(f"pass {self._passes}: {number} batches added up")
        return whole


def cut_blocks(files: list[str], sizes: list[list[int]], block_rows: int) -> list[list[Span]]:
    """Blocks of consecutive row groups, each with as many as it takes to reach so many rows.

    Args:
        files: F names.
        sizes: rows of each row group, of each file.
        block_rows: a block is closed when it has these.
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
                f"{socket.gethostname()} has not"
            ) from None
    return found


def _add_up(empty: S, layout: Layout, chunk_rows: int, num_features: int, block: list[Span]) -> tuple[int, S]:
    """Rows of a block, and their sums."""
    sums, rows = copy.deepcopy(empty), 0  # what lies in the store cannot be written to
    for chunk in read_spans(layout, block, chunk_rows):
        rows += len(chunk.rewards)
        try:
            sums = make_rows(*chunk, num_features).total(sums)
        except ValueError as error:
            error.add_note(f"This was in the block from row group {block[0].first} of {block[0].file}.")
            raise
        del chunk  # not in memory while the next one is read
    return rows, sums


def _merged(first: S, *others: S) -> S:
    whole = copy.deepcopy(first)
    for other in others:
        whole.merge(other)
    return whole


def _one_chunk(layout: Layout, table: Any) -> Chunk:
    layout.require(table.schema, "the dataset")
    (batch,) = table.combine_chunks().to_batches()
    return layout.chunk(batch, "the dataset")


def _batch_sums(table: Any, empty: Sums, layout: Layout, num_features: int) -> Any:
    """The sums over a batch, as a table of one row: that is what batches become.

    What is wrong with the rows is in it too: of an error that is raised, Ray Data gives back a report and no cause.
    """
    import pyarrow

    cloudpickle = importlib.import_module("ray.cloudpickle")  # functions within functions travel too
    data, problem = b"", ""
    try:
        data = cloudpickle.dumps(make_rows(*_one_chunk(layout, table), num_features).total(copy.deepcopy(empty)))
    except ValueError as error:
        problem = str(error)
    return pyarrow.table({"sums": pyarrow.array([data], type=pyarrow.large_binary()), "problem": [problem]})


@contextmanager
def _in_order(dataset: Any) -> Iterator[None]:
    """While it runs: blocks in order, whoever finishes first, and no words to the terminal, errors come anyway."""
    context, log = dataset.context, logging.getLogger("ray.data")
    wanted = {"enable_progress_bars": False, "print_on_execution_start": False}
    before = {name: getattr(context, name) for name in wanted}
    order, level = context.execution_options.preserve_order, log.level
    try:
        log.setLevel(logging.CRITICAL + 1)
        context.execution_options.preserve_order = True
        vars(context).update(wanted)
        yield
    finally:  # the settings are the caller's, for all datasets made of this one
        vars(context).update(before)
        context.execution_options.preserve_order = order
        log.setLevel(level)


@contextmanager
def _plain_errors(ray: Any) -> Iterator[None]:
    """An error on a worker as it was raised there, and one sentence for work that was lost for good."""
    try:
        yield
    except ray.exceptions.RayError as error:
        cause: Any = error
        while isinstance(cause, ray.exceptions.RayError):
            cause = getattr(cause, "cause", None) or cause.__cause__
        if "No module named 'cramerl" in str(error):
            raise ValueError("every machine of the cluster must have cramerl: pip install 'cramerl[ray]'") from None
        if cause is None:
            raise ChildProcessError(f"the cluster lost a part of the work for good: {error}") from error
        raise cause from None
