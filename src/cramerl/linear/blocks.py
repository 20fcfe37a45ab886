r"""The system's matrix by pairs of atoms, for many rewards.

Entry (i, j) of the sum over groups :math:`\sum_g B_g (M_g)_{ij}` is a D x D block: what mass at the next state's atom j
adds to atom i. A backup moves an atom by about as much as a reward, so most of the K x K blocks are zero, and one
product with the others is less work than one with each group's matrix.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from cramerl._arrays import Floats
from cramerl.linear.moments import Moments
from cramerl.linear.operators import between_atoms
from cramerl.linear.problem import Whitening
from cramerl.linear.transitions import Rows, RowTotals, Source, few_rows
from cramerl.supports import Support

# Features up to which adding up the blocks is less work than the products that would be made by passes over the rows.
_MOST_FEATURES = 300


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


def blocks_of_moments(moments: Moments, support: Support, most_numbers: int) -> AtomBlocks | None:
    """The blocks of a system, or None where they would be more numbers than these."""
    groups, size, k = len(moments.rewards), moments.crosses.shape[1], support.num_atoms
    cell, fraction = between_atoms(support, moments.rewards, moments.discounts)
    reach = _reach(cell, fraction, k)
    if reach.sum() * size**2 > most_numbers:
        return None
    crosses, bounds = moments.crosses.reshape(groups, size * size), 2 * np.arange(groups + 1)
    reached, blocks = [], []
    for j in range(k):
        entries, atoms = np.stack([1 - fraction[:, j], fraction[:, j]], 1), np.stack([cell[:, j], cell[:, j] + 1], 1)
        moved = sparse.csr_array((entries.ravel(), atoms.ravel(), bounds), (groups, k))
        reached.append(np.flatnonzero(reach[:, j]))
        blocks.append((moved[:, reached[-1]].T @ crosses).reshape(-1, size, size))
    return AtomBlocks(reached, blocks)


def blocks_of_rows(
    source: Source, support: Support, discount: float, basis: Whitening, weight: float, most_numbers: int
) -> AtomBlocks | None:
    """The same from rows, for more rewards than moments are kept of. None also where features are sparse or many."""
    k, size = support.num_atoms, source.num_features
    if size > _MOST_FEATURES:
        return None

    def lie(part: Rows) -> tuple[Rows, NDArray[np.intp], Floats]:
        going = part.take(np.flatnonzero(~part.terminated))
        return going, *between_atoms(support, going.rewards, going.continuation(discount))

    def look(part: Rows) -> list[Any]:
        _, cell, fraction = lie(part)
        return [_reach(cell, fraction, k), sparse.issparse(part.features)]

    reach, is_sparse = source.total(RowTotals(look, (np.logical_or, np.logical_or), few_rows(4 * k))).values
    if is_sparse or reach.sum() * size**2 > most_numbers:
        return None
    reached = [np.flatnonzero(reach[:, j]) for j in range(k)]

    def product(part: Rows) -> list[Any]:
        going, cell, fraction = lie(part)
        left, right = going.weighted_features, going.next_features
        return [_block(atoms, left, right, cell[:, j], fraction[:, j]) for j, atoms in enumerate(reached)]

    found = source.total(RowTotals(product, (np.add,) * k, few_rows(max(2 * size, k)))).values
    return AtomBlocks(reached, [basis.inverse.T @ block @ basis.inverse / weight for block in found])


def _reach(cell: NDArray[np.intp], fraction: Floats, k: int) -> NDArray[np.bool_]:
    """(K, K) whether any mass at atom j moves to atom i."""
    reach, columns = np.zeros((k, k), dtype=bool), np.broadcast_to(np.arange(k), cell.shape)
    reach[cell, columns] = True
    reach[cell[fraction > 0] + 1, columns[fraction > 0]] = True
    return reach


def _block(atoms: NDArray[np.intp], left: Floats, right: Floats, cell: NDArray[np.intp], fraction: Floats) -> Floats:
    """(len(atoms), D, D) products of rows' features, shared by the two atoms between which each row lies."""
    size, block, order = left.shape[1], np.zeros((len(atoms), left.shape[1], left.shape[1])), np.argsort(cell)
    cells, starts = np.unique(cell[order], return_index=True)
    for c, rows in zip(cells, np.split(order, starts)[1:], strict=True):
        own, shares, at = left[rows], fraction[rows, None], np.searchsorted(atoms, c)
        below, above = (np.hstack([own * (1 - shares), own * shares]).T @ right[rows]).reshape(2, size, size)
        block[at] += below
        if shares.max() > 0:
            block[np.searchsorted(atoms, c + 1)] += above
    return block
