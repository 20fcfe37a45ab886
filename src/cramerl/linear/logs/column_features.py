"""Features of single numeric columns: the columns themselves, bins, hat functions and cosines.

Whatever is fitted clips numbers to the range it saw, so that nothing extrapolates.
"""

from __future__ import annotations

from itertools import combinations
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from cramerl._arrays import Floats
from cramerl.linear.logs.feature_tables import Table, placed
from cramerl.linear.logs.observations import Observations

# Interquartile range of a standard normal distribution.
_NORMAL_RANGE = 1.349
# Knots of the map from a column to its ranks.
_RANK_KNOTS = 65


class Scale(NamedTuple):
    """Location and scale of the numeric columns that vary."""

    columns: NDArray[np.intp]
    low: Floats
    high: Floats
    centre: Floats
    width: Floats

    @classmethod
    def fit(cls, numbers: Floats) -> Self:
        """Medians and interquartile ranges; standard deviations where half of a column is one number."""
        low, high = numbers.min(axis=0), numbers.max(axis=0)
        columns = np.flatnonzero(low < high)
        varying = numbers[:, columns]
        if not columns.size:
            return cls(columns, *(np.empty(0) for _ in range(4)))
        quarter, centre, three_quarters = np.quantile(varying, [0.25, 0.5, 0.75], axis=0)
        spread = (three_quarters - quarter) / _NORMAL_RANGE
        width = np.where(spread > 0, spread, varying.std(axis=0))
        return cls(columns, low[columns], high[columns], centre, width)

    def clipped(self, observations: Observations) -> Floats:
        """The columns that vary, in the range seen."""
        numbers = observations.numbers
        chosen = numbers if len(self.columns) == numbers.shape[1] else numbers[:, self.columns]
        return np.clip(chosen, self.low, self.high)

    def standard(self, observations: Observations) -> Floats:
        """The columns that vary, standardised."""
        table = self.clipped(observations)
        table -= self.centre
        table /= self.width
        return table


class Columns(NamedTuple):
    """The standardised columns themselves."""

    scale: Scale

    @classmethod
    def fit(cls, observations: Observations, scale: Scale) -> Self:
        """Nothing is fitted beyond the scale."""
        return cls(scale)

    @property
    def num_features(self) -> int:
        """One for each column."""
        return len(self.scale.columns)

    @property
    def nonzero_in_row(self) -> int:
        """All."""
        return self.num_features

    def __call__(self, observations: Observations) -> Table:
        """Return (m, C)."""
        return self.scale.standard(observations)


class Bins(NamedTuple):
    """Indicators of intervals, for each column."""

    scale: Scale
    edges: tuple[Floats, ...]

    @classmethod
    def fit(cls, observations: Observations, scale: Scale, size: int) -> Self:
        """At most ``size`` intervals a column, with equally many states or a single frequent number in each."""
        return cls(scale, tuple(bin_edges(x, size) for x in scale.clipped(observations).T))

    @property
    def num_features(self) -> int:
        """One for each interval."""
        return sum(len(edges) + 1 for edges in self.edges)

    @property
    def nonzero_in_row(self) -> int:
        """One for each column."""
        return len(self.edges)

    def __call__(self, observations: Observations) -> Table:
        """Return (m, D)."""
        x = self.scale.clipped(observations)
        places, start = np.empty(x.shape, dtype=np.intp), 0
        for j, edges in enumerate(self.edges):
            places[:, j] = start + np.searchsorted(edges, x[:, j])
            start += len(edges) + 1
        return placed(places, np.ones(x.shape), start)


class Hats(NamedTuple):
    """Hat functions at knots, for each column: with the constant they span the linear splines.

    The hat of the least number is left out, because all hats of a column add up to the constant.
    """

    scale: Scale
    knots: tuple[Floats, ...]

    @classmethod
    def fit(cls, observations: Observations, scale: Scale, size: int) -> Self:
        """At most ``size`` knots a column, from its least number to its largest."""
        return cls(scale, tuple(quantile_knots(x, size) for x in scale.clipped(observations).T))

    @property
    def num_features(self) -> int:
        """One for each knot but the first."""
        return sum(len(knots) - 1 for knots in self.knots)

    @property
    def nonzero_in_row(self) -> int:
        """Two for each column, or one if it has but two knots."""
        return sum(min(len(knots) - 1, 2) for knots in self.knots)

    def __call__(self, observations: Observations) -> Table:
        """Return (m, D)."""
        x = self.scale.clipped(observations)
        places, values = np.zeros((*x.shape, 2), dtype=np.intp), np.zeros((*x.shape, 2))
        start = 0
        for j, knots in enumerate(self.knots):
            left = np.clip(np.searchsorted(knots, x[:, j], side="right") - 1, 0, len(knots) - 2)
            share = (x[:, j] - knots[left]) / (knots[left + 1] - knots[left])
            values[:, j] = np.stack([np.where(left > 0, 1 - share, 0.0), share], axis=1)
            places[:, j] = start + np.stack([left - 1, left], axis=1)
            start += len(knots) - 1
        return placed(places.reshape(len(x), -1), values.reshape(len(x), -1), start)


