"""How far an answer reaches beyond its log: into weights that the rows leave open, and past where episodes are cut."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from cramerl.linear.log_certificates import mean_system
from cramerl.linear.logs.log import Log
from cramerl.linear.logs.returns import discounts_left
from cramerl.linear.logs.rows import Starts
from cramerl.linear.lstd import DistributionalLSTD
from cramerl.linear.transition_sums import basis_of_sums, ridge

# How many times weaker regularisation is made to see what it does.
_WEAKER = 30
# Share of a column's rows that must not fall (or not rise), and share that must rise (or fall), for it to drift.
_ONE_WAY, _MOVING = 0.999, 0.5


class Beyond(NamedTuple):
    """What lies after the cuts of a log.

    Attributes:
        share: of the discounted weight of an average return from the starts, how much comes after the episode's cut.
        drifting: numeric columns that only grow, or only shrink, along episodes.
    """

    share: float
    drifting: tuple[str, ...]


def determined_features(model: DistributionalLSTD) -> float:
    """How many features the rows determine: those that regularisation sets count as parts of one."""
    sums: Any = model._sums  # the model is fitted
    gram, penalty = sums.gram / sums.weight, ridge(sums, float(model.regularisation))
    if sparse.issparse(gram):  # features of states and actions: nearly orthogonal
        own, added = gram.diagonal(), penalty.diagonal()
        return float((own[own > 0] / (own + added)[own > 0]).sum())
    values = np.linalg.lstsq(gram + penalty, gram, rcond=1e-12)[0]
    return float(np.trace(values))


def regularisation_shift(model: DistributionalLSTD, starts: Starts) -> float:
    """How much the mean return moves where regularisation is thirty times weaker, by ordinary LSTD."""
    sums: Any = model._sums
    weaker = float(model.regularisation) / _WEAKER
    if not weaker:
        return 0.0
    basis = basis_of_sums(sums, weaker, model.normalisation)
    weights = mean_system(sums, basis, model.normalisation, weaker).weights
    return float(starts.mean @ (weights - model.means_.weights))


def beyond_log(log: Log, discount: float, *, from_all: bool = False) -> Beyond:
    """What lies after the cuts of a log, for returns from the first states of its episodes, or from all states."""
    left, names = [], log.schema.number_names
    rising, falling, rows = np.zeros(len(names)), np.zeros(len(names)), 0
    for block in log.blocks():
        starts = np.full(len(block.step), True) if from_all else block.step == 0
        left.append(np.where(block.complete, 0.0, discounts_left(block, discount))[starts])
        numbers, going = block.observations.numbers, ~block.terminated
        moved = numbers[block.following[going]] - numbers[block.current[going]]
        rising, falling, rows = rising + (moved > 0).sum(axis=0), falling + (moved < 0).sum(axis=0), rows + len(moved)
    one_way = np.minimum(rising, falling) <= (1 - _ONE_WAY) * rows
    moving = np.maximum(rising, falling) >= _MOVING * max(1, rows)
    drifting = tuple(name for name, drifts in zip(names, one_way & moving, strict=True) if drifts)
    return Beyond(float(np.concatenate(left).mean()), drifting)
