"""What is guaranteed about an evaluation, what is not, and why: numbers, and a sentence for each."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cramerl._arrays import Floats
from cramerl.cramer import cramer_distance_sq
from cramerl.linear.problem import Problem
from cramerl.linear.reference import reference_distribution
from cramerl.linear.solve import MOST_ERROR
from cramerl.linear.systems import LinearSystem
from cramerl.measures import clipped_mass, with_unit_mass
from cramerl.projections import backup, project
from cramerl.supports import Support

# Distance up to which the constant function counts as a combination of the features.
_RESTARTS = 200  # of the search for an eigenvalue: some seconds, where discounts near one leave many that are close
_IN_SPAN = 1e-9
# Difference up to which means count as equal, relative to the largest return of the support, where theory is silent.
_EQUAL = 1e-8


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
    """Facts about one evaluation. Fields that need a reference distribution are None if there are too many states.

    Attributes:
        constant_in_span: whether the constant function is a combination of the features.
        constant_distance: its distance to their span, in the norm of the state distribution.
        can_clip: whether r + gamma z can fall outside the support.
        clipped_mass: mean absolute mass that one backup moves beyond the ends.
        gram_condition: condition number of Phi' Xi Phi.
        contraction_guaranteed: factor of the Cramér norm per step that theory promises; None without stationarity.
        contraction_observed: largest eigenvalue modulus of the iteration.
        distribution_bound: squared Cramér error of the distributions, and the bound on it (Theorem 1).
        bound_kind: "theorem 1", "replacement" where the paper's bound is not valid, or "none" without stationarity.
        value_bound: squared error of the means, and the bound on it (Theorem 2).
        value_constant: the constant of Theorem 2, v_max - v_min.
        lstd_values: (S,) mean returns according to LSTD with the same features.
        lstd_gap: largest difference between the evaluation's means and these.
        lstd_reason: why they differ, or why they agree.
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
        plain: dict[str, Any] = {}
        for name, value in vars(self).items():
            if isinstance(value, Bound):
                plain[name] = {"left": value.left, "right": value.right, "holds": value.holds}
            else:
                plain[name] = value.tolist() if isinstance(value, np.ndarray) else value
        return plain


def certify_evaluation(problem: Problem, weights: Floats, system: LinearSystem) -> Certificate:
    """The certificate of an evaluation with these weights (D, K), the solution of this system."""
    distance = math.sqrt(max(0.0, 1.0 - float(problem.whitening.constant @ problem.whitening.constant)))
    in_span = distance <= _IN_SPAN * max(1.0, math.sqrt(problem.whitening.condition) * 1e-6)
    if not in_span and distance < 1e-6:  # one minus the squared projection cancels: compute the distance directly
        fitted = problem.features @ (problem.whitening.inverse @ problem.whitening.constant)
        distance = math.sqrt(float(problem.state_distribution @ (1.0 - fitted) ** 2))
        in_span = distance <= _IN_SPAN
    can_clip, clipped = _clipping(problem, weights)
    lstd = _lstd_values(problem)
    reference = reference_distribution(problem.process) if problem.stationary else None
    exact = in_span or problem.normalisation != "after"
    bounds = (None, None) if reference is None else _bounds(problem, weights, *reference, exact)
    found = Certificate(
        constant_in_span=in_span,
        constant_distance=distance,
        can_clip=can_clip,
        clipped_mass=clipped,
        gram_condition=problem.whitening.condition,
        contraction_guaranteed=math.sqrt(problem.process.discount) if problem.stationary else None,
        contraction_observed=_spectral_radius(system),
        distribution_bound=bounds[0],
        bound_kind="none" if not problem.stationary else "theorem 1" if exact else "replacement",
        value_bound=bounds[1],
        value_constant=problem.support.v_max - problem.support.v_min,
        lstd_values=lstd,
        lstd_gap=float(np.abs(problem.values(weights) - lstd).max()),
        lstd_reason=_lstd_reason(problem, in_span, can_clip),
        sentences=(),
    )
    return replace(found, sentences=_sentences(problem, found))


