"""When to step, update, explore and change the target network.

A row is one step of every parallel environment. A block is the smallest number of rows whose steps make a whole number
of updates: so the ratio of updates to steps is exact for any number of environments. Within a block all actions are
chosen with the weights the block began with, and all updates see the replay as it was then: so acting and learning can
overlap. A segment is a stretch of blocks between changes of the target network.
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np


class Stream(enum.IntEnum):
    """Independent streams of random numbers of one run. Their numbers are part of what a checkpoint means."""

    WEIGHTS = 0
    START = 1
    ACT = 2
    STEP = 3
    SAMPLE = 4


def stream(key: jax.Array, name: Stream, index: jax.Array | int = 0) -> jax.Array:
    """The key of one draw. No generator state is carried along, so a resumed run needs only its counters."""
    return jax.random.fold_in(jax.random.fold_in(key, int(name)), index)


class Segment(NamedTuple):
    """Blocks [start, stop): whether they learn, and what comes before them.

    Attributes:
        start: the first block.
        stop: one past the last.
        learns: whether they learn.
        starts_learning: whether they are the first that do.
        changes_target: whether the target network changes before them.
    """

    start: int
    stop: int
    learns: bool
    starts_learning: bool
    changes_target: bool


@dataclass(frozen=True)
class Schedule:
    """Block size, update ratio, exploration and target-network periods. Steps are summed over all environments.

    Attributes:
        num_envs: parallel environments.
        update_period_steps: steps per update.
        batch_size: transitions per update.
        min_replay_steps: steps before the first update.
        replay_steps: steps the replay holds.
        target_period_steps: steps between copies into the target network.
        exploration_final: epsilon after the decay.
        exploration_decay_steps: length of epsilon's linear decay from 1, which starts at ``min_replay_steps``.
        discount: gamma.
        n_step: rewards summed before the next state; with Q(lambda), the most steps that its targets look ahead.
        q_lambda: lambda of Q(lambda), see `cramerl.deep.q_lambda`; 0: n-step targets without correction.
        q_lambda_greedy: probability of the best action in the target policy of Q(lambda).
        clip_rewards: clip rewards to [-1, 1] for the learner.
    """

    num_envs: int
    update_period_steps: int = 4
    batch_size: int = 32
    min_replay_steps: int = 1000
    replay_steps: int = 100_000
    target_period_steps: int = 1000
    exploration_final: float = 0.01
    exploration_decay_steps: int = 100_000
    discount: float = 0.99
    n_step: int = 1
    q_lambda: float = 0.0
    q_lambda_greedy: float = 1.0
    clip_rewards: bool = False

    @property
    def rows_per_block(self) -> int:
        """Steps of each environment in a block."""
        return math.lcm(self.num_envs, self.update_period_steps) // self.num_envs

    @property
    def steps_per_block(self) -> int:
        """Steps of all environments in a block."""
        return self.rows_per_block * self.num_envs

    @property
    def updates_per_block(self) -> int:
        """Updates in a block that learns."""
        return self.steps_per_block // self.update_period_steps

    @property
    def replay_rows(self) -> int:
        """Capacity of the replay in rows: at least three blocks and the longest window."""
        return max(self.replay_steps // self.num_envs, 3 * self.rows_per_block + self.n_step + 8)

    @property
    def first_learning_block(self) -> int:
        """The first block that learns: the replay then holds enough steps, and one complete transition."""
        whole = (self.n_step + 1) * self.num_envs
        return max(1, -(-max(self.min_replay_steps, whole) // self.steps_per_block))

    def blocks(self, steps: int) -> int:
        """How many blocks make at least this many steps."""
        return -(-steps // self.steps_per_block)

    def updates_before(self, block: Any) -> Any:
        """How many updates came before a block that learns."""
        return (block - self.first_learning_block) * self.updates_per_block

    def changes_target(self, block: int) -> bool:
        """Whether the target network changes before this block."""
        now, before = block * self.steps_per_block, (block - 1) * self.steps_per_block
        return now // self.target_period_steps > before // self.target_period_steps

    def segments(self, start: int, stop: int) -> list[Segment]:
        """Cut blocks [start, stop) where the target network changes or learning starts."""
        cuts = [b for b in range(start, stop) if b in (start, self.first_learning_block) or self.changes_target(b)]
        return [
            Segment(a, b, a >= self.first_learning_block, a == self.first_learning_block, self.changes_target(a))
            for a, b in zip(cuts, [*cuts[1:], stop], strict=False)
        ]

    def exploration(self, steps: jax.Array | np.floating) -> jax.Array:
        """Epsilon after this many steps."""
        done = (steps - self.min_replay_steps) / max(self.exploration_decay_steps, 1)
        return 1.0 + (self.exploration_final - 1.0) * jnp.clip(done, 0.0, 1.0)

    def learner_rewards(self, rewards: jax.Array) -> jax.Array:
        """Rewards as the learner sees them."""
        return jnp.clip(rewards, -1.0, 1.0) if self.clip_rewards else rewards
