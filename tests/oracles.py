"""Slow and obvious twins of what the package computes, and inputs to compare them on."""

from __future__ import annotations

from typing import Any

import clarabel
import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import sparse

from cramerl import Support

Matrix = NDArray[np.float64]

SUPPORTS = {
    "unit51": Support(np.arange(-25.0, 26.0)),
    "atari": Support.uniform(-10, 10, 51),
    "pair": Support([-0.5, 2.0]),
    "even": Support.uniform(0, 3, 8),
    "uneven": Support([-4.0, -3.9, -1.0, 0.25, 2.0, 7.0, 7.5]),
}


def supports(max_atoms: int = 9) -> st.SearchStrategy[Support]:
    gaps = st.lists(st.floats(0.05, 3.0), min_size=1, max_size=max_atoms - 1)
    uneven = st.builds(lambda start, d: Support(start + np.cumsum([0.0, *d])), st.floats(-5, 5), gaps)
    uniform = st.builds(
        lambda low, width, k: Support.uniform(low, low + width, k),
        st.floats(-5, 5),
        st.floats(0.5, 10),
        st.integers(2, max_atoms),
    )
    return st.one_of(uneven, uniform)


def vectors(size: int, bound: float = 3.0) -> st.SearchStrategy[Matrix]:
    return st.lists(st.floats(-bound, bound), min_size=size, max_size=size).map(np.array)


def centring(k: int) -> Matrix:
    return np.eye(k) - np.ones((k, k)) / k


def gram_by_definition(support: Support, mass_penalty: float) -> Matrix:
    """Pi C' diag(dz, 0) C Pi + lambda ee', factor by factor."""
    k = support.num_atoms
    ones = np.tril(np.ones((k, k)))
    centre = centring(k)
    return centre @ ones.T @ np.diag(np.append(support.spacings, 0)) @ ones @ centre + mass_penalty / k


def project_by_loop(support: Support, atoms: Matrix, masses: Matrix) -> Matrix:
    z, out = support.atoms, np.zeros(support.num_atoms)
    for x, m in zip(atoms, masses, strict=True):
        if x <= z[0]:
            out[0] += m
        elif x >= z[-1]:
            out[-1] += m
        else:
            i = max(j for j in range(len(z)) if z[j] <= x)
            share = (x - z[i]) / (z[i + 1] - z[i])
            out[i] += m * (1 - share)
            out[i + 1] += m * share
    return out


def centred_energy(support: Support, atoms: Matrix, masses: Matrix, q: Matrix) -> float:
    """Integral over the real line of (F_p - F_q - (mass p - mass q) F_u)^2, u uniform on the atoms: the C_0 part of
    the distance between a measure on any atoms and masses on the support, step by step."""
    gap = masses.sum() - q.sum()
    places = np.concatenate([atoms, support.atoms])
    weights = np.concatenate([masses, -q - gap / support.num_atoms])
    order = np.argsort(places, kind="stable")
    heights = np.cumsum(weights[order])[:-1]
    return float(np.sum(heights**2 * np.diff(places[order])))


solver: Any = clarabel  # its module is compiled and untyped


def solve_quadratic_programme(H: Matrix, g: Matrix, equal: tuple[Matrix, Matrix], nonnegative: bool) -> Matrix:
    """argmin x'Hx/2 + g'x subject to equalities (and x >= 0), by a generic interior-point solver."""
    A, b = equal
    n = len(g)
    cones: list = [solver.ZeroConeT(len(b))]
    if nonnegative:
        A, b = np.vstack([A, -np.eye(n)]), np.concatenate([b, np.zeros(n)])
        cones.append(solver.NonnegativeConeT(n))
    settings = solver.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-13
    upper = sparse.csc_matrix(np.triu(H))
    solution = solver.DefaultSolver(upper, g, sparse.csc_matrix(A), b, cones, settings).solve()
    return np.array(solution.x)


def proper(rng: np.random.Generator, *shape: int) -> Matrix:
    """Random probability vectors, some entries exactly zero."""
    weights = rng.exponential(size=shape) * (rng.random(shape) < 0.7)
    weights[..., 0] += 0.1
    return weights / weights.sum(axis=-1, keepdims=True)
