"""Claims 5 to 7: the inverse on the atoms, projections onto affine sets and onto a support."""

from __future__ import annotations

import numpy as np

from cramerl._arrays import Array, Floats
from cramerl.claims.claim import ROUNDING, Figures, at_least, at_most, exactly, states
from cramerl.claims.setting import density_distance_sq, unit_support
from cramerl.cramer import cramer_distance_sq, cramer_gram, cramer_gram_inverse
from cramerl.losses import cramer_loss
from cramerl.measures import mean
from cramerl.projections import project, project_affine
from cramerl.supports import Support


@states(
    "5",
    "For evenly spaced atoms z of mean zero, C_λ⁻¹z = b = (-1, 0, ..., 0, 1) for every λ > 0",
    "holds",
    "For any spacing too (weights dz), as C_λ⁻¹ is the path Laplacian plus ee'/λ. Atoms of mean z̄ give b + (z̄/λ)1.",
)
def _claim_5() -> Figures:
    even, uneven = unit_support(11), Support([-3.0, -1.5, 0.5, 1.0, 3.0])
    moved = Support(even.atoms + 2.0)
    penalties = (1e-6, 1e-3, 1.0, 1e2, 1e4)
    solved = max(_end_gap(np.linalg.solve(cramer_gram(s, lam), s.atoms)) for s in (even, uneven) for lam in penalties)
    closed = max(_end_gap(cramer_gram_inverse(s, lam) @ s.atoms) for s in (even, uneven) for lam in penalties)
    shifted = max(_end_gap(cramer_gram_inverse(moved, lam) @ moved.atoms - 2.0 / lam) for lam in (0.1, 1.0, 100.0))
    product = cramer_gram_inverse(uneven, 2.0) @ cramer_gram(uneven, 2.0)
    return {
        "solve(C_λ, z) less b": (solved, at_most(1e-8)),
        "Laplacian form times z, less b": (closed, at_most(1e-8)),
        "uncentred, less b + z̄/λ": (shifted, ROUNDING),
        "inverse times C_λ, less I": (np.abs(product - np.eye(5)).max(), at_most(1e-12)),
    }


@states(
    "6",
    "Lemma 2: projecting onto {q: Aq = b} keeps the mean if the first and last columns of A are equal",
    "holds with a correction",
    "Holds for atoms of mean zero; for others a row of A has to keep the mass of p. Atoms (0, 1, 2), A = (0, 1, 0), "
    "b = 0, λ = 1, p = u: the mean goes from 1 to 6/7. The columns matter: A = (1, 0, 0) on (-1, 0, 1) takes it from 0 "
    "to 1/4.",
    severity="constant",
)
def _claim_6() -> Figures:
    rng, even = np.random.default_rng(6), np.full(3, 1 / 3)
    centred, moved = unit_support(3), Support([0.0, 1.0, 2.0])
    unequal = project_affine(centred, even, [[1.0, 0.0, 0.0]], np.zeros(1))
    uncentred = project_affine(moved, even, [[0.0, 1.0, 0.0]], np.zeros(1))
    return {
        "equal columns, largest change": (_mean_change(rng, unit_support(9), equal=True), at_most(1e-8)),
        "equal columns, uneven centred atoms": (_mean_change(rng, _uneven_centred(rng), equal=True), at_most(1e-8)),
        "other columns, largest change": (_mean_change(rng, unit_support(9), equal=False), at_least(0.1)),
        "A = (1, 0, 0): q": (np.abs(unequal - [0.0, 0.5, 0.25]).max(), at_most(1e-12)),
        "A = (1, 0, 0): mean": (float(mean(centred, unequal)), exactly(0.25)),
        "uncentred atoms: mean": (float(mean(moved, uncentred)), exactly(6 / 7)),
        "uncentred, mass row in A": (_mean_change(rng, moved, equal=True, mass_row=True), at_most(1e-8)),
    }


@states(
    "6b",
    "Lemma 2 covers the projection onto a support that C51 uses",
    "holds with a correction",
    "Only with the mass among the constraints. Without it the mean is kept and the mass is not: a unit mass at 0 "
    "projected onto {-1, 1} (λ = 1) keeps 4/7 of it.",
    severity="constant",
)
def _claim_6b() -> Figures:
    small = unit_support(3)
    free = project_affine(small, [0.0, 1.0, 0.0], [[0.0, 1.0, 0.0]], np.zeros(1))
    fine, coarse = unit_support(9), Support([-4.0, -2.0, 0.0, 2.0, 4.0])
    distribution = np.random.default_rng(7).normal(size=9)
    forbidden = np.delete(np.eye(9), np.arange(0, 9, 2), axis=0)
    rows, totals = np.vstack([forbidden, np.ones(9)]), np.append(np.zeros(4), distribution.sum())
    constrained, hats = project_affine(fine, distribution, rows, totals)[::2], project(coarse, fine.atoms, distribution)
    return {
        "mass without a mass row": (free.sum(), exactly(4 / 7)),
        "mean without a mass row": (float(mean(small, free)), exactly(0.0)),
        "with it, less the hat projection": (np.abs(constrained - hats).max(), ROUNDING),
    }


