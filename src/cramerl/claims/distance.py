"""Claims 1a to 4: the Cramér distance between vectors, its loss and its condition number."""

from __future__ import annotations

import math

import numpy as np
from scipy.optimize import minimize

from cramerl._arrays import Floats
from cramerl.claims.claim import ROUNDING, Figures, at_most, exactly, printed, states
from cramerl.claims.setting import density_distance_sq, random_setting, unit_support
from cramerl.cramer import (
    condition_number,
    cramer_distance_sq,
    cramer_gram,
    optimal_penalty_range,
    raw_distance_sq,
    raw_gram,
    unit_mass_basis,
)
from cramerl.linear.evaluation import evaluate
from cramerl.losses import cramer_loss
from cramerl.measures import cdf
from cramerl.supports import Support


@states(
    "1a",
    "The squared distance of two CDFs, |Cp - Cq|², is the quadratic form of CC' in p - q (Eq. 2 and 3)",
    "holds with a correction",
    "The subscripts are swapped: |Cv|² = v'C'Cv. For v = (1, 0, ..., 0), k = 11: 11 against 1. Harmless, because both "
    "matrices are -|z_i - z_j|/2 once centred and share their spectrum.",
    severity="misprint",
)
def _claim_1a() -> Figures:
    support, first = unit_support(11), np.eye(11)[0]
    cumulative, tail = raw_gram(support), raw_gram(support, "tail")
    apart = np.abs(_centred(cumulative) - _centred(tail)).max()
    from_energy = np.abs(_centred(tail) - _centred(-np.abs(np.subtract.outer(support.atoms, support.atoms)) / 2)).max()
    spectra = np.abs(np.linalg.eigvalsh(cumulative) - np.linalg.eigvalsh(tail)).max()
    return {
        "|Cv|²": (np.sum(cdf(support, first) ** 2), exactly(11.0)),
        "v'C'Cv": (first @ cumulative @ first, exactly(11.0)),
        "v'CC'v, as printed": (first @ tail @ first, exactly(1.0)),
        "gap of the centred matrices": (max(apart, from_energy), at_most(1e-12)),
        "gap of the spectra": (spectra, at_most(1e-11)),
    }


@states(
    "1b",
    "For equal total mass the three squared distances (CC', C'C, C_λ) agree, whatever λ",
    "holds",
    "Nothing to correct; it holds at any spacing, with the sums weighted by the spacings.",
)
def _claim_1b() -> Figures:
    rng, gap = np.random.default_rng(1), 0.0
    for support in (unit_support(11), Support(np.sort(rng.uniform(-5, 5, 9)))):
        p, q = rng.normal(size=(2, 50, support.num_atoms))
        q = q + (p.sum(axis=1) - q.sum(axis=1))[:, None] / support.num_atoms
        forms = [raw_distance_sq(support, p, q), raw_distance_sq(support, p, q, "tail")]
        forms += [cramer_distance_sq(support, p, q, lam) for lam in (0.0, 1.0, 100.0)]
        gap = max(gap, float(np.ptp(forms, axis=0).max()))
    return {"largest gap of the forms": (gap, at_most(1e-10))}


@states(
    "1c",
    "For different total mass the distances from CC' and from C'C differ",
    "false",
    "They differ in general, not always: a p - q that reads the same backwards gives equality, for instance "
    "(1, 1) on two atoms; (1, 0) gives 2 against 1.",
    severity="misprint",
)
def _claim_1c() -> Figures:
    wave = 1.0 + np.cos(np.linspace(-np.pi, np.pi, 11))
    palindrome = 24.6 * wave / wave.sum()
    two, ones, first = Support([0.0, 1.0]), np.ones(2), np.array([1.0, 0.0])
    return {
        "gap for a palindrome of mass 24.6": (_gap_of_forms(unit_support(11), palindrome), ROUNDING),
        "gap for (1, 1)": (_gap_of_forms(two, ones), exactly(0.0)),
        "gap for (1, 0)": (_gap_of_forms(two, first), exactly(1.0)),
    }


