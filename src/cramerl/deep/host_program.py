"""The compiled functions of `HostLoop`."""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp

from cramerl.deep import replay as replays
from cramerl.deep.block_totals import BlockTotals, add, learned
from cramerl.deep.env_group import Outcome
from cramerl.deep.envs.base import EnvSpec
from cramerl.deep.learner import Learner, LearnerState
from cramerl.deep.replay import Batch, Drawn, Replay
from cramerl.deep.schedule import Schedule, Stream, stream

Array = jax.Array
# One CUDA graph for the whole loop of updates, whose independent kernels run side by side: a kernel of these small
# networks takes microseconds, about as long as launching it.
_CUDA_GRAPHS = {
    "xla_gpu_enable_command_buffer": "FUSION,CUBLAS,CUBLASLT,CUDNN,CUSTOM_CALL,WHILE,CONDITIONAL,DYNAMIC_SLICE_FUSION",
    "xla_gpu_command_buffer_scheduling_mode": "CONCURRENT",
}


def compiler_options() -> dict[str, Any] | None:
    """Options of ``jax.jit`` for programs of many small kernels."""
    return _CUDA_GRAPHS if jax.default_backend() == "gpu" else None


def unrolled() -> bool:
    """Whether updates are unrolled: on a CPU, where XLA runs a convolution in a scan many times slower than outside."""
    return jax.default_backend() == "cpu"


class HostProgram:
    """The compiled functions of a `HostLoop`, which depend on these arguments only: see `host_program`.

    The replay is donated wherever it is returned: its arrays are written in place instead of being copied for each row.
    """

    def __init__(
        self, learner: Learner, schedule: Schedule, spec: EnvSpec, *, frames_on_host: bool, updates_per_call: int
    ):
        self.learner, self.schedule, self.spec = learner, schedule, spec
        self.frames_on_host, self.updates_per_call = frames_on_host, updates_per_call
        self.init = jax.jit(learner.init)
        self.see_and_act = jax.jit(self._see_and_act, donate_argnums=0)
        self.see_last = jax.jit(self._see_last, donate_argnums=0)
        self.finish_row = jax.jit(self._finish_row, donate_argnums=0)
        self.find_support = jax.jit(partial(learner.find_support, discount=schedule.discount))
        self.change_target = jax.jit(learner.change_target)
        self.draw = jax.jit(self._draw)
        self.learn = jax.jit(self._learn, compiler_options=compiler_options())
        self.draw_and_learn = jax.jit(self._draw_and_learn, compiler_options=compiler_options())

    def _see_and_act(self, replay: Replay, params: Any, key: Array, words: Array, seen: Array) -> tuple[Replay, Array]:
        row, steps, column, first, last, outcome = _unpack(words)
        replay = self._finish(replay, row, column, outcome)
        replay = replays.begin_row(replay, row, seen, first, last, column)
        size, num_envs, stack = len(first), self.schedule.num_envs, self.spec.stack
        if stack > 1 and not self.frames_on_host:
            envs = column + jnp.arange(size, dtype=jnp.int32)
            window = replays.observation_window(replay, jnp.full(size, row), envs, stack)
            seen = replays.read_observations(replay, window)
        key, among = stream(key, Stream.ACT, row), None if size == num_envs else (num_envs, column)
        return replay, self.learner.act(params, seen, self.schedule.exploration(steps), key, among)

    def _see_last(self, replay: Replay, words: Array, frames: Array) -> Replay:
        row, _, column, first, _, outcome = _unpack(words)
        replay = self._finish(replay, row, column, outcome)
        replay = replays.begin_row(replay, row, frames, first, jnp.ones_like(first), column)
        nothing = jax.tree.map(jnp.zeros_like, outcome)
        return self._finish(replay, row + 1, column, nothing)

    def _finish_row(self, replay: Replay, words: Array) -> Replay:
        row, _, column, _, _, outcome = _unpack(words)
        return self._finish(replay, row, column, outcome)

    def _finish(self, replay: Replay, row: Array, column: Array, outcome: Outcome) -> Replay:
        rewards = self.schedule.learner_rewards(outcome.rewards)
        return replays.finish_row(replay, row - 1, outcome.actions, rewards, outcome.terminated, column)

    def _draw(self, key: Array, replay: Replay, block: Array, row: Array) -> Drawn:
        return replays.draw_block(key, replay, block, row, self.schedule, stack=self.spec.stack)

    def _draw_and_learn(
        self, state: LearnerState, replay: Replay, totals: BlockTotals, key: Array, counts: Array
    ) -> tuple[LearnerState, BlockTotals]:
        block, row, before, start = counts
        drawn = replays.part_of(self._draw(key, replay, block, row), start, self.updates_per_call)
        return self._learn(state, replays.read_batch(replay, drawn), totals, before + start)

    def _learn(
        self, state: LearnerState, batches: Batch, totals: BlockTotals, before: Array
    ) -> tuple[LearnerState, BlockTotals]:
        state, info = self.learner.learn(state, batches, unroll=unrolled())
        return state, add(totals, learned(info, before))


# One program for equal arguments: runs of one process that differ only in their seeds are traced and compiled once.
host_program = lru_cache(maxsize=8)(HostProgram)


def _unpack(words: Array) -> tuple[Array, Array, Array, Array, Array, Outcome]:
    """Row, steps, column, first, last and outcome from `HostLoop._pack`."""
    first, last, terminated, actions, rewards = words[3:].reshape(5, -1)
    rewards = jax.lax.bitcast_convert_type(rewards, jnp.float32)
    return words[0], words[1], words[2], first != 0, last != 0, Outcome(actions, rewards, terminated != 0)
