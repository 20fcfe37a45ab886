r"""The fixed point of the projected process as a linear system in the weights.

With whitened features (:math:`\tilde\Phi^\top \Xi \tilde\Phi = I`) the fixed point solves

.. math:: \Theta = \sum_g B_g\, (\Theta X)\, M_g^\top Y + b, \qquad B_g = \tilde\Phi^\top \Xi P_g \tilde\Phi

where g runs over the distinct pairs of reward and discount. X and Y say how the mass is kept: *before* takes
:math:`X = I - 1u^\top`, *after* takes :math:`Y = \Pi`, and *affine* is solved as *before*, for weights of mass zero.
Once the :math:`B_g` are formed nothing depends on the number of states.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from cramerl.linear.moments import MomentCollector, Moments
from cramerl.linear.operators import Floats, projected_bellman_update, projected_terminal_distribution
from cramerl.linear.processes import MarkovRewardProcess
from cramerl.linear.whitening import Whitening
from cramerl.projections import backup, backup_matrix
from cramerl.supports import Support

Normalisation = Literal["before", "after", "affine"]
NORMALISATIONS = ("before", "after", "affine")

# Numbers in the matrices B_g: past this (a gigabyte) products are made in state space instead.
_MOST_NUMBERS = 125_000_000
# Backups by a product with all groups' matrices, while these are small: at 51 atoms four times as fast as by shares.
_MOST_BACKUP_NUMBERS, _MOST_PRODUCT_ATOMS = 2_000_000, 201


class Problem(NamedTuple):
    """One evaluation: what is asked.

    Attributes:
        process: the Markov reward process.
        features: (S, D).
        support: K atoms.
        normalisation: how the mass is kept.
        state_distribution: (S,) weights.
        stationary: whether those weights are stationary, as every guarantee needs.
        whitening: of the features under the weights.
    """

    process: MarkovRewardProcess
    features: Floats
    support: Support
    normalisation: Normalisation
    state_distribution: Floats
    stationary: bool
    whitening: Whitening


@dataclass(frozen=True)
class LinearSystem:
    """Theta = F Theta + b in whitened weights (D, K).

    Attributes:
        apply: F.
        constant: b.
        dense: builds F as a (D, K, D, K) array, or None where only products are available.
    """

    apply: Callable[[Floats], Floats]
    constant: Floats
    dense: Callable[[], Floats] | None


def process_moments(problem: Problem) -> Moments:
    """Moments of a process under a state weighting, in whitened features."""
    branches, features, change = problem.process.branches, problem.features, problem.whitening.inverse
    collector = MomentCollector(problem.support, features.shape[1])
    going, mass = branches.going_on(), branches.mass
    order = np.argsort(branches.rewards, kind="stable")
    for part in branches.chunks(features.shape[1]):
        rows = order[part]
        states = branches.states[rows]
        left = problem.state_distribution[states, None] * (features[states] @ change)
        right = (going.next_distribution[rows] @ features) @ change
        collector.add(left, right, branches.rewards[rows], branches.discounts[rows], branches.ends[rows], mass[rows])
    return collector.moments()


def compressed_system(
    moments: Moments, constant: Floats, support: Support, normalisation: Normalisation
) -> LinearSystem:
    """The system from moments alone; ``constant`` (D,) is the whitening's."""
    groups, d, k = len(moments.rewards), len(constant), support.num_atoms
    stacked = np.ascontiguousarray(moments.crosses.transpose(1, 0, 2)).reshape(d, groups * d)
    move = _group_backup(moments, support)

    def apply(weights: Floats) -> Floats:
        if not groups:
            return np.zeros_like(weights)
        return _post(stacked @ move(_pre(weights, normalisation)), normalisation)

    def dense() -> Floats:
        matrices = backup_matrix(support, moments.rewards, moments.discounts).reshape(groups, k * k).T
        centred_axis = 0 if normalisation == "after" else 2
        whole = np.empty((d, k, d, k))
        for a in range(d):  # one row of every B_g at a time: all of them at once would need two copies more
            rows = (matrices @ moments.crosses[:, a]).reshape(k, k, d).transpose(0, 2, 1)
            whole[a] = rows - rows.mean(axis=centred_axis, keepdims=True)
        return whole

    even = np.full((groups, k), 1.0 / k)
    spread = backup(support, moments.rewards, moments.discounts, even) if groups else even
    return LinearSystem(
        apply, _constant(moments.inflows.T @ spread, moments.terminal, constant, k, normalisation), dense
    )


