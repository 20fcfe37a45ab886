r"""How far the grid widens distributions: their variance against the one that Bellman's equation gives without a grid.

Second moments obey a linear equation too: :math:`E[G^2] = E[R^2 + 2 \gamma R\, G' + \gamma^2 G'^2]`. Fitted on the same
features it gives second moments that no support has widened or cut off.
"""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np

from cramerl._arrays import Floats
from cramerl.linear.krylov import solve_fixed_point
from cramerl.linear.moments import SquareSums, scaled_rows
from cramerl.linear.problem import Basis, Normalisation, SparseGram, mass_offset
from cramerl.linear.transition_sums import MOST_DENSE, TransitionSums, least_squares, ridge
from cramerl.linear.transitions import Rows, RowTotals, Source, few_rows

# Variance, as a share of the squared width of the support, up to which it counts as none.
_NO_VARIANCE = 1e-10
# Products with the matrix of the second moments' equation, where there are too many features to form it.
_MOST_PRODUCTS = 5000


def variance_ratio(
    source: Source | None,
    sums: TransitionSums,
    basis: Basis,
    means: Floats,
    weights: Floats,
    normalisation: Normalisation,
    regularisation: float,
) -> float:
    """Mean variance of the distributions with weights (D, K), over the one without a grid for LSTD's weights (D,).

    NaN where returns have no variance or the equation for it has no sensible solution.
    """
    support, n = sums.support, sums.weight
    z, offset = support.atoms, mass_offset(normalisation, support)
    centre = offset * np.array([support.num_atoms, z.sum(), z @ z])  # of 1, G and G^2, before any features
    fitted = _pooled(sums, weights @ z**2, centre[2]) - _squared(sums, weights @ z, centre[1])
    squares = _square_sums(source, sums)
    target = sums.squared_reward_vector + 2 * (squares.rewarded @ means + centre[1] * squares.rewarded_total)
    target = target + centre[2] * (squares.twice_total - sums.total)
    second = _solved(sums, basis, squares.twice, target / n, regularisation)
    plain = _pooled(sums, second, centre[2]) - _squared(sums, means, centre[1])
    return float(fitted / plain) if plain > _NO_VARIANCE * (z[-1] - z[0]) ** 2 else math.nan


def _pooled(sums: TransitionSums, weights: Floats, base: float) -> float:
    """Mean over the data of base + phi'w."""
    return base + float(sums.total @ weights) / sums.weight


def _squared(sums: TransitionSums, weights: Floats, base: float) -> float:
    """Mean over the data of (base + phi'w)^2."""
    own = float(weights @ (sums.gram @ weights)) / sums.weight
    return base**2 + 2 * base * float(sums.total @ weights) / sums.weight + own


def _square_sums(source: Source | None, sums: TransitionSums) -> SquareSums:
    if sums.collector is not None:
        return sums.collector.square_sums()
    if source is None:
        raise ValueError("solve needs moments, which were too large to keep in this fit: call fit again")
    discount = sums.discount

    def squares(part: Rows) -> list[Any]:
        discounts = part.continuation(discount)
        rewarded = scaled_rows(part.weighted_features, part.rewards * discounts)
        twice = scaled_rows(part.weighted_features, discounts**2)
        totals = (np.asarray(table.sum(axis=0)).ravel() for table in (rewarded, twice))
        return [rewarded.T @ part.next_features, twice.T @ part.next_features, *totals]

    size = few_rows(min(sums.num_features, MOST_DENSE))
    return SquareSums(*source.total(RowTotals(squares, (operator.add,) * 4, size)).values)


def _solved(sums: TransitionSums, basis: Basis, twice: Any, target: Floats, regularisation: float) -> Floats:
    """Weights of the second moments."""
    if isinstance(basis, SparseGram):
        start = basis.fitted(target[:, None])
        found = solve_fixed_point(lambda v: basis.fitted((twice @ v) / sums.weight), start, 1e-9, _MOST_PRODUCTS)
        return found.solution[:, 0]
    return least_squares((sums.gram - twice) / sums.weight + ridge(sums, regularisation), target, 1e-13)
