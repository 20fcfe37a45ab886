"""Projections in Cramér distance: onto a support (and the backup r + gamma z built on it), and onto an affine set."""

from __future__ import annotations

from typing import Any

import numpy as np

from cramerl._arrays import (
    Array,
    Floats,
    add_at,
    along_last,
    apply_matrix,
    as_floats,
    clip,
    constant,
    host_reals,
    host_values,
    take,
)
from cramerl._checks import (
    broadcast,
    on_support,
    require_finite,
    require_in_unit_interval,
    require_last_axis,
    require_penalty,
    require_representable,
    require_same_last_axis,
)
from cramerl.cramer import shape_modes
from cramerl.supports import Support, require_support


def project(support: Support, atoms: Array, masses: Array) -> Array:
    r"""Projection: the masses on the support closest in Cramér distance to a measure on other atoms.

    .. math:: \arg\min_{q \in \mathbb{R}^K,\; 1^\top q = \sum_j m_j} \int
        \Big( \sum_{x_j \le t} m_j - \sum_{z_i \le t} q_i \Big)^2 dt

    The minimiser gives each :math:`m_j` to the two atoms next to :math:`x_j` in proportion (hat weights), and to an
    end atom when :math:`x_j` lies beyond it. It is linear in the masses, which may be negative and may sum to
    anything. It preserves the total mass, and the mean if nothing lies beyond the ends.

    Costs O(J) additions per measure on NumPy, JAX and PyTorch, plus O(J log K) comparisons when the support is
    uneven; O(JK) on other libraries, which cannot add at indices. Differentiable in both arguments.

    Args:
        support: the K atoms to project onto.
        atoms: (..., J) source atoms, in any order, repeated or not.
        masses: (..., J) signed masses at the source atoms. Leading axes broadcast.

    Returns:
        (..., K) masses on the support.

    Reference:
        Rowland et al. 2018, Proposition 1; for signed masses, section 4.2.1 of the paper.
    """
    xp, atoms, masses = as_floats(atoms=atoms, masses=masses)
    require_same_last_axis("atoms", atoms, "masses", masses)
    require_finite(atoms=atoms, masses=masses)
    require_representable(xp, support, masses)
    atoms, masses = broadcast(xp, atoms=atoms, masses=masses)
    return _split_mass(support, atoms, masses, xp)


def backup(support: Support, rewards: Array, discounts: Array, masses: Array) -> Array:
    r"""Projected distribution of :math:`r + \gamma Z`, where Z has the given masses on the support.

    Args:
        support: K atoms.
        rewards: (...), r. Broadcasts with the other leading axes.
        discounts: (...), gamma in [0, 1]; 0 where the transition ended the episode.
        masses: (..., K) signed masses of the next state.

    Returns:
        (..., K) masses: ``backup_matrix(support, r, gamma) @ masses`` for every entry, in O(K).

    Example:
        >>> import numpy as np
        >>> backup(Support([-1, 0, 1]), 0.5, 0.5, np.array([0.0, 0.0, 1.0]))
        array([0., 0., 1.])
    """
    given = {"rewards": rewards, "discounts": discounts, "masses": masses}
    xp, rewards, discounts, masses = on_support(support, ("rewards", "discounts"), **given)
    require_finite(rewards=rewards)
    require_in_unit_interval(discounts=discounts)
    return _split_mass(support, _shifted(support, xp, rewards, discounts), masses, xp)


def backup_matrix(support: Support, reward: Array, discount: Array) -> Array:
    r"""Matrix :math:`M_r` of the projected backup: column j holds where the mass at atom j goes.

    Args:
        support: K atoms.
        reward: (...), r.
        discount: (...), gamma in [0, 1].

    Returns:
        (..., K, K): ``backup_matrix(support, r, gamma) @ masses`` is ``backup(support, r, gamma, masses)``. Columns
        sum to one and have at most two entries that are not zero.
    """
    xp, reward, discount = as_floats(reward=reward, discount=discount)
    require_finite(reward=reward)
    require_representable(xp, support, reward)
    require_in_unit_interval(discount=discount)
    atoms = _shifted(support, xp, *broadcast(xp, ("reward", "discount"), reward=reward, discount=discount))
    rows = _split_mass(support, atoms[..., None], xp.ones_like(atoms)[..., None], xp)
    return xp.matrix_transpose(rows)