def _clipping(problem: Problem, weights: Floats) -> tuple[bool, float]:
    """Whether a backup can leave the support, and the mean absolute mass that does."""
    b, support = problem.process.branches, problem.support
    low, high = support.v_min, support.v_max
    index = np.flatnonzero((b.rewards + b.discounts * low < low) | (b.rewards + b.discounts * high > high))
    if not len(index):
        return False, 0.0
    size, total, mass = max(1, 4_000_000 // support.num_atoms), 0.0, b.mass
    for start in range(0, len(index), size):
        rows = index[start : start + size]
        masses = (b.next_distribution[rows] @ problem.features) @ weights + problem.offset * mass[rows, None]
        # Where the return ends the discount is zero, and any distribution of the branch's mass moves to the reward.
        masses[b.ends[rows]] = mass[rows][b.ends[rows], None] / support.num_atoms
        clipped = clipped_mass(support, b.rewards[rows], b.discounts[rows], masses) * np.abs(masses).sum(axis=1)
        total += float(problem.state_distribution[b.states[rows]] @ clipped)
    return True, total


def _lstd_values(problem: Problem) -> Floats:
    """(S,) LSTD's values with the evaluation's features; for *affine*, of the model u'z + features."""
    features, change, following = problem.features, problem.whitening.inverse, problem.process.continuation()
    base = problem.offset * float(problem.support.atoms.sum())
    rewards = problem.process.expected_rewards + base * (np.asarray(following.sum(axis=1)).ravel() - 1.0)
    matrix, vector = np.eye(len(change)), np.zeros(len(change))
    size = max(1, 4_000_000 // len(change))
    for part in (slice(i, i + size) for i in range(0, len(features), size)):  # so that work arrays stay small
        left = problem.state_distribution[part, None] * (features[part] @ change)
        matrix -= left.T @ ((following[part] @ features) @ change)
        vector += left.T @ rewards[part]
    return base + features @ (change @ np.linalg.solve(matrix, vector))


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


def _spectral_radius(system: LinearSystem) -> float:
    """Largest eigenvalue modulus of the iteration; NaN if it was not found."""
    size, shape = system.constant.size, system.constant.shape
    if system.dense is not None and size <= 400:
        return float(np.abs(np.linalg.eigvals(system.dense().reshape(size, size))).max())
    from scipy.sparse.linalg import ArpackError, LinearOperator, eigs

    make: Any = LinearOperator
    operator = make((size, size), matvec=lambda v: system.apply(v.reshape(shape)).ravel(), dtype=np.float64)
    start = np.random.default_rng(0).normal(size=size)
    try:
        largest: Any = eigs
        found = largest(operator, k=1, which="LM", v0=start, tol=1e-6, maxiter=_RESTARTS, return_eigenvectors=False)
        return float(np.abs(found).max())
    except ArpackError:
        return math.nan


def _bounds(
    problem: Problem, weights: Floats, grid: Support, distribution: Floats, exact: bool
) -> tuple[Bound, Bound | None]:
    """Both sides of Theorems 1 and 2, against a reference distribution on its own grid."""
    xi, support, gamma = problem.state_distribution, problem.support, problem.process.discount
    whitened, nearest = problem.whitened_features, project(support, grid.atoms, distribution)
    best = problem.offset + whitened @ (whitened.T @ (xi[:, None] * (nearest - problem.offset)))
    complete, best = (with_unit_mass(support, rows) for rows in (problem.masses(weights), best))
    union = Support(np.union1d(support.atoms, grid.atoms))
    places, others = (np.searchsorted(union.atoms, s.atoms) for s in (support, grid))

    def error_sq(masses: Floats) -> float:
        difference = np.zeros((len(distribution), union.num_atoms))
        difference[:, others] = distribution
        difference[:, places] -= masses
        return float(xi @ cramer_distance_sq(union, difference, np.zeros_like(difference), mass_penalty=0.0))

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


def _mass_leak(problem: Problem) -> float:
    """beta: the C_0 norm of what a total mass other than one at the next state adds to the shape."""
    b, support = problem.process.branches, problem.support
    fitted = problem.features @ (problem.whitening.inverse @ problem.whitening.constant)
    even = np.full((1, support.num_atoms), 1.0 / support.num_atoms)
    shift = backup(support, b.rewards, b.discounts, even) - even
    wrong = b.gather((b.continuing().next_distribution @ (fitted - 1.0))[:, None] * shift)
    sizes_sq = cramer_distance_sq(support, wrong, 0 * wrong, mass_penalty=0.0)
    return math.sqrt(float(problem.state_distribution @ sizes_sq))


def _sentences(problem: Problem, found: Certificate) -> tuple[str, ...]:
    say = []
    if not problem.stationary:
        say.append("The state distribution is not stationary: convergence and the bounds are not guaranteed.")
    if found.constant_in_span:
        say.append("The constant function is in the span of the features: every state has total mass one.")
    else:
        consequence = {
            "before": "masses differ from one, which Theorem 1 allows here.",
            "affine": "unit mass comes from the model, which Theorem 1 allows.",
            "after": "masses differ from one, and the paper's bound does not hold; a valid one replaces it.",
        }[problem.normalisation]
        where = f"not in the span of the features (distance {found.constant_distance:.2g})"
        say.append(f"The constant function is {where}: {consequence}")
    if not found.can_clip:
        say.append("No reward can push a return beyond the support: nothing clips.")
    else:
        say.append(
            f"Returns can fall beyond the support: a backup clips {found.clipped_mass:.2g} of the mass on average."
        )
    say.append(f"The features' Gram matrix has condition number {found.gram_condition:.3g}.")
    unknown = math.isnan(found.contraction_observed)
    if found.contraction_guaranteed is None:
        observed = "" if unknown else f" (observed factor {found.contraction_observed:.4f})"
        say.append(f"The state distribution is not stationary: no contraction is guaranteed{observed}.")
    else:
        observed = (
            "how far in the long run was not found"
            if unknown
            else f"in the long run to {found.contraction_observed:.4f}"
        )
        say.append(
            f"Each step of the process shrinks errors in Cramér norm to {found.contraction_guaranteed:.4f} of their "
            f"size or less; {observed}."
        )
    bound, values = found.distribution_bound, found.value_bound
    if bound is not None:
        name = "Theorem 1" if found.bound_kind == "theorem 1" else "The bound that replaces Theorem 1's"
        say.append(f"{name}: squared Cramér error {bound.left:.3g}, at most {bound.right:.3g} ({_verdict(bound)}).")
        if values is None:
            say.append("Theorem 2 does not apply: some true returns lie outside the support.")
        else:
            say.append(
                f"Theorem 2: squared error of the means {values.left:.3g}, at most {found.value_constant:.3g} times "
                f"that of the distributions, {values.right:.3g} ({_verdict(values)})."
            )
    elif problem.stationary:
        say.append("The bounds of Theorems 1 and 2 were not computed: too many states for a reference distribution.")
    size = max(1.0, abs(problem.support.v_min), abs(problem.support.v_max))
    promised = found.lstd_reason.startswith("nothing clips")
    if found.lstd_gap > (MOST_ERROR if promised else _EQUAL) * size:
        error = ", and the difference is error" * promised
        say.append(f"Mean returns differ from LSTD's by up to {found.lstd_gap:.3g}: {found.lstd_reason}{error}.")
    else:
        why = "what could clip has no mass to speak of" if found.can_clip else found.lstd_reason
        say.append(f"Mean returns equal LSTD's: {why}.")
    return tuple(say)


def _verdict(bound: Bound) -> str:
    return "holds" if bound.holds else "BROKEN"
