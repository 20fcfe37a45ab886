r"""How each episode moves an answer: the influence of the data on the CDF of the start distribution.

The weights solve :math:`\Theta = F\Theta + b`, sums over rows on both sides. Let the rows have the errors
:math:`\delta_t = T_t(\Theta) - \Theta^\top\phi_t`. To first order an episode moves a linear function
:math:`\langle C, \Theta\rangle` by :math:`\langle\Lambda, \sum_t \phi_t\delta_t^\top\rangle`, where :math:`\Lambda`
solves one adjoint system, :math:`(I - F^\top)\Lambda = C`. The heights of the CDF are such functions, and everything
else is made of them.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from scipy.linalg import lu_factor, lu_solve

from cramerl._arrays import Floats
from cramerl.linear.krylov import solve_fixed_point
from cramerl.linear.logs.episodes import Episodes
from cramerl.linear.logs.rows import LogRows, Starts, starts_of_block
from cramerl.linear.lstd import DistributionalLSTD
from cramerl.linear.reduced import ReducedBasis
from cramerl.linear.transitions import Rows, few_rows
from cramerl.measures import with_unit_mass
from cramerl.projections import backup
from cramerl.supports import Support

# Unknowns up to which the adjoint systems of all heights are solved with one factorisation.
_DIRECT_UNKNOWNS = 2000
# Heights whose influence is computed where each needs a solution of its own; those between are interpolated.
_KNOTS = 16
# Numbers in the influences of all episodes that are kept: a hundred megabytes.
_KEPT_NUMBERS = 12_500_000


class HeightInfluence(NamedTuple):
    """How episodes move the heights of a CDF.

    Attributes:
        covariance: (K - 1, K - 1) of the heights.
        influences: (E, K - 1) what each episode adds to the heights' error, or how far each sample of the bootstrap
            lies from their mean, so that their squares add up to the covariance; None if these are too many numbers.
        num_episodes: E.
    """

    covariance: Floats
    influences: Floats | None
    num_episodes: int


def height_influence(model: DistributionalLSTD, rows: LogRows, starts: Starts) -> HeightInfluence:
    """The influence of each episode on the heights of the starts' CDF, and their covariance."""
    count, heights = rows.log.num_episodes, model.support_.num_atoms - 1
    influences = np.zeros((count, heights)) if count * heights <= _KEPT_NUMBERS else None
    pass_over = _Pass.of(model, starts, keep=influences is not None)
    total, squares = np.zeros(heights), np.zeros((heights, heights))
    for first, part in rows.mapped(pass_over):
        total, squares = total + part.total, squares + part.squares
        if influences is not None and part.moved is not None:
            influences[first : first + len(part.moved)] = part.moved
    # Without the mean, which is that of an episode that has no rows, and which takes one from the degrees of freedom.
    factor = count / max(1, count - 1)
    covariance = factor * (squares - np.outer(total, total) / count)
    if influences is not None:
        influences = np.sqrt(factor) * (influences - total / count)
    return HeightInfluence(covariance, influences, count)


def bootstrap_influence(
    model: DistributionalLSTD, rows: LogRows, start: Any, resamples: int, seed: int, starts_of: Callable[..., Starts]
) -> HeightInfluence:
    """The covariance of the heights when episodes are drawn again, with the same support."""
    rng, count = np.random.default_rng(seed), rows.log.num_episodes
    settings: dict[str, Any] = model.get_params() | {"support": model.support_}
    if model.method_ == "constrained":
        settings["next_distribution"] = "proper"
    drawn = []
    for _ in range(resamples):
        again = rows.resampled(np.bincount(rng.integers(0, count, count), minlength=count).astype(np.float64))
        fitted = DistributionalLSTD(**settings).fit_source(again)
        masses = starts_of(again, start).mean @ fitted.weights_
        drawn.append(np.cumsum(with_unit_mass(model.support_, masses))[:-1])
    away = (np.array(drawn) - np.mean(drawn, axis=0)) / np.sqrt(resamples - 1)
    return HeightInfluence(away.T @ away, away, count)


def _unknowns(model: DistributionalLSTD) -> int:
    return model._basis_.constant.size * model.support_.num_atoms


class _Adjoint(NamedTuple):
    """Solutions of the adjoint systems of all heights.

    The solution for a height is the start's features at the atoms up to it, plus what comes from later steps. The first
    part jumps from height to height, and is known. The rest is smooth, so that it may be interpolated between knots.
    """

    start: Floats
    """(D,) weights with which the features of a row say how much the row moves the start states."""
    later: Floats
    """(D, J, K) what comes from later steps, at the knots."""
    spread: Floats
    """(J, K - 1) weights with which the knots give all heights."""

    @classmethod
    def of(cls, model: DistributionalLSTD, starts: Starts) -> _Adjoint:
        """Those of a fitted model."""
        basis, k = model._basis_, model.support_.num_atoms
        knots = np.arange(k - 1)
        if _unknowns(model) > _DIRECT_UNKNOWNS and k - 1 > _KNOTS:
            knots = np.unique(np.linspace(0, k - 2, _KNOTS).round().astype(np.intp))
        below = (np.arange(k)[None, :] <= knots[:, None]).astype(np.float64)
        start = _start(basis, starts)
        size = len(start)
        later = _solved(model, start, below) - start[:, None, None] * below
        plain = basis.unfitted(np.ascontiguousarray(later).reshape(size, -1)).reshape(-1, len(knots), k)
        return cls(basis.unfitted(start[:, None])[:, 0], plain, _interpolation(knots, k - 1))


