"""A reference distribution of the returns: fine, and free of the spreading that repeated projection brings.

The hat projection keeps the mean of what it moves but widens it, by up to a quarter of the spacing squared each
time; at a discount of 0.99 fifty such steps add up. Here mass is shared between four neighbours (cubic Lagrange
weights), which keeps three moments. The weights may be negative: this is for measuring, not for predicting.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from cramerl._arrays import add_at
from cramerl.linear.operators import Branches, Floats, solve_fixed_point
from cramerl.linear.processes import MarkovRewardProcess
from cramerl.supports import Support

# Numbers (states x atoms) up to which a reference distribution is computed, and the atoms it should have at least.
_MOST_NUMBERS = 1_500_000
_FEWEST_ATOMS, _MOST_ATOMS = 300, 1000
# Distinct rewards up to which each has its own sparse matrix.
_MOST_MATRICES = 100
_DEVIATIONS = 10.0


def reference_distribution(process: MarkovRewardProcess) -> tuple[Support, Floats] | None:
    """A uniform grid over ten standard deviations of every return, and (S, grid) masses; None if S is too large."""
    budget = _MOST_NUMBERS if _few_rewards(process.branches) else _MOST_NUMBERS // 4
    if budget // process.num_states < _FEWEST_ATOMS:
        return None
    grid = _grid(process, min(_MOST_ATOMS, budget // process.num_states))
    branches = process.branches
    going = branches.going_on()
    move = _mover(branches, grid)
    start = np.full((process.num_states, grid.num_atoms), 1.0 / grid.num_atoms)
    ended = np.zeros((len(branches.states), grid.num_atoms))
    ended[:, 0] = branches.ends * branches.mass

    # As in `MarkovRewardProcess.true_returns`: the difference to an even distribution has mass zero, and is kept there.
    def update(masses: Floats) -> Floats:
        return branches.gather(move(going.next_distribution @ (masses - masses.mean(axis=1, keepdims=True))))

    constant = branches.gather(move(going.next_distribution @ start)) + branches.gather(move(ended)) - start
    return grid, start + solve_fixed_point(update, constant, 1e-10, max_products=5000).solution


def suggest_support(process: MarkovRewardProcess, num_atoms: int = 51, deviations: float = 4.0) -> Support:
    """An even support over the returns that matter: every state's mean and some standard deviations to either side.

    Args:
        process: a `MarkovRewardProcess`.
        num_atoms: K.
        deviations: how many standard deviations; never further than returns can reach.
    """
    return _grid(process, num_atoms, deviations)


def _few_rewards(branches: Branches) -> bool:
    return len(np.unique(branches.rewards)) <= _MOST_MATRICES


def _grid(process: MarkovRewardProcess, num_atoms: int, deviations: float = _DEVIATIONS) -> Support:
    low, high = process.return_range()
    values = process.true_values()
    spread = deviations * np.sqrt(np.maximum(_second_moments(process, values) - values**2, 0.0))
    low, high = max(low, float((values - spread).min())), min(high, float((values + spread).max()))
    margin = 1e-6 * (1 + abs(low) + abs(high)) if high - low < 1e-9 * (1 + abs(low)) else 0.0
    return Support.uniform(low - margin, high + margin, num_atoms)


def _second_moments(process: MarkovRewardProcess, values: Floats) -> Floats:
    """E G^2 = E[r^2 + 2 r gamma V' + gamma^2 G'^2]."""
    b = process.branches
    going = b.going_on()
    known = b.gather(b.rewards**2 * b.mass + 2 * b.rewards * b.discounts * (going.next_distribution @ values))
    twice: Any = sparse.csr_array(
        b.gather(sparse.csr_array(going.next_distribution.multiply(b.discounts[:, None] ** 2)))
    )
    tol = 1e-12 * max(1.0, float(np.linalg.norm(known)))
    return solve_fixed_point(lambda v: twice @ v, known, tol, max_products=100_000).solution


def _mover(branches: Branches, grid: Support) -> Any:
    """Function (N, n) -> (N, n): the masses of each branch moved to r + gamma z and shared between four atoms."""
    if not _few_rewards(branches):
        index, weights = _stencil(grid, branches.rewards[:, None] + branches.discounts[:, None] * grid.atoms)
        n = grid.num_atoms
        return lambda masses: sum(add_at(np, n, index + s, masses * w) for s, w in enumerate(weights))
    pairs, group = np.unique(np.stack([branches.rewards, branches.discounts], axis=1), axis=0, return_inverse=True)
    group = group.ravel()
    matrices = [_matrix(grid, reward, discount) for reward, discount in pairs]
    if len(pairs) == 1:
        return lambda masses: np.ascontiguousarray((matrices[0] @ masses.T).T)
    rows = [np.flatnonzero(group == g) for g in range(len(pairs))]

    def move(masses: Floats) -> Floats:
        out = np.empty_like(masses)
        for matrix, which in zip(matrices, rows, strict=True):
            out[which] = (matrix @ masses[which].T).T
        return out

    return move


def _matrix(grid: Support, reward: float, discount: float) -> Any:
    index, weights = _stencil(grid, reward + discount * grid.atoms)
    n = grid.num_atoms
    rows = np.concatenate([index + s for s in range(4)])
    columns = np.tile(np.arange(n), 4)
    return sparse.csr_array((np.concatenate(weights), (rows, columns)), shape=(n, n))


def _stencil(grid: Support, places: Floats) -> tuple[Any, list[Floats]]:
    """First of the four atoms, and the cubic Lagrange weights of all four; beyond the grid, its end."""
    n, step = grid.num_atoms, float(grid.spacings.mean())
    position = np.clip((places - grid.v_min) / step, 0, n - 1)
    first = np.clip(np.floor(position).astype(np.intp) - 1, 0, n - 4)
    t = position - first - 1
    return first, [
        -t * (t - 1) * (t - 2) / 6,
        (t + 1) * (t - 1) * (t - 2) / 2,
        -(t + 1) * t * (t - 2) / 2,
        (t + 1) * t * (t - 1) / 6,
    ]