def _group_backup(moments: Moments, support: Support) -> Callable[[Floats], Floats]:
    """Function (D, K) -> (G D, K): the weights backed up by every group, one group after the other."""
    groups, k = len(moments.rewards), support.num_atoms
    if groups * k * k > _MOST_BACKUP_NUMBERS or k > _MOST_PRODUCT_ATOMS:
        rewards, discounts = moments.rewards[:, None], moments.discounts[:, None]
        return lambda weights: backup(support, rewards, discounts, weights[None]).reshape(-1, k)
    side_by_side = backup_matrix(support, moments.rewards, moments.discounts).transpose(2, 0, 1).reshape(k, groups * k)

    def move(weights: Floats) -> Floats:
        return (weights @ side_by_side).reshape(-1, groups, k).transpose(1, 0, 2).reshape(-1, k)

    return move


def state_space_system(problem: Problem) -> LinearSystem:
    """The same system, with products through all states: for many features, where the B_g would not fit."""
    branches, support, normalisation = problem.process.branches, problem.support, problem.normalisation
    orthonormal = problem.features @ problem.whitening.inverse
    going, k = branches.going_on(), support.num_atoms

    def project_features(masses: Floats) -> Floats:
        return orthonormal.T @ (problem.state_distribution[:, None] * masses)

    def move(weights: Floats) -> Floats:
        return project_features(projected_bellman_update(going, support, orthonormal @ weights))

    even = np.full((branches.num_states, k), 1.0 / k)
    spread = project_features(projected_bellman_update(going, support, even))
    terminal = project_features(projected_terminal_distribution(branches, support))
    return matrix_free_system(move, spread, terminal, problem.whitening.constant, normalisation)


def matrix_free_system(
    move: Callable[[Floats], Floats],
    spread: Floats,
    terminal: Floats,
    constant: Floats,
    normalisation: Normalisation,
) -> LinearSystem:
    """The system from a function for its products.

    Args:
        move: the projected backup of weights (D, K), where the return goes on.
        spread: (D, K), the same of the even distribution.
        terminal: (D, K), projected distribution of the rewards that end the return.
        constant: (D,), the whitening's.
        normalisation: how the mass is kept.
    """

    def apply(weights: Floats) -> Floats:
        return _post(move(_pre(weights, normalisation)), normalisation)

    return LinearSystem(apply, _constant(spread, terminal, constant, spread.shape[1], normalisation), None)


def process_system(problem: Problem) -> LinearSystem:
    """The system of a process: compressed where that is cheaper per product and fits, in state space otherwise."""
    branches, d, k = problem.process.branches, problem.features.shape[1], problem.support.num_atoms
    numbers = min(len(np.unique(branches.rewards)), k * k + 1) * d * d
    through_states = branches.next_distribution.nnz + 20 * len(branches.states) + 2 * branches.num_states * d
    if numbers <= min(_MOST_NUMBERS, 20 * through_states):
        moments = process_moments(problem)
        return compressed_system(moments, problem.whitening.constant, problem.support, problem.normalisation)
    return state_space_system(problem)


def _pre(weights: Floats, normalisation: Normalisation) -> Floats:
    # Weights of *affine* have mass zero already; taking it out keeps the system regular where mass would be free.
    return weights if normalisation == "after" else weights - weights.mean(axis=1, keepdims=True)


def _post(weights: Floats, normalisation: Normalisation) -> Floats:
    return weights - weights.mean(axis=1, keepdims=True) if normalisation == "after" else weights


def _constant(spread: Floats, terminal: Floats, constant: Floats, k: int, normalisation: Normalisation) -> Floats:
    """b: the backup of the uniform distribution u (*before*, *affine*) or u itself (*after*), and the final rewards."""
    if normalisation == "after":
        return _post(terminal, "after") + constant[:, None] / k
    return spread + terminal - (constant[:, None] / k if normalisation == "affine" else 0.0)
