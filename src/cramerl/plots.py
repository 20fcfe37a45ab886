"""Figures and axes from arrays. Nothing is computed or loaded here."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from cramerl._files import write_text, write_whole

# Colours that colour-blind readers can tell apart (Okabe and Ito), one per role.
POSITIVE, NEGATIVE, TARGET, ACCENT = "#0072B2", "#D55E00", "#009E73", "#CC79A7"
# An agent has the same colour in every figure, and none has a colour of masses.
AGENT_COLOURS = {
    "s51": "#9456B8",
    "u51": "#B58A00",
    "c51": TARGET,
    "dqn": ACCENT,
    "l51": "#5468D4",
    "qr": "#8C6239",
    "hl_gauss": "#B0304F",
}
_FURTHER_COLOURS = ("#87933F", "#9333F2", "#337663")
OTHER_COLOUR = "#8C8C8C"
INK, PAPER = "#1b1f24", "#ffffff"  # of figures on pages; a dark page replaces them
LEAST_MASS = 5e-4  # that can be seen
MEAN: dict[str, Any] = {"color": INK, "linewidth": 1.4}
REALISED: dict[str, Any] = {"color": TARGET, "linewidth": 1.4, "linestyle": (0, (4, 2))}


def agent_colours(agents: Sequence[str]) -> dict[str, str]:
    """The colour of each agent of a report: cramerl's agents keep theirs, others take those that are left, in turn."""
    own = {name: AGENT_COLOURS[name] for name in agents if name in AGENT_COLOURS}
    left = [*_FURTHER_COLOURS, *(colour for colour in AGENT_COLOURS.values() if colour not in own.values())]
    others = [name for name in agents if name not in own]
    return own | {name: left[i % len(left)] for i, name in enumerate(others)}


def draw_distribution(
    ax: Any,
    atoms: Any,
    masses: Any,
    mean: float | None = None,
    name: str | None = None,
    *,
    realised: float | None = None,
    sticks: bool = False,
) -> None:
    """Draw a distribution of returns: a bar for each mass, negative ones below the line in their own colour.

    The axes get the limits of `return_limits` and `mass_limits`; `share_limits` makes panels comparable.

    Args:
        ax: where to draw.
        atoms: (K,) returns, in order.
        masses: (K,) signed masses.
        mean: draw a line there; at the end of the axis if it lies outside.
        name: call the shapes of an SVG ``name-positive`` and ``name-negative``.
        realised: draw a dashed line there, the return that an episode produced.
        sticks: draw thin lines in place of bars, for atoms that may lie anywhere (quantiles).
    """
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path as Outline

    atoms, masses = np.asarray(atoms, float), np.asarray(masses, float)
    spacing = 0.0 if sticks else float(np.min(np.diff(atoms), initial=np.inf)) if atoms.size > 1 else 0.2
    limits = return_limits(atoms.min(), atoms.max(), spacing)
    half, width = 0.45 * spacing, 1.4 if sticks else 0.0
    moves = [Outline.MOVETO, Outline.LINETO, Outline.LINETO, Outline.LINETO, Outline.CLOSEPOLY]
    # One shape for each sign: a page with many panels would be large and slow with one for each bar.
    for sign, colour, chosen in (("positive", POSITIVE, masses > 0), ("negative", NEGATIVE, masses < 0)):
        if chosen.any():
            left, right, ends = atoms[chosen] - half, atoms[chosen] + half, masses[chosen]
            zero = np.zeros_like(ends)
            corners = np.stack([left, zero, left, ends, right, ends, right, zero, left, zero], axis=1).reshape(-1, 2)
            shape = PathPatch(Outline(corners, moves * len(ends)), color=colour, linewidth=width)
            shape.set_gid(None if name is None else f"{name}-{sign}")
            ax.add_patch(shape)
    ax.axhline(0, color=INK, linewidth=0.8)
    if mean is not None:
        ax.axvline(float(np.clip(mean, *limits)), **MEAN)
    if realised is not None and np.isfinite(realised):
        ax.axvline(realised, **REALISED)
    ax.set(xlim=limits, ylim=mass_limits(masses.min(), masses.max()))


def return_limits(low: float, high: float, spacing: float = 0.0) -> tuple[float, float]:
    """Limits of an axis of returns from ``low`` to ``high``: with room for the bars of atoms ``spacing`` apart."""
    room = max(0.02 * (high - low), 0.5 * spacing, 1e-6)
    return float(low - room), float(high + room)


def mass_limits(low: float, high: float) -> tuple[float, float]:
    """Limits of an axis of masses from ``low`` to ``high``: zero is inside, and tiny masses are not magnified."""
    top = max(high, 0.02)
    return float(min(1.08 * low, -0.06 * top)), float(1.08 * top)


def share_limits(axes: Iterable[Any], which: str) -> None:
    """Give panels the same limits, wide enough for all of them; ``which`` is "x" or "y"."""
    limits = [getattr(ax, f"get_{which}lim")() for ax in axes]
    for ax in axes:
        getattr(ax, f"set_{which}lim")(min(low for low, _ in limits), max(high for _, high in limits))


