r"""Sums over transitions, by reward: all that the fixed point needs to know about a process or a log.

The backup matrix :math:`M_r` is piecewise linear in r, with kinks where :math:`r + \gamma z_j` meets an atom:
:math:`r = z_i - \gamma z_j`. So a reward between two kinks acts exactly like a mixture of both, and any number of
distinct rewards can be replaced by at most :math:`K^2` kinks without an error.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from cramerl._arrays import Floats
from cramerl.projections import project
from cramerl.supports import Support

# Multiplications up to which OpenBLAS computes a matrix product on one core.
_UNTHREADED_PRODUCT = 2**18
# Numbers in gathered rows that stay in the cache until they are multiplied.
_CACHED_NUMBERS = 2**14


class SquareSums(NamedTuple):
    """Sums over transitions that second moments of returns need, beside those of the means."""

    rewarded: Any  # (D, D) of phi and the next phi, times reward and discount
    twice: Any  # (D, D) of phi and the next phi, times the squared discount
    rewarded_total: Floats  # (D,) of phi, times reward and discount
    twice_total: Floats  # (D,) of phi, times the squared discount


class Moments(NamedTuple):
    """Moments of the features of a process or a log, by group of rewards."""

    rewards: Floats  # (G,) reward of each group
    discounts: Floats  # (G,) discount
    crosses: Floats  # B_g, (G, D, D)
    inflows: Floats  # (G, D), probability of each group, weighted by the features
    terminal: Floats  # (D, K), projected distribution of the rewards that end the return
    lstd_matrix: Floats  # (D, D), sum of discount times B over everything
    lstd_vector: Floats  # (D,), mean reward, weighted by the features


class MomentCollector:
    """Adds up moments over chunks of branches or samples, grouped by reward; all have one discount, where they go on.

    Groups are the distinct rewards while these are few. Once there are more rewards than kinks, groups are kinks, and
    each reward is split between its two neighbouring kinks.
    """

    def __init__(self, support: Support, discount: float, num_features: int):
        self.by_kinks = False  # whether groups are kinks
        self._support, self._discount, self._size = support, discount, num_features
        self._kinks = np.unique(support.atoms[:, None] - discount * support.atoms)
        self._groups: dict[float, list[Floats]] = {}  # crosses and inflows by reward
        self._terminal = np.zeros((num_features, support.num_atoms))
        self._lstd_vector = np.zeros(num_features)

    def add(self, left: Any, right: Any, rewards: Floats, ends: NDArray[np.bool_], mass: Floats) -> None:
        """Add n transitions: features and next features (n, D), rewards, whether the return ends, and mass.

        One side of the features, ``right`` where the return goes on, has been multiplied by the mass. Features may be
        sparse.
        """
        self._lstd_vector += left.T @ (rewards * mass)
        if ends.any():
            distribution = project(self._support, rewards[ends, None], mass[ends, None])
            self._terminal += left[ends].T @ distribution
        rows = np.flatnonzero(~ends)
        if not len(rows):
            return
        paid = rewards[rows]
        # Sorted by group: one matrix product for each group that occurs.
        if not self.by_kinks:
            values, group = np.unique(paid, return_inverse=True)
            if len(self._groups) + len(values) <= len(self._kinks):
                for g, index in _by_group(group):
                    self._add_block(left, right, mass, rows[index], [(values[g], None)])
                return
            self._switch_to_kinks()
        cell, fraction = _locate(self._kinks, paid)
        for c, index in _by_group(cell):
            targets = [(self._kinks[c], 1.0 - fraction[index]), (self._kinks[c + 1], fraction[index])]
            self._add_block(left, right, mass, rows[index], targets)

    def count_after(self, rewards: Floats) -> int:
        """How many groups (of D x D numbers) there would be after adding rows with these rewards."""
        values = np.unique(rewards)
        if not self.by_kinks and len(self._groups) + len(values) <= len(self._kinks):
            return len(self._groups.keys() | set(values.tolist()))
        return len(self._kink_keys() | self._kinks_around(values))

    def count_merged(self, other: MomentCollector) -> int:
        """How many groups there would be after merging another collector."""
        return len(self._merged_keys(other)[0])

    def merge(self, other: MomentCollector) -> None:
        """Add the moments of another collector of the same support, which may be regrouped by kinks for it."""
        _, by_kinks = self._merged_keys(other)
        for collector in (self, other):
            if by_kinks and not collector.by_kinks:
                collector._switch_to_kinks()
        for reward, sums in other._groups.items():
            for total, part in zip(self._group(reward), sums, strict=True):
                total += part
        self._terminal += other._terminal
        self._lstd_vector += other._lstd_vector

    def _merged_keys(self, other: MomentCollector) -> tuple[set[float], bool]:
        """The groups of both collectors together, and whether these are kinks."""
        together = self._groups.keys() | other._groups.keys()
        if not (self.by_kinks or other.by_kinks) and len(together) <= len(self._kinks):
            return together, False
        return self._kink_keys() | other._kink_keys(), True

    def _kink_keys(self) -> set[float]:
        """The groups, or what they would be after a switch to kinks."""
        return set(self._groups) if self.by_kinks else self._kinks_around(np.array(list(self._groups)))

    def _kinks_around(self, rewards: Floats) -> set[float]:
        """The kinks that these rewards are split between."""
        cells = np.unique(_locate(self._kinks, rewards)[0])
        return set(self._kinks[np.union1d(cells, cells + 1)].tolist())

    def _add_block(self, left: Any, right: Any, mass: Floats, rows: Any, targets: Sequence[Any]) -> None:
        """Add rows to groups, given as pairs of a reward and the fraction of each row that it gets (None: all)."""
        groups = [(self._group(reward), fraction) for reward, fraction in targets]
        size = len(rows) if sparse.issparse(right) else max(64, _CACHED_NUMBERS // self._size)
        for start in range(0, len(rows), size):
            part = slice(start, start + size)
            a, b, weight = left[rows[part]], right[rows[part]], mass[rows[part]]
            for (cross, inflow), fraction in groups:
                scaled = a if fraction is None else scaled_rows(a, fraction[part])
                add_product(cross, scaled, b)
                inflow += scaled.T @ weight

    def _group(self, reward: float) -> list[Floats]:
        if (key := float(reward)) not in self._groups:
            self._groups[key] = [np.zeros((self._size, self._size)), np.zeros(self._size)]
        return self._groups[key]

    def _switch_to_kinks(self) -> None:
        """Split every reward between its two neighbouring kinks from now on, and regroup what was collected."""
        old, self._groups, self.by_kinks = self._groups, {}, True
        for reward, sums in old.items():
            (cell,), (fraction,) = _locate(self._kinks, np.array([reward]))
            for kink, part in ((self._kinks[cell], 1.0 - fraction), (self._kinks[cell + 1], fraction)):
                for total, whole in zip(self._group(float(kink)), sums, strict=True):
                    total += part * whole

    def __getstate__(self) -> dict[str, Any]:
        # One array for all groups: sending thousands of small arrays takes longer than computing them.
        crosses, inflows = (np.array([group[i] for group in self._groups.values()]) for i in range(2))
        return vars(self) | {"_groups": (list(self._groups), crosses, inflows)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        groups = {reward: [cross, inflow] for reward, cross, inflow in zip(*state["_groups"], strict=True)}
        vars(self).update(state | {"_groups": groups})

    def moments(self) -> Moments:
        """The moments of all rows so far."""
        keys, d = sorted(self._groups), self._size
        crosses = np.array([self._groups[key][0] for key in keys]).reshape(-1, d, d)
        inflows = np.array([self._groups[key][1] for key in keys]).reshape(-1, d)
        rewards, discounts = np.array([(key, self._discount) for key in keys]).reshape(-1, 2).T
        # The fractions of a row sum to one, so the groups hold LSTD's matrix too.
        lstd_matrix = (discounts @ crosses.reshape(len(keys), d * d)).reshape(d, d)
        terminal, lstd_vector = self._terminal.copy(), self._lstd_vector.copy()
        return Moments(rewards, discounts, crosses, inflows, terminal, lstd_matrix, lstd_vector)


def _locate(kinks: Floats, rewards: Floats) -> tuple[NDArray[np.intp], Floats]:
    """The cell between two kinks that each reward falls into, and its position there in [0, 1].

    Beyond the outer kinks M_r does not change, so rewards are moved to these first.
    """
    inside = np.clip(rewards, kinks[0], kinks[-1])
    cell = np.clip(np.searchsorted(kinks, inside, side="right") - 1, 0, len(kinks) - 2)
    return cell, (inside - kinks[cell]) / (kinks[cell + 1] - kinks[cell])


def _by_group(labels: Any) -> Iterator[tuple[int, Any]]:
    """Each label that occurs, and where. NumPy sorts 16-bit labels by radix, in linear time."""
    small = labels.astype(np.uint16) if labels.max(initial=0) < 2**16 else labels
    order = np.argsort(small, kind="stable")
    ordered = labels[order]
    starts = np.flatnonzero(np.diff(ordered, prepend=-1)).tolist()
    for start, stop in zip(starts, [*starts[1:], len(order)], strict=True):
        yield int(ordered[start]), order[start:stop]


class MomentsByDiscount:
    """Moments of rows that may differ in their discount: a collector for each discount that occurs."""

    def __init__(self, support: Support, num_features: int):
        self._support, self._size = support, num_features
        self._collectors: dict[float, MomentCollector] = {}

    def add(
        self, left: Any, right: Any, rewards: Floats, discounts: Floats, ends: NDArray[np.bool_], mass: Floats
    ) -> None:
        """Add n transitions, as to a `MomentCollector`, with the discount (n,) of what follows each."""
        for discount, rows in _by_discount(discounts, ends):
            collector = self._collectors.setdefault(discount, self._empty(discount))
            collector.add(left[rows], right[rows], rewards[rows], ends[rows], mass[rows])

    def count_after(self, rewards: Floats, discounts: Floats, ends: NDArray[np.bool_]) -> int:
        """How many groups (of D x D numbers) there would be after adding rows with these rewards and discounts."""
        counts = {discount: len(collector._groups) for discount, collector in self._collectors.items()}
        for discount, rows in _by_discount(discounts, ends):
            paid = rewards[rows][~ends[rows]]
            counts[discount] = self._collectors.get(discount, self._empty(discount)).count_after(paid)
        return sum(counts.values())

    def most_groups(self, discounts: Floats, ends: NDArray[np.bool_]) -> int:
        """How many groups there can be at most with these discounts too, whatever the rewards are."""
        known = self._collectors.keys() | {discount for discount, _ in _by_discount(discounts, ends)}
        return len(known) * self._support.num_atoms**2

    def count_merged(self, other: MomentsByDiscount) -> int:
        """How many groups there would be after merging another collector."""
        shared = self._collectors.keys() & other._collectors.keys()
        alone = [c for side in (self, other) for key, c in side._collectors.items() if key not in shared]
        both = sum(self._collectors[key].count_merged(other._collectors[key]) for key in shared)
        return both + sum(len(collector._groups) for collector in alone)

    def merge(self, other: MomentsByDiscount) -> None:
        """Add the moments of other rows, on the same support."""
        for discount, collector in other._collectors.items():
            if discount in self._collectors:
                self._collectors[discount].merge(collector)
            else:
                self._collectors[discount] = collector

    def moments(self) -> Moments:
        """The moments of all rows so far."""
        parts = [collector.moments() for _, collector in sorted(self._collectors.items())]
        if not parts:
            parts = [self._empty(0.0).moments()]
        joined = [parts[0][i] if len(parts) == 1 else np.concatenate([p[i] for p in parts]) for i in range(4)]
        return Moments(*joined, *(np.sum([part[i] for part in parts], axis=0) for i in range(4, 7)))

    def square_sums(self) -> SquareSums:
        """Sums for second moments; rewards that clip whatever follows count as the outermost that do not."""
        d = self._size
        sums = SquareSums(np.zeros((d, d)), np.zeros((d, d)), np.zeros(d), np.zeros(d))
        for discount, collector in self._collectors.items():
            for reward, (cross, inflow) in collector._groups.items():
                for total, part, factor in (
                    (sums.rewarded, cross, reward * discount),
                    (sums.twice, cross, discount**2),
                    (sums.rewarded_total, inflow, reward * discount),
                    (sums.twice_total, inflow, discount**2),
                ):
                    total += factor * part
        return sums

    def _empty(self, discount: float) -> MomentCollector:
        return MomentCollector(self._support, discount, self._size)


def _by_discount(discounts: Floats, ends: NDArray[np.bool_]) -> Iterator[tuple[float, Any]]:
    """Each discount that occurs where a return goes on, and its rows; rows that end are with the first."""
    values = np.unique(discounts[~ends])
    if len(values) < 2:
        yield float(values[0]) if len(values) else 0.0, slice(None)
        return
    place = np.where(ends, 0, np.searchsorted(values, discounts))
    for index, rows in _by_group(place):
        yield float(values[index]), rows


def scaled_rows(table: Any, factors: Floats) -> Any:
    """Rows of a table (n, D), dense or sparse, multiplied by factors (n,)."""
    if sparse.issparse(table):
        return sparse.csr_array(sparse.diags_array(factors) @ table)
    return table * factors[:, None]


def add_product(total: Floats, left: Any, right: Any) -> None:
    """Add left.T @ right, of tall matrices (n, D), to ``total`` (D, D), in pieces that BLAS computes on one core.

    OpenBLAS starts threads above 2^18 multiplications, and for tall matrices these wait for each other longer than they
    work: on two busy cores products with 64 and 128 features took 7 times as long.
    """
    if sparse.issparse(right) and not sparse.issparse(left):
        total += (right.T @ left).T
        return
    if sparse.issparse(left):
        product = (left.T @ right).tocoo()
        np.add.at(total, product.coords, product.data)
        return
    d = len(total)
    tile = min(d, 64)
    size = _UNTHREADED_PRODUCT // tile**2
    for start in range(0, len(left), size):
        a, b = left[start : start + size], right[start : start + size]
        for i in range(0, d, tile):
            for j in range(0, d, tile):
                total[i : i + tile, j : j + tile] += a[:, i : i + tile].T @ b[:, j : j + tile]
