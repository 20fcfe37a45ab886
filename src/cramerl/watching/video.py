"""The paper's kind of video: the game on the left, the chosen action's distribution on the right, a row per agent."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from cramerl import plots
from cramerl._extras import load_library
from cramerl._files import write_whole
from cramerl.watching.picture import require_suffix
from cramerl.watching.recording import MADE_BY, Recording

SUFFIXES = (".mp4", ".gif")
_SIZE, _DPI = (11.6, 4.9), 100  # inches; an even number of pixels, as the video format asks


def write_video(
    recording: Recording, path: str | Path, *, fps: int = 15, on_progress: Callable[[str], None] = lambda text: None
) -> Path:
    """Write a recording as a video that plays anywhere. No other program is needed.

    Args:
        recording: what to show.
        path: .mp4 (H.264) or .gif.
        fps: steps per second.
        on_progress: called now and then with a line about the progress.
    """
    path = Path(path)
    require_suffix("path", path, SUFFIXES)
    frames = _frames(recording, on_progress)
    if path.suffix.lower() == ".gif":
        return write_whole(path, lambda temporary: _write_gif(temporary, frames, fps, recording.palette))
    return write_whole(path, lambda temporary: _write_mp4(temporary, frames, fps))


def _write_mp4(path: Path, frames: Iterator[np.ndarray], fps: int) -> None:
    av = load_library("av")
    with av.open(str(path), "w", format="mp4", options={"movflags": "faststart"}) as container:
        container.metadata["comment"] = MADE_BY
        stream: Any = container.add_stream("libx264", rate=Fraction(fps), options={"crf": "20", "preset": "fast"})
        stream.pix_fmt = "yuv420p"
        for i, frame in enumerate(frames):
            if i == 0:
                stream.height, stream.width = frame.shape[:2]
            container.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")))
        container.mux(stream.encode())


def _write_gif(path: Path, frames: Iterator[np.ndarray], fps: int, palette: np.ndarray) -> None:
    """One palette for all frames, the game's colours and the charts': the first frame need not have all of them."""
    image, colour = load_library("PIL.Image"), load_library("PIL.ImageColor")
    charts = [colour.getrgb(one) for one in (plots.PAPER, plots.INK, plots.POSITIVE, plots.NEGATIVE, plots.TARGET)]
    colours = np.concatenate([np.array(charts, np.uint8), palette])[:256]
    fixed = image.fromarray(colours[None]).quantize(len(colours))
    pictures = (image.fromarray(frame).quantize(palette=fixed, dither=image.Dither.NONE) for frame in frames)
    # Browsers slow down anything faster than 50 frames a second.
    timing = {"duration": max(20, round(1000 / fps)), "loop": 0}
    next(pictures).save(path, save_all=True, append_images=pictures, comment=MADE_BY, **timing)


def _frames(recording: Recording, on_progress: Callable[[str], None]) -> Iterator[np.ndarray]:
    """A picture (H, W, 3) uint8 of each step.

    The figure is laid out once, with axes that fit the whole recording. Drawing only what changes on top of it takes a
    fraction of the time of drawing all of it.
    """
    game, *axes = _make_axes(recording)
    canvas = game.figure.canvas
    background = canvas.copy_from_bbox(game.figure.bbox)
    limits = [(ax.get_xlim(), ax.get_ylim()) for ax in axes]
    left, bottom, right, top = np.rint(game.get_window_extent().extents).astype(int)
    rows = np.arange(top - bottom) * recording.tape.size[0] // (top - bottom)
    columns = np.arange(right - left) * recording.tape.size[1] // (right - left)
    for step in range(len(recording)):
        canvas.restore_region(background)
        action = int(recording.action[step])
        score = f"   return so far {recording.score[step]:,.4g}   {recording.actions[action]}"
        _draw_title(game, recording.place(step) + (score if recording.unit == "step" else ""))
        for ax, view, (returns, masses) in zip(axes, recording.views, limits, strict=True):
            before = set(ax.get_children())
            view.draw(ax, step, action, realised=float(recording.realised[step]))
            ax.set(xlim=returns, ylim=masses)
            for artist in [one for one in ax.get_children() if one not in before]:
                ax.draw_artist(artist)
                artist.remove()
            sums = f"mass {view.total[step]:.2f}   negative {view.negative[step]:.2f}"
            _draw_title(ax, f"{view.name}   {view.mean_label(step, action)}   {sums}")
        frame = np.asarray(canvas.buffer_rgba())[..., :3].copy()
        frame[len(frame) - top : len(frame) - bottom, left:right] = recording.picture(step)[rows][:, columns]
        if step % 100 == 0:
            on_progress(f"{step:,} of {len(recording):,} frames of the video")
        yield frame
    on_progress("")


def _make_axes(recording: Recording) -> list[Any]:
    """The game's axes and one for each agent, drawn without what changes from step to step."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    figure = Figure(figsize=_SIZE, dpi=_DPI, layout=ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.12))
    canvas = FigureCanvasAgg(figure)
    grid = figure.add_gridspec(len(recording.views), 2, width_ratios=(0.9, 1))
    game = figure.add_subplot(grid[:, 0])
    game.imshow(recording.picture(0), aspect=1.0)
    game.set_axis_off()
    axes = [figure.add_subplot(grid[i, 1]) for i in range(len(recording.views))]
    for ax, view in zip(axes, recording.views, strict=True):
        returns, masses = view.limits()
        ax.set(xlim=returns, ylim=masses)
        ax.spines[["top", "right"]].set_visible(False)
    plots.share_limits(axes, "x")
    axes[-1].set_xlabel("return")
    for ax in (game, *axes):
        ax.set_title(" ", fontsize=11, loc="left", animated=True)
    canvas.draw()
    figure.set_layout_engine("none")
    return [game, *axes]


def _draw_title(ax: Any, text: str) -> None:
    ax.draw_artist(ax.set_title(text, fontsize=11, loc="left", animated=True, parse_math=False))
