"""Training runs: iterations, log lines, checkpoints, resuming."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from cramerl.runs import build

from cramerl.runs import loggers
from cramerl.runs.config import TrainConfig
from cramerl.runs.stop_signals import stop_on_interrupt
from cramerl.runs.lanes import DIVERGED, clipped_words, log_line, diverged_words, not_finite
from cramerl.runs.folder import RunFolder

if TYPE_CHECKING:
    from cramerl.deep.loop import Loop


class Diverged(ValueError):  # noqa: N818 - read as `except Diverged`
    """The loss stopped being a number."""


class Status(NamedTuple):
    """What a progress display shows.

    Attributes:
        step: agent steps done.
        steps: of the whole run.
        frames_per_step: emulator frames per step.
        steps_per_second: lately.
        row: the last line of the log (of the first lane that is not lost), or None.
        message: something to say once, or None.
    """

    step: int
    steps: int
    frames_per_step: int
    steps_per_second: float
    row: dict[str, Any] | None
    message: str | None = None


class Run(NamedTuple):
    """A run that has ended or was stopped.

    Attributes:
        folder: where it wrote.
        step: agent steps done.
        finished: whether all steps were done.
        rows: lines of its log.
    """

    folder: Path
    step: int
    finished: bool
    rows: list[dict[str, Any]]


OnProgress = Callable[[Status], None]

# Called with the folder of the run after each checkpoint; a process that keeps copies of its run sets it (`cli_child`).
after_checkpoint: Callable[[Path], None] = lambda folder: None  # noqa: E731 - a variable, not a function


def train(config: TrainConfig, out: str | Path | None = None, *, on_progress: OnProgress | None = None) -> Run:
    """Train an agent.

    Args:
        config: the settings, see `cramerl.preset` and `cramerl.TrainConfig`.
        out: folder of the run, new or empty; by default ``runs/ENV__AGENT__SEED__TIME``.
        on_progress: called with a `Status` after each log line.

    Returns:
        Where the run is and what it logged. Ctrl-C stops it cleanly with a checkpoint (``finished`` is then False).

    Raises:
        Diverged: the loss is not a number any more, in all lanes; the last good checkpoint is kept. While other lanes
            go on, one that is lost has a last line with ``"diverged": true``, and a status says so.

    Example:
        >>> import cramerl
        >>> config = cramerl.preset("minatar", "s51", "Breakout-MinAtar", steps=1_000_000)
        >>> run = cramerl.train(config)  # doctest: +SKIP
    """
    loggers.require_loggers(config)
    loop = build.make_loop(config)  # before the folder: settings that cannot be built leave nothing behind
    try:
        if config.initial_weights:
            _set_weights(loop, config)
        folder = RunFolder.create(config, loop.spec, None if out is None else Path(out))
        with folder.locked():
            trainer = _Trainer(config, folder, loop, on_progress)
            trainer.message = _headline(config, loop.spec.family, folder.path)
            return trainer.run()
    finally:
        loop.close()


def resume(run: str | Path, steps: int | None = None, *, on_progress: OnProgress | None = None) -> Run:
    """Go on with a run from its last good checkpoint; on the same machine the result is what it would have been.

    Args:
        run: the folder of a run.
        steps: a new total of agent steps, to make a run longer.
        on_progress: see `train`.
    """
    folder = RunFolder.open(Path(run))
    config = folder.config
    if config.checkpoints != "full":
        raise ValueError(f"checkpoints must have been 'full' for a run to be resumed, {run} has {config.checkpoints!r}")
    if steps is not None:
        config = dataclasses.replace(config, steps=steps)
    loop = build.make_loop(config)
    try:
        with folder.locked():
            trainer = _Trainer(config, folder, loop, on_progress)
            if not trainer.restore() and config.initial_weights:
                _set_weights(loop, config)
            if loop.schedule.blocks(config.steps) < loop.block:
                raise ValueError(f"steps must be at least {trainer.step}, which the run has done, got {config.steps}")
            if steps is not None:
                folder.change_config(config)
            return trainer.run()
    finally:
        loop.close()


class _Trainer:
    """One run of a loop into a folder."""

    def __init__(self, config: TrainConfig, folder: RunFolder, loop: Loop, on_progress: OnProgress | None):
        from cramerl.deep import checkpoint, trees

        self._trees = trees
        self.config, self.folder, self.loop, self.on_progress = config, folder, loop, on_progress
        schedule = loop.schedule
        self.total_blocks = schedule.blocks(config.steps)
        self.iteration_blocks = schedule.blocks(config.iteration_steps)
        self.log_blocks = min(schedule.blocks(config.log_steps), self.iteration_blocks)
        self.iteration = 0
        self.store = checkpoint.CheckpointStore(folder.path / "checkpoints")
        self.message: str | None = None
        self._clock, self._clock_step = time.perf_counter(), 0
        self._last_row: dict[str, Any] | None = None
        self._lost: set[int] = set()  # lanes whose loss or weights are not finite any more
        self._said_clipped = False
        self._speed = 0.0
        self._restored = False

    @property
    def step(self) -> int:
        """Agent steps done."""
        return self.loop.block * self.loop.schedule.steps_per_block

    def run(self) -> Run:
        """Iterations until the last, or until Ctrl-C."""
        if not self._restored:
            self.loop.begin_iteration(self.iteration)
        with ExitStack() as stack:
            self.loggers = [
                stack.enter_context(closing(x)) for x in loggers.make_loggers(self.config, self.folder.path, self.step)
            ]
            stop = stack.enter_context(stop_on_interrupt(self._announce_stop))
            self._clock, self._clock_step = time.perf_counter(), self.step
            self._show_progress()
            while self.loop.block < self.total_blocks:
                if not self._run_to_boundary(stop):
                    return self._paused()
        self._describe_weights()
        return Run(self.folder.path, self.step, True, list(self.folder.metrics()))

    def restore(self) -> bool:
        """Load the last good checkpoint; a run that has none begins anew, and that is False."""
        saved = self.store.latest()
        if self.store.problems:
            self.message = "; ".join(self.store.problems) + "; going on from an earlier one"
        if saved is None:
            self.message = "there is no checkpoint yet: the run begins anew"
            self.folder.cut_metrics(0)
            return False
        _require_same(self.config.to_json(), saved.info["settings"], self.folder.path)
        if (
            not saved.info["can_go_on"]
            and self.loop.schedule.blocks(self.config.steps) > saved.info["counters"]["block"]
        ):
            raise ValueError(
                f"{self.folder.path} cannot be made longer: its replay_steps are fewer than the steps of its last "
                "iteration, whose actions are needed to bring the environments back"
            )
        for start, rows in self.store.rows(saved):
            self.loop.write_rows(start, rows)
        state = self._trees.unflatten(self.loop.save(), saved.arrays)
        self.iteration = saved.info["iteration"]
        self._lost = set(saved.info.get("lost", ()))
        self.loop.load(state, saved.info["counters"])
        self._restored = True
        self.folder.cut_metrics(saved.info["metrics_bytes"])
        return True

    def _run_to_boundary(self, stop: Callable[[], bool]) -> bool:
        """Run to the next log line or the end of the iteration; False if Ctrl-C came first."""
        end = min((self.iteration + 1) * self.iteration_blocks, self.total_blocks)
        start = self.iteration * self.iteration_blocks
        done = self.loop.block - start
        until = min(start + (done // self.log_blocks + 1) * self.log_blocks, end)
        blocks = until - self.loop.block
        if self.loop.advance(blocks, stop) < blocks:
            return False
        self._log()
        if self.loop.block == end:
            self._end_iteration(last=self.loop.block == self.total_blocks)
        return not stop() or self.loop.block == self.total_blocks

    def _log(self) -> None:
        rows = self._rows(self.loop.take_totals())
        self._write(rows)
        self._note_clipped(rows)
        now = time.perf_counter()
        speed = (self.step - self._clock_step) * len(self.config.lane_settings) / max(now - self._clock, 1e-9)
        self._clock, self._clock_step, self._speed = now, self.step, speed
        self._last_row = next(row for row in rows if DIVERGED not in row)
        timing = {
            "step": self.step,
            "charts/SPS": speed,
            "time/frames_per_second": speed * self.loop.spec.frames_per_step,
        }
        self.folder.append_timing([timing | {"time/unix": time.time()}])
        for logger in self.loggers:
            logger.log(timing)
        self._show_progress()

    def _write(self, rows: list[dict[str, Any]]) -> None:
        self.folder.append_metrics(rows)
        for logger in self.loggers:
            for row in rows:
                logger.log(row)

    def _rows(self, totals: list[Any]) -> list[dict[str, Any]]:
        """A line for each lane that was not lost before; Diverged where none is left."""
        lanes, schedule = self.config.lane_settings, self.loop.schedule
        bad, updates = self._newly_bad(totals), int(schedule.updates_before(self.loop.block))
        place = {"step": self.step, "frames": self.step * self.loop.spec.frames_per_step, "iteration": self.iteration}
        exploration, rows = schedule.exploration(np.float32(self.step)), []
        for number, (lane, part) in enumerate(zip(lanes, totals, strict=True)):
            if number in bad:
                rows.append({**place, **lane, DIVERGED: True})
            elif number not in self._lost:
                rows.append(log_line(place | lane, part, exploration, updates))
        if len(self._lost) + len(bad) == len(lanes):
            self._write(rows)  # a log says what became of each lane
            raise Diverged(self._diverged(bad))
        if bad:
            self._write_off(bad)
        return rows

    def _newly_bad(self, totals: list[Any]) -> dict[int, tuple[int, str]]:
        """Lanes that were not lost before, with the update at which they were and what is not finite."""
        weights = self._trees.flatten(self.loop.all_params).values()
        bad = not_finite(totals, weights, int(self.loop.schedule.updates_before(self.loop.block)))
        return {lane: found for lane, found in bad.items() if lane not in self._lost}

    def _write_off(self, bad: dict[int, tuple[int, str]]) -> None:
        """Go on without these lanes. They are computed all the same, but nothing is logged of them any more."""
        self._lost |= bad.keys()
        update, what = min(bad.values())
        where = f"the {what} not finite at update {update}, near step {self._step_of(update)}"
        self._say(diverged_words(self.config.lane_settings, bad, self._lost, where))

    def _note_clipped(self, rows: list[dict[str, Any]]) -> None:
        """Say once that the support does not hold the returns."""
        words = None if self._said_clipped else clipped_words(rows, self.config.v_min, self.config.v_max)
        if words is not None:
            self._said_clipped = True
            self._say(words)

    def _say(self, words: str) -> None:
        """Add to what the next status says."""
        self.message = words if self.message is None else f"{self.message}; {words}"

    def _diverged(self, bad: dict[int, tuple[int, str]]) -> str:
        update, what = max(bad.values())
        saved = self.store.latest() if self.config.checkpoints == "full" else None
        kept = f"the last good checkpoint is at step {saved.info['step']}" if saved else "there is no checkpoint"
        number = len(self.config.lane_settings)
        lanes = f"all {number} lanes are lost, the last of them because " if number > 1 else ""
        return (
            f"{lanes}the {what} not finite at update {update}, near step {self._step_of(update)}; {kept} in "
            f"{self.folder.path}. A smaller learning_rate may help"
        )

    def _step_of(self, update: int) -> int:
        schedule = self.loop.schedule
        return (update + 1) * self.config.update_period_steps + schedule.first_learning_block * schedule.steps_per_block

    def _end_iteration(self, *, last: bool) -> None:
        self.iteration += 1
        self._evaluate()
        if last and self.loop.block % self.iteration_blocks:
            # Cut short by the end of the run: saved as it stands, so that the run can be made longer.
            self.iteration -= 1
            self._save(can_go_on=self.loop.can_pause)
            return
        self.loop.end_iteration()
        self.loop.begin_iteration(self.iteration)
        self._save()

    def _evaluate(self) -> None:
        if not self.config.eval_episodes or 0 in self._lost:  # the first lane is the one that is evaluated
            return
        from cramerl.deep.agent import play_episodes

        if not hasattr(self, "_eval_envs"):
            self._eval_envs = build.make_envs(self.config, min(self.config.eval_episodes, 16))
        agent = build.make_agent(self.config, self.loop.spec, self.loop.params)
        seed = int(np.random.SeedSequence([self.config.seed, self.iteration, 1]).generate_state(1)[0] >> 1)
        played = play_episodes(
            agent, self._eval_envs, self.config.eval_episodes, epsilon=self.config.eval_epsilon, seed=seed
        )
        scores = [episode.score for episode in played]
        row = {"step": self.step, "frames": self.step * self.loop.spec.frames_per_step, "iteration": self.iteration - 1}
        row |= {"seed": self.config.seed, "eval/episodic_return": float(np.mean(scores)), "eval/episodes": len(scores)}
        row["eval/episodic_length"] = float(np.mean([episode.length for episode in played]))
        self._write([row])

    def _save(self, *, can_go_on: bool = True) -> None:
        if self.config.checkpoints == "none":
            return
        info = {
            "iteration": self.iteration,
            "step": self.step,
            "counters": self.loop.counters,
            "settings": self.config.to_json(),
            "can_go_on": can_go_on,
            "lost": sorted(self._lost),
            "metrics_bytes": self.folder.metrics_size(settle=True),
        }
        if self.config.checkpoints == "weights":
            self.store.save(info, self._trees.flatten({"params": self.loop.all_params}))
        else:
            row, capacity = self.loop.row, self.loop.schedule.replay_rows
            live = (max(0, row - capacity), row)
            self.store.save(
                info, self._trees.flatten(self.loop.save()), rows=live, replay=self.loop.read_rows, capacity=capacity
            )
        after_checkpoint(self.folder.path)

    def _describe_weights(self) -> None:
        lanes, arrays = self.config.lane_settings, self._trees.flatten(self.loop.all_params)
        many = len(lanes) > 1
        each = [{k: array[i] if many else array for k, array in arrays.items()} for i in range(len(lanes))]
        self.folder.describe_weights(self.step, lanes, each, self._lost)

    def _paused(self) -> Run:
        bad = self._newly_bad(self.loop.peek_totals())
        if bad and len(self._lost) + len(bad) == len(self.config.lane_settings):
            raise Diverged(self._diverged(bad))
        if self.config.checkpoints == "full" and self.loop.can_pause:
            self._save()
        elif self.config.checkpoints == "full":
            self._say("the replay is shorter than an iteration: resuming goes back to the iteration's start")
        self._show_progress()
        return Run(self.folder.path, self.step, False, list(self.folder.metrics()))

    def _announce_stop(self) -> None:
        kept = " with a checkpoint" if self.config.checkpoints == "full" else ""
        self._say(f"stopping{kept}; Ctrl-C again stops at once")
        self._show_progress()

    def _show_progress(self) -> None:
        if self.on_progress is not None:
            per_step, speed = self.loop.spec.frames_per_step, self._speed
            status = Status(self.step, self.config.steps, per_step, speed, self._last_row, self.message)
            self.message = None
            self.on_progress(status)


_FREE = ("steps", "preset", "tensorboard", "track", "initial_weights", "eval_episodes", "eval_epsilon")


def _require_same(config: dict[str, Any], saved: dict[str, Any], folder: Path) -> None:
    """A checkpoint goes on with the settings it was made with; those of ``_FREE`` do not change what is learned."""
    saved = TrainConfig().to_json() | saved  # one that there was not then had, in effect, its default
    for name, value in config.items():
        if name not in _FREE and saved[name] != value:
            raise ValueError(
                f"{folder} has {name} = {value!r} in config.json, but its checkpoint was made with "
                f"{saved[name]!r}; put it back, or train a new run"
            )


def _headline(config: TrainConfig, family: str, folder: Path) -> str:
    kind = {"gymnax": "gymnax", "atari": "Atari", "gymnasium": "Gymnasium"}[family]
    size = f"{config.steps:,} steps, {config.num_envs} environments"
    if family != "gymnax":  # no longer episode can end
        size += f" that begin anew every {config.iteration_steps // config.num_envs:,} steps"
    return (
        f"{config.agent} on {config.env} ({kind}, preset {config.preset or 'none'}): {size}, into {folder}; compiling"
    )


def _set_weights(loop: Loop, config: TrainConfig) -> None:
    from cramerl.runs.agents import read_weights

    loop.set_params(read_weights(config.initial_weights, loop.params))
