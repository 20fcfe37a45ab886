"""Pictures of the states of a process: a grid where it is known, otherwise a bar for each state."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from cramerl.linear.grids import Grid

_GROUND, _LINE, _BAR, _HERE = "#16191d", "#4a5058", "#56B4E9", "#E69F00"
_KINDS = {"start": "#F0E442", "goal": "#009E73", "hole": "#000000", "cliff": "#5b2c00"}
_FILLED = ("hole", "cliff")  # the other kinds are a frame around the value
_SHADES = 48


class StatePictures(NamedTuple):
    """One picture for each state, (H, W) indices of colours, what the colours mean, and what the picture is."""

    size: tuple[int, int]
    each: Iterator[np.ndarray]
    colours: tuple[str, ...]
    legend: list[tuple[str, str]]
    caption: str


def draw_states(means: np.ndarray, visits: np.ndarray, grid: Grid | None = None) -> StatePictures:
    """Mean returns of states (n,); in each picture another state is highlighted.

    Args:
        means: (n,) mean returns.
        visits: (n,) the fraction of time spent in each state; on a grid, those without any have no value.
        grid: where the states lie.
    """
    return _bars(means) if grid is None else _cells(means, visits > 0, grid)


def _cells(means: np.ndarray, known: np.ndarray, grid: Grid) -> StatePictures:
    values = means[known] if known.any() else np.zeros(1)
    low, high = float(values.min()), float(values.max())
    shades = np.rint((np.where(known, means, low) - low) / max(high - low, 1e-12) * (_SHADES - 1)).astype(int)
    ramp = _ramp("#1c2f3f", "#b5dcf6")
    kinds = sorted({kind for kind in grid.kinds if kind})
    colours = (*ramp, _GROUND, _HERE, *(_KINDS[kind] for kind in kinds))
    of_kind = {kind: _SHADES + 2 + i for i, kind in enumerate(kinds)}
    side = max(10, min(48, 480 // max(grid.rows, grid.columns)))
    layers, cells = np.array(grid.layers), np.array(grid.cells)
    drawn = {
        layer: _layer(grid, side, dict(zip(cells[chosen], shades[chosen], strict=True)), of_kind)
        for layer in np.unique(layers)
        for chosen in [known & (layers == layer)]
    }

    def pictures() -> Iterator[np.ndarray]:
        for cell, layer in zip(cells, layers, strict=True):
            picture = drawn[layer].copy()
            _frame(_square(picture, grid, side, cell), max(2, side // 10), _SHADES + 1)
            yield picture

    legend = [("this state", _HERE), (_mean(low), ramp[0]), (_mean(high), ramp[-1])]
    legend += [(kind, _KINDS[kind]) for kind in kinds]
    caption = "each state in its place, the lighter the greater its mean return"
    return StatePictures((grid.rows * side, grid.columns * side), pictures(), colours, legend, caption)


def _mean(value: float) -> str:
    return f"mean {value:.3g}".replace("-", "−")


def _layer(grid: Grid, side: int, shade_of: dict[int, int], of_kind: dict[str, int]) -> np.ndarray:
    """The picture of the states of one layer, without the one that is highlighted."""
    picture = np.full((grid.rows * side, grid.columns * side), _SHADES, np.uint8)
    for cell, kind in enumerate(grid.kinds):
        square = _square(picture, grid, side, cell)[1:-1, 1:-1]
        if kind in _FILLED:
            square[:] = of_kind[kind]
        elif cell in shade_of:
            square[:] = shade_of[cell]
        if kind and kind not in _FILLED:
            inner = square[side // 6 : side - side // 6 - 2, side // 6 : side - side // 6 - 2]
            _frame(inner, max(1, side // 16), of_kind[kind])
    return picture


def _square(picture: np.ndarray, grid: Grid, side: int, cell: int) -> np.ndarray:
    row, column = divmod(int(cell), grid.columns)
    return picture[row * side : (row + 1) * side, column * side : (column + 1) * side]


def _frame(square: np.ndarray, width: int, colour: int) -> None:
    for edge in (square[:width], square[-width:], square[:, :width], square[:, -width:]):
        edge[:] = colour


def _ramp(dark: str, light: str) -> tuple[str, ...]:
    first, last = (np.array(list(bytes.fromhex(colour[1:])), float) for colour in (dark, light))
    between = np.linspace(first, last, _SHADES).round().astype(np.uint8)
    return tuple(f"#{colour.tobytes().hex()}" for colour in between)


def _bars(means: np.ndarray, height: int = 160, width: int = 480) -> StatePictures:
    """A bar for the mean of each state, from the line of zero."""
    low, high = min(float(means.min()), 0.0), max(float(means.max()), 0.0)
    rows = np.rint((high - np.append(means, 0)) / max(high - low, 1e-9) * (height - 17) + 8).astype(int)
    zero = rows[-1]
    edges = list(pairwise(np.rint(np.linspace(0, width, len(means) + 1)).astype(int)))
    bars = np.zeros((height, width), np.uint8)
    for row, (left, right) in zip(rows, edges, strict=False):
        bars[min(row, zero) : max(row, zero) + 1, left : max(right - (right - left > 3), left + 1)] = 1
    bars[zero] = 3

    def pictures() -> Iterator[np.ndarray]:
        for left, right in edges:
            picture = bars.copy()
            column = picture[:, left : max(right, left + 1)]
            column[column == 1] = 2
            wider = max(0, 9 - (right - left)) // 2  # one bar of very many is too thin to be seen
            picture[-8:, max(0, left - wider) : right + wider] = 2
            yield picture

    legend = [("mean return of each state", _BAR), ("this state", _HERE)]
    caption = "the states in order, each with its mean return"
    return StatePictures((height, width), pictures(), (_GROUND, _BAR, _HERE, _LINE), legend, caption)
