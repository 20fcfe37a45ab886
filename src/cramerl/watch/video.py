"""The paper's kind of video: the game on the left, the chosen action's distribution on the right, a row per agent."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from cramerl import plots
from cramerl._files import write_whole
from cramerl.watch.picture import require_suffix
from cramerl.watch.recording import Recording, View

SUFFIXES = (".mp4", ".gif")
_HEIGHT, _LAW_WIDTH, _GAP = 420, 560, 20
_PAPER, _INK, _SOFT = (255, 255, 255), (27, 31, 36), (91, 99, 109)


def write_video(
    recording: Recording, path: str | Path, *, fps: int = 15, on_progress: Callable[[str], None] = lambda words: None
) -> Path:
    """Write a recording as a video that plays anywhere; no program but this one is needed.

    Args:
        recording: what to show.
        path: .mp4 (H.264) or .gif.
        fps: steps a second.
        on_progress: is told how far it is.
    """
    path = Path(path)
    require_suffix("--video", path, SUFFIXES)
    frames = _frames(recording, on_progress)
    if path.suffix.lower() == ".gif":
        return write_whole(path, lambda temporary: _write_gif(temporary, frames, fps, recording.palette))
    return write_whole(path, lambda temporary: _write_mp4(temporary, frames, fps))


def _write_mp4(path: Path, frames: Iterator[Any], fps: int) -> None:
    import av

    with av.open(str(path), "w", format="mp4", options={"movflags": "faststart"}) as container:
        stream: Any = container.add_stream("libx264", rate=Fraction(fps), options={"crf": "20", "preset": "fast"})
        stream.pix_fmt = "yuv420p"
        for i, frame in enumerate(frames):
            if i == 0:
                stream.width, stream.height = frame.size
            container.mux(stream.encode(av.VideoFrame.from_ndarray(np.asarray(frame), format="rgb24")))
        container.mux(stream.encode())


def _write_gif(path: Path, frames: Iterator[Any], fps: int, game: np.ndarray) -> None:
    """One palette for all frames, the game's colours and the charts': the first frame need not show them all."""
    from PIL import Image, ImageColor

    charts = [ImageColor.getrgb(name) for name in (plots.POSITIVE, plots.NEGATIVE)]
    colours = np.concatenate([np.array([_PAPER, _INK, _SOFT, *charts], np.uint8), game])
    palette = Image.fromarray(colours[None]).quantize(min(256, len(colours)))
    fitted = (frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames)
    first = next(fitted)
    # Browsers slow down what is faster than 50 a second.
    first.save(path, save_all=True, append_images=fitted, duration=max(20, round(1000 / fps)), loop=0)


def _frames(recording: Recording, on_progress: Callable[[str], None]) -> Iterator[Any]:
    """Pictures of even width and height, as the video format asks."""
    from PIL import Image, ImageDraw, ImageFont

    font, small = ImageFont.load_default(17), ImageFont.load_default(13)
    height, width = recording.tape.size
    scale = min(_HEIGHT / height, 560 / width)
    game = (max(2, round(width * scale)), max(2, round(height * scale)))
    size = (game[0] + 3 * _GAP + _LAW_WIDTH + 1) // 2 * 2, (_HEIGHT + 2 * _GAP + 30) // 2 * 2
    scales = _scales(recording)
    for step in range(len(recording)):
        image = Image.new("RGB", size, _PAPER)
        screen = Image.fromarray(recording.palette[recording.tape[step]])
        image.paste(screen.resize(game, Image.Resampling.NEAREST), (_GAP, _GAP))
        draw = ImageDraw.Draw(image)
        action = int(recording.action[step])
        words = f"step {step}   return so far {recording.score[step]:,.4g}   {recording.actions[action]}"
        if recording.unit == "state":
            words = f"state {recording.labels[step]}"
        draw.text((_GAP, _HEIGHT + _GAP + 8), words, fill=_INK, font=font)
        each = _HEIGHT / len(recording.views)
        for i, view in enumerate(recording.views):
            box = (game[0] + 2 * _GAP, _GAP + i * each, _LAW_WIDTH, each - 8)
            _draw_distribution(draw, view, step, action, box, scales, (font, small))
        if step % 100 == 0:
            on_progress(f"{step:,} of {len(recording):,} frames of the video")
        yield image
    on_progress("")


def _scales(recording: Recording) -> tuple[float, float, float, float]:
    """Returns and masses that have room: left, right, bottom, top."""
    lows, highs, bottoms, tops = [], [], [0.0], [1e-6]
    for view in recording.views:
        if view.kind == "masses":
            lows.append(float(view.atoms[0]))
            highs.append(float(view.atoms[-1]))
            bottoms.append(float(np.quantile(view.distributions.min(axis=(1, 2)), 0.01)))
            tops.append(float(np.quantile(view.distributions.max(axis=(1, 2)), 0.99)))
        else:
            lows.append(float(np.quantile(view.distributions, 0.001)))
            highs.append(float(np.quantile(view.distributions, 0.999)))
    return min(lows), max(max(highs), min(lows) + 1e-6), min(min(bottoms), -0.06 * max(tops)), 1.05 * max(tops)


def _draw_distribution(draw: Any, view: View, step: int, action: int, box: Any, scales: Any, fonts: Any) -> None:
    left, top, width, height = box
    low, high, bottom, most = scales
    head, foot = 26, 20
    inner = height - head - foot

    def across(value: float) -> float:
        return left + width * (0.01 + 0.98 * min(max((value - low) / (high - low), 0), 1))

    def up(mass: float) -> float:
        return top + head + inner * min(max((most - mass) / (most - bottom), 0), 1)

    atoms, masses = view.distribution(step, action)
    negative = float(view.negative[step])
    words = f"{view.name}   mean {view.values[step, action]:.2f}   mass {float(view.total[step]):.2f}"
    draw.text((left, top), words, fill=_INK, font=fonts[0])
    if view.kind == "masses":
        draw.text((left + width, top), f"negative {negative:.2f}", fill=plots.NEGATIVE, font=fonts[0], anchor="ra")
    half = max(1.0, 0.44 * width * 0.98 / max(len(atoms) - 1, 1)) if view.kind == "masses" else 1.0
    for atom, mass in zip(atoms, masses, strict=True):
        ends = sorted((up(0), up(float(mass) if view.kind == "masses" else most * 0.8)))
        if ends[1] - ends[0] >= 0.5:
            colour = plots.NEGATIVE if mass < 0 else plots.POSITIVE
            draw.rectangle((across(atom) - half, ends[0], across(atom) + half, ends[1]), fill=colour)
    draw.line((left, up(0), left + width, up(0)), fill=_INK)
    mean = across(float(view.values[step, action]))
    draw.line((mean, top + head, mean, top + head + inner), fill=_INK, width=2)
    for place, anchor in ((low, "la"), (0.0, "ma"), (high, "ra")):
        if place == 0 and not low + 0.1 * (high - low) < 0 < high - 0.1 * (high - low):
            continue
        draw.text((across(place), top + height - foot + 2), f"{place:.3g}", fill=_SOFT, font=fonts[1], anchor=anchor)
