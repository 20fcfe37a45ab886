"""A finite process that `cramerl evaluate` looked at: its states one after another, each with its distribution."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import numpy as np

from cramerl.linear.evaluation_file import EVALUATION_FILE, EvaluationRecord, parse_record
from cramerl.runs.folder import read_object
from cramerl.watch.recording import Recording, make_view
from cramerl.watch.tape import Tape

_GROUND, _BAR, _HERE, _LINE = (22, 25, 29), (86, 180, 233), (230, 159, 0), (74, 80, 88)
_HEIGHT, _WIDTH = 160, 480
_MARK = 9  # columns that show, at least, which state is looked at
# Ways to keep the mass of distributions at one (docs/certificate.md).
_KEPT = {"before": "put right before each backup", "after": "put right after each backup", "affine": "by construction"}


def is_evaluation(folder: str | Path) -> bool:
    """Whether `cramerl evaluate` wrote the folder."""
    return (Path(folder) / EVALUATION_FILE).is_file()


def read_evaluation(folder: str | Path) -> Recording:
    """The states of an evaluation as a recording, in the order of their numbers."""
    return read_object(
        Path(folder) / EVALUATION_FILE, lambda values: _recording(parse_record(values), Path(folder).resolve().name)
    )


def _recording(found: EvaluationRecord, name: str) -> Recording:
    masses, means, visited = (part.astype(np.float32) for part in (found.masses, found.means, found.visited))
    states = found.states
    nothing = np.zeros(len(states), np.float32)
    action = np.zeros(len(states), np.int32)
    process = re.sub(r"^\w+\((.*)\)$", r"\1", found.process or "a log of transitions")
    return Recording(
        title=f"{name}: {process}",
        unit="state",
        facts=_facts(found),
        actions=["distribution of the return"],
        tape=_pictures(means),
        palette=np.array([_GROUND, _BAR, _HERE, _LINE], np.uint8),
        legend=[("mean return of each state", 1), ("this state", 2)],
        caption="the states in order, each with its mean return",
        action=action,
        reward=visited,
        score=means,
        episode=nothing.astype(np.int32),
        came=np.full(len(states), np.nan, np.float32),
        views=[make_view("prediction", "process", found.atoms, masses[:, None], means[:, None], action)],
        labels=[str(state) for state in states],
    )


def _facts(found: EvaluationRecord) -> list[str]:
    kept = found.normalisation
    facts = [f"{len(found.states):,} states shown", f"mass kept at one: {_KEPT.get(kept, kept)}"]
    return facts if found.residual is None else [*facts, f"residual {found.residual:.1e}"]


def _pictures(means: np.ndarray) -> Tape:
    """A bar for each state's mean, from the line of zero; the state that is looked at in its own colour."""
    low, high = min(float(means.min()), 0.0), max(float(means.max()), 0.0)
    rows = np.rint((high - means) / max(high - low, 1e-9) * (_HEIGHT - 17) + 8).astype(int)
    zero = round(high / max(high - low, 1e-9) * (_HEIGHT - 17) + 8)
    edges = np.rint(np.linspace(0, _WIDTH, len(means) + 1)).astype(int)
    ground = np.zeros((_HEIGHT, _WIDTH), np.uint8)
    for row, left, right in zip(rows, edges[:-1], edges[1:], strict=True):
        ground[min(row, zero) : max(row, zero) + 1, left : max(right - (right - left > 3), left + 1)] = 1
    ground[zero] = 3
    tape = Tape((_HEIGHT, _WIDTH))
    for left, right in pairwise(edges):
        picture = ground.copy()
        column = picture[:, left : max(right, left + 1)]
        column[column == 1] = 2
        wider = max(0, _MARK - (right - left)) // 2  # of many states one is too thin to be seen
        picture[-8:, max(0, left - wider) : right + wider] = 2
        tape.append(picture)
    return tape
