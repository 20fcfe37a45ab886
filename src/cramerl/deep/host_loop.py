"""The loop for environments stepped from Python (Atari, Gymnasium): learning overlaps with stepping.

The state of these environments cannot be saved. A trainer whose run can be resumed therefore resets them at the start
of every iteration, with seeds derived from the run's seed and the iteration: this makes a resumed run equal an
uninterrupted one. Elsewhere they go on.

How the work overlaps. JAX calls return before the device has computed anything. A block therefore chooses actions for a
group of environments, launches the block's updates behind them, and steps the group while the device learns. With two
groups (double buffering) one is stepped in a thread while actions are chosen for the other. Launching itself takes long
on an accelerator, whose programs are many small kernels, so it has a thread too. The main thread alone writes the
counters and the replay; the launching thread reads the replay and writes the learner's state and totals, and the main
thread waits for it before it uses any of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cramerl.deep import replay as replays
from cramerl.deep.block_totals import BlockTotals, no_totals
from cramerl.deep.env_group import Ended, EnvGroup
from cramerl.deep.envs.base import EnvSpec, HostEnvs
from cramerl.deep.episodes import Episodes, join
from cramerl.deep.host_program import host_program, unrolled
from cramerl.deep.learner import Learner, LearnerState, with_params
from cramerl.deep.networks import Params
from cramerl.deep.replay import Batch, Drawn, HostFrames, Replay
from cramerl.deep.schedule import Schedule, Stream, stream

Array = jax.Array


class HostSaved(NamedTuple):
    """What a checkpoint holds besides the counters and the replay's rows."""

    learner: LearnerState
    totals: BlockTotals
    last_actions: Any


