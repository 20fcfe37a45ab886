"""Checkpoints of a training run: complete or absent, checked before they are used, and never pickled.

``RUN/checkpoints/000007/`` holds ``manifest.json`` and ``state.safetensors``; ``RUN/checkpoints/replay/`` holds the
rows of the replay in shards, each written once and shared by the checkpoints whose manifests name it. A checkpoint is
renamed into place after everything its manifest names is on the disk, so a process killed at any moment leaves the last
checkpoint good.
"""

from __future__ import annotations

import json
import operator
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import safetensors.numpy

from cramerl._files import make_durable_folder, sync_folder, write_durably, write_whole
from cramerl._folders import inside
from cramerl.deep.manifests import MANIFEST, STATE, check_file, make_manifest, read_arrays, read_manifest, record_of
from cramerl.deep.trees import Arrays, Damaged

_REPLAY = "replay"
_SHARD = re.compile(rf"{_REPLAY}/rows-(\d{{12,}})-(\d{{12,}})\.safetensors")
_LEFT_SHARD = re.compile(r"\.?rows-\d{12,}-\d{12,}(-\d+)?\.safetensors")  # or half of one, of a killed process
_DTYPES = ("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
_DTYPES += ("float16", "float32", "float64")

ReadRows = Callable[[int, int], Arrays]


class Shard(NamedTuple):
    """A file with rows [start, stop) of the replay."""

    start: int
    stop: int
    path: Path


class Saved(NamedTuple):
    """A checkpoint whose files have been checked. ``info["rows"]`` is the live range of the replay, if it has one."""

    info: dict[str, Any]
    arrays: Arrays
    shards: list[Shard]


class CheckpointStore:
    """The checkpoints of one run. One process at a time may save.

    Args:
        folder: ``RUN/checkpoints``; created at the first save.
        keep: how many checkpoints stay on the disk, including the newest.
        shard_bytes: largest size of a replay file; saving takes about three times as much memory.

    Attributes:
        problems: a sentence about each newer checkpoint that the last call of :meth:`latest` skipped.
    """

    def __init__(self, folder: Path, keep: int = 2, shard_bytes: int = 256 << 20):
        for name, value in (("keep", keep), ("shard_bytes", shard_bytes)):
            if value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        self.folder, self.keep, self.shard_bytes = Path(folder), keep, shard_bytes
        self._run = self.folder.parent
        self.problems: list[str] = []
        self._newest: dict[str, Any] | None = None  # manifest of the newest good checkpoint
        self._known = False  # whether _newest is what the disk holds; to find out, every shard must be read

    def latest(self) -> Saved | None:
        """Read and check the newest good checkpoint; None if there is no checkpoint at all.

        Raises:
            Damaged: there are checkpoints, but none can be used.
        """
        self.problems, self._newest, self._known = [], None, False
        for number, path in sorted(self._found().items(), reverse=True):
            try:
                manifest = read_manifest(number, path)
                for name, record in manifest["files"].items():
                    folder, file = self._place(name, path)
                    check_file(number, folder, file, record)
                arrays = read_arrays(number, path, STATE)
            except Damaged as error:
                self.problems.append(str(error))
                continue
            self._newest, self._known = manifest, True
            return Saved(manifest["info"], arrays, self._shards(manifest))
        if self.problems:
            found = "; ".join(self.problems)
            raise Damaged(f"{self.folder} holds no usable checkpoint (remove it to start from the beginning): {found}")
        self._known = True
        return None

    def tidy(self) -> None:
        """Remove what killed processes left, after `latest`: a run that has ended does not save again."""
        if self._newest is not None and not self.problems:
            self._restore()
            self._prune(self._newest["info"]["iteration"], self._newest)

    def rows(self, saved: Saved) -> Iterator[tuple[int, Arrays]]:
        """Read the live rows of the replay, shard by shard: the first row's number, and the rows."""
        for shard in saved.shards:
            start, stop = saved.info["rows"]
            start, stop = max(start, shard.start), min(stop, shard.stop)
            arrays = read_arrays(saved.info["iteration"], self.folder, f"{_REPLAY}/{shard.path.name}")
            yield start, {name: rows[start - shard.start : stop - shard.start] for name, rows in arrays.items()}

    def save(
        self,
        info: dict[str, Any],
        arrays: Arrays,
        *,
        rows: tuple[int, int] | None = None,
        replay: ReadRows | None = None,
        capacity: int = 0,
    ) -> Path:
        """Write a checkpoint, then remove those beyond ``keep`` and the shards that no other needs.

        Args:
            info: JSON values; ``info["iteration"]`` is the checkpoint's number, and replaces one of the same number.
            arrays: booleans, integers and floats, of any shape and name.
            rows: the live rows of the replay, first and one past the last, counted from the beginning of the run.
            replay: returns rows [a, b) when called as ``replay(a, b)``. It is called once for each new shard, and once
                for a single row to measure it. See `new_shards`.
            capacity: rows that the ring holds; rows before ``stop - capacity`` are left out. 0 takes ``rows`` as given.

        Raises:
            OSError: for example, the disk is full. This checkpoint is removed; the message names the last good one.
            Damaged: the folder holds checkpoints, but none can be used.
        """
        number, live = _iteration(info), _live(rows, replay, capacity)
        if not self._known:
            self.latest()
        newest = self._newest
        _check_order(number, live, newest, self.folder)
        self._known = False  # until this save has succeeded
        target, temporary = self.folder / f"{number:06d}", self.folder / f".{number:06d}.tmp"
        new_shards: list[Path] = []
        try:
            manifest = self._write_checkpoint(temporary, info, arrays, live, replay, new_shards)
            _rename_into_place(temporary, target)
        except BaseException as error:
            self._undo(temporary, new_shards)
            if isinstance(error, OSError):
                raise _explained(error, number, newest, target) from error
            raise
        self._newest, self._known = manifest, True
        sync_folder(self.folder)
        self._prune(number, newest)
        return target

    def _write_checkpoint(
        self,
        temporary: Path,
        info: dict[str, Any],
        arrays: Arrays,
        live: tuple[int, int] | None,
        replay: ReadRows | None,
        new_shards: list[Path],
    ) -> dict[str, Any]:
        """Write everything under temporary names, the manifest last, and fill ``new_shards`` for `_undo`."""
        state = _packed(arrays)
        make_durable_folder(inside(self._run, f"{self.folder.name}/{_REPLAY}"))
        self._restore()
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir()
        files = {STATE: record_of(state)}
        if live and replay:
            files |= self._write_rows(live, self._kept(live), replay, new_shards)
        manifest = make_manifest(info, live, files)
        write_durably(temporary / STATE, state)
        write_durably(temporary / MANIFEST, (json.dumps(manifest, indent=2) + "\n").encode())
        sync_folder(temporary)
        return manifest

    def _found(self) -> dict[int, Path]:
        """Checkpoints by number. One that a killed process moved aside counts until its successor exists."""
        if not inside(self._run, self.folder.name).is_dir():
            return {}
        matches = (re.fullmatch(r"(\d{6,})|\.(\d{6,})\.old", path.name) for path in self.folder.iterdir())
        numbers = {match[0]: int(match[1] or match[2]) for match in matches if match}
        return {numbers[name]: self.folder / name for name in sorted(numbers)}  # ".000007.old" comes before "000007"

    def _place(self, name: str, checkpoint: Path) -> tuple[Path, str]:
        """The folder of a file that a manifest names, and its name there: the run's folder is nobody's to leave."""
        place = self.folder if _SHARD.fullmatch(name) else checkpoint
        return self._run, f"{place.relative_to(self._run).as_posix()}/{name}"

    def _shards(self, manifest: dict[str, Any]) -> list[Shard]:
        matches = (_SHARD.fullmatch(name) for name in manifest["files"])
        return sorted(Shard(int(match[1]), int(match[2]), self.folder / match[0]) for match in matches if match)

    def _kept(self, live: tuple[int, int]) -> dict[Shard, dict[str, Any]]:
        """Shards of the newest checkpoint with live rows, in order, unless they have been cut or deleted since."""
        newest = self._newest
        records = {s: newest["files"][f"{_REPLAY}/{s.path.name}"] for s in self._shards(newest)} if newest else {}
        return {
            shard: record
            for shard, record in records.items()
            if shard.stop > live[0] and shard.path.is_file() and shard.path.stat().st_size == record["bytes"]
        }

    def new_shards(self, rows: tuple[int, int], replay: ReadRows, capacity: int = 0) -> list[tuple[int, int]]:
        """The rows [start, stop) of each file that `save` would write with these arguments."""
        live = _live(rows, replay, capacity)
        if not self._known:
            self.latest()
        return self._new_shards(live, self._kept(live), replay) if live else []

    def _new_shards(
        self, live: tuple[int, int], kept: dict[Shard, dict[str, Any]], replay: ReadRows
    ) -> list[tuple[int, int]]:
        """The live rows that no kept shard has, in parts of at most ``shard_bytes``."""
        edges = zip(
            [live[0], *(shard.stop for shard in kept)], [*(shard.start for shard in kept), live[1]], strict=True
        )
        gaps = [(first, last) for first, last in edges if first < last]
        if not gaps:
            return []
        row = sum(array.nbytes for array in _read_rows(replay, gaps[0][0], gaps[0][0] + 1).values())
        step = max(1, self.shard_bytes // max(1, row))
        return [(start, min(start + step, last)) for first, last in gaps for start in range(first, last, step)]

    def _write_rows(
        self, live: tuple[int, int], kept: dict[Shard, dict[str, Any]], replay: ReadRows, new_shards: list[Path]
    ) -> dict[str, dict[str, Any]]:
        """Write the live rows that no kept shard has. Returns the records of all live shards by name."""
        files = {f"{_REPLAY}/{shard.path.name}": record for shard, record in kept.items()}
        for start, stop in self._new_shards(live, kept, replay):
            path = inside(self.folder, f"{_REPLAY}/rows-{start:012d}-{stop:012d}.safetensors")
            new_shards.append(path)
            files[f"{_REPLAY}/{path.name}"] = _write_shard(path, replay, start, stop)
        sync_folder(self.folder / _REPLAY)
        return files

    def _restore(self) -> None:
        """Rename checkpoints back that were moved aside for successors that were never written."""
        for number, path in self._found().items():
            if path.name.startswith("."):
                path.rename(self.folder / f"{number:06d}")

    def _undo(self, temporary: Path, new_shards: list[Path]) -> None:
        if not temporary.exists():
            return  # either nothing was written, or the checkpoint is in place and needs its shards
        with suppress(OSError):
            for path in new_shards:
                path.unlink(missing_ok=True)
            self._restore()
        shutil.rmtree(temporary, ignore_errors=True)

    def _prune(self, number: int, newest: dict[str, Any] | None) -> None:
        """Remove what the kept checkpoints do not need, and what killed processes left.

        This checkpoint, the one it follows and those before that are good; any other was skipped as damaged.
        """
        before = newest["info"]["iteration"] if newest else -1
        older = sorted(n for n in self._found() if n <= before and n != number)
        kept = {f"{n:06d}": n for n in [*older, number][-self.keep :]}
        for path in self.folder.iterdir():
            if path.name not in kept and _is_checkpoint(path):
                _remove(path)
        try:
            manifests = [read_manifest(n, self.folder / name) for name, n in kept.items()]
        except Damaged:
            return  # which shards it needs is unknown: they are removed when it is
        needed = {Path(file).name for manifest in manifests for file in manifest["files"]}
        for path in inside(self.folder, _REPLAY).iterdir():
            if path.name not in needed and _LEFT_SHARD.fullmatch(path.name):
                path.unlink()


def _iteration(info: dict[str, Any]) -> int:
    number = info.get("iteration")
    if isinstance(number, bool) or not isinstance(number, int) or number < 0:
        raise ValueError(f'info["iteration"] must be an integer >= 0, got {number!r}')
    return number


def _live(rows: tuple[int, int] | None, replay: ReadRows | None, capacity: int) -> tuple[int, int] | None:
    if rows is None:
        return None
    start, stop = (operator.index(row) for row in rows)
    if not 0 <= start <= stop:
        raise ValueError(f"rows must be 0 <= start <= stop, got {(start, stop)}")
    if replay is None:
        raise ValueError("replay must be given if rows are, got None")
    return (max(start, stop - operator.index(capacity)) if capacity else start), stop


def _check_order(number: int, live: tuple[int, int] | None, newest: dict[str, Any] | None, folder: Path) -> None:
    """Refuse to save an earlier state: it would share rows with another history, and never be the latest."""
    if newest is None:
        return
    last = newest["info"]["iteration"]
    if number < last:
        raise ValueError(f'info["iteration"] must be at least {last}, the last good one in {folder}, got {number}')
    if live and newest["rows"] and live[1] < newest["rows"][1]:
        raise ValueError(f"rows must end at {newest['rows'][1]} or later, as in iteration {last}, got {live[1]}")


def _write_shard(path: Path, replay: ReadRows, start: int, stop: int) -> dict[str, Any]:
    """Write rows to a file. One of this name was left by a killed process or is damaged: it is overwritten."""
    data = _packed(_read_rows(replay, start, stop))
    write_whole(path, lambda temporary: write_durably(temporary, data))
    return record_of(data)


def _read_rows(replay: ReadRows, start: int, stop: int) -> Arrays:
    arrays = {name: np.asarray(array) for name, array in replay(start, stop).items()}
    for name, array in arrays.items():
        if array.shape[:1] != (stop - start,):
            raise ValueError(f"replay({start}, {stop}) must return {stop - start} rows, got {name!r} of {array.shape}")
    return arrays


def _packed(arrays: Arrays) -> bytes:
    """Arrays as the bytes of a file. Written from Python, a full disk is an OSError, and the bytes can be hashed."""
    dense = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    for name, array in dense.items():
        if array.dtype.name not in _DTYPES:
            raise ValueError(f"array {name!r} must have a dtype of {', '.join(_DTYPES)}, got {array.dtype}")
    if "__metadata__" in dense:
        raise ValueError("arrays must not have the name '__metadata__', which safetensors reserves")
    return safetensors.numpy.save(dense)


def _remove(path: Path) -> None:
    """Remove a checkpoint. Under another name first: killed half way, what is left is still known for ours."""
    if not path.name.startswith("."):
        aside = path.with_name(f".{path.name}.tmp")
        shutil.rmtree(aside, ignore_errors=True)
        path = path.rename(aside)
    shutil.rmtree(path)


def _is_checkpoint(path: Path) -> bool:
    """Whether this is a folder that `CheckpointStore.save` made, whole or in part, and holds nothing else."""
    name = re.fullmatch(r"(\d{6,})|\.\d{6,}\.(old|tmp)", path.name)
    if name is None or path.is_symlink() or not path.is_dir():
        return False
    found = {entry.name for entry in path.iterdir()}
    return found <= {STATE, MANIFEST} and (MANIFEST in found or name[1] is None)


def _rename_into_place(temporary: Path, target: Path) -> None:
    """Rename a folder. An existing one is moved aside first: a folder cannot be renamed over one that is not empty."""
    if target.exists():
        aside = target.with_name(f".{target.name}.old")
        shutil.rmtree(aside, ignore_errors=True)
        target.rename(aside)
    temporary.rename(target)


def _explained(error: OSError, number: int, newest: dict[str, Any] | None, target: Path) -> OSError:
    last = f"the last good one is iteration {newest['info']['iteration']}" if newest else "there is no earlier one"
    reason = f"{error.strerror or error}: checkpoint of iteration {number} was not written; {last}"
    return OSError(error.errno, reason, error.filename or str(target))
