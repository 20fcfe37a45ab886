"""Logged transitions as rows, checked, and sums over them that can be computed in any number of parts."""

# ruff: noqa: N803 (X is the name scikit-learn's users know)
from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from cramerl._arrays import Floats
from cramerl._checks import require_finite
from cramerl.linear.moments import scaled_rows

# Numbers in a work array of rows: a hundred megabytes, whatever the number of transitions.
_CHUNK_NUMBERS = 12_500_000
# Below this no digits are left of a weight, and one over it overflows.
_LEAST_WEIGHT = 1e-290


class Sums(Protocol):
    """Something that is summed over rows, in parts that may be summed in any order and on any machine."""

    part_rows: int  # most rows to add at once, so that work arrays stay small

    def add(self, rows: Rows) -> None:
        """Add these rows."""
        ...

    def merge(self, other: Self) -> None:
        """Add the sums over other rows; ``other`` may be changed and must not be used afterwards."""
        ...


S = TypeVar("S", bound=Sums)


class Source(Protocol):
    """Where rows come from, as often as they are needed: memory, files, a cluster."""

    @property
    def num_features(self) -> int:
        """D."""
        ...

    def total(self, sums: S) -> S:
        """The sums over all rows; ``sums`` is empty when given."""
        ...


class Rows(NamedTuple):
    """Transitions in float64: features and next features (n, D), the rest (n,). Rows are a `Source`.

    Features may be sparse (``scipy.sparse.csr_array``), then both are. ``discounts`` says what each row's future is
    worth (None: every row has the estimator's discount), ``weights`` how much each row counts (None: one).
    """

    features: Any
    rewards: Floats
    next_features: Any
    terminated: NDArray[np.bool_]
    discounts: Floats | None = None
    weights: Floats | None = None

    @property
    def num_features(self) -> int:
        """D."""
        return self.features.shape[1]

    def total(self, sums: S) -> S:
        """Add these rows to the sums, ``part_rows`` at a time."""
        for part in self.parts(sums.part_rows):
            sums.add(part)
        return sums

    def parts(self, size: int) -> Iterator[Rows]:
        """Slices of at most ``size`` rows."""
        if len(self.rewards) <= size:
            yield self
            return
        for i in range(0, len(self.rewards), size):
            s = slice(i, i + size)
            columns: list[Any] = [None if column is None else column[s] for column in self]
            yield Rows(*columns)

    def take(self, index: NDArray[np.intp]) -> Rows:
        """The rows of these numbers."""
        columns: list[Any] = [None if column is None else column[index] for column in self]
        return Rows(*columns)

    def continuation(self, discount: float) -> Floats:
        """(n,) discount of what follows, this one where rows have none of their own: 0 where the return ends."""
        return np.where(self.terminated, 0.0, discount if self.discounts is None else self.discounts)

    @property
    def mass(self) -> Floats:
        """(n,) how much each row counts."""
        return np.ones(len(self.rewards)) if self.weights is None else self.weights

    @property
    def weighted_features(self) -> Any:
        """(n, D) features, times how much each row counts."""
        return self.features if self.weights is None else scaled_rows(self.features, self.weights)


Chunk = tuple[Any, Floats, Any, NDArray[np.bool_]]
"""Transitions as they are read from files: X, rewards, X_next, terminated."""


class RowTotals:
    """Arrays that a function computes from rows, combined over all rows.

    ``combine`` says how two of each array become one: ``np.add``, ``np.minimum``, ``np.maximum``. The function may
    travel to other machines, so what it refers to should be small.
    """

    def __init__(
        self, function: Callable[[Rows], Sequence[Any]], combine: Sequence[Callable[[Any, Any], Any]], part_rows: int
    ):
        self.function, self.combine, self.part_rows = function, combine, part_rows
        self.values: list[Any] = []  # empty before any rows were added

    def add(self, rows: Rows) -> None:
        """Combine the arrays of these rows with the rest."""
        self._combine(self.function(rows))

    def merge(self, other: RowTotals) -> None:
        """Combine the arrays of other rows with these."""
        if other.values:
            self._combine(other.values)

    def _combine(self, values: Sequence[Any]) -> None:
        if self.values:
            values = [way(*two) for way, *two in zip(self.combine, self.values, values, strict=True)]
        self.values = list(values)