def _solved(model: DistributionalLSTD, start: Floats, below: Floats) -> Floats:
    """(size, J, K) solutions for the start at the atoms (J, K) up to each knot."""
    system: Any = model._system  # the model is fitted
    size, (num, k) = len(start), below.shape
    if system.dense is None or size * k > _DIRECT_UNKNOWNS:
        return _by_products(system, start[None, :, None] * below[:, None, :]).transpose(1, 0, 2)
    matrix = np.eye(size * k) - system.dense().reshape(size * k, size * k)
    right = (start[:, None, None] * below.T[None]).reshape(size * k, num)
    solved = lu_solve(lu_factor(matrix, overwrite_a=True, check_finite=False), right, trans=1)
    return solved.reshape(size, k, num).transpose(0, 2, 1)


def _start(basis: Any, starts: Starts) -> Floats:
    """The starts' mean features in the basis of the equations."""
    if not isinstance(basis, ReducedBasis):
        return basis.gathered(starts.mean[:, None])[:, 0]
    if starts.shares is None or np.isnan(starts.shares).any():
        raise ValueError("start must hold states of the log where intervals are wanted, got others: intervals='none'")
    return starts.shares


def _by_products(system: Any, constants: Floats) -> Floats:
    """(J, size, K) solutions for J constants at once: many products cost little more for all than for one."""
    tol = 1e-4 * float(np.linalg.norm(constants)) / np.sqrt(len(constants))
    return solve_fixed_point(system.adjoint, constants, tol, 20_000, in_a_row=2).solution


class _Moved(NamedTuple):
    """What the episodes of a block add to the heights: their sum, their squares, and each (None: not kept)."""

    total: Floats
    squares: Floats
    moved: Floats | None


class _Pass(NamedTuple):
    """What influences need to know of a fitted model, small enough to travel."""

    support: Support
    weights: Floats
    discount: float
    weight: float
    starts: Starts
    adjoint: _Adjoint
    keep: bool

    @classmethod
    def of(cls, model: DistributionalLSTD, starts: Starts, *, keep: bool) -> _Pass:
        """That of a model."""
        sums: Any = model._sums  # the model is fitted
        adjoint = _Adjoint.of(model, starts)
        return cls(model.support_, model.weights_, float(model.discount), sums.weight, starts, adjoint, keep)

    def __call__(self, rows: LogRows, block: Episodes, made: Rows) -> tuple[int, _Moved]:
        """The first episode of a block, and what it and the next ones add."""
        first = int(block.episode[0])
        moved = self._of_rows(made, block.episode - first) / self.weight
        if self.starts.kind != "given":
            self._add_starts(moved, rows, block, made)
        return first, _Moved(moved.sum(axis=0), moved.T @ moved, moved if self.keep else None)

    def _of_rows(self, rows: Rows, episode: Any) -> Floats:
        """(episodes, K - 1): what the rows of each add."""
        support, adjoint, first = self.support, self.adjoint, 0
        moved = np.zeros((episode[-1] + 1, support.num_atoms - 1))
        for part in rows.parts(few_rows(8 * support.num_atoms)):
            following = with_unit_mass(support, part.next_features @ self.weights)
            target = backup(support, part.rewards, part.continuation(self.discount), following)
            error = (target - part.features @ self.weights) * part.mass[:, None]
            numbers = episode[first : first + len(error)]
            runs = np.flatnonzero(np.diff(numbers, prepend=-1))
            own = (part.features @ adjoint.start)[:, None] * np.cumsum(error, axis=1)[:, :-1]
            later = _products(part.features, error, np.append(runs, len(error)), adjoint.later)
            moved[numbers[runs]] += np.add.reduceat(own, runs, axis=0) + later @ adjoint.spread
            first += len(error)
        return moved

    def _add_starts(self, moved: Floats, rows: LogRows, block: Episodes, made: Rows) -> None:
        """Add what the choice of start states does, where they are those of the log."""
        index, table, mass = starts_of_block(rows, block, made, self.starts.kind)
        heights = np.cumsum(table @ self.weights, axis=1) - np.cumsum(self.starts.mean @ self.weights)
        places = block.episode[index] - block.episode[0]
        np.add.at(moved, places, heights[:, :-1] * (mass / self.starts.weight)[:, None])


def _products(features: Any, error: Floats, bounds: Any, adjoints: Floats) -> Floats:
    """(m, J) sums of the products of features, adjoints (D, J, K) and errors over the rows between bounds (m + 1,)."""
    d, num, k = adjoints.shape
    found, each = np.empty((len(bounds) - 1, num)), list(pairwise(bounds.tolist()))
    if sparse.issparse(features):
        flat, size = adjoints.reshape(d, num * k), few_rows(2 * num * k)
        by_row = np.empty((len(error), num))
        for i in range(0, len(error), size):
            products = (features[i : i + size] @ flat).reshape(-1, num, k)
            by_row[i : i + size] = np.matmul(products, error[i : i + size, :, None])[:, :, 0]
        return np.add.reduceat(by_row, bounds[:-1], axis=0)
    # Rows of one episode together: so it takes the adjoints once for each episode, not for each row.
    flat, size = np.ascontiguousarray(adjoints.transpose(0, 2, 1)).reshape(d * k, num), few_rows(2 * d * k)
    for i in range(0, len(each), size):
        sums = np.empty((len(each[i : i + size]), d, k))
        for place, (start, stop) in zip(sums, each[i : i + size], strict=True):
            np.matmul(features[start:stop].T, error[start:stop], out=place)
        found[i : i + size] = sums.reshape(-1, d * k) @ flat
    return found


def _interpolation(knots: Any, heights: int) -> Floats:
    """(J, K - 1) weights with which the knots' influences give those of all heights."""
    if len(knots) == heights:
        return np.eye(heights)
    return np.stack([np.interp(np.arange(heights), knots, row) for row in np.eye(len(knots))])
