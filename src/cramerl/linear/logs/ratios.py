"""How much more likely the logged actions are under another policy, step by step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from cramerl._arrays import Floats
from cramerl.linear.logs.episodes import Episodes
from cramerl.linear.logs.log import Log
from cramerl.linear.logs.returns import last_rows, so_far

ActionProbs = Callable[[Episodes], Floats]
"""(n,) the probability of each logged action under the target policy."""


class StepMasses(NamedTuple):
    """Sums over episodes for each of T steps, as logarithms, so that long products neither overflow nor vanish.

    An episode that is over keeps its last mass: its later actions would be as likely under both policies.
    """

    total: Floats
    """(T,) log of the sum of the masses."""
    squares: Floats
    """(T,) log of the sum of their squares."""

    @property
    def effective(self) -> Floats:
        """(T,) effective number of episodes, the squared sum over the sum of squares; 0 where all masses are zero."""
        dead = np.isneginf(self.total)
        return np.where(dead, 0.0, np.exp(2 * np.where(dead, 0, self.total) - np.where(dead, 0, self.squares)))

    @classmethod
    def of(cls, log: Log, probs_of_block: ActionProbs) -> Self:
        """Those of all episodes of a log."""
        live, over = np.empty((2, 0)), np.empty((2, 0))
        for block in log.blocks():
            masses = episode_log_masses(block, probs_of_block)
            lasts = last_rows(block.step)
            live = _merged(live, block.step, masses)
            over = _merged(over, block.step[lasts] + 1, masses[lasts])
        size = live.shape[1]
        sums = np.logaddexp(live, np.logaddexp.accumulate(over[:, :size], axis=1)) if size else live
        return cls(*sums)


def log_ratios(block: Episodes, probs_of_block: ActionProbs) -> Floats:
    r"""(n,) :math:`\log \prod_{s \le t} \pi(a_s | x_s) / \mu(a_s | x_s)`; minus infinity where the policy would not."""
    if block.propensities is None:
        raise ValueError("log must have a column of propensities, got none")
    probs = row_values("probs_of_block", probs_of_block(block), block)
    if (negative := probs < 0).any():
        raise ValueError(f"probs_of_block must give probabilities >= 0, got {probs[negative][0]:g}")
    with np.errstate(divide="ignore"):
        steps = np.log(probs) - np.log(block.propensities)
    return so_far(np.add, steps, block.step)


def episode_log_masses(block: Episodes, probs_of_block: ActionProbs) -> Floats:
    """(n,) the logarithm of the weight of each row's episode times its ratio so far."""
    with np.errstate(divide="ignore"):
        return log_ratios(block, probs_of_block) + np.log(start_weights(block))


def start_weights(block: Episodes) -> Floats:
    """(n,) the weight of the first row of each row's episode."""
    firsts = block.step == 0
    return block.weights[firsts][np.cumsum(firsts) - 1]


def has_propensities(log: Log) -> bool:
    """Whether the log says how likely its actions were."""
    return next(iter(log.blocks())).propensities is not None


def row_values(name: str, given: Any, block: Episodes) -> Floats:
    """What a function gives for a block, if it is one finite number for each row."""
    values = np.asarray(given, dtype=np.float64)
    if values.shape != block.rewards.shape:
        raise ValueError(f"{name} must give one number for each row, shape {block.rewards.shape}, got {values.shape}")
    if not (finite := np.isfinite(values)).all():
        raise ValueError(f"{name} must give finite numbers, got {values[~finite][0]}")
    return values


def _merged(sums: Floats, step: NDArray[np.intp], masses: Floats) -> Floats:
    """(2, T) log sums of masses and of their squares at each step, with those of more rows."""
    size = max(sums.shape[1], int(step.max(initial=-1)) + 1)
    grown = np.full((2, size), -np.inf)
    grown[:, : sums.shape[1]] = sums
    largest = np.full(size, -np.inf)
    np.maximum.at(largest, step, masses)
    largest[np.isneginf(largest)] = 0.0
    scaled = np.exp(masses - largest[step])
    more = np.stack([np.bincount(step, weights=scaled**power, minlength=size) for power in (1, 2)])
    with np.errstate(divide="ignore"):
        return np.logaddexp(grown, np.log(more) + largest * np.array([[1], [2]]))
