"""Small drawings for notebooks, written by hand: no script, no font, no drawing library."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import numpy as np

# The colours of `cramerl.plots`, which needs matplotlib.
_POSITIVE, _NEGATIVE = "#0072B2", "#D55E00"
_CURVES = (_POSITIVE, _NEGATIVE, "#009E73", "#CC79A7", "#56B4E9", "#E69F00")


def bars(positions: Sequence[float] | np.ndarray, heights: Sequence[float] | np.ndarray, *, width: int = 160) -> str:
    """Bars at positions, such as masses on atoms; those below zero have their own colour."""
    x, y = np.asarray(positions, float), np.nan_to_num(np.asarray(heights, float))
    height = 40
    low, high = min(0.0, float(y.min())), max(0.0, float(y.max()))
    scale = (height - 2) / (high - low) if high > low else 0.0
    span = float(x[-1] - x[0]) if len(x) > 1 and x[-1] > x[0] else 1.0
    thick = max(1.0, 0.8 * width / len(x))
    zero = 1 + high * scale
    drawn = [
        f'<rect x="{(at - x[0]) / span * (width - thick):.1f}" y="{zero - max(mass, 0.0) * scale:.1f}" '
        f'width="{thick:.1f}" height="{abs(mass) * scale:.1f}" fill="{_NEGATIVE if mass < 0 else _POSITIVE}"/>'
        for at, mass in zip(x, y, strict=True)
        if abs(mass) * scale >= 0.05
    ]
    line = f'<path d="M0 {zero:.1f}H{width}" stroke="currentColor" stroke-width="0.5"/>'
    return _svg(width, height, [*drawn, line], f"masses from {x[0]:.4g} to {x[-1]:.4g}")


def curves(lines: Sequence[Sequence[tuple[float, float]]], *, width: int = 240) -> str:
    """Curves through points (x, y), one colour each."""
    points = np.array([point for line in lines for point in line], float).reshape(-1, 2)
    height = 60
    low, high = (points.min(axis=0), points.max(axis=0)) if len(points) else (np.zeros(2), np.ones(2))
    span = np.where(high > low, high - low, 1.0)
    drawn = []
    for number, line in enumerate(lines):
        places = (np.array(line, float).reshape(-1, 2) - low) / span
        path = " ".join(f"{2 + x * (width - 4):.1f},{height - 2 - y * (height - 4):.1f}" for x, y in places)
        colour = _CURVES[number % len(_CURVES)]
        drawn.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.2"/>')
    return _svg(width, height, drawn, f"from {low[1]:.4g} to {high[1]:.4g}")


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """An HTML table. Texts are escaped; cells that start with ``<svg`` are drawings of this module."""
    head = "".join(f"<th>{escape(text)}</th>" for text in header)
    cells = [[cell if cell.startswith("<svg ") else escape(cell) for cell in row] for row in rows]
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in cells)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _svg(width: int, height: int, parts: Sequence[str], label: str) -> str:
    opening = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" role="img"'
    return f'{opening} aria-label="{escape(label)}">{"".join(parts)}</svg>'
