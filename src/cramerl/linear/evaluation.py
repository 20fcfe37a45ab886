"""`evaluate`: the return distribution of every state, from a process and features."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from cramerl import _svg, plots
from cramerl._arrays import Floats
from cramerl._checks import require_choice, require_count, require_tolerance
from cramerl.cramer import cramer_distance_sq
from cramerl.linear.certificates import Certificate, certify_evaluation
from cramerl.linear.defects import state_defect
from cramerl.linear.problem import Normalisation, Problem, make_problem
from cramerl.linear.processes import MarkovRewardProcess
from cramerl.linear.solve import (
    METHODS,
    MOST_ERROR,
    REFINED_FROM,
    Method,
    Solution,
    certain_part,
    refined,
    rounding_error,
    rounding_of_sums,
    solve,
)
from cramerl.linear.support_choice import suggest_support
from cramerl.linear.systems import LinearSystem, process_system, state_space_system
from cramerl.measures import cvar, nearest_distribution, quantile
from cramerl.supports import Support


@dataclass(frozen=True, eq=False, repr=False)
class Evaluation:
    """The fixed point of the projected process, and what can be said about it.

    Attributes:
        problem: what was asked: process, features, support, normalisation, state distribution.
        weights: (D, K); row x of ``features @ weights`` holds the masses of state x (for *affine*, plus 1/K).
        residual: norm, weighted by the state distribution, of the change that one more step of the process makes.
        iterations: products with the operator (1 for a direct solve).
        method: "direct", "krylov" or "iteration".
    """

    problem: Problem
    weights: Floats
    residual: float
    iterations: int
    method: str

    def __repr__(self) -> str:
        size = f"{len(self.problem.features)} states, {self.problem.features.shape[1]} features"
        solved = f"{self.problem.normalisation}, {self.method}, residual {self.residual:.1e}"
        return f"Evaluation({size}, {self.support!r}, {solved})"

    def _repr_html_(self) -> str:
        """A table of the states with the most weight, with drawings of their distributions."""
        rows = np.atleast_1d(self.problem.most_visited(10))
        columns = self._columns(rows)
        columns["distribution"] = [_svg.bars(self.support.atoms, self.problem.masses(self.weights, x)) for x in rows]
        table = _svg.table(list(columns), list(zip(*columns.values(), strict=True)))
        return f"<div>{escape(repr(self))}</div>{table}"

    @property
    def support(self) -> Support:
        """The atoms."""
        return self.problem.support

    @cached_property
    def masses(self) -> Floats:
        """(S, K) signed masses of the return of every state."""
        return self.problem.masses(self.weights)

    @cached_property
    def values(self) -> Floats:
        """(S,) mean return of every state."""
        return self.problem.values(self.weights)

    @cached_property
    def total_mass(self) -> Floats:
        """(S,) total mass of every state; one where the constant function is in the span of the features."""
        return self.problem.features @ self.weights.sum(axis=1) + self.problem.offset * self.support.num_atoms

    @cached_property
    def system(self) -> LinearSystem:
        """The linear system that the whitened weights solve; `evaluate` stores the one it solved."""
        return process_system(self.problem)

    @cached_property
    def certificate(self) -> Certificate:
        """What is guaranteed about this evaluation and what is not; computed on first use."""
        return certify_evaluation(self.problem, self.weights, self.system)

    def __getstate__(self) -> dict[str, Any]:
        # A system is made of functions, which cannot be pickled. It is built again where it is needed.
        return {name: value for name, value in vars(self).items() if name != "system"}

    def summary(self, states: ArrayLike | None = None) -> str:
        """A table of states to read, with the certificate's sentences below.

        Args:
            states: which states to show; by default those with the most weight, ten at most.
        """
        rows = np.atleast_1d(np.asarray(self.problem.most_visited(10) if states is None else states))
        columns = self._columns(rows)
        widths = [max(len(name), *map(len, cells)) for name, cells in columns.items()]
        lines = ["  ".join(name.rjust(w) for name, w in zip(columns, widths, strict=True))]
        for row in zip(*columns.values(), strict=True):
            lines.append("  ".join(cell.rjust(w) for cell, w in zip(row, widths, strict=True)))
        process = self.problem.process
        if len(rows) < process.num_states:
            lines.append(f"({len(rows)} of {process.num_states} states; quantiles are atoms of the support)")
        found = f"{self.method}, {self.iterations} products" if self.method != "direct" else "direct"
        by = f"fixed point ({self.problem.normalisation}) by {found}, residual {self.residual:.1e}"
        return "\n".join([*lines, "", repr(process), by, "", *self.certificate.sentences])

    def _columns(self, rows: np.ndarray) -> dict[str, list[str]]:
        """Some states in words: a column for each figure."""
        proper = nearest_distribution(self.support, self.problem.masses(self.weights, rows))
        return {
            "state": [str(x) for x in rows],
            "weight": [f"{w:.4f}" for w in self.problem.state_distribution[rows]],
            "mean": [f"{v:.4g}" for v in self.values[rows]],
            "5%": [f"{q:.4g}" for q in quantile(self.support, proper, 0.05)],
            "median": [f"{q:.4g}" for q in quantile(self.support, proper, 0.5)],
            "95%": [f"{q:.4g}" for q in quantile(self.support, proper, 0.95)],
            "CVaR 10%": [f"{c:.4g}" for c in cvar(self.support, proper, 0.1)],
            "mass": [f"{m:.4f}" for m in self.total_mass[rows]],
        }

    def plot(self, path: str | Path | None = None, states: ArrayLike | None = None) -> Any:
        """Draw the masses of some states (by default up to six with the most weight); returns a matplotlib figure.

        Args:
            path: also write the picture there.
            states: which states to draw.
        """
        rows = np.atleast_1d(np.asarray(self.problem.most_visited(6) if states is None else states))
        masses = self.problem.masses(self.weights, rows)
        figure = plots.draw_state_distributions(self.support.atoms, rows, masses, self.values[rows])
        if path is not None:
            figure.savefig(path, dpi=150)
        return figure


def evaluate(
    process: MarkovRewardProcess,
    features: ArrayLike,
    support: Support | None = None,
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
        support: K atoms; None: 51 that `suggest_support` chooses.
        normalisation: how the total mass is kept at one. The guarantees of "before" (normalise, then back up) hold for
            every feature matrix; "after" is the paper's process with its constant corrected; "affine" has unit mass by
            construction, as u + features @ weights. With the constant in the span of the features all three agree.
        state_distribution: (S,) weights of the states; by default the stationary distribution, which the guarantees
            need: another one causes a warning.
        method: "direct" factorises a (DK, DK) matrix; "krylov" makes a few hundred products; "iteration" runs the
            paper's process until it has converged. "auto" is direct up to 500 unknowns, else Krylov.
        tol: bound on the error of the fixed point, in the norm of `Evaluation.residual`.

    Returns:
        An `Evaluation`; ``print(evaluation.summary())`` to read it.

    Reference:
        Theorem 1 of the paper, corrected.
    """
    require_choice("method", method, METHODS)
    tol = require_tolerance(tol)
    support = suggest_support(process) if support is None else support
    problem = make_problem(process, features, support, normalisation, state_distribution)
    system = process_system(problem)
    found = solve(system, method, tol, process.discount, problem.largest_error)
    if rounding_of_sums(process.discount, problem.whitening.scaled_condition, support) > REFINED_FROM:
        defect = partial(state_defect, problem)
        found = refined(found, system, defect, method, tol, process.discount, problem.largest_error)
    _warn_of_error(problem, found)
    weights = problem.whitening.inverse @ found.weights
    evaluation = Evaluation(problem, weights, found.residual, found.iterations, found.method)
    vars(evaluation)["system"] = system  # for the certificate, which would build it again
    return evaluation


