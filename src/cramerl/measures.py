r"""Signed masses on a support: what they say about the return, and the proper distribution nearest to them.

Masses :math:`q \in \mathbb{R}^K` may be negative and may sum to anything. `mean` and `variance` are the plain sums
of the paper over the masses as they are. `quantile` and `cvar` are about a fraction of the total, so they do not change
when all masses are scaled by a positive number.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from array_api_compat import is_numpy_namespace

from cramerl._arrays import Array, along_last, clip, constant, expand, host_values, running_max, take
from cramerl._checks import on_support, require_in_unit_interval
from cramerl.supports import Support


def total_mass(support: Support, masses: Array) -> Array:
    r"""Total mass :math:`1^\top q`: (..., K) -> (...)."""
    xp, masses = on_support(support, masses=masses)
    return xp.sum(masses, axis=-1)


def mean(support: Support, masses: Array) -> Array:
    r"""Generalised expectation :math:`z^\top q` (section 4.1.2 of the paper): (..., K) -> (...)."""
    xp, masses = on_support(support, masses=masses)
    return xp.sum(masses * along_last(xp, support.atoms, masses), axis=-1)


def variance(support: Support, masses: Array) -> Array:
    r"""Second moment around the mean, :math:`\sum_i q_i (z_i - z^\top q)^2`: (..., K) -> (...).

    The variance where the masses sum to one. Negative masses can make it negative.
    """
    xp, masses = on_support(support, masses=masses)
    atoms = along_last(xp, support.atoms, masses)
    centre = xp.sum(masses * atoms, axis=-1, keepdims=True)
    return xp.sum(masses * (atoms - centre) ** 2, axis=-1)


def negative_mass(support: Support, masses: Array) -> Array:
    r"""How much mass is negative, :math:`\sum_i \max(-q_i, 0)`: (..., K) -> (...). Zero for a distribution."""
    xp, masses = on_support(support, masses=masses)
    return xp.sum(xp.clip(-masses, 0.0, None), axis=-1)


def cdf(support: Support, masses: Array) -> Array:
    r"""Cumulative masses :math:`F_i = q_1 + \dots + q_i`: (..., K) -> (..., K)."""
    xp, masses = on_support(support, masses=masses)
    return xp.cumulative_sum(masses, axis=-1)


def quantile(support: Support, masses: Array, level: Array) -> Array:
    r"""Smallest atom whose cumulative mass reaches ``level`` times the total mass.

    With signed masses the CDF may go down again; the first crossing counts. Rounding in the CDF (a few ulps) does
    not push the answer to the next atom. Level 0 gives the first atom that holds mass.

    Args:
        support: K atoms.
        masses: (..., K), of positive total.
        level: (...) in [0, 1]. Broadcasts with the leading axes of ``masses``: for several levels of one measure
            pass (L,), for several levels of a batch (B, K) pass (L, 1).

    Returns:
        (...) atoms.
    """
    xp, masses, level = _masses_and_level(support, masses, level)
    reached, threshold, _ = _monotone_cdf(xp, masses, level)
    index = xp.argmax(xp.astype(reached >= threshold, xp.int8), axis=-1)
    return _where_positive(xp, reached, take(xp, constant(xp, support.atoms, masses), index))


def cvar(support: Support, masses: Array, level: Array) -> Array:
    r"""Conditional value at risk: the mean of the worst (smallest) fraction ``level`` of the returns.

    .. math:: \mathrm{CVaR}_\alpha = \frac{1}{\alpha} \int_0^\alpha F^{-1}(\tau)\, d\tau

    with :math:`F^{-1}` the function `quantile`, for signed masses too. Level 1 averages over all quantiles, which is
    the mean of a distribution; level 0 is the smallest return.

    Args:
        support: K atoms.
        masses: (..., K), of positive total.
        level: (...) in [0, 1]; broadcasts as in `quantile`.

    Returns:
        (...) values between ``v_min`` and ``v_max``.
    """
    xp, masses, level = _masses_and_level(support, masses, level)
    reached, _, asked = _monotone_cdf(xp, masses, level)
    counted = xp.minimum(reached, asked)
    below = xp.concat([xp.zeros_like(counted[..., :1]), counted[..., :-1]], axis=-1)
    atoms = along_last(xp, support.atoms, masses)
    return _where_positive(xp, reached, xp.sum((counted - below) / asked * atoms, axis=-1))


def with_unit_mass(support: Support, masses: Array) -> Array:
    r"""Masses whose total is one: the missing mass is added evenly, :math:`q + (1 - 1^\top q) u`.

    This is the paper's correction, and the nearest measure of mass one in Cramér distance.

    Args:
        support: K atoms.
        masses: (..., K) signed masses of any total.

    Returns:
        (..., K) masses that sum to one.

    Example:
        >>> import numpy as np
        >>> with_unit_mass(Support([-1, 0, 1]), np.array([0.0, 0.4, 0.0]))
        array([0.2, 0.6, 0.2])
    """
    xp, masses = on_support(support, masses=masses)
    return masses + (1.0 - xp.sum(masses, axis=-1, keepdims=True)) / support.num_atoms


def clipped_mass(support: Support, rewards: Array, discounts: Array, masses: Array) -> Array:
    r"""Fraction of the absolute mass that a backup clips: the part of :math:`r + \gamma Z` outside the support.

    Args:
        support: K atoms.
        rewards: (...), r. Broadcasts with the other leading axes.
        discounts: (...), gamma in [0, 1]; 0 where the transition ended the episode.
        masses: (..., K) signed masses of the next state.

    Returns:
        (...) between 0 and 1; 0 where there is no mass.

    Example:
        >>> import numpy as np
        >>> float(clipped_mass(Support([-1, 0, 1]), 0.5, 1.0, np.array([0.5, 0.25, 0.25])))
        0.25
    """
    given = {"rewards": rewards, "discounts": discounts, "masses": masses}
    xp, rewards, discounts, masses = on_support(support, ("rewards", "discounts"), **given)
    require_in_unit_interval(discounts=discounts)
    size = xp.abs(masses)
    moved = rewards[..., None] + discounts[..., None] * along_last(xp, support.atoms, size)
    outside = (moved < support.v_min) | (moved > support.v_max)
    clipped = xp.sum(xp.where(outside, size, xp.zeros_like(size)), axis=-1)
    return clipped / xp.clip(xp.sum(size, axis=-1), float(xp.finfo(size.dtype).smallest_normal), None)


def nearest_distribution(support: Support, masses: Array) -> Array:
    r"""Projection: the proper distribution closest to signed masses in Cramér distance.

    .. math:: \arg\min_{p \ge 0,\; 1^\top p = 1} (p - q)^\top C_0 (p - q)

    The mass penalty does not matter, since every candidate has mass one. Written for CDFs this is an isotonic
    regression of the CDF of :math:`q + (1 - 1^\top q) u`, weighted by the spacings, cut to [0, 1]: exact, and no
    iteration. On NumPy it is solved by pooling adjacent violators in O(K) per measure; elsewhere by the max-min
    formula in O(K²), which traces and differentiates.

    Args:
        support: K atoms.
        masses: (..., K) signed masses of any total.

    Returns:
        (..., K) probabilities: non-negative, summing to one.
    """
    xp, masses = on_support(support, masses=masses)
    unit = with_unit_mass(support, masses)
    target = xp.cumulative_sum(unit, axis=-1)[..., :-1]
    fit = _isotonic_rows if is_numpy_namespace(xp) else _isotonic_max_min
    return masses_between(xp, clip(xp, fit(xp, target, support.spacings), 0.0, 1.0))


def rearranged_distribution(support: Support, masses: Array) -> Array:
    r"""The distribution whose CDF has the same heights in rising order, cut to [0, 1]: O(K log K).

    It keeps the mean, but for what is cut, and returns every distribution unchanged. On evenly spaced atoms it never
    increases a Cramér distance, so a backup of it contracts as a backup does. `nearest_distribution` is the closest
    distribution; this one is cheaper on an accelerator.

    Args:
        support: K evenly spaced atoms.
        masses: (..., K) signed masses of any total.

    Returns:
        (..., K) probabilities: non-negative, summing to one.

    Example:
        >>> import numpy as np
        >>> rearranged_distribution(Support([0, 1, 2]), np.array([0.75, -0.5, 0.75]))
        array([0.25, 0.5 , 0.25])
    """
    xp, masses = on_support(support, masses=masses)
    if not support.is_uniform:
        spacings = f"spacings {support.spacings.min()} to {support.spacings.max()}"
        raise ValueError(f"support must have evenly spaced atoms, got {spacings}")
    heights = xp.cumulative_sum(with_unit_mass(support, masses), axis=-1)[..., :-1]
    return masses_between(xp, clip(xp, xp.sort(heights, axis=-1), 0.0, 1.0))


def masses_between(xp: Any, heights: Array) -> Array:
    """Masses of total one from the K - 1 heights of their CDF before the last atom."""
    ends = xp.zeros_like(heights[..., :1])
    return xp.concat([heights, ends + 1.0], axis=-1) - xp.concat([ends, heights], axis=-1)


def _isotonic_rows(xp: Any, target: np.ndarray, weights: np.ndarray) -> np.ndarray:
    from scipy.optimize import isotonic_regression  # slow to import, and rarely needed

    rows = target.reshape(-1, target.shape[-1])
    fitted = [isotonic_regression(row, weights=weights).x for row in rows]
    return np.asarray(fitted, dtype=target.dtype).reshape(target.shape)


def _isotonic_max_min(xp: Any, target: Array, weights: np.ndarray) -> Array:
    """Isotonic regression as max over starts a <= i of min over ends b >= i of the mean of a..b."""
    n = weights.size
    upper = np.triu(np.ones((n, n)))  # [a, i]: i is not before a
    sums = xp.cumulative_sum(target[..., None, :] * _matrix(xp, upper * weights, target), axis=-1)
    counts = np.cumsum(upper * weights, axis=-1) + (1 - upper)
    outside = _matrix(xp, upper, target) == 0
    infinity = xp.full_like(sums, xp.inf)
    means = xp.where(expand(xp, outside, sums.shape), infinity, sums / _matrix(xp, counts, target))
    lowest = -xp.flip(running_max(xp, xp.flip(-means, axis=-1)), axis=-1)
    return xp.max(xp.where(expand(xp, outside, sums.shape), -infinity, lowest), axis=-2)


def _matrix(xp: Any, values: np.ndarray, like: Array) -> Array:
    return xp.reshape(constant(xp, values, like), (1,) * (like.ndim - 1) + values.shape)


def _monotone_cdf(xp: Any, masses: Array, level: Array) -> tuple[Array, Array, Array]:
    """Running maximum of the CDF within [0, total], the threshold a quantile must reach, and level times total."""
    cumulative = xp.cumulative_sum(masses, axis=-1)
    total = cumulative[..., -1:]
    known = host_values(total)
    if known is not None and not (known > 0).all():  # such a measure has no quantiles
        raise ValueError(f"masses must have a positive total mass, got a total of {known[~(known > 0)].flat[0]}")
    if known is not None and not np.isfinite(known).all():
        raise ValueError("masses must have a finite total mass, the sum of these overflows")
    eps = xp.finfo(masses.dtype).eps
    rounding = 4 * eps * xp.sum(xp.abs(masses), axis=-1, keepdims=True)
    least = eps * eps * total  # level 0 is read as the limit from above
    reached = xp.minimum(xp.clip(running_max(xp, cumulative), 0.0, None), total)
    return reached, xp.maximum(level * total - rounding, least), xp.maximum(level * total, least)


def _where_positive(xp: Any, reached: Array, values: Array) -> Array:
    """NaN in place of a statement about a measure without mass (an error already where it could be read)."""
    return xp.where(reached[..., -1] > 0, values, xp.full_like(values, xp.nan))


def _masses_and_level(support: Support, masses: Array, level: Array) -> tuple[Any, Array, Array]:
    """Masses (..., K) and levels (..., 1) of the same leading shape."""
    xp, masses, level = on_support(support, ("level",), masses=masses, level=level)
    require_in_unit_interval(level=level)
    return xp, masses, level[..., None]
