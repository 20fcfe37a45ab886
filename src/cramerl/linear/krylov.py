"""A Krylov solver for fixed points x = F x + b that knows F by its products only."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.linalg import solve_triangular

from cramerl._arrays import Floats


class FixedPoint(NamedTuple):
    """Solution of x = F x + b, the Euclidean norm of its defect, and the number of products with F."""

    solution: Floats
    residual: float
    products: int


def solve_fixed_point(
    apply: Callable[[Floats], Floats], constant: Floats, tol: float, max_products: int, in_a_row: int | None = None
) -> FixedPoint:
    """Solve x = F x + b by restarted GMRES with iterative refinement.

    Orthogonalising costs GMRES more time than the products. So each of its steps makes several products in a row and
    solves the equivalent x = F^m x + (F^(m-1) + ... + I) b, whose spectrum is F's to the power m and which therefore
    needs fewer steps. ``apply`` is F, ``constant`` is b; ``tol`` is the residual at which to stop. ``in_a_row`` is m;
    by default it is large where vectors are long, which suits quick products.
    """
    shape, size = constant.shape, constant.size
    in_a_row = in_a_row or (2 if size <= 5000 else 16)
    products = 0

    def repeat(x: Floats, added: Floats | float) -> Floats:
        """Apply x -> F x + added several times."""
        nonlocal products
        for _ in range(in_a_row):
            x = apply(x) + added
            products += 1
        return x

    # Vectors of the basis: at most 200, and fewer where they are long, so that the basis stays below 40 megabytes.
    restart = int(min(size, 200, max(20, 5_000_000 // size)))
    x, residual, stalled = constant.copy(), np.inf, 0
    while products < max_products:
        # The defect is computed from x itself, not carried along: this is what removes GMRES's rounding errors.
        defect = constant + apply(x) - x
        before, residual = residual, float(np.linalg.norm(defect))
        stalled = stalled + 1 if residual >= 0.5 * before else 0
        if residual <= tol or stalled == 3:  # converged, or as close as rounding allows
            break
        right = repeat(np.zeros(shape), defect).ravel()
        # One digit more than needed, so that rounding in the last cycle does not force another one.
        rtol = max(1e-10, 0.1 * tol / residual)
        step = _gmres_cycle(lambda v: v - repeat(v.reshape(shape), 0.0).ravel(), right, rtol, restart)
        x = x + step.reshape(shape)
    return FixedPoint(x, residual, products)


def _gmres_cycle(product: Callable[[Floats], Floats], right: Floats, rtol: float, most: int) -> Floats:
    """One cycle of GMRES on A x = b, with a basis of at most ``most`` vectors.

    SciPy's version orthogonalises against one vector at a time, in Python. This one uses classical Gram-Schmidt, which
    is two matrix-vector products; applied twice it is as stable as the modified form.
    """
    size = float(np.linalg.norm(right))
    if size == 0:
        return np.zeros_like(right)
    basis = np.empty((most + 1, right.size))
    basis[0] = right / size
    triangle, rotations, rest = np.zeros((most + 1, most)), np.empty((most, 2)), np.zeros(most + 1)
    rest[0], used = size, 0
    for j in range(most):
        known, vector = basis[: j + 1], product(basis[j])
        column = known @ vector
        vector = vector - column @ known
        correction = known @ vector
        vector = vector - correction @ known
        triangle[: j + 1, j] = column + correction
        length = float(np.linalg.norm(vector))
        # Givens rotations keep the least-squares problem triangular: first the earlier ones, then a new one that
        # removes the entry below the diagonal. The last entry of ``rest`` is then the norm of the remaining defect.
        for i in range(j):
            c, s = rotations[i]
            a, b = triangle[i, j], triangle[i + 1, j]
            triangle[i, j], triangle[i + 1, j] = c * a + s * b, c * b - s * a
        radius = float(np.hypot(triangle[j, j], length))
        rotations[j] = (triangle[j, j] / radius, length / radius) if radius else (1.0, 0.0)
        triangle[j, j] = radius
        rest[j], rest[j + 1] = rotations[j, 0] * rest[j], -rotations[j, 1] * rest[j]
        used = j + 1
        if abs(rest[j + 1]) <= rtol * size or length <= 1e-14 * size:
            break
        basis[j + 1] = vector / length
    return solve_triangular(triangle[:used, :used], rest[:used]) @ basis[:used]
