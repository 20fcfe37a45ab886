"""Copies of job folders in a storage that all machines reach, through fsspec: a bucket, a server, a shared disk.

``URL/FOLDER/files/`` holds files named by the SHA-256 of their content, ``URL/FOLDER/snapshots/`` lists of them. A
snapshot is uploaded after the files it names, and nothing is ever overwritten, so an upload that is interrupted leaves
the snapshots before it intact. For the same reason two processes that upload the same job at once, because one of them
was given up for lost, cannot damage each other's snapshots. The snapshot with the most steps counts.
"""

from __future__ import annotations

import errno
import functools
import hashlib
import json
import os
import re
import uuid
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Any

from cramerl._extras import load_library
from cramerl._files import write_whole
from cramerl._folders import ARRAY_BYTES, LOG_BYTES, inside, open_inside, parse_json, read_inside
from cramerl.runs.folder import CONFIG, RUN_FILES
from cramerl.sweep.folder import inspect_run, log_file

_KEEP = 2  # snapshots, the newest included: one may be damaged, or be deleted while it is downloaded
_SUM = re.compile("[0-9a-f]{64}")
_SNAPSHOT = re.compile("[0-9]{12}-[0-9]{6}-[0-9a-f]{8}[.]json")
_LOG = "LOG"  # name of the job's log in a snapshot; it is not in the job's folder


class Mirror:
    """The copy of one job's folder, and of its log.

    Args:
        url: of the copy.
        folder: the folder on this machine.
        log: the log on this machine.
    """

    def __init__(self, url: str, folder: Path, log: Path):
        self.url, self._folder, self._log = url, folder, log
        self._fs, self._root = open_storage(url)

    @classmethod
    def of_job(cls, storage: str, out: Path, folder: str) -> Mirror:
        """The copy of a job, and its places in the folder of a sweep."""
        return cls(f"{storage}/{folder}", inside(out, folder), log_file(out, folder))

    def step(self) -> int | None:
        """Agent steps of the newest snapshot; None if there is none."""
        names = self._list("snapshots")
        return int(max(names).partition("-")[0]) if names else None

    def upload(self) -> None:
        """Upload the folder. Files that the storage already holds are not sent again."""
        local = {path.relative_to(self._folder).as_posix(): path for path in self._folder.rglob("[!.]*")}
        # A link would put what it points to into the storage.
        local = {name: inside(self._folder, name) for name, path in local.items() if path.is_file()}
        local = {name: path for name, path in local.items() if "/." not in name}
        remote, files = self._list("files"), {}
        for folder in ("files", "snapshots"):
            self._fs.makedirs(f"{self._root}/{folder}", exist_ok=True)
        for name, path in sorted((local | ({_LOG: self._log} if self._log.exists() else {})).items()):
            if name.startswith("checkpoints/"):
                files[name] = digest = _digest(path, path.stat().st_mtime_ns)
                if remote.get(digest) != path.stat().st_size:
                    self._fs.put_file(str(path), f"{self._root}/files/{digest}")
            else:  # the log may grow meanwhile: send what was hashed
                data = read_inside(path.parent, path.name, most=LOG_BYTES)
                files[name] = digest = hashlib.sha256(data).hexdigest()
                if remote.get(digest) != len(data):
                    self._fs.pipe_file(f"{self._root}/files/{digest}", data)
        step = inspect_run(self._folder).step if CONFIG in files else 0
        number = max((int(name.split("-")[1]) for name in self._list("snapshots")), default=0) + 1
        name = f"{step:012d}-{number:06d}-{uuid.uuid4().hex[:8]}.json"
        self._fs.pipe_file(f"{self._root}/snapshots/{name}", json.dumps(files, indent=1).encode())
        self._prune()

    def download(self, *, checkpoints: bool) -> bool:
        """Bring the folder to the newest snapshot that is intact; False if there is none.

        Args:
            checkpoints: download them too, not only the records.
        """
        problem = None
        for name in sorted(self._list("snapshots"), reverse=True):
            try:
                files = self._read(name)
                places = {file: self._log if file == _LOG else self._place(name, file) for file in files}
                for file, digest in files.items():
                    if checkpoints or not file.startswith("checkpoints/"):
                        self._fetch(digest, places[file])
                return CONFIG in files
            except (FileNotFoundError, ValueError) as error:  # cut short, altered, or deleted meanwhile
                problem = problem or error
        if problem is not None:
            raise OSError(f"{self.url} holds no snapshot that can be used: {problem}")
        return False

    def synchronise(self, *, checkpoints: bool) -> None:
        """Upload or download, whichever side has fewer steps; a local folder without checkpoints is only a copy."""
        here, there = self._folder / CONFIG, self.step()
        found = inspect_run(self._folder) if here.exists() else None
        if found and found.has_checkpoint and (there is None or found.step > there):
            self.upload()
        else:
            self.download(checkpoints=checkpoints)

    def _place(self, snapshot: str, name: str) -> Path:
        """Where a file that a snapshot names belongs. Anybody who can write to the storage can write a snapshot."""
        try:
            if PurePosixPath(name).parts[:1] not in {(file,) for file in RUN_FILES - {".lock"}}:
                raise ValueError(f"training writes no file {name!r}")
            return inside(self._folder, name)
        except ValueError as error:  # no damage explains it, so an older snapshot is not tried
            raise OSError(errno.EPERM, f"snapshot {snapshot} is refused: {error}", self.url) from error

    def _fetch(self, digest: str, path: Path) -> None:
        if path.is_file() and _digest(path, path.stat().st_mtime_ns) == digest:
            return

        def write(temporary: Path) -> None:
            with suppress(FileNotFoundError):
                self._fs.get_file(f"{self._root}/files/{digest}", str(temporary))
            if not temporary.exists():
                raise ValueError(f"file {digest} is missing")
            if _digest(temporary, temporary.stat().st_mtime_ns) != digest:
                raise ValueError(f"file {digest} has been altered")

        write_whole(path, write)

    def _list(self, folder: str) -> dict[str, int]:
        """The files of a folder in the storage, with their sizes; without those that have other names than ours."""
        self._fs.invalidate_cache()
        found = self._fs.find(f"{self._root}/{folder}", detail=True)
        sizes = {name.rpartition("/")[2]: entry["size"] for name, entry in found.items()}
        known = _SNAPSHOT if folder == "snapshots" else _SUM
        return {name: size for name, size in sizes.items() if known.fullmatch(name)}

    def _read(self, name: str) -> dict[str, str]:
        files = parse_json(self._fs.cat_file(f"{self._root}/snapshots/{name}"))
        if not isinstance(files, dict) or not all(_SUM.fullmatch(str(digest)) for digest in files.values()):
            raise ValueError(f"snapshot {name} is not a list of files with their sums")
        return files

    def _prune(self) -> None:
        """Delete what is older than the newest intact snapshots, and files that no snapshot names."""
        remote, needed, intact, old = self._list("files"), set(), 0, []
        for name in sorted(self._list("snapshots"), reverse=True):
            if intact == _KEEP:
                old.append(f"snapshots/{name}")
                continue
            with suppress(FileNotFoundError, ValueError):
                files = set(self._read(name).values())
                needed |= files
                intact += files <= remote.keys()
        for path in (*old, *(f"files/{name}" for name in remote.keys() - needed)):
            with suppress(FileNotFoundError):
                self._fs.rm_file(f"{self._root}/{path}")


