"""The loop for environments stepped from Python (Atari, Gymnasium): learning runs on while they are stepped.

Every iteration starts by resetting the environments with seeds derived from the run's seed and the iteration, because
their state cannot be saved: that is what makes a resumed run equal an uninterrupted one.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cramerl.deep import replay as replays
from cramerl.deep.compiling import compiler_options
from cramerl.deep.envs.base import EnvSpec, FrameStack, HostEnvs
from cramerl.deep.learner import Learner, LearnerState
from cramerl.deep.networks import Params
from cramerl.deep.replay import Batch, Drawn, HostFrames, Replay
from cramerl.deep.schedule import Schedule, Stream, stream
from cramerl.deep.totals import Totals, add, learned, no_totals

Array = jax.Array


class Outcome(NamedTuple):
    """What came of the last row's actions, not yet in the replay."""

    actions: Any
    rewards: Any
    terminated: Any


class HostSaved(NamedTuple):
    """What a checkpoint needs beside the counters and the replay's rows."""

    learner: LearnerState
    totals: Totals
    last_actions: Any


class HostLoop:
    """Runs blocks.

    Args:
        envs: the environments; they are reset by `begin_iteration`.
        learner: the learner.
        schedule: how much of what when.
        seed: of the run.
        frames_on_host: keep the replay's frames in the host's memory.
        launch_in_thread: launch the updates from a thread of their own, which pays where launching them takes long; by
            default on an accelerator.

    Attributes:
        block: blocks done.
        row: rows of the replay written: those of the blocks, and one at the end of each iteration.
        seconds: wall time spent stepping environments, waiting for actions, and waiting for the learner if
            ``watch_time`` is set (which costs a little of the overlap).
    """

    def __init__(
        self,
        envs: HostEnvs,
        learner: Learner,
        schedule: Schedule,
        seed: int,
        *,
        frames_on_host: bool = False,
        launch_in_thread: bool | None = None,
    ):
        self.envs, self.learner, self.schedule, self.seed = envs, learner, schedule, seed
        self.block = self.row = 0
        self.watch_time = False
        self.seconds = {"environment": 0.0, "acting": 0.0, "learning": 0.0}
        self._played, self._learned = _none(), no_totals()
        self._outcome = self._nothing()
        self._iteration = self._iteration_row = 0
        self._key = jax.random.key(seed)
        # On a CPU a convolution must not be in a loop, and many copies of it take long to compile.
        self._unroll = jax.default_backend() == "cpu"
        updates = schedule.updates_per_block
        self._updates_per_call = max(n for n in range(1, 9) if updates % n == 0) if self._unroll else updates
        self.state: LearnerState = jax.jit(learner.init)(stream(self._key, Stream.WEIGHTS))
        spec, rows, num_envs = envs.spec, schedule.replay_rows, schedule.num_envs
        self.host_frames = HostFrames(rows, num_envs, spec.frame_shape, spec.frame_dtype) if frames_on_host else None
        on_device = (0,) if frames_on_host else spec.frame_shape
        self.replay: Replay = replays.empty_replay(rows, num_envs, on_device, spec.frame_dtype)
        self._see = jax.jit(self._see_and_act, donate_argnums=0)
        self._close_row = jax.jit(self._see_last, donate_argnums=0)
        self._finish_last = jax.jit(self._finish, donate_argnums=0)
        self._draw = jax.jit(self._draw_batches)
        self._read = jax.jit(replays.read_batch)
        self._update = jax.jit(self._learn, compiler_options=compiler_options())
        self._draw_and_update = jax.jit(self._draw_and_learn, compiler_options=compiler_options())
        if launch_in_thread is None:
            launch_in_thread = jax.default_backend() != "cpu"
        self._launcher = ThreadPoolExecutor(1) if launch_in_thread else None
        self._launched: Future[None] | None = None

    def begin_iteration(self, iteration: int) -> None:
        """Reset the environments, with a seed of this iteration's own."""
        num_envs = self.schedule.num_envs
        seeds = np.random.SeedSequence([self.seed, iteration]).generate_state(1)
        self._frames = self.envs.reset(int(seeds[0]))
        self._first, self._last = np.ones(num_envs, bool), np.zeros(num_envs, bool)
        self._outcome = self._nothing()
        self._iteration, self._iteration_row = iteration, self.row
        self._returns, self._lengths = np.zeros(num_envs), np.zeros(num_envs, np.int64)
        self._stack = FrameStack(self.envs.spec, num_envs)

    def end_iteration(self) -> None:
        """Write the frames that are seen now, so that the last actions have an outcome; episodes are cut there."""
        self.replay = self._close_row(self.replay, np.int32(self.row), self._frames, self._first, self._outcome)
        if self.host_frames is not None:
            self.host_frames.write(self.row, self._frames)
        self.row += 1

    def advance(self, num_blocks: int, stop: Callable[[], bool] | None = None) -> int:
        """Run blocks of the current iteration, fewer if ``stop()`` says so, and add to the totals; how many it were."""
        first = self.block
        for start, end, learning, renew in self.schedule.segments(first, first + num_blocks):
            if renew:
                self.state = self.state._replace(target_params=self.state.params)
            for block in range(start, end):
                if stop is not None and stop():
                    self._wait_for_launch()
                    return self.block - first
                self._run_block(block, learning=learning)
                self.block += 1
            self._wait_for_launch()
        return num_blocks

    def take_totals(self) -> list[Totals]:
        """The sums since the last call, as NumPy numbers; and begin anew."""
        totals = self.peek_totals()
        self._played, self._learned = _none(), no_totals()
        return totals

    def peek_totals(self) -> list[Totals]:
        """The sums so far."""
        return [jax.tree.map(np.asarray, self._totals())]

    def save(self) -> HostSaved:
        """Everything but the counters and the replay's rows, of which the last is finished: rows are saved once."""
        if self.row > self._iteration_row:
            self.replay = self._finish_last(self.replay, np.int32(self.row), self._outcome)
        return HostSaved(self.state, self._totals(), self._outcome.actions)

    def load(self, state: HostSaved, counters: dict[str, int]) -> None:
        """Go on from what `save` gave; the replay's rows are put back first, by `write_rows`.

        In the middle of an iteration the environments are brought to where they were by taking the same actions.
        """
        self.state = jax.tree.map(jnp.asarray, state.learner)
        self._played = state.totals
        self._learned = no_totals()._replace(
            info=jax.tree.map(jnp.asarray, state.totals.info), blocks=jnp.asarray(state.totals.blocks)
        )
        self.block, self.row = counters["block"], counters["row"]
        self.begin_iteration(counters["iteration"])
        start = counters["iteration_row"]
        if self.row > start:
            past = np.asarray(self.replay.actions)[np.arange(start, self.row - 1) % self.schedule.replay_rows]
            for actions in [*past, np.asarray(state.last_actions)]:
                self._seen_on_host()
                self._take(actions, again=True)
        self._iteration_row = start

    @property
    def counters(self) -> dict[str, int]:
        """Where the run is."""
        return {
            "block": self.block,
            "row": self.row,
            "iteration": self._iteration,
            "iteration_row": self._iteration_row,
        }

    @property
    def can_pause(self) -> bool:
        """Whether it can be saved within an iteration: the replay must still hold the iteration's actions."""
        return self.row - self._iteration_row < self.schedule.replay_rows

    @property
    def spec(self) -> EnvSpec:
        """Of the environment."""
        return self.envs.spec

    @property
    def params(self) -> Params:
        """Weights."""
        return self.state.params

    @property
    def all_params(self) -> Params:
        """Weights: there is one lane."""
        return self.state.params

    def set_params(self, params: Params) -> None:
        """Begin from given weights."""
        params = jax.tree.map(jnp.asarray, params)
        self.state = self.state._replace(params=params, target_params=params)

    def read_rows(self, start: int, stop: int) -> dict[str, np.ndarray]:
        """Rows of the replay, time first."""
        return replays.read_rows(self._whole_replay(), start, stop)

    def write_rows(self, start: int, rows: dict[str, np.ndarray]) -> None:
        """Put rows back that `read_rows` gave."""
        if self.host_frames is not None:
            for i, frames in enumerate(rows["frames"]):
                self.host_frames.write(start + i, frames)
            rows = {**rows, "frames": np.zeros((*rows["frames"].shape[:2], 0), rows["frames"].dtype)}
        self.replay = replays.write_rows(self.replay, start, rows)

    def close(self) -> None:
        """Close the environments."""
        self.envs.close()
        if self._launcher is not None:
            self._launcher.shutdown()

    def _whole_replay(self) -> Replay:
        return self.replay if self.host_frames is None else self.replay._replace(frames=self.host_frames.frames)

    def _run_block(self, block: int, *, learning: bool) -> None:
        self._wait_for_launch()
        params, started = self.state.params, self.row
        if self.watch_time:
            self._timed("learning", lambda: jax.block_until_ready(params))
        for i in range(self.schedule.rows_per_block):
            actions = self._act(params, block)
            if i == 0 and learning:
                self._launch(block, started)
            chosen = self._timed("acting", lambda actions=actions: np.asarray(actions))
            self._timed("environment", lambda chosen=chosen: self._take(chosen))
            self.row += 1

    def _take(self, actions: np.ndarray, *, again: bool = False) -> None:
        """Step the environments; ``again`` if these steps have been counted before."""
        step = self.envs.step(actions)
        self._outcome = Outcome(actions, step.rewards, step.terminated)
        self._frames, self._first, self._last = step.frames, step.first, step.ended
        self._returns += step.rewards
        # The first frame of an episode took no step; the first frame of a life did.
        self._lengths += ~(step.first & ~step.terminated)
        if step.ended.any():
            if not again:
                self._played = self._played._replace(
                    episodes=self._played.episodes + step.ended.sum(),
                    returns=self._played.returns + self._returns[step.ended].sum(),
                    lengths=self._played.lengths + self._lengths[step.ended].sum(),
                )
            self._returns[step.ended] = self._lengths[step.ended] = 0

    def _act(self, params: Any, block: int) -> Array:
        """Write the row that is seen and choose actions there; on the device, not waited for."""
        steps = block * self.schedule.steps_per_block
        seen = self._seen_on_host()
        if self.host_frames is not None:
            self.host_frames.write(self.row, self._frames)
        words = _packed(self.row, steps, self._first, self._last, self._outcome)
        self._wait_for_launch()  # it reads the replay that is given away here
        self.replay, actions = self._see(self.replay, params, words, seen)
        return actions

    def _seen_on_host(self) -> np.ndarray:
        """What is seen now, stacked on the host where the frames are there."""
        return self._frames if self.host_frames is None else self._stack.push(self._frames, self._first)

    def _launch(self, block: int, row: int) -> None:
        """Start learning; the launch itself is waited for before anything of its result is used."""
        if self._launcher is None:
            self._start_learning(block, row)
        else:
            self._launched = self._launcher.submit(self._start_learning, block, row)

    def _wait_for_launch(self) -> None:
        if self._launched is not None:
            self._launched.result()
            self._launched = None

    def _start_learning(self, block: int, row: int) -> None:
        before, size = self.schedule.updates_before(block), self._updates_per_call
        if self.host_frames is None and size == self.schedule.updates_per_block:
            counts = np.array([block, row, before], np.int32)
            self.state, self._learned = self._draw_and_update(self.state, self.replay, self._learned, counts)
            return
        drawn = self._draw(self.replay, np.int32(block), np.int32(row))
        batches = self._read(self.replay, drawn) if self.host_frames is None else self._read_on_host(drawn)
        for start in range(0, self.schedule.updates_per_block, size):
            part = jax.tree.map(lambda x, start=start: x[start : start + size], batches)
            self.state, self._learned = self._update(self.state, part, self._learned, np.int32(before + start))

    def _totals(self) -> Totals:
        """The learner's sums, which live on the device, and those of the episodes, which are counted on the host."""
        return self._played._replace(info=self._learned.info, blocks=self._learned.blocks)

    def _read_on_host(self, drawn: Drawn) -> Batch:
        assert self.host_frames is not None
        frames = []
        for window in (drawn.window, drawn.next_window):
            stacked = self.host_frames.read(window.slots, window.envs)
            if window.keep is None:
                frames.append(jnp.asarray(stacked.reshape(stacked.shape[:2] + stacked.shape[3:])))
            else:
                frames.append(replays.stack_frames(jnp.asarray(stacked), window.keep))
        return Batch(frames[0], drawn.actions, drawn.rewards, drawn.discounts, frames[1], drawn.weights)

    def _timed(self, what: str, work: Any) -> Any:
        start = time.perf_counter()
        result = work()
        self.seconds[what] += time.perf_counter() - start
        return result

    def _nothing(self) -> Outcome:
        num_envs = self.schedule.num_envs
        return Outcome(np.zeros(num_envs, np.int32), np.zeros(num_envs, np.float32), np.zeros(num_envs, bool))

    # Compiled parts.

    def _see_and_act(self, replay: Replay, params: Any, words: Array, seen: Array) -> tuple[Replay, Array]:
        row, steps, first, last, outcome = _unpacked(words)
        replay = self._finish(replay, row, outcome)
        replay = replays.begin_row(replay, row, seen, first, last)
        num_envs, stack = self.schedule.num_envs, self.envs.spec.stack
        if stack > 1 and self.host_frames is None:
            window = replays.observation_window(replay, jnp.full(num_envs, row), jnp.arange(num_envs), stack)
            seen = replays.read_observations(replay, window)
        key = stream(self._key, Stream.ACT, row)
        return replay, self.learner.act(params, seen, self.schedule.exploration(steps), key)

    def _see_last(self, replay: Replay, row: Array, frames: Array, first: Array, outcome: Outcome) -> Replay:
        replay = self._finish(replay, row, outcome)
        replay = replays.begin_row(replay, row, frames, first, jnp.ones_like(first))
        return self._finish(replay, row + 1, self._nothing())

    def _finish(self, replay: Replay, row: Array, outcome: Outcome) -> Replay:
        actions, rewards, terminated = (jnp.asarray(x) for x in outcome)
        return replays.finish_row(replay, row - 1, actions, self.schedule.learner_rewards(rewards), terminated)

    def _draw_batches(self, replay: Replay, block: Array, row: Array) -> Drawn:
        schedule = self.schedule
        return replays.draw(
            stream(self._key, Stream.SAMPLE, block),
            replay,
            row,
            (schedule.updates_per_block, schedule.batch_size),
            stack=self.envs.spec.stack,
            n_step=schedule.n_step,
            discount=schedule.discount,
        )

    def _draw_and_learn(
        self, state: LearnerState, replay: Replay, totals: Totals, counts: Array
    ) -> tuple[LearnerState, Totals]:
        block, row, before = counts
        batches = replays.read_batch(replay, self._draw_batches(replay, block, row))
        return self._learn(state, batches, totals, before)

    def _learn(self, state: LearnerState, batches: Batch, totals: Totals, before: Array) -> tuple[LearnerState, Totals]:
        state, info = self.learner.learn(state, batches, unroll=self._unroll)
        return state, add(totals, learned(info, before))


def _packed(row: int, steps: int, first: Any, last: Any, outcome: Outcome) -> np.ndarray:
    """One array of 32-bit words, because each one that is sent to a device costs time."""
    rewards = np.asarray(outcome.rewards, np.float32).view(np.int32)
    return np.concatenate([[row, steps], first, last, outcome.terminated, outcome.actions, rewards]).astype(np.int32)


def _unpacked(words: Array) -> tuple[Array, Array, Array, Array, Outcome]:
    """What `_packed` was given."""
    first, last, terminated, actions, rewards = words[2:].reshape(5, -1)
    rewards = jax.lax.bitcast_convert_type(rewards, jnp.float32)
    return words[0], words[1], first != 0, last != 0, Outcome(actions, rewards, terminated != 0)


def _none() -> Totals:
    """Nothing yet; sums of episodes in double precision."""
    return no_totals()._replace(episodes=np.int64(0), returns=np.float64(0), lengths=np.int64(0))
