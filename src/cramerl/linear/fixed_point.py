"""The fixed point of `DistributionalLSTD`: which equations, how they are solved, and when the answer cannot be used."""

from __future__ import annotations

import math
import warnings
from functools import partial
from typing import Any, Literal, NamedTuple, get_args

from cramerl._arrays import Floats
from cramerl.linear.constrained import solve_constrained
from cramerl.linear.defects import row_defect
from cramerl.linear.log_certificates import MOST_MASS, size_over_data
from cramerl.linear.problem import Basis, Normalisation, SparseGram, Whitening
from cramerl.linear.reduced import ReducedBasis, is_reducible, reduced_system
from cramerl.linear.solve import (
    MOST_ERROR,
    REFINED_FROM,
    Method,
    Solution,
    refined,
    rounding_error,
    rounding_of_sums,
    solve,
)
from cramerl.linear.systems import LinearSystem
from cramerl.linear.transition_sums import TransitionSums, system_from_moments, system_of_rows
from cramerl.linear.transitions import Source

NextDistribution = Literal["auto", "signed", "proper"]
NEXT_DISTRIBUTIONS = get_args(NextDistribution)

# Unknowns up to which a system with many rewards, whose products are slow, is factorised.
_DIRECT_UNKNOWNS = 2000


class Asked(NamedTuple):
    """Settings of `DistributionalLSTD` that decide which equations are solved, and how."""

    normalisation: Normalisation
    regularisation: float
    method: Method
    next_distribution: NextDistribution
    tol: float


class FixedPoint(NamedTuple):
    """Weights (D, K), how they were found, and the system that was solved with its coordinates (None: not linear)."""

    weights: Floats
    found: Solution
    system: LinearSystem | None
    basis: Basis | ReducedBasis


def find_fixed_point(source: Source | None, sums: TransitionSums, basis: Basis, asked: Asked) -> FixedPoint:
    """The fixed point of the sums, and the linear system it solves; warns if it cannot be used as it is.

    Args:
        source: the rows, for what needs passes over them; None: the sums are all there is.
        sums: of the rows.
        basis: in which the weights are found.
        asked: what to solve.
    """
    if asked.next_distribution == "proper":
        return _constrained(source, sums, basis, asked)
    system, method, coordinates = system_and_method(source, sums, basis, asked)
    found = solve(system, method, asked.tol, sums.discount)
    weights = coordinates.plain(found.weights)
    size = size_over_data(sums, weights)
    exploded = not size <= MOST_MASS
    if exploded and asked.next_distribution == "auto" and asked.normalisation == "before" and source is not None:
        warnings.warn(
            f"the equations for distributions are unstable on this data (masses of {size:.2g} in root mean square, "
            "where distributions have at most 1), so they were solved with proper next distributions: be careful "
            "with the answer. Fewer features, regularisation or fewer atoms may help",
            stacklevel=5,
        )
        return _constrained(source, sums, basis, asked)
    condition = 1.0 if math.isnan(basis.condition) else basis.condition
    scale = sums.largest_discount, condition, sums.support
    digits = rounding_of_sums(*scale)
    if digits > REFINED_FROM and not exploded and source is not None and isinstance(coordinates, Whitening):
        defect = partial(row_defect, source, sums, coordinates, asked.normalisation, asked.regularisation)
        found = refined(found, system, defect, method, asked.tol, sums.discount)
        weights = coordinates.plain(found.weights)
        digits = rounding_error(*scale)
    if not exploded and found.error <= MOST_ERROR < digits:
        warnings.warn(
            f"the masses may be wrong by {digits:.1e}: a discount of {sums.largest_discount:.10g} leaves too few "
            "digits with these features and this support",
            stacklevel=5,
        )
    if exploded or not found.error <= MOST_ERROR:
        warnings.warn(
            f"no fixed point was found that can be used (residual {found.residual:.1e}, masses of {size:.2g} in "
            "root mean square, where distributions have at most 1): data that does not visit states as the policy "
            "does may have none. Fewer features, regularisation or next_distribution='proper' may help",
            stacklevel=5,
        )
    return FixedPoint(weights, found, system, coordinates)


def _constrained(source: Source | None, sums: TransitionSums, basis: Basis, asked: Asked) -> FixedPoint:
    if source is None:
        raise ValueError("next_distribution='proper' needs passes over the data: call fit, not partial_fit")
    if asked.normalisation != "before":
        raise ValueError(f"normalisation must be 'before' with proper next distributions, got {asked.normalisation!r}")
    found = solve_constrained(source, sums, basis, max(asked.tol, 1e-8))
    return FixedPoint(basis.plain(found.weights), found, None, basis)


def system_and_method(
    source: Source | None, sums: TransitionSums, basis: Basis, asked: Asked
) -> tuple[LinearSystem, Method, Basis | ReducedBasis]:
    """The linear system, how to solve it, and its coordinates."""
    method = asked.method
    if isinstance(basis, SparseGram) and is_reducible(source, sums):
        distinct: Any = source
        system, reduced = reduced_system(distinct, sums, basis)
        return system, method, reduced
    if sums.collector is not None and isinstance(basis, Whitening):
        moments = sums.collector.moments()
        system = system_from_moments(moments, sums, basis, asked.normalisation)
        many_rewards = len(moments.rewards) > sums.support.num_atoms
        if method == "auto" and many_rewards and system.constant.size <= _DIRECT_UNKNOWNS:
            method = "direct"
        return system, method, basis
    if source is not None:
        return system_of_rows(source, sums, basis, asked.normalisation), method, basis
    raise ValueError("solve needs moments, which were too large to keep in this fit: call fit again")
