"""Further destinations of log lines: TensorBoard files, and trackers with the interface of Weights & Biases."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cramerl._extras import load_library, require_library
from cramerl._folders import inside
from cramerl.runs.config import LANE_SETTINGS, TrainConfig
from cramerl.runs.group import RunGroup

_COLUMNS = ("step", "frames", "iteration", *LANE_SETTINGS)


class TensorBoard:
    """TensorBoard files in ``RUN/tensorboard``, one folder for each run of a group.

    Args:
        run: folder of the run.
        step: where a resumed run continues; what was written after it is hidden.
    """

    def __init__(self, run: Path, step: int):
        from tensorboardX import SummaryWriter

        self._writer, self._run, self._step = SummaryWriter, run, step
        self._writers: dict[Any, Any] = {}

    def log(self, row: dict[str, Any]) -> None:
        """Write one line."""
        lane = _lane(row) or "time"
        if lane not in self._writers:
            folder = inside(self._run, f"tensorboard/{lane}")
            purge = self._step + 1 if folder.exists() else None
            self._writers[lane] = self._writer(str(folder), purge_step=purge)
        for tag, value in row.items():
            if tag not in _COLUMNS:
                self._writers[lane].add_scalar(tag, value, row["step"])

    def close(self) -> None:
        """Flush and close."""
        for writer in self._writers.values():
            writer.close()


class Tracker:
    """Weights & Biases or Trackio, which share their interface.

    Args:
        library: "wandb" or "trackio".
        run: name of the run.
        group: its settings.
    """

    def __init__(self, library: str, run: str, group: RunGroup):
        self._library = load_library(library)
        again = {"id": run} if library == "wandb" else {}  # a resumed run continues where it was tracked before
        self._library.init(project="cramerl", name=run, config=group.to_json(), resume="allow", **again)
        self._many = len(group) > 1

    def log(self, row: dict[str, Any]) -> None:
        """Send one line; the tags of each run of a group begin with its lane."""
        lane = _lane(row)
        prefix = f"{lane}/" if self._many and lane else ""
        self._library.log({prefix + k: v for k, v in row.items() if k != "step"}, step=row["step"])

    def close(self) -> None:
        """Flush and close."""
        self._library.finish()


def _lane(row: dict[str, Any]) -> str:
    """What tells the run of a line apart; empty for a line of timing."""
    return "_".join(f"{name}-{row[name]}" for name in reversed(LANE_SETTINGS) if name in row)


def require_loggers(config: TrainConfig) -> None:
    """Say what to install before a run starts that could not be logged as asked."""
    if config.tensorboard:
        require_library("tensorboardX")
    if config.track != "none":
        require_library(config.track)


def make_loggers(group: RunGroup, run: Path, step: int) -> Iterator[TensorBoard | Tracker]:
    """The loggers that the settings ask for; ``step`` is where a resumed run continues."""
    if group.first.tensorboard:
        yield TensorBoard(run, step)
    if group.first.track != "none":
        yield Tracker(group.first.track, run.name, group)
