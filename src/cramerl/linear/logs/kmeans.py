"""Centres of groups of similar points."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cramerl._arrays import Floats

_ROUNDS = 10
# Points whose distances to all centres are in memory together.
_CHUNK = 10_000


def k_means(points: Floats, centres: Floats) -> Floats:
    """Centres (k, C) moved by ten rounds of k-means to points (m, C); those that lose all points are dropped."""
    for _ in range(_ROUNDS):
        index = nearest(points, centres)
        counts = np.bincount(index, minlength=len(centres))
        sums = np.stack([np.bincount(index, column, len(centres)) for column in points.T], axis=1)
        centres = sums[counts > 0] / counts[counts > 0, None]
    return centres


def nearest(points: Floats, centres: Floats) -> NDArray[np.intp]:
    """(m,) the centre nearest to each point."""
    squares = np.square(centres).sum(axis=1)
    parts = [points[i : i + _CHUNK] for i in range(0, len(points), _CHUNK)]
    found = [(squares - 2.0 * (part @ centres.T)).argmin(axis=1) for part in parts]
    return np.concatenate([np.empty(0, dtype=np.intp), *found])
