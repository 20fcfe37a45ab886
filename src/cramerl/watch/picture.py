"""Figure 2 of the paper: the same situation as several agents see it, side by side, as a PDF, PNG or SVG."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from cramerl import plots
from cramerl.watch.recording import Recording, View

SUFFIXES = (".pdf", ".png", ".svg")


def write_picture(recording: Recording, step: int, path: str | Path) -> Path:
    """Draw the game and each agent's distribution of the action that was taken, at one step.

    Args:
        recording: what was played.
        step: which of its steps.
        path: .pdf, .png or .svg.
    """
    path = Path(path)
    require_suffix("--picture-out", path, SUFFIXES)
    if not 0 <= step < len(recording):
        raise ValueError(f"--picture must be a {recording.unit} from 0 to {len(recording) - 1}, got {step}")
    return plots.save(_figure(recording, step), path)


def require_suffix(name: str, path: Path, allowed: tuple[str, ...]) -> None:
    """ValueError unless a file's name ends in one of ``allowed``."""
    if path.suffix.lower() not in allowed:
        raise ValueError(f"{name} must be a file that ends in {', '.join(allowed)}, got {path}")


def _figure(recording: Recording, step: int) -> Any:
    columns = 1 + len(recording.views)
    figure, axes = plots.new_figure(columns, height=3.2, width=3.6)
    axes[0].imshow(recording.palette[recording.tape[step]], interpolation="nearest", aspect=1.0)
    axes[0].set_axis_off()
    axes[0].set_title(f"{recording.unit} {recording.labels[step] if recording.labels else step}", fontsize=10)
    action = int(recording.action[step])
    for ax, view in zip(axes[1:], recording.views, strict=True):
        _draw_distribution(ax, view, step, action)
        name = f"{view.name}, {recording.actions[action]}" if len(recording.actions) > 1 else view.name
        total, negative = float(view.total[step]), float(view.negative[step])
        ax.set_title(
            f"{name}\nmean {view.values[step, action]:.2f}, mass {total:.2f}, negative {negative:.2f}", fontsize=9
        )
    across = [ax.get_xlim() for ax in axes[1:]]
    for ax in axes[1:]:  # one scale, so that the distributions can be compared
        ax.set_xlim(min(low for low, _ in across), max(high for _, high in across))
    signed = [ax for ax, view in zip(axes[1:], recording.views, strict=True) if view.kind == "masses"]
    limits = [ax.get_ylim() for ax in signed]
    for ax in signed:
        ax.set_ylim(min(low for low, _ in limits), max(high for _, high in limits))
    return figure


def _draw_distribution(ax: Any, view: View, step: int, action: int) -> None:
    atoms, masses = view.distribution(step, action)
    if view.kind == "masses":
        plots.draw_signed_masses(ax, atoms, masses)
    else:
        ax.vlines(atoms, 0, masses, color=plots.POSITIVE, linewidth=1.2)
        ax.set(xlabel="return", ylabel="mass", ylim=(0, 1.25 * float(np.max(masses))))
    ax.axvline(float(view.values[step, action]), color=plots.INK, linewidth=1.5)