@states(
    "1d",
    "The integral D_C of the squared CDF difference is a distance, scale sensitive of order 1/2",
    "holds with a correction",
    "D_C is a squared distance: its square root is a metric, of order 1/2. Unit masses at 0 and 1 and the even mixture "
    "between them: D_C = 1 > 1/4 + 1/4.",
    severity="misprint",
)
def _claim_1d() -> Figures:
    left, middle, right = np.array([[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]])
    unit, wide = Support([0.0, 1.0]), Support([0.0, 4.0])
    direct = float(cramer_distance_sq(unit, left, right))
    legs = [float(cramer_distance_sq(unit, *pair)) for pair in ((left, middle), (middle, right))]
    growth = float(cramer_distance_sq(wide, left, right)) / direct
    return {
        "D_C(p1, p3)": (direct, exactly(1.0)),
        "D_C(p1, p2) + D_C(p2, p3)": (sum(legs), exactly(0.5)),
        "sum of the roots": (sum(map(math.sqrt, legs)), exactly(1.0)),
        "order of the root": (math.log(math.sqrt(growth), 4.0), exactly(0.5)),
    }


@states(
    "2",
    "The penalty λ(q'e - 1)² of the loss (Eq. 5) asks for unit mass",
    "false",
    "Its minimiser has mass √k (7.1414 for k = 51), and the fixed point is √k times the right one. Use "
    "λ(q'e - 1/√k)² = (λ/k)(1'q - 1)², which alone gives the operator of the appendix.",
    severity="constant",
)
def _claim_2() -> Figures:
    support, lam = unit_support(51), 10.0
    target, e = np.eye(51)[30], np.full(51, 1 / math.sqrt(51))
    shape, whole = cramer_gram(support, 0.0), cramer_gram(support, lam)
    printed_minimiser = np.linalg.solve(whole, shape @ target + lam * e)
    corrected_minimiser = np.linalg.solve(whole, shape @ target + lam * e / math.sqrt(51))
    return {
        "mass of the printed loss's minimiser, k = 51": (printed_minimiser.sum(), exactly(math.sqrt(51))),
        "mass of the corrected one's": (corrected_minimiser.sum(), exactly(1.0)),
        "cramer_loss at q = p": (float(cramer_loss(support, target, target, lam)), exactly(0.0)),
        "cramer_loss at q = p + u": (float(cramer_loss(support, target, target + 1 / 51, lam)), exactly(lam / 51)),
        "printed fixed point less √k times the right one": (_printed_fixed_point_gap(), at_most(1e-12)),
    }


@states(
    "2b",
    "On Dirac combs the integral form in the appendix equals (p - q)'C_λ(p - q)",
    "false",
    "Only where masses agree: the mass term lacks 1/k, the centring lacks 1/width, and a uniform density is not the "
    "uniform measure on the atoms. For p - q = (1, 1, 1)/3 the shape part is 1/18 against 0.",
    severity="constant",
)
def _claim_2b() -> Figures:
    support, even = unit_support(3), np.full(3, 1 / 3)
    nothing, width = np.zeros(3), support.v_max - support.v_min
    ours = cramer_distance_sq(support, even, nothing, 1.0) - cramer_distance_sq(support, even, nothing, 0.0)
    p, q = np.array([0.2, 0.5, 0.3]), np.array([0.6, -0.1, 0.5])
    agree = density_distance_sq(support.atoms, p - q) - cramer_distance_sq(support, p, q, 0.0)
    return {
        "its mass term over ours, k = 3": (even.sum() ** 2 / float(ours), exactly(3.0)),
        "mass left by its centring": (even.sum() * (1 - width), exactly(-1.0)),
        "shape part, density centring": (density_distance_sq(support.atoms, even), exactly(1 / 18)),
        "shape part, C_0": (float(cramer_distance_sq(support, even, nothing, 0.0)), exactly(0.0)),
        "gap at equal masses": (abs(float(agree)), at_most(1e-12)),
    }


