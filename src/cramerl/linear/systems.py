r"""The fixed point of the projected process as a linear system in the weights.

With whitened features (:math:`\tilde\Phi^\top \Xi \tilde\Phi = I`) the fixed point solves

.. math:: \Theta = \sum_g B_g\, (\Theta X)\, M_g^\top Y + b, \qquad B_g = \tilde\Phi^\top \Xi P_g \tilde\Phi

where g runs over the distinct rewards. X and Y keep the mass at one: *before* takes
:math:`X = I - 1u^\top`, *after* takes :math:`Y = \Pi`, and *affine* is solved as *before*, for weights of mass zero.
Once the :math:`B_g` are known nothing depends on the number of states.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from cramerl._arrays import Floats
from cramerl.linear.blocks import atom_blocks
from cramerl.linear.moments import MomentCollector, Moments
from cramerl.linear.operators import backup_adjoint, projected_bellman_update, projected_terminal_distribution
from cramerl.linear.problem import Normalisation, Problem
from cramerl.projections import backup, backup_matrix
from cramerl.supports import Support

# Numbers in the matrices B_g: past this (a gigabyte) products go through the states instead.
_MOST_NUMBERS = 125_000_000
# While the backup matrices of all groups are small, one product with them is the fastest backup: at 51 atoms four times
# as fast as splitting masses between neighbouring atoms.
_MOST_BACKUP_NUMBERS, _MOST_PRODUCT_ATOMS = 2_000_000, 201

_Move = Callable[[Floats], Floats]


@dataclass(frozen=True)
class LinearSystem:
    """Theta = F Theta + b in whitened weights (D, K)."""

    apply: Callable[[Floats], Floats]  # F
    constant: Floats  # b
    dense: Callable[[], Floats] | None  # builds F as a (D, K, D, K) array, or None where only products are available
    adjoint: Callable[[Floats], Floats] | None = None  # F', where it is known; takes leading axes


def process_moments(problem: Problem) -> Moments:
    """Moments of a process under a state weighting, in whitened features."""
    branches, features, change = problem.process.branches, problem.features, problem.whitening.inverse
    collector = MomentCollector(problem.support, problem.process.discount, features.shape[1])
    continuing, mass = branches.continuing(), branches.mass
    order = np.argsort(branches.rewards, kind="stable")
    for part in branches.chunks(features.shape[1]):
        rows = order[part]
        states = branches.states[rows]
        left = problem.state_distribution[states, None] * (features[states] @ change)
        right = (continuing.next_distribution[rows] @ features) @ change
        collector.add(left, right, branches.rewards[rows], branches.ends[rows], mass[rows])
    return collector.moments()


def compressed_system(
    moments: Moments, constant: Floats, support: Support, normalisation: Normalisation
) -> LinearSystem:
    """The system from moments alone; ``constant`` (D,) is the whitening's."""
    groups, k = len(moments.rewards), support.num_atoms
    most = max(_MOST_NUMBERS, 2 * moments.crosses.size)
    blocks = atom_blocks(moments, support, most) if groups > k else None
    move, move_back = (blocks.move, blocks.move_back) if blocks else _moves_by_group(moments, support)

    def dense() -> Floats:
        whole = blocks.whole() if blocks else _whole_by_group(moments, support)
        return _centred(whole, axis=1 if normalisation == "after" else 3)

    even = np.full((groups, k), 1.0 / k)
    spread = moments.inflows.T @ (backup(support, moments.rewards, moments.discounts, even) if groups else even)
    system = matrix_free_system(move, move_back, spread, moments.terminal, constant, normalisation)
    return replace(system, dense=dense)


def _moves_by_group(moments: Moments, support: Support) -> tuple[_Move, _Move]:
    """Products with the system's matrix and with its transpose, one product with the B_g side by side."""
    groups, d, k = len(moments.rewards), moments.crosses.shape[1], support.num_atoms
    stacked = np.ascontiguousarray(moments.crosses.transpose(1, 0, 2)).reshape(d, groups * d)
    direct = groups * k * k > _MOST_BACKUP_NUMBERS or k > _MOST_PRODUCT_ATOMS
    matrices = None if direct else backup_matrix(support, moments.rewards, moments.discounts)
    side_by_side = None if matrices is None else matrices.transpose(2, 0, 1).reshape(k, groups * k)

    def move(weights: Floats) -> Floats:
        if not groups:
            return np.zeros_like(weights)
        if side_by_side is None:
            moved = backup(support, moments.rewards[:, None], moments.discounts[:, None], weights[None])
        else:
            moved = (weights @ side_by_side).reshape(-1, groups, k).transpose(1, 0, 2)
        return stacked @ moved.reshape(-1, k)  # the weights backed up by every group, one group after the other

    def move_back(weights: Floats) -> Floats:
        if not groups:
            return np.zeros_like(weights)
        back = (stacked.T @ weights).reshape(groups, d, k)
        if matrices is not None:
            return np.matmul(back, matrices).sum(axis=0)
        return backup_adjoint(support, moments.rewards[:, None], moments.discounts[:, None], back).sum(axis=0)

    return move, one_by_one(move_back)


