"""Axes from numbers: every function takes arrays and draws; nothing is computed or loaded here."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from cramerl._files import write_text, write_whole

# Colours that stay apart for colour-blind readers (Okabe and Ito), one per role.
POSITIVE, NEGATIVE, TARGET, ACCENT = "#0072B2", "#D55E00", "#009E73", "#CC79A7"
# An agent has the same colour in every figure.
AGENT_COLOURS = {"s51": NEGATIVE, "u51": POSITIVE, "c51": TARGET, "dqn": ACCENT, "qr": "#E69F00", "hl_gauss": "#56B4E9"}
OTHER_COLOUR = "#8C8C8C"
MEAN_LINE = (0, (4, 2))
INK, PAPER = "#1b1f24", "#ffffff"  # of figures on pages, where a dark page puts its own in their place


def draw_signed_masses(ax: Any, atoms: Any, masses: Any, *, label: str | None = None) -> Any:
    """Bars of signed masses with the zero line; negative mass in its own colour."""
    width = 0.9 * np.min(np.diff(atoms))
    colours = np.where(np.asarray(masses) < 0, NEGATIVE, POSITIVE)
    ax.bar(atoms, masses, width=width, color=colours, label=label)
    ax.axhline(0, color="black", linewidth=0.6)
    ax.set_xlabel("return")
    ax.set_ylabel("mass")
    return ax


def draw_distribution(ax: Any, atoms: Any, masses: Any, mean: float, name: str) -> Any:
    """One distribution as two shapes, for pages with many: bars from zero, negative mass in its own colour, the mean.

    In an SVG the shapes are called ``name-positive`` and ``name-negative``.
    """
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path as Outline

    atoms, masses = np.asarray(atoms, float), np.asarray(masses, float)
    half = 0.45 * float(np.min(np.diff(atoms), initial=np.inf)) if atoms.size > 1 else 0.1
    moves = [Outline.MOVETO, Outline.LINETO, Outline.LINETO, Outline.LINETO, Outline.CLOSEPOLY]
    for sign, colour, chosen in (("positive", POSITIVE, masses > 0), ("negative", NEGATIVE, masses < 0)):
        if chosen.any():
            left, right, ends = atoms[chosen] - half, atoms[chosen] + half, masses[chosen]
            zero = np.zeros_like(ends)
            corners = np.stack([left, zero, left, ends, right, ends, right, zero, left, zero], axis=1).reshape(-1, 2)
            outline = Outline(corners, moves * len(ends))
            ax.add_patch(PathPatch(outline, facecolor=colour, linewidth=0, gid=f"{name}-{sign}"))
    ax.axhline(0, color=INK, linewidth=0.8)
    ax.axvline(mean, color=INK, linewidth=1.2, linestyle=MEAN_LINE)
    return ax


def draw_sticks(ax: Any, places: Any, mass: float, mean: float) -> Any:
    """A distribution of equal masses at places of its own, and its mean."""
    ax.vlines(places, 0, mass, color=POSITIVE, linewidth=1.2)
    ax.axhline(0, color=INK, linewidth=0.8)
    ax.axvline(mean, color=INK, linewidth=1.2, linestyle=MEAN_LINE)
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


def draw_band(ax: Any, x: Any, middle: Any, low: Any, high: Any, *, label: str, colour: str, style: Any = "-") -> Any:
    """A line with its interval as a band; parts that are NaN stay empty."""
    ax.fill_between(x, low, high, color=colour, alpha=0.2, linewidth=0)
    ax.plot(x, middle, color=colour, linewidth=1.6, linestyle=style, label=label)
    return ax


def draw_points(ax: Any, x: Any, middle: Any, low: Any, high: Any, *, label: str, colour: str, style: Any = "-") -> Any:
    """Points joined by a line, each with its interval."""
    for at, bottom, top in zip(x, low, high, strict=True):
        ax.plot([at, at], [bottom, top], color=colour, linewidth=3.0, alpha=0.35, solid_capstyle="butt")
    ax.plot(x, middle, color=colour, linewidth=1.4, linestyle=style, marker="o", markersize=4, label=label)
    return ax


def draw_bars(ax: Any, labels: Any, estimates: Any, low: Any, high: Any, colours: Any, names: Any) -> Any:
    """Estimates below each other, from n - 1 at the top to 0, each a mark in the bar of its interval.

    In an SVG the bars have ``names``, and the marks the same with ``-mark``.
    """
    places = np.arange(len(labels))[::-1]
    widths = np.nan_to_num(np.subtract(high, low))
    bars = ax.barh(places, widths, left=np.where(widths > 0, low, estimates), height=0.6, color=colours, alpha=0.45)
    for bar, name, estimate, place, colour in zip(bars, names, estimates, places, colours, strict=True):
        bar.set_gid(name)
        ax.vlines([estimate], place - 0.3, place + 0.3, color=colour, linewidth=2.2, gid=f"{name}-mark")
    ax.set_yticks(places, labels)
    ax.use_sticky_edges = False
    ax.margins(x=0.08)
    return ax


def draw_levels(ax: Any, levels: Any, colours: Any) -> Any:
    """Dotted lines across, at levels to compare with."""
    for level, colour in zip(levels, colours, strict=True):
        ax.axhline(level, color=colour, linewidth=1.0, linestyle=":")
    return ax


def draw_diverged(ax: Any, values: Any, colour: str) -> Any:
    """Crosses at the bottom, at settings for which there is no score."""
    if not len(values):  # an empty line would still move the limits
        return ax
    ax.plot(values, [0.02] * len(values), "x", color=colour, transform=ax.get_xaxis_transform(), clip_on=False)
    return ax


def new_figure(
    columns: int, *, rows: int = 1, height: float = 3.6, width: float = 5.0, first: float = 1.0
) -> tuple[Any, Any]:
    """A figure of plain axes side by side, in rows of ``height`` inches, outside pyplot's global state.

    The first column is ``first`` times as wide as the others.
    """
    from matplotlib.figure import Figure

    widths = [first, *[1.0] * (columns - 1)]
    figure = Figure(figsize=(width * sum(widths), height * rows), layout="constrained")
    axes = figure.subplots(rows, columns, width_ratios=widths)
    for ax in np.ravel(axes):
        ax.spines[["top", "right"]].set_visible(False)
    return figure, axes


def page_style() -> AbstractContextManager[Any]:
    """Words and axes in `INK`, on `PAPER`, while figures are made."""
    import matplotlib as mpl

    names = ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color")
    return mpl.rc_context({**dict.fromkeys(names, INK), "axes.facecolor": "none", "figure.facecolor": PAPER})


def save_same(figure: Any, path: Path) -> Path:
    """Write the figure so that the same numbers give the same bytes: no dates, no random names."""
    import matplotlib as mpl

    silent = {".svg": ("Date", "Creator"), ".pdf": ("CreationDate", "Creator", "Producer"), ".png": ("Software",)}
    metadata = dict.fromkeys(silent[path.suffix])
    # Type 42: letters stay letters in a PDF, as publishers ask.
    with mpl.rc_context({"svg.hashsalt": "cramerl", "pdf.fonttype": 42}):
        _settle(figure)
        return write_whole(path, lambda temporary: figure.savefig(temporary, dpi=110, metadata=metadata))


def _settle(figure: Any) -> None:
    """Lay a figure out once, for every format: the layout's last digits differ from one time to the next."""
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    if isinstance(figure.get_layout_engine(), ConstrainedLayoutEngine):
        figure.draw_without_rendering()
        figure.set_layout_engine(None)  # not "none", which draws once more before each format
        for ax in figure.axes:
            ax.set_position([round(part, 6) for part in ax.get_position(original=True).bounds], which="original")


