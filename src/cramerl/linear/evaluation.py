"""`evaluate`: the return distribution of every state, from a process and features."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from cramerl import plots
from cramerl._arrays import host_reals
from cramerl._checks import require_choice, require_finite
from cramerl.cramer import cramer_distance_sq
from cramerl.linear.certificates import Certificate, certify
from cramerl.linear.operators import Floats
from cramerl.linear.processes import MarkovRewardProcess
from cramerl.linear.solve import METHODS, Method, solve
from cramerl.linear.systems import NORMALISATIONS, Normalisation, Problem, process_system, state_space_system
from cramerl.linear.whitening import whiten
from cramerl.measures import cvar, nearest_distribution, quantile
from cramerl.supports import Support

_STATIONARY_TOLERANCE = 1e-9


@dataclass(frozen=True, eq=False)
class Evaluation:
    """The fixed point of the projected process, and what can be said about it.

    Attributes:
        problem: what was asked: process, features, support, normalisation, state distribution.
        weights: (D, K); row x of ``features @ weights`` holds the masses of state x (for *affine*, plus 1/K).
        residual: norm, weighted by the state distribution, of what one more step of the process would change.
        iterations: products with the operator (1 for a direct solve).
        method: "direct", "krylov" or "iteration".
    """

    problem: Problem
    weights: Floats
    residual: float
    iterations: int
    method: str

    @property
    def support(self) -> Support:
        """The atoms."""
        return self.problem.support

    @property
    def _offset(self) -> float:
        return 1.0 / self.support.num_atoms if self.problem.normalisation == "affine" else 0.0

    @cached_property
    def masses(self) -> Floats:
        """(S, K) signed masses of the return of every state."""
        return self.problem.features @ self.weights + self._offset

    @cached_property
    def values(self) -> Floats:
        """(S,) mean return of every state."""
        return self.problem.features @ (self.weights @ self.support.atoms) + self._offset * self.support.atoms.sum()

    @cached_property
    def total_mass(self) -> Floats:
        """(S,) total mass of every state; one where the constant function is in the span of the features."""
        return self.problem.features @ self.weights.sum(axis=1) + self._offset * self.support.num_atoms

    @cached_property
    def certificate(self) -> Certificate:
        """What is guaranteed of this evaluation and what is not; computed when first asked for."""
        return certify(self.problem, self.weights)

    def summary(self, states: ArrayLike | None = None) -> str:
        """A table of states for a person to read, with the certificate's sentences below.

        Args:
            states: which states to show; by default those with the most weight, ten at most.
        """
        if states is None:
            states = np.sort(np.argsort(-self.problem.state_distribution, kind="stable")[:10])
        rows = np.atleast_1d(np.asarray(states))
        masses = self.problem.features[rows] @ self.weights + self._offset
        proper = nearest_distribution(self.support, masses)
        columns = {
            "state": [str(x) for x in rows],
            "weight": [f"{w:.4f}" for w in self.problem.state_distribution[rows]],
            "mean": [f"{v:.4g}" for v in self.values[rows]],
            "5%": [f"{q:.4g}" for q in quantile(self.support, proper, 0.05)],
            "median": [f"{q:.4g}" for q in quantile(self.support, proper, 0.5)],
            "95%": [f"{q:.4g}" for q in quantile(self.support, proper, 0.95)],
            "CVaR 10%": [f"{c:.4g}" for c in cvar(self.support, proper, 0.1)],
            "mass": [f"{m:.4f}" for m in self.total_mass[rows]],
        }
        widths = [max(len(name), *map(len, cells)) for name, cells in columns.items()]
        lines = ["  ".join(name.rjust(w) for name, w in zip(columns, widths, strict=True))]
        for row in zip(*columns.values(), strict=True):
            lines.append("  ".join(cell.rjust(w) for cell, w in zip(row, widths, strict=True)))
        if len(rows) < self.problem.process.num_states:
            lines.append(
                f"({len(rows)} of {self.problem.process.num_states} states; quantiles are atoms of the support)"
            )
        found = f"{self.method}, {self.iterations} products" if self.method != "direct" else "direct"
        lines += [
            "",
            f"{self.problem.process!r}",
            f"fixed point ({self.problem.normalisation}) by {found}, residual {self.residual:.1e}",
            "",
        ]
        return "\n".join([*lines, *self.certificate.sentences])

    def plot(self, path: str | Path | None = None, states: ArrayLike | None = None) -> Any:
        """Draw the masses of some states (by default up to six with the most weight); returns a matplotlib figure.

        Args:
            path: also write the picture there.
            states: which states to draw.
        """
        if states is None:
            states = np.sort(np.argsort(-self.problem.state_distribution, kind="stable")[:6])
        rows = np.atleast_1d(np.asarray(states))
        masses = self.problem.features[rows] @ self.weights + self._offset
        figure = plots.draw_state_distributions(self.support.atoms, rows, masses, self.values[rows])
        if path is not None:
            figure.savefig(path, dpi=150)
        return figure


def evaluate(
    process: MarkovRewardProcess,
    features: ArrayLike,
    support: Support,
    *,
    normalisation: Normalisation = "before",
    state_distribution: ArrayLike | None = None,
    method: Method = "auto",
    tol: float = 1e-12,
) -> Evaluation:
    r"""Return distribution of every state as ``features @ weights``: the fixed point of the projected Bellman process.

    .. math:: \tilde P = \Pi_\Phi\, T' \tilde P, \qquad T'P = \sum_r P_r\, P\, M_r^\top

    Args:
        process: a `MarkovRewardProcess`.
        features: (S, D), linearly independent; kept by the result, not copied.
        support: K atoms.
        normalisation: how the total mass is kept. "before" (normalise, then back up) holds its guarantees for every
            feature matrix; "after" is the paper's process with its constant put right; "affine" has unit mass by
            construction, as u + features @ weights. With the constant in the span of the features all three agree.
        state_distribution: (S,) weights of the states; by default the stationary distribution, which the guarantees
            need: another one is taken with a warning.
        method: "direct" factorises a (DK, DK) matrix; "krylov" makes a few hundred products; "iteration" is the
            paper's process run to the end. "auto" takes direct up to 500 unknowns, else Krylov.
        tol: bound on the error of the fixed point, in the norm of `Evaluation.residual`.

    Returns:
        An `Evaluation`; ``print(evaluation.summary())`` to read it.

    Reference:
        Theorem 1 of the paper, corrected.
    """
    require_choice("method", method, METHODS)
    if isinstance(tol, bool) or not isinstance(tol, (int, float, np.number)) or not 0 < tol < 1:
        raise ValueError(f"tol must lie in (0, 1), got {tol!r}")
    problem = make_problem(process, features, support, normalisation, state_distribution)
    found = solve(process_system(problem), method, tol, process.discount)
    if not found.residual <= 1e-6 * max(1.0, float(np.linalg.norm(found.weights))):
        warnings.warn(
            f"no fixed point was found (residual {found.residual:.1e}): with weights that are not stationary "
            "the process may diverge",
            stacklevel=2,
        )
    weights = problem.whitening.inverse @ found.weights
    return Evaluation(problem, weights, found.residual, found.iterations, found.method)


class Iterate(NamedTuple):
    """One step of the paper's process.

    Attributes:
        step: j.
        masses: P_j, (S, K).
        shape_change_sq: Cramér part of the squared distance to the iterate before, weighted by the states.
        mass_change_sq: the part along the total mass.
        shape_ratio: shape_change_sq over that of the step before (NaN at first); Lemma 3 bounds it by the discount
            from the second step on.
        mass_ratio: the same of the masses, where nothing is left to change after one step.
    """

    step: int
    masses: Floats
    shape_change_sq: float
    mass_change_sq: float
    shape_ratio: float
    mass_ratio: float


def projected_bellman_iterates(
    process: MarkovRewardProcess,
    features: ArrayLike,
    support: Support,
    *,
    normalisation: Normalisation = "before",
    state_distribution: ArrayLike | None = None,
    initial_weights: ArrayLike | None = None,
    num_steps: int = 100,
) -> Iterator[Iterate]:
    """Watch the paper's process P_{j+1} = Proj T' P_j converge, with both parts of Lemma 3 at every step.

    Args:
        process: a `MarkovRewardProcess`.
        features: (S, D).
        support: K atoms.
        normalisation: as in `evaluate`.
        state_distribution: as in `evaluate`.
        initial_weights: (D, K), Theta_0; zero by default.
        num_steps: how many steps to yield.
    """
    problem = make_problem(process, features, support, normalisation, state_distribution)
    return _iterates(problem, initial_weights, num_steps)


def _iterates(problem: Problem, initial_weights: ArrayLike | None, num_steps: int) -> Iterator[Iterate]:
    system = state_space_system(problem)
    shape = (problem.features.shape[1], problem.support.num_atoms)
    start = np.zeros(shape) if initial_weights is None else np.asarray(initial_weights, dtype=np.float64)
    if start.shape != shape:
        raise ValueError(f"initial_weights must have shape {shape}, got {start.shape}")
    weights: Floats = np.linalg.solve(problem.whitening.inverse, start).astype(np.float64)
    offset = 1.0 / shape[1] if problem.normalisation == "affine" else 0.0
    orthonormal = problem.features @ problem.whitening.inverse
    before, shape_before, mass_before = orthonormal @ weights + offset, np.nan, np.nan
    for step in range(1, num_steps + 1):
        weights = system.constant + system.apply(weights)
        masses = orthonormal @ weights + offset
        xi, k = problem.state_distribution, shape[1]
        shape_sq = float(xi @ cramer_distance_sq(problem.support, masses, before, mass_penalty=0.0))
        mass_sq = float(xi @ (masses - before).sum(axis=1) ** 2) / k
        ratios = [
            now / then if then > 0 else np.nan for now, then in ((shape_sq, shape_before), (mass_sq, mass_before))
        ]
        yield Iterate(step, masses, shape_sq, mass_sq, ratios[0], ratios[1])
        before, shape_before, mass_before = masses, shape_sq, mass_sq


def make_problem(
    process: MarkovRewardProcess,
    features: ArrayLike,
    support: Support,
    normalisation: Normalisation,
    state_distribution: ArrayLike | None,
) -> Problem:
    """Check what is asked, and whiten the features."""
    require_choice("normalisation", normalisation, NORMALISATIONS)
    if not isinstance(process, MarkovRewardProcess):
        raise ValueError(f"process must be a MarkovRewardProcess, got {type(process).__name__}")
    if not isinstance(support, Support):
        raise ValueError(f"support must be a Support, got {type(support).__name__}")
    phi = _features(features, process.num_states)
    if state_distribution is None:
        xi, stationary = process.stationary_distribution(), True
    else:
        xi = _distribution(state_distribution, process.num_states)
        drift = float(np.abs(process.transition.T @ xi - xi).sum())
        stationary = drift <= _STATIONARY_TOLERANCE
        if not stationary:
            warnings.warn(
                f"state_distribution is not stationary (one step moves {drift:.2g} of its mass): contraction, "
                "convergence and the bounds are no longer guaranteed",
                stacklevel=3,
            )
    return Problem(process, phi, support, normalisation, xi, stationary, whiten(phi, xi))


def _features(features: Any, num_states: int) -> Floats:
    values = features.toarray() if sparse.issparse(features) else features
    phi = host_reals("features", values)
    if phi.ndim != 2 or phi.shape[0] != num_states or phi.shape[1] == 0:
        raise ValueError(f"features must have shape ({num_states}, D), one row for each state, got {phi.shape}")
    require_finite(features=phi)
    if phi.shape[1] > num_states:
        raise ValueError(f"features must be at most as many as the {num_states} states, got {phi.shape[1]} columns")
    return phi


def _distribution(weights: ArrayLike, num_states: int) -> Floats:
    xi = np.array(host_reals("state_distribution", weights))
    if xi.shape != (num_states,):
        raise ValueError(f"state_distribution must have shape ({num_states},), got {xi.shape}")
    if not (xi >= 0).all() or not abs(xi.sum() - 1) <= 1e-8:
        given = f"a smallest entry of {xi.min():.12g} and a sum of {xi.sum():.12g}"
        raise ValueError(f"state_distribution must be >= 0 and sum to 1, got {given}")
    return xi
