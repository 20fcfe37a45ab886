r"""The fixed point of the projected process as a linear system in the weights.

With whitened features (:math:`\tilde\Phi^\top \Xi \tilde\Phi = I`) the fixed point solves

.. math:: \Theta = \sum_g B_g\, (\Theta X)\, M_g^\top Y + b, \qquad B_g = \tilde\Phi^\top \Xi P_g \tilde\Phi

where g runs over the distinct pairs of reward and discount. X and Y say how the mass is kept: *before* takes
:math:`X = I - 1u^\top`, *after* takes :math:`Y = \Pi`, and *affine* is solved as *before*, for weights of mass zero.
Once the :math:`B_g` are formed nothing depends on the number of states.

:math:`M_r` is piecewise linear in r with kinks at :math:`z_i - \gamma z_j`. So rewards between two kinks can be
shared between them exactly, and any number of distinct rewards becomes at most :math:`K^2 + 1`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cramerl.linear.operators import Floats, projected_bellman_update, projected_terminal_law
from cramerl.linear.processes import MarkovRewardProcess
from cramerl.linear.whitening import Whitening
from cramerl.projections import backup, backup_matrix, project
from cramerl.supports import Support

Normalisation = Literal["before", "after", "affine"]
NORMALISATIONS = ("before", "after", "affine")

# Numbers in the matrices B_g: past this (a gigabyte) products are made in state space instead.
_MOST_NUMBERS = 125_000_000
# Backups by a product with all groups' matrices, while these are small: at 51 atoms four times as fast as by shares.
_MOST_BACKUP_NUMBERS, _MOST_PRODUCT_ATOMS = 2_000_000, 201
# Multiplications up to which OpenBLAS keeps a matrix product on one core.
_UNTHREADED_PRODUCT = 2**18
# Numbers of gathered rows that stay in cache until they are multiplied.
_CACHED_NUMBERS = 2**14


class Moments(NamedTuple):
    """What a process (or data) says about whitened features, by group of reward and discount.

    Attributes:
        rewards: (G,) reward of each group.
        discounts: (G,) discount.
        crosses: B_g, (G, D, D).
        inflows: (G, D), the feature-weighted probability of each group.
        terminal: (D, K), projected law of the rewards that end the return.
        lstd_matrix: (D, D), sum of discount times B over everything.
        lstd_vector: (D,), feature-weighted mean reward.
    """

    rewards: Floats
    discounts: Floats
    crosses: Floats
    inflows: Floats
    terminal: Floats
    lstd_matrix: Floats
    lstd_vector: Floats


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
        right = (going.next_law[rows] @ features) @ change
        collector.add(left, right, branches.rewards[rows], branches.discounts[rows], branches.ends[rows], mass[rows])
    return collector.moments()


class MomentCollector:
    """Adds up moments over chunks of branches or samples, grouped by reward.

    Groups are the distinct rewards while these are few; as soon as they are many, the kinks of M_r.
    """

    def __init__(self, support: Support, num_features: int):
        self.support = support
        self._size = num_features
        self._groups: dict[tuple[float, float], list[Floats]] = {}
        self._kinks: dict[float, Floats] = {}
        self._terminal = np.zeros((num_features, support.num_atoms))
        self._lstd_vector = np.zeros(num_features)
        self.by_kinks = False

    def add(self, left: Floats, right: Floats, rewards: Floats, discounts: Floats, ends, mass: Floats) -> None:
        """Add rows: weighted features (n, D), next features (n, D), and what the rows' transitions pay and keep."""
        self._lstd_vector += left.T @ (rewards * mass)
        if ends.any():
            law = project(self.support, rewards[ends, None], mass[ends, None])
            self._terminal += left[ends].T @ law
        going = np.flatnonzero(~ends)
        for discount in np.unique(discounts[going]):
            rows = going[discounts[going] == discount]
            self._add_rows(left, right, rewards, mass, rows, float(discount))

    def count_after(self, rewards: Floats, discount: float) -> int:
        """How many groups (of D x D numbers) there would be after adding these rewards; for one discount only."""
        values, kinks = np.unique(rewards), self._kinks_of(discount)
        if not self.by_kinks:
            if len(self._groups) + len(values) <= len(kinks):
                return len(self._groups.keys() | {(float(value), discount) for value in values})
            values = np.concatenate([values, [reward for reward, _ in self._groups]])
        cells = np.unique(_locate(kinks, values)[0])
        used = kinks[np.union1d(cells, cells + 1)]
        held = self._groups.keys() if self.by_kinks else set()
        return len(held | {(float(kink), discount) for kink in used})

    def _add_rows(self, left: Floats, right: Floats, rewards: Floats, mass: Floats, rows: Any, discount: float) -> None:
        """Add the rows of one discount: sorted by group, one product for each group that occurs."""
        kinks = self._kinks_of(discount)
        paid = rewards[rows]
        if not self.by_kinks:
            values, group = np.unique(paid, return_inverse=True)
            if len(self._groups) + len(values) <= len(kinks):
                for g, index in _by_group(group):
                    self._add_block(left, right, mass, rows[index], [(values[g], None)], discount)
                return
            self._switch_to_kinks()
        cell, share = _locate(kinks, paid)
        for c, index in _by_group(cell):
            targets = [(kinks[c], 1.0 - share[index]), (kinks[c + 1], share[index])]
            self._add_block(left, right, mass, rows[index], targets, discount)

    def _add_block(self, left, right, mass, rows, targets, discount: float) -> None:
        """Add rows of one group to each of its targets: pairs of a reward and the rows' shares in it (None: all)."""
        groups = [(self._group(reward, discount), share) for reward, share in targets]
        size = max(64, _CACHED_NUMBERS // self._size)
        for start in range(0, len(rows), size):
            part = slice(start, start + size)
            a, b, weight = left[rows[part]], right[rows[part]], mass[rows[part]]
            for (cross, inflow), share in groups:
                scaled = a if share is None else a * share[part, None]
                add_product(cross, scaled, b)
                inflow += weight @ scaled

    def _group(self, reward: float, discount: float) -> list[Floats]:
        key = (float(reward), discount)
        if key not in self._groups:
            self._groups[key] = [np.zeros((self._size, self._size)), np.zeros(self._size)]
        return self._groups[key]

    def _kinks_of(self, discount: float) -> Floats:
        if discount not in self._kinks:
            z = self.support.atoms
            self._kinks[discount] = np.unique(z[:, None] - discount * z)
        return self._kinks[discount]

    def _switch_to_kinks(self) -> None:
        """From now on share every reward between its two neighbouring kinks, what was collected included."""
        old, self._groups, self.by_kinks = self._groups, {}, True
        for (reward, discount), (cross, inflow) in old.items():
            kinks = self._kinks_of(discount)
            cell, share = _locate(kinks, np.array([reward]))
            for kink, part in ((kinks[cell[0]], 1.0 - share[0]), (kinks[cell[0] + 1], share[0])):
                group = self._group(float(kink), discount)
                group[0] += part * cross
                group[1] += part * inflow

    def moments(self) -> Moments:
        """What was collected so far."""
        keys = sorted(self._groups)
        d = self._size
        crosses = np.array([self._groups[key][0] for key in keys]).reshape(-1, d, d)
        inflows = np.array([self._groups[key][1] for key in keys]).reshape(-1, d)
        rewards, discounts = np.array(keys, dtype=np.float64).reshape(-1, 2).T
        # Shares of a row sum to one, so the groups hold LSTD's matrix too.
        lstd_matrix = (discounts @ crosses.reshape(len(keys), d * d)).reshape(d, d)
        terminal, lstd_vector = self._terminal.copy(), self._lstd_vector.copy()
        return Moments(rewards, discounts, crosses, inflows, terminal, lstd_matrix, lstd_vector)


def _locate(kinks: Floats, rewards: Floats) -> tuple[NDArray[np.intp], Floats]:
    """The cell between two kinks each reward falls into, and how far up in it; beyond the ends M_r is constant."""
    inside = np.clip(rewards, kinks[0], kinks[-1])
    cell = np.clip(np.searchsorted(kinks, inside, side="right") - 1, 0, len(kinks) - 2)
    return cell, (inside - kinks[cell]) / (kinks[cell + 1] - kinks[cell])


def _by_group(labels: Any) -> Iterator[tuple[int, Any]]:
    """For each label that occurs: the label and its places. 16-bit labels are sorted by radix, in linear time."""
    small = labels.astype(np.uint16) if labels.max(initial=0) < 2**16 else labels
    order = np.argsort(small, kind="stable")
    ordered = labels[order]
    starts = np.flatnonzero(np.diff(ordered, prepend=-1)).tolist()
    for start, stop in zip(starts, [*starts[1:], len(order)], strict=True):
        yield int(ordered[start]), order[start:stop]


def add_product(total: Floats, left: Floats, right: Floats) -> None:
    """Add left.T @ right, of tall matrices (n, D), to ``total`` (D, D): in pieces that BLAS keeps on one core.

    OpenBLAS starts its threads above 2^18 multiplications, and for tall matrices these wait for each other longer than
    they work: on two cores that others use too, 64 and 128 features took 7 times as long.
    """
    d = len(total)
    tile = min(d, 64)
    size = _UNTHREADED_PRODUCT // tile**2
    for start in range(0, len(left), size):
        a, b = left[start : start + size], right[start : start + size]
        for i in range(0, d, tile):
            for j in range(0, d, tile):
                total[i : i + tile, j : j + tile] += a[:, i : i + tile].T @ b[:, j : j + tile]


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
    terminal = project_features(projected_terminal_law(branches, support))
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
        spread: (D, K), the same of the even law.
        terminal: (D, K), projected law of the rewards that end the return.
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
    through_states = branches.next_law.nnz + 20 * len(branches.states) + 2 * branches.num_states * d
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
    """b: where the even law u goes (*before*, *affine*) or u itself (*after*), and the rewards that end the return."""
    if normalisation == "after":
        return _post(terminal, "after") + constant[:, None] / k
    return spread + terminal - (constant[:, None] / k if normalisation == "affine" else 0.0)
