"""Tables of features, dense or sparse, and how they are put together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from cramerl._arrays import Floats

Table = Any  # Floats or a scipy.sparse.csr_array (m, D); SciPy's own types say too little to be useful

# A table is sparse if it has more columns than this, and more columns than this many times its values in a row.
_MOST_DENSE, _SPARSE_FROM = 64, 4


def worth_sparse(num_columns: int, nonzero_in_row: float) -> bool:
    """Whether rows of so many columns, of which so many are not zero, are better kept sparse."""
    return num_columns > _MOST_DENSE and _SPARSE_FROM * nonzero_in_row < num_columns


def stored(table: Table, as_sparse: bool) -> Table:
    """The table in the form that is wanted."""
    if sparse.issparse(table):
        return table if as_sparse else table.toarray()
    return sparse.csr_array(table) if as_sparse else table


def side_by_side(tables: Sequence[Table], num_rows: int, as_sparse: bool) -> Table:
    """The columns of all tables, those of the first first."""
    if not tables:
        return stored(np.empty((num_rows, 0)), as_sparse)
    if as_sparse:
        return sparse.csr_array(sparse.hstack([sparse.csr_array(table) for table in tables], format="csr"))
    return np.concatenate([stored(table, False) for table in tables], axis=1)


def placed(columns: NDArray[np.intp], values: Floats, num_columns: int) -> Table:
    """Rows with the values (m, p) in the columns (m, p), which ascend in each row; zeros are left out."""
    kept = values != 0
    starts = np.concatenate([[0], np.cumsum(kept.sum(axis=1))])
    return sparse.csr_array((values[kept], columns[kept], starts), shape=(len(values), num_columns))


def checked_table(argument: str, table: Any, num_rows: int) -> Table:
    """What a user's function returned, as float64; ValueError unless it is finite, with a row for each state."""
    values: Table = sparse.csr_array(table, dtype=np.float64) if sparse.issparse(table) else _floats(argument, table)
    if values.ndim != 2 or values.shape[0] != num_rows or not values.shape[1]:
        raise ValueError(
            f"{argument} must return a table of {num_rows} rows, one for each state, and a column at least, "
            f"got shape {values.shape}"
        )
    numbers = np.asarray(values.data if sparse.issparse(values) else values)
    if not np.isfinite(numbers).all():
        raise ValueError(f"{argument} must return finite numbers, got {numbers[~np.isfinite(numbers)][0]}")
    return values


def has_constant(table: Table) -> bool:
    """Whether a column of the table has the same value, not zero, in every row."""
    if sparse.issparse(table):
        full = table.count_nonzero(axis=0) == table.shape[0]
        table = table[:, np.flatnonzero(full)].toarray()
    return bool(((table == table[:1]).all(axis=0) & (table[0] != 0)).any()) if table.size else False


def _floats(argument: str, table: Any) -> Floats:
    try:
        return np.asarray(table, dtype=np.float64)
    except (TypeError, ValueError):
        kind = type(table).__name__
        raise ValueError(f"{argument} must return a table of numbers, dense or scipy.sparse, got {kind}") from None
