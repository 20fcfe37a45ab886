"""Features of categorical columns: indicators of levels and of combinations of them."""

from __future__ import annotations

from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from cramerl.linear.logs.feature_tables import Table, placed
from cramerl.linear.logs.observations import Observations

Codes = NDArray[np.int32]

# Combinations of levels get indicators if there are no more than this, and this many states for each on average.
_MOST_COMBINATIONS, _STATES_EACH = 500, 20


class Levels(NamedTuple):
    """An indicator for each level of each categorical column; a level that the log never had gives zeros."""

    sizes: tuple[int, ...]

    @property
    def num_features(self) -> int:
        """One for each level."""
        return sum(self.sizes)

    @property
    def nonzero_in_row(self) -> int:
        """One for each column."""
        return len(self.sizes)

    def __call__(self, observations: Observations) -> Table:
        """Return (m, D)."""
        codes = observations.codes
        starts = np.cumsum([0, *self.sizes])[:-1].astype(np.intp)
        return placed(starts + codes, (codes >= 0).astype(np.float64), self.num_features)


class Combinations(NamedTuple):
    """An indicator for each combination of levels that was seen; other combinations give zeros.

    Combinations are numbered column by column: ``pairs[j]`` holds, sorted, the number of the combination in the
    columns before j times ``sizes[j] + 1``, plus the code of column j and one.
    """

    sizes: tuple[int, ...]
    pairs: tuple[NDArray[np.int64], ...]

    @classmethod
    def fit(cls, observations: Observations, sizes: tuple[int, ...]) -> Self | None:
        """The combinations seen; None if there are too many for the states, or fewer than two columns."""
        codes, pairs = observations.codes, []
        if len(sizes) < 2:
            return None
        number = np.zeros(len(codes), dtype=np.int64)
        for j, size in enumerate(sizes):
            seen, number = np.unique(number * (size + 1) + codes[:, j] + 1, return_inverse=True)
            if len(seen) > min(_MOST_COMBINATIONS, len(codes) / _STATES_EACH):
                return None
            pairs.append(seen)
        return cls(sizes, tuple(pairs))

    @property
    def num_features(self) -> int:
        """One for each combination."""
        return len(self.pairs[-1])

    @property
    def nonzero_in_row(self) -> int:
        """One, or none."""
        return 1

    def __call__(self, observations: Observations) -> Table:
        """Return (m, D)."""
        codes = observations.codes
        number, known = np.zeros(len(codes), dtype=np.intp), np.ones(len(codes), dtype=bool)
        for j, (size, seen) in enumerate(zip(self.sizes, self.pairs, strict=True)):
            pair = number * (size + 1) + codes[:, j] + 1
            number = np.minimum(np.searchsorted(seen, pair), len(seen) - 1)
            known &= seen[number] == pair
        return placed(number[:, None], known[:, None].astype(np.float64), self.num_features)
