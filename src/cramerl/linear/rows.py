"""Logged transitions as rows, checked, and what can be added up over them in any number of parts."""

# ruff: noqa: N803 (X is the name scikit-learn's users know)
from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from cramerl._checks import require_finite
from cramerl.linear.operators import Floats

# Numbers of a work array of rows: a hundred megabytes, whatever the number of transitions.
_CHUNK_NUMBERS = 12_500_000


class Sums(Protocol):
    """Something that is added up over rows: parts of them in any order, apart or one after the other.

    Attributes:
        part_rows: most rows to add at once, so that work arrays stay small.
    """

    part_rows: int

    def add(self, rows: Rows) -> None:
        """Add what these rows say."""
        ...

    def merge(self, other: Self) -> None:
        """Add what was added up elsewhere over other rows; ``other`` is not used afterwards."""
        ...


S = TypeVar("S", bound=Sums)


class Source(Protocol):
    """Where rows come from, as often as they are asked for: memory, files, a cluster."""

    @property
    def num_features(self) -> int:
        """D."""
        ...

    def total(self, sums: S) -> S:
        """The sums, empty when given, over all rows."""
        ...


class Rows(NamedTuple):
    """Transitions in float64: features and next features (n, D), rewards and ended (n,). A source by themselves."""

    features: Floats
    rewards: Floats
    next_features: Floats
    ended: NDArray[np.bool_]

    @property
    def num_features(self) -> int:
        """D."""
        return self.features.shape[1]

    def total(self, sums: S) -> S:
        """The sums with these rows added, as many at once as they like."""
        for part in self.parts(sums.part_rows):
            sums.add(part)
        return sums

    def parts(self, size: int) -> Iterator[Rows]:
        """Slices of so many rows."""
        for i in range(0, len(self.rewards), size):
            s = slice(i, i + size)
            yield Rows(self.features[s], self.rewards[s], self.next_features[s], self.ended[s])

    def discounts(self, discount: float) -> Floats:
        """(n,) discount of what follows: 0 where the return ends."""
        return np.where(self.ended, 0.0, discount)


class Totals:
    """Arrays that a function makes of rows, put together over all rows.

    Args:
        function: from rows to arrays. It may travel to other machines: what it refers to should be small.
        ways: how two of each array become one: ``np.add``, ``np.minimum``, ``np.maximum``.
        part_rows: most rows for the function at once.
    """

    def __init__(self, function: Callable[[Rows], Sequence[Any]], ways: Sequence[np.ufunc], part_rows: int):
        self.function, self.ways, self.part_rows = function, ways, part_rows
        self.values: list[Any] = []

    def add(self, rows: Rows) -> None:
        """Put what the function makes of these rows to the rest."""
        self._take(self.function(rows))

    def merge(self, other: Totals) -> None:
        """Put the arrays of others to these."""
        if other.values:
            self._take(other.values)

    def _take(self, values: Sequence[Any]) -> None:
        held = self.values
        self.values = [way(*two) for way, *two in zip(self.ways, held, values, strict=True)] if held else list(values)


def few_rows(width: int) -> int:
    """Rows such that arrays of (rows, width) stay small."""
    return max(1, _CHUNK_NUMBERS // width)


def make_rows(X: Any, rewards: Any, X_next: Any, terminated: Any, num_features: int | None = None) -> Rows:
    """Rows from what a caller gave, checked."""
    features = feature_table("X", X, num_features)
    following = feature_table("X_next", X_next, features.shape[1], finite=False)
    paid = _numbers("rewards", rewards)
    ended = np.zeros(len(features), dtype=bool) if terminated is None else _numbers("terminated", terminated)
    for name, array in (("rewards", paid), ("X_next", following), ("terminated", ended)):
        if array.shape != (features.shape if name == "X_next" else features.shape[:1]):
            raise ValueError(f"{name} must have one entry for each of the {len(features)} rows of X, got {array.shape}")
    if not np.isin(ended, (0, 1)).all():
        raise ValueError(f"terminated must hold True or False, got {ended[~np.isin(ended, (0, 1))][0]}")
    over = ended.astype(bool)
    if over.any() and not np.isfinite(following[over]).all():
        following = np.where(over[:, None], 0.0, following)  # nothing follows: what stands there does not count
    require_finite(X_next=following)
    return Rows(features, paid, following, over)


def feature_table(name: str, values: Any, num_features: int | None, *, finite: bool = True) -> Floats:
    """Rows of features (n, D) in float64."""
    table = _numbers(name, values, finite=finite)
    if table.ndim != 2 or not table.size or num_features not in (None, table.shape[1]):
        wanted = "D" if num_features is None else num_features
        raise ValueError(f"{name} must have shape (n, {wanted}) with at least one row and column, got {table.shape}")
    return table


def _numbers(name: str, values: Any, *, finite: bool = True) -> Floats:
    try:
        array = np.asarray(values)
        if array.dtype.kind not in "biufO" or sparse.issparse(values):
            raise TypeError
        array = array.astype(np.float64, copy=False)
    except (TypeError, ValueError):
        kind = getattr(values, "dtype", "no numbers")
        given = f"{type(values).__name__} ({kind})"
        raise ValueError(f"{name} must be an array of real numbers, not sparse, got {given}") from None
    if finite:
        require_finite(**{name: array})
    return array
