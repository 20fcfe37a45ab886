"""Named processes to try things on: textbook chains, and the small counterexamples behind the corrected theorems."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from cramerl._arrays import Floats
from cramerl._checks import require_count, require_number
from cramerl.linear.grids import Grid
from cramerl.linear.processes import MarkovRewardProcess
from cramerl.supports import Support


class Counterexample(NamedTuple):
    """A process with the features and support that break a statement of the paper."""

    process: MarkovRewardProcess
    features: Floats
    support: Support


def random_walk(num_states: int = 19, discount: float = 0.95) -> MarkovRewardProcess:
    """A walk on a line, left or right; leaving it on the right pays 1, on the left -1, and restarts in the middle."""
    states = np.arange(require_count("num_states", num_states))
    middle = num_states // 2
    left = np.where(states > 0, states - 1, middle)
    right = np.where(states < num_states - 1, states + 1, middle)
    outcomes = {reward: sparse.lil_array((num_states, num_states)) for reward in (-1.0, 0.0, 1.0)}
    for x in states:
        outcomes[-1.0 if x == 0 else 0.0][x, left[x]] += 0.5
        outcomes[1.0 if x == num_states - 1 else 0.0][x, right[x]] += 0.5
    return MarkovRewardProcess.from_outcomes([(r, m.tocsr()) for r, m in outcomes.items()], discount)


def ring(num_states: int = 12, discount: float = 0.9, stay: float = 0.0) -> MarkovRewardProcess:
    """A cycle that is followed in one direction; each round pays 1. Periodic unless ``stay`` is positive."""
    num_states, stay = require_count("num_states", num_states), require_number("stay", stay, 0.0, 1.0)
    forward = sparse.csr_array(
        (np.ones(num_states), (np.arange(num_states), (np.arange(num_states) + 1) % num_states)),
        shape=(num_states, num_states),
    )
    transition = (1 - stay) * forward + stay * sparse.eye_array(num_states)
    rewards = np.zeros(num_states)
    rewards[-1] = 1.0
    return MarkovRewardProcess(transition, rewards, discount)


def gridworld(width: int = 8, height: int = 8, discount: float = 0.95, slip: float = 0.1) -> MarkovRewardProcess:
    """A walk towards a corner that pays 1 and leads back to the start; steps sometimes slip in a random direction."""
    width, height = require_count("width", width), require_count("height", height)
    size, slip = width * height, require_number("slip", slip, 0.0, 1.0)
    x, y = np.divmod(np.arange(size), height)
    moves = [(1, 0), (0, 1), (-1, 0), (0, -1)]
    chance = [(1 - slip) / 2 + slip / 4, (1 - slip) / 2 + slip / 4, slip / 4, slip / 4]
    total = sparse.csr_array((size, size))
    for (dx, dy), p in zip(moves, chance, strict=True):
        target = np.clip(x + dx, 0, width - 1) * height + np.clip(y + dy, 0, height - 1)
        total = total + sparse.csr_array((np.full(size, p), (np.arange(size), target)), shape=(size, size))
    total = total.tolil()
    total[size - 1, :] = 0.0
    total[size - 1, 0] = 1.0
    rewards = np.zeros(size)
    rewards[-1] = 1.0
    process = MarkovRewardProcess(total.tocsr(), rewards, discount)
    process.grid = Grid.plain(width, height, {0: "start", size - 1: "goal"})  # x counts its rows
    return process


def queue(
    capacity: int = 20, arrival: float = 0.45, service: float = 0.5, discount: float = 0.95
) -> MarkovRewardProcess:
    """Customers in a queue with one server; each costs 1 / capacity per step."""
    n = np.arange(require_count("capacity", capacity) + 1)
    arrival, service = (require_number(*given, 0.0, 1.0) for given in (("arrival", arrival), ("service", service)))
    up = np.where(n < capacity, arrival * (1 - np.where(n > 0, service, 0.0)), 0.0)
    down = np.where(n > 0, service * (1 - arrival), 0.0)
    make: Any = sparse.diags_array
    transition = make([down[1:], 1 - up - down, up[:-1]], offsets=[-1, 0, 1], format="csr")
    return MarkovRewardProcess(transition, -n / capacity, discount)


def bound_counterexample() -> Counterexample:
    """Theorem 1's bound breaks for *after*: nothing clips, but the constant is not in the span of the features."""
    process = MarkovRewardProcess([[0.6, 0.4], [0.4, 0.6]], [-2.0, 2.0], 0.5)
    return Counterexample(process, np.array([[1.0], [-1.0]]), Support(np.arange(-4.0, 5.0)))
