"""Copies of runs in a storage that every machine reaches, through fsspec: a bucket, a server, a shared disk.

``URL/CELL/objects/`` holds files under the SHA-256 of their content, ``URL/CELL/manifests/`` numbered lists of them. An
object never changes and a manifest is written after all it names, under a name that is new, so nothing needs a rename
or an overwrite in one step, which storages do not all have: whenever a copy is interrupted, the last list is good.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from cramerl._files import write_whole
from cramerl.runs.folder import CONFIG
from cramerl.sweep.folder import look_at

_FORMAT = 1
_KEEP = 2  # lists, the newest included: one that is being read may be overtaken once
_PAUSES = (0.5, 2.0, 8.0)  # seconds between attempts; networks fail for moments
_CHECKPOINTS = "checkpoints"
_CHUNK = 1 << 20

Files = dict[str, dict[str, Any]]  # sha256 and bytes, by path below the folder of the run


class StoredRun:
    """The copy of one run.

    Args:
        url: of its folder in the storage; whatever fsspec takes.
        attempt: a name for whoever writes. The copy belongs to the last one that called `claim`, and others cannot
            write any more: a worker that was given up for lost may still be running behind a broken network.
    """

    def __init__(self, url: str, attempt: str = ""):
        self.url, self.attempt = url, attempt
        self._fs, self._root = open_storage(url)
        self._sums: dict[tuple[str, int, int], str] = {}  # of files that do not change, by path, bytes and time

    def newest(self) -> dict[str, Any] | None:
        """The newest good list of files, or None."""
        return next(self._manifests(), None)

    def claim(self) -> None:
        """Become the one who writes."""
        newest = self.newest() or {"files": {}, "step": 0}
        self._list(newest["files"], newest["step"])

    def push(self, folder: Path) -> None:
        """Copy the folder of a run. What is in the storage already is not sent again."""
        newest = self.newest()
        if newest is not None and newest["attempt"] != self.attempt:
            raise OSError(f"{self.url} has been taken over by another worker; this one stops")
        there, files = self._objects(), {}
        for path in sorted(_files(folder)):
            files[path.relative_to(folder).as_posix()] = self._put(path, there, folder)
        self._list(files, look_at(folder).step if CONFIG in files else 0)
        self._prune()

    def pull(self, folder: Path, *, checkpoints: bool) -> bool:
        """Bring a folder to what the storage holds, files that are in the newest list only; False if it holds none.

        Args:
            folder: where to; files that are there and the same are left alone.
            checkpoints: them too, not only the records.
        """
        problem: Exception | None = None
        for manifest in self._manifests():
            if CONFIG not in manifest["files"]:
                return False
            try:
                for name, record in manifest["files"].items():
                    if checkpoints or not name.startswith(f"{_CHECKPOINTS}/"):
                        self._get(folder / name, record)
                return True
            except (FileNotFoundError, ValueError) as error:
                problem = error
        if problem is not None:
            raise OSError(f"{self.url} holds no copy of a run that can be used: {problem}")
        return False

    def _manifests(self) -> Iterator[dict[str, Any]]:
        """Good lists, the newest first. One that was cut short is passed over."""
        for name in sorted(self._names("manifests"), reverse=True):
            try:
                content = json.loads(_patiently(lambda name=name: self._fs.cat_file(f"{self._root}/manifests/{name}")))
            except (FileNotFoundError, ValueError):
                continue
            if isinstance(content, dict) and content.pop("sha256", None) == _digest(content):
                if content["format"] != _FORMAT:
                    raise ValueError(f"{self.url} must have format {_FORMAT}, got {content['format']!r}")
                yield content

    def _list(self, files: Files, step: int) -> None:
        """Write a list, which makes the copy what it says."""
        number = max((int(Path(name).stem) for name in self._names("manifests")), default=0) + 1
        content = {"format": _FORMAT, "attempt": self.attempt, "step": step, "files": files}
        data = json.dumps(content | {"sha256": _digest(content)}, indent=1).encode()
        self._fs.makedirs(f"{self._root}/manifests", exist_ok=True)
        self._fs.makedirs(f"{self._root}/objects", exist_ok=True)
        _patiently(lambda: self._fs.pipe_file(f"{self._root}/manifests/{number:09d}.json", data))

    def _objects(self) -> dict[str, int]:
        """Bytes of each object."""
        return self._names("objects")

    def _names(self, folder: str) -> dict[str, int]:
        self._fs.invalidate_cache()
        try:
            found = _patiently(lambda: self._fs.ls(f"{self._root}/{folder}", detail=True))
        except FileNotFoundError:
            return {}
        return {entry["name"].rpartition("/")[2]: entry["size"] for entry in found if entry["type"] == "file"}

    def _put(self, path: Path, there: dict[str, int], folder: Path) -> dict[str, Any]:
        """Send a file, unless it is there. Files that grow are read once: what is summed is what is sent."""
        if path.relative_to(folder).parts[0] == _CHECKPOINTS:
            name, size = self._sum(path), path.stat().st_size
            if there.get(name) != size:
                _patiently(lambda: self._fs.put_file(str(path), f"{self._root}/objects/{name}"))
        else:
            data = path.read_bytes()
            name, size = hashlib.sha256(data).hexdigest(), len(data)
            if there.get(name) != size:
                _patiently(lambda: self._fs.pipe_file(f"{self._root}/objects/{name}", data))
        return {"sha256": name, "bytes": size}

    def _get(self, path: Path, record: dict[str, Any]) -> None:
        """Fetch a file, unless it is there."""
        if path.is_file() and path.stat().st_size == record["bytes"] and self._sum(path) == record["sha256"]:
            return
        source = f"{self._root}/objects/{record['sha256']}"

        def fetch(temporary: Path) -> None:
            _patiently(lambda: self._fs.get_file(source, str(temporary)))
            if _sha256(temporary) != record["sha256"]:
                raise ValueError(f"{source} has been altered: its sha256 is not the one it is named by")

        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, fetch)

    def _sum(self, path: Path) -> str:
        status = path.stat()
        key = (str(path), status.st_size, status.st_mtime_ns)
        if key not in self._sums:
            self._sums[key] = _sha256(path)
        return self._sums[key]

    def _prune(self) -> None:
        """Remove lists beyond those kept, and objects that none of the rest names."""
        kept = list(self._manifests())[:_KEEP]
        needed = {record["sha256"] for manifest in kept for record in manifest["files"].values()}
        for name in sorted(self._names("manifests"))[: -_KEEP or None]:
            _remove(self._fs, f"{self._root}/manifests/{name}")
        for name in self._objects().keys() - needed:
            _remove(self._fs, f"{self._root}/objects/{name}")


class Storage:
    """Where all runs of a sweep are copied to.

    Args:
        url: whatever fsspec takes.
        out: folder of the sweep on this machine, which gets the records.
        checkpoints: bring checkpoints back too, of runs that are not being trained.
    """

    def __init__(self, url: str, out: Path, *, checkpoints: bool = False):
        _require_place(url)
        self.url, self._out, self._checkpoints = url.rstrip("/"), out, checkpoints
        self._fs, self._root = open_storage(self.url)
        self._runs: dict[str, StoredRun] = {}

    def require_writable(self) -> None:
        """Refuse a place that nothing can be written to, before runs find that out one by one."""
        try:
            self._fs.makedirs(self._root, exist_ok=True)
            probe = f"{self._root}/.probe-{uuid.uuid4().hex}"
            self._fs.pipe_file(probe, b"cramerl")
            self._fs.rm_file(probe)
        except Exception as error:  # every storage has errors of its own
            raise ValueError(f"storage must be a place that can be written to, got {self.url!r}: {error}") from error

    def run(self, folder: str) -> StoredRun:
        """The copy of a cell."""
        if folder not in self._runs:
            self._runs[folder] = StoredRun(f"{self.url}/{folder}")
        return self._runs[folder]

    def cells(self) -> list[str]:
        """Folders of cells that have something to go on from, or are finished."""
        self._fs.invalidate_cache()
        found = _patiently(lambda: self._fs.glob(f"{self._root}/*/*/manifests/*.json"))
        folders = sorted({"/".join(str(name).split("/")[-4:-2]) for name in found})
        return [folder for folder in folders if CONFIG in (self.run(folder).newest() or {"files": {}})["files"]]

    def fetch(self, folder: str, *, running: bool = False) -> bool:
        """Bring the records of a cell here, and checkpoints where they are asked for; False if there is nothing."""
        return self.run(folder).pull(self._out / folder, checkpoints=self._checkpoints and not running)

    def reconcile(self, folder: str) -> None:
        """Make both places agree: whichever has got further, with something to go on from, is right."""
        stored, path = self.run(folder), self._out / folder
        there = stored.newest()
        here = look_at(path) if (path / CONFIG).exists() else None
        if here and here.has_checkpoint and (there is None or here.step > there["step"] or not there["files"]):
            stored.claim()
            stored.push(path)
        else:
            self.fetch(folder)


def _require_place(url: str) -> None:
    """Refuse what fsspec would take for a folder of this machine, or of whichever machine is asked."""
    protocol, mark, path = url.partition("://")
    if not (protocol and path.strip("/") if mark else os.path.isabs(url) and url.strip("/")):
        raise ValueError(
            f"storage must be a URL with a folder, such as s3://bucket/runs or file:///shared/runs, or an absolute "
            f"path, got {url!r}"
        )


def open_storage(url: str) -> tuple[Any, str]:
    """The file system of a URL, and the path in it."""
    try:
        fsspec = importlib.import_module("fsspec")
        fs, root = fsspec.core.url_to_fs(url)
    except (ImportError, ValueError) as error:
        raise ValueError(f"storage must be a URL that fsspec knows, got {url!r}: {error}") from error
    if "memory" in (fs.protocol if isinstance(fs.protocol, tuple) else (fs.protocol,)):
        raise ValueError(
            f"storage must be a place that every machine reaches, got {url!r}, which is this process's own"
        )
    return fs, root.rstrip("/")


def _patiently(act: Callable[[], Any]) -> Any:
    """Do something with a storage, again if it fails; what is not there will not be there in a moment either."""
    for pause in _PAUSES:
        try:
            return act()
        except (FileNotFoundError, NotADirectoryError, PermissionError):
            raise
        except OSError:
            time.sleep(pause)
    return act()


def _remove(fs: Any, path: str) -> None:
    try:
        fs.rm_file(path)
    except FileNotFoundError:
        return


def _files(folder: Path) -> Iterator[Path]:
    """What a run consists of, without locks and files that are being written."""
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        yield from (Path(place) / name for name in names if not name.startswith("."))


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _digest(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