@states(
    "7",
    "Projecting the target onto the support first is orthogonal (Pythagoras), so the gradients in q are the same",
    "holds with a correction",
    "Holds for all signed vectors on the atoms, for both losses, if vectors are centred with the uniform measure on "
    "the atoms; the appendix's uniform density breaks it: atoms 0 and 1, p a unit mass at 1/2, q = 0 miss by 1/4.",
    severity="constant",
)
def _claim_7() -> Figures:
    rng, support = np.random.default_rng(8), Support([-2.0, -1.0, 0.5, 2.0])
    # Targets on a finer grid, some of it beyond both ends.
    fine = Support(np.sort(np.concatenate([support.atoms, rng.uniform(-3, 3, 12)])))
    violation = slope = 0.0
    for _ in range(20):
        target, q = rng.normal(size=fine.num_atoms), rng.normal(size=support.num_atoms)
        nearest = project(support, fine.atoms, target)
        spread, there = project(fine, support.atoms, nearest), project(fine, support.atoms, q)
        parts = _distance_sq(fine, support, target - spread) + float(cramer_distance_sq(support, nearest, q, 1.0))
        violation = max(violation, abs(_distance_sq(fine, support, target - there) - parts))
        slope = max(slope, _gradient_gap(fine, support, target, q))
    # p = unit mass at 1/2, its projection (1/2, 1/2) onto atoms 0 and 1, and q = 0, with the appendix's centring.
    grid, target, ends = np.array([0.0, 0.5, 1.0]), np.array([0.0, 1.0, 0.0]), np.array([0.0, 1.0])
    spread = project(Support(grid), ends, project(Support(ends), grid, target))
    whole = density_distance_sq(grid, target)
    by_density = density_distance_sq(grid, target - spread), density_distance_sq(grid, spread)
    return {
        "violation, centred on the atoms": (violation, at_most(1e-11)),
        "gap of the gradients": (slope, at_most(1e-6)),
        "violation, centred with a density": (abs(whole - sum(by_density)), exactly(0.25)),
    }


def _end_gap(vector: Array) -> float:
    b = np.zeros_like(vector)
    b[0], b[-1] = -1.0, 1.0
    return float(np.abs(vector - b).max())


def _uneven_centred(rng: np.random.Generator) -> Support:
    atoms = np.sort(rng.uniform(-4, 4, 9))
    return Support(atoms - atoms.mean())


def _mean_change(rng: np.random.Generator, support: Support, *, equal: bool, mass_row: bool = False) -> float:
    """Largest change of the mean over random projections, with equal end columns or not."""
    k, largest = support.num_atoms, 0.0
    for lam in (0.1, 1.0, 10.0):
        for _ in range(20):
            rows = rng.normal(size=(3 if k > 3 else 1, k))
            if equal:
                rows[:, -1] = rows[:, 0]
            p, offset = rng.normal(size=k), rng.normal(size=len(rows))
            if mass_row:
                rows, offset = np.vstack([rows, np.ones(k)]), np.append(offset, p.sum())
            q = project_affine(support, p, rows, offset, lam)
            largest = max(largest, abs(float(mean(support, q) - mean(support, p))))
    return largest


def _distance_sq(fine: Support, support: Support, difference: Floats, lam: float = 1.0) -> float:
    """ℓ²_λ of a difference on the fine grid, centred with the uniform measure on the support's atoms."""
    even = project(fine, support.atoms, np.full(support.num_atoms, 1 / support.num_atoms))
    mass = difference.sum()
    shape = cramer_distance_sq(fine, difference - mass * even, 0 * difference, 0.0)
    return float(shape) + lam * float(mass) ** 2 / support.num_atoms


def _gradient_gap(fine: Support, support: Support, target: Floats, q: Floats) -> float:
    """Largest gap of the gradients in q, to the target and to its projection, for the distance and for the loss."""
    nearest = project(support, fine.atoms, target)
    step, gap = 1e-3, 0.0  # both are quadratic in q: central differences are exact but for rounding

    def direct(at: Floats) -> list[float]:
        distance, shape = (
            _distance_sq(fine, support, target - project(fine, support.atoms, at), lam) for lam in (1, 0)
        )
        return [distance, shape + (at.sum() - 1.0) ** 2 / support.num_atoms]

    def two_step(at: Floats) -> list[float]:
        return [float(measure(support, nearest, at, 1.0)) for measure in (cramer_distance_sq, cramer_loss)]

    for unit in step * np.eye(support.num_atoms):
        slopes = [np.subtract(f(q + unit), f(q - unit)) / (2 * step) for f in (direct, two_step)]
        gap = max(gap, float(np.abs(slopes[0] - slopes[1]).max()))
    return gap


STATEMENTS = (_claim_5, _claim_6, _claim_6b, _claim_7)