def one_by_one(move_back: _Move) -> _Move:
    """A product with (D, K) weights as one with (..., D, K)."""

    def moved(weights: Floats) -> Floats:
        if weights.ndim == 2:
            return move_back(weights)
        return np.stack([moved(each) for each in weights])

    return moved


def _whole_by_group(moments: Moments, support: Support) -> Floats:
    """The (D, K, D, K) matrix of the system."""
    groups, d, k = len(moments.rewards), moments.crosses.shape[1], support.num_atoms
    matrices = backup_matrix(support, moments.rewards, moments.discounts).reshape(groups, k * k).T
    whole = np.empty((d, k, d, k))
    for a in range(d):  # one row of every B_g at a time: all of them at once would need two more copies
        whole[a] = (matrices @ moments.crosses[:, a]).reshape(k, k, d).transpose(0, 2, 1)
    return whole


def state_space_system(problem: Problem) -> LinearSystem:
    """The same system with products through all states: for many features, whose B_g would not fit in memory."""
    branches, support, normalisation = problem.process.branches, problem.support, problem.normalisation
    orthonormal, continuing, k = problem.whitened_features, branches.continuing(), support.num_atoms

    def project_features(masses: Floats) -> Floats:
        return orthonormal.T @ (problem.state_distribution[:, None] * masses)

    def move(weights: Floats) -> Floats:
        return project_features(projected_bellman_update(continuing, support, orthonormal @ weights))

    even = np.full((branches.num_states, k), 1.0 / k)
    spread = project_features(projected_bellman_update(continuing, support, even))
    terminal = project_features(projected_terminal_distribution(branches, support))
    return matrix_free_system(move, None, spread, terminal, problem.whitening.constant, normalisation)


def matrix_free_system(
    move: Callable[[Floats], Floats],
    move_back: Callable[[Floats], Floats] | None,
    spread: Floats,
    terminal: Floats,
    constant: Floats,
    normalisation: Normalisation,
) -> LinearSystem:
    """The system from a function for its products, ``move``: (D, K) weights to their backup where the return continues.

    ``move_back`` is the transpose of ``move``, for (..., D, K), if it is known. ``spread`` (D, K) is ``move`` of the
    uniform distribution, ``terminal`` (D, K) the projected distribution of the rewards that end the return,
    ``constant`` (D,) the whitening's.
    """
    k = spread.shape[1]

    def apply(weights: Floats) -> Floats:
        if normalisation == "after":
            return _centred(move(weights))
        # The solution for *affine* has mass zero. Removing mass here keeps the system regular: a backup preserves
        # mass, so that I - F would be singular along it.
        return move(_centred(weights))

    def adjoint(weights: Floats) -> Floats:
        if move_back is None:
            raise TypeError("this system does not know its transpose")
        return move_back(_centred(weights)) if normalisation == "after" else _centred(move_back(weights))

    back = None if move_back is None else adjoint
    # The backup of the uniform distribution u (*before*, *affine*) or u itself (*after*), and the final rewards.
    if normalisation == "after":
        return LinearSystem(apply, _centred(terminal) + constant[:, None] / k, None, back)
    offset = constant[:, None] / k if normalisation == "affine" else 0.0
    return LinearSystem(apply, spread + terminal - offset, None, back)


def process_system(problem: Problem) -> LinearSystem:
    """The system of a process: compressed where that is cheaper per product and fits, in state space otherwise."""
    branches, d, k = problem.process.branches, problem.features.shape[1], problem.support.num_atoms
    numbers = min(len(np.unique(branches.rewards)), k * k + 1) * d * d
    through_states = branches.next_distribution.nnz + 20 * len(branches.states) + 2 * branches.num_states * d
    if numbers <= min(_MOST_NUMBERS, 20 * through_states):
        moments = process_moments(problem)
        return compressed_system(moments, problem.whitening.constant, problem.support, problem.normalisation)
    return state_space_system(problem)


def _centred(masses: Floats, axis: int = -1) -> Floats:
    """The same with mass zero along the axis of atoms."""
    return masses - masses.mean(axis=axis, keepdims=True)
