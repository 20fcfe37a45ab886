"""Processes for tests of the linear half, and their dense, obvious form."""

from __future__ import annotations

import numpy as np

from cramerl.linear import MarkovRewardProcess


def random_process(seed: int, num_states: int = 6, discount: float = 0.9, scale: float = 0.3) -> MarkovRewardProcess:
    rng = np.random.default_rng(seed)
    return MarkovRewardProcess(
        rng.dirichlet(np.ones(num_states), num_states), rng.normal(size=num_states) * scale, discount
    )


def dense_outcomes(process: MarkovRewardProcess) -> list[tuple[float, float, np.ndarray]]:
    """(reward, discount, P_r) as dense matrices, straight from the branches."""
    b, out = process.branches, []
    for reward, discount in sorted(set(zip(b.rewards.tolist(), b.discounts.tolist(), strict=True))):
        matrix = np.zeros((process.num_states, process.num_states))
        for n in np.flatnonzero((b.rewards == reward) & (b.discounts == discount)):
            matrix[b.states[n]] += b.next_distribution[[n]].toarray()[0]
        out.append((reward, discount, matrix))
    return out
