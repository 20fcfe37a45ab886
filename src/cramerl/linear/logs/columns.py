"""Columns of tables as NumPy arrays, whatever library the table comes from: numbers, or codes of levels."""

from __future__ import annotations

import hashlib
from contextlib import suppress
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, NamedTuple
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from cramerl._arrays import Floats
from cramerl._extras import load_library


class Column(NamedTuple):
    """The values of a column, (n,) or (n, k)."""

    values: NDArray[Any]
    """Numbers, truth values or times; indices into the levels where there are levels."""
    missing: NDArray[np.bool_] | None = None
    """Which values are missing; None: none is."""
    levels: tuple[Any, ...] | None = None

    @property
    def width(self) -> int | None:
        """k of a column of lists; None of one with a value for each row."""
        return self.values.shape[1] if self.values.ndim == 2 else None

    def part(self, index: int) -> Column:
        """One of the k columns of a column of lists."""
        return self._replace(values=self.values[:, index])

    def missing_rows(self) -> NDArray[np.bool_]:
        """(n,) whether the value is missing."""
        return np.zeros(len(self.values), dtype=bool) if self.missing is None else self.missing

    def numbers(self, argument: str, name: str) -> Floats:
        """(n,) float64, NaN where missing; ValueError for levels."""
        if self.levels is not None:
            raise ValueError(f"{argument} must name columns of numbers, got {name!r}, which holds {self.describe()}")
        values = self.values
        if values.dtype.kind in "mM":
            values = _seconds(values)
        found = values.astype(np.float64)  # a copy, which may be written to
        if self.missing is not None:
            found[self.missing] = np.nan
        return found

    def keys(self) -> NDArray[Any]:
        """(n,) integers or floats that are equal and ordered as the values are; levels must be coded before."""
        kind = self.values.dtype.kind
        if kind not in "mM":
            return self.values.astype(np.float64 if kind == "f" else np.int64)
        if (np.abs(_seconds(self.values)) > 9.2e9).any():
            raise ValueError("times must be between the years 1679 and 2261, got others")
        return self.values.astype(f"{kind}8[ns]").astype(np.int64)

    def flags(self, argument: str, name: str) -> NDArray[np.bool_]:
        """(n,) truth values, False where missing; ValueError unless all are booleans or 0 and 1."""
        if self.levels is not None:
            raise ValueError(f"{argument} must name a column of booleans, got {name!r}, which holds {self.describe()}")
        found = np.nan_to_num(self.numbers(argument, name), nan=0.0)
        if not (fine := (found == 0) | (found == 1)).all():
            raise ValueError(f"{argument} must name a column of booleans, got {found[~fine][0]:g} in column {name!r}")
        return found == 1

    def times(self) -> Column | None:
        """Labels that are dates and times as ISO 8601 writes them, as times; None if some are not."""
        try:
            read = [_without_zone(datetime.fromisoformat(level)) for level in self.levels or ()]
        except (TypeError, ValueError):
            return None
        zones = {datetime.fromisoformat(level).tzinfo is None for level in self.levels or ()}
        if len(zones) > 1:  # some with a zone and some without have no order
            return None
        return Column(np.array(read, dtype="datetime64[us]")[self.values], self.missing)

    def whole(self) -> Column:
        """Floats that are whole numbers as integers; other columns as they are."""
        if self.levels is not None or self.values.dtype.kind != "f":
            return self
        present = self.values[~self.missing_rows()]
        if not (np.isfinite(present) & (np.floor(present) == present) & (np.abs(present) < 2**53)).all():
            return self
        return self._replace(values=np.where(self.missing_rows(), 0, self.values).astype(np.int64))

    def describe(self) -> str:
        """What the column holds, for errors."""
        if self.levels is not None:
            return f"labels such as {self.levels[0]!r}" if self.levels else "labels"
        kinds = {"b": "booleans", "f": "floats", "M": "times", "m": "durations"}
        return kinds.get(self.values.dtype.kind, "integers")


