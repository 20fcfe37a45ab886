"""The files in the folder of a run, a sweep or an evaluation, which may come from somebody else.

Whatever such a folder holds, nothing outside it is read or written, and nothing waits for ever: `inside` decides which
names are allowed, `open_inside` opens every file. Links are refused, because tar and git keep them.
"""

from __future__ import annotations

import io
import json
import os
import stat
from pathlib import Path, PurePosixPath
from typing import Any, Literal, cast

TEXT_BYTES, LOG_BYTES, ARRAY_BYTES = 64 << 20, 4 << 30, 64 << 30
"""Largest files that are read: of settings and the like, of logs and evaluations, of arrays."""
EVALUATION_FILE = "evaluation.json"
"""What `cramerl evaluate` writes about an evaluation."""
_FLAGS = {"read": os.O_RDONLY, "append": os.O_WRONLY | os.O_APPEND | os.O_CREAT, "update": os.O_RDWR | os.O_CREAT}


def inside(folder: str | Path, name: str) -> Path:
    """The path of a name in a folder; ValueError if it leaves the folder or is, or leads through, a link.

    Args:
        folder: its own path may contain links: the user named it.
        name: relative to the folder, as in a manifest; the file need not exist.
    """
    parts = PurePosixPath(name).parts
    if not parts or parts[0] == "/" or ".." in parts or "\0" in name:
        raise ValueError(f"{folder} names a file that is not below it: {name!r}")
    path = Path(folder)
    for part in parts:
        path = path / part
        if path.is_symlink():
            raise ValueError(f"{path} is a link, and links in such a folder are not followed; put a copy in its place")
    return path


def open_inside(
    folder: str | Path, name: str, how: Literal["read", "append", "update"] = "read", *, most: int = TEXT_BYTES
) -> io.BufferedRandom:
    """Open a regular file in a folder, as bytes; ValueError if it is anything else, or too large.

    Args:
        folder: see `inside`.
        name: see `inside`.
        how: "append" and "update" (from the beginning) create the file, and leave what it holds.
        most: bytes that a file to read may have.
    """
    path = inside(folder, name)
    if path.exists():  # before it is opened: some devices do something then
        _require_regular(path, path.lstat(), how)
    descriptor = os.open(path, _FLAGS[how] | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    try:
        found = os.fstat(descriptor)
        _require_regular(path, found, how)
        if how == "read" and found.st_size > most:
            raise ValueError(f"{path} must have at most {most:,} bytes, it has {found.st_size:,}")
        mode = {"read": "rb", "append": "ab", "update": "r+b"}[how]
        return cast("io.BufferedRandom", os.fdopen(descriptor, mode))  # which has the methods of all three
    except BaseException:
        os.close(descriptor)
        raise


def read_inside(folder: str | Path, name: str, *, most: int = TEXT_BYTES) -> bytes:
    """The content of a regular file in a folder; see `open_inside`."""
    with open_inside(folder, name, most=most) as file:
        return file.read()


def parse_json(text: str | bytes) -> Any:
    """JSON in UTF-8; ValueError if it is something else, or nested so deeply that it cannot be read."""
    try:
        return json.loads(text if isinstance(text, str) else text.decode())
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def _require_regular(path: Path, found: os.stat_result, how: str) -> None:
    if not stat.S_ISREG(found.st_mode):
        what = "a folder" if stat.S_ISDIR(found.st_mode) else "a pipe, a device or the like"
        raise ValueError(f"{path} must be a regular file, it is {what}")
    if how != "read" and found.st_nlink > 1:
        raise ValueError(
            f"{path} has {found.st_nlink} names (hard links), and writing would change all of them; put a copy in its "
            "place"
        )
