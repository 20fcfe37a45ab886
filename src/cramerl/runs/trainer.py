"""Runs a loop into a folder: iterations, log lines, evaluation, checkpoints."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cramerl.deep.block_totals import BlockTotals
from cramerl.deep.checkpoint import CheckpointStore
from cramerl.deep.learner import finite_lanes
from cramerl.deep.loop import Loop
from cramerl.deep.trees import flatten, unflatten
from cramerl.runs import loggers
from cramerl.runs.config import SETTINGS
from cramerl.runs.evaluator import Evaluator, evaluation_line, warning_of_one_game
from cramerl.runs.folder import RunFolder
from cramerl.runs.group import DIVERGED, RunGroup
from cramerl.runs.log_lines import MUCH_CLIPPED, log_line
from cramerl.runs.stop_signals import stop_on_interrupt

_MAY_CHANGE = ("record", "length", "start")  # roles of settings that a resumed run may have changed


class Diverged(ValueError):  # noqa: N818 - reads well as `except Diverged`
    """The loss or the weights are no longer finite."""


class Status(NamedTuple):
    """What a progress display shows.

    Attributes:
        step: agent steps done.
        steps: agent steps of the whole run.
        frames_per_step: emulator frames per step.
        steps_per_second: speed since the last log line, summed over the runs of a group.
        row: the last line of the log (of the first run that has not diverged), or None.
        message: something to say once, or None.
    """

    step: int
    steps: int
    frames_per_step: int
    steps_per_second: float
    row: dict[str, Any] | None
    message: str | None = None


class Run(NamedTuple):
    """A run, or a group of them, that has finished or was stopped.

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
AfterCheckpoint = Callable[[Path], None]


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
        self.iteration = 0
        self.store = CheckpointStore(folder.path / "checkpoints")
        self.message: str | None = None
        self._clock, self._clock_step, self._speed = time.perf_counter(), 0, 0.0
        self._last_row: dict[str, Any] | None = None
        self._diverged: set[int] = set()  # lanes
        self._warned_of: set[str] = set()  # ends of the support
        self._restored = False

    @property
    def step(self) -> int:
        """Agent steps done."""
        return self.loop.block * self.loop.schedule.steps_per_block

    def run(self) -> Run:
        """Train until the last step, or until Ctrl-C."""
        if not self._restored:
            self.loop.begin_iteration(self.iteration)
        with ExitStack() as stack:
            self.evaluator = stack.enter_context(closing(Evaluator(self.group, self.loop.spec)))
            self.loggers = [
                stack.enter_context(closing(x)) for x in loggers.make_loggers(self.group, self.folder.path, self.step)
            ]
            stop = stack.enter_context(stop_on_interrupt(self._announce_stop))
            self._clock, self._clock_step = time.perf_counter(), self.step
            if one_game := warning_of_one_game(self.config, self.config.eval_episodes, self.config.eval_epsilon):
                self._say(one_game)
            self._show_progress()
            while self.loop.block < self.total_blocks:
                if not self._run_to_boundary(stop):
                    return self._stopped()
        self._describe_weights()
        return Run(self.folder.path, self.step, True, list(self.folder.metrics()))

    def restore(self) -> bool:
        """Load the last good checkpoint. Without one the run starts from the beginning, and the result is False."""
        saved = self.store.latest()
        if self.store.problems:
            self.message = "; ".join(self.store.problems) + "; continuing from an earlier one"
        if saved is None:
            self.message = "there is no checkpoint yet: the run starts from the beginning"
            self.folder.cut_metrics(0)
            return False
        require_same_settings(self.group, RunGroup.from_json(saved.info["settings"]), self.folder.path)
        longer = self.loop.schedule.blocks(self.config.steps) > saved.info["counters"]["block"]
        if longer and not saved.info["can_continue"]:
            raise ValueError(
                f"{self.folder.path} cannot be made longer: its replay_steps are fewer than the steps of its last "
                "iteration, whose actions are needed to restore the environments"
            )
        for start, rows in self.store.rows(saved):
            self.loop.write_rows(start, rows)
        state = unflatten(self.loop.save(), saved.arrays)
        self.iteration = saved.info["iteration"]
        self._diverged = set(saved.info["diverged"])
        self.loop.load(state, saved.info["counters"])
        self._restored = True
        self.folder.cut_metrics(saved.info["metrics_bytes"])
        return True

    def _run_to_boundary(self, stop: Callable[[], bool]) -> bool:
        """Run to the next log line or the end of the iteration; False if Ctrl-C came first."""
        start = self.iteration * self.iteration_blocks
        end = min(start + self.iteration_blocks, self.total_blocks)
        next_line = start + ((self.loop.block - start) // self.log_blocks + 1) * self.log_blocks
        blocks = min(next_line, end) - self.loop.block
        if self.loop.advance(blocks, stop) < blocks:
            return False
        self._log()
        if self.loop.block == end:
            self._end_iteration(last=self.loop.block == self.total_blocks)
        return not stop() or self.loop.block == self.total_blocks

    def _log(self) -> None:
        totals = self.loop.take_totals()
        rows = self._rows(totals)
        self._warn_of_support(totals)
        self._write(rows)
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

    def _rows(self, totals: list[Any]) -> list[dict[str, Any]]:
        """A line for each run that had not diverged before; raises Diverged if none is left."""
        schedule, found = self.loop.schedule, self._newly_diverged(totals)
        updates = int(schedule.updates_before(self.loop.block))
        exploration, rows = schedule.exploration(np.float32(self.step)), []
        for lane, (settings, part) in enumerate(zip(self.group.lanes, totals, strict=True)):
            if lane in found:
                rows.append({**self._place(), **settings, DIVERGED: True})
            elif lane not in self._diverged:
                support = self._support(lane) if self.config.v_min is None else None
                rows.append(log_line(self._place() | settings, part, exploration, updates, support))
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
        update, what = max(found.values())
        saved = self.store.latest() if self.config.checkpoints == "full" else None
        kept = f"the last good checkpoint is at step {saved.info['step']}" if saved else "there is no checkpoint"
        runs = f"all {len(self.group)} runs diverged, the last of them because " if len(self.group) > 1 else ""
        return (
            f"{runs}the {what} not finite at update {update}, near step {self._step_of(update)}; {kept} in "
            f"{self.folder.path}. A smaller learning_rate may help"
        )

    def _step_of(self, update: int) -> int:
        schedule = self.loop.schedule
        return (update + 1) * self.config.update_period_steps + schedule.first_learning_block * schedule.steps_per_block

    def _support(self, lane: int) -> tuple[float, float] | None:
        """Smallest and largest return of a run's support, if it has one."""
        support = self.loop.all_params.get("support")
        if support is None:
            return None
        low, spacing = (np.asarray(support[name]).reshape(-1)[lane] for name in ("low", "spacing"))
        return float(low), float(low + spacing * (self.config.num_atoms - 1))

    def _warn_of_support(self, totals: list[BlockTotals]) -> None:
        """Say once of each end that returns or values lie beyond it; a support that finds itself moves by itself."""
        if self.config.v_min is None:
            return
        for lane, total in enumerate(totals):
            support = self._support(lane)
            if support is None or not total.blocks or lane in self._diverged:
                continue
            info, blocks = total.info, int(total.blocks)
            value, below, above = (float(x) / blocks for x in (info.q_values, info.clipped_below, info.clipped_above))
            self._warn_of_end("v_min", support[0], "below", below, value, outside=value < support[0])
            self._warn_of_end("v_max", support[1], "above", above, value, outside=value > support[1])

    def _warn_of_end(self, end: str, place: float, side: str, mass: float, value: float, *, outside: bool) -> None:
        if end in self._warned_of or not (mass > MUCH_CLIPPED or outside):
            return
        self._warned_of.add(end)
        what = f"{mass:.0%} of the target mass lies" if mass > MUCH_CLIPPED else f"the mean value {value:.3g} is"
        self._say(
            f"{what} {side} {end} = {place:g}: returns beyond it cannot be told apart. Choose another {end}, or leave "
            "v_min and v_max out: the support then finds itself"
        )

    def _say(self, text: str) -> None:
        """Add to the message of the next status."""
        self.message = text if self.message is None else f"{self.message}; {text}"

    def _end_iteration(self, *, last: bool) -> None:
        self._evaluate()
        if last and self.loop.block % self.iteration_blocks:
            # The run ends in the middle of an iteration: save it as it stands, so that the run can be made longer.
            self._save(can_continue=self.loop.can_pause)
            return
        self.iteration += 1
        self.loop.end_iteration()
        self.loop.begin_iteration(self.iteration)
        self._save()

    def _evaluate(self) -> None:
        """Play evaluation episodes with every run that has not diverged."""
        if not self.config.eval_episodes:
            return
        played = self.evaluator.play(self.loop.all_params, self.iteration + 1, self._diverged)
        self._write([evaluation_line(self._place() | self.group.lanes[lane], each) for lane, each in played])

    def _save(self, *, can_continue: bool = True) -> None:
        if self.config.checkpoints == "none":
            return
        info = {
            "iteration": self.iteration,
            "step": self.step,
            "counters": self.loop.counters,
            "settings": self.group.to_json(),
            "can_continue": can_continue,
            "diverged": sorted(self._diverged),
            "metrics_bytes": self.folder.metrics_size(settle=True),
        }
        if self.config.checkpoints == "weights":
            self.store.save(info, flatten({"params": self.loop.all_params}))
        else:
            row, capacity = self.loop.row, self.loop.schedule.replay_rows
            live = (max(0, row - capacity), row)
            self.store.save(info, flatten(self.loop.save()), rows=live, replay=self.loop.read_rows, capacity=capacity)
        if self.after_checkpoint is not None:
            self.after_checkpoint(self.folder.path)

    def _describe_weights(self) -> None:
        arrays, many = flatten(self.loop.all_params), len(self.group) > 1
        each = [{k: array[lane] if many else array for k, array in arrays.items()} for lane in range(len(self.group))]
        self.folder.describe_weights(self.step, self.group.lanes, each, self._diverged)

    def _stopped(self) -> Run:
        found = self._newly_diverged(self.loop.peek_totals())
        if found and len(self._diverged) + len(found) == len(self.group):
            raise Diverged(self._why_diverged(found))
        if self.config.checkpoints == "full" and self.loop.can_pause:
            self._save()
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


def require_same_settings(now: RunGroup, saved: RunGroup, folder: Path) -> None:
    """Raise ValueError unless a checkpoint was made with these settings, except those a resumed run may change."""
    if len(now) != len(saved):
        raise ValueError(
            f"{folder} has {len(now)} runs in config.json, but its checkpoint has {len(saved)}; restore the old "
            "settings, or train a new group"
        )
    for config, before in zip(now.configs, saved.configs, strict=True):
        for name, setting in SETTINGS.items():
            value, old = getattr(config, name), getattr(before, name)
            if setting.role not in _MAY_CHANGE and value != old:
                raise ValueError(
                    f"{folder} has {name} = {value!r} in config.json, but its checkpoint was made with {old!r}; "
                    "restore the old value, or train a new run"
                )