# cond(CC'), kappa_min and the range of penalties by number of atoms, on unit spacing, to the digits that are known.
_LEMMA_1 = {
    3: (16.393731622, 3, 0.33333333333, 1),
    11: (210.74789721, 48.374150079, 0.25516804946, 12.34353752),
    21: (745.71023197, 178.06427461, 0.25140398741, 44.766068653),
    51: (4296.0000281, 1053.4789912, 0.25023730896, 263.6197478),
    101: (16697.712204, 4133.6429268, 0.25006047934, 1033.6607317),
    201: (65818.221852, 16373.241899, 0.25001526881, 4093.5604747),
}


@states(
    "3",
    "For k = 51 the condition number of CC' is about 4296, the least 1053, for λ in [0.250, 263]",
    "holds",
    "The upper end is 263.62. In closed form cos²(π/(2k+1))/sin²(π/(4k+2)), cot²(π/2k) and "
    "[1/(4cos²(π/2k)), 1/(4sin²(π/2k))]; a spacing of h multiplies the range by h.",
)
def _claim_3() -> Figures:
    raw, best, low, high = _conditioning(51)
    known = np.array(list(_LEMMA_1.values()))
    table = np.abs(np.array([_conditioning(num_atoms) for num_atoms in _LEMMA_1]) / known - 1).max()
    support = unit_support(51)
    inside = np.array([condition_number(support, lam) for lam in (low, 1.0, 10.0, high)])
    ends = np.abs(np.array(optimal_penalty_range(support)) / [low, high] - 1).max()
    return {
        "cond(CC')": (raw, printed("4296.0000281")),
        "least condition number": (best, printed("1053.4789912")),
        "smallest best λ": (low, printed("0.2502373090")),
        "largest best λ": (high, printed("263.6197478")),
        "relative gap to the table, k = 3 to 201": (table, ROUNDING),
        "relative gap to the least inside the range": (np.abs(inside / best - 1).max(), ROUNDING),
        "relative gap of the closed forms": (ends, ROUNDING),
    }


@states(
    "3b",
    "Lemma 1: no symmetric matrix that agrees with CC' on differences of distributions is conditioned better than C_λ",
    "false",
    "Indefinite ones are, down to cos²(π/k)/sin²(π/2k): 1 against 3 for k = 3, with C_0 + s(ve' + ev') - μee'. Among "
    "positive definite ones the lemma holds, by interlacing.",
    severity="constant",
)
def _claim_3b() -> Figures:
    return {
        "indefinite, k = 3 (least definite 3)": (_indefinite_condition(3), exactly(1.0)),
        "indefinite, k = 11 (48.3742)": (_indefinite_condition(11), printed("45.4552")),
        "indefinite, k = 51 (1053.4790)": (_indefinite_condition(51), printed("1050.4828")),
        "least definite, k = 7, by optimisation": (_least_definite_condition(7), printed("19.19566936")),
        "cot²(π/14)": (condition_number(unit_support(7), 1.0), printed("19.19566936")),
    }


@states(
    "4",
    "The matrices that agree with CC' on differences of distributions are CC' + ae' + ea'",
    "holds",
    "Nothing to correct: the symmetric matrices that vanish on zero-mass vectors have dimension k, as a has.",
)
def _claim_4() -> Figures:
    figures: Figures = {f"dimension, k = {k}": (_extension_dimension(k), exactly(k)) for k in (3, 6, 11)}
    support = unit_support(11)
    apart = cramer_gram(support, 3.0) - raw_gram(support, "tail")
    # ae' + ea' vanishes once centred on both sides, and nothing else does.
    figures["C_3 - CC', centred, k = 11"] = (float(np.abs(_centred(apart)).max()), at_most(1e-12))
    return figures


def _centred(matrix: Floats) -> Floats:
    rows = matrix - matrix.mean(axis=0)
    return rows - rows.mean(axis=1, keepdims=True)


def _gap_of_forms(support: Support, difference: Floats) -> float:
    forms = [raw_distance_sq(support, difference, 0 * difference, form) for form in ("cumulative", "tail")]
    return abs(float(forms[0] - forms[1]))


