"""Figure 2 of the paper: one step as several agents see it, side by side, as a PDF, PNG or SVG."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from cramerl import plots
from cramerl.watching.recording import MADE_BY, Recording

SUFFIXES = (".pdf", ".png", ".svg")


def write_picture(recording: Recording, step: int, path: str | Path) -> Path:
    """Draw the game and each agent's distribution of the action that was taken, at one step.

    Args:
        recording: what was played.
        step: which of its steps.
        path: .pdf, .png or .svg.
    """
    path = Path(path)
    require_suffix("path", path, SUFFIXES)
    if not 0 <= step < len(recording):
        raise ValueError(f"step must be a {recording.unit} from 0 to {len(recording) - 1}, got {step}")
    return plots.save(make_figure(recording, step), path, MADE_BY)


def require_suffix(name: str, path: Path, allowed: tuple[str, ...]) -> None:
    """ValueError unless the file name ends in one of ``allowed``."""
    if path.suffix.lower() not in allowed:
        raise ValueError(f"{name} must be a file that ends in {', '.join(allowed)}, got {path}")


def make_figure(recording: Recording, step: int) -> Any:
    """The picture of a step as a matplotlib figure."""
    figure, axes = plots.new_figure(1 + len(recording.views), height=3.2, width=3.6)
    axes[0].imshow(recording.picture(step), interpolation="nearest", aspect=1.0)
    axes[0].set_axis_off()
    axes[0].set_title(recording.place(step), fontsize=10)
    action, realised = int(recording.action[step]), float(recording.realised[step])
    panels = list(zip(axes[1:], recording.views, strict=True))
    for ax, view in panels:
        view.draw(ax, step, action, realised=realised)
        name = f"{view.name}, {recording.actions[action]}" if len(recording.actions) > 1 else view.name
        sums = f"mass {view.total[step]:.2f}, negative {view.negative[step]:.2f}"
        ax.set_title(f"{name}\n{view.mean_label(step, action)}, {sums}", fontsize=9)
        ax.set(xlabel="return", ylabel="mass")
    plots.share_limits(axes[1:], "x")
    plots.share_limits([ax for ax, view in panels if view.kind == "masses"], "y")
    negative = any(view.negative[step] > plots.LEAST_MASS for _, view in panels)
    plots.add_distribution_legend(figure, negative=negative, realised=bool(np.isfinite(realised)))
    return figure
