"""The manifest of a checkpoint: what it says, and whether the files it names are what it says.

Sums show accidents. Against somebody who writes both a file and its sum, everything that is read is checked.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import safetensors
import safetensors.numpy

from cramerl._folders import ARRAY_BYTES, open_inside, parse_json, read_inside
from cramerl._version import __version__
from cramerl.deep.trees import Arrays, Damaged

FORMAT = 4
STATE, MANIFEST = "state.safetensors", "manifest.json"


def record_of(data: bytes) -> dict[str, Any]:
    """What a manifest says about a file."""
    return {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def make_manifest(info: dict[str, Any], live: tuple[int, int] | None, files: dict[str, Any]) -> dict[str, Any]:
    """The manifest of a checkpoint with the live rows [start, stop), from the records of its files by name."""
    info = info | {"rows": live} if live else info
    content = {"format": FORMAT, "cramerl": __version__, "info": info, "rows": live, "files": files}
    content = json.loads(json.dumps(content, allow_nan=False))  # as it will be read: tuples become lists, keys strings
    return content | {"sha256": _digest(content)}


def _digest(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def read_manifest(number: int, path: Path) -> dict[str, Any]:
    """The manifest in the folder of a checkpoint; Damaged if it cannot be used."""
    refusal = f"checkpoint {number:06d} cannot be used: {MANIFEST}"
    try:
        content = read_inside(path.parent.parent, f"{path.parent.name}/{path.name}/{MANIFEST}")
    except OSError as error:
        raise Damaged(f"{refusal} cannot be read ({error.strerror})") from error
    except ValueError as error:
        raise Damaged(f"{refusal}: {error}") from error
    try:
        manifest = parse_json(content)
    except ValueError as error:
        raise Damaged(f"{refusal} is not JSON ({error})") from error
    if not isinstance(manifest, dict):
        raise Damaged(f"{refusal} must be a JSON object, got {type(manifest).__name__}")
    if manifest.get("format") != FORMAT:  # before its hash, which another format may compute differently
        found, version = manifest.get("format"), manifest.get("cramerl")
        raise Damaged(
            f"{refusal} has format {found}, written by cramerl {version}; cramerl {__version__} reads format {FORMAT}"
        )
    if manifest.pop("sha256", None) != _digest(manifest):
        raise Damaged(f"{refusal} has been altered: its sha256 does not match its content")
    _require_manifest(manifest, refusal)
    if manifest["info"]["iteration"] != number:
        raise Damaged(f"{refusal} belongs to iteration {manifest['info']['iteration']}")
    return manifest


def _require_manifest(manifest: dict[str, Any], refusal: str) -> None:
    """Check the parts that are used: anybody can write a sum that matches what he wrote."""
    info, files, rows = (manifest.get(name) for name in ("info", "files", "rows"))
    if not isinstance(info, dict) or not isinstance(info.get("iteration"), int):
        raise Damaged(f"{refusal} has no info of an iteration")
    if not isinstance(files, dict) or STATE not in files:
        raise Damaged(f"{refusal} does not name {STATE}")
    for name, record in files.items():
        if not isinstance(record, dict) or not isinstance(record.get("bytes"), int) or "sha256" not in record:
            raise Damaged(f"{refusal} must have bytes and sha256 of {name!r}, got {record!r}")
    if rows is not None and not (isinstance(rows, list) and len(rows) == 2 and all(isinstance(r, int) for r in rows)):
        raise Damaged(f"{refusal} must have two integers as rows, got {rows!r}")
    if rows != info.get("rows"):
        raise Damaged(f"{refusal} has rows {rows!r}, but info has {info.get('rows')!r}")


def read_arrays(number: int, folder: Path, name: str) -> Arrays:
    """The arrays of a file whose sum was right, which says little if somebody else wrote both."""
    try:
        return safetensors.numpy.load(read_inside(folder, name, most=ARRAY_BYTES))
    except (safetensors.SafetensorError, KeyError, TypeError, ValueError, OSError) as error:
        raise Damaged(f"checkpoint {number:06d} cannot be used: {name} holds no arrays ({error})") from error


def check_file(number: int, folder: Path, name: str, record: dict[str, Any]) -> None:
    """Raise Damaged unless a file is the one that its record describes."""
    refusal = f"checkpoint {number:06d} cannot be used: {name.rpartition('/')[2]}"
    try:
        with open_inside(folder, name, most=ARRAY_BYTES) as file:
            size = os.fstat(file.fileno()).st_size
            if size != record["bytes"]:
                raise Damaged(f"{refusal} has {size} bytes, but must have {record['bytes']}")
            if hashlib.file_digest(file, "sha256").hexdigest() != record["sha256"]:
                raise Damaged(f"{refusal} has been altered: its sha256 is not that in {MANIFEST}")
    except OSError as error:
        raise Damaged(f"{refusal} cannot be read ({error.strerror})") from error
    except Damaged:
        raise
    except ValueError as error:
        raise Damaged(f"{refusal}: {error}") from error
