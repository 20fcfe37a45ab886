"""The loop for environments that are JAX programs: playing, replay and updates in one compiled program.

A lane is one run: its own seed, weights, replay and environments. Several lanes run at once by ``vmap``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cramerl.deep import replay as replays
from cramerl.deep.block_totals import Totals, add, ended, learned, no_totals
from cramerl.deep.envs.base import EnvSpec
from cramerl.deep.envs.gymnax import CompiledState, GymnaxEnv
from cramerl.deep.learner import Learner, LearnerState, LearnInfo
from cramerl.deep.networks import Params
from cramerl.deep.schedule import Schedule, Stream, stream

Array = jax.Array
_WRITTEN_OUT = 8  # steps and updates of a block up to this number are compiled one after another, more as a loop


class Lane(NamedTuple):
    """Everything one run needs to go on."""

    learner: LearnerState
    replay: Any  # a Replay
    env: CompiledState
    frames: Array  # (N, *frame), what is seen now
    first: Array  # (N,), it starts an episode
    last: Array  # (N,), it ends one
    episode_return: Array  # (N,) so far
    episode_length: Array


class CompiledLoop:
    """Runs blocks.

    Args:
        env: the environment.
        learner: the learner.
        schedule: how much of what when.
        seeds: one for each lane.
        learning_rates: one for each lane, instead of the learner's.
        mass_penalties: likewise, of s51.
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
        self._keys = self._each(jax.random.key)(jnp.asarray(seeds) if self._many else seeds[0])
        self.lanes: Lane = jax.jit(self._each(self._start))(self._keys)
        for name, values in (("learning_rate", learning_rates), ("mass_penalty", mass_penalties)):
            if values is not None:
                each = jnp.asarray(values if self._many else values[0], dtype=jnp.float32)
                self.lanes = self.lanes._replace(learner=self.lanes.learner._replace(**{name: each}))
        self._none = jax.tree.map(lambda x: jnp.full(len(seeds), x) if self._many else x, no_totals())
        self.totals: Totals = self._none
        self._run = jax.jit(self._blocks, static_argnames="learning", donate_argnums=0)
        self._renew = jax.jit(lambda p: jax.tree.map(jnp.copy, p))

    def advance(self, num_blocks: int, stop: Callable[[], bool] | None = None) -> int:
        """Run blocks and add to the totals; the number that was run, which is all of them: ``stop`` is not asked."""
        for start, end, learning, renew in self.schedule.segments(self.block, self.block + num_blocks):
            if renew:
                learner = self.lanes.learner
                learner = learner._replace(target_params=self._renew(learner.params))
                self.lanes = self.lanes._replace(learner=learner)
            block, until = jnp.int32(start), jnp.int32(end)
            self.lanes, self.totals = self._run(self.lanes, self.totals, self._keys, block, until, learning=learning)
        self.block += num_blocks
        return num_blocks

    def take_totals(self) -> list[Totals]:
        """The sums since the last call, of each lane, as NumPy numbers; and begin anew."""
        totals, self.totals = self.peek_totals(), self._none
        return totals

    def peek_totals(self) -> list[Totals]:
        """The sums so far."""
        totals = jax.tree.map(np.asarray, self.totals)
        return [jax.tree.map(lambda x, i=i: x[i], totals) if self._many else totals for i in range(len(self.seeds))]

    @property
    def row(self) -> int:
        """Rows of the replay written."""
        return self.block * self.schedule.rows_per_block

    def begin_iteration(self, iteration: int) -> None:
        """Nothing: these environments go on where they were, their state is saved."""

    def end_iteration(self) -> None:
        """Nothing, see `begin_iteration`."""

    def save(self) -> tuple[Lane, Totals]:
        """Everything but the counters and the replay's rows."""
        return self.lanes._replace(replay=()), self.totals

    def load(self, state: tuple[Lane, Totals], counters: dict[str, int]) -> None:
        """Go on from what `save` gave; the replay's rows are put back first, by `write_rows`."""
        lanes, self.totals = jax.tree.map(jnp.asarray, state)
        self.lanes = lanes._replace(replay=self.lanes.replay)
        self.block = counters["block"]

    @property
    def counters(self) -> dict[str, int]:
        """Where the run is."""
        return {"block": self.block, "row": self.row}

    @property
    def can_pause(self) -> bool:
        """Whether it can be saved between iterations too."""
        return True

    @property
    def spec(self) -> EnvSpec:
        """Of the environment."""
        return self.env.spec

    @property
    def params(self) -> Params:
        """Weights of the first lane."""
        params = self.lanes.learner.params
        return jax.tree.map(lambda x: x[0], params) if self._many else params

    @property
    def all_params(self) -> Params:
        """Weights of all lanes."""
        return self.lanes.learner.params

    def set_params(self, params: Params) -> None:
        """Begin from given weights, in every lane."""
        learner = self.lanes.learner

        def copy(old: Array, new: Any) -> Array:
            return jnp.array(jnp.broadcast_to(jnp.asarray(new, dtype=old.dtype), old.shape))

        params, target = (jax.tree.map(copy, learner.params, params) for _ in range(2))
        self.lanes = self.lanes._replace(learner=learner._replace(params=params, target_params=target))

    def read_rows(self, start: int, stop: int) -> dict[str, np.ndarray]:
        """Rows of the replay, time first."""
        return replays.read_rows(self.lanes.replay, start, stop, time_axis=int(self._many))

    def write_rows(self, start: int, rows: dict[str, np.ndarray]) -> None:
        """Put rows back that `read_rows` gave."""
        self.lanes = self.lanes._replace(
            replay=replays.write_rows(self.lanes.replay, start, rows, time_axis=int(self._many))
        )

    def close(self) -> None:
        """Nothing to free."""

    def _each(self, function: Any, in_axes: Any = 0) -> Any:
        return jax.vmap(function, in_axes=in_axes) if self._many else function

    def _start(self, key: Array) -> Lane:
        num_envs, spec = self.schedule.num_envs, self.env.spec
        env, frames = jax.vmap(self.env.reset)(jax.random.split(stream(key, Stream.START), num_envs))
        none = jnp.zeros(num_envs, dtype=bool)
        return Lane(
            learner=self.learner.init(stream(key, Stream.WEIGHTS)),
            replay=replays.empty_replay(self.schedule.replay_rows, num_envs, spec.frame_shape, spec.frame_dtype),
            env=env,
            frames=frames,
            first=~none,
            last=none,
            episode_return=jnp.zeros(num_envs, dtype=jnp.float32),
            episode_length=jnp.zeros(num_envs, dtype=jnp.int32),
        )

    def _blocks(
        self, lanes: Lane, totals: Totals, keys: Array, start: Array, stop: Array, *, learning: bool
    ) -> tuple[Lane, Totals]:
        one = self._each(partial(self._block, learning=learning), in_axes=(0, 0, None))

        def body(block: Array, carry: tuple[Lane, Totals]) -> tuple[Lane, Totals]:
            lanes, part = one(carry[0], keys, block)
            return lanes, add(carry[1], part)

        return jax.lax.fori_loop(start, stop, body, (lanes, totals))

    def _block(self, lane: Lane, key: Array, block: Array, *, learning: bool) -> tuple[Lane, Totals]:
        row = block * self.schedule.rows_per_block
        params, totals = lane.learner.params, no_totals()
        # Playing comes first because it writes to the ring: the other way round XLA would copy the ring to be safe.
        if self.schedule.rows_per_block <= _WRITTEN_OUT:
            for i in range(self.schedule.rows_per_block):
                lane, part = self._play(lane, params, key, row + i)
                totals = add(totals, part)
        else:

            def play(i: Array, carry: tuple[Lane, Totals]) -> tuple[Lane, Totals]:
                lane, part = self._play(carry[0], params, key, row + i)
                return lane, add(carry[1], part)

            lane, totals = jax.lax.fori_loop(0, self.schedule.rows_per_block, play, (lane, totals))
        if learning:
            lane, info = self._learn(lane, stream(key, Stream.SAMPLE, block), row)
            totals = add(totals, learned(info, self.schedule.updates_before(block)))
        return lane, totals

    def _learn(self, lane: Lane, key: Array, row: Array) -> tuple[Lane, LearnInfo]:
        schedule = self.schedule
        shape = (schedule.updates_per_block, schedule.batch_size)
        stack, n_step, discount = self.env.spec.stack, schedule.n_step, schedule.discount
        drawn = replays.draw(
            key,
            lane.replay,
            row,
            shape,
            stack=stack,
            n_step=n_step,
            discount=discount,
            newer_rows=schedule.rows_per_block,
        )
        batches = replays.read_batch(lane.replay, drawn)
        learner, info = self.learner.learn(lane.learner, batches, unroll=schedule.updates_per_block <= _WRITTEN_OUT)
        return lane._replace(learner=learner), info

    def _play(self, lane: Lane, params: Any, key: Array, row: Array) -> tuple[Lane, Totals]:
        """One step of every environment."""
        schedule, num_envs = self.schedule, self.schedule.num_envs
        act_key = stream(key, Stream.ACT, row)
        step_keys = jax.random.split(stream(key, Stream.STEP, row), num_envs)
        replay = replays.begin_row(lane.replay, row, lane.frames, lane.first, lane.last)
        if self.env.spec.stack == 1:
            seen = lane.frames
        else:
            window = replays.observation_window(
                replay, jnp.full(num_envs, row), jnp.arange(num_envs), self.env.spec.stack
            )
            seen = replays.read_observations(replay, window)
        actions = self.learner.act(params, seen, schedule.exploration(row * num_envs), act_key)
        env, step = jax.vmap(self.env.step)(step_keys, lane.env, actions)
        rewards = schedule.learner_rewards(step.rewards)
        replay = replays.finish_row(replay, row, actions, rewards, step.terminated)
        returns = lane.episode_return + step.rewards
        lengths = lane.episode_length + (~step.first).astype(jnp.int32)
        lane = Lane(
            learner=lane.learner,
            replay=replay,
            env=env,
            frames=step.frames,
            first=step.first,
            last=step.ended,
            episode_return=jnp.where(step.ended, 0.0, returns),
            episode_length=jnp.where(step.ended, 0, lengths),
        )
        return lane, ended(step.ended, returns, lengths)