def project_affine(support: Support, masses: Array, matrix: Array, offset: Array, mass_penalty: float = 1.0) -> Array:
    r"""Projection onto an affine set in Cramér distance, as in Lemma 2.

    .. math:: \arg\min_{q : Aq = b} \ell^2_\lambda(p, q)
        = p - C_\lambda^{-1} A^\top (A C_\lambda^{-1} A^\top)^{+} (A p - b)

    The mean is preserved if the first and last columns of A are equal and either the atoms have mean zero or one of the
    constraints is a row of ones that fixes the mass at its present value.

    Args:
        support: K atoms.
        masses: p, (..., K).
        matrix: A, (M, K), not traced. Rows may depend on each other if the constraints do not contradict each other.
        offset: b, (M,) or (..., M).
        mass_penalty: :math:`\lambda > 0`.

    Returns:
        (..., K) masses q with Aq = b.
    """
    require_support(support)
    penalty = require_penalty(mass_penalty, zero_allowed=False)
    constraints = host_reals("matrix", matrix)
    if constraints.ndim != 2 or constraints.shape[1] != support.num_atoms or not constraints.shape[0]:
        shape = f"(M, {support.num_atoms}) with M >= 1"
        raise ValueError(f"matrix must have shape {shape}, got {constraints.shape}")
    require_finite(matrix=constraints)
    xp, masses, offset = as_floats(masses=masses, offset=offset)
    on_support(support, masses=masses)
    require_last_axis(constraints.shape[0], "the rows of matrix", offset=offset)
    require_finite(offset=offset)
    masses, offset = broadcast(xp, masses=masses, offset=offset)
    correction = _affine_correction(support, constraints, float(penalty))
    projected = masses
    for _ in range(2):  # the second time removes the rounding errors of the first
        projected = projected - apply_matrix(xp, correction, apply_matrix(xp, constraints, projected) - offset)
    p, q, b = (host_values(a) for a in (masses, projected, offset))
    if p is not None and q is not None and b is not None:
        missed = np.abs(q @ constraints.T - b)
        size = (np.abs(p) + np.abs(q)) @ np.abs(constraints).T + np.abs(b)
        far = missed > 1e3 * np.finfo(q.dtype).eps ** 0.75 * size
        if far.any():
            given = f"the nearest masses miss offset by {missed[far].max():.3g}"
            raise ValueError(f"matrix and offset contradict each other: {given}")
    return projected


def _shifted(support: Support, xp: Any, rewards: Array, discounts: Array) -> Array:
    """r + gamma z, (...), (...) -> (..., K)."""
    rewards = rewards[..., None]
    return rewards + discounts[..., None] * along_last(xp, support.atoms, rewards)


def _split_mass(support: Support, atoms: Array, masses: Array, xp: Any) -> Array:
    """Hat weights: each mass goes to the atoms at the two ends of its cell."""
    cell, fraction = _locate(support, atoms, xp)
    upper = masses * fraction
    lower = masses - upper
    return add_at(xp, support.num_atoms, cell, lower) + add_at(xp, support.num_atoms, cell + 1, upper)


def _locate(support: Support, atoms: Array, xp: Any) -> tuple[Array, Array]:
    """The cell [z_i, z_{i+1}] each atom falls into (the end cell if beyond), and how far up in it, in [0, 1]."""
    inside = clip(xp, atoms, support.v_min, support.v_max)
    integer, last = xp.asarray(0).dtype, support.num_atoms - 2  # the default integer, which a library indexes with
    if support.is_uniform:
        width = float(np.mean(support.spacings))
        cell = xp.astype(xp.floor((inside - support.v_min) / width), integer)
    else:
        flat = xp.reshape(inside, (-1,))
        found = xp.searchsorted(constant(xp, support.atoms, inside), flat, side="right")
        cell = xp.reshape(xp.astype(found, integer), inside.shape) - 1
    cell = clip(xp, cell, 0, last)
    start = take(xp, constant(xp, support.atoms, inside), cell)
    length = take(xp, constant(xp, support.spacings, inside), cell)
    # Rounding may put an atom one ulp outside its cell; the clip keeps probabilities from turning negative there.
    return cell, clip(xp, (inside - start) / length, 0.0, 1.0)


def _affine_correction(support: Support, constraints: Floats, penalty: float) -> Floats:
    """C^-1 A' (A C^-1 A')^+, computed as C^-1/2 (A C^-1/2)^+ with rows of equal size: loses half as many digits."""
    modes, scales = shape_modes(support)
    root = (modes / scales) @ modes.T + 1 / (np.sqrt(penalty) * support.num_atoms)
    whitened = constraints @ root
    sizes = np.linalg.norm(whitened, axis=1)
    sizes = np.where(sizes > 0, sizes, 1.0)
    return root @ np.linalg.pinv(whitened / sizes[:, None], rcond=1e-13) / sizes
