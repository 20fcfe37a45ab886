r"""The distributional Bellman operator of a finite process, projected onto a support.

A process is kept as *branches*: one for each pair of a state and a reward that can follow it. Branch n leaves state
:math:`x_n` with reward :math:`r_n` and holds the (sub-probability) distribution of the next state,
:math:`\Pr(R = r_n, X' = \cdot \mid x_n)`. Rewards of the state alone give as many branches as states.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import solve_triangular

from cramerl.projections import backup
from cramerl.supports import Support

Floats = NDArray[np.float64]
Sparse = Any  # a scipy.sparse array; its types say too little to be of use

# Rows of (rows x atoms) work arrays: a few tens of megabytes at a time, whatever the number of states.
_CHUNK_ENTRIES = 4_000_000


class Branches(NamedTuple):
    """Where a process can go from each state, by reward.

    Attributes:
        states: (N,) state x_n each branch leaves, ascending.
        rewards: (N,) reward r_n.
        discounts: (N,) discount of what follows: that of the process, or 0 where the return ends.
        ends: (N,) whether the return ends here.
        next_distribution: (N, S) sparse; the rows of the branches of one state sum to one together.
    """

    states: NDArray[np.intp]
    rewards: Floats
    discounts: Floats
    ends: NDArray[np.bool_]
    next_distribution: Sparse

    @property
    def num_states(self) -> int:
        """Number of states, S."""
        return self.next_distribution.shape[1]

    @property
    def one_per_state(self) -> bool:
        """Whether branch n is state n."""
        return len(self.states) == self.num_states and bool(np.array_equal(self.states, np.arange(self.num_states)))

    @property
    def mass(self) -> Floats:
        """(N,) probability of each branch, given its state."""
        return np.asarray(self.next_distribution.sum(axis=1)).ravel()

    def going_on(self) -> Branches:
        """The same branches, with no distribution of the next state where the return ends."""
        if not self.ends.any():
            return self
        return self._replace(next_distribution=sparse.csr_array(self.next_distribution.multiply(~self.ends[:, None])))

    def gather(self, values: Any) -> Any:
        """Sum values (N, ...) over the branches of each state: (S, ...)."""
        if self.one_per_state:
            return values
        ones = np.ones(len(self.states))
        shape = (self.num_states, len(self.states))
        return sparse.csr_array((ones, (self.states, np.arange(len(self.states)))), shape=shape) @ values

    def chunks(self, width: int) -> list[slice]:
        """Slices of branches, such that (slice, width) arrays stay small."""
        size = max(1, _CHUNK_ENTRIES // max(1, width))
        return [slice(i, i + size) for i in range(0, len(self.states), size)]


def projected_bellman_update(branches: Branches, support: Support, masses: Floats) -> Floats:
    r"""Projected distribution of :math:`R(x) + \gamma Z(X')` at every state, :math:`\sum_r P_r Q M_r^\top`.

    Args:
        branches: the process.
        support: K atoms.
        masses: Q, (S, K) signed masses.

    Returns:
        (S, K) masses.
    """
    return _branchwise(branches, support, lambda part: branches.next_distribution[part] @ masses)


def projected_terminal_distribution(branches: Branches, support: Support) -> Floats:
    """(S, K): projected distribution of the reward on the branches that end the return, zero elsewhere."""
    ended = branches.ends * branches.mass
    point = np.zeros(support.num_atoms)
    point[0] = 1.0  # times a discount of zero: any distribution of mass one does
    return _branchwise(branches, support, lambda part: ended[part, None] * point)


def _branchwise(branches: Branches, support: Support, next_masses: Callable[[slice], Floats]) -> Floats:
    def backed_up(part: slice) -> Floats:
        return backup(support, branches.rewards[part], branches.discounts[part], next_masses(part))

    parts = branches.chunks(support.num_atoms)
    whole = backed_up(parts[0]) if len(parts) == 1 else np.concatenate([backed_up(part) for part in parts])
    return branches.gather(whole)


class FixedPoint(NamedTuple):
    """Solution of x = F x + b and how it was found."""

    solution: Floats
    residual: float
    iterations: int


def solve_fixed_point(apply: Callable[[Floats], Floats], constant: Floats, tol: float, max_products: int) -> FixedPoint:
    """Solve x = F x + b by restarted GMRES with refinement; ``apply`` is F, the residual is the Euclidean norm.

    GMRES spends its time on orthogonalising rather than on products; so each of its steps works on several products
    in a row, x = F^m x + ..., whose spectrum is that much smaller.
    """
    shape, size = constant.shape, constant.size
    in_a_row = 2 if size <= 5000 else 16
    products = 0

    def several(x: Floats, added: Floats | float) -> Floats:
        nonlocal products
        for _ in range(in_a_row):
            x = apply(x) + added
            products += 1
        return x

    def remainder(vector: Floats) -> Floats:
        return vector - several(vector.reshape(shape), 0.0).ravel()

    restart = int(min(size, 200, max(20, 5_000_000 // size)))
    x, residual, stuck = constant.copy(), np.inf, 0
    while products < max_products:
        defect = constant + apply(x) - x
        before, residual = residual, float(np.linalg.norm(defect))
        stuck = stuck + 1 if residual >= 0.5 * before else 0
        if residual <= tol or stuck == 3:  # there, or as near as rounding lets us
            break
        # One digit more than asked for, so that rounding in the last step does not call for another round.
        right = several(np.zeros(shape), defect).ravel()
        x = x + _gmres_cycle(remainder, right, max(1e-10, 0.1 * tol / residual), restart).reshape(shape)
    return FixedPoint(x, residual, products)


def _gmres_cycle(product: Callable[[Floats], Floats], right: Floats, rtol: float, most: int) -> Floats:
    """One cycle of GMRES on A x = b. SciPy's orthogonalises one vector at a time in Python; this, all at once.

    Classical Gram-Schmidt, twice, is as stable as the modified one and is made of matrix-vector products.
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
        again = known @ vector
        vector = vector - again @ known
        triangle[: j + 1, j] = column + again
        length = float(np.linalg.norm(vector))
        for i in range(j):  # earlier rotations
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
