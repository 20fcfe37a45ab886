"""Cells of similar states, by which states that a log never saw are told from those it saw."""

from __future__ import annotations

from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from cramerl._arrays import Floats
from cramerl.linear.logs.kmeans import k_means, nearest
from cramerl.linear.logs.log import Log
from cramerl.linear.logs.observations import Observations

# Numeric columns are divided into so many cells, found in so many rows; a cell needs so many rows.
_MOST_CELLS, _SAMPLE, _LEAST_ROWS = 100, 20_000, 20
# Codes of several columns become one 64-bit key; an odd number this large keeps combinations apart.
_FACTOR = np.uint64(0x9E3779B97F4A7C15)


class Cells(NamedTuple):
    """States that have the same categorical codes and whose numbers are nearest to the same centre."""

    shifts: Floats
    """(C,) what is subtracted from the numeric columns."""
    scales: Floats
    """(C,) what they are divided by then."""
    centres: Floats
    """(k, C) scaled."""

    @classmethod
    def of(cls, log: Log, seed: int = 0) -> Self:
        """Cells for the states of a log: its values themselves if there are few, else by k-means."""
        if not log.schema.number_names:
            return cls(np.empty(0), np.empty(0), np.empty((1, 0)))
        sample, generator = _sampled(log, seed), np.random.default_rng(seed)
        shifts = sample.mean(axis=0)
        scales = np.where(np.ptp(sample, axis=0) > 0, sample.std(axis=0), 1.0)
        return cls(shifts, scales, _centres((sample - shifts) / scales, generator))

    def nearest(self, states: Observations) -> tuple[NDArray[np.intp], Floats]:
        """(m,) the centre nearest to each state, and the distance to it."""
        scaled = (states.numbers - self.shifts) / self.scales
        index = nearest(scaled, self.centres)
        return index, np.sqrt(((scaled - self.centres[index]) ** 2).sum(axis=1))

    def keys(self, states: Observations, centre: NDArray[np.intp]) -> NDArray[np.uint64]:
        """(m,) a number for the cell of each state, given the nearest centres."""
        found = centre.astype(np.uint64)
        for codes in states.codes.T:
            found = with_code(found, codes)
        return found


def with_code(keys: NDArray[np.uint64], codes: NDArray[np.integer]) -> NDArray[np.uint64]:
    """Keys that tell apart pairs of a key and a code >= -1."""
    return keys * _FACTOR + (codes.astype(np.int64) + 1).astype(np.uint64)


def _sampled(log: Log, seed: int) -> Floats:
    """Numbers of about 20,000 states, chosen at random, or of all if there are fewer."""
    generator, share = np.random.default_rng([seed, 1]), _SAMPLE / log.num_transitions
    parts = []
    for block in log.blocks():
        chosen = generator.random(len(block.current)) < share
        parts.append(block.observations.numbers[block.current[chosen]])
    return np.concatenate(parts)


def _centres(sample: Floats, generator: np.random.Generator) -> Floats:
    """Centres by k-means, without those that have few rows: these rows go to the next ones."""
    values = np.unique(sample, axis=0)
    if len(values) <= _MOST_CELLS:
        return values
    size = min(_MOST_CELLS, max(1, len(sample) // _LEAST_ROWS))
    centres = values[generator.choice(len(values), size, replace=False)]
    centres = k_means(sample, centres)
    counts = np.bincount(nearest(sample, centres), minlength=len(centres))
    return centres[counts >= min(_LEAST_ROWS, counts.max())]
