r"""The fixed point with proper next distributions, which stays bounded where the linear one explodes.

Before each backup the next state's masses are made a distribution, by sorting the heights of their CDF. The targets are
then distributions whatever the weights are, so a least-squares fit to them is bounded by them, and no product of a
backup with itself can grow.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from cramerl._arrays import Floats
from cramerl.linear.problem import Basis
from cramerl.linear.solve import Solution
from cramerl.linear.transition_sums import TransitionSums
from cramerl.linear.transitions import Rows, RowTotals, Source, few_rows
from cramerl.measures import nearest_distribution, rearranged_distribution
from cramerl.projections import backup
from cramerl.supports import Support

# Earlier steps that one step is extrapolated from, and steps at most.
_MEMORY, _MOST_STEPS = 6, 500
# Steps in which the change must halve: otherwise there is no fixed point that is worth waiting for.
_PATIENCE = 40


def proper_distributions(support: Support, masses: Floats) -> Floats:
    """Distributions (n, K) for signed masses: with their CDF heights sorted, or the nearest ones on uneven atoms."""
    if support.is_uniform:
        return rearranged_distribution(support, masses)
    return nearest_distribution(support, masses)


def solve_constrained(source: Source, sums: TransitionSums, basis: Basis, tol: float) -> Solution:
    """Weights, in the basis, that fit the backups of the proper distributions of their own next states.

    ``Solution.error`` is the last step's size: unlike for a linear system nothing more is known.
    """
    support, k = sums.support, sums.support.num_atoms
    size = few_rows(8 * k)

    def step(weights: Floats) -> Floats:
        plain = basis.plain(weights)

        def product(part: Rows) -> list[Any]:
            following = proper_distributions(support, part.next_features @ plain)
            target = backup(support, part.rewards, part.continuation(sums.discount), following)
            return [part.weighted_features.T @ target]

        (products,) = source.total(RowTotals(product, (np.add,), size)).values
        return basis.fitted(products / sums.weight)

    start = basis.fitted(np.repeat(sums.total[:, None] / sums.weight, k, axis=1) / k)
    weights, residual, steps = accelerated(step, start, tol, _MOST_STEPS)
    return Solution(weights, residual, steps, "constrained", residual)


def accelerated(
    step: Callable[[Floats], Floats], start: Floats, tol: float, most_steps: int
) -> tuple[Floats, float, int]:
    """A fixed point of ``step`` by Anderson's extrapolation of earlier steps: the point, the last change, the count.

    An extrapolation that makes the change larger is undone by a plain step. It stops early where steps lead nowhere.
    """
    point, best, best_change, earlier = start, start, np.inf, np.inf
    images: list[Floats] = []
    changes: list[Floats] = []
    for count in range(1, most_steps + 1):
        image = step(point)
        change = image - point
        size = float(np.linalg.norm(change))
        if size < best_change:
            best, best_change = image, size
        if size <= tol:
            return image, size, count
        if count % _PATIENCE == 0:
            if best_change > 0.5 * earlier:
                return best, best_change, count
            earlier = best_change
        if changes and size > 2 * np.linalg.norm(changes[-1]):
            images, changes = [], []
        images, changes = [*images[-_MEMORY:], image], [*changes[-_MEMORY:], change]
        point = _extrapolated(images, changes)
    return best, best_change, most_steps


def _extrapolated(images: list[Floats], changes: list[Floats]) -> Floats:
    """The combination of images whose combined change is smallest."""
    if len(changes) == 1:
        return images[0]
    last = changes[-1].ravel()
    differences = np.stack([last - change.ravel() for change in changes[:-1]], axis=1)
    share = np.linalg.lstsq(differences, last, rcond=1e-8)[0]
    return images[-1] - sum(s * (images[-1] - image) for s, image in zip(share, images[:-1], strict=True))