def few_rows(width: int) -> int:
    """How many rows keep an array of (rows, width) small."""
    return max(1, _CHUNK_NUMBERS // width)


def make_rows(
    X: Any,
    rewards: Any,
    X_next: Any,
    terminated: Any,
    discounts: Any = None,
    weights: Any = None,
    *,
    num_features: int | None = None,
) -> Rows:
    """Check a caller's arrays and make rows of them."""
    features = feature_table("X", X, num_features)
    following = feature_table("X_next", X_next, features.shape[1], finite=False)
    if sparse.issparse(features) != sparse.issparse(following):
        raise ValueError("X and X_next must both be sparse or both be dense, got one of each")
    n = features.shape[0]
    if following.shape[0] != n:
        raise ValueError(f"X_next must have one entry for each of the {n} rows of X, got {following.shape}")
    paid = _one_each("rewards", rewards, n)
    ended = np.zeros(n) if terminated is None else _one_each("terminated", terminated, n)
    if not np.isin(ended, (0, 1)).all():
        raise ValueError(f"terminated must hold True or False, got {ended[~np.isin(ended, (0, 1))][0]}")
    over = ended.astype(bool)
    if not sparse.issparse(following):
        if over.any() and not np.isfinite(following[over]).all():
            following = np.where(over[:, None], 0.0, following)  # nothing follows, so what is there does not matter
        require_finite(X_next=following)
    shares = None if discounts is None else _one_each("discounts", discounts, n)
    if shares is not None and not ((shares >= 0) & (shares <= 1)).all():
        raise ValueError(f"discounts must lie in [0, 1], got {shares[~((shares >= 0) & (shares <= 1))][0]}")
    mass = None if weights is None else _one_each("sample_weight", weights, n)
    if mass is not None and ((mass < 0).any() or not mass.any()):
        raise ValueError(f"sample_weight must be >= 0 and not all zero, got a smallest weight of {mass.min()}")
    if mass is not None and mass.max() < _LEAST_WEIGHT:
        raise ValueError(f"sample_weight must have weights of {_LEAST_WEIGHT:g} or more, got at most {mass.max()}")
    return Rows(features, paid, following, over, shares, mass)


def _one_each(name: str, values: Any, count: int) -> Floats:
    array = real_numbers(name, values)
    if array.shape != (count,):
        raise ValueError(f"{name} must have one entry for each of the {count} rows of X, got {array.shape}")
    return array


def feature_table(name: str, values: Any, num_features: int | None, *, finite: bool = True) -> Any:
    """Rows of features (n, D) in float64; sparse ones stay sparse."""
    table: Any
    if sparse.issparse(values):
        if values.dtype.kind not in "biuf":
            raise _not_real(name, values)
        table = sparse.csr_array(values, dtype=np.float64)
        require_finite(**{name: table.data})
    else:
        table = real_numbers(name, values, finite=finite)
    if table.ndim != 2 or 0 in table.shape or num_features not in (None, table.shape[1]):
        wanted = "D" if num_features is None else num_features
        raise ValueError(f"{name} must have shape (n, {wanted}) with at least one row and column, got {table.shape}")
    return table


def real_numbers(name: str, values: Any, *, finite: bool = True) -> Floats:
    """An array in float64; ValueError unless it holds real numbers (finite ones, if so asked)."""
    try:
        array = np.asarray(values)
        if array.dtype.kind not in "biufO" or sparse.issparse(values) or isinstance(values, np.ma.MaskedArray):
            raise TypeError
        array = array.astype(np.float64, copy=False)
    except (TypeError, ValueError, OverflowError):
        raise _not_real(name, values) from None
    if finite:
        require_finite(**{name: array})
    return array


def _not_real(name: str, values: Any) -> ValueError:
    given = f"{type(values).__name__} ({getattr(values, 'dtype', 'no numbers')})"
    return ValueError(f"{name} must be an array of real numbers, got {given}")
