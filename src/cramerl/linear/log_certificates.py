"""What can be said about distributions from a log when the process behind it is not known: numbers and sentences."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from cramerl._arrays import Floats
from cramerl.linear.krylov import solve_fixed_point
from cramerl.linear.problem import Basis, Normalisation, SparseGram
from cramerl.linear.transition_sums import IN_SPAN, TransitionSums, least_squares, nearest_constant

# Root mean square of the masses past which they are no distributions by any reading: these have at most one.
MOST_MASS = 2.0
# How many times the variance of returns distributions may have without a word.
_MOST_WIDENING = 1.2
# Features up to which all eigenvalues are computed.
_MOST_EIGENVALUES = 400
# Products with the matrix of LSTD's iteration, where there are too many features to form it.
_MOST_PRODUCTS = 5000


class LogCertificate(NamedTuple):
    """What can be said about a solution when only data is known, not the process behind it.

    Attributes:
        constant_distance: distance of the constant function to the span of the features, over the data.
        gram_condition: condition number of the features' Gram matrix, columns scaled to the same size.
        lstd_gap: root mean square, over the data, of the difference between the means and those of ordinary LSTD.
        radius: spectral radius of one step of LSTD's iteration. Data that visits states as the policy does cannot have
            more than the discount; at one the values of the data grow without end.
        mass_size: root mean square, over the data, of the norm of a state's masses; at most one for distributions.
        variance_ratio: mean variance of the distributions about their means, over the one that the Bellman equation of
            second moments gives without a grid; NaN where returns do not vary.
        sentences: all of it in plain words.
    """

    constant_distance: float
    gram_condition: float
    lstd_gap: float
    radius: float
    mass_size: float
    variance_ratio: float
    sentences: tuple[str, ...]


class MeanSystem(NamedTuple):
    """Ordinary LSTD on the same data: weights (D,) of the mean returns, and the spectral radius of its iteration."""

    weights: Floats
    radius: float


def mean_system(sums: TransitionSums, basis: Basis, normalisation: Normalisation, regularisation: float) -> MeanSystem:
    """Solve LSTD with the estimator's features and penalty; for *affine*, of the model u'z + features."""
    vector, n = sums.reward_vector / sums.weight, sums.weight
    if normalisation == "affine":
        vector = vector + float(sums.support.atoms.mean()) * (sums.discounted_total - sums.total) / n
    if isinstance(basis, SparseGram):
        found = solve_fixed_point(
            lambda v: basis.fitted((sums.cross @ v) / n), basis.fitted(vector[:, None]), 1e-9, _MOST_PRODUCTS
        )
        return MeanSystem(found.solution[:, 0], _radius(sums, basis))
    change = basis.inverse
    step = change.T @ (sums.cross / n) @ change
    weights = least_squares(np.eye(len(step)) - step, change.T @ vector, 1e-13)
    if len(step) <= _MOST_EIGENVALUES:
        return MeanSystem(change @ weights, float(np.abs(np.linalg.eigvals(step)).max()))
    return MeanSystem(change @ weights, _radius(sums, basis))


def certify_log(
    sums: TransitionSums,
    basis: Basis,
    means: MeanSystem,
    weights: Floats,
    normalisation: Normalisation,
    variance_ratio: float,
) -> LogCertificate:
    """The certificate of weights (D, K) that were found from the sums of a log."""
    gap = size_over_data(sums, weights @ sums.support.atoms - means.weights)
    largest = size_over_data(sums, weights)
    found = LogCertificate(_constant_distance(sums), basis.condition, gap, means.radius, largest, variance_ratio, ())
    return found._replace(sentences=tuple(_sentences(sums, found, normalisation)))


def is_drifting(radius: float, discount: float) -> bool:
    """Whether values are carried much further than the discount lets them: more than half of the way to one."""
    return radius > most_radius(discount)


def most_radius(discount: float) -> float:
    """The radius from which on values drift."""
    return discount + 0.5 * max(1.0 - discount, 1e-6)


def size_over_data(sums: TransitionSums, weights: Floats) -> float:
    """Root mean square, over the data, of the norm of ``phi @ weights``."""
    return math.sqrt(max(0.0, float(np.sum(weights * (sums.gram @ weights))) / sums.weight))


def _constant_distance(sums: TransitionSums) -> float:
    if not sparse.issparse(sums.gram):
        return nearest_constant(sums)[1]
    mean = sums.total / sums.weight
    constant = np.isclose(sums.gram.diagonal() / sums.weight, mean**2, rtol=1e-12, atol=0) & (mean != 0)
    return 0.0 if constant.any() else math.nan


def _radius(sums: TransitionSums, basis: Basis) -> float:
    from scipy.sparse.linalg import ArpackError, LinearOperator, eigs  # slow to import

    def product(v: Floats) -> Floats:
        return basis.fitted((sums.cross @ basis.plain(v.reshape(-1, 1))) / sums.weight).ravel()

    size = basis.constant.size
    make: Any = LinearOperator
    largest: Any = eigs
    start = np.random.default_rng(0).normal(size=size)
    try:
        found = largest(
            make((size, size), matvec=product, dtype=np.float64),
            k=1,
            which="LM",
            v0=start,
            tol=1e-4,
            maxiter=500,
            return_eigenvectors=False,
        )
        return float(np.abs(found).max())
    except ArpackError:
        return math.nan


def _sentences(sums: TransitionSums, found: LogCertificate, normalisation: Normalisation) -> list[str]:
    say = ["A constant is in the span of the features: every distribution has total mass one."]
    missing = not found.constant_distance < IN_SPAN and normalisation != "affine"
    if normalisation == "affine":
        say = ["Every distribution has total mass one, by construction."]
    elif missing:
        far = f"distance {found.constant_distance:.2g}"
        say = [f"No combination of the features is constant ({far}): add a column of ones."]
    if not math.isnan(found.gram_condition):
        say.append(f"The features' Gram matrix has condition number {found.gram_condition:.3g}.")
    if is_drifting(found.radius, sums.largest_discount):
        say.append(
            f"The spectral radius of LSTD's iteration is {found.radius:.4f}, well above the discount "
            f"{sums.largest_discount:g}: the rows do not visit states as the policy does. The answer may be far off."
        )
    if found.mass_size > MOST_MASS:
        say.append(
            f"Masses reach {found.mass_size:.3g} in root mean square, and a distribution's one: do not use them."
        )
    if found.lstd_gap <= 1e-8 * max(1.0, abs(sums.support.v_min), abs(sums.support.v_max)):
        say.append("Mean returns equal those of ordinary LSTD on the same data.")
    else:
        why = "clipped returns, or the missing constant" if missing else "clipped returns"
        if found.mass_size > MOST_MASS:
            why = "the distributions' equations are unstable"
        say.append(f"Mean returns differ from ordinary LSTD's by {found.lstd_gap:.3g} (root mean square): {why}.")
    if found.variance_ratio > _MOST_WIDENING:
        say.append(
            f"The grid widens distributions: their variance is {found.variance_ratio:.3g} times that of the returns. "
            "Use more atoms."
        )
    say.append("How far from the truth is not known: bounds need the process behind the log.")
    return say
