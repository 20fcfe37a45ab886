"""Environments that are stepped together, what is seen in them, and the episodes they finish."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np

from cramerl.deep.envs.base import FrameStack, HostEnvs, Step


class Outcome(NamedTuple):
    """The last row's actions and what they led to, before it is written to the replay."""

    actions: Any
    rewards: Any
    terminated: Any


class Ended(NamedTuple):
    """What ended in one step.

    Attributes:
        envs: (M,) indices of the environments whose episodes ended, among all of the run.
        returns: (M,) their returns, in the game's own points.
        lengths: (M,) their lengths, in steps.
        realised: (P,) discounted returns that ended, as the learner sees rewards: of episodes, or of lives.
    """

    envs: np.ndarray
    returns: np.ndarray
    lengths: np.ndarray
    realised: np.ndarray


class EnvGroup:
    """Some of a run's environments.

    A run with two groups steps one in a thread while it chooses actions for the other, so that the emulator does not
    wait for the device. `start` and `finish` must alternate and be called from one thread: then that thread alone
    touches the attributes, and the stepping thread only the environments.

    Args:
        envs: the environments.
        column: index of the first of them among all environments of the run.
        in_thread: step them in a thread.
        discount: gamma, for realised returns.
        clip_rewards: whether the learner sees rewards clipped to [-1, 1].

    Attributes:
        frames: what is seen now.
        first: whether they start an episode.
        last: whether they end one.
        outcome: of the last actions.
    """

    def __init__(
        self, envs: HostEnvs, column: int, *, in_thread: bool, discount: float = 1.0, clip_rewards: bool = False
    ):
        self.envs, self.column, self.num_envs = envs, column, envs.num_envs
        self._discount, self._clip_rewards = discount, clip_rewards
        self._thread = ThreadPoolExecutor(1) if in_thread else None
        self._running: Future[Step] | None = None
        self._done: Step | None = None
        self.outcome = self._nothing()

    @property
    def columns(self) -> slice:
        """Their indices among all environments of the run."""
        return slice(self.column, self.column + self.num_envs)

    def reset(self, seed: int) -> None:
        """Reset all environments."""
        self.frames = self.envs.reset(seed)
        self.first, self.last = np.ones(self.num_envs, bool), np.zeros(self.num_envs, bool)
        self.outcome = self._nothing()
        self._returns, self._lengths = np.zeros(self.num_envs), np.zeros(self.num_envs, np.int64)
        self._discounted, self._weight = np.zeros(self.num_envs), np.ones(self.num_envs)
        self._stack = FrameStack(self.envs.spec, self.num_envs)

    def stacked(self) -> np.ndarray:
        """What is seen now, stacked with earlier frames; call it once after each step."""
        return self._stack.push(self.frames, self.first)

    def start(self, actions: np.ndarray) -> None:
        """Start a step; `finish` waits for it."""
        self.outcome = self.outcome._replace(actions=actions)
        if self._thread is None:
            self._done = self.envs.step(actions)
        else:
            self._running = self._thread.submit(self.envs.step, actions)

    def finish(self) -> Ended | None:
        """Wait for the step that was started, if any. Returns what it ended, or None."""
        if self._running is not None:
            self._done, self._running = self._running.result(), None
        if self._done is None:
            return None
        step, self._done = self._done, None
        self.outcome = Outcome(self.outcome.actions, step.rewards, step.terminated)
        self.frames, self.first, self.last = step.frames, step.first, step.ended
        self._returns += step.rewards
        # The first frame of an episode took no step, but the first frame of a life did.
        self._lengths += ~(step.first & ~step.terminated)
        realised = self._realised(step)
        return self._take(step.ended, realised) if len(realised) else None

    def cut(self) -> Ended:
        """The episodes that are running, which the next `reset` cuts."""
        return self._take(self._lengths > 0, np.zeros(0))

    def _take(self, over: np.ndarray, realised: np.ndarray) -> Ended:
        ended = Ended(self.column + np.flatnonzero(over), self._returns[over], self._lengths[over], realised)
        self._returns[over] = self._lengths[over] = 0
        return ended

    def _realised(self, step: Step) -> np.ndarray:
        """The discounted returns that a step ends."""
        rewards = np.clip(step.rewards, -1, 1) if self._clip_rewards else step.rewards
        self._discounted += self._weight * rewards
        ends = step.terminated | step.ended
        realised, restarts = self._discounted[ends], ends | step.first
        self._discounted[restarts] = 0
        self._weight = np.where(restarts, 1, self._weight * self._discount)
        return realised

    def close(self) -> None:
        """Wait for the step that was started, then close the environments."""
        if self._thread is not None:
            self._thread.shutdown()
        self.envs.close()

    def _nothing(self) -> Outcome:
        size = self.num_envs
        return Outcome(np.zeros(size, np.int32), np.zeros(size, np.float32), np.zeros(size, bool))
