"""A support for returns that nobody has seen yet: as far as their means and standard deviations reach."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
from scipy import sparse

from cramerl._arrays import Floats
from cramerl._checks import require_number
from cramerl.linear.moments import scaled_rows
from cramerl.linear.processes import MarkovRewardProcess, require_process
from cramerl.linear.transition_sums import MOST_DENSE, FeatureSums, least_squares, ridge
from cramerl.linear.transitions import Rows, RowTotals, Source, few_rows
from cramerl.supports import Support


def suggest_support(process: MarkovRewardProcess, num_atoms: int = 51, deviations: float = 4.0) -> Support:
    """An even support over the returns that matter: every state's mean and some standard deviations to either side.

    Args:
        process: a `MarkovRewardProcess`.
        num_atoms: K.
        deviations: how many standard deviations, >= 0; never further than returns can reach.
    """
    require_process(process)
    deviations = require_number("deviations", deviations, 0.0)
    low, high = process.return_range()
    values, margin = process.true_values(), deviations * np.sqrt(process.true_variances())
    low, high = max(low, float((values - margin).min())), min(high, float((values + margin).max()))
    widening = 1e-6 * (1 + abs(low) + abs(high)) if high - low < 1e-9 * (1 + abs(low)) else 0.0
    return Support.uniform(low - widening, high + widening, num_atoms)


def support_from_data(
    source: Source,
    discount: float,
    num_atoms: int,
    regularisation: float,
    seen: tuple[float, float] | None = None,
    tol: float = 1e-8,
) -> Support:
    """An even support for the returns of a log: as far as they probably reach, and no further than they can.

    It reaches from the mean return - 4 to + 4 standard deviations, both estimated linearly, and holds every reward of
    the data, followed by the mean return of the next state or by nothing. ``seen`` has the smallest and largest return
    of whole episodes, which it holds too. Three passes over the rows: for the means, for the variances around them, and
    for how far both reach. ``tol`` is the precision of means and variances where features are many.
    """
    size = few_rows(min(source.num_features, MOST_DENSE))
    sums = source.total(FeatureSums(discount, source.num_features))
    sums.penalties = getattr(source, "penalties", None)
    gram = sums.gram + sums.weight * ridge(sums, regularisation)
    least, most = _reach(sums)
    mean = _solved(gram - sums.cross, sums.reward_vector, tol)

    def value(features: Any) -> Floats:
        return np.clip(features @ mean, least, most)

    def squared_surprise(part: Rows) -> list[Any]:
        discounts = part.continuation(discount)
        surprise = part.rewards + discounts * value(part.next_features) - value(part.features)
        twice = scaled_rows(part.weighted_features, discounts**2)
        return [part.weighted_features.T @ surprise**2, twice.T @ part.next_features]

    # Variances obey a Bellman equation too: squared temporal differences, discounted by the square of the discount.
    spread, cross = source.total(RowTotals(squared_surprise, (operator.add, operator.add), size)).values
    variance = _solved(gram - cross, spread, tol)

    def reach(part: Rows) -> list[Any]:
        v, margin = value(part.features), 4 * np.sqrt(np.clip(part.features @ variance, 0.0, None))
        then = part.rewards + np.where(part.terminated, 0.0, part.continuation(discount) * value(part.next_features))
        counts = part.mass > 0
        lowest = np.minimum(np.minimum(v - margin, then), part.rewards)[counts].min(initial=np.inf)
        return [lowest, np.maximum(np.maximum(v + margin, then), part.rewards)[counts].max(initial=-np.inf)]

    bottom, top = map(float, source.total(RowTotals(reach, (np.minimum, np.maximum), size)).values)
    if seen is not None:
        bottom, top = min(bottom, seen[0]), max(top, seen[1])
    bottom, top = max(bottom, least), min(top, most)
    size = max(abs(bottom), abs(top))
    if top - bottom <= 1e-9 * size:  # every return is the same
        margin = max(min(1.0, size), 0.01 * size) or 1.0
        bottom, top = bottom - margin, top + margin
    return Support.uniform(bottom, top, num_atoms)


def _reach(sums: FeatureSums) -> tuple[float, float]:
    """The smallest and largest sum of discounted rewards, if every reward of the data could follow every other."""
    go_least, go_most, end_least, end_most, _, _ = sums.extremes * [1, -1, 1, -1, 1, -1]
    gap = 1.0 - sums.largest_discount

    def for_ever(reward: float) -> float:
        if not np.isfinite(reward):  # every return ends at once
            return reward
        return reward / gap if gap > 0 else float(np.sign(reward)) * np.inf if reward else 0.0

    # A return that can end may be a single reward, or a long sum of those on the way with any last one.
    least, most = min(for_ever(go_least), end_least), max(for_ever(go_most), end_most)
    return float(min(least, go_least)), float(max(most, go_most))


def _solved(matrix: Any, target: Floats, tol: float) -> Floats:
    """Weights of a linear system; by least squares, because a first chunk may have fewer rows than features."""
    if not sparse.issparse(matrix):
        return least_squares(matrix, target, 1e-10)
    from scipy.sparse.linalg import lsmr  # slow to import, and rarely needed

    return lsmr(matrix, target, atol=tol, btol=tol, maxiter=1000)[0]