def stored_jobs(url: str) -> list[str]:
    """Folders of the jobs that a storage holds."""
    fs, root = open_storage(url)
    fs.invalidate_cache()
    return sorted({"/".join(str(name).split("/")[-4:-2]) for name in fs.glob(f"{root}/*/*/snapshots/*.json")})


def open_storage(url: str) -> tuple[Any, str]:
    """The file system of a URL, and the path in it; ValueError if not every machine could reach it."""
    protocol, mark, path = url.partition("://")
    # fsspec takes anything else for a path on whichever machine opens it.
    if not (protocol and path.strip("/") if mark else os.path.isabs(url) and url.strip("/")):
        raise ValueError(
            "storage must be a URL with a folder, such as s3://bucket/runs or file:///shared/runs, or an absolute "
            f"path, got {url!r}"
        )
    try:
        fs, root = load_library("fsspec").core.url_to_fs(url.rstrip("/"))
    except (ImportError, ValueError) as error:
        raise ValueError(f"storage must be a URL that fsspec knows, got {url!r}: {error}") from error
    if "memory" in (fs.protocol if isinstance(fs.protocol, tuple) else (fs.protocol,)):
        raise ValueError(f"storage must be a place that every machine reaches, got {url!r}, which is in memory")
    return fs, root.rstrip("/")


def require_writable(url: str) -> None:
    """Raise ValueError if nothing can be written to a storage, before every job finds that out by itself."""
    fs, root = open_storage(url)
    probe = f"{root}/.probe-{uuid.uuid4().hex}"
    try:
        fs.makedirs(root, exist_ok=True)
        fs.pipe_file(probe, b"cramerl")
        fs.rm_file(probe)
    except Exception as error:  # every file system raises its own kind
        raise ValueError(f"storage must be a place that can be written to, got {url!r}: {error}") from error


@functools.lru_cache(maxsize=4096)
def _digest(path: Path, modified: int) -> str:
    with open_inside(path.parent, path.name, most=ARRAY_BYTES) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
