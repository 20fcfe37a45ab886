r"""How each episode moves an answer: the influence of the data on the CDF of the start distribution.

The weights solve :math:`\Theta = F\Theta + b`, sums over rows on both sides. Let the rows have the errors
:math:`\delta_t = T_t(\Theta) - \Theta^\top\phi_t`. To first order an episode moves a linear function
:math:`\langle C, \Theta\rangle` by :math:`\langle\Lambda, \sum_t \phi_t\delta_t^\top\rangle`, where :math:`\Lambda`
solves one adjoint system, :math:`(I - F^\top)\Lambda = C`. The heights of the CDF are such functions, and everything
else is made of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import lu_factor, lu_solve

from cramerl._arrays import Floats
from cramerl.linear.krylov import solve_fixed_point
from cramerl.linear.logs.rows import LogRows, Starts
from cramerl.linear.lstd import DistributionalLSTD
from cramerl.linear.reduced import ReducedBasis
from cramerl.linear.transitions import Rows, few_rows
from cramerl.measures import with_unit_mass
from cramerl.projections import backup

# Unknowns up to which the adjoint systems of all heights are solved with one factorisation.
_DIRECT_UNKNOWNS = 6000
# Heights whose influence is computed where each needs a solution of its own; those between are interpolated.
_KNOTS = 16
# Numbers in the influences of all episodes that are kept: a hundred megabytes.
_KEPT_NUMBERS = 12_500_000


class HeightInfluence(NamedTuple):
    """How episodes move the heights of a CDF.

    Attributes:
        covariance: (K - 1, K - 1) of the heights.
        influences: (E, K - 1) what each episode adds to the heights' error; None if these would be too many numbers.
        num_episodes: E.
    """

    covariance: Floats
    influences: Floats | None
    num_episodes: int


def height_influence(model: DistributionalLSTD, rows: LogRows, starts: Starts) -> HeightInfluence:
    """The influence of each episode on the heights of the starts' CDF, and their covariance."""
    count, heights = rows.log.num_episodes, model.support_.num_atoms - 1
    knots = np.arange(heights)
    if _unknowns(model) > _DIRECT_UNKNOWNS and heights > _KNOTS:
        knots = np.unique(np.linspace(0, heights - 1, _KNOTS).round().astype(np.intp))
    adjoints = _adjoints(model, starts, knots)
    moved = np.zeros((count, len(knots)))
    for block, part in rows.blocks():
        for start, found in _row_influences(model, part, adjoints):
            episodes = block.episode[start : start + len(found)]  # in order
            first, size = int(episodes[0]), int(episodes[-1] - episodes[0]) + 1
            for j in range(len(knots)):
                moved[first : first + size, j] += np.bincount(episodes - first, found[:, j], size)
    moved /= model._sums.weight  # pyright: ignore[reportOptionalMemberAccess]
    moved -= moved.mean(axis=0)
    moved += _start_influence(model, starts, knots, count)
    spread = _interpolation(knots, heights)
    covariance = spread.T @ (moved.T @ moved) @ spread * (count / max(1, count - 1))
    influences = moved @ spread if count * heights <= _KEPT_NUMBERS else None
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
    return HeightInfluence(np.cov(np.array(drawn), rowvar=False), None, count)


def _unknowns(model: DistributionalLSTD) -> int:
    return model._basis_.constant.size * model.support_.num_atoms


def _adjoints(model: DistributionalLSTD, starts: Starts, knots: Any) -> Floats:
    """(D, J, K) solutions of the adjoint systems of the heights at the knots."""
    basis, k = model._basis_, model.support_.num_atoms
    system: Any = model._system  # the model is fitted
    below = (np.arange(k)[None, :] <= np.asarray(knots)[:, None]).astype(np.float64)
    start = _start(basis, starts)
    size = len(start)
    if system.dense is not None and size * k <= _DIRECT_UNKNOWNS:
        matrix = np.eye(size * k) - system.dense().reshape(size * k, size * k)
        right = (start[:, None, None] * below.T[None]).reshape(size * k, len(knots))
        solved = lu_solve(lu_factor(matrix, overwrite_a=True, check_finite=False), right, trans=1)
        found = solved.reshape(size, k, len(knots)).transpose(0, 2, 1)
    else:
        found = np.stack([_solved(system, np.outer(start, row)) for row in below], axis=1)
    plain = basis.unfitted(np.ascontiguousarray(found).reshape(size, -1))
    return plain.reshape(-1, len(knots), k)


def _start(basis: Any, starts: Starts) -> Floats:
    """The starts' mean features in the basis of the equations."""
    if not isinstance(basis, ReducedBasis):
        return basis.gathered(starts.mean[:, None])[:, 0]
    if starts.index is None or (starts.index < 0).any():
        raise ValueError("start must hold states of the log where intervals are wanted, got others: intervals='none'")
    shares: Floats = np.bincount(starts.index, starts.weights, len(basis.constant)).astype(np.float64)
    return shares


def _solved(system: Any, constant: Any) -> Floats:
    tol = 1e-4 * float(np.linalg.norm(constant))
    return solve_fixed_point(system.adjoint, constant, tol, 20_000).solution


def _row_influences(model: DistributionalLSTD, rows: Rows, adjoints: Floats) -> Any:
    """(first row, (n, J) influences) of a few rows at a time."""
    support = model.support_
    d, num, k = adjoints.shape
    flat = adjoints.reshape(d, num * k)
    first = 0
    for part in rows.parts(few_rows(8 * num * k)):
        following = with_unit_mass(support, part.next_features @ model.weights_)
        target = backup(support, part.rewards, part.continuation(float(model.discount)), following)
        error = (target - part.features @ model.weights_) * part.mass[:, None]
        products = (part.features @ flat).reshape(-1, num, k)
        yield first, np.einsum("njk,nk->nj", products, error)
        first += len(error)


def _start_influence(model: DistributionalLSTD, starts: Starts, knots: Any, count: int) -> Floats:
    """(E, J): what the choice of start states adds, where they are those of the episodes."""
    moved = np.zeros((count, len(knots)))
    own = starts.episode >= 0
    if not own.any():
        return moved
    heights = np.cumsum(starts.table @ model.weights_, axis=1)[:, knots]
    away = (heights - starts.weights @ heights) * starts.weights[:, None]
    for j in range(len(knots)):
        moved[:, j] = np.bincount(starts.episode[own], away[own, j], count)
    return moved


def _interpolation(knots: Any, heights: int) -> Floats:
    """(J, K - 1) weights with which the knots' influences give those of all heights."""
    if len(knots) == heights:
        return np.eye(heights)
    return np.stack([np.interp(np.arange(heights), knots, row) for row in np.eye(len(knots))])
