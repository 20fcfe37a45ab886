"""What least squares keeps of logged transitions, and the linear system it makes of them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from cramerl._arrays import Floats
from cramerl.linear.moments import MomentCollector, Moments, add_product
from cramerl.linear.problem import Normalisation, Whitening
from cramerl.linear.systems import LinearSystem, compressed_system, matrix_free_system
from cramerl.linear.transitions import Rows, RowTotals, Source, few_rows
from cramerl.projections import backup
from cramerl.supports import Support

# Numbers in the moments: past this (a gigabyte) `fit` makes passes over the data instead, and `partial_fit` raises.
MOST_NUMBERS = 125_000_000


class DependentColumnsError(ValueError):
    """Features that are linearly dependent under the data."""


class SupportReport(NamedTuple):
    """What the support cuts off.

    Attributes:
        can_clip: fraction of the transitions for which r + gamma z lies outside the support for some atom z.
        clipped_below: mean mass that one backup moves below the lower end; signed masses count with their sign.
        clipped_above: the same above the upper end.
        sentence: the same in plain words.
    """

    can_clip: float
    clipped_below: float
    clipped_above: float
    sentence: str


class TransitionSums:
    """Sums over transitions: all that an estimator keeps of them."""

    def __init__(self, support: Support, discount: float, num_features: int):
        self.support, self.discount = support, discount
        # The moments; None once they would be too large to keep.
        self.collector: MomentCollector | None = MomentCollector(support, discount, num_features)
        self.gram, self.total = np.zeros((num_features, num_features)), np.zeros(num_features)  # of phi phi' and phi
        self.num_samples = 0
        # For `report`: sums of (next features, 1) by how many atoms the reward moves beyond an end of the support. Row
        # K + n has the transitions that move n atoms above it, row K - n those that move n atoms below.
        self.leaving = np.zeros((2 * support.num_atoms + 1, num_features + 1))
        self.ended_outside = np.zeros(2)
        self.part_rows, self.most_numbers = few_rows(num_features), MOST_NUMBERS

    def fits(self, rows: Rows) -> bool:
        """Whether the moments can be kept when these rows are added."""
        if self.collector is None or self._always_fit():
            return self.collector is not None
        count = self.collector.count_after(rows.rewards[~rows.terminated])
        return count * self.gram.size <= self.most_numbers

    def _always_fit(self) -> bool:
        """Whether the moments can be kept whatever the rewards are."""
        return self.support.num_atoms**2 * self.gram.size <= self.most_numbers

    def merge(self, other: TransitionSums) -> None:
        """Add the sums over other rows, of the same support and discount."""
        mine, theirs = self.collector, other.collector
        if mine is None or theirs is None:
            self.collector = None
        elif self._always_fit() or mine.count_merged(theirs) * self.gram.size <= self.most_numbers:
            mine.merge(theirs)
        else:
            self.collector = None
        for name in ("gram", "total", "num_samples", "leaving", "ended_outside"):
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def add(self, rows: Rows) -> None:
        """Add these rows; moments that would become too large are dropped."""
        x, r, k = rows.features, rows.rewards, self.support.num_atoms
        add_product(self.gram, x, x)
        self.total += x.sum(axis=0)
        self.num_samples += len(x)
        if not self.fits(rows):
            self.collector = None
        if self.collector is not None:
            self.collector.add(x, rows.next_features, r, rows.terminated, np.ones(len(x)))
        low, high = self.support.v_min, self.support.v_max
        slack = 1e-12 * (high - low)
        moved = self.discount * self.support.atoms
        below = np.searchsorted(moved, low - r - slack)
        above = k - np.searchsorted(moved, high - r + slack, side="right")
        place = np.where(rows.terminated, k, k + above - below)
        index = np.flatnonzero(place != k)
        hits = sparse.csr_array((np.ones(len(index)), (place[index], index)), shape=(len(self.leaving), len(r)))
        self.leaving[:, :-1] += hits @ rows.next_features
        self.leaving[:, -1] += hits.sum(axis=1)
        last = r[rows.terminated]
        self.ended_outside += (last < low - slack).sum(), (last > high + slack).sum()

    def report(self, weights: Floats, normalisation: Normalisation) -> SupportReport:
        """What the support cuts off from distributions with these weights (D, K)."""
        k, n, out = self.support.num_atoms, self.num_samples, self.leaving
        even = 0.0 if normalisation == "after" else 1.0 / k
        shape = weights if normalisation == "after" else weights - weights.mean(axis=1, keepdims=True)
        # Atom j leaves above in transitions that move K - j atoms or more, and below in those that move j + 1 or more.
        beyond = np.cumsum(out[:k], axis=0)[::-1], np.cumsum(out[:k:-1], axis=0)
        below, above = (
            float(np.sum(b[:, :-1] * shape.T) + even * b[:, -1].sum() + ended) / n
            for b, ended in zip(beyond, self.ended_outside, strict=True)
        )
        can_clip = float(out[:, -1].sum() + self.ended_outside.sum()) / n
        ends = f"the support from {self.support.v_min:.6g} to {self.support.v_max:.6g}"
        say = f"No reward in the data can take a return beyond {ends}: nothing clips."
        if can_clip:
            say = f"{100 * can_clip:.2g}% of the transitions can take a return beyond {ends}; a backup clips "
            much = f"{below:.2g} of the mass below and {above:.2g} above on average."
            say += much if max(abs(below), abs(above)) >= 1e-9 else "less than 1e-9 of the mass on average."
        if max(below, above) > 0.01:
            say += " Means and tails are cut short: take a wider support."
        return SupportReport(can_clip, below, above, say)


def sums_whitening(sums: TransitionSums, regularisation: float) -> Whitening:
    """Change to features that are orthonormal under the data; from the Gram matrix, because the rows are not kept."""
    gram = sums.gram / sums.num_samples + regularisation * np.eye(len(sums.gram))
    scale = np.sqrt(np.diag(gram))
    if not scale.all():
        column = int(np.argmin(scale))
        raise ValueError(f"X must not have a column of zeros, got column {column}: drop it, or set regularisation > 0")
    values, vectors = np.linalg.eigh(gram / np.outer(scale, scale))
    rank = int((values > 1e-13 * values[-1]).sum())
    if rank < len(values):
        raise DependentColumnsError(
            f"X must have linearly independent columns, got rank {rank} of {len(values)}: drop some, or set "
            "regularisation > 0"
        )
    inverse = vectors / np.sqrt(values) / scale[:, None]
    return Whitening(inverse, float(values[-1] / values[0]), inverse.T @ sums.total / sums.num_samples)


def system_from_moments(
    moments: Moments, sums: TransitionSums, whitening: Whitening, normalisation: Normalisation
) -> tuple[LinearSystem, bool]:
    """The system in whitened weights, and whether its whole matrix was formed. Overwrites ``moments.crosses``."""
    change, d = whitening.inverse, len(sums.total)
    turned = change.T / sums.num_samples
    for g in range(0, len(moments.crosses), 64):  # in place, a few at a time: all of them may be a gigabyte
        part = (moments.crosses[g : g + 64].reshape(-1, d) @ change).reshape(-1, d, d)
        side_by_side = turned @ part.transpose(1, 0, 2).reshape(d, -1)
        moments.crosses[g : g + 64] = side_by_side.reshape(d, -1, d).transpose(1, 0, 2)
    moments = moments._replace(inflows=moments.inflows @ turned.T, terminal=turned @ moments.terminal)
    system = compressed_system(moments, whitening.constant, sums.support, normalisation)
    groups, size = len(moments.rewards), system.constant.size
    # With more groups than atoms one product with the whole matrix is less work than one for each group, and with very
    # many groups it needs less memory too.
    if groups <= sums.support.num_atoms or size**2 > max(MOST_NUMBERS, 6 * groups * size) or system.dense is None:
        return system, False
    whole = system.dense()
    matrix = whole.reshape(size, size)
    return LinearSystem(lambda w: (matrix @ w.ravel()).reshape(w.shape), system.constant, lambda: whole), True


def system_by_passes(
    source: Source, sums: TransitionSums, whitening: Whitening, normalisation: Normalisation
) -> LinearSystem:
    """The same system with one pass over the data for each product: where the moments do not fit in memory."""
    change, support, discount, n = whitening.inverse, sums.support, sums.discount, sums.num_samples
    k, size = support.num_atoms, few_rows(8 * max(support.num_atoms, len(change)))

    def backed_up(part: Rows, distributions: Floats) -> Floats:
        return part.features.T @ backup(support, part.rewards, part.discounts(discount), distributions)

    def constants(part: Rows) -> list[Any]:
        """Backups of the uniform distribution: of transitions that continue, and of those that end at the reward."""
        ended, even = part.terminated[:, None], np.full(k, 1.0 / k)
        return [backed_up(part, np.where(ended, 0.0, even)), backed_up(part, np.where(ended, even, 0.0))]

    def move(weights: Floats) -> Floats:
        plain = change @ weights

        def product(part: Rows) -> list[Any]:
            return [backed_up(part, np.where(part.terminated[:, None], 0.0, part.next_features @ plain))]

        (moved,) = source.total(RowTotals(product, (np.add,), size)).values
        return change.T @ moved / n

    spread, terminal = source.total(RowTotals(constants, (np.add, np.add), size)).values
    return matrix_free_system(move, change.T @ spread / n, change.T @ terminal / n, whitening.constant, normalisation)