class HostLoop:
    """The `Loop` of environments that are stepped from Python. It has one lane.

    Args:
        envs: the environments, or groups of them that are each stepped in a thread. What is computed does not depend on
            the grouping.
        learner: the learner.
        schedule: block size, update ratio, exploration and target-network periods.
        seed: of the run.
        frames_on_host: keep the replay's frames in the host's memory.
        launch_in_thread: launch the updates from a thread; by default on an accelerator.
        updates_per_call: how many updates of a block one call of a program makes; by default what suits the device.

    Attributes:
        block: blocks done.
        row: rows of the replay written: those of the blocks, and one at the end of each iteration.
        seconds: wall time spent waiting for environments and for actions; and for the learner if ``time_learner`` is
            set, which costs some of the overlap.
    """

    def __init__(
        self,
        envs: HostEnvs | Sequence[HostEnvs],
        learner: Learner,
        schedule: Schedule,
        seed: int,
        *,
        frames_on_host: bool = False,
        launch_in_thread: bool | None = None,
        updates_per_call: int | None = None,
    ):
        self.learner, self.schedule, self.seed = learner, schedule, seed
        envs = envs if isinstance(envs, Sequence) else [envs]
        columns = np.cumsum([0, *(some.num_envs for some in envs)]).tolist()
        seen = {"discount": schedule.discount, "clip_rewards": schedule.clip_rewards}
        self.groups = [
            EnvGroup(some, column, in_thread=len(envs) > 1, **seen) for some, column in zip(envs, columns, strict=False)
        ]
        self.block = self.row = 0
        self.time_learner = False
        self.seconds = {"environment": 0.0, "acting": 0.0, "learning": 0.0}
        self._played, self._learned = _no_episodes(), no_totals()
        self._ended: list[Episodes] = []
        self._iteration = self._iteration_row = 0
        self._key = jax.random.key(seed)
        updates, parts = schedule.updates_per_block, len(envs)
        if updates_per_call is None and unrolled():  # few, because many copies take long to compile
            updates_per_call = max(n for n in range(1, 9) if updates % n == 0)
        elif updates_per_call is None:
            updates_per_call = updates // parts if updates % parts == 0 else updates
        spec, rows, num_envs = envs[0].spec, schedule.replay_rows, schedule.num_envs
        self._program = host_program(
            learner, schedule, spec, frames_on_host=frames_on_host, updates_per_call=updates_per_call
        )
        self.state: LearnerState = self._program.init(stream(self._key, Stream.WEIGHTS))
        self.host_frames = HostFrames(rows, num_envs, spec.frame_shape, spec.frame_dtype) if frames_on_host else None
        on_device = (0,) if frames_on_host else spec.frame_shape
        self.replay: Replay = replays.empty_replay(rows, num_envs, on_device, spec.frame_dtype)
        if launch_in_thread is None:
            launch_in_thread = jax.default_backend() != "cpu"
        self._launcher = ThreadPoolExecutor(1) if launch_in_thread else None
        self._launched: Future[None] | None = None

    def begin_iteration(self, iteration: int) -> None:
        """Reset the environments with a seed derived from the run's seed and the iteration."""
        seed = np.random.SeedSequence([self.seed, iteration]).generate_state(1)
        for group in self.groups:
            group.reset(int(seed[0]))
        self._iteration, self._iteration_row = iteration, self.row

    def end_iteration(self) -> None:
        """Write the current frames, so that the last actions have an outcome; the episodes are cut there."""
        for group in self.groups:
            self._keep(group.cut(), self.block * self.schedule.rows_per_block, cut=True)
            self.replay = self._program.see_last(self.replay, self._pack(group, 0), group.frames)
            if self.host_frames is not None:
                self.host_frames.write(self.row, group.frames, group.column)
        self.row += 1

    def advance(self, num_blocks: int, stop: Callable[[], bool] | None = None) -> int:
        """See `Loop`."""
        first = self.block
        for segment in self.schedule.segments(first, first + num_blocks):
            if segment.starts_learning and self.learner.support == "own":
                self.state = self._program.find_support(self.state, self.replay, np.int32(self.row))
            if segment.changes_target:
                self.state = self._program.change_target(self.state)
            for block in range(segment.start, segment.stop):
                if stop is not None and stop():
                    self._settle()
                    return self.block - first
                self._run_block(block, learning=segment.learns)
                self.block += 1
            self._wait_for_launch()
        self._settle()
        return num_blocks

    def time_updates(self) -> float:
        """See `Loop`. The programs return new arrays, which are thrown away."""
        self._settle()
        kept, seconds = (self.state, self._learned), []
        updates = range(0, self.schedule.updates_per_block, self._program.updates_per_call)
        for _ in range(3):  # the first time they are compiled
            start = time.perf_counter()
            self._start_learning(self.block, self.row, updates)
            jax.block_until_ready(self.state)
            seconds.append(time.perf_counter() - start)
        self.state, self._learned = kept
        return sum(seconds[1:]) / len(seconds[1:])

    def take_totals(self) -> list[BlockTotals]:
        """See `Loop`."""
        totals = self.peek_totals()
        self._played, self._learned = _no_episodes(), no_totals()
        return totals

    def peek_totals(self) -> list[BlockTotals]:
        """See `Loop`."""
        return [jax.tree.map(np.asarray, self._totals())]

    def take_episodes(self) -> list[Episodes]:
        """See `Loop`."""
        found, self._ended = join(self._ended), []
        return [found]

    def save(self) -> HostSaved:
        """See `Loop`."""
        # A row is saved once, so the last one must be complete: its outcome is written now, not with the next row.
        if self.row > self._iteration_row:
            for group in self.groups:
                self.replay = self._program.finish_row(self.replay, self._pack(group, 0))
        actions = np.concatenate([group.outcome.actions for group in self.groups])
        return HostSaved(self.state, self._totals(), actions)

    def load(self, state: HostSaved, counters: dict[str, int]) -> None:
        """See `Loop`. Within an iteration the environments are brought to where they were by the same actions."""
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
                for group in self.groups:
                    self._seen(group)
                    group.start(actions[group.columns])
                for group in self.groups:
                    group.finish()  # its episodes are in the saved totals
        self._iteration_row = start

    @property
    def counters(self) -> dict[str, int]:
        """See `Loop`."""
        return {
            "block": self.block,
            "row": self.row,
            "iteration": self._iteration,
            "iteration_row": self._iteration_row,
        }

    @property
    def can_pause(self) -> bool:
        """Whether the replay still holds all actions of the iteration, which `load` takes again."""
        return self.row - self._iteration_row < self.schedule.replay_rows

    @property
    def spec(self) -> EnvSpec:
        """See `Loop`."""
        return self.groups[0].envs.spec

    @property
    def params(self) -> Params:
        """See `Loop`."""
        return self.state.params

    @property
    def all_params(self) -> Params:
        """See `Loop`."""
        return self.state.params

    def set_params(self, params: Params) -> None:
        """See `Loop`."""
        self.state = with_params(self.state, params)

    def read_rows(self, start: int, stop: int) -> dict[str, np.ndarray]:
        """See `Loop`."""
        replay = self.replay if self.host_frames is None else self.replay._replace(frames=self.host_frames.frames)
        return replays.read_rows(replay, start, stop)

    def write_rows(self, start: int, rows: dict[str, np.ndarray]) -> None:
        """See `Loop`."""
        if self.host_frames is not None:
            for i, frames in enumerate(rows["frames"]):
                self.host_frames.write(start + i, frames)
            rows = {**rows, "frames": np.zeros((*rows["frames"].shape[:2], 0), rows["frames"].dtype)}
        self.replay = replays.write_rows(self.replay, start, rows)

    def close(self) -> None:
        """See `Loop`."""
        for group in self.groups:
            group.close()
        if self._launcher is not None:
            self._launcher.shutdown()

    def _run_block(self, block: int, *, learning: bool) -> None:
        self._wait_for_launch()  # of the block before, whose updates make these weights
        params, started, done = self.state.params, self.row, block * self.schedule.rows_per_block
        if self.time_learner:
            self._timed("learning", lambda: jax.block_until_ready(params))
        for i in range(self.schedule.rows_per_block):
            for group in self.groups:
                self._timed("environment", lambda group=group, i=i: self._finish_step(group, done + i))
                actions = self._act(group, params, block)
                if i == 0 and learning:  # behind the actions, which the device computes first
                    self._launch(block, started, self._updates_after(group))
                chosen = self._timed("acting", lambda actions=actions: np.asarray(actions))
                self._timed("environment", lambda group=group, chosen=chosen: group.start(chosen))
            self.row += 1

    def _finish_step(self, group: EnvGroup, rows: int) -> None:
        """Wait for a group's step; ``rows`` is how many steps each environment has taken since the run began."""
        ended = group.finish()
        if ended is not None:
            self._played = self._played._replace(
                episodes=self._played.episodes + len(ended.envs),
                returns=self._played.returns + ended.returns.sum(),
                lengths=self._played.lengths + ended.lengths.sum(),
            )
            self._keep(ended, rows, cut=False)

    def _keep(self, ended: Ended, rows: int, *, cut: bool) -> None:
        count = len(ended.envs)
        steps = np.full(count, rows * self.schedule.num_envs)
        self._ended.append(
            Episodes(steps, ended.envs, ended.returns, ended.lengths, np.full(count, cut), ended.realised)
        )

    def _settle(self) -> None:
        """Wait for everything that was started."""
        self._wait_for_launch()
        for group in self.groups:
            self._finish_step(group, self.block * self.schedule.rows_per_block)

    def _act(self, group: EnvGroup, params: Any, block: int) -> Array:
        """Write the row that is seen and choose actions; the result is on the device and not waited for."""
        seen = self._seen(group)
        words = self._pack(group, block * self.schedule.steps_per_block)
        # Updates read the replay that is donated and the frames that are overwritten here: they come first.
        self._wait_for_launch()
        if self.host_frames is not None:
            self.host_frames.write(self.row, group.frames, group.column)
        self.replay, actions = self._program.see_and_act(self.replay, params, self._key, words, seen)
        return actions

    def _seen(self, group: EnvGroup) -> np.ndarray:
        """What is seen now: single frames, or stacks of them where frames are kept on the host."""
        return group.frames if self.host_frames is None else group.stacked()

    def _pack(self, group: EnvGroup, steps: int) -> np.ndarray:
        """All a `HostProgram` needs but the frames, in one array of 32-bit words: each transfer costs time."""
        actions, rewards, terminated = group.outcome
        bits = np.asarray(rewards, np.float32).view(np.int32)
        numbers = [self.row, steps, group.column]
        return np.concatenate([numbers, group.first, group.last, terminated, actions, bits]).astype(np.int32)

    def _updates_after(self, group: EnvGroup) -> range:
        """The first update of each call that is launched after this group has acted."""
        index, parts, size = self.groups.index(group), len(self.groups), self._program.updates_per_call
        calls = self.schedule.updates_per_block // size
        return range(index * calls // parts * size, (index + 1) * calls // parts * size, size)

    def _launch(self, block: int, row: int, updates: range) -> None:
        if self._launcher is None:
            self._start_learning(block, row, updates)
        else:
            self._launched = self._launcher.submit(self._start_learning, block, row, updates)

    def _wait_for_launch(self) -> None:
        if self._launched is not None:
            self._launched.result()
            self._launched = None

    def _start_learning(self, block: int, row: int, updates: range) -> None:
        before, size = self.schedule.updates_before(block), self._program.updates_per_call
        if self.host_frames is None:
            for start in updates:
                counts = np.array([block, row, before, start], np.int32)
                self.state, self._learned = self._program.draw_and_learn(
                    self.state, self.replay, self._learned, self._key, counts
                )
            return
        drawn = self._program.draw(self._key, self.replay, np.int32(block), np.int32(row))
        for start in updates:
            part = jax.tree.map(lambda x, start=start: x[start : start + size], drawn)
            batches = self._read_on_host(part)
            self.state, self._learned = self._program.learn(
                self.state, batches, self._learned, np.int32(before + start)
            )

    def _totals(self) -> BlockTotals:
        """The learner's sums, which are on the device, and those of the episodes, which are counted on the host."""
        return self._played._replace(info=self._learned.info, blocks=self._learned.blocks)

    def _read_on_host(self, drawn: Drawn) -> Batch:
        assert self.host_frames is not None
        frames = []
        for window in (drawn.window, drawn.next_window):
            stacked = self.host_frames.read(window.slots, window.envs)
            if window.keep is None:
                frames.append(jnp.asarray(stacked.squeeze(axis=window.slots.ndim - 1)))
            else:
                frames.append(replays.stack_frames(jnp.asarray(stacked), window.keep))
        return Batch(frames[0], drawn.actions, drawn.rewards, drawn.discounts, frames[1], drawn.weights, drawn.terms)

    def _timed(self, what: str, work: Any) -> Any:
        start = time.perf_counter()
        result = work()
        self.seconds[what] += time.perf_counter() - start
        return result


def _no_episodes() -> BlockTotals:
    """Sums of nothing; those of episodes are in double precision."""
    return no_totals()._replace(episodes=np.int64(0), returns=np.float64(0), lengths=np.int64(0))