class Coder:
    """Codes of levels, in the order in which the levels are met; or, once sealed, of the levels met before."""

    def __init__(self, levels: tuple[Any, ...] = (), growing: bool = True):
        self.codes, self.growing = {level: code for code, level in enumerate(levels)}, growing

    def encode(self, argument: str, name: str, column: Column) -> NDArray[np.int32]:
        """(n,) codes; -1 where the value is missing, or where the coder does not grow and has not met the level."""
        levels, inverse = _levels(argument, name, column)
        if self.codes and levels:
            first = next(iter(self.codes))
            if isinstance(first, str) != isinstance(levels[0], str):
                raise ValueError(
                    f"{argument} must name a column of one type, got {first!r} and {levels[0]!r} in column {name!r}"
                )
        if self.growing:
            for level in levels:
                self.codes.setdefault(level, len(self.codes))
        table = np.array([*(self.codes.get(level, -1) for level in levels), -1], dtype=np.int32)
        return table[inverse]  # missing values have the inverse -1: the last entry

    def ranking(self) -> tuple[tuple[Any, ...], NDArray[np.int32]]:
        """The levels, sorted, and the rank of each code among them, with -1 for the code -1 (the last entry)."""
        levels = tuple(sorted(self.codes))
        ranks = np.full(len(levels) + 1, -1, dtype=np.int32)
        ranks[[self.codes[level] for level in levels]] = np.arange(len(levels))
        return levels, ranks


class Digester:
    """Codes of any number of labels, without a memory of them."""

    def encode(self, argument: str, name: str, column: Column) -> NDArray[np.int64]:
        """(n,) integers that differ where the labels do."""
        levels, inverse = _levels(argument, name, column)
        digests = (hashlib.blake2b(repr(level).encode(), digest_size=8).digest() for level in levels)
        return np.array([int.from_bytes(digest, "little", signed=True) for digest in digests], dtype=np.int64)[inverse]


def column_of_array(name: str, given: Any) -> Column:
    """A column from an array, a list or anything NumPy makes an array of."""
    mask = np.ma.getmaskarray(given) if isinstance(given, np.ma.MaskedArray) else None
    array = np.asarray(given)
    if array.ndim not in (1, 2):
        raise ValueError(f"column {name!r} must have shape (n,) or (n, k), got {array.shape}")
    if array.dtype.kind == "O":
        column = _column_of_objects(name, array)
    elif array.dtype.kind in "US" and array.ndim == 1:
        column = _column_of_labels(array)
    elif array.dtype.kind in "biufmM":
        gaps = np.zeros(array.shape, dtype=bool) if array.dtype.kind in "biu" else np.asarray(np.isnan(array))
        gaps = np.asarray(gaps.any(axis=1)) if array.ndim == 2 else gaps
        column = Column(array, gaps if gaps.any() else None)
    else:
        raise ValueError(f"column {name!r} must hold numbers, booleans, times or strings, got dtype {array.dtype}")
    if mask is not None and mask.any():
        mask = mask.any(axis=1) if mask.ndim == 2 else mask
        column = column._replace(missing=mask | column.missing_rows())
    return column


def column_of_arrow(name: str, array: Any) -> Column:
    """A column from an Arrow array."""
    types, compute = load_library("pyarrow.types"), load_library("pyarrow.compute")
    array = getattr(array, "storage", array)  # tensors and identifiers are stored as lists and bytes
    kind = array.type
    missing = array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None
    if types.is_dictionary(kind) and not _is_text(types, kind.value_type) and not types.is_integer(kind.value_type):
        array, kind = array.dictionary_decode(), kind.value_type
    if _is_text(types, kind):
        text = types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)
        array = array.cast("large_string" if text else "large_binary").dictionary_encode()
    if types.is_dictionary(array.type):
        codes = array.indices.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
        return Column(codes, missing, tuple(array.dictionary.to_pylist()))
    if types.is_null(kind):
        return Column(np.full(len(array), np.nan), missing)
    if types.is_boolean(kind) or types.is_integer(kind):
        return Column(array.fill_null(False if types.is_boolean(kind) else 0).to_numpy(zero_copy_only=False), missing)
    if types.is_floating(kind) or types.is_decimal(kind):
        values = array.cast("float64").to_numpy(zero_copy_only=False)
        gaps = np.isnan(values)
        return Column(values, gaps if gaps.any() else None)
    if types.is_timestamp(kind) or types.is_date(kind) or types.is_duration(kind):
        return Column(array.to_numpy(zero_copy_only=False), missing)
    if types.is_time(kind):
        ticks = compute.cast(compute.cast(array, "time64[ns]", safe=False), "int64")
        return Column(ticks.fill_null(0).to_numpy(zero_copy_only=False).view("m8[ns]"), missing)
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return _column_of_lists(name, array, kind)
    raise ValueError(
        f"column {name!r} must hold numbers, booleans, times, strings or lists of numbers, got type {kind}"
    )


