"""How well predicted distributions fit returns that were seen."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from cramerl._arrays import Floats
from cramerl.supports import Support


def crps(support: Support, probs: Floats, returns: Floats) -> Floats:
    r"""(n,) continuous ranked probability score of distributions (n, K) for returns (n,); smaller is better.

    .. math:: \int \big(F(z) - 1\{z \ge g\}\big)^2\, dz

    Example:
        >>> crps(Support([0, 1, 2]), np.array([[0.0, 1.0, 0.0]]), np.array([1.5]))
        array([0.5])
    """
    z, heights = support.atoms, np.cumsum(probs, axis=-1)[..., :-1]
    inside = np.clip(returns, z[0], z[-1])
    # The part of each cell below the return counts with F^2, the part above it with (1 - F)^2.
    below = np.clip((inside[:, None] - z[:-1]) / support.spacings, 0.0, 1.0)
    cells = below * heights**2 + (1.0 - below) * (1.0 - heights) ** 2
    return cells @ support.spacings + np.abs(returns - inside)


def pooled_crps(returns: Floats, weights: Floats | None = None) -> float:
    """Mean CRPS of the returns' own distribution, for each of them: that of one distribution for all states."""
    order = np.argsort(returns, kind="stable")
    g = returns[order]
    mass = np.ones(len(g)) if weights is None else np.asarray(weights)[order]
    height = np.cumsum(mass)[:-1] / mass.sum()
    return float(np.diff(g) @ (height * (1.0 - height)))


def crps_skill(support: Support, parts: Iterable[Floats], returns: Floats, weights: Floats) -> float:
    """Share of the pooled CRPS that distributions (n, K), given in parts, save: one is perfect."""
    first, missed = 0, 0.0
    for part in parts:
        here = slice(first, first := first + len(part))
        missed += float(weights[here] @ crps(support, part, returns[here]))
    spread = pooled_crps(returns, weights) * float(weights.sum())
    if spread > 0:
        return 1.0 - missed / spread
    return float(missed <= 1e-9 * (support.v_max - support.v_min) * float(weights.sum()))
