r"""The system's matrix by pairs of atoms, for many rewards.

Entry (i, j) of the sum over groups :math:`\sum_g B_g (M_g)_{ij}` is a D x D block: what mass at the next state's atom j
adds to atom i. A backup moves an atom by about as much as a reward, so most of the K x K blocks are zero, and one
product with the others is less work than one with each group's matrix.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from cramerl._arrays import Floats
from cramerl.linear.moments import Moments
from cramerl.projections import backup
from cramerl.supports import Support


class AtomBlocks(NamedTuple):
    """The blocks that are not zero, for each atom j of the next state.

    Attributes:
        reached: K index arrays, the atoms i to which mass at j moves.
        blocks: K arrays (len(reached[j]), D, D).
    """

    reached: Sequence[NDArray[np.intp]]
    blocks: Sequence[Floats]

    def move(self, weights: Floats) -> Floats:
        """(D, K) weights times the matrix of the system."""
        moved = np.zeros(weights.shape[::-1])
        for j, (atoms, block) in enumerate(zip(self.reached, self.blocks, strict=True)):
            moved[atoms] += block @ weights[:, j]
        return np.ascontiguousarray(moved.T)

    def move_back(self, weights: Floats) -> Floats:
        """(..., D, K) weights times the transpose."""
        moved, size = np.empty(weights.shape), weights.shape[-2]
        for j, (atoms, block) in enumerate(zip(self.reached, self.blocks, strict=True)):
            values = np.swapaxes(weights[..., atoms], -1, -2).reshape(*weights.shape[:-2], -1)
            moved[..., j] = values @ block.reshape(-1, size)
        return moved

    def whole(self) -> Floats:
        """(D, K, D, K) array of all blocks."""
        k, size = len(self.blocks), self.blocks[0].shape[1]
        matrix = np.zeros((size, k, size, k))
        for j, (atoms, block) in enumerate(zip(self.reached, self.blocks, strict=True)):
            matrix[:, atoms, :, j] = block  # indices first, then both features
        return matrix


def atom_blocks(moments: Moments, support: Support, most_numbers: int) -> AtomBlocks | None:
    """The blocks of a system, or None where they would be more numbers than these."""
    groups, size, k = len(moments.rewards), moments.crosses.shape[1], support.num_atoms
    crosses, columns = moments.crosses.reshape(groups, size * size), []
    for j in range(k):
        moved = backup(support, moments.rewards, moments.discounts, np.broadcast_to(np.eye(k)[j], (groups, k)))
        columns.append((np.flatnonzero(moved.any(axis=0)), sparse.csr_array(moved)))
    if sum(len(atoms) for atoms, _ in columns) * size**2 > most_numbers:
        return None
    blocks = [(moved[:, atoms].T @ crosses).reshape(-1, size, size) for atoms, moved in columns]
    return AtomBlocks([atoms for atoms, _ in columns], blocks)