def add_distribution_legend(figure: Any, *, negative: bool, realised: bool = False) -> None:
    """Explain the bars and lines of `draw_distribution` below a figure."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    entries: list[Any] = [Patch(color=POSITIVE, label="mass")]
    entries += [Patch(color=NEGATIVE, label="negative mass, below the line")] if negative else []
    entries.append(Line2D([], [], label="mean", **MEAN))
    entries += [Line2D([], [], label="realised return", **REALISED)] if realised else []
    figure.legend(handles=entries, loc="outside lower center", ncols=len(entries), frameon=False, fontsize=9)


def draw_state_distributions(atoms: Any, states: Any, masses: Any, means: Any) -> Any:
    """A figure with the distributions of some states, three to a row, each with its mean."""
    columns = min(3, len(states))
    rows = -(-len(states) // columns)
    figure, axes = new_figure(columns, rows=rows, height=2.6, width=4.2)
    for ax in np.ravel(axes)[len(states) :]:
        ax.set_visible(False)
    for ax, state, bars, mean in zip(np.ravel(axes), states, masses, means, strict=False):
        draw_distribution(ax, atoms, bars, mean)
        ax.set_title(f"state {state}: mean {mean:.3g}", fontsize=10)
        ax.set(xlabel="return", ylabel="mass")
    add_distribution_legend(figure, negative=bool((np.asarray(masses) < -LEAST_MASS).any()))
    return figure


def draw_band(ax: Any, x: Any, middle: Any, low: Any, high: Any, *, label: str, colour: str, style: Any = "-") -> None:
    """Draw a line with its interval as a band; NaN leaves a gap."""
    ax.fill_between(x, low, high, color=colour, alpha=0.2, linewidth=0)
    ax.plot(x, middle, color=colour, linewidth=1.6, linestyle=style, label=label)


def draw_bars(ax: Any, labels: Any, estimates: Any, low: Any, high: Any, colours: Any, names: Any) -> None:
    """Draw estimates in rows, the first at the top: each is a mark in the bar of its interval.

    In an SVG the bars are called ``names``, and the marks the same with ``-mark``.
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


def draw_diverged(ax: Any, values: Any, colour: str) -> None:
    """Draw crosses at the bottom, at settings without a score."""
    if len(values):  # an empty line would still change the limits
        ax.plot(values, [0.02] * len(values), "x", color=colour, transform=ax.get_xaxis_transform(), clip_on=False)


def new_figure(
    columns: int, *, rows: int = 1, height: float = 3.6, width: float = 5.0, first: float = 1.0
) -> tuple[Any, Any]:
    """A figure with a grid of axes, each ``width`` by ``height`` inches, outside pyplot's global state.

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
    """A context in which figures have text and axes in `INK`, on `PAPER`."""
    import matplotlib as mpl

    names = ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color")
    return mpl.rc_context({**dict.fromkeys(names, INK), "axes.facecolor": "none", "figure.facecolor": PAPER})


def save_same(figure: Any, path: Path) -> Path:
    """Write a figure so that the same numbers give the same bytes: without dates or random names."""
    import matplotlib as mpl
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    _without_formulas(figure)
    silent = {".svg": ("Date", "Creator"), ".pdf": ("CreationDate", "Creator", "Producer"), ".png": ("Software",)}
    metadata = dict.fromkeys(silent[path.suffix])
    # Type 42 keeps the text of a PDF as text, which publishers require.
    with mpl.rc_context({"svg.hashsalt": "cramerl", "pdf.fonttype": 42}), warnings.catch_warnings():
        # Names in letters that the font lacks are boxes in a figure; pages have them in words beside it.
        warnings.filterwarnings("ignore", r"Glyph \d+ .* missing from font", UserWarning)
        # Lay it out once for all formats: the last digits of the layout differ from one time to the next.
        if isinstance(figure.get_layout_engine(), ConstrainedLayoutEngine):
            figure.draw_without_rendering()
            figure.set_layout_engine(None)  # "none" would draw again before each format
            for ax in figure.axes:
                ax.set_position([round(part, 6) for part in ax.get_position(original=True).bounds], which="original")
        return write_whole(path, lambda temporary: figure.savefig(temporary, dpi=110, metadata=metadata))


def _without_formulas(figure: Any) -> Any:
    """The figure with its texts as they stand: a dollar in a name begins no formula. Numbers at axes may."""
    from matplotlib.text import Text
    from matplotlib.ticker import FixedFormatter

    axes = [axis for ax in figure.axes for axis in (ax.xaxis, ax.yaxis)]
    numbers = {id(text) for axis in axes for text in axis.findobj(Text) if text is not axis.label}
    for text in figure.findobj(Text):
        if id(text) not in numbers:
            text.set_parse_math(False)
    for formatter in (axis.get_major_formatter() for axis in axes):
        if isinstance(formatter, FixedFormatter):  # names at an axis, which become texts when it is drawn
            formatter.seq = [name.replace("\\$", "$").replace("$", "\\$") for name in formatter.seq]
    return figure


def put_titles(path: Path, titles: Mapping[str, str]) -> Path:
    """Give the named shapes of an SVG titles, which viewers show as tooltips."""
    text = path.read_text(encoding="utf-8")
    for name, title in titles.items():
        text = text.replace(f'<g id="{name}">', f'<g id="{name}">\n<title>{escape(title)}</title>', 1)
    return write_text(path, text)


def save(figure: Any, path: Path, made_by: str) -> Path:
    """Write a figure, whole or not at all; the suffix chooses the format. The file says what it was ``made_by``."""
    field = {".png": "Software", ".pdf": "Creator", ".svg": "Title"}[path.suffix.lower()]
    _without_formulas(figure)
    return write_whole(path, lambda temporary: figure.savefig(temporary, dpi=150, metadata={field: made_by}))
