"""From a recording to the data inside a page: 16-bit integers and 32-bit floats, in compressed chunks."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Callable, Collection, Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from cramerl.watching.recording import Chunk, Recording, Tape, View

PAGE_BYTES = 25_000_000
_PRECISION = 1e-4  # of a mass, and of half the range of quantiles; coarser only if 16 bits would not hold a number
_CHUNK_BYTES = 200_000
_PICTURE_FRACTION = 0.6  # fraction of the page that pictures may take
_MOST_HELD = 64  # steps that one picture or one distribution may be shown for
_OVERHEAD_BYTES = 200_000  # the page without its data, and what surrounds them


def pack(
    recording: Recording, *, start: int = 0, page_bytes: int = PAGE_BYTES, exact: Collection[int] = ()
) -> dict[str, Any]:
    """What the script of the page reads, as plain values of JSON.

    Every step has a picture and distributions, unless they take too many bytes: then a picture, or the distributions of
    all agents, are shown for 2, 4, 8, ... steps, and a fact says so.

    Args:
        recording: what to show.
        start: index of its first step, for a page that receives more and more steps.
        page_bytes: most bytes that the page may have.
        exact: steps that always have their own distributions.
    """
    (pictures,), steps_per_picture = _fit(
        lambda every: [_thinned(recording.tape, every).chunks()], int(_PICTURE_FRACTION * page_bytes)
    )
    names = ("action", "reward", "score", "episode", "realised") if recording.visits is None else ("action", "visits")
    names += ("cut",) if recording.cut is not None else ()
    numbers = {name: _floats(getattr(recording, name)) for name in names}
    views = [_describe(view) for view in recording.views]
    used = sum(len(text) for some in (numbers, *(view["numbers"] for view in views)) for text in some.values())
    distributions, steps_per_distribution = _fit(
        lambda every: [
            pack_distributions(view.distributions[_held(len(recording), every, exact)], described["precision"])
            for view, described in zip(recording.views, views, strict=True)
        ],
        page_bytes - _OVERHEAD_BYTES - used - _sent(pictures),
    )
    facts = list(recording.facts)
    facts += [f"each picture stands for {steps_per_picture} steps"] if steps_per_picture > 1 else []
    facts += [f"the bars stand for {steps_per_distribution} steps"] if steps_per_distribution > 1 else []
    return {
        "title": recording.title,
        "unit": recording.unit,
        "facts": facts,
        "actions": recording.actions,
        "labels": recording.labels,
        "returns": recording.returns,
        "start": start,
        "steps": len(recording),
        "picture": {
            "height": recording.tape.size[0],
            "width": recording.tape.size[1],
            "palette": [f"#{colour.tobytes().hex()}" for colour in recording.palette],
            "legend": recording.legend,
            "caption": recording.caption,
            "chunks": _plain(pictures, start),
        },
        "numbers": numbers,
        "views": [
            view | {"distributions": _plain(chunks, start)} for view, chunks in zip(views, distributions, strict=True)
        ],
    }


def pack_distributions(distributions: np.ndarray, precision: float) -> list[Chunk]:
    """Chunks of 16-bit integers, in units of ``precision``; a step as its difference from the one before.

    All low bytes of a chunk come before all high bytes, which are mostly equal and compress to almost nothing.
    """
    size = distributions.shape[1] * distributions.shape[2]
    whole = np.clip(np.rint(distributions.reshape(len(distributions), size) / precision), -32768, 32767).astype("<i2")
    per_chunk = max(16, _CHUNK_BYTES // (2 * size))
    chunks = []
    for first in range(0, len(whole), per_chunk):
        part = whole[first : first + per_chunk]
        changes = np.diff(part, axis=0, prepend=np.zeros((1, size), "<i2"))  # wraps around, and back in the page
        planes = np.ascontiguousarray(changes.astype("<i2").reshape(-1, 1).view(np.uint8).T)
        chunks.append(Chunk(len(part), zlib.compress(planes.tobytes(), 6)))
    return chunks


def _fit(pack: Callable[[int], list[list[Chunk]]], room: int) -> tuple[list[list[Chunk]], int]:
    """Chunks of at most ``room`` bytes, and for how many steps each picture or distribution is shown."""
    every = 1
    while (size := sum(map(_sent, packed := pack(every)))) > room and every < _MOST_HELD:
        # Twice the steps take half the bytes at best, so no power of two that would fit is skipped.
        every = min(_MOST_HELD, every * 2 ** max(1, int(np.log2(size / max(room, 1)))))
    return packed, every


def _thinned(tape: Tape, every: int) -> Tape:
    """A tape on which every picture is shown for ``every`` steps."""
    return tape if every == 1 else Tape(tape.size, (tape[step] for step in _held(len(tape), every)))


def _held(steps: int, every: int, exact: Collection[int] = ()) -> np.ndarray:
    """Which step's data each step shows: its own every ``every`` steps and where exact, otherwise the last one's."""
    shown = np.zeros(steps, int)
    for own in (np.arange(0, steps, every), np.array([step for step in exact if step < steps], int)):
        shown[own] = own
    return np.maximum.accumulate(shown)


def _describe(view: View) -> dict[str, Any]:
    """What the page knows of an agent, without its distributions."""
    returns, masses = view.limits()
    scale = 1.0 if view.kind == "masses" else max(returns[1] - returns[0], 1e-6) / 2
    largest = float(np.max(np.abs(view.distributions), initial=0))
    return {
        "name": view.name,
        "kind": view.kind,
        "atoms": [float(f"{atom:.7g}") for atom in view.atoms],
        "size": view.distributions.shape[2],
        "precision": max(_PRECISION * scale, largest / 32_000),
        "limits": {"x": returns, "y": masses},
        "numbers": {name: _floats(getattr(view, name)) for name in ("values", "total", "negative", "clipped")},
    }


def _plain(chunks: Sequence[Chunk], start: int) -> list[list[Any]]:
    """Index of the first step, number of steps and bytes of each chunk; the first one begins at ``start``."""
    starts = accumulate((chunk.steps for chunk in chunks), initial=start)  # and the end of the last one
    data = (base64.b64encode(chunk.data).decode() for chunk in chunks)
    return [[first, chunk.steps, text] for first, chunk, text in zip(starts, chunks, data, strict=False)]


def _sent(chunks: Sequence[Chunk]) -> int:
    """Bytes of chunks as text."""
    return sum(4 * (len(chunk.data) + 2) // 3 for chunk in chunks)


def _floats(values: np.ndarray) -> str:
    """Numbers as 32-bit floats, bytes of the same rank together."""
    flat = np.ascontiguousarray(np.asarray(values, "<f4").reshape(-1, 1).view(np.uint8).T)
    return base64.b64encode(zlib.compress(flat.tobytes(), 9)).decode()
