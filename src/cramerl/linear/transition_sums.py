"""What least squares keeps of logged transitions, and the linear system it makes of them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from scipy.linalg import lstsq

from cramerl._arrays import Floats
from cramerl.linear.blocks import blocks_of_rows
from cramerl.linear.moments import Moments, MomentsByDiscount, add_product, scaled_rows
from cramerl.linear.operators import backup_adjoint
from cramerl.linear.problem import Basis, Normalisation, SparseGram, Whitening
from cramerl.linear.systems import LinearSystem, compressed_system, matrix_free_system
from cramerl.linear.transitions import Rows, RowTotals, Source, few_rows
from cramerl.projections import backup
from cramerl.supports import Support

# Numbers in the moments: past this (a gigabyte) `fit` makes passes over the data instead, and `partial_fit` raises.
MOST_NUMBERS = 125_000_000
# Features up to which the matrix of their inner products is dense.
MOST_DENSE = 3000
# Distance up to which the constant counts as a combination of the features: Gram matrices square the rounding errors.
IN_SPAN = 1e-6
# Roundings of the terms of a sum over rows that add up.
_ROUNDINGS = 4.0
# Share of the typical mean return up to which clipping may move the means without a word.
_LITTLE_WORTH = 0.01
# What sums over different rows add up.
_ADDED = (
    *("gram", "cross", "total", "nonzero", "num_samples", "weight"),
    *("reward_vector", "squared_reward_vector", "discounted_total"),
)


class DependentColumnsError(ValueError):
    """Features that are linearly dependent under the data."""


class SupportReport(NamedTuple):
    """What the support cuts off.

    Attributes:
        can_clip: fraction of the transitions for which r + gamma z lies outside the support for some atom z.
        clipped_below: mean mass that one backup moves below the lower end; signed masses count with their sign.
        clipped_above: the same above the upper end.
        worth: root mean square difference, over the data, between the mean returns and those without clipping.
        sentence: the same in plain words.
    """

    can_clip: float
    clipped_below: float
    clipped_above: float
    worth: float
    sentence: str


class FeatureSums:
    """Sums over transitions that do not depend on a support: what ordinary LSTD needs, and the extremes of rewards."""

    def __init__(self, discount: float, num_features: int):
        self.discount = discount
        # Of phi phi' and, discounted, of phi and the next phi; matrices of many features are sparse.
        size = (num_features, num_features)
        self.gram: Any = np.zeros(size) if num_features <= MOST_DENSE else sparse.csr_array(size)
        self.cross: Any = self.gram.copy()
        self.total, self.nonzero = np.zeros((2, num_features))  # of phi, and of the rows where phi is not zero
        # Of phi times the reward, times its square, and times the discount of what follows.
        self.reward_vector, self.squared_reward_vector, self.discounted_total = np.zeros((3, num_features))
        self.num_samples, self.weight = 0, 0.0
        # How much of the regularisation each feature gets; None: all of it.
        self.penalties: Floats | None = None
        # Least and negated largest: reward where the return goes on, reward where it ends, discount.
        self.extremes = np.full(6, np.inf)
        self.part_rows = few_rows(num_features)

    @property
    def num_features(self) -> int:
        """D."""
        return len(self.total)

    @property
    def largest_discount(self) -> float:
        """The largest discount of what follows a row, zero if nothing does."""
        return max(0.0, -float(self.extremes[5]))

    def add(self, rows: Rows) -> None:
        """Add these rows."""
        x, weighted, mass = rows.features, rows.weighted_features, rows.mass
        discounts = rows.continuation(self.discount)
        self.gram = self._with_product(self.gram, weighted, x)
        self.cross = self._with_product(self.cross, scaled_rows(weighted, discounts), rows.next_features)
        self.reward_vector += weighted.T @ rows.rewards
        self.squared_reward_vector += weighted.T @ rows.rewards**2
        self.discounted_total += weighted.T @ discounts
        self.total += np.asarray(weighted.sum(axis=0)).ravel()
        self.nonzero += _nonzero(x) if rows.weights is None else mass @ (x != 0)
        self.num_samples += len(mass)
        self.weight += float(mass.sum())
        goes_on = ~rows.terminated & (mass > 0)
        ends = rows.terminated & (mass > 0)
        found = [_ends_of(rows.rewards[goes_on]), _ends_of(rows.rewards[ends]), _ends_of(discounts[goes_on])]
        self.extremes = np.minimum(self.extremes, np.concatenate(found))

    def merge(self, other: Any) -> None:
        """Add the sums over other rows, of the same discount."""
        self.extremes = np.minimum(self.extremes, other.extremes)
        for name in _ADDED:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def _with_product(self, total: Any, left: Any, right: Any) -> Any:
        if self.num_features <= MOST_DENSE:
            add_product(total, left, right)
            return total
        if not sparse.issparse(left):
            raise ValueError(
                f"X must be sparse with more than {MOST_DENSE} columns, got {self.num_features} dense ones"
            )
        return total + sparse.csr_array(left.T @ right)


class TransitionSums(FeatureSums):
    """Sums over transitions: all that an estimator keeps of them."""

    def __init__(self, support: Support, discount: float, num_features: int, most_numbers: int | None = None):
        super().__init__(discount, num_features)
        self.support = support
        # The moments; None once they would be too large to keep.
        self.collector: MomentsByDiscount | None = MomentsByDiscount(support, num_features)
        # For `report`: sums of (next features, 1) by how many atoms the reward moves beyond an end of the support. Row
        # K + n has the transitions that move n atoms above it, row K - n those that move n atoms below.
        self.leaving = np.zeros((2 * support.num_atoms + 1, num_features + 1))
        self.ended_outside = np.zeros(2)
        self.most_numbers = MOST_NUMBERS if most_numbers is None else most_numbers

    def fits(self, rows: Rows) -> bool:
        """Whether the moments can be kept when these rows are added."""
        if self.collector is None:
            return False
        discounts, ended, size = rows.continuation(self.discount), rows.terminated, self.num_features**2
        if self.collector.most_groups(discounts, ended) * size <= self.most_numbers:
            return True
        return self.collector.count_after(rows.rewards, discounts, ended) * size <= self.most_numbers

    def merge(self, other: TransitionSums) -> None:
        """Add the sums over other rows, of the same support and discount."""
        mine, theirs = self.collector, other.collector
        if mine is None or theirs is None:
            self.collector = None
        elif mine.count_merged(theirs) * self.num_features**2 <= self.most_numbers:
            mine.merge(theirs)
        else:
            self.collector = None
        super().merge(other)
        self.leaving += other.leaving
        self.ended_outside += other.ended_outside

    def add(self, rows: Rows) -> None:
        """Add these rows; moments that would become too large are dropped."""
        super().add(rows)
        if not self.fits(rows):
            self.collector = None
        discounts = rows.continuation(self.discount)
        if self.collector is not None:
            following = rows.next_features if rows.weights is None else scaled_rows(rows.next_features, rows.weights)
            self.collector.add(rows.features, following, rows.rewards, discounts, rows.terminated, rows.mass)
        self._add_leaving(rows, discounts)

    def _add_leaving(self, rows: Rows, discounts: Floats) -> None:
        """Count the rows whose reward can take a return beyond the support, by how many atoms leave it."""
        r, mass, k = rows.rewards, rows.mass, self.support.num_atoms
        low, high = self.support.v_min, self.support.v_max
        slack = 1e-12 * (high - low)
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            below = np.searchsorted(self.support.atoms, (low - r - slack) / discounts)
            above = k - np.searchsorted(self.support.atoms, (high - r + slack) / discounts, side="right")
        place = np.where(rows.terminated, k, k + above - below)
        index = np.flatnonzero(place != k)
        hits = sparse.csr_array((mass[index], (place[index], index)), shape=(len(self.leaving), len(r)))
        self.leaving[:, :-1] += dense(hits @ rows.next_features)
        self.leaving[:, -1] += hits.sum(axis=1)
        last, share = r[rows.terminated], mass[rows.terminated]
        self.ended_outside += share @ (last < low - slack), share @ (last > high + slack)

    def report(self, weights: Floats, normalisation: Normalisation, gap: float, typical: float) -> SupportReport:
        """What the support cuts off from distributions with these weights (D, K).

        ``gap`` is the root mean square difference of the means from those without clipping, ``typical`` their size.
        """
        k, n, out = self.support.num_atoms, self.weight, self.leaving
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
        if not can_clip:
            sentence = f"No reward in the data can take a return beyond {ends}: nothing clips."
            return SupportReport(can_clip, below, above, 0.0, sentence)
        share = f"{100 * can_clip:.2g}" if can_clip < 0.995 else "100"
        say = f"{share}% of the transitions can take a return beyond {ends}; a backup clips "
        much = f"{below:.2g} of the mass below and {above:.2g} above on average."
        say += much if max(abs(below), abs(above)) >= 1e-9 else "less than 1e-9 of the mass on average."
        if gap > max(_LITTLE_WORTH * typical, 1e-3 * _LITTLE_WORTH * (self.support.v_max - self.support.v_min)):
            say += f" That moves mean returns by {gap:.3g} (root mean square): take a wider support."
        return SupportReport(can_clip, below, above, gap, say)


def basis_of_sums(sums: FeatureSums, regularisation: float, normalisation: Normalisation) -> Basis:
    """The basis to solve in: orthonormal features, or the features as they are where these are many and sparse."""
    if sums.num_features <= MOST_DENSE:
        return whiten_sums(sums, regularisation)
    if normalisation != "before":
        raise ValueError(f"normalisation must be 'before' with more than {MOST_DENSE} features, got {normalisation!r}")
    return SparseGram(sums.gram / sums.weight + ridge(sums, regularisation))


def whiten_sums(sums: FeatureSums, regularisation: float) -> Whitening:
    """Change to features that are orthonormal under the data; from the Gram matrix, because the rows are not kept.

    With regularisation the features that say nothing beside the others are dropped, so there may be fewer.
    """
    plain = sums.gram / sums.weight
    gram = plain + ridge(sums, regularisation)
    scale = np.sqrt(np.diag(gram))
    if not scale.all():
        if not regularisation:
            column = int(np.argmin(scale))
            raise ValueError(
                f"X must not have a column of zeros, got column {column}: drop it, or set regularisation > 0"
            )
        scale[scale == 0] = 1.0
    values, vectors = np.linalg.eigh(gram / np.outer(scale, scale))
    kept = values > 1e-13 * values[-1]
    if not kept.all() and not regularisation:
        raise DependentColumnsError(
            f"X must have linearly independent columns, got rank {kept.sum()} of {len(values)}: drop some, or set "
            "regularisation > 0"
        )
    values, vectors = values[kept], vectors[:, kept]
    inverse = vectors / np.sqrt(values) / scale[:, None]
    condition = float(values[-1] / values[0])
    return Whitening(inverse, condition, inverse.T @ sums.total / sums.weight, condition)


def ridge(sums: FeatureSums, regularisation: float) -> Any:
    r"""The penalty (D, D) that regularisation adds to the Gram matrix; sparse where that is.

    A column's weight is penalised by the column's variance, divided by the share of rows in which it is not zero. So
    units do not matter, and an indicator that occurs c times is shrunk by c / (c + rho n). The penalty is on what a
    prediction adds to its mean: where the constant is a combination of the features, it is free, and strong
    regularisation leads to one distribution for all states.
    """
    mean, share = sums.total / sums.weight, sums.nonzero / sums.weight
    spread = np.maximum(sums.gram.diagonal() / sums.weight - mean**2, 0.0)
    # Rounding leaves the variance of a constant column a little above zero.
    spread[spread <= 1e-12 * mean**2] = 0.0
    penalty = regularisation * np.divide(spread, share, out=np.zeros_like(spread), where=share > 0)
    if sums.penalties is not None:
        penalty *= sums.penalties
    if sparse.issparse(sums.gram):
        return sparse.diags_array(penalty)
    constant = constant_weights(sums) if regularisation else None
    if constant is None:
        return np.diag(penalty)
    rest = np.eye(len(mean)) - np.outer(constant, mean)
    return rest.T @ (penalty[:, None] * rest)


def constant_weights(sums: FeatureSums) -> Floats | None:
    """Weights (D,) with which the features make the constant one, on the data; None if no weights do."""
    best, distance = nearest_constant(sums)
    return best if distance < IN_SPAN else None


def nearest_constant(sums: FeatureSums) -> tuple[Floats, float]:
    """Weights (D,) of the combination closest to one, and its distance over the data: zero if rounding hides it."""
    gram, mean = sums.gram / sums.weight, sums.total / sums.weight
    scale = np.sqrt(np.maximum(np.diag(gram), np.finfo(float).tiny))
    best = least_squares(gram / np.outer(scale, scale), mean / scale, 1e-13) / scale
    # Rounding of the Gram matrix moves the squared distance by as much.
    hidden = _ROUNDINGS * np.finfo(float).eps * float(np.abs(best) @ (abs(gram) @ np.abs(best)))
    return best, float(np.sqrt(max(0.0, 1.0 - mean @ best - hidden)))


def system_from_moments(
    moments: Moments, sums: TransitionSums, whitening: Whitening, normalisation: Normalisation
) -> LinearSystem:
    """The system in whitened weights. May overwrite ``moments.crosses``."""
    change, d = whitening.inverse, sums.num_features
    turned, rank = change.T / sums.weight, change.shape[1]
    crosses = moments.crosses if rank == d else np.empty((len(moments.crosses), rank, rank))
    for g in range(0, len(crosses), 64):  # a few at a time, in place if possible: all of them may be a gigabyte
        part = (moments.crosses[g : g + 64].reshape(-1, d) @ change).reshape(-1, d, rank)
        crosses[g : g + 64] = np.matmul(turned, part)
    moments = moments._replace(crosses=crosses, inflows=moments.inflows @ turned.T, terminal=turned @ moments.terminal)
    return compressed_system(moments, whitening.constant, sums.support, normalisation)


def system_of_rows(source: Source, sums: TransitionSums, basis: Basis, normalisation: Normalisation) -> LinearSystem:
    """The same system where the moments do not fit in memory: from blocks, or with one pass for each product."""
    support, discount, n = sums.support, sums.discount, sums.weight
    k = support.num_atoms
    size = few_rows(8 * max(k, min(sums.num_features, MOST_DENSE)))

    def backed_up(part: Rows, distributions: Floats) -> Floats:
        return part.weighted_features.T @ backup(support, part.rewards, part.continuation(discount), distributions)

    def constants(part: Rows) -> list[Any]:
        """Backups of the uniform distribution: of transitions that continue, and of those that end at the reward."""
        ended, even = part.terminated[:, None], np.full(k, 1.0 / k)
        return [backed_up(part, np.where(ended, 0.0, even)), backed_up(part, np.where(ended, even, 0.0))]

    def move(weights: Floats) -> Floats:
        plain = basis.plain(weights)

        def product(part: Rows) -> list[Any]:
            return [backed_up(part, np.where(part.terminated[:, None], 0.0, part.next_features @ plain))]

        (moved,) = source.total(RowTotals(product, (np.add,), size)).values
        return basis.fitted(moved / n)

    def move_back(weights: Floats) -> Floats:
        fitted = np.moveaxis(weights, -2, 0)  # (D, ..., K): all in one pass
        each = (*fitted.shape[1:-1], k)
        plain = basis.unfitted(fitted.reshape(len(fitted), -1))

        def product(part: Rows) -> list[Any]:
            axes = (-1, *(1 for _ in each[:-1]))
            rewards, discounts = part.rewards.reshape(axes), part.continuation(discount).reshape(axes)
            moved = backup_adjoint(support, rewards, discounts, (part.weighted_features @ plain).reshape(-1, *each))
            return [part.next_features.T @ np.where(part.terminated[:, None], 0.0, moved.reshape(len(moved), -1))]

        (moved,) = source.total(RowTotals(product, (np.add,), few_rows(8 * plain.shape[1]))).values
        return np.moveaxis(basis.gathered(moved / n).reshape(-1, *each), 0, -2)

    blocks = None
    if isinstance(basis, Whitening):
        blocks = blocks_of_rows(source, support, discount, basis, n, MOST_NUMBERS)
    spread, terminal = source.total(RowTotals(constants, (np.add, np.add), size)).values
    spread, terminal = (basis.fitted(part / n) for part in (spread, terminal))
    products = (blocks.move, blocks.move_back) if blocks else (move, move_back)
    return matrix_free_system(*products, spread, terminal, basis.constant, normalisation)


def _nonzero(table: Any) -> Floats:
    """(D,) rows in which each column is not zero."""
    return table.count_nonzero(axis=0) if sparse.issparse(table) else np.count_nonzero(table, axis=0)


def least_squares(matrix: Floats, target: Floats, cond: float) -> Floats:
    """The shortest solution where small singular values count as zero, by QR, ten times as fast as by an SVD."""
    solve: Any = lstsq
    return solve(matrix, target, cond=cond, lapack_driver="gelsy", check_finite=False)[0]


def _ends_of(values: Floats) -> Floats:
    """The least value and the negated largest one; infinity where there are no values."""
    return np.array([values.min(initial=np.inf), (-values).min(initial=np.inf)])


def dense(table: Any) -> Floats:
    """A table as a dense array."""
    return table.toarray() if sparse.issparse(table) else table
