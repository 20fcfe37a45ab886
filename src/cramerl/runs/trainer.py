"""Runs a loop into a folder: iterations, log lines, evaluation, checkpoints."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from typing import Any

import jax
import numpy as np

from cramerl.deep.block_totals import BlockTotals
from cramerl.deep.checkpoint import CheckpointStore
from cramerl.deep.checkpoint_writer import CheckpointWriter
from cramerl.deep.envs.base import EnvFailed
from cramerl.deep.episodes import Episodes
from cramerl.deep.learner import finite_lanes
from cramerl.deep.loop import Loop, require_finite_rows
from cramerl.deep.trees import flatten, unflatten
from cramerl.runs import loggers
from cramerl.runs.evaluator import (
    Evaluator,
    Interrupted,
    evaluation_line,
    warning_of_endless_games,
    warning_of_one_game,
)
from cramerl.runs.folder import EPISODES, METRICS, RunFolder
from cramerl.runs.forecast import Forecast, describe_forecast
from cramerl.runs.group import DIVERGED, RunGroup, require_same_settings
from cramerl.runs.log_lines import episode_lines, evaluation_episode_lines, log_line, warning_of_cuts
from cramerl.runs.outcome import AfterCheckpoint, Diverged, OnProgress, Run, Status
from cramerl.runs.stop_signals import stop_on_signal
from cramerl.runs.support_watch import SupportWatch, support_of


class Trainer:
    """Trains a group into a folder."""

    def __init__(
        self,
        group: RunGroup,
        folder: RunFolder,
        loop: Loop,
        on_progress: OnProgress | None,
        after_checkpoint: AfterCheckpoint | None,
    ):
        self.group, self.config, self.folder, self.loop = group, group.first, folder, loop
        self.on_progress, self.after_checkpoint = on_progress, after_checkpoint
        blocks = loop.schedule.blocks
        self.total_blocks, self.iteration_blocks = blocks(self.config.steps), blocks(self.config.iteration_steps)
        self.log_blocks = min(blocks(self.config.log_steps), self.iteration_blocks)
        self.eval_blocks = blocks(self.config.eval_period_steps) or self.iteration_blocks
        self.iteration = 0
        self.store = CheckpointStore(folder.path / "checkpoints")
        self.writer = CheckpointWriter(self.store)
        self.message: str | None = None
        self._clock, self._clock_step, self._speed = time.perf_counter(), 0, 0.0
        self._last_row: dict[str, Any] | None = None
        self._diverged: set[int] = set()  # lanes
        self._support_watch = SupportWatch(self.config)
        self._ended = 0  # episodes that ended since the environments were reset
        self._warned_of_cuts = False
        self._restored = False

    @property
    def step(self) -> int:
        """Agent steps done."""
        return self.loop.block * self.loop.schedule.steps_per_block

    def run(self) -> Run:
        """Train until the last step, or until Ctrl-C or SIGTERM."""
        if not self._restored:
            self.loop.begin_iteration(self.iteration)
        with ExitStack() as stack:
            stop = stack.enter_context(stop_on_signal(self._announce_stop))
            # Left late: whatever ends training, the checkpoint being written is finished, or its error told.
            stack.enter_context(closing(self.writer))
            self.evaluator = stack.enter_context(closing(Evaluator(self.group, self.loop.spec)))
            self.loggers = [
                stack.enter_context(closing(x)) for x in loggers.make_loggers(self.group, self.folder.path, self.step)
            ]
            self._clock, self._clock_step = time.perf_counter(), self.step
            self._forecast = Forecast(self.loop, self.total_blocks)
            if one_game := warning_of_one_game(self.config, self.config.eval_episodes, self.config.eval_epsilon):
                self._say(one_game)
            self._show_progress()
            with self._told_what_is_kept():
                while self.loop.block < self.total_blocks:
                    try:
                        if not self._run_to_boundary(stop):
                            return self._stopped()
                    except Interrupted:
                        return self._stopped(evaluating=True)
        if self.message is not None:
            self._show_progress()
        self._describe_weights()
        return Run(self.folder.path, self.step, True, list(self.folder.metrics()))

    def restore(self) -> bool:
        """Load the last good checkpoint. Without one the run starts from the beginning, and the result is False."""
        saved = self.store.latest()
        if self.store.problems:
            self.message = "; ".join(self.store.problems) + "; continuing from an earlier one"
        if saved is None:
            self.message = "there is no checkpoint yet: the run starts from the beginning"
            self.folder.cut_logs({})
            return False
        require_same_settings(self.group, RunGroup.from_json(saved.info["settings"]), self.folder.path)
        longer = self.loop.schedule.blocks(self.config.steps) > saved.info["counters"]["block"]
        if longer and not saved.info["can_continue"]:
            raise ValueError(
                f"{self.folder.path} cannot be made longer: its replay_steps are fewer than the steps of its last "
                "iteration, whose actions are needed to restore the environments"
            )
        self.store.tidy()
        for start, rows in self.store.rows(saved):
            self.loop.write_rows(start, rows)
        state = unflatten(self.loop.save(), saved.arrays)
        self.iteration = saved.info["iteration"]
        self._diverged = set(saved.info["diverged"])
        self.loop.load(state, saved.info["counters"])
        self._restored = True
        self.folder.cut_logs({METRICS: saved.info["metrics_bytes"], EPISODES: saved.info.get("episodes_bytes", 0)})
        rows = (row for row in self.folder.metrics() if row["iteration"] == self.iteration)
        self._ended = sum(row.get("charts/episodes", 0) for row in rows)
        return True

    def _run_to_boundary(self, stop: Callable[[], bool]) -> bool:
        """Run to the next log line or the end of the iteration; False if Ctrl-C came first."""
        start = self.iteration * self.iteration_blocks
        end = min(start + self.iteration_blocks, self.total_blocks)
        last_line = start + (self.loop.block - start) // self.log_blocks * self.log_blocks
        for part in self._forecast.parts(min(last_line + self.log_blocks, end) - self.loop.block):
            if self.loop.advance(part, stop) < part:
                return False
            self._forecast.part_done()
        reset = self.config.resets_environments and self.loop.block == start + self.iteration_blocks
        if reset:
            self.loop.end_iteration()
        self._log(reset=reset)
        if self.loop.block // self.eval_blocks > last_line // self.eval_blocks or self.loop.block == self.total_blocks:
            self._evaluate(stop)
        if self.loop.block == end:
            self._end_iteration()
        return not stop() or self.loop.block == self.total_blocks

    def _log(self, *, reset: bool) -> None:
        self.writer.check()
        totals, episodes = self.loop.take_totals(), self.loop.take_episodes()
        if not all(np.isfinite(one.returns).all() for one in episodes):
            raise ValueError(
                f"rewards must be finite numbers, {self.config.env} gave some that are not before step {self.step}"
            )
        expected = self._forecast.expected()  # now that the device is idle
        cut = [int(one.cut.sum()) if reset and self.loop.spec.family != "gymnax" else None for one in episodes]
        rows = self._rows(totals, cut)
        self._write_episodes(episodes)
        self._warn(totals, episodes, cut)
        self._write(rows)
        if expected is not None:
            self._say(describe_forecast(expected, self.config, jax.default_backend()))
        now = time.perf_counter()
        speed = (self.step - self._clock_step) * len(self.group) / max(now - self._clock, 1e-9)
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

    def _place(self) -> dict[str, Any]:
        return {"step": self.step, "frames": self.step * self.loop.spec.frames_per_step, "iteration": self.iteration}

    def _rows(self, totals: list[Any], cut: list[int | None]) -> list[dict[str, Any]]:
        """A line for each run that had not diverged before; raises Diverged if none is left."""
        schedule, found = self.loop.schedule, self._newly_diverged(totals)
        updates = int(schedule.updates_before(self.loop.block))
        exploration, rows = schedule.exploration(np.float32(self.step)), []
        for lane, (settings, part) in enumerate(zip(self.group.lanes, totals, strict=True)):
            if lane in found:
                rows.append({**self._place(), **settings, DIVERGED: True})
            elif lane not in self._diverged:
                support = self._support(lane) if self.config.v_min is None else None
                rows.append(log_line(self._place() | settings, part, exploration, updates, support, cut[lane]))
        if len(self._diverged) + len(found) == len(self.group):
            self._write(rows)  # the log says what became of each run
            raise Diverged(self._why_diverged(found))
        if found:
            # The program computes all lanes, so these are still computed, but nothing more is logged of them.
            self._diverged |= found.keys()
            update, what = min(found.values())
            named = f"{'run' if len(found) == 1 else 'runs'} {self.group.describe(list(found))}"
            left = f"{len(self.group) - len(self._diverged)} of {len(self.group)} runs continue"
            near = f"update {update}, near step {self._step_of(update)}"
            self._say(f"diverged: {named}: the {what} not finite at {near}; {left}")
        return rows

    def _newly_diverged(self, totals: list[Any]) -> dict[int, tuple[int, str]]:
        """Lanes whose loss or weights are no longer finite, with the update at which that was and which of the two."""
        finite, found = np.asarray(finite_lanes(self.loop.all_params, len(totals))), {}
        for lane, total in enumerate(totals):
            if lane in self._diverged:
                continue
            if total.info.first_bad >= 0:
                found[lane] = int(total.info.first_bad), "loss is"
            elif not finite[lane]:
                found[lane] = int(self.loop.schedule.updates_before(self.loop.block)) - 1, "weights are"
        return found

    def _why_diverged(self, found: dict[int, tuple[int, str]]) -> str:
        require_finite_rows(self.loop, self.config.env)
        update, what = max(found.values())
        runs = f"all {len(self.group)} runs diverged, the last of them because " if len(self.group) > 1 else ""
        return (
            f"{runs}the {what} not finite at update {update}, near step {self._step_of(update)}; "
            f"{self._kept()}. A smaller learning_rate may help"
        )

    def _kept(self) -> str:
        self.writer.wait()
        saved = self.store.latest() if self.config.checkpoints == "full" else None
        found = f"the last good checkpoint is at step {saved.info['step']}" if saved else "there is no checkpoint"
        return f"{found} in {self.folder.path}"

    @contextmanager
    def _told_what_is_kept(self) -> Iterator[None]:
        """Add the last good checkpoint to errors that end training, such as a full disk, unless they name it."""
        try:
            yield
        except (OSError, EnvFailed) as error:
            if "the last good" not in str(error):
                with suppress(OSError, ValueError):
                    error.add_note(f"({self._kept()})")
            raise

    def _step_of(self, update: int) -> int:
        schedule = self.loop.schedule
        return (update + 1) * self.config.update_period_steps + schedule.first_learning_block * schedule.steps_per_block

    def _support(self, lane: int) -> tuple[float, float] | None:
        return support_of(self.config, self.loop.all_params, lane)

    def _write_episodes(self, episodes: list[Episodes]) -> None:
        for lane, (settings, own) in enumerate(zip(self.group.lanes, episodes, strict=True)):
            if lane not in self._diverged:
                self.folder.append_episodes(episode_lines(settings, own))

    def _warn(self, totals: list[BlockTotals], episodes: list[Episodes], cut: list[int | None]) -> None:
        """Say what lies beyond the support, and how many episodes resets cut."""
        for lane, (total, own) in enumerate(zip(totals, episodes, strict=True)):
            if lane not in self._diverged:
                for words in self._support_watch.warnings(self._support(lane), total, own.realised):
                    self._say(words)
        self._ended += int(totals[0].episodes)
        if cut[0] is not None:
            if not self._warned_of_cuts and (words := warning_of_cuts(self.config, cut[0], self._ended)):
                self._warned_of_cuts = True
                self._say(words)
            self._ended = 0

    def _say(self, text: str) -> None:
        """Add to the message of the next status."""
        self.message = text if self.message is None else f"{self.message}; {text}"

    def _end_iteration(self) -> None:
        if self.loop.block % self.iteration_blocks:
            # The run ends in the middle of an iteration: save it as it stands, so that the run can be made longer.
            self._save(can_continue=self.loop.can_pause)
            return
        self.iteration += 1
        if self.config.resets_environments:
            self.loop.begin_iteration(self.iteration)
        self._save()

    def _evaluate(self, stop: Callable[[], bool]) -> None:
        """Play evaluation episodes with every run that has not diverged; Interrupted if a request to stop came."""
        if not self.config.eval_episodes:
            return
        rows = []
        for lane, played in self.evaluator.play(self.loop.all_params, self.loop.block, self._diverged, stop):
            settings = self.group.lanes[lane]
            rows.append(evaluation_line(self._place() | settings, played))
            self.folder.append_episodes(evaluation_episode_lines(settings, self.step, played))
            if endless := warning_of_endless_games(self.config, played):
                self._say(endless)
        self._write(rows)

    def _save(self, *, can_continue: bool = True) -> None:
        if self.config.checkpoints == "none":
            return
        sizes = self.folder.log_sizes(settle=True)
        info = {
            "iteration": self.iteration,
            "step": self.step,
            "counters": self.loop.counters,
            "settings": self.group.to_json(),
            "can_continue": can_continue,
            "diverged": sorted(self._diverged),
            "metrics_bytes": sizes[METRICS],
            "episodes_bytes": sizes[EPISODES],
        }
        if self.config.checkpoints == "weights":
            self.writer.save(info, flatten({"params": self.loop.all_params}))
        else:
            row, capacity = self.loop.row, self.loop.schedule.replay_rows
            live = (max(0, row - capacity), row)
            self.writer.save(info, flatten(self.loop.save()), rows=live, replay=self.loop.read_rows, capacity=capacity)
        if self.after_checkpoint is not None:
            self.writer.wait()
            self.after_checkpoint(self.folder.path)

    def _describe_weights(self) -> None:
        arrays, many = flatten(self.loop.all_params), len(self.group) > 1
        each = [{k: array[lane] if many else array for k, array in arrays.items()} for lane in range(len(self.group))]
        self.folder.describe_weights(self.step, self.group.lanes, each, self._diverged)

    def _stopped(self, *, evaluating: bool = False) -> Run:
        found = self._newly_diverged(self.loop.peek_totals())
        if found and len(self._diverged) + len(found) == len(self.group):
            raise Diverged(self._why_diverged(found))
        if self.config.checkpoints == "full" and evaluating:
            self._say("stopped while evaluating: resuming starts at the last checkpoint")
        elif self.config.checkpoints == "full" and self.loop.can_pause:
            self._write_episodes(self.loop.take_episodes())  # what is not taken is not saved
            self._save()
            self.writer.wait()
            self._say(f"the checkpoint of step {self.step:,} is written")
        elif self.config.checkpoints == "full":
            self._say("the replay is shorter than an iteration: resuming starts at the iteration's beginning")
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
