"""From a recording to the numbers inside a page: whole numbers of a stated precision, in compressed chunks."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from cramerl.watch.recording import Recording, View
from cramerl.watch.tape import Chunk, Tape

PAGE_BYTES = 25_000_000
_PRECISIONS = (1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2, 2e-2)  # of a mass; of the range of returns for quantiles
_CHUNK_BYTES = 200_000
_PICTURE_SHARE = 0.6  # of the page, at most
_MOST_HELD = 64  # steps that one picture or one distribution may stand for
_FRAME_BYTES = 200_000  # the page without its numbers, and what surrounds them


def pack(
    recording: Recording, *, start: int = 0, room: int = PAGE_BYTES, exact: Collection[int] = ()
) -> dict[str, Any]:
    """What the page's script reads, as plain values of JSON.

    Masses are rounded to the finest precision with which the page stays within ``room`` bytes. Pictures stay as they
    are, unless they would take most of it (few games flicker that much): then one stands for several steps. So do
    distributions where even the coarsest precision takes too much: several agents, many actions.

    Args:
        recording: what to show.
        start: index of its first step, for a page that is sent more and more steps.
        room: bytes the page may have.
        exact: steps that always have distributions of their own.
    """
    chunks, every = thin_pictures(recording.tape, start, int(_PICTURE_SHARE * room))
    pictures = [_plain(chunk) for chunk in chunks]
    numbers = _numbers(recording, ("action", "reward", "score", "episode", "came"))
    of_views = [_numbers(view, ("values", "total", "negative", "clipped")) for view in recording.views]
    used = sum(len(chunk[2]) for chunk in pictures) + sum(
        len(text) for some in (numbers, *of_views) for text in some.values()
    )
    views, coarser = _views(recording.views, start, room - _FRAME_BYTES - used, exact)
    return {
        "title": recording.title,
        "unit": recording.unit,
        "facts": [*recording.facts, *([f"a picture every {every} steps"] if every > 1 else []), *coarser],
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
        "views": [view | {"numbers": some} for view, some in zip(views, of_views, strict=True)],
    }


def thin_pictures(tape: Tape, start: int, room: int) -> tuple[list[Chunk], int]:
    """Chunks of pictures that fit into ``room`` bytes, and how many steps a picture stands for: one wherever it can."""
    chunks, every = tape.chunks(), 1
    while sum(4 * len(chunk.data) // 3 for chunk in chunks) > room and every < _MOST_HELD:
        every *= 2
        thinned, held = Tape(tape.size, start), tape[0]
        for i in range(len(tape)):
            held = tape[i].copy() if i % every == 0 else held
            thinned.append(held)
        chunks = thinned.chunks()
    return chunks, every


def _views(
    views: Sequence[View], start: int, room: int, exact: Collection[int]
) -> tuple[list[dict[str, Any]], list[str]]:
    """Views that share ``room``, where a small one leaves what it does not need to the others; and what to say."""
    packed: dict[int, dict[str, Any]] = {}
    words = {}
    for done, i in enumerate(sorted(range(len(views)), key=lambda i: views[i].distributions.size)):
        packed[i], every = _view(views[i], start, room // (len(views) - done), exact)
        room -= sum(len(chunk[2]) for chunk in packed[i]["distributions"])
        if every > 1:
            words[i] = f"bars of {views[i].name} every {every} steps"
    return [packed[i] for i in range(len(views))], [words[i] for i in sorted(words)]


def _view(view: View, start: int, room: int, exact: Collection[int]) -> tuple[dict[str, Any], int]:
    precision, every, chunks = _fit(view, start, room, exact)
    packed = {
        "name": view.name,
        "agent": view.agent,
        "kind": view.kind,
        "atoms": [float(f"{atom:.7g}") for atom in view.atoms],
        "places": view.distributions.shape[2],
        "precision": precision,
        "range": _range(view),
        "distributions": [_plain(chunk) for chunk in chunks],
    }
    return packed, every


def pack_distributions(distributions: np.ndarray, precision: float, start: int = 0) -> list[Chunk]:
    """Chunks of 16-bit whole numbers, in units of ``precision``; a step as its difference from the one before.

    All low bytes of a chunk come before all high bytes, which are mostly the same and take next to no room.
    """
    size = distributions.shape[1] * distributions.shape[2]
    whole = np.clip(np.rint(distributions.reshape(len(distributions), size) / precision), -32768, 32767).astype("<i2")
    per_chunk = max(16, _CHUNK_BYTES // (2 * size))
    chunks = []
    for first in range(0, len(whole), per_chunk):
        part = whole[first : first + per_chunk]
        changes = np.diff(part, axis=0, prepend=np.zeros((1, size), "<i2"))  # wraps around, and back in the page
        planes = np.ascontiguousarray(changes.astype("<i2").reshape(-1, 1).view(np.uint8).T)
        chunks.append(Chunk(start + first, len(part), zlib.compress(planes.tobytes(), 6)))
    return chunks


def _fit(view: View, start: int, room: int, exact: Collection[int]) -> tuple[float, int, list[Chunk]]:
    """The finest precision that fits into ``room``, how many steps each distribution stands for, and the packed data.

    A sample of the steps says where to begin; what is packed in the end is measured.
    """
    ways = _ways(view)
    chunks = []
    for precision, every in ways[_first_that_fits(view, ways, room) :]:
        chunks = pack_distributions(view.distributions[_held(len(view.distributions), every, exact)], precision, start)
        if _sent(chunks) <= room:
            return precision, every, chunks
    return *ways[-1], chunks


def _ways(view: View) -> list[tuple[float, int]]:
    """Precisions and steps for each distribution, from the best to the smallest."""
    unit = 1.0
    if view.kind == "quantiles":
        low, high = _range(view)["x"]
        unit = max(high - low, 1e-6) / 2
    # Beyond 16 bits a number would be cut.
    least = float(np.max(np.abs(view.distributions), initial=0)) / 32_000
    allowed = [p * unit for p in _PRECISIONS if p * unit >= least] or [least]
    held = [2**i for i in range(1, _MOST_HELD.bit_length())]
    return [*((precision, 1) for precision in allowed), *((allowed[-1], every) for every in held)]


def _first_that_fits(view: View, ways: Sequence[tuple[float, int]], room: int) -> int:
    """Judged by a sample of the steps; the last where none does."""
    length = 256
    places = range(0, len(view.distributions), max(length, len(view.distributions) // 8))
    sample = [view.distributions[place : place + length] for place in places]
    share = sum(map(len, sample)) / len(view.distributions)
    for i, (precision, every) in enumerate(ways):
        if sum(_sent(pack_distributions(part[_held(len(part), every)], precision)) for part in sample) / share <= room:
            return i
    return len(ways) - 1


def _held(steps: int, every: int, exact: Collection[int] = ()) -> np.ndarray:
    """Which step's distribution each step shows: its own every ``every`` steps and where exact, else the last one's."""
    shown = np.zeros(steps, int)
    for own in (np.arange(0, steps, every), np.array([step for step in exact if step < steps], int)):
        shown[own] = own
    return np.maximum.accumulate(shown)


def _sent(chunks: Sequence[Chunk]) -> int:
    """Bytes of chunks as text."""
    return sum(4 * (len(chunk.data) + 2) // 3 for chunk in chunks)


def _range(view: View) -> dict[str, Sequence[float]]:
    """What charts must have room for: returns, and masses but for the odd one out."""
    if view.kind == "masses":
        x = (view.atoms[0], view.atoms[-1])
        top = np.quantile(view.distributions.max(axis=(1, 2)), 0.99)
        bottom = np.quantile(view.distributions.min(axis=(1, 2)), 0.01)
    else:
        x = (np.quantile(view.distributions, 0.001), np.quantile(view.distributions, 0.999))
        top, bottom = 1 / view.distributions.shape[2], 0.0
    return {"x": [float(x[0]), float(x[1])], "y": [min(float(bottom), 0.0), max(float(top), 1e-6)]}


def _plain(chunk: Chunk) -> list[Any]:
    return [chunk.start, chunk.steps, base64.b64encode(chunk.data).decode()]


def _numbers(holder: Recording | View, names: Sequence[str]) -> dict[str, str]:
    return {name: _floats(getattr(holder, name)) for name in names}


def _floats(values: np.ndarray) -> str:
    """Numbers as 32-bit floats, bytes of the same rank together."""
    flat = np.ascontiguousarray(np.asarray(values, "<f4").reshape(-1, 1).view(np.uint8).T)
    return base64.b64encode(zlib.compress(flat.tobytes(), 9)).decode()