def _printed_fixed_point_gap() -> float:
    """Largest entry of the fixed point with the printed constant e, less √k times that of `evaluate`."""
    setting = random_setting(np.random.default_rng(2), num_states=5, num_features=2)
    root, pi = math.sqrt(setting.support.num_atoms), setting.span_projection()
    right = evaluate(*setting, normalisation="after").masses

    def step(flat: Floats) -> Floats:
        moved = setting.bellman(flat.reshape(right.shape))
        return (pi @ (moved - moved.mean(axis=1, keepdims=True) + 1 / root)).ravel()

    constant, units = step(np.zeros(right.size)), np.eye(right.size)
    matrix = np.stack([step(unit) - constant for unit in units], axis=1)
    return float(np.abs(np.linalg.solve(units - matrix, constant) - root * right.ravel()).max())


def _conditioning(num_atoms: int) -> tuple[float, float, float, float]:
    """Condition number of CC' and of C_λ at its best, and the range of the best λ, from eigenvalues."""
    support = unit_support(num_atoms)
    raw = np.linalg.cond(raw_gram(support, "tail"))
    shape = np.linalg.eigvalsh(cramer_gram(support, 0.0))[1:]  # the first is the zero of the constant vector
    best = np.linalg.cond(cramer_gram(support, math.sqrt(shape[0] * shape[-1])))
    return float(raw), float(best), float(shape[0]), float(shape[-1])


def _indefinite_condition(num_atoms: int) -> float:
    """Condition number of an indefinite extension that turns the eigenvalues μ and 0 of C_0 into plus and minus ν."""
    support, e = unit_support(num_atoms), np.full(num_atoms, 1 / math.sqrt(num_atoms))
    shape = cramer_gram(support, 0.0)
    values, vectors = np.linalg.eigh(shape)
    mu, nu, v = values[1], values[2], vectors[:, 1]
    mixed = math.sqrt(nu**2 - mu**2) * (np.outer(v, e) + np.outer(e, v))
    return float(np.linalg.cond(shape + mixed - mu * np.outer(e, e)))


def _least_definite_condition(num_atoms: int, power: int = 16) -> float:
    """Least condition number among positive definite CC' + ae' + ea', by descent on a smooth stand-in for it."""
    raw, e = raw_gram(unit_support(num_atoms), "tail"), np.full(num_atoms, 1 / math.sqrt(num_atoms))

    def extension(a: Floats) -> Floats:
        return raw + np.outer(a, e) + np.outer(e, a)

    def smooth(a: Floats) -> tuple[float, Floats]:
        values, vectors = np.linalg.eigh(extension(a))
        if values[0] <= 1e-9:  # past the edge of the definite ones: a wall for the line search
            return 1e9, np.zeros_like(a)
        up, down = (values / values[-1]) ** power, (values[0] / values) ** power
        size = math.log(values[-1] / values[0]) + (math.log(up.sum()) + math.log(down.sum())) / power
        slope = (vectors * ((up / up.sum() - down / down.sum()) / values)) @ vectors.T
        return size, 2 * slope @ e

    found = minimize(smooth, np.zeros(num_atoms), jac=True, method="BFGS", options={"gtol": 1e-10, "maxiter": 2000})
    return float(np.linalg.cond(extension(found.x)))


def _extension_dimension(num_atoms: int) -> int:
    """Dimension of the symmetric matrices N with v'Nv = 0 for every v of mass zero."""
    basis = unit_mass_basis(unit_support(num_atoms)).basis
    units = np.eye(num_atoms**2).reshape(-1, num_atoms, num_atoms)
    images = basis.T @ (units + units.transpose(0, 2, 1)) @ basis  # of matrices that span the symmetric ones
    return num_atoms * (num_atoms + 1) // 2 - int(np.linalg.matrix_rank(images.reshape(len(units), -1)))


STATEMENTS = (_claim_1a, _claim_1b, _claim_1c, _claim_1d, _claim_2, _claim_2b, _claim_3, _claim_3b, _claim_4)
