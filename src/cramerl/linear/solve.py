"""Three ways to the fixed point of a linear system: direct, Krylov, and the paper's iteration."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from scipy.linalg import lu_factor, lu_solve

from cramerl._arrays import Floats
from cramerl.linear.krylov import solve_fixed_point
from cramerl.linear.systems import LinearSystem

Method = Literal["auto", "direct", "krylov", "iteration"]
METHODS = ("auto", "direct", "krylov", "iteration")

# Unknowns up to which a factorisation is as fast as Krylov's few hundred products.
_DIRECT_UNKNOWNS = 500
# Unknowns past which the matrix of a direct solve (8 bytes an entry) is refused: three gigabytes.
_MOST_DIRECT_UNKNOWNS = 20_000
_MOST_PRODUCTS = 1_000_000


class Solution(NamedTuple):
    """Whitened weights (D, K) and how they were found."""

    weights: Floats
    residual: float
    iterations: int
    method: str


def solve(system: LinearSystem, method: Method, tol: float, discount: float) -> Solution:
    """Solve Theta = F Theta + b; the residual is the norm of the difference of both sides."""
    unknowns = system.constant.size
    if method == "auto":
        method = "direct" if unknowns <= _DIRECT_UNKNOWNS and system.dense is not None else "krylov"
    # The error is up to 1 / (1 - discount) times the residual.
    target = tol * (1 - discount)
    if method == "direct":
        return _direct(system, target)
    if method == "krylov":
        found = solve_fixed_point(system.apply, system.constant, target, _MOST_PRODUCTS)
        return Solution(found.solution, found.residual, found.products, "krylov")
    weights, steps, residual = system.constant.copy(), 0, np.inf
    best, stuck = np.inf, 0
    # Rounding keeps the change from falling below some level: stop when it has not fallen for a while.
    while residual > target and stuck < 50 and steps < _MOST_PRODUCTS:
        following = system.constant + system.apply(weights)
        residual = float(np.linalg.norm(following - weights))
        weights, steps = following, steps + 1
        stuck = 0 if residual < best else stuck + 1
        best = min(best, residual)
    return Solution(weights, residual, steps, "iteration")


def _direct(system: LinearSystem, target: float) -> Solution:
    unknowns, shape = system.constant.size, system.constant.shape
    if system.dense is None or unknowns > _MOST_DIRECT_UNKNOWNS:
        gigabytes = unknowns**2 * 8 / 1e9
        raise ValueError(
            f"method must be 'krylov' or 'iteration' here, got 'direct' with {unknowns} unknowns ({gigabytes:.0f} GB)"
        )
    matrix, constant = system.dense().reshape(unknowns, unknowns), system.constant.ravel()
    factors = lu_factor(np.eye(unknowns) - matrix, overwrite_a=True, check_finite=False)
    weights = lu_solve(factors, constant)
    defect = constant + matrix @ weights - weights
    for _ in range(3):  # refinement removes the rounding errors of the factorisation
        if np.linalg.norm(defect) <= target:
            break
        weights = weights + lu_solve(factors, defect)
        defect = constant + matrix @ weights - weights
    return Solution(weights.reshape(shape), float(np.linalg.norm(defect)), 1, "direct")
