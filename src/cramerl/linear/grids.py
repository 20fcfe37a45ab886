"""Where the states of a process lie on a grid, so that it can be drawn as the world that it is."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from cramerl._checks import require_count

_LETTERS = {"S": "start", "H": "hole", "G": "goal"}  # of FrozenLake's map
_STANDS = ("red", "green", "yellow", "blue", "")  # of Taxi; the last one is the taxi itself


class Grid(NamedTuple):
    """The places of S states.

    Attributes:
        rows: number of rows, R.
        columns: number of columns, C.
        cells: (S,) the cell of each state, counted along the rows.
        kinds: (R C,) what each cell is: "start", "goal", "hole", "cliff", or "" for none of these.
        layers: (S,) which states are drawn together: states of one cell that differ in something else are in different
            layers.
        layer_names: what the states of each layer have in common.
    """

    rows: int
    columns: int
    cells: tuple[int, ...]
    kinds: tuple[str, ...]
    layers: tuple[int, ...]
    layer_names: tuple[str, ...] = ("",)

    @classmethod
    def plain(cls, rows: int, columns: int, kinds: dict[int, str]) -> Grid:
        """A grid with one state for each cell, in their order."""
        size = rows * columns
        return cls(rows, columns, tuple(range(size)), tuple(kinds.get(i, "") for i in range(size)), (0,) * size)

    def of(self, states: list[int]) -> Grid:
        """The same grid with some of the states only."""
        return self._replace(
            cells=tuple(self.cells[state] for state in states), layers=tuple(self.layers[state] for state in states)
        )

    def label(self, state: int) -> str:
        """Where a state is, in words."""
        row, column = divmod(self.cells[state], self.columns)
        words = (f"row {row + 1}", f"column {column + 1}", self.kinds[self.cells[state]])
        return ", ".join(filter(None, (*words, self.layer_names[self.layers[state]])))


def parse_grid(values: dict[str, Any]) -> Grid:
    """A grid from the plain values of `Grid._asdict`; ValueError, TypeError or KeyError if they are not one."""
    rows, columns = require_count("rows", values["rows"]), require_count("columns", values["columns"])
    cells, layers = (tuple(int(number) for number in values[name]) for name in ("cells", "layers"))
    kinds, names = (tuple(str(word) for word in values[name]) for name in ("kinds", "layer_names"))
    inside = all(0 <= cell < rows * columns for cell in cells) and all(0 <= layer < len(names) for layer in layers)
    if not inside or len(kinds) != rows * columns or len(cells) != len(layers):
        raise ValueError(f"its grid must be cells of {rows} rows and {columns} columns in {len(names)} layers")
    return Grid(rows, columns, cells, kinds, layers, names)


def grid_of(env: Any, num_states: int) -> Grid | None:
    """The grid of an unwrapped Gymnasium environment that is known to have one: FrozenLake, CliffWalking or Taxi."""
    kind = type(env).__name__
    if kind == "TaxiEnv" and num_states == 500:
        return _taxi(env)
    if kind == "FrozenLakeEnv" and np.size(env.desc) == num_states:
        letters = np.asarray(env.desc).astype(str)
        rows, columns = letters.shape
        return Grid.plain(rows, columns, {i: _LETTERS.get(letter, "") for i, letter in enumerate(letters.flat)})
    if kind == "CliffWalkingEnv" and np.prod(env.shape) == num_states:
        rows, columns = env.shape
        cliff = dict.fromkeys(range(num_states - columns + 1, num_states - 1), "cliff")
        return Grid.plain(rows, columns, cliff | {num_states - columns: "start", num_states - 1: "goal"})
    return None


def _taxi(env: Any) -> Grid:
    places = np.array([tuple(env.decode(state)) for state in range(500)])
    cells = 5 * places[:, 0] + places[:, 1]
    names = tuple(
        f"passenger {f'at {start}' if start else 'in the taxi'}, to {end}" for start in _STANDS for end in _STANDS[:4]
    )
    return Grid(5, 5, tuple(cells.tolist()), ("",) * 25, tuple((4 * places[:, 2] + places[:, 3]).tolist()), names)
