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

    def distribution(self, policy: np.ndarray, reach: int = 240) -> tuple[np.ndarray, np.ndarray]:
        """Undiscounted returns (n,), multiples of one half, and their exact probabilities (3, n) from each state."""
        probs = np.zeros((3, 2 * reach + 1))
        for _ in range(200):  # the chance to be alive after so many steps is 1e-20
            following = np.zeros_like(probs)
            for state in range(3):
                for action in range(2):
                    after = np.tensordot(self.step[state, action, :3], probs, 1)
                    after[reach] += self.step[state, action, 3]
                    for sign in (-1, 1):
                        moved = np.roll(after, int(2 * self.rewards[state, action]) + sign)
                        following[state] += 0.5 * policy[state, action] * moved
            probs = following
        return np.arange(-reach, reach + 1) / 2, probs

    def returns(self, policy: np.ndarray, discount: float, count: int, seed: int = 0) -> np.ndarray:
        """(count,) returns that were played, from the states that episodes start in."""
        rng = np.random.default_rng(seed)
        states, total, alive = rng.integers(3, size=count), np.zeros(count), np.arange(count)
        factor = 1.0
        while len(alive):
            actions = (rng.random(len(alive)) < policy[states, 1]).astype(int)
            rewards = self.rewards[states, actions] + rng.choice([-0.5, 0.5], len(alive))
            total[alive] += factor * rewards
            states = (rng.random(len(alive))[:, None] > np.cumsum(self.step[states, actions], axis=1)).sum(axis=1)
            alive, states = alive[states < 3], states[states < 3]
            factor *= discount
        return total

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
