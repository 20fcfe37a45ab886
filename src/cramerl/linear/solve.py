"""Three ways to the fixed point of a linear system: direct, Krylov, and the paper's iteration."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Literal, NamedTuple

import numpy as np
from scipy.linalg import LinAlgWarning, lu_factor, lu_solve

from cramerl._arrays import Floats
from cramerl.linear.krylov import FixedPoint, solve_fixed_point
from cramerl.linear.systems import LinearSystem
from cramerl.supports import Support

Method = Literal["auto", "direct", "krylov", "iteration"]
METHODS = ("auto", "direct", "krylov", "iteration")

# Unknowns up to which a factorisation is as fast as Krylov's few hundred products.
_DIRECT_UNKNOWNS = 500
# Unknowns past which the matrix of a direct solve (8 bytes an entry) is refused: three gigabytes.
_MOST_DIRECT_UNKNOWNS = 20_000
# Unknowns up to which "auto" solves directly where Krylov has failed: a gigabyte.
_MOST_LAST_RESORT = 12_000
_MOST_PRODUCTS = 1_000_000
# Error of the weights, which are masses, up to which a solution counts as one.
MOST_ERROR = 1e-6
# What stands for 1 - discount where the discount is one: a log's returns that end make the residual's factor finite.
_LEAST_HORIZON = 1e-4
# Roundings of an entry of a system that add up: more than were seen in thousands of evaluations (tests/fuzz).
_ROUNDINGS = 4.0
# Rounding of sums from which a solution is refined, and how small a correction, of the error allowed, ends that.
REFINED_FROM = 1e-8
_CORRECTED = 1e-3
_MOST_REFINEMENTS = 5


class Solution(NamedTuple):
    """Whitened weights (D, K) and how they were found.

    ``error`` estimates how far they are from the solution: by the last correction of a direct solve, otherwise by the
    defect, to which an error of up to 1 / (1 - discount) times its size belongs.
    """

    weights: Floats
    residual: float
    iterations: int
    method: str
    error: float


def certain_part(discount: float) -> float:
    """One minus the discount: a defect of this size may be an error of one."""
    return 1.0 - discount if discount < 1 else _LEAST_HORIZON


def rounding_error(discount: float, condition: float, support: Support) -> float:
    """How far rounding of the system alone may move masses, or means in widths of the support.

    Features of this condition number make it larger, and so does a support that is narrow for its distance from zero:
    where a backup lies between two atoms is then less certain. In a mean the errors of all masses add up, with random
    signs.
    """
    together = max(1.0, 0.5 * support.num_atoms**0.5)
    distance = max(1.0, max(abs(support.v_min), abs(support.v_max)) / (support.v_max - support.v_min))
    return _ROUNDINGS * np.finfo(np.float64).eps * together * distance * condition**0.5 / certain_part(discount)


def rounding_of_sums(discount: float, condition: float, support: Support) -> float:
    """The same for a system of sums over states or rows, in which the condition counts twice."""
    return rounding_error(discount, condition**2, support)


def _norm(weights: Floats) -> float:
    return float(np.linalg.norm(weights))


def solve(
    system: LinearSystem, method: Method, tol: float, discount: float, size: Callable[[Floats], float] = _norm
) -> Solution:
    """Solve Theta = F Theta + b; the residual is the norm of the difference of both sides.

    "auto" solves directly where products do not lead to the solution. ``size`` measures the error: of weights, by
    default their norm.
    """
    unknowns = system.constant.size
    certain = certain_part(discount)
    target = tol * certain
    if method == "direct" or (method == "auto" and unknowns <= _DIRECT_UNKNOWNS and system.dense is not None):
        return _direct(system, target, size)

    def error_of(weights: Floats) -> float:
        return size(system.constant + system.apply(weights) - weights) / certain

    if method == "iteration":
        found = _iterate(system, target)
        return Solution(found.solution, found.residual, found.products, "iteration", error_of(found.solution))
    found = solve_fixed_point(system.apply, system.constant, target, _MOST_PRODUCTS)
    error = error_of(found.solution)
    if method == "auto" and not error <= MOST_ERROR and system.dense is not None and unknowns <= _MOST_LAST_RESORT:
        return _direct(system, target, size)
    return Solution(found.solution, found.residual, found.products, "krylov", error)


def refined(
    found: Solution,
    system: LinearSystem,
    defect: Callable[[Floats], Floats],
    method: Method,
    tol: float,
    discount: float,
    size: Callable[[Floats], float] = _norm,
) -> Solution:
    """A solution corrected until its defect is gone, which ``defect`` gives with more digits than the system has.

    Its error is the size of the correction that is left. One that does not make the next smaller is undone.
    """
    best, weights = found._replace(error=np.inf), found.weights
    with np.errstate(all="ignore"):
        for _ in range(_MOST_REFINEMENTS):
            left = defect(weights)
            correction = solve(replace(system, constant=left), method, tol, discount).weights
            error = size(correction)
            if not error < best.error:
                break
            best = found._replace(weights=weights, residual=_norm(left), error=error)
            if error <= _CORRECTED * MOST_ERROR:
                break
            weights = weights + correction
    return best if np.isfinite(best.error) else found


def _iterate(system: LinearSystem, target: float) -> FixedPoint:
    weights, steps, residual = system.constant.copy(), 0, np.inf
    best, stuck = np.inf, 0
    # Rounding keeps the change from falling below some level: stop when it has not fallen for a while.
    while residual > target and stuck < 50 and steps < _MOST_PRODUCTS:
        following = system.constant + system.apply(weights)
        residual = _norm(following - weights)
        weights, steps = following, steps + 1
        stuck = 0 if residual < best else stuck + 1
        best = min(best, residual)
    return FixedPoint(weights, residual, steps)


def _direct(system: LinearSystem, target: float, size: Callable[[Floats], float]) -> Solution:
    unknowns, shape = system.constant.size, system.constant.shape
    if system.dense is None or unknowns > _MOST_DIRECT_UNKNOWNS:
        gigabytes = unknowns**2 * 8 / 1e9
        raise ValueError(
            f"method must be 'krylov' or 'iteration' here, got 'direct' with {unknowns} unknowns ({gigabytes:.0f} GB)"
        )
    matrix, constant = system.dense().reshape(unknowns, unknowns), system.constant.ravel()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LinAlgWarning)  # of what is refused below
        factors = lu_factor(np.eye(unknowns) - matrix, overwrite_a=True, check_finite=False)
    weights = lu_solve(factors, constant, check_finite=False)
    if not np.isfinite(weights).all():
        raise ValueError(
            "discount must leave equations that have one solution: to the digits of a float, these have none or many. "
            "Take a smaller discount, or features that depend less on each other"
        )
    defect = constant + matrix @ weights - weights
    correction = lu_solve(factors, defect)
    for _ in range(3):  # refinement removes the rounding errors of the factorisation
        if np.linalg.norm(defect) <= target:
            break
        weights = weights + correction
        defect = constant + matrix @ weights - weights
        correction = lu_solve(factors, defect)
    error = size(correction.reshape(shape))
    return Solution(weights.reshape(shape), _norm(defect), 1, "direct", error)
