"""What is guaranteed of an evaluation, what is not, and why: numbers, and a sentence for each."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from cramerl.cramer import cramer_distance_sq
from cramerl.linear.operators import Floats
from cramerl.linear.reference import reference_distribution
from cramerl.linear.systems import Problem, process_moments, process_system
from cramerl.projections import backup, project
from cramerl.supports import Support

_IN_SPAN = 1e-9


@dataclass(frozen=True)
class Bound:
    """Two sides of an inequality: ``left <= right`` is what a theorem promises."""

    left: float
    right: float

    @property
    def holds(self) -> bool:
        """Whether it holds, to rounding."""
        return self.left <= self.right * (1 + 1e-9) + 1e-12


@dataclass(frozen=True)
class Certificate:
    """Facts about one evaluation. Fields that need a reference distribution are None where there are too many states.

    Attributes:
        constant_in_span: whether the constant function is a combination of the features.
        constant_distance: its distance to their span, in the norm of the state distribution.
        can_clip: whether r + gamma z can fall outside the support.
        clipped_mass: mean (absolute) mass that one backup pushes beyond the ends.
        gram_condition: condition number of Phi' Xi Phi.
        contraction_guaranteed: factor of the Cramér norm per step that theory promises; None without stationarity.
        contraction_observed: largest eigenvalue modulus of the iteration.
        distribution_bound: squared Cramér error of the distributions, and the bound on it (Theorem 1).
        bound_kind: "theorem 1", "replacement" where the paper's bound is not valid, or "none" without stationarity.
        value_bound: squared error of the means, and the bound on it (Theorem 2).
        value_constant: the constant of Theorem 2, v_max - v_min.
        lstd_values: (S,) what LSTD says of the mean returns, with the same features.
        lstd_gap: largest difference of the evaluation's means to them.
        lstd_reason: why there is a gap, or why there is none.
        sentences: all of it in plain words.
    """

    constant_in_span: bool
    constant_distance: float
    can_clip: bool
    clipped_mass: float
    gram_condition: float
    contraction_guaranteed: float | None
    contraction_observed: float
    distribution_bound: Bound | None
    bound_kind: str
    value_bound: Bound | None
    value_constant: float
    lstd_values: Floats
    lstd_gap: float
    lstd_reason: str
    sentences: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain values for a JSON file."""
        return {
            name: {"left": value.left, "right": value.right, "holds": value.holds}
            if isinstance(value, Bound)
            else value.tolist()
            if isinstance(value, np.ndarray)
            else list(value)
            if isinstance(value, tuple)
            else value
            for name, value in vars(self).items()
        }


def certify(problem: Problem, weights: Floats) -> Certificate:
    """Compute the certificate of an evaluation with these weights (D, K)."""
    distance = math.sqrt(max(0.0, 1.0 - float(problem.whitening.constant @ problem.whitening.constant)))
    in_span = distance <= _IN_SPAN * max(1.0, math.sqrt(problem.whitening.condition) * 1e-6)
    if not in_span and distance < 1e-6:
        distance = _constant_distance(problem)
        in_span = distance <= _IN_SPAN
    can_clip, clipped = _clipping(problem, weights)
    lstd, reason = _lstd(problem, in_span, can_clip)
    values = problem.features @ (weights @ problem.support.atoms) + _offset(problem) * problem.support.atoms.sum()
    gap = float(np.abs(values - lstd).max())
    reference = reference_distribution(problem.process) if problem.stationary else None
    exact = in_span or problem.normalisation != "after"
    bounds = (None, None) if reference is None else _bounds(problem, weights, *reference, exact)
    facts = {
        "constant_in_span": in_span,
        "constant_distance": distance,
        "can_clip": can_clip,
        "clipped_mass": clipped,
        "gram_condition": problem.whitening.condition,
        "contraction_guaranteed": math.sqrt(problem.process.discount) if problem.stationary else None,
        "contraction_observed": _spectral_radius(problem),
        "distribution_bound": bounds[0],
        "bound_kind": "none" if not problem.stationary else "theorem 1" if exact else "replacement",
        "value_bound": bounds[1],
        "value_constant": problem.support.v_max - problem.support.v_min,
        "lstd_values": lstd,
        "lstd_gap": gap,
        "lstd_reason": reason,
    }
    return Certificate(**facts, sentences=_sentences(problem, facts))


def _offset(problem: Problem) -> float:
    return 1.0 / problem.support.num_atoms if problem.normalisation == "affine" else 0.0


def _constant_distance(problem: Problem) -> float:
    """Directly, where one minus the squared projection would cancel."""
    fitted = problem.features @ (problem.whitening.inverse @ problem.whitening.constant)
    return math.sqrt(float(problem.state_distribution @ (1.0 - fitted) ** 2))


