"""Fitted features as plain values and arrays, and back, without running what a file holds."""

from __future__ import annotations

import io
import math
import re
import zipfile
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cramerl.linear.logs.cloud_features import Bumps, Cells, Waves
from cramerl.linear.logs.code_features import Combinations, Levels
from cramerl.linear.logs.column_features import Bins, Columns, Cosines, Hats, Scale

Arrays = dict[str, NDArray[Any]]

_KINDS: dict[str, Any] = {
    kind.__name__: kind for kind in (Scale, Columns, Bins, Hats, Cosines, Cells, Bumps, Waves, Levels, Combinations)
}
_MOST_ORDER = 1000
_ENCRYPTED = 1  # of the flags of an entry
_MAGIC = b"\x93NUMPY\x01\x00"
_HEADER = re.compile(
    r"\{'descr': '([<>|]?[biufU]\d{1,9})', 'fortran_order': (False|True), 'shape': \(([\d, ]*)\), \}\s*", re.ASCII
)


def pack(value: Any, arrays: Arrays) -> Any:
    """A value made of features, tuples, arrays and numbers as JSON; its arrays are added to ``arrays``."""
    if isinstance(value, np.ndarray):
        name = f"a{len(arrays)}"
        arrays[name] = value
        return {"array": name}
    if type(value).__name__ in _KINDS:
        fields = {field: pack(part, arrays) for field, part in zip(value._fields, value, strict=True)}
        return {"kind": type(value).__name__, "fields": fields}
    if isinstance(value, tuple):
        return {"items": [pack(part, arrays) for part in value]}
    return int(value)


def unpack(content: Any, arrays: Arrays) -> Any:
    """What was packed; ValueError, TypeError or KeyError if it is something else."""
    if isinstance(content, int):
        return int(content)
    if "array" in content:
        found = arrays[content["array"]]
        if found.dtype.kind == "f" and not np.isfinite(found).all():
            raise ValueError(f"the array {content['array']} holds numbers that are not finite")
        return found
    if "items" in content:
        return tuple(unpack(part, arrays) for part in content["items"])
    return _checked(_KINDS[content["kind"]](**{name: unpack(part, arrays) for name, part in content["fields"].items()}))


def read_arrays(data: bytes) -> Arrays:
    """The arrays of an .npz file that is not compressed: no more is in memory than the file holds."""
    found: Arrays = {}
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        if sum(entry.file_size for entry in archive.infolist()) > len(data):
            raise ValueError("its arrays are larger than the file")
        for entry in archive.infolist():
            if entry.compress_type != zipfile.ZIP_STORED or entry.flag_bits & _ENCRYPTED:
                raise ValueError(f"{entry.filename} is compressed or encrypted")
            found[entry.filename.removesuffix(".npy")] = _array_of(entry.filename, archive.read(entry))
    return found


def _array_of(name: str, data: bytes) -> NDArray[Any]:
    """The array in a .npy file as NumPy writes it; its header is matched, and never parsed as Python."""
    start = len(_MAGIC) + 2
    stop = start + int.from_bytes(data[len(_MAGIC) : start], "little")
    header = _HEADER.fullmatch(data[start:stop].decode("latin1"))
    if header is None or not data.startswith(_MAGIC):
        raise ValueError(f"{name} is not an array of version 1.0")
    dtype, shape = np.dtype(header[1]), tuple(map(int, re.findall(r"\d+", header[3])))
    if math.prod(shape) * dtype.itemsize != len(data) - stop:
        raise ValueError(f"{name} does not hold the numbers that it says it does")
    return np.frombuffer(data[stop:], dtype).reshape(shape, order="F" if header[2] == "True" else "C").copy()


def _checked(part: Any) -> Any:
    """A part of features whose arrays fit together; ValueError for others."""
    if isinstance(part, Scale):
        _require(part.columns.dtype.kind in "iu", part)
        _require(all(array.shape == part.columns.shape and array.ndim == 1 for array in part), part)
        _require(bool((part.width > 0).all() and (part.low < part.high).all()), part)
    elif isinstance(part, Bins):
        _require_each_column(part, part.edges)
        _require(all(_rising(edges) for edges in part.edges), part)
    elif isinstance(part, Hats | Cosines):
        _require_each_column(part, part.knots)
        _require(all(len(knots) >= 2 and _rising(knots) for knots in part.knots), part)
    if isinstance(part, Cosines):
        _require(0 < part.order <= _MOST_ORDER, part)
        _require_each_column(part, part.ranks)
        _require(all(a.shape == b.shape for a, b in zip(part.knots, part.ranks, strict=True)), part)
    elif isinstance(part, Bumps | Cells):
        count = len(part.centres)
        _require(part.centres.shape == (count, len(part.scale.columns) if count else 0), part)
    if isinstance(part, Bumps):
        _require(part.widths.shape == part.centres.shape[:1] and bool((part.widths > 0).all()), part)
    elif isinstance(part, Waves):
        _require(part.shifts.ndim == 1 and part.frequencies.ndim == 2, part)
        width = len(part.scale.columns) if part.frequencies.size else part.frequencies.shape[0]
        _require(part.frequencies.shape == (width, len(part.shifts)), part)
    elif isinstance(part, Combinations):
        _require(len(part.sizes) == len(part.pairs) and len(part.sizes) >= 2, part)
        _require(all(pairs.ndim == 1 and pairs.dtype.kind == "i" and len(pairs) for pairs in part.pairs), part)
    return part


def _require_each_column(part: Any, arrays: Iterable[Any]) -> None:
    arrays = tuple(arrays)
    _require(len(arrays) == len(part.scale.columns) and all(array.ndim == 1 for array in arrays), part)


def _rising(values: Any) -> bool:
    return bool((np.diff(values) > 0).all())


def _require(fits: bool, part: Any) -> None:
    if not fits:
        raise ValueError(f"the arrays of {type(part).__name__} do not fit together")
