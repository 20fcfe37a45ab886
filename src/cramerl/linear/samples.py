"""What least squares keeps of logged transitions, and the linear system that it makes of it."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from cramerl.linear.moments import MomentCollector, add_product
from cramerl.linear.operators import Floats
from cramerl.linear.rows import Rows, Source, Totals, few_rows
from cramerl.linear.systems import LinearSystem, Normalisation, compressed_system, matrix_free_system
from cramerl.linear.whitening import Whitening
from cramerl.projections import backup
from cramerl.supports import Support

# Numbers in the moments: past this (a gigabyte) `fit` makes passes over the data instead, and `partial_fit` refuses.
MOST_NUMBERS = 125_000_000


class DependentColumnsError(ValueError):
    """Features that are linearly dependent under the data."""


class SupportReport(NamedTuple):
    """What the support cuts off.

    Attributes:
        can_clip: share of the transitions for which r + gamma z lies outside the support for some atom z.
        clipped_below: mean mass that one backup moves beyond the lower end (signed masses: the balance).
        clipped_above: the same of the upper end.
        sentence: in plain words.
    """

    can_clip: float
    clipped_below: float
    clipped_above: float
    sentence: str


class Data:
    """Sums over transitions: all that is kept of them."""

    def __init__(self, support: Support, discount: float, num_features: int):
        self.support, self.discount = support, discount
        self.collector: MomentCollector | None = MomentCollector(support, num_features)
        self.gram, self.total = np.zeros((num_features, num_features)), np.zeros(num_features)
        self.num_samples = 0
        # Next features and a count, by how many atoms the reward takes beyond an end: row K + above, or K - below.
        self.leaving = np.zeros((2 * support.num_atoms + 1, num_features + 1))
        self.ended_outside = np.zeros(2)
        self.part_rows, self.most_numbers = few_rows(num_features), MOST_NUMBERS

    def fits(self, rows: Rows) -> bool:
        """Whether moments can be kept with these rows among them."""
        if self.collector is None or self._always_fit():
            return self.collector is not None
        count = self.collector.count_after(rows.rewards[~rows.ended], self.discount)
        return count * self.gram.size <= self.most_numbers

    def _always_fit(self) -> bool:
        """Whether moments can be kept whatever the rewards are."""
        return self.support.num_atoms**2 * self.gram.size <= self.most_numbers

    def merge(self, other: Data) -> None:
        """Add what was added up over other rows, for the same support and discount."""
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
        """Add up what these rows say; moments that would be too large are given up."""
        x, r, k = rows.features, rows.rewards, self.support.num_atoms
        add_product(self.gram, x, x)
        self.total += x.sum(axis=0)
        self.num_samples += len(x)
        if not self.fits(rows):
            self.collector = None
        if self.collector is not None:
            ones = np.ones(len(x))
            self.collector.add(x, rows.next_features, r, rows.discounts(self.discount), rows.ended, ones)
        low, high = self.support.v_min, self.support.v_max
        slack = 1e-12 * (high - low)
        moved = self.discount * self.support.atoms
        below = np.searchsorted(moved, low - r - slack)
        above = k - np.searchsorted(moved, high - r + slack, side="right")
        place = np.where(rows.ended, k, k + above - below)
        index = np.flatnonzero(place != k)
        hits = sparse.csr_array((np.ones(len(index)), (place[index], index)), shape=(len(self.leaving), len(r)))
        self.leaving[:, :-1] += hits @ rows.next_features
        self.leaving[:, -1] += hits.sum(axis=1)
        last = r[rows.ended]
        self.ended_outside += (last < low - slack).sum(), (last > high + slack).sum()

    def report(self, weights: Floats, normalisation: Normalisation) -> SupportReport:
        """What the support cuts off of the distributions with these weights."""
        k, n, out = self.support.num_atoms, self.num_samples, self.leaving
        even = 0.0 if normalisation == "after" else 1.0 / k
        shape = weights if normalisation == "after" else weights - weights.mean(axis=1, keepdims=True)
        # Atom j is beyond the upper end with a count of K - j or more, beyond the lower end with j + 1 or more.
        beyond = np.cumsum(out[:k], axis=0)[::-1], np.cumsum(out[:k:-1], axis=0)
        below, above = (
            float(np.sum(b[:, :-1] * shape.T) + even * b[:, -1].sum() + ended) / n
            for b, ended in zip(beyond, self.ended_outside, strict=True)
        )
        share = float(out[:, -1].sum() + self.ended_outside.sum()) / n
        ends = f"the support from {self.support.v_min:.6g} to {self.support.v_max:.6g}"
        say = f"No reward in the data can take a return beyond {ends}: nothing clips."
        if share:
            say = f"{100 * share:.2g}% of the transitions can take a return beyond {ends}; a backup clips "
            much = f"{below:.2g} of the mass below and {above:.2g} above on average."
            say += much if max(abs(below), abs(above)) >= 1e-9 else "less than 1e-9 of the mass on average."
        if max(below, above) > 0.01:
            say += " Means and tails are cut short: take a wider support."
        return SupportReport(share, below, above, say)


class LogCertificate(NamedTuple):
    """What can be said of a solution when only data is known, not the process behind it.

    Attributes:
        constant_distance: distance of the constant function to the span of the features, over the data.
        gram_condition: condition number of the features' Gram matrix, columns scaled to the same size.
        lstd_gap: root mean square, over the data, of the difference between the means and those of ordinary LSTD.
        sentences: in plain words.
    """

    constant_distance: float
    gram_condition: float
    lstd_gap: float
    sentences: tuple[str, ...]


def certify(
    data: Data, whitening: Whitening, weights: Floats, normalisation: Normalisation, regularisation: float
) -> LogCertificate | None:
    """Certificate of weights (D, K) found from moments; None where these were too large to keep."""
    if data.collector is None:
        return None
    moments, n, d = data.collector.moments(), data.num_samples, len(data.total)
    vector, base = moments.lstd_vector / n, 0.0
    if normalisation == "affine":  # LSTD of the model u'z + features
        base = float(data.support.atoms.mean())
        vector = vector + base * (moments.discounts @ moments.inflows - data.total) / n
    gram = data.gram / n
    plain = np.linalg.solve(gram + regularisation * np.eye(d) - moments.lstd_matrix / n, vector)
    difference = weights @ data.support.atoms - plain
    gap = float(np.sqrt(max(0.0, difference @ gram @ difference)))
    distance = float(np.sqrt(max(0.0, 1.0 - whitening.constant @ whitening.constant)))
    in_span = distance < 1e-6 or normalisation == "affine"
    say = ["A constant is in the span of the features: every distribution has total mass one."]
    if not in_span:
        say = [f"No combination of the features is constant (distance {distance:.2g}): add a column of ones."]
    say.append(f"The features' Gram matrix has condition number {whitening.condition:.3g}.")
    if gap <= 1e-8 * max(1.0, abs(data.support.v_min), abs(data.support.v_max)):
        say.append("Mean returns equal those of ordinary LSTD on the same data.")
    else:
        why = "returns beyond the support are clipped" if in_span else "the missing constant, or clipping"
        say.append(f"Mean returns differ from ordinary LSTD's by {gap:.3g} (root mean square): {why}.")
    say.append("How far from the truth is not known: bounds need the process behind the log.")
    return LogCertificate(distance, whitening.condition, gap, tuple(say))


def data_whitening(data: Data, regularisation: float) -> Whitening:
    """Change to features that are orthonormal under the data; from the Gram matrix, since the rows may be gone."""
    gram = data.gram / data.num_samples + regularisation * np.eye(len(data.gram))
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
    return Whitening(inverse, float(values[-1] / values[0]), inverse.T @ data.total / data.num_samples)


def system_from_moments(
    collector: MomentCollector, data: Data, whitening: Whitening, normalisation: Normalisation
) -> tuple[LinearSystem, bool]:
    """The system in whitened weights, and whether its whole matrix was formed."""
    moments, change, d = collector.moments(), whitening.inverse, len(data.total)
    turned = change.T / data.num_samples
    for g in range(0, len(moments.crosses), 64):  # in place, a few at a time: all of them may be a gigabyte
        part = (moments.crosses[g : g + 64].reshape(-1, d) @ change).reshape(-1, d, d)
        side_by_side = turned @ part.transpose(1, 0, 2).reshape(d, -1)
        moments.crosses[g : g + 64] = side_by_side.reshape(d, -1, d).transpose(1, 0, 2)
    moments = moments._replace(inflows=moments.inflows @ turned.T, terminal=turned @ moments.terminal)
    system = compressed_system(moments, whitening.constant, data.support, normalisation)
    groups, size = len(moments.rewards), system.constant.size
    # With more groups than atoms one product with the whole matrix is less work than those of all groups, and for very
    # many of them it is less memory too.
    if groups <= data.support.num_atoms or size**2 > max(MOST_NUMBERS, 6 * groups * size) or system.dense is None:
        return system, False
    whole = system.dense()
    matrix = whole.reshape(size, size)
    return LinearSystem(lambda w: (matrix @ w.ravel()).reshape(w.shape), system.constant, lambda: whole), True


def system_by_passes(source: Source, data: Data, whitening: Whitening, normalisation: Normalisation) -> LinearSystem:
    """The same system with one pass over the data for each product: for moments that would not fit."""
    change, support, discount, n = whitening.inverse, data.support, data.discount, data.num_samples
    k, size = support.num_atoms, few_rows(8 * max(support.num_atoms, len(change)))

    def backed_up(part: Rows, distributions: Floats) -> Floats:
        return part.features.T @ backup(support, part.rewards, part.discounts(discount), distributions)

    def constants(part: Rows) -> list[Any]:
        """Where uniform distributions go, of transitions that continue and of those that end (all to the reward)."""
        ended, even = part.ended[:, None], np.full(k, 1.0 / k)
        return [backed_up(part, np.where(ended, 0.0, even)), backed_up(part, np.where(ended, even, 0.0))]

    def move(weights: Floats) -> Floats:
        plain = change @ weights

        def product(part: Rows) -> list[Any]:
            return [backed_up(part, np.where(part.ended[:, None], 0.0, part.next_features @ plain))]

        (moved,) = source.total(Totals(product, (np.add,), size)).values
        return change.T @ moved / n

    spread, terminal = source.total(Totals(constants, (np.add, np.add), size)).values
    return matrix_free_system(move, change.T @ spread / n, change.T @ terminal / n, whitening.constant, normalisation)


def unit_mass(masses: Floats) -> Floats:
    """Masses (n, K) with what is missing to one spread evenly."""
    return masses + (1.0 - masses.sum(axis=1, keepdims=True)) / masses.shape[1]
