r"""The Cramér distance between signed masses: its matrix, inverse and square root, and its conditioning.

With :math:`e = 1/\sqrt{K}`, :math:`\Pi = I - ee^\top`, C the lower-triangular matrix of ones and dz the spacings,

.. math:: C_0 = \Pi C^\top \mathrm{diag}(dz, 0)\, C \Pi, \qquad C_\lambda = C_0 + \lambda ee^\top, \qquad
    \ell^2_\lambda(p, q) = (p - q)^\top C_\lambda (p - q).

The first part compares shapes and is blind to total mass; the second compares total masses only (section 3 of the
paper). The paper has unit spacing; here a support of spacing h multiplies :math:`C_0`, so the paper's
:math:`\lambda` is :math:`h \lambda` here.
"""

from __future__ import annotations

import math
from typing import Any, Literal, NamedTuple

import numpy as np

from cramerl._arrays import Array, Floats, along_last, apply_matrix, as_floats, placement
from cramerl._checks import on_support, require_choice, require_finite, require_last_axis, require_penalty
from cramerl.supports import Support, require_support


def cramer_distance_sq(support: Support, p: Array, q: Array, mass_penalty: Any = 1.0) -> Array:
    r"""Squared Cramér distance :math:`\ell^2_\lambda(p, q)` between signed masses (Eq. 4 of the paper), in O(K).

    For masses of equal total it is :math:`\int (F_p - F_q)^2 dt`, whatever the penalty.

    Args:
        support: K atoms.
        p: (..., K).
        q: (..., K). Leading axes broadcast.
        mass_penalty: :math:`\lambda \ge 0`, the weight of :math:`(1^\top p - 1^\top q)^2 / K`.

    Returns:
        (...) squared distances.
    """
    xp, p, q = on_support(support, p=p, q=q)
    mass_penalty = require_penalty(mass_penalty)
    cumulative = xp.cumulative_sum(p - q, axis=-1)
    mass = cumulative[..., -1]
    return shape_energy(support, xp, cumulative) + mass_penalty / support.num_atoms * mass**2


def raw_distance_sq(support: Support, p: Array, q: Array, form: Literal["cumulative", "tail"] = "cumulative") -> Array:
    r"""The paper's two unmodified forms, :math:`\|C(p - q)\|^2` and :math:`\|C^\top(p - q)\|^2` (Eq. 2 and 3).

    They agree when the totals agree and in general not otherwise. The paper's spacing is one; here each cumulative
    (tail) sum is weighted by the spacing it covers, and the full sum, which covers none, by the mean spacing.

    Args:
        support: K atoms.
        p: (..., K).
        q: (..., K). Leading axes broadcast.
        form: sum from the left ("cumulative") or from the right ("tail").

    Returns:
        (...) squared distances.
    """
    weights = _raw_weights(support, form)
    xp, p, q = on_support(support, p=p, q=q)
    difference = p - q if form == "cumulative" else xp.flip(p - q, axis=-1)
    return xp.sum(xp.cumulative_sum(difference, axis=-1) ** 2 * along_last(xp, weights, difference), axis=-1)


def raw_gram(support: Support, form: Literal["cumulative", "tail"] = "cumulative") -> Floats:
    """Matrix (K, K) of `raw_distance_sq`."""
    weights = _raw_weights(support, form)
    sums = np.tri(support.num_atoms)
    return (sums * weights[::-1]) @ sums.T if form == "tail" else (sums.T * weights) @ sums


def cramer_gram(support: Support, mass_penalty: float) -> Floats:
    r"""Floats :math:`C_\lambda` (K, K) of `cramer_distance_sq`, float64.

    Closed form for any spacing: :math:`C_0` is the matrix :math:`-|z_i - z_j| / 2`, centred in rows and columns.
    """
    require_support(support)
    penalty = float(require_penalty(mass_penalty))
    halved = -np.abs(support.atoms[:, None] - support.atoms) / 2
    rows = halved.mean(axis=1)
    return halved - rows[:, None] - rows + rows.mean() + penalty / support.num_atoms


def cramer_gram_inverse(support: Support, mass_penalty: float) -> Floats:
    r"""Inverse of :math:`C_\lambda` (K, K): the Laplacian of a path with weights 1/dz, plus :math:`ee^\top/\lambda`.

    Needs a positive penalty: without one total mass is not seen and the matrix is singular.
    """
    require_support(support)
    penalty = float(require_penalty(mass_penalty, zero_allowed=False))
    steps = np.diff(np.eye(support.num_atoms), axis=0)
    return (steps.T / support.spacings) @ steps + 1.0 / (penalty * support.num_atoms)


def cramer_gram_sqrt(support: Support, mass_penalty: float) -> Floats:
    r"""Symmetric square root of :math:`C_\lambda` (K, K). Cosines on a uniform support, an SVD otherwise."""
    penalty = float(require_penalty(mass_penalty))
    vectors, scales = shape_modes(support)
    return (vectors * scales) @ vectors.T + math.sqrt(penalty) / support.num_atoms


