"""A support for returns that nobody has seen yet: as far as their means and standard deviations reach."""

from __future__ import annotations

from typing import Any

import numpy as np

from cramerl._arrays import Floats
from cramerl.linear.moments import add_product
from cramerl.linear.processes import MarkovRewardProcess
from cramerl.linear.transitions import Rows, RowTotals, Source, few_rows
from cramerl.supports import Support


def suggest_support(process: MarkovRewardProcess, num_atoms: int = 51, deviations: float = 4.0) -> Support:
    """An even support over the returns that matter: every state's mean and some standard deviations to either side.

    Args:
        process: a `MarkovRewardProcess`.
        num_atoms: K.
        deviations: how many standard deviations; never further than returns can reach.
    """
    low, high = process.return_range()
    values, margin = process.true_values(), deviations * np.sqrt(process.true_variances())
    low, high = max(low, float((values - margin).min())), min(high, float((values + margin).max()))
    widening = 1e-6 * (1 + abs(low) + abs(high)) if high - low < 1e-9 * (1 + abs(low)) else 0.0
    return Support.uniform(low - widening, high + widening, num_atoms)


def support_from_data(source: Source, discount: float, num_atoms: int, regularisation: float) -> Support:
    """An even support over mean return ± 4 standard deviations, both estimated linearly, within what is possible.

    Three passes over the rows: for the means, for the variances around them, and for how far both reach.
    """
    size = few_rows(source.num_features)
    add, low, high = np.add, np.minimum, np.maximum
    sums = source.total(RowTotals(_sums_for_means, (add, add, add, add, low, high, low, high), size)).values
    gram, cross, target, count, smallest, largest, first_last, last_last = sums
    gram = gram + regularisation * count * np.eye(len(gram))
    horizon = 1.0 / (1.0 - discount)
    least, most = horizon * float(smallest), horizon * float(largest)
    if first_last <= last_last:  # some returns end
        least, most = min(least, float(smallest)), max(most, float(largest))
    # Least squares, because a first chunk may have fewer rows than features.
    mean = np.linalg.lstsq(gram - discount * cross, target, rcond=1e-10)[0]

    def value(features: Floats) -> Floats:
        return np.clip(features @ mean, least, most)

    def squared_surprise(part: Rows) -> list[Any]:
        surprise = part.rewards + part.discounts(discount) * value(part.next_features) - value(part.features)
        return [part.features.T @ surprise**2]

    # Variances obey a Bellman equation too: squared temporal differences, discounted by the square of the discount.
    (spread,) = source.total(RowTotals(squared_surprise, (add,), size)).values
    variance = np.linalg.lstsq(gram - discount**2 * cross, spread, rcond=1e-10)[0]

    def reach(part: Rows) -> list[Any]:
        v, margin = value(part.features), 4 * np.sqrt(np.clip(part.features @ variance, 0.0, None))
        return [(v - margin).min(), (v + margin).max()]

    bottom, top = map(float, source.total(RowTotals(reach, (low, high), size)).values)
    bottom, top = min(max(bottom, least), float(first_last)), max(min(top, most), float(last_last))
    if top - bottom <= 1e-9 * max(1.0, abs(bottom)):  # every return is the same
        bottom, top = bottom - max(1.0, 0.01 * abs(bottom)), top + max(1.0, 0.01 * abs(top))
    return Support.uniform(bottom, top, num_atoms)


def _sums_for_means(part: Rows) -> list[Any]:
    """Sums for ordinary LSTD, the number of rows, and extremes of all rewards and of those that end the return."""
    x, r, last = part.features, part.rewards, part.rewards[part.terminated]
    gram, cross = np.zeros((2, x.shape[1], x.shape[1]))
    add_product(gram, x, x)
    add_product(cross, x, part.next_features * ~part.terminated[:, None])
    ends = last.min(initial=np.inf), last.max(initial=-np.inf)
    return [gram, cross, x.T @ r, len(r), r.min(), r.max(), *ends]