def _warn_of_error(problem: Problem, found: Solution) -> None:
    """Say that masses may be wrong, and why."""
    certain = certain_part(problem.process.discount)
    rounding = rounding_error(problem.process.discount, problem.worst_condition(), problem.support)
    if found.error <= MOST_ERROR and rounding <= MOST_ERROR:
        return
    why = "with weights that are not stationary the process may diverge"
    if problem.stationary and found.residual / certain > MOST_ERROR and found.method != "direct":
        why = f"1 - discount = {certain:.3g} is too little for this method; method='direct' may reach it"
    elif problem.stationary and found.error > MOST_ERROR and found.method != "direct":
        least = problem.state_distribution[problem.state_distribution > 0].min()
        why = f"rounding hides states of little weight (the least is {least:.1e}); method='direct' may find them"
    elif problem.stationary:
        why = f"1 - discount = {certain:.3g} leaves too few digits with these features and this support"
    wrong = f"{max(found.error, rounding):.1e} (residual {found.residual:.1e})"
    warnings.warn(f"the masses, or means in widths of the support, may be wrong by {wrong}: {why}", stacklevel=3)


class Iterate(NamedTuple):
    """One step of the paper's process.

    Attributes:
        step: j.
        masses: P_j, (S, K).
        shape_change_sq: Cramér part of the squared distance to the previous iterate, weighted by the states.
        mass_change_sq: the part along the total mass.
        shape_ratio: shape_change_sq divided by that of the previous step (NaN at first); Lemma 3 bounds it by the
            discount from the second step on.
        mass_ratio: the same for the masses, which no longer change after one step.
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
    """The iterates of the paper's process P_{j+1} = Proj T' P_j, with both parts of Lemma 3 at every step.

    Arguments as in `evaluate`; ``initial_weights`` is Theta_0, (D, K), zero by default, and ``num_steps`` is how many
    steps to yield.
    """
    problem = make_problem(process, features, support, normalisation, state_distribution)
    num_steps = require_count("num_steps", num_steps, least=0)
    shape = (problem.features.shape[1], problem.support.num_atoms)
    start = np.zeros(shape) if initial_weights is None else np.asarray(initial_weights, dtype=np.float64)
    if start.shape != shape:
        raise ValueError(f"initial_weights must have shape {shape}, got {start.shape}")
    return _iterates(problem, start, num_steps)


def _iterates(problem: Problem, start: Floats, num_steps: int) -> Iterator[Iterate]:
    system = state_space_system(problem)
    weights: Floats = np.linalg.solve(problem.whitening.inverse, start).astype(np.float64)
    orthonormal, offset = problem.whitened_features, problem.offset
    xi, k = problem.state_distribution, problem.support.num_atoms
    before, shape_before, mass_before = orthonormal @ weights + offset, np.nan, np.nan
    for step in range(1, num_steps + 1):
        weights = system.constant + system.apply(weights)
        masses = orthonormal @ weights + offset
        shape_sq = float(xi @ cramer_distance_sq(problem.support, masses, before, mass_penalty=0.0))
        mass_sq = float(xi @ (masses - before).sum(axis=1) ** 2) / k
        pairs = (shape_sq, shape_before), (mass_sq, mass_before)
        ratios = (now / then if then > 0 else np.nan for now, then in pairs)
        yield Iterate(step, masses, shape_sq, mass_sq, *ratios)
        before, shape_before, mass_before = masses, shape_sq, mass_sq
