"""Files that are either whole or not there."""

from __future__ import annotations

import errno
import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any


def write_whole(path: Path, write: Callable[[Path], Any]) -> Path:
    """Let ``write`` fill a temporary file beside ``path``, then put it in place in one step.

    Whatever happens in between (Ctrl-C, a full disk), ``path`` is the old file or the new one, never half of one.
    The temporary file keeps the suffix, by which writers such as matplotlib choose their format.
    """
    if path.exists() and not path.is_file():  # a rename would take the place of a device or a pipe
        raise OSError(errno.EINVAL, "is no file that can be written anew", str(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.stem}-{os.getpid()}{path.suffix}")
    try:
        write(temporary)
        temporary.replace(path)
    except OSError as error:  # name the file the caller asked for, not the temporary one
        raise OSError(error.errno, error.strerror or str(error), str(path)) from error
    finally:
        temporary.unlink(missing_ok=True)
    return path


def require_writable(path: Path) -> None:
    """What cannot be written should not be made first."""
    if path.exists() and not path.is_file():  # a folder; or a device, which a new file would take the place of
        raise ValueError(f"the file to write must be new or an ordinary file, got {path}")
    folder = next(parent for parent in path.absolute().parents if parent.exists())
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ValueError(f"the file to write must be in a folder that can be written to, got {path}") from error


def write_json(path: Path, content: Any) -> Path:
    """Write JSON, whole or not at all. NaN and infinity are refused: they are not JSON."""
    return write_text(path, json.dumps(content, indent=2, allow_nan=False) + "\n")


def write_text(path: Path, text: str) -> Path:
    """Write text as UTF-8, whole or not at all."""
    return write_whole(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))
