"""A small decision process with exact answers, and logs that were played in it."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from cramerl.linear import Log


class World(NamedTuple):
    """States 0 to 2 and two actions; from each the return may end."""

    step: np.ndarray
    """(3, 2, 4) probabilities of the next state; the last is the end."""
    rewards: np.ndarray
    """(3, 2) means; the reward is this plus or minus one half."""

    def values(self, policy: np.ndarray, discount: float) -> tuple[np.ndarray, np.ndarray]:
        """(3, 2) of actions and (3,) of states, from the linear equations."""
        step = np.einsum("sa,sat->st", policy, self.step[..., :3])
        of_state = np.linalg.solve(np.eye(3) - discount * step, (policy * self.rewards).sum(axis=1))
        return self.rewards + discount * self.step[..., :3] @ of_state, of_state

    def play(self, policy: np.ndarray, episodes: int, seed: int = 0, most: int = 60) -> dict[str, Any]:
        """Columns of a log; an episode is cut after so many steps."""
        rng = np.random.default_rng(seed)
        columns: dict[str, list[Any]] = {name: [] for name in ("who", "x", "a", "r", "died", "p")}
        for who in range(episodes):
            state = int(rng.integers(3))
            for _ in range(most):
                action = int(rng.random() < policy[state, 1])
                reward = self.rewards[state, action] + rng.choice([-0.5, 0.5])
                following = int(rng.choice(4, p=self.step[state, action]))
                row = (who, state, action, reward, following == 3, policy[state, action])
                for column, value in zip(columns.values(), row, strict=True):
                    column.append(value)
                if following == 3:
                    break
                state = following
        return {name: np.array(column) for name, column in columns.items()}


WORLD = World(
    np.array(
        [
            [[0.2, 0.4, 0.1, 0.3], [0.1, 0.1, 0.5, 0.3]],
            [[0.3, 0.1, 0.2, 0.4], [0.0, 0.5, 0.3, 0.2]],
            [[0.1, 0.2, 0.2, 0.5], [0.4, 0.3, 0.0, 0.3]],
        ]
    ),
    np.array([[1.0, -1.0], [0.0, 2.0], [0.5, 1.5]]),
)
LOGGED = np.array([[0.5, 0.5], [0.6, 0.4], [0.7, 0.3]])
TARGET = np.array([[0.2, 0.8], [0.3, 0.7], [0.6, 0.4]])
NAMES: dict[str, Any] = {"episode": "who", "state": "x", "categorical": "x", "action": "a", "reward": "r"}


def read(columns: dict[str, Any], **more: Any) -> Log:
    """The log of these columns."""
    return Log.read(columns, **NAMES | {"terminated": "died", "propensity": "p"} | more)


def probs_under(policy: np.ndarray):
    """The probability of the logged actions."""
    return lambda block: policy[block.observations.codes[block.current, 0], block.actions]


def values_under(policy: np.ndarray, discount: float, error: float = 0.0):
    """Values of actions, states and next states, too large by an error."""
    of_action, of_state = (values + error for values in WORLD.values(policy, discount))

    def of_block(block: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        states, following = block.observations.codes[block.current, 0], block.observations.codes[block.following, 0]
        return of_action[states, block.actions], of_state[states], of_state[following]

    return of_block
