"""Scalars in TensorBoard's event files, read without TensorFlow.

An event file is a sequence of records, each a length, a checksum of it, a message and its checksum. A message is in the
wire format of protocol buffers (https://protobuf.dev/programming-guides/encoding), of which an event needs little:

    Event: step = 2, summary = 5      Value: tag = 1, simple_value = 2, tensor = 8
    Summary: value = 1                TensorProto: dtype = 1, shape = 2, content = 4, and float_val = 5,
                                                   double_val = 6, int_val = 7, int64_val = 10
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from cramerl.evidence.foreign.run_logs import LARGEST_STEP

_CONTENTS = {1: "f", 2: "d", 3: "i", 9: "q"}  # how numbers of a dtype are packed
_FORMS = {5: "f", 6: "d", 7: "i", 10: "q"}
_VARINT, _EIGHT_BYTES, _SIZED, _FOUR_BYTES = 0, 1, 2, 5


class Scalar(NamedTuple):
    """A number that was logged."""

    tag: str
    step: int
    value: float


def read_scalars(data: bytes, file: Path, tags: Sequence[str] | None = None) -> Iterator[Scalar]:
    """The scalars in an event file, in order; a last record that was cut short is left out.

    Args:
        data: the content of the file.
        file: what errors are about.
        tags: only these; None for all.
    """
    wanted = None if tags is None else [tag.encode() for tag in tags]
    for place, record, checksum in _records(data, file):
        # Files hold many other numbers: those records are neither checked nor decoded.
        if wanted is not None and not any(tag in record for tag in wanted):
            continue
        if _masked_crc(record) != checksum:
            raise ValueError(f"{file} is damaged: the record at byte {place:,} has another checksum")
        try:
            yield from (scalar for scalar in _scalars(record) if tags is None or scalar.tag in tags)
        except (ValueError, IndexError, struct.error) as error:
            raise ValueError(f"{file} has a record at byte {place:,} that is not an event: {error}") from None


def _records(data: bytes, file: Path) -> Iterator[tuple[int, bytes, int]]:
    """The place, content and checksum of each whole record."""
    place = 0
    while place + 12 <= len(data):
        length, checksum = struct.unpack_from("<QI", data, place)
        if _masked_crc(data[place : place + 8]) != checksum:
            what = "is damaged" if place else "is not an event file of TensorBoard"
            raise ValueError(f"{file} {what}: the length at byte {place:,} has another checksum")
        start = place + 12
        if start + length + 4 > len(data):
            return
        yield place, data[start : start + length], struct.unpack_from("<I", data, start + length)[0]
        place = start + length + 4


def _scalars(record: bytes) -> Iterator[Scalar]:
    """The scalars of an event."""
    step, summaries = 0, []
    for field, kind, value in _fields(record):
        if (field, kind) == (2, _VARINT):
            step = value
        elif (field, kind) == (5, _SIZED):
            summaries.append(value)
    for summary in summaries:
        for field, kind, value in _fields(summary):
            if (field, kind) == (1, _SIZED) and (scalar := _scalar(value, step)) is not None:
                yield scalar


def _scalar(message: bytes, step: int) -> Scalar | None:
    tag, number = "", None
    for field, kind, value in _fields(message):
        if (field, kind) == (1, _SIZED):
            tag = value.decode(errors="replace")
        elif (field, kind) == (2, _FOUR_BYTES):
            (number,) = struct.unpack("<f", value)
        elif (field, kind) == (8, _SIZED):
            number = _tensor(value)
    if number is None:
        return None
    if step >= LARGEST_STEP:  # negative steps are such too
        raise ValueError(f"the step of {tag[:60]!r} is out of range")
    return Scalar(tag, step, number)


def _tensor(message: bytes) -> float | None:
    """The number in a tensor of one number, None for other tensors: newer writers log scalars so."""
    dtype, held = 0, None
    for field, kind, value in _fields(message):
        if (field, kind) == (1, _VARINT):
            dtype = value
        elif (field, kind) == (2, _SIZED) and value:
            return None  # it has a shape
        elif field in _FORMS or field == 4:
            if held is not None:
                return None
            held = field, value
    if held is None:
        return None
    field, value = held
    form = _CONTENTS.get(dtype) if field == 4 else _FORMS[field]
    if form is None:
        return None
    if isinstance(value, bytes) and form in "iq" and field != 4:  # packed, as one number of several bytes
        value, end = _varint(value, 0)
        if end != len(held[1]):
            return None
    if isinstance(value, int):
        return float(value - 2**64 if value >= 2**63 else value)
    return struct.unpack(f"<{form}", value)[0] if len(value) == struct.calcsize(f"<{form}") else None


def _fields(message: bytes) -> Iterator[tuple[int, int, Any]]:
    """The number, wire type and value of each field."""
    place = 0
    while place < len(message):
        key, place = _varint(message, place)
        field, kind = key >> 3, key & 7
        if kind == _VARINT:
            value, place = _varint(message, place)
        else:
            length = {_EIGHT_BYTES: 8, _FOUR_BYTES: 4}.get(kind)
            if kind == _SIZED:
                length, place = _varint(message, place)
            if length is None or place + length > len(message):
                raise ValueError(f"field {field} is cut short or of an unknown kind")
            value, place = message[place : place + length], place + length
        yield field, kind, value


def _varint(message: bytes, place: int) -> tuple[int, int]:
    """A number of up to ten bytes, the least significant first, and the place after it."""
    value = 0
    for i in range(10):
        byte = message[place + i]
        value |= (byte & 127) << (7 * i)
        if byte < 128:
            return value, place + i + 1
    raise ValueError("a number has more than ten bytes")


def _crc_table() -> list[int]:
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = (byte >> 1) ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


_CRC = _crc_table()


def _masked_crc(data: bytes) -> int:
    """The checksum of records: CRC-32C, rotated by 15 bits, plus a constant."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _CRC[(crc ^ byte) & 255] ^ (crc >> 8)
    crc ^= 0xFFFFFFFF
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF
