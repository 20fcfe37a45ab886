"""The file evaluation.json: what `cramerl evaluate` writes about an evaluation and `cramerl watch` reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cramerl._arrays import Floats
from cramerl._files import write_json
from cramerl._folders import EVALUATION_FILE, inside
from cramerl.linear.evaluation import Evaluation
from cramerl.linear.grids import Grid, parse_grid
from cramerl.linear.lstd import DistributionalLSTD
from cramerl.linear.sources.layout import Layout

MADE_BY = "cramerl evaluate"

_MOST_STATES = 1000  # states whose distributions are written


class EvaluationRecord(NamedTuple):
    """What an evaluation.json says about the distributions of some states, in the order of their numbers."""

    process: str | None  # a description of the process; None for a log
    normalisation: str  # how the mass was kept at one
    residual: float | None  # of the fixed point; None if unknown
    atoms: Floats  # (K,) of the support
    states: Any  # (n,) their numbers
    means: Floats  # (n,) mean returns
    visited: Floats  # (n,) weights of the states
    masses: Floats  # (n, K) signed masses
    grid: Grid | None = None  # where these states lie, if they are the cells of a world


def write_process_record(evaluation: Evaluation, folder: Path) -> Path:
    """Write the evaluation of a process, with the distributions of the most visited states."""
    problem = evaluation.problem
    states = problem.most_visited(_MOST_STATES)
    masses, visited = problem.masses(evaluation.weights, states), problem.state_distribution[states]
    content = {
        "made_by": MADE_BY,
        "process": repr(problem.process),
        "support": evaluation.support.atoms.tolist(),
        "normalisation": problem.normalisation,
        "method": evaluation.method,
        "iterations": evaluation.iterations,
        "residual": evaluation.residual,
        "values": evaluation.values.tolist(),
        "total_mass": evaluation.total_mass.tolist(),
        "weights": evaluation.weights.tolist(),
        "state_distribution": problem.state_distribution.tolist(),
        "certificate": evaluation.certificate.to_dict(),
        "grid": problem.process.grid and problem.process.grid._asdict(),
        "distributions": distributions_content(states, evaluation.values[states], visited, masses),
    }
    return write_json(inside(folder, EVALUATION_FILE), without_nan(content))


def write_log_record(model: DistributionalLSTD, layout: Layout, first_states: Floats, folder: Path) -> Path:
    """Write the evaluation of a log, with the distributions of its first states (n, D)."""
    n = len(first_states)
    masses, means = model.predict_masses(first_states), model.predict(first_states)
    content = {
        "made_by": MADE_BY,
        "columns": {
            "state": layout.features,
            "reward": layout.reward,
            "next_state": layout.next_features,
            "terminated": layout.terminated,
        },
        "discount": model.discount,
        "support": model.support_.atoms.tolist(),
        "normalisation": model.normalisation,
        "transitions": model.n_samples_,
        "residual": model.residual_,
        "support_report": model.support_report_._asdict(),
        "certificate": model.certificate_._asdict(),
        "weights": model.weights_.tolist(),
        "distributions": distributions_content(np.arange(n), means, np.full(n, 1 / n), masses),
    }
    return write_json(inside(folder, EVALUATION_FILE), without_nan(content))


def parse_record(values: dict[str, Any]) -> EvaluationRecord:
    """The record in the content of an evaluation.json; ValueError, TypeError or KeyError if it is not one."""
    if "distributions" not in values:
        raise ValueError("it holds no distributions; run cramerl evaluate again")
    found, atoms = values["distributions"], np.asarray(values["support"], float)
    states = np.asarray(found["states"], int)
    order = np.argsort(states, kind="stable")
    means, visited, masses = (np.asarray(found[name], float)[order] for name in ("means", "visited", "masses"))
    if masses.shape != (len(states), atoms.size) or not len(states) or not np.isfinite(masses).all():
        raise ValueError(f"its distributions must be (states, {atoms.size}) numbers, got {masses.shape}")
    about = values.get("process"), values["normalisation"], values.get("residual")
    grid = None if values.get("grid") is None else parse_grid(values["grid"]).of(states[order].tolist())
    return EvaluationRecord(*about, atoms, states[order], means, visited, masses, grid)


def distributions_content(states: Any, means: Floats, visited: Floats, masses: Floats) -> dict[str, Any]:
    """Distributions of some states as plain values, to six digits."""

    def rounded(values: Floats) -> list[float]:
        return [float(f"{value:.6g}") for value in values]

    return {
        "states": states.tolist(),
        "means": rounded(means),
        "visited": rounded(visited),
        "masses": [rounded(row) for row in masses],
    }


def without_nan(content: Any) -> Any:
    """The content with null for NaN, which JSON does not have: for numbers that could not be computed."""
    if isinstance(content, dict):
        return {key: without_nan(value) for key, value in content.items()}
    return None if isinstance(content, float) and not np.isfinite(content) else content
