"""Event files of TensorBoard, written by the libraries that people use, and by hand."""

from __future__ import annotations

import struct
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cramerl.evidence.foreign.event_files import _masked_crc, read_scalars

TAG = "charts/episodic_return"
VALUES = [(100 * i, float(i * i)) for i in range(1, 8)]


def events(folder: Path, writer: Any) -> bytes:
    """A file with returns, and with things that are not scalars."""
    writer.add_text("hyperparameters", "|param|value|")
    for step, value in VALUES:
        writer.add_scalar(TAG, value, step)
        writer.add_scalar("losses/td_loss", -value, step)
    writer.close()
    (file,) = folder.iterdir()
    return file.read_bytes()


def record(message: bytes) -> bytes:
    """A record as the format says."""
    length = struct.pack("<Q", len(message))
    return length + struct.pack("<I", _masked_crc(length)) + message + struct.pack("<I", _masked_crc(message))


@pytest.mark.parametrize("library", ["tensorboardX", "torch.utils.tensorboard"])
def test_what_summary_writers_write_is_read(tmp_path, library):
    module = pytest.importorskip(library)
    data = events(tmp_path, module.SummaryWriter(str(tmp_path)))
    found = list(read_scalars(data, tmp_path, [TAG]))
    assert [(one.step, one.value) for one in found] == VALUES
    assert {one.tag for one in read_scalars(data, tmp_path)} == {TAG, "losses/td_loss"}


def test_scalars_that_are_tensors_are_read(tmp_path):
    """As TensorFlow 2 writes them."""
    proto = pytest.importorskip("tensorboardX.proto.event_pb2")
    for tensor in (
        {"dtype": 1, "float_val": [2.5], "tensor_shape": {}},
        {"dtype": 2, "double_val": [2.5], "tensor_shape": {}},
        {"dtype": 1, "tensor_content": struct.pack("<f", 2.5)},
        {"dtype": 2, "tensor_content": struct.pack("<d", 2.5)},
        {"dtype": 3, "tensor_content": struct.pack("<i", -300)},
        {"dtype": 9, "tensor_content": struct.pack("<q", -300)},
        {"dtype": 3, "int_val": [-300]},
        {"dtype": 9, "int64_val": [-300]},
    ):
        event = proto.Event(step=7)
        event.summary.value.add(tag=TAG, tensor=tensor)
        expected = 2.5 if tensor["dtype"] in (1, 2) else -300
        assert list(read_scalars(record(event.SerializeToString()), tmp_path)) == [(TAG, 7, expected)]
    event = proto.Event(step=7)
    event.summary.value.add(
        tag=TAG, tensor={"dtype": 1, "float_val": [1.0, 2.0], "tensor_shape": {"dim": [{"size": 2}]}}
    )
    assert list(read_scalars(record(event.SerializeToString()), tmp_path)) == []
    for tensor in ({"dtype": 19, "tensor_content": b"\x00\x3c"}, {"dtype": 1, "float_val": [1.0, 2.0]}):
        event = proto.Event(step=7)
        event.summary.value.add(tag=TAG, tensor=tensor)
        assert list(read_scalars(record(event.SerializeToString()), tmp_path)) == []


def test_the_fields_of_a_tensor_are_read_once():
    """A tensor of many empty contents took hours."""
    message = bytes([4 << 3 | 2, 0]) * 100_000
    inner = bytes([8 << 3 | 2]) + varint(len(message)) + message
    value = bytes([1 << 3 | 2]) + varint(len(inner)) + inner
    assert list(read_scalars(record(bytes([5 << 3 | 2]) + varint(len(value)) + value), Path("f"))) == []


def varint(number: int) -> bytes:
    out = b""
    while number > 127:
        out, number = out + bytes([number & 127 | 128]), number >> 7
    return out + bytes([number])


def test_the_checksum_is_crc_32c():
    # The check value of the catalogue of CRCs, rotated and shifted as records have it.
    crc = 0xE3069283
    assert _masked_crc(b"123456789") == ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def test_a_cut_end_is_left_out_and_damage_is_an_error(tmp_path):
    writers = pytest.importorskip("tensorboardX")
    data = events(tmp_path / "a", writers.SummaryWriter(str(tmp_path / "a")))
    cut = list(read_scalars(data[:-3], Path("f"), ["losses/td_loss"]))
    assert len(cut) == len(VALUES) - 1
    place = data.rindex(TAG.encode())
    damaged = data[:place] + b"X" + data[place + 1 :]
    with pytest.raises(ValueError, match=r"f is damaged: the record at byte [\d,]+ has another checksum"):
        list(read_scalars(damaged, Path("f")))
    with pytest.raises(ValueError, match="f is not an event file of TensorBoard"):
        list(read_scalars(b"something else that is long enough", Path("f")))


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=60))
def test_records_of_anything_are_read_or_a_sentence(message):
    with suppress(ValueError):  # and no other error
        list(read_scalars(record(b"*\x02\n" + message), Path("f")))


def test_steps_below_zero_are_refused(tmp_path):
    proto = pytest.importorskip("tensorboardX.proto.event_pb2")
    event = proto.Event(step=-1)
    event.summary.value.add(tag=TAG, simple_value=1.0)
    with pytest.raises(ValueError, match="the step of 'charts/episodic_return' is out of range"):
        list(read_scalars(record(event.SerializeToString()), tmp_path))
