"""Features of all numeric columns together: Gaussian bumps around states, cells of states, random Fourier features.

Distances are those of standardised columns whose tails are drawn in, so that a few extreme states do not decide.
"""

from __future__ import annotations

from typing import NamedTuple, Self

import numpy as np

from cramerl._arrays import Floats
from cramerl.linear.logs.column_features import Scale
from cramerl.linear.logs.feature_tables import Table, placed
from cramerl.linear.logs.kmeans import k_means, nearest
from cramerl.linear.logs.observations import Observations

# States among which centres are chosen, and distances are measured.
_MOST_POINTS = 10_000
# Nearest centres whose mean distance is the width of a bump.
_NEIGHBOURS = 3
# Bandwidths of random features, in median distances.
_BANDWIDTHS = (0.25, 0.5, 1.0, 2.0)


class Bumps(NamedTuple):
    """Gaussian bumps exp(-|x - c|^2 / (2 w^2)) around centres c, each with its own width w."""

    scale: Scale
    centres: Floats
    widths: Floats

    @classmethod
    def fit(cls, observations: Observations, scale: Scale, size: int, seed: int) -> Self:
        """Centres are states far from each other; fewer than ``size`` if there are fewer distinct ones."""
        rng = np.random.default_rng(seed)
        points = _some(_drawn_in(scale, observations), _MOST_POINTS, rng)
        centres = _spread_out(points, size, rng) if points.shape[1] else np.empty((0, 0))
        return cls(scale, centres, _widths(centres))

    @property
    def num_features(self) -> int:
        """One for each centre."""
        return len(self.centres)

    @property
    def nonzero_in_row(self) -> int:
        """All."""
        return self.num_features

    def __call__(self, observations: Observations) -> Table:
        """Return (m, D)."""
        points = _drawn_in(self.scale, observations)
        if not len(self.centres):
            return np.empty((len(points), 0))
        return np.exp(-_distances_sq(points, self.centres) / (2 * self.widths**2))


class Cells(NamedTuple):
    """Indicators of cells: of the states that are nearest to the same centre.

    Predictions average over a cell. So they stay between those of the log, and never have negative masses.
    """

    scale: Scale
    centres: Floats

    @classmethod
    def fit(cls, observations: Observations, scale: Scale, size: int, seed: int) -> Self:
        """Centres by k-means; fewer than ``size`` if there are fewer distinct states."""
        rng = np.random.default_rng(seed)
        points = _some(_drawn_in(scale, observations), _MOST_POINTS, rng)
        if not points.shape[1]:
            return cls(scale, np.empty((0, 0)))
        return cls(scale, k_means(points, _spread_out(points, size, rng)))

    @property
    def num_features(self) -> int:
        """One for each cell."""
        return len(self.centres)

    @property
    def nonzero_in_row(self) -> int:
        """The cell of the state."""
        return min(1, self.num_features)

    def __call__(self, observations: Observations) -> Table:
        """Return (m, D)."""
        points = _drawn_in(self.scale, observations)
        if not len(self.centres):
            return np.empty((len(points), 0))
        return placed(nearest(points, self.centres)[:, None], np.ones((len(points), 1)), len(self.centres))


class Waves(NamedTuple):
    """Random Fourier features sqrt(2) cos(w.x + b): approximately a mixture of Gaussian kernels."""

    scale: Scale
    frequencies: Floats
    shifts: Floats

    @classmethod
    def fit(cls, observations: Observations, scale: Scale, size: int, seed: int) -> Self:
        """Bandwidths are fractions and multiples of the median distance between states, in turn."""
        rng = np.random.default_rng(seed)
        points = _drawn_in(scale, observations)
        if not points.shape[1]:
            return cls(scale, np.empty((0, 0)), np.empty(0))
        widths = _median_distance(_some(points, _MOST_POINTS, rng), rng) * np.resize(_BANDWIDTHS, size)
        frequencies = rng.normal(size=(points.shape[1], size)) / widths
        return cls(scale, frequencies, rng.uniform(0, 2 * np.pi, size))

    @property
    def num_features(self) -> int:
        """One for each frequency."""
        return len(self.shifts)

    @property
    def nonzero_in_row(self) -> int:
        """All."""
        return self.num_features

    def __call__(self, observations: Observations) -> Table:
        """Return (m, D)."""
        points = _drawn_in(self.scale, observations)
        if not self.num_features:
            return np.empty((len(points), 0))
        return np.sqrt(2) * np.cos(points @ self.frequencies + self.shifts)


def _drawn_in(scale: Scale, observations: Observations) -> Floats:
    return np.arcsinh(scale.standard(observations))


def _some(points: Floats, most: int, rng: np.random.Generator) -> Floats:
    return points if len(points) <= most else points[np.sort(rng.choice(len(points), most, replace=False))]


def _spread_out(points: Floats, size: int, rng: np.random.Generator) -> Floats:
    """Points drawn one after the other in proportion to the squared distance from those drawn before (k-means++)."""
    chosen = [int(rng.integers(len(points)))]
    distance_sq = ((points - points[chosen[0]]) ** 2).sum(axis=1)
    while len(chosen) < size and distance_sq.max() > 0:
        chosen.append(int(rng.choice(len(points), p=distance_sq / distance_sq.sum())))
        distance_sq = np.minimum(distance_sq, ((points - points[chosen[-1]]) ** 2).sum(axis=1))
    return points[chosen]


def _widths(centres: Floats) -> Floats:
    """Mean distance of each centre from the nearest others."""
    if len(centres) < 2:
        return np.ones(len(centres))
    distances = np.sqrt(_distances_sq(centres, centres))
    nearest = np.sort(distances, axis=1)[:, 1 : 1 + _NEIGHBOURS]
    return nearest.mean(axis=1)


def _median_distance(points: Floats, rng: np.random.Generator) -> float:
    """Median over pairs of different states; one if there are none, which is the scale of the columns."""
    distances = np.sqrt(((points - points[rng.permutation(len(points))]) ** 2).sum(axis=1))
    return float(np.median(distances[distances > 0])) if distances.any() else 1.0


def _distances_sq(points: Floats, others: Floats) -> Floats:
    """(m, k) squared distances."""
    squares = (points**2).sum(axis=1)[:, None] + (others**2).sum(axis=1)
    return np.maximum(squares - 2 * points @ others.T, 0.0)
