"""The loop for environments that are JAX programs: playing, replay and updates are one compiled program.

A lane is one run with its own seed, weights, replay and environments. Several lanes run at once by ``vmap``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cramerl.deep import replay as replays
from cramerl.deep.block_totals import BlockTotals, add, ended, learned, no_totals
from cramerl.deep.envs.base import EnvSpec
from cramerl.deep.envs.gymnax import CompiledState, GymnaxEnv
from cramerl.deep.episodes import (
    Episodes,
    Running,
    count_step,
    empty_record,
    join,
    read_record,
    record_rows,
    start_running,
)
from cramerl.deep.learner import Learner, LearnerState, LearnInfo, with_params
from cramerl.deep.networks import Params
from cramerl.deep.schedule import Schedule, Segment, Stream, stream

Array = jax.Array
# Up to this many rows or updates of a block are compiled one after another, which XLA runs faster; more are compiled as
# a loop, which XLA compiles faster.
_MOST_UNROLLED = 8


class Lane(NamedTuple):
    """The state of one run.

    Attributes:
        learner: weights and optimiser.
        replay: a `Replay`; () in a checkpoint, whose rows are saved apart.
        env: the environments' states.
        frames: (N, *frame), seen now.
        first: (N,), whether they start an episode.
        last: (N,), whether they end one.
        running: the episodes so far.
        record: the episodes that ended; () in a checkpoint, before which `CompiledLoop.take_episodes` is called.
    """

    learner: LearnerState
    replay: Any
    env: CompiledState
    frames: Array
    first: Array
    last: Array
    running: Running
    record: Any


class CompiledProgram:
    """The compiled functions of a `CompiledLoop`, which depend on these arguments only: see `compiled_program`."""

    def __init__(self, env: GymnaxEnv, learner: Learner, schedule: Schedule, *, many: bool):
        self.env, self.learner, self.schedule, self._many = env, learner, schedule, many
        self.start = jax.jit(self.each(self._start))
        # The lanes are donated: the program writes to the replay in place instead of copying it.
        self.run = jax.jit(self._blocks, static_argnames="learning", donate_argnums=0)
        find = partial(learner.find_support, discount=schedule.discount)
        self.find_support = jax.jit(self.each(find, in_axes=(0, 0, None)))
        self.change_target = jax.jit(self.each(learner.change_target))

    def each(self, function: Any, in_axes: Any = 0) -> Any:
        """The function for all lanes. One lane has no axis: its program is that of a single run."""
        return jax.vmap(function, in_axes=in_axes) if self._many else function

    def _start(self, key: Array) -> Lane:
        num_envs, spec = self.schedule.num_envs, self.env.spec
        env, frames = jax.vmap(self.env.reset)(jax.random.split(stream(key, Stream.START), num_envs))
        no = jnp.zeros(num_envs, dtype=bool)
        return Lane(
            learner=self.learner.init(stream(key, Stream.WEIGHTS)),
            replay=replays.empty_replay(self.schedule.replay_rows, num_envs, spec.frame_shape, spec.frame_dtype),
            env=env,
            frames=frames,
            first=~no,
            last=no,
            running=start_running(num_envs),
            record=empty_record(self.schedule),
        )

    def _blocks(
        self, lanes: Lane, totals: BlockTotals, keys: Array, start: Array, stop: Array, *, learning: bool
    ) -> tuple[Lane, BlockTotals]:
        # Where a segment starts and stops are arguments, so one program runs segments of every length.
        one = self.each(partial(self._block, learning=learning), in_axes=(0, 0, None))

        def body(block: Array, carry: tuple[Lane, BlockTotals]) -> tuple[Lane, BlockTotals]:
            lanes, part = one(carry[0], keys, block)
            return lanes, add(carry[1], part)

        return jax.lax.fori_loop(start, stop, body, (lanes, totals))

    def _block(self, lane: Lane, key: Array, block: Array, *, learning: bool) -> tuple[Lane, BlockTotals]:
        rows = self.schedule.rows_per_block
        first_row, params, totals = block * rows, lane.learner.params, no_totals()

        def play(i: Array | int, carry: tuple[Lane, BlockTotals]) -> tuple[Lane, BlockTotals]:
            lane, part = self._play(carry[0], params, key, first_row + i)
            return lane, add(carry[1], part)

        # Playing comes first because it writes to the ring: if learning read it first, XLA would copy the ring.
        if rows <= _MOST_UNROLLED:
            for i in range(rows):
                lane, totals = play(i, (lane, totals))
        else:
            lane, totals = jax.lax.fori_loop(0, rows, play, (lane, totals))
        if learning:
            lane, info = self._learn(lane, key, block)
            totals = add(totals, learned(info, self.schedule.updates_before(block)))
        return lane, totals

    def _learn(self, lane: Lane, key: Array, block: Array) -> tuple[Lane, LearnInfo]:
        rows, updates = self.schedule.rows_per_block, self.schedule.updates_per_block
        # The rows just played are not drawn: a block learns from the replay as it was when the block began.
        drawn = replays.draw_block(key, lane.replay, block, block * rows, self.schedule, stack=1, newer_rows=rows)
        batches = replays.read_batch(lane.replay, drawn)
        learner, info = self.learner.learn(lane.learner, batches, unroll=updates <= _MOST_UNROLLED)
        return lane._replace(learner=learner), info

    def _play(self, lane: Lane, params: Any, key: Array, row: Array) -> tuple[Lane, BlockTotals]:
        """One row: a step of every environment."""
        schedule, num_envs = self.schedule, self.schedule.num_envs
        step_keys = jax.random.split(stream(key, Stream.STEP, row), num_envs)
        replay = replays.begin_row(lane.replay, row, lane.frames, lane.first, lane.last)
        epsilon = schedule.exploration(row * num_envs)
        actions = self.learner.act(params, lane.frames, epsilon, stream(key, Stream.ACT, row))
        env, step = jax.vmap(self.env.step)(step_keys, lane.env, actions)
        rewards = schedule.learner_rewards(step.rewards)
        replay = replays.finish_row(replay, row, actions, rewards, step.terminated)
        running, record, returns, lengths = count_step(lane.running, lane.record, row, step, rewards, schedule.discount)
        lane = Lane(
            learner=lane.learner,
            replay=replay,
            env=env,
            frames=step.frames,
            first=step.first,
            last=step.ended,
            running=running,
            record=record,
        )
        return lane, ended(step.ended, returns, lengths)


# One program for equal arguments: runs of one process that differ only in their seeds are traced and compiled once.
compiled_program = lru_cache(maxsize=8)(CompiledProgram)


class CompiledLoop:
    """The `Loop` of gymnax's environments.

    Args:
        env: the environment.
        learner: the learner.
        schedule: block size, update ratio, exploration and target-network periods.
        seeds: one for each lane.
        learning_rates: one for each lane, instead of the learner's.
        mass_penalties: one for each lane, instead of the s51 head's.
    """

    def __init__(
        self,
        env: GymnaxEnv,
        learner: Learner,
        schedule: Schedule,
        seeds: list[int],
        learning_rates: list[float] | None = None,
        mass_penalties: list[float] | None = None,
    ):
        self.env, self.learner, self.schedule, self.seeds = env, learner, schedule, seeds
        self.block = 0
        self._many = len(seeds) > 1
        self._program = compiled_program(env, learner, schedule, many=self._many)
        self._keys = self._program.each(jax.random.key)(jnp.asarray(seeds) if self._many else seeds[0])
        self.lanes: Lane = self._program.start(self._keys)
        for name, values in (("learning_rate", learning_rates), ("mass_penalty", mass_penalties)):
            if values is not None:
                each = jnp.asarray(values if self._many else values[0], dtype=jnp.float32)
                self._set_learner(self.lanes.learner._replace(**{name: each}))
        self._zero = jax.tree.map(lambda x: jnp.full(len(seeds), x) if self._many else x, no_totals())
        self.totals: BlockTotals = self._zero
        self._read_row = 0  # rows whose episodes have been read
        self._ended: list[list[Episodes]] = [[] for _ in seeds]

    def advance(self, num_blocks: int, stop: Callable[[], bool] | None = None) -> int:
        """Run all the blocks; ``stop`` is not asked, because a segment is one call of a compiled program."""
        for segment in self.schedule.segments(self.block, self.block + num_blocks):
            if segment.starts_learning and self.learner.support == "own":
                written = jnp.int32(segment.start * self.schedule.rows_per_block)
                self._set_learner(self._program.find_support(self.lanes.learner, self.lanes.replay, written))
            if segment.changes_target:
                self._set_learner(self._program.change_target(self.lanes.learner))
            for first, until in self._parts(segment):
                self.lanes, self.totals = self._program.run(
                    self.lanes, self.totals, self._keys, jnp.int32(first), jnp.int32(until), learning=segment.learns
                )
                self.block = until
        return num_blocks

    def time_updates(self) -> None:
        """Playing and learning are one program, which writes over what it is given: it cannot run on the side."""

    def _parts(self, segment: Segment) -> Iterator[tuple[int, int]]:
        """Cut a segment where the record of episodes is full, and read the record there."""
        kept, start = record_rows(self.schedule) // self.schedule.rows_per_block, segment.start
        while start < segment.stop:
            room = kept - (start - self._read_row // self.schedule.rows_per_block)
            if room == 0:
                self._read_episodes()
                room = kept
            stop = min(start + room, segment.stop)
            yield start, stop
            start = stop

    def _read_episodes(self) -> None:
        record = jax.tree.map(np.asarray, self.lanes.record)
        for lane, parts in enumerate(self._ended):
            one = jax.tree.map(lambda x, lane=lane: x[lane], record) if self._many else record
            parts.append(read_record(one, self._read_row, self.row))
        self._read_row = self.row

    def take_episodes(self) -> list[Episodes]:
        """See `Loop`."""
        self._read_episodes()
        found, self._ended = [join(parts) for parts in self._ended], [[] for _ in self.seeds]
        return found

    def take_totals(self) -> list[BlockTotals]:
        """See `Loop`."""
        totals, self.totals = self.peek_totals(), self._zero
        return totals

    def peek_totals(self) -> list[BlockTotals]:
        """See `Loop`."""
        totals = jax.tree.map(np.asarray, self.totals)
        return [jax.tree.map(lambda x, i=i: x[i], totals) if self._many else totals for i in range(len(self.seeds))]

    @property
    def row(self) -> int:
        """See `Loop`."""
        return self.block * self.schedule.rows_per_block

    def begin_iteration(self, iteration: int) -> None:
        """Do nothing: these environments continue where they were, because their state is saved."""

    def end_iteration(self) -> None:
        """Do nothing; see `begin_iteration`."""

    def save(self) -> tuple[Lane, BlockTotals]:
        """See `Loop`."""
        return self.lanes._replace(replay=(), record=()), self.totals

    def load(self, state: tuple[Lane, BlockTotals], counters: dict[str, int]) -> None:
        """See `Loop`."""
        lanes, self.totals = jax.tree.map(jnp.asarray, state)
        self.lanes = lanes._replace(replay=self.lanes.replay, record=self.lanes.record)
        self.block = counters["block"]
        self._read_row = self.row

    @property
    def counters(self) -> dict[str, int]:
        """See `Loop`."""
        return {"block": self.block, "row": self.row}

    @property
    def can_pause(self) -> bool:
        """Always: see `begin_iteration`."""
        return True

    @property
    def spec(self) -> EnvSpec:
        """See `Loop`."""
        return self.env.spec

    @property
    def params(self) -> Params:
        """See `Loop`."""
        return jax.tree.map(lambda x: x[0], self.all_params) if self._many else self.all_params

    @property
    def all_params(self) -> Params:
        """See `Loop`."""
        return self.lanes.learner.params

    def set_params(self, params: Params) -> None:
        """See `Loop`."""
        self._set_learner(with_params(self.lanes.learner, params))

    def read_rows(self, start: int, stop: int) -> dict[str, np.ndarray]:
        """See `Loop`."""
        return replays.read_rows(self.lanes.replay, start, stop, time_axis=int(self._many))

    def write_rows(self, start: int, rows: dict[str, np.ndarray]) -> None:
        """See `Loop`."""
        replay = replays.write_rows(self.lanes.replay, start, rows, time_axis=int(self._many))
        self.lanes = self.lanes._replace(replay=replay)

    def close(self) -> None:
        """Do nothing: there is nothing to free."""

    def _set_learner(self, learner: LearnerState) -> None:
        self.lanes = self.lanes._replace(learner=learner)
