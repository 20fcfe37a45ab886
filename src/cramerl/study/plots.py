"""Axes from numbers: every function takes arrays and draws; nothing is computed or loaded here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from cramerl._files import write_whole

# Colours that stay apart for colour-blind readers (Okabe and Ito), one per role.
POSITIVE, NEGATIVE, TARGET, ACCENT = "#0072B2", "#D55E00", "#009E73", "#CC79A7"


def draw_signed_masses(ax: Any, atoms: Any, masses: Any, *, label: str | None = None) -> Any:
    """Bars of signed masses with the zero line; negative mass in its own colour."""
    width = 0.9 * np.min(np.diff(atoms))
    colours = np.where(np.asarray(masses) < 0, NEGATIVE, POSITIVE)
    ax.bar(atoms, masses, width=width, color=colours, label=label)
    ax.axhline(0, color="black", linewidth=0.6)
    ax.set_xlabel("return")
    ax.set_ylabel("mass")
    return ax


def draw_descents(ax: Any, errors: Any, labels: Any) -> Any:
    """Error against gradient steps on logarithmic axes, one curve per loss."""
    for error, label, colour in zip(errors, labels, (ACCENT, NEGATIVE, POSITIVE), strict=True):
        # Below 1e-14 there is only rounding.
        ax.semilogy(np.maximum(error, 1e-14), color=colour, linewidth=1.8, label=label)
    ax.set_xscale("symlog", linthresh=1)
    ax.set(xlabel="gradient steps", ylabel="Cramér distance to the target", ylim=(3e-15, 3))
    ax.legend(frameon=False, fontsize=8, loc="center right")
    return ax


def draw_curves(ax: Any, steps: Any, returns: Any, labels: Any) -> Any:
    """Return against agent steps, one curve per run."""
    for x, y, label, colour in zip(steps, returns, labels, (NEGATIVE, POSITIVE, TARGET, ACCENT), strict=False):
        ax.plot(x, y, color=colour, linewidth=1.6, label=label)
    ax.set(xlabel="agent steps", ylabel="mean return of episodes")
    ax.legend(frameon=False, fontsize=8, loc="upper left")
    return ax


def new_figure(columns: int, *, height: float = 3.6) -> tuple[Any, Any]:
    """A figure of ``columns`` plain axes side by side, outside pyplot's global state."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5 * columns, height), layout="constrained")
    axes = figure.subplots(1, columns)
    for ax in np.ravel(axes):
        ax.spines[["top", "right"]].set_visible(False)
    return figure, axes


def save(figure: Any, path: Path) -> Path:
    """Write the figure, whole or not at all; the suffix chooses the format."""
    return write_whole(path, lambda temporary: figure.savefig(temporary, dpi=150))
