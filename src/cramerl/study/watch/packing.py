"""From a recording to the numbers inside a page: whole numbers of a stated precision, in compressed chunks."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from cramerl.study.watch.recording import Recording, View
from cramerl.study.watch.tape import Chunk, Tape

PAGE_BYTES = 25_000_000
_PRECISIONS = (1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2, 2e-2)  # of a mass; of the range of returns for quantiles
_CHUNK_BYTES = 400_000
_PICTURE_SHARE = 0.6  # of the page, at most
_FRAME_BYTES = 200_000  # the page without its numbers, and what surrounds them


def pack(recording: Recording, *, start: int = 0, room: int = PAGE_BYTES) -> dict[str, Any]:
    """What the page's script reads, as plain values of JSON.

    Masses are rounded to the finest precision with which the page stays within ``room`` bytes. Pictures stay as they
    are, unless they would take most of it (few games flicker that much): then one stands for several steps.

    Args:
        recording: what to show.
        start: index of its first step, for a page that is sent more and more steps.
        room: bytes the page may have.
    """
    chunks, every = thin_pictures(recording.tape, start, int(_PICTURE_SHARE * room))
    pictures = [_plain(chunk) for chunk in chunks]
    numbers = _numbers(recording, ("action", "reward", "score", "episode", "came"))
    of_views = [_numbers(view, ("values", "total", "negative", "clipped")) for view in recording.views]
    used = sum(len(chunk[2]) for chunk in pictures) + sum(
        len(text) for some in (numbers, *of_views) for text in some.values()
    )
    left = max(room - _FRAME_BYTES - used, 1) // len(recording.views)
    views = [_view(view, start, left) | {"numbers": some} for view, some in zip(recording.views, of_views, strict=True)]
    return {
        "title": recording.title,
        "unit": recording.unit,
        "facts": [*recording.facts, *([f"a picture every {every} steps"] if every > 1 else [])],
        "actions": recording.actions,
        "labels": recording.labels,
        "start": start,
        "steps": len(recording),
        "picture": {
            "height": recording.tape.size[0],
            "width": recording.tape.size[1],
            "palette": [f"#{colour.tobytes().hex()}" for colour in recording.palette],
            "legend": recording.legend,
            "caption": recording.caption,
            "chunks": pictures,
        },
        "numbers": numbers,
        "views": views,
    }


def thin_pictures(tape: Tape, start: int, room: int) -> tuple[list[Chunk], int]:
    """Chunks of pictures that fit into ``room`` bytes, and how many steps a picture stands for: one wherever it can."""
    chunks, every = tape.chunks(), 1
    while sum(4 * len(chunk.data) // 3 for chunk in chunks) > room and every < 64:
        every *= 2
        thinned, held = Tape(tape.size, start), tape[0]
        for i in range(len(tape)):
            held = tape[i].copy() if i % every == 0 else held
            thinned.append(held)
        chunks = thinned.chunks()
    return chunks, every


def _view(view: View, start: int, room: int) -> dict[str, Any]:
    precision = _precision(view, room)
    return {
        "name": view.name,
        "agent": view.agent,
        "kind": view.kind,
        "atoms": [float(f"{atom:.7g}") for atom in view.atoms],
        "places": view.laws.shape[2],
        "precision": precision,
        "range": _range(view),
        "laws": [_plain(chunk) for chunk in pack_laws(view.laws, precision, start)],
    }


def pack_laws(laws: np.ndarray, precision: float, start: int = 0) -> list[Chunk]:
    """Chunks of 16-bit whole numbers, in units of ``precision``; a step as its difference from the one before.

    All low bytes of a chunk come before all high bytes, which are mostly the same and take next to no room.
    """
    size = laws.shape[1] * laws.shape[2]
    whole = np.clip(np.rint(laws.reshape(len(laws), size) / precision), -32768, 32767).astype("<i2")
    per_chunk = max(16, _CHUNK_BYTES // (2 * size))
    chunks = []
    for first in range(0, len(whole), per_chunk):
        part = whole[first : first + per_chunk]
        changes = np.diff(part, axis=0, prepend=np.zeros((1, size), "<i2"))  # wraps around, and back in the page
        planes = np.ascontiguousarray(changes.astype("<i2").reshape(-1, 1).view(np.uint8).T)
        chunks.append(Chunk(start + first, len(part), zlib.compress(planes.tobytes(), 6)))
    return chunks


def _precision(view: View, room: int) -> float:
    """The finest precision that fits, judged by a sample of the steps."""
    unit = 1.0
    if view.kind == "quantiles":
        low, high = _range(view)["x"]
        unit = max(high - low, 1e-6) / 2
    # Beyond 16 bits a number would be cut.
    least = float(np.max(np.abs(view.laws), initial=0)) / 32_000
    allowed = [p * unit for p in _PRECISIONS if p * unit >= least] or [least]
    length = 256
    places = range(0, len(view.laws), max(length, len(view.laws) // 8))
    sample = [view.laws[place : place + length] for place in places]
    share = sum(map(len, sample)) / len(view.laws)
    for precision in allowed:
        packed = sum(len(chunk.data) for part in sample for chunk in pack_laws(part, precision))
        if packed / share * 4 / 3 <= room:
            return precision
    return allowed[-1]


def _range(view: View) -> dict[str, Sequence[float]]:
    """What charts must have room for: returns, and masses but for the odd one out."""
    if view.kind == "masses":
        x = (view.atoms[0], view.atoms[-1])
        top = np.quantile(view.laws.max(axis=(1, 2)), 0.99)
        bottom = np.quantile(view.laws.min(axis=(1, 2)), 0.01)
    else:
        x = (np.quantile(view.laws, 0.001), np.quantile(view.laws, 0.999))
        top, bottom = 1 / view.laws.shape[2], 0.0
    return {"x": [float(x[0]), float(x[1])], "y": [min(float(bottom), 0.0), max(float(top), 1e-6)]}


def _plain(chunk: Chunk) -> list[Any]:
    return [chunk.start, chunk.steps, base64.b64encode(chunk.data).decode()]


def _numbers(holder: Recording | View, names: Sequence[str]) -> dict[str, str]:
    return {name: _floats(getattr(holder, name)) for name in names}


def _floats(values: np.ndarray) -> str:
    """Numbers as 32-bit floats, bytes of the same rank together."""
    flat = np.ascontiguousarray(np.asarray(values, "<f4").reshape(-1, 1).view(np.uint8).T)
    return base64.b64encode(zlib.compress(flat.tobytes(), 9)).decode()
