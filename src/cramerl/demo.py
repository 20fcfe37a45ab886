"""The demonstration: what the Cramér mathematics does, at the size of a laptop.

Three small computations: one backup of a signed prediction, with the nearest proper distribution; how well conditioned
the loss is (Lemma 1), shown by gradient descent on the same regression with the paper's raw distance, with the loss of
S51 and in the whitened coordinates of U51; and the evaluation of a process.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cramerl import plots
from cramerl._arrays import Floats
from cramerl.cramer import (
    condition_number,
    cramer_distance_sq,
    cramer_gram,
    optimal_penalty_range,
    raw_gram,
    unit_mass_basis,
)
from cramerl.linear import Evaluation, evaluate, fourier, suggest_support
from cramerl.linear.examples import queue
from cramerl.measures import mean, nearest_distribution, negative_mass, total_mass
from cramerl.projections import backup
from cramerl.supports import Support

MADE_BY = "cramerl demo"


class Conditioning(NamedTuple):
    """Lemma 1 for one number of atoms, unit spacing."""

    num_atoms: int
    raw: float
    best: float
    penalty_low: float
    penalty_high: float


class Descent(NamedTuple):
    """Gradient descent on one loss: the Cramér distance to the target after each step, relative to the first."""

    name: str
    condition: float
    error: Floats


class Demo(NamedTuple):
    """Everything the demonstration computes."""

    support: Support
    prediction: Floats
    target: Floats
    nearest: Floats
    conditioning: list[Conditioning]
    descents: list[Descent]


def run(num_atoms: int = 51, num_steps: int = 5000) -> Demo:
    """Compute the demonstration.

    Args:
        num_atoms: atoms of the support, from -10 to 10.
        num_steps: gradient steps per loss.

    Returns:
        The numbers; `summary` turns them into plain values, `draw` into a picture.
    """
    support = Support.uniform(-10, 10, num_atoms)
    # Two bumps and a negative dip between them: what the outputs of S51 look like. Total mass one.
    z = support.atoms
    prediction = np.exp(-((z + 3) ** 2)) + 1.5 * np.exp(-((z - 4) ** 2) / 3) - 0.4 * np.exp(-((z - 0.5) ** 2) / 0.6)
    prediction = prediction / prediction.sum()
    target = backup(support, 1.0, 0.9, prediction)
    return Demo(
        support=support,
        prediction=prediction,
        target=target,
        nearest=nearest_distribution(support, target),
        conditioning=[_conditioning(k) for k in (3, 11, 21, 51, 101, 201)],
        descents=_descents(support, target, num_steps),
    )


def evaluate_queue() -> Evaluation:
    """The third part: policy evaluation, here of the cost of waiting in a queue."""
    process = queue()
    return evaluate(process, fourier(np.arange(process.num_states), 5), suggest_support(process))


def summary(demo: Demo) -> dict[str, Any]:
    """The demonstration as plain values, for a JSON file."""
    return {
        "made_by": MADE_BY,
        "support": repr(demo.support),
        "conditioning": [row._asdict() for row in demo.conditioning],
        "descents": [
            {"name": d.name, "condition": d.condition, "steps": len(d.error) - 1, "error": float(d.error[-1])}
            for d in demo.descents
        ],
        "measures": {
            name: {one.__name__: float(one(demo.support, masses)) for one in (mean, total_mass, negative_mass)}
            for name, masses in (("prediction", demo.prediction), ("target", demo.target), ("nearest", demo.nearest))
        },
    }


def draw(demo: Demo, path: Path) -> Path:
    """The picture of the demonstration: a signed backup, and how fast each loss is learned."""
    figure, (left, right) = plots.new_figure(2)
    atoms = demo.support.atoms
    plots.draw_distribution(left, atoms, demo.target)
    left.step(atoms, demo.nearest, where="mid", color=plots.TARGET, linewidth=1.6, label="nearest proper distribution")
    left.set(xlabel="return", ylabel="mass")
    left.set_title("A signed prediction, backed up: 1 + 0.9 Z")
    left.legend(frameon=False, loc="upper left", fontsize=8)
    for descent, colour in zip(demo.descents, (plots.ACCENT, plots.NEGATIVE, plots.POSITIVE), strict=True):
        label = f"{descent.name} (condition {descent.condition:.0f})"
        # Below 1e-14 there are only rounding errors.
        right.semilogy(np.maximum(descent.error, 1e-14), color=colour, linewidth=1.8, label=label)
    right.set_xscale("symlog", linthresh=1)
    right.set(xlabel="gradient steps", ylabel="Cramér distance to the target", ylim=(3e-15, 3))
    right.legend(frameon=False, fontsize=8, loc="center right")
    right.set_title(f"Learning {demo.support.num_atoms} atoms by gradient descent")
    return plots.save(figure, path, MADE_BY)


def _conditioning(num_atoms: int) -> Conditioning:
    support = Support(np.arange(num_atoms, dtype=float))
    low, high = optimal_penalty_range(support)
    return Conditioning(num_atoms, float(np.linalg.cond(raw_gram(support))), condition_number(support, low), low, high)


def _descents(support: Support, target: Floats, num_steps: int) -> list[Descent]:
    """Descend (q - p)' H (q - p) from the uniform vector with a step of one over the largest curvature."""
    low, high = optimal_penalty_range(support)
    basis, left_inverse = unit_mass_basis(support)
    start = np.full(support.num_atoms, 1 / support.num_atoms)
    penalty = float(np.sqrt(low * high))
    directions = {
        "raw cumulative distance": raw_gram(support),
        "S51: Cramér loss with mass penalty": cramer_gram(support, penalty),
        # A step in the outputs o is a step of B B' C_0 = I - ee' in the masses q = u + B o.
        "U51: whitened coordinates": basis @ left_inverse,
    }
    descents = []
    for name, hessian in directions.items():
        values = np.linalg.eigvalsh((hessian + hessian.T) / 2)
        values = values[values > 1e-9 * values[-1]]
        step = 1 / values[-1]
        error, q = [], start
        for _ in range(num_steps + 1):
            error.append(cramer_distance_sq(support, q, target, penalty))
            q = q - step * (hessian @ (q - target))
        descents.append(Descent(name, float(values[-1] / values[0]), np.sqrt(np.array(error) / error[0])))
    return descents
