"""How much of what a policy needs was seen in a log: its actions, its starts, and episodes that act as it does."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from cramerl._arrays import Floats
from cramerl.linear.logs.cells import Cells, with_code
from cramerl.linear.logs.log import Log
from cramerl.linear.logs.observations import Observations
from cramerl.linear.logs.ratios import ActionProbs, StepMasses, has_propensities

# How much farther from the centre of a cell than all states of the log a state may be: there are gaps between cells.
_REACH = 1.5


def unseen_action_share(log: Log, policy_probs: Callable[[Observations], Floats], seed: int = 0) -> float:
    """Share of a policy's probability, over the states of a log, on actions that nobody took in such states.

    States are alike if they have the same categorical codes and, where there are numeric columns, lie in one of up to
    100 cells found by k-means.

    Args:
        log: with discrete actions.
        policy_probs: gives (m, A) probabilities of the log's action levels in m states.
        seed: of the cells.
    """
    if log.action_levels is None:
        raise ValueError("log must have discrete actions to tell which were taken, got none")
    cells, taken = Cells.of(log, seed), np.empty(0, dtype=np.uint64)
    for block in log.blocks():
        if block.actions is not None:
            taken = np.union1d(taken, with_code(_keys(cells, block.observations.take(block.current)), block.actions))
    unseen = weight = 0.0
    for block in log.blocks():
        states = block.observations.take(block.current)
        missing = _not_taken(_keys(cells, states), taken, len(log.action_levels))
        probs = _probs(policy_probs(states), missing.shape)
        unseen += float(block.weights @ (probs * missing).sum(axis=1))
        weight += float(block.weights.sum())
    return unseen / weight


def ess_by_step(log: Log, probs_of_block: ActionProbs) -> Floats | None:
    """(T,) effective number of episodes at each step under the target policy; None without propensities.

    Episodes count by their weights times the ratios of their actions so far, and those that are over by their last
    ones. If the target policy is the one that was logged, the number is that of the episodes.
    """
    return StepMasses.of(log, probs_of_block).effective if has_propensities(log) else None


def start_coverage(log: Log, states: Observations, seed: int = 0) -> float:
    """Share of states that are like some of the log's: in a cell of theirs, and not much farther from its centre."""
    if not len(states):
        raise ValueError("states must hold at least one state, got none")
    cells = Cells.of(log, seed)
    radius, seen = np.full(len(cells.centres), -np.inf), np.empty(0, dtype=np.uint64)
    for block in log.blocks():
        known = block.observations.take(block.current)
        centre, distance = cells.nearest(known)
        np.maximum.at(radius, centre, distance)
        seen = np.union1d(seen, cells.keys(known, centre))
    centre, distance = cells.nearest(states)
    return float((np.isin(cells.keys(states, centre), seen) & (distance <= _REACH * radius[centre])).mean())


def _keys(cells: Cells, states: Observations) -> NDArray[np.uint64]:
    return cells.keys(states, cells.nearest(states)[0])


def _not_taken(keys: NDArray[np.uint64], taken: NDArray[np.uint64], num_actions: int) -> NDArray[np.bool_]:
    """(m, A) whether no row of a cell has an action."""
    found, index = np.unique(keys, return_inverse=True)
    pairs = with_code(np.repeat(found, num_actions), np.tile(np.arange(num_actions), len(found)))
    return ~np.isin(pairs, taken).reshape(len(found), num_actions)[index.reshape(-1)]


def _probs(given: Floats, shape: tuple[int, ...]) -> Floats:
    """Probabilities of actions, if each row is a distribution over them."""
    probs = np.asarray(given, dtype=np.float64)
    if probs.shape != shape:
        raise ValueError(f"policy_probs must give one row of {shape[1]} for each state, {shape}, got {probs.shape}")
    if len(probs) and not (probs.min() >= 0 and np.abs(probs.sum(axis=1) - 1).max() <= 1e-6):
        total = probs.sum(axis=1)
        raise ValueError(
            f"policy_probs must give probabilities of total 1, got values from {probs.min():g} and totals from "
            f"{total.min():g} to {total.max():g}"
        )
    return probs
