"""Features of the user's own: a function of the states, or a transformer as scikit-learn has them."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

from cramerl._arrays import Floats
from cramerl.linear.logs.feature_tables import (
    Table,
    checked_table,
    has_constant,
    side_by_side,
    stored,
    worth_sparse,
)
from cramerl.linear.logs.observations import Observations


def state_table(observations: Observations) -> Floats:
    """The states as (m, C + Cc) numbers: the numeric columns, then the codes of the categorical ones."""
    return np.concatenate([observations.numbers, observations.codes.astype(np.float64)], axis=1)


class Function:
    """A user's function, called with a list of arrays.

    A constant is put in front, unless one of the columns is constant where it was tried.

    Args:
        argument: name of the argument the function was given as.
        function: returns a table with a row for each state.
        trial: what it is tried with.
    """

    def __init__(self, argument: str, function: Any, *trial: Any):
        self.argument, self.function = argument, function
        table = checked_table(argument, function(*trial), len(trial[0]))
        self.num_columns = table.shape[1]
        self.adds_constant = not has_constant(table)
        self.num_features = self.num_columns + self.adds_constant
        self.as_sparse = worth_sparse(self.num_features, np.count_nonzero(_values(table)) / table.shape[0] + 1)

    def __call__(self, *given: Any) -> Table:
        """Return (m, D)."""
        rows = len(given[0])
        table = checked_table(self.argument, self.function(*given), rows)
        if table.shape[1] != self.num_columns:
            raise ValueError(
                f"{self.argument} must always return as many columns, got {table.shape[1]} and once {self.num_columns}"
            )
        if self.adds_constant:
            return side_by_side([np.ones((rows, 1)), table], rows, self.as_sparse)
        return stored(table, self.as_sparse)


class Transformer:
    """The method ``transform`` of a copy of a transformer, fitted to states (m, C)."""

    def __init__(self, transformer: Any, states: Floats):
        self.transformer = copy.deepcopy(transformer)
        self.transformer.fit(states)

    def __call__(self, states: Floats) -> Any:
        """Return what the transformer makes of the states."""
        return self.transformer.transform(states)


def is_transformer(value: Any) -> bool:
    """Whether the value has the methods of a transformer."""
    return not isinstance(value, type) and hasattr(value, "fit") and hasattr(value, "transform")


def _values(table: Table) -> Floats:
    return table if isinstance(table, np.ndarray) else table.data
