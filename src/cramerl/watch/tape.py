"""Pictures of a whole episode in little memory: chunks of differences, compressed, as the page reads them."""

from __future__ import annotations

import zlib
from typing import NamedTuple

import numpy as np

_CHUNK_BYTES = 1_000_000  # what a browser unpacks in the time of a frame or two


class Chunk(NamedTuple):
    """Consecutive steps: the first one's index, how many, and their bytes, compressed by zlib."""

    start: int
    steps: int
    data: bytes


class Tape:
    """Pictures one after another; a chunk holds the first as it is, the others as exclusive-or with the one before.

    Args:
        size: height and width of a picture.
        start: index of the first picture.
    """

    def __init__(self, size: tuple[int, int], start: int = 0):
        self.size = size
        self._per_chunk = max(16, min(512, _CHUNK_BYTES // (size[0] * size[1])))
        self._chunks: list[Chunk] = []
        self._open: list[np.ndarray] = []
        self._next = start
        self._unpacked: tuple[int, np.ndarray] | None = None

    def __len__(self) -> int:
        return sum(chunk.steps for chunk in self._chunks) + len(self._open)

    def append(self, picture: np.ndarray) -> None:
        """Add a picture, (H, W) uint8."""
        if picture.shape != self.size or picture.dtype != np.uint8:
            raise ValueError(f"picture must be uint8 of shape {self.size}, got {picture.dtype} of {picture.shape}")
        self._open.append(picture.copy())
        if len(self._open) == self._per_chunk:
            self._close_chunk()

    def __getitem__(self, index: int) -> np.ndarray:
        """The picture at a position counted from 0."""
        if not 0 <= index < len(self):
            raise IndexError(index)
        chunk, place = divmod(index, self._per_chunk)
        if chunk == len(self._chunks):
            return self._open[place]
        if self._unpacked is None or self._unpacked[0] != chunk:
            one = self._chunks[chunk]
            flat = np.frombuffer(zlib.decompress(one.data), np.uint8).reshape(one.steps, *self.size)
            self._unpacked = chunk, np.bitwise_xor.accumulate(flat, axis=0)
        return self._unpacked[1][place]

    def chunks(self) -> list[Chunk]:
        """Everything so far; nothing can be added after this."""
        if self._open:
            self._close_chunk()
        return self._chunks

    def _close_chunk(self) -> None:
        pictures = np.stack(self._open)
        pictures[1:] ^= pictures[:-1].copy()
        self._chunks.append(Chunk(self._next, len(pictures), zlib.compress(pictures.tobytes(), 9)))
        self._next += len(pictures)
        self._open = []
