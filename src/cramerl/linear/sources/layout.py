"""Which columns of an Arrow table hold the parts of a transition, and how to read them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from cramerl._arrays import Floats
from cramerl._extras import load_library
from cramerl.linear.transitions import Rows

Columns = str | Sequence[str]


class Layout(NamedTuple):
    """Which columns of a table hold what, under the names of `read_parquet`'s arguments."""

    features: Columns
    reward: str
    next_features: Columns
    terminated: str | None = None
    feature_function: Callable[[Floats], ArrayLike] | None = None

    def columns(self) -> dict[str, Columns]:
        """The columns by argument."""
        named = {"features": self.features, "reward": self.reward, "next_features": self.next_features}
        return named if self.terminated is None else named | {"terminated": self.terminated}

    def names(self) -> list[str]:
        """The names of all columns."""
        return sorted({name for given in self.columns().values() for name in _listed(given)})

    def require(self, schema: Any, where: str) -> None:
        """Raise ValueError unless an Arrow schema has the columns, of the right types."""
        for argument, given in self.columns().items():
            if not (isinstance(given, str) or (argument.endswith("features") and len(given))):
                allowed = "one column name" + (", or several," if argument.endswith("features") else "")
                raise ValueError(f"{argument} must be {allowed}, got {given!r}")
            for name in _listed(given):
                if name not in schema.names:
                    have = ", ".join(schema.names)
                    raise ValueError(f"{argument} must name columns of {where}, got {name!r}; its columns are {have}")
                _require_kind(argument, name, schema.field(name).type, isinstance(given, str))

    def chunk(self, batch: Any, where: str) -> Rows:
        """The transitions of an Arrow batch whose schema has passed `require`."""
        x = _table(batch, "features", self.features, where)
        following = _table(batch, "next_features", self.next_features, where)
        reward, ended = _column(batch, "reward", self.reward, where), np.zeros(batch.num_rows)
        if self.terminated is not None:
            ended = _column(batch, "terminated", self.terminated, where)
            if not np.isin(ended, (0, 1)).all():
                wrong = ended[~np.isin(ended, (0, 1))][0]
                raise ValueError(f"terminated must name a column of booleans, got {wrong} among them ({where})")
        if self.feature_function is not None:
            x, following = (np.asarray(self.feature_function(table), dtype=np.float64) for table in (x, following))
            for made in (x, following):
                if made.ndim != 2 or len(made) != batch.num_rows:
                    allowed = f"one row of features for each of {batch.num_rows} rows"
                    raise ValueError(f"feature_function must return {allowed}, got shape {made.shape}")
        return Rows(x, reward, following, ended.astype(bool))


def _listed(given: Columns) -> Sequence[str]:
    return [given] if isinstance(given, str) else given


def _require_kind(argument: str, name: str, kind: Any, alone: bool) -> None:
    types = load_library("pyarrow.types")
    if argument.endswith("features") and alone:
        kind = getattr(kind, "storage_type", kind)  # a column of tensors stores lists
        listed = types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
        if not (listed and _is_number(types, kind.value_type)):
            raise ValueError(
                f"{argument} must name a column of lists of numbers, or be a list of names of columns of numbers, "
                f"got {name!r} of type {kind}"
            )
    elif not _is_number(types, kind):
        raise ValueError(f"{argument} must name columns of numbers, got {name!r} of type {kind}")


def _is_number(types: Any, kind: Any) -> bool:
    return types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)


def _table(batch: Any, argument: str, given: Columns, where: str) -> Floats:
    """(n, D) from D columns of numbers, or from one column of lists."""
    if not isinstance(given, str):
        table = np.empty((batch.num_rows, len(given)))
        for j, name in enumerate(given):
            table[:, j] = _column(batch, argument, name, where)
        return table
    lists = batch.column(given)
    lists = getattr(lists, "storage", lists)
    flat = lists.flatten()  # leaves out missing lists, which null_count counts
    _require_complete(lists.null_count + flat.null_count, argument, given, where)
    width, rest = divmod(len(flat), batch.num_rows)
    lengths = lists.value_lengths().to_numpy(zero_copy_only=False)
    if rest or not width or (lengths != width).any():
        got = f"lengths {lengths.min()} to {lengths.max()}"
        raise ValueError(f"{argument} must name a column of lists of one length, got {given!r} with {got} ({where})")
    return flat.to_numpy(zero_copy_only=False).astype(np.float64).reshape(batch.num_rows, width)


def _column(batch: Any, argument: str, name: Any, where: str) -> Floats:
    column = batch.column(name)
    if argument != "next_features":  # these may be missing where the return ends: the estimator checks the others
        _require_complete(column.null_count, argument, name, where)
    return column.to_numpy(zero_copy_only=False).astype(np.float64)


def _require_complete(missing: int, argument: str, name: str, where: str) -> None:
    if missing:
        raise ValueError(f"{argument} must not have missing values, got {missing} in column {name!r} ({where})")