def condition_number(support: Support, mass_penalty: float) -> float:
    r"""Condition number of :math:`C_\lambda`, infinite for a penalty of zero (Lemma 1).

    It bounds how fast gradient descent on the Cramér loss can be: for 51 atoms it is 1053.48 at best, for any
    penalty in `optimal_penalty_range`.
    """
    penalty = float(require_penalty(mass_penalty))
    low, high = optimal_penalty_range(support)
    least = min(low, penalty)  # an eigenvalue of spacings as unlike as 1e-300 and 1e300 is zero in float64
    return max(high, penalty) / least if least else math.inf


def optimal_penalty_range(support: Support) -> tuple[float, float]:
    r"""Penalties for which :math:`C_\lambda` is conditioned best: the extreme non-zero eigenvalues of :math:`C_0`.

    On spacing h they are :math:`h / (4 \cos^2 \frac{\pi}{2K})` and :math:`h / (4 \sin^2 \frac{\pi}{2K})` (Lemma 1).
    """
    _, scales = shape_modes(support)
    return float(scales[-1] ** 2), float(scales[0] ** 2)


class UnitMassBasis(NamedTuple):
    """Coordinates for masses of total one: ``masses = 1/K + basis @ outputs``.

    Attributes:
        basis: B, (K, K - 1); its columns sum to zero and are orthonormal in the Cramér metric.
        left_inverse: (K - 1, K); ``outputs = left_inverse @ masses``.
    """

    basis: Floats
    left_inverse: Floats

    def masses(self, outputs: Array) -> Array:
        """Masses (..., K) of total one from outputs (..., K - 1) of any array library."""
        xp, outputs = as_floats(outputs=outputs)
        require_last_axis(len(self.left_inverse), "one less than the atoms", outputs=outputs)
        require_finite(outputs=outputs)
        return 1.0 / len(self.basis) + apply_matrix(xp, self.basis, outputs)

    def outputs(self, masses: Array) -> Array:
        """Outputs (..., K - 1) from masses (..., K); of a total other than one only the shape is kept."""
        xp, masses = as_floats(masses=masses)
        require_last_axis(len(self.basis), "the atoms of the support", masses=masses)
        require_finite(masses=masses)
        return apply_matrix(xp, self.left_inverse, masses)


def unit_mass_basis(support: Support) -> UnitMassBasis:
    r"""Whitened zero-mass directions B of the U51 head: :math:`1^\top B = 0` and :math:`B^\top C_0 B = I`.

    With :math:`q = u + Bo` the squared Cramér distance of two masses is the squared Euclidean distance of their
    outputs: condition number one, mass one by construction, no penalty to tune. Train the outputs with a plain
    squared error to ``basis.outputs(target)``, or the masses with `cramer_distance_sq`: the same. Columns run from the
    widest mode to the narrowest; on a uniform support they are scaled cosines.

    Example:
        >>> basis = unit_mass_basis(Support([-1.0, 0.0, 1.0]))
        >>> basis.masses(np.zeros(2))
        array([0.33333333, 0.33333333, 0.33333333])
    """
    vectors, scales = shape_modes(support)
    return UnitMassBasis(vectors / scales, scales[:, None] * vectors.T)


def shape_energy(support: Support, xp: Any, cumulative: Array, mean_weight: Any = 0.0) -> Array:
    """The C_0 part of the distance, from the cumulative sums of the difference: (..., K) -> (...).

    Centring the difference takes i / K of its total from the i-th cumulative sum. The mean of what is centred is minus
    the area under these heights; its square may be given a weight.
    """
    k = support.num_atoms
    inner, total = cumulative[..., :-1], cumulative[..., -1:]
    ramp = xp.arange(1, k, dtype=inner.dtype, device=placement(xp, inner)) / k
    heights = inner - xp.reshape(ramp, (1,) * (inner.ndim - 1) + (k - 1,)) * total
    areas = heights * along_last(xp, support.spacings, inner)
    energy = xp.sum(heights * areas, axis=-1)
    if isinstance(mean_weight, float) and mean_weight == 0:
        return energy
    return energy + mean_weight * xp.sum(areas, axis=-1) ** 2


def _raw_weights(support: Support, form: str) -> Floats:
    """Spacing covered by each partial sum, in the order the sums are taken."""
    require_support(support)
    require_choice("form", form, ("cumulative", "tail"))
    spacings = support.spacings[::-1] if form == "tail" else support.spacings
    return np.append(spacings, spacings.mean())


def shape_modes(support: Support) -> tuple[Floats, Floats]:
    """Eigenvectors (K, K - 1) of C_0 off the constant, and the square roots of their eigenvalues, descending."""
    k = require_support(support).num_atoms
    if support.is_uniform:
        j = np.arange(1, k)
        angles = np.pi / k * (np.arange(k)[:, None] + 0.5) * j
        width = (support.v_max - support.v_min) / (k - 1)
        return math.sqrt(2 / k) * np.cos(angles), math.sqrt(width) / (2 * np.sin(np.pi * j / (2 * k)))
    factor = np.tri(k - 1, k) - np.arange(1, k)[:, None] / k  # C Pi without its last row, which is zero
    _, scales, rows = np.linalg.svd(np.sqrt(support.spacings)[:, None] * factor, full_matrices=False)
    signs = np.where(rows[:, :1] < 0, -1.0, 1.0)  # as cosines start: positive at the first atom
    return (signs * rows).T, scales
