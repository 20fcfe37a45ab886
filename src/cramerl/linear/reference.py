"""A reference distribution of the returns: on a fine grid, without the spreading that repeated projection causes.

The hat projection preserves the mean of a mass but adds variance, up to a quarter of the spacing squared each time;
at a discount of 0.99 fifty such steps add up. Here mass is split between four neighbouring atoms (cubic Lagrange
weights), which preserves three moments. The weights may be negative: this is for measuring errors, not for predicting.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from cramerl._arrays import Floats, add_at
from cramerl.linear.krylov import solve_fixed_point
from cramerl.linear.operators import Branches
from cramerl.linear.processes import MarkovRewardProcess
from cramerl.linear.support_choice import suggest_support
from cramerl.supports import Support

# Numbers (states x atoms) up to which a reference distribution is computed, and how many atoms it may have.
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
    grid = suggest_support(process, min(_MOST_ATOMS, budget // process.num_states), _DEVIATIONS)
    branches, continuing = process.branches, process.branches.continuing()
    move = _mover(branches, grid)
    start = np.full((process.num_states, grid.num_atoms), 1.0 / grid.num_atoms)
    ended = np.zeros((len(branches.states), grid.num_atoms))
    ended[:, 0] = branches.ends * branches.mass

    # As in `MarkovRewardProcess.true_returns`: solve for the difference to the uniform distribution, of mass zero.
    def update(masses: Floats) -> Floats:
        return branches.gather(move(continuing.next_distribution @ (masses - masses.mean(axis=1, keepdims=True))))

    constant = branches.gather(move(continuing.next_distribution @ start)) + branches.gather(move(ended)) - start
    return grid, start + solve_fixed_point(update, constant, 1e-10, max_products=5000).solution


def _few_rewards(branches: Branches) -> bool:
    return len(np.unique(branches.rewards)) <= _MOST_MATRICES


def _mover(branches: Branches, grid: Support) -> Any:
    """Function (N, n) -> (N, n) that moves the masses of each branch to r + gamma z, split between four atoms."""
    n = grid.num_atoms
    if not _few_rewards(branches):
        index, weights = _stencil(grid, branches.rewards[:, None] + branches.discounts[:, None] * grid.atoms)
        return lambda masses: sum(add_at(np, n, index + s, masses * w) for s, w in enumerate(weights))
    pairs, group = np.unique(np.stack([branches.rewards, branches.discounts], axis=1), axis=0, return_inverse=True)
    group = group.ravel()
    matrices = []
    for reward, discount in pairs:
        first, weights = _stencil(grid, reward + discount * grid.atoms)
        entries = np.concatenate([first + s for s in range(4)]), np.tile(np.arange(n), 4)
        matrices.append(sparse.csr_array((np.concatenate(weights), entries), shape=(n, n)))
    if len(pairs) == 1:
        return lambda masses: np.ascontiguousarray((matrices[0] @ masses.T).T)
    rows = [np.flatnonzero(group == g) for g in range(len(pairs))]

    def move(masses: Floats) -> Floats:
        out = np.empty_like(masses)
        for matrix, which in zip(matrices, rows, strict=True):
            out[which] = (matrix @ masses[which].T).T
        return out

    return move


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