def _is_text(types: Any, kind: Any) -> bool:
    text = types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)
    return text or types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind)


def _column_of_lists(name: str, array: Any, kind: Any) -> Column:
    types = load_library("pyarrow.types")
    if not (types.is_integer(kind.value_type) or types.is_floating(kind.value_type)):
        raise ValueError(f"column {name!r} must hold lists of numbers, got type {kind}")
    missing = array.is_null().to_numpy(zero_copy_only=False)
    present = array.drop_null() if array.null_count else array
    flat = present.flatten().to_numpy(zero_copy_only=False).astype(np.float64)
    width = len(flat) // max(1, len(present))
    if len(present) and (np.asarray(present.value_lengths()) != width).any():
        lengths = np.asarray(present.value_lengths())
        raise ValueError(
            f"column {name!r} must hold lists of one length, got lengths {lengths.min()} to {lengths.max()}"
        )
    values = np.full((len(array), width), np.nan)
    values[~missing] = flat.reshape(-1, width) if width else np.empty((len(present), 0))
    gaps = missing | np.isnan(values).any(axis=1)
    return Column(values, gaps if gaps.any() else None)


def _column_of_labels(array: NDArray[Any]) -> Column:
    levels, inverse = np.unique(array, return_inverse=True)
    names = levels.tolist()
    if array.dtype.kind == "S":
        with suppress(UnicodeDecodeError):  # bytes that are no text stay bytes
            names = [level.decode() for level in names]
    return Column(inverse.reshape(-1), None, tuple(names))


def _column_of_objects(name: str, array: NDArray[Any]) -> Column:
    """A column of Python objects, None and NaN where missing."""
    if array.ndim == 2:
        return column_of_array(name, array.astype(np.float64))
    missing = np.array([value is None or value != value for value in array], dtype=bool)
    present = array[~missing].tolist()
    if present and all(isinstance(value, UUID) for value in present):
        present = [str(value) for value in present]
    if present and all(isinstance(value, str) for value in present):
        found = _column_of_labels(np.array(present))
    elif all(isinstance(value, bool | np.bool_ | int | np.integer) for value in present):
        found = Column(np.asarray(present if present else [0.0][:0]))
    elif all(isinstance(value, int | float | Decimal | np.number) for value in present):
        found = Column(np.array([float(value) for value in present]))
    else:
        try:
            found = Column(np.array([_without_zone(value) for value in present], dtype="datetime64[us]"))
        except (TypeError, ValueError):
            kinds = ", ".join(sorted({type(value).__name__ for value in present}))
            raise ValueError(
                f"column {name!r} must hold values of one type: numbers, booleans, times or strings, got {kinds}"
            ) from None
    if not missing.any():
        return found
    values = np.zeros(len(array), dtype=found.values.dtype)
    values[~missing] = found.values
    return found._replace(values=values, missing=missing)


def _without_zone(value: Any) -> Any:
    """A time with a zone as a time in UTC."""
    zoned = isinstance(value, datetime) and value.tzinfo is not None
    return value.astimezone(UTC).replace(tzinfo=None) if zoned else value


def _seconds(times: NDArray[Any]) -> Floats:
    """Seconds since 1970, or of durations."""
    unit, count = np.datetime_data(times.dtype)
    if unit in ("Y", "M"):
        times, unit, count = times.astype(f"{times.dtype.kind}8[D]"), "D", 1
    step, second = np.timedelta64(count, unit), np.timedelta64(1, "s")
    ticks = times.astype(np.int64)
    return ticks * (step / second) if step >= second else ticks / (second / step)


def _levels(argument: str, name: str, column: Column) -> tuple[list[Any], NDArray[np.int64]]:
    """The levels that a column has, and the index of each value among them: -1 where it is missing."""
    column = column.whole()
    missing = column.missing_rows()
    if column.levels is None and column.values.dtype.kind not in "biu":
        allowed = "strings, integers or booleans"
        raise ValueError(f"{argument} must name columns of {allowed}, got {name!r}, which holds {column.describe()}")
    used, inverse = np.unique(column.values[~missing], return_inverse=True)
    levels = used.tolist() if column.levels is None else [column.levels[code] for code in used]
    found = np.full(len(missing), -1, dtype=np.int64)
    found[~missing] = inverse
    return levels, found
