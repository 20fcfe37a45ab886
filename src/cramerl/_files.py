"""Files that are written completely or not at all."""

from __future__ import annotations

import errno
import json
import mmap
import os
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

_PICTURES = (".gif", ".mp4", ".pdf", ".png")


def write_whole(path: Path, write: Callable[[Path], Any]) -> Path:
    """Let ``write`` fill a temporary file beside ``path``, then move it to ``path`` in one step.

    Whatever happens meanwhile (Ctrl-C, a full disk), ``path`` is the old file or the new one, never half of one. The
    temporary file keeps the suffix, by which writers such as matplotlib choose their format.
    """
    if _is_special(path):
        raise OSError(errno.EINVAL, "is not a file that can be replaced", str(path))
    target = path.resolve()  # a link stays a link
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.stem}-{os.getpid()}{target.suffix}")
    try:
        temporary.unlink(missing_ok=True)  # a link of this name would be written through
        write(temporary)
        temporary.replace(target)
    except OSError as error:  # name the file the caller asked for, not the temporary one
        raise OSError(error.errno, error.strerror or str(error), str(path)) from error
    finally:
        with suppress(IsADirectoryError):
            temporary.unlink(missing_ok=True)
    return path


def _is_special(path: Path) -> bool:
    """Whether this is a folder, a device, a pipe, or another open file of a process: a rename would replace it."""
    if path.is_symlink() and path.readlink().is_relative_to("/proc"):
        return True
    return path.exists() and not path.is_file()


def require_writable(path: Path) -> None:
    """Raise ValueError if a file cannot be written, before work is done for it."""
    if _is_special(path):
        raise ValueError(f"the file to write must be new or a regular file, got {path}")
    folder = next(parent for parent in path.resolve().parents if parent.exists())
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ValueError(f"the file to write must be in a folder that can be written to, got {path}") from error


def is_made_by(path: Path, maker: str) -> bool:
    """Whether a file says that a command such as "cramerl watch" wrote it, in the way of its format.

    HTML has a generator, JSON ``made_by``, Markdown a sentence, SVG a title, other pictures a comment somewhere.
    """
    if _is_special(path):  # a pipe would be waited for
        return False
    try:
        if path.suffix.lower() in _PICTURES:
            with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
                return content.find(maker.encode()) >= 0
        with path.open(encoding="utf-8", errors="replace") as file:
            start = file.read(4000)
        marks = (f"{before}{maker}" for before in ('content="', '"made_by": "', "made by `", "<dc:title>"))
        return any(mark in start for mark in marks)
    except (OSError, ValueError):  # it cannot be read, or is empty
        return False


def require_replaceable(name: str, path: Path, maker: str, *, overwrite: bool = False) -> bool:
    """Raise ValueError if a file cannot be written, or would replace one of another maker; whether it replaces one.

    Args:
        name: of the argument, for the error.
        path: the file.
        maker: the command that writes it, such as "cramerl watch".
        overwrite: whether it may replace any file.
    """
    require_writable(path)
    if path.exists() and not overwrite and not is_made_by(path, maker):
        instead = f"choose another, or add {'--overwrite' if name.startswith('--') else 'overwrite=True'}"
        raise ValueError(f"{name} must be a new file or one that {maker} wrote, {path} is something else: {instead}")
    return path.exists()


def write_json(path: Path, content: Any) -> Path:
    """Write JSON, whole or not at all. NaN and infinity are refused: they are not JSON."""
    return write_text(path, json.dumps(content, indent=2, allow_nan=False) + "\n")


def write_text(path: Path, text: str) -> Path:
    """Write text as UTF-8, whole or not at all."""
    return write_whole(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def write_durably(path: Path, data: bytes) -> None:
    """Write bytes and wait until they are on the disk."""
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Put the names in a folder on the disk: otherwise a power cut can undo a rename."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_durable_folder(folder: Path) -> None:
    """Make a folder, with those above it, and put their names on the disk."""
    if not folder.is_dir():
        make_durable_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        sync_folder(folder.parent)