class Cosines(NamedTuple):
    """Cosines of the ranks of the columns, and products of those of two columns.

    The features are cos(pi a u) and cos(pi a u) cos(pi b v) for integers a, b >= 1 with a + b <= order, where u and v
    are the ranks in [0, 1] of two columns. Ranks make them indifferent to skewness.
    """

    scale: Scale
    knots: tuple[Floats, ...]
    ranks: tuple[Floats, ...]
    order: int

    @classmethod
    def fit(cls, observations: Observations, scale: Scale, size: int) -> Self:
        """Ranks are linear between quantiles of a column."""
        clipped = scale.clipped(observations)
        knots = tuple(quantile_knots(x, _RANK_KNOTS) for x in clipped.T)
        return cls(scale, knots, tuple(_mean_ranks(x, k) for x, k in zip(clipped.T, knots, strict=True)), size)

    @property
    def orders(self) -> list[int]:
        """Highest order of each column: n numbers tell apart no more than n - 1 cosines and a constant."""
        return [min(self.order, len(knots) - 1) for knots in self.knots]

    @property
    def num_features(self) -> int:
        """Cosines and products."""
        return sum(self.orders) + len(self._products())

    @property
    def nonzero_in_row(self) -> int:
        """All."""
        return self.num_features

    def __call__(self, observations: Observations) -> Table:
        """Return (m, D)."""
        x = self.scale.clipped(observations)
        u = [np.interp(x[:, j], *map_) for j, map_ in enumerate(zip(self.knots, self.ranks, strict=True))]
        waves = [np.cos(np.pi * np.outer(v, np.arange(1, n + 1))) for v, n in zip(u, self.orders, strict=True)]
        products = [waves[i][:, a - 1] * waves[j][:, b - 1] for i, j, a, b in self._products()]
        found = [*(wave for wave in waves), *(product[:, None] for product in products)]
        return np.concatenate(found, axis=1) if found else np.empty((len(x), 0))

    def _products(self) -> list[tuple[int, int, int, int]]:
        """Two columns and the orders of their cosines."""
        return [
            (i, j, a, b)
            for i, j in combinations(range(len(self.knots)), 2)
            for a in range(1, self.orders[i] + 1)
            for b in range(1, self.orders[j] + 1)
            if a + b <= self.order
        ]


def quantile_knots(values: Floats, size: int) -> Floats:
    """At most ``size`` distinct quantiles of the values, their least and largest number among them."""
    distinct = np.unique(values)
    if len(distinct) <= size:
        return distinct
    knots = _quantiles(values, np.linspace(0, 1, size))
    if missing := size - len(
        knots
    ):  # frequent numbers are quantiles more than once: the rest of the knots go elsewhere
        others = values[~np.isin(values, knots)]
        knots = np.union1d(knots, _quantiles(others, (np.arange(missing) + 0.5) / missing))
    return knots


def bin_edges(values: Floats, size: int) -> Floats:
    """Upper ends of all intervals but the last: equally many values in each, or a single frequent number."""
    distinct = np.unique(values)
    if len(distinct) <= size:
        return distinct[:-1]
    edges, times = np.unique(np.quantile(values, np.arange(1, size) / size, method="inverted_cdf"), return_counts=True)
    frequent = np.searchsorted(distinct, edges[times > 1])
    edges = np.union1d(edges, distinct[frequent[frequent > 0] - 1])
    return edges[edges < distinct[-1]]


def _quantiles(values: Floats, levels: Floats) -> Floats:
    """Distinct ones, each of which is one of the values."""
    return np.unique(np.quantile(values, levels, method="inverted_cdf"))


def _mean_ranks(values: Floats, knots: Floats) -> Floats:
    """Shares of the values below the knots, from 0 at the first to 1 at the last."""
    ordered = np.sort(values)
    ranks = (np.searchsorted(ordered, knots) + np.searchsorted(ordered, knots, side="right")) / (2 * len(values))
    return (ranks - ranks[0]) / (ranks[-1] - ranks[0])