def _clipping(problem: Problem, weights: Floats) -> tuple[bool, float]:
    b, z = problem.process.branches, problem.support.atoms
    going, total = b.going_on(), 0.0
    ended = b.ends * b.mass
    low, high = z[0], z[-1]
    can = bool(((b.rewards + b.discounts * low < low) | (b.rewards + b.discounts * high > high)).any())
    if not can:
        return False, 0.0
    used = (b.rewards + b.discounts * low < low) | (b.rewards + b.discounts * high > high)
    index = np.flatnonzero(used)
    size = max(1, 4_000_000 // len(z))
    for start in range(0, len(index), size):
        rows = index[start : start + size]
        masses = (going.next_distribution[rows] @ problem.features) @ weights + _offset(problem) * b.mass[rows, None]
        moved = b.rewards[rows, None] + b.discounts[rows, None] * z
        outside = (moved < low) | (moved > high)
        share = np.where(b.ends[rows], ended[rows] * outside[:, 0], (np.abs(masses) * outside).sum(axis=1))
        total += float(problem.state_distribution[b.states[rows]] @ share)
    return True, total


def _lstd(problem: Problem, in_span: bool, can_clip: bool) -> tuple[Floats, str]:
    """LSTD's values with the evaluation's features (for *affine*: of u'z + features), and why they may differ."""
    moments = process_moments(problem)
    vector, base = moments.lstd_vector, 0.0
    if problem.normalisation == "affine":
        base = float(problem.support.atoms.mean())
        continuing = problem.process.continuation() @ np.ones(problem.process.num_states) - 1.0
        orthonormal = problem.features @ problem.whitening.inverse
        vector = vector + base * (orthonormal.T @ (problem.state_distribution * continuing))
    weights = np.linalg.solve(np.eye(len(vector)) - moments.lstd_matrix, vector)
    values = problem.features @ (problem.whitening.inverse @ weights) + base
    return values, _lstd_reason(problem, in_span, can_clip)


def _lstd_reason(problem: Problem, in_span: bool, can_clip: bool) -> str:
    centred = abs(problem.support.atoms.mean()) <= 1e-12 * (problem.support.v_max - problem.support.v_min)
    if can_clip:
        return "some returns fall outside the support and are clipped"
    if in_span or problem.normalisation == "affine":
        return "nothing clips, so the means solve LSTD's equations"
    if problem.normalisation == "before":
        if centred:
            return "nothing clips and the atoms are centred, so the means solve LSTD's equations"
        return "the constant is not in the span of the features and the atoms are not centred on zero"
    return "the constant is not in the span of the features, so total mass leaks into the means"


def _spectral_radius(problem: Problem) -> float:
    system = process_system(problem)
    size, shape = system.constant.size, system.constant.shape
    if system.dense is not None and size <= 400:
        return float(np.abs(np.linalg.eigvals(system.dense().reshape(size, size))).max())
    from scipy.sparse.linalg import ArpackError, LinearOperator, eigs

    make: Any = LinearOperator
    operator = make((size, size), matvec=lambda v: system.apply(v.reshape(shape)).ravel(), dtype=np.float64)
    start = np.random.default_rng(0).normal(size=size)
    try:
        largest: Any = eigs
        found = largest(operator, k=1, which="LM", v0=start, tol=1e-6, maxiter=2000, return_eigenvectors=False)
        return float(np.abs(found).max())
    except ArpackError:
        return math.nan


def _bounds(
    problem: Problem, weights: Floats, grid: Support, distribution: Floats, exact: bool
) -> tuple[Bound, Bound | None]:
    """Theorems 1 and 2, both sides, against a reference distribution on its own grid."""
    xi, support, gamma = problem.state_distribution, problem.support, problem.process.discount
    masses = problem.features @ weights + _offset(problem)
    even = np.full_like(masses, 1.0 / support.num_atoms)
    start = even if problem.normalisation == "affine" else 0.0 * even
    whitened = problem.features @ problem.whitening.inverse
    nearest = project(support, grid.atoms, distribution)
    best = start + whitened @ (whitened.T @ (xi[:, None] * (nearest - start)))
    complete, best = (rows + (1.0 - rows.sum(axis=1, keepdims=True)) * even for rows in (masses, best))
    error_sq = _distance_between_grids(support, grid, distribution, xi)
    left, best_sq = error_sq(complete), error_sq(best)
    if exact:
        right = best_sq / (1 - gamma)
    else:
        beta = _mass_leak(problem)
        right = ((math.sqrt(gamma) * beta + math.sqrt((1 - gamma) * best_sq + beta**2)) / (1 - gamma)) ** 2
    outside = distribution[:, (grid.atoms < support.v_min) | (grid.atoms > support.v_max)]
    if np.abs(outside).sum(axis=1).max(initial=0.0) > 1e-6:  # Theorem 2 needs the returns inside the support
        return Bound(left, right), None
    value_error = float(xi @ (complete @ support.atoms - distribution @ grid.atoms) ** 2)
    return Bound(left, right), Bound(value_error, (support.v_max - support.v_min) * left)


def _distance_between_grids(
    support: Support, grid: Support, distribution: Floats, xi: Floats
) -> Callable[[Floats], float]:
    """Squared Cramér distance of masses on the support to a distribution on the grid, of mass one, averaged over xi."""
    union = Support(np.union1d(support.atoms, grid.atoms))
    places, others = (np.searchsorted(union.atoms, s.atoms) for s in (support, grid))
    target = np.zeros((len(distribution), union.num_atoms))
    target[:, others] = distribution

    def error_sq(masses: Floats) -> float:
        difference = target.copy()
        difference[:, places] -= masses
        return float(xi @ cramer_distance_sq(union, difference, np.zeros_like(difference), mass_penalty=0.0))

    return error_sq


def _mass_leak(problem: Problem) -> float:
    """beta: the C_0 norm of what the wrong mass of the next state adds to the shape."""
    b, support = problem.process.branches, problem.support
    fitted = problem.features @ (problem.whitening.inverse @ problem.whitening.constant)
    even = np.full((1, support.num_atoms), 1.0 / support.num_atoms)
    shift = backup(support, b.rewards, b.discounts, even) - even
    wrong = b.gather((b.going_on().next_distribution @ (fitted - 1.0))[:, None] * shift)
    return math.sqrt(
        float(problem.state_distribution @ cramer_distance_sq(support, wrong, 0 * wrong, mass_penalty=0.0))
    )


def _sentences(problem: Problem, facts: dict[str, Any]) -> tuple[str, ...]:
    say = []
    if not problem.stationary:
        say.append("The state distribution is not stationary: convergence and the bounds are not guaranteed.")
    if facts["constant_in_span"]:
        say.append("The constant function is in the span of the features: every state has total mass one.")
    else:
        say.append(
            f"The constant function is not in the span of the features (distance {facts['constant_distance']:.2g}): "
            + {
                "before": "masses differ from one, which Theorem 1 allows here.",
                "affine": "unit mass comes from the model, which Theorem 1 allows.",
                "after": "masses differ from one, and the paper's bound does not hold; a valid one replaces it.",
            }[problem.normalisation]
        )
    if not facts["can_clip"]:
        say.append("No reward can push a return beyond the support: nothing clips.")
    else:
        say.append(
            f"Returns can fall beyond the support: a backup clips {facts['clipped_mass']:.2g} of the mass on average."
        )
    say.append(f"The features' Gram matrix has condition number {facts['gram_condition']:.3g}.")
    if facts["contraction_guaranteed"] is None:
        say.append(
            "The state distribution is not stationary: no contraction is guaranteed "
            f"(observed factor {facts['contraction_observed']:.4f})."
        )
    else:
        say.append(
            f"Each step of the process shrinks errors in Cramér norm to {facts['contraction_guaranteed']:.4f} of their "
            f"size or less; in the long run to {facts['contraction_observed']:.4f}."
        )
    say += _bound_sentences(facts)
    if facts["lstd_gap"] >= 1e-8:
        say.append(f"Mean returns differ from LSTD's by up to {facts['lstd_gap']:.3g}: {facts['lstd_reason']}.")
    elif facts["can_clip"]:
        say.append("Mean returns equal LSTD's: what could clip has no mass to speak of.")
    else:
        say.append(f"Mean returns equal LSTD's: {facts['lstd_reason']}.")
    return tuple(say)


def _bound_sentences(facts: dict[str, Any]) -> list[str]:
    bound, values = facts["distribution_bound"], facts["value_bound"]
    if facts["bound_kind"] == "none":
        return []
    if bound is None:
        return ["The bounds of Theorems 1 and 2 were not computed: too many states for a reference distribution."]
    name = "Theorem 1" if facts["bound_kind"] == "theorem 1" else "The bound that replaces Theorem 1's"
    say = [f"{name}: squared Cramér error {bound.left:.3g}, at most {bound.right:.3g} ({_verdict(bound)})."]
    if values is None:
        say.append("Theorem 2 does not apply: some true returns lie outside the support.")
    else:
        constant = facts["value_constant"]
        say.append(
            f"Theorem 2: squared error of the means {values.left:.3g}, at most {constant:.3g} times that of the "
            f"distributions, {values.right:.3g} ({_verdict(values)})."
        )
    return say


def _verdict(bound: Bound) -> str:
    return "holds" if bound.holds else "BROKEN"