def put_titles(path: Path, titles: Mapping[str, str]) -> Path:
    """Give shapes of an SVG, by their names, words that viewers show where they are pointed at."""
    text = path.read_text(encoding="utf-8")
    for name, words in titles.items():
        text = text.replace(f'<g id="{name}">', f'<g id="{name}">\n<title>{escape(words)}</title>', 1)
    return write_text(path, text)


def save(figure: Any, path: Path) -> Path:
    """Write the figure, whole or not at all; the suffix chooses the format."""
    return write_whole(path, lambda temporary: figure.savefig(temporary, dpi=150))


def draw_state_distributions(atoms: Any, states: Any, masses: Any, means: Any) -> Any:
    """A figure with the distributions of some states, three to a row, each with its mean."""
    columns = min(3, len(states))
    rows = -(-len(states) // columns)
    figure, axes = new_figure(columns, rows=rows, height=2.6, width=4.2)
    for ax in np.ravel(axes)[len(states) :]:
        ax.set_visible(False)
    for ax, state, bars, mean in zip(np.ravel(axes), states, masses, means, strict=False):
        draw_signed_masses(ax, atoms, bars)
        ax.axvline(mean, color=TARGET, linewidth=1.5)
        ax.set_title(f"state {state}: mean {mean:.3g}", fontsize=10)
        ax.set_xlabel("return (green: its mean)")
    return figure
