r"""Equations in the distributions of next states, for features that are many where next states are few.

Features of states and actions may be ten thousand, where a log has a few hundred distinct states. The backups only need
the distributions :math:`V = U\Theta` of the distinct next states, whose features are the rows of U. The weights are the
fit to these backups, so that V solves equations of its own,

.. math:: V = \sum_g B_g\, V M_g^\top + b, \qquad B_g = U G^{-1} \sum_{t \in g} \phi_t e_{i_t}^\top

where :math:`i_t` is the next state of row t. They have as many unknowns as there are distinct states, not features.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from cramerl._arrays import Floats
from cramerl.linear.moments import MomentsByDiscount
from cramerl.linear.operators import backup_adjoint
from cramerl.linear.problem import SparseGram
from cramerl.linear.systems import LinearSystem, compressed_system, matrix_free_system, one_by_one
from cramerl.linear.transition_sums import MOST_DENSE, MOST_NUMBERS, FeatureSums, TransitionSums
from cramerl.linear.transitions import Rows, Source, few_rows
from cramerl.measures import with_unit_mass
from cramerl.projections import backup


class DistinctSource(Source, Protocol):
    """Rows whose next states are among a few that are known."""

    @property
    def distinct(self) -> Any:
        """(u, D) features of the distinct states, sparse; None if they are too many."""
        ...

    def indexed(self) -> Iterator[tuple[Rows, NDArray[np.intp]]]:
        """Rows, and for each the number of its next state."""
        ...


class ReducedBasis:
    """Weights are the distributions (u, K) of the distinct next states.

    Attributes:
        constant: (u,) zeros: only other normalisations than "before" need it.
        spread: (D, u) weights of the fit to each distinct state's features.
    """

    condition = math.nan

    def __init__(self, source: DistinctSource, sums: TransitionSums, gram: SparseGram):
        self._source, self._sums, self._gram = source, sums, gram
        self.spread: Floats = gram.fitted(np.ascontiguousarray(source.distinct.T.toarray()))
        self.constant = np.zeros(self.spread.shape[1])

    def plain(self, weights: Floats) -> Floats:
        """Weights (D, K) of the features: their fit to the backups of these distributions."""
        support, total = self._sums.support, np.zeros((self._sums.num_features, weights.shape[1]))
        following = with_unit_mass(support, weights)
        for rows, index in self._source.indexed():
            target = backup(support, rows.rewards, rows.continuation(self._sums.discount), following[index])
            total += rows.weighted_features.T @ target
        return self._gram.fitted(total / self._sums.weight)

    def unfitted(self, weights: Floats) -> Floats:
        """Weights (D, ...) whose products with the rows' features are those of adjoint weights (u, ...)."""
        return self.spread @ weights

    def seen(self, rows: Rows) -> Floats:
        """(n, u) what each row adds to the distinct next states, divided by the weight of all rows."""
        return (rows.weighted_features @ self.spread) / self._sums.weight


def is_reducible(source: Source | None, sums: FeatureSums) -> bool:
    """Whether there are too many features for dense matrices, but few distinct next states."""
    return sums.num_features > MOST_DENSE and getattr(source, "distinct", None) is not None


def reduced_system(source: DistinctSource, sums: TransitionSums, gram: SparseGram) -> tuple[LinearSystem, ReducedBasis]:
    """The equations for the distributions of distinct next states."""
    basis = ReducedBasis(source, sums, gram)
    moments = _moments(source, sums, basis)
    if moments is not None:
        return compressed_system(moments.moments(), basis.constant, sums.support, "before"), basis
    return _system_by_passes(source, sums, basis), basis


def _moments(source: DistinctSource, sums: TransitionSums, basis: ReducedBasis) -> MomentsByDiscount | None:
    """The moments, or None if they would be too large to keep."""
    size = len(basis.constant)
    collected = MomentsByDiscount(sums.support, size)
    for rows, index in source.indexed():
        for part, places in _parts(rows, index, size):
            discounts, ones = part.continuation(sums.discount), np.ones(len(places))
            if collected.count_after(part.rewards, discounts, part.terminated) * size**2 > MOST_NUMBERS:
                return None
            right = sparse.csr_array((ones, places, np.arange(len(places) + 1)), (len(places), size))
            collected.add(basis.seen(part), right, part.rewards, discounts, part.terminated, ones)
    return collected


def _system_by_passes(source: DistinctSource, sums: TransitionSums, basis: ReducedBasis) -> LinearSystem:
    support, discount, k = sums.support, sums.discount, sums.support.num_atoms
    spread = basis.spread / sums.weight

    def moved(weights: Floats, goes_on: bool) -> Floats:
        total = np.zeros((sums.num_features, k))
        for rows, index in source.indexed():
            kept = (rows.terminated != goes_on)[:, None]
            target = backup(support, rows.rewards, rows.continuation(discount), weights[index]) * kept
            total += rows.weighted_features.T @ target
        return spread.T @ total

    def move_back(weights: Floats) -> Floats:
        plain, total = spread @ weights, np.zeros_like(weights)
        for rows, index in source.indexed():
            values = rows.weighted_features @ plain
            back = backup_adjoint(support, rows.rewards, rows.continuation(discount), values)
            np.add.at(total, index, back * ~rows.terminated[:, None])
        return total

    even = np.full((len(basis.constant), k), 1.0 / k)
    spread_out, terminal = moved(even, True), moved(even, False)
    return matrix_free_system(
        lambda weights: moved(weights, True), one_by_one(move_back), spread_out, terminal, basis.constant, "before"
    )


def _parts(rows: Rows, index: NDArray[np.intp], width: int) -> Iterator[tuple[Rows, NDArray[np.intp]]]:
    """A few rows at a time, so that (rows, width) arrays stay small."""
    size = few_rows(width)
    for first, part in zip(range(0, len(index), size), rows.parts(size), strict=True):
        yield part, index[first : first + size]
