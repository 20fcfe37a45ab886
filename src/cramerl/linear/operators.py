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

from cramerl._arrays import Floats
from cramerl.projections import backup
from cramerl.supports import Support

Sparse = Any  # a scipy.sparse array; SciPy's own types say too little to be useful

# Numbers in a work array of (branches, atoms): 32 megabytes at a time, whatever the number of states.
_CHUNK_ENTRIES = 4_000_000


class Branches(NamedTuple):
    """Where a process can go from each state, by reward."""

    states: NDArray[np.intp]  # (N,) state x_n each branch leaves, ascending
    rewards: Floats  # (N,) reward r_n
    discounts: Floats  # (N,) discount of what follows: that of the process, or 0 where the return ends
    ends: NDArray[np.bool_]  # (N,) whether the return ends here
    next_distribution: Sparse  # (N, S) sparse; the rows of the branches of one state sum to one together

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

    def continuing(self) -> Branches:
        """The same branches, with no next state where the return ends."""
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


def between_atoms(support: Support, rewards: Floats, discounts: Floats) -> tuple[NDArray[np.intp], Floats]:
    """(..., K) where each atom's backup lies: the atom below it, and how far it is on the way to the next."""
    z = support.atoms
    moved = np.clip(rewards[..., None] + discounts[..., None] * z, z[0], z[-1])
    cell = np.clip(np.searchsorted(z, moved, side="right") - 1, 0, len(z) - 2)
    return cell, np.clip((moved - z[cell]) / support.spacings[cell], 0.0, 1.0)


def backup_adjoint(support: Support, rewards: Floats, discounts: Floats, values: Floats) -> Floats:
    r"""Transpose of `backup`: :math:`M_r^\top v`, for rewards and discounts (...) and values (..., K) on the atoms.

    Where the backup of a mass at z splits it between two atoms, this reads v between these atoms, at r + gamma z.
    """
    cell, fraction = between_atoms(support, rewards, discounts)
    values, cell = np.broadcast_arrays(values, cell)
    lower = np.take_along_axis(values, cell, axis=-1)
    return lower + fraction * (np.take_along_axis(values, cell + 1, axis=-1) - lower)


def projected_bellman_update(branches: Branches, support: Support, masses: Floats) -> Floats:
    r"""(S, K): projected distribution of :math:`R(x) + \gamma Z(X')`, which is :math:`\sum_r P_r Q M_r^\top`."""
    return _branchwise(branches, support, lambda part: branches.next_distribution[part] @ masses)


def projected_terminal_distribution(branches: Branches, support: Support) -> Floats:
    """(S, K): projected distribution of the reward on the branches that end the return, zero elsewhere."""
    ended = branches.ends * branches.mass
    point = np.zeros(support.num_atoms)
    point[0] = 1.0  # the discount is zero there, so any distribution of mass one becomes the reward
    return _branchwise(branches, support, lambda part: ended[part, None] * point)


def _branchwise(branches: Branches, support: Support, next_masses: Callable[[slice], Floats]) -> Floats:
    def backed_up(part: slice) -> Floats:
        return backup(support, branches.rewards[part], branches.discounts[part], next_masses(part))

    parts = branches.chunks(support.num_atoms)
    whole = backed_up(parts[0]) if len(parts) == 1 else np.concatenate([backed_up(part) for part in parts])
    return branches.gather(whole)
