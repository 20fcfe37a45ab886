"""Features made orthonormal under a state distribution, without losing the digits of badly conditioned ones."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.linalg import cholesky, solve_triangular

from cramerl.linear.operators import Floats


class Whitening(NamedTuple):
    """Change of basis to features that are orthonormal under the state distribution.

    Attributes:
        inverse: R^-1, (D, D): whitened features are Phi R^-1, and weights are R^-1 Theta.
        condition: condition number of Phi' Xi Phi.
        constant: (D,) whitened features' inner products with the constant function.
    """

    inverse: Floats
    condition: float
    constant: Floats


def whiten(features: Floats, weights: Floats) -> Whitening:
    """Find the whitening of features (S, D) under weights (S,); ValueError if they are linearly dependent."""
    gram = _weighted_gram(features, weights)
    scale = np.sqrt(np.diag(gram))
    if not scale.all():
        raise ValueError(
            f"features must not vanish, but column {int(np.argmin(scale))} is zero in every state that has weight: "
            "drop it, or give a state_distribution that sees it"
        )
    values = np.linalg.eigvalsh(gram / np.outer(scale, scale))
    if values[0] <= 1e-13 * values[-1]:
        rank = int((values > 1e-13 * values[-1]).sum())
        raise ValueError(
            f"features must be linearly independent under the state distribution, got rank {rank} of {len(gram)}"
        )
    first = np.diag(1 / scale) @ _inverse_root(gram / np.outer(scale, scale))
    # Once more on the nearly orthonormal features: what the first root lost to rounding is now small.
    second = _inverse_root(_weighted_gram(features, weights, first))
    inverse = first @ second
    eigenvalues = np.linalg.eigvalsh(gram)
    condition = float(eigenvalues[-1] / max(eigenvalues[0], np.finfo(float).tiny))
    return Whitening(inverse, condition, inverse.T @ (features.T @ weights))


def _inverse_root(gram: Floats) -> Floats:
    return solve_triangular(cholesky(gram), np.eye(len(gram)))


def _weighted_gram(features: Floats, weights: Floats, change: Floats | None = None) -> Floats:
    total = np.zeros((features.shape[1], features.shape[1]))
    rows = max(1, 4_000_000 // features.shape[1])
    for i in range(0, len(features), rows):
        part = features[i : i + rows] if change is None else features[i : i + rows] @ change
        total += part.T @ (weights[i : i + rows, None] * part)
    return total
