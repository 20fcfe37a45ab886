"""Where log lines go beside ``metrics.jsonl``: TensorBoard files, and trackers with the interface of W&B."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

from cramerl._extras import load_library, require_library
from cramerl.runs.config import TrainConfig

_LANE = ("mass_penalty", "learning_rate", "seed")  # what may set lanes apart
_COLUMNS = ("step", "frames", "iteration", *_LANE)


class Logger(Protocol):
    """Where log lines go beside ``metrics.jsonl``."""

    def log(self, row: dict[str, Any]) -> None:
        """Take one line."""
        ...

    def close(self) -> None:
        """Write out what is left."""
        ...


class TensorBoard:
    """TensorBoard files in ``RUN/tensorboard``, one folder for each lane.

    Args:
        run: folder of the run.
        step: where a resumed run goes on; what was written after it is hidden.
    """

    def __init__(self, run: Path, step: int):
        from tensorboardX import SummaryWriter

        self._writer, self._run, self._step = SummaryWriter, run, step
        self._writers: dict[Any, Any] = {}

    def log(self, row: dict[str, Any]) -> None:
        """Write one line."""
        lane = _lane(row) or "time"
        if lane not in self._writers:
            folder = self._run / "tensorboard" / lane
            purge = self._step + 1 if folder.exists() else None
            self._writers[lane] = self._writer(str(folder), purge_step=purge)
        for tag, value in row.items():
            if tag not in _COLUMNS:
                self._writers[lane].add_scalar(tag, value, row["step"])

    def close(self) -> None:
        """Write out what is left."""
        for writer in self._writers.values():
            writer.close()


class Tracker:
    """Weights & Biases or Trackio, which share their interface.

    Args:
        library: "wandb" or "trackio".
        run: name of the run.
        config: its settings.
    """

    def __init__(self, library: str, run: str, config: dict[str, Any]):
        self._library = load_library(library)
        again = {"id": run} if library == "wandb" else {}  # so that a resumed run goes on in the same place
        self._library.init(project="cramerl", name=run, config=config, resume="allow", **again)
        self._many = config["lanes"] > 1 or bool(config["learning_rates"] or config["mass_penalties"])

    def log(self, row: dict[str, Any]) -> None:
        """Send one line; with several lanes each has tags of its own."""
        lane = _lane(row)
        prefix = f"{lane}/" if self._many and lane else ""
        self._library.log({prefix + k: v for k, v in row.items() if k != "step"}, step=row["step"])

    def close(self) -> None:
        """Send what is left."""
        self._library.finish()


def _lane(row: dict[str, Any]) -> str:
    """The name of a row's lane; nothing for a row of timing."""
    return "_".join(f"{name}-{row[name]}" for name in _LANE if name in row)


def require_loggers(config: TrainConfig) -> None:
    """Say what to install before a run starts that could not be logged as asked."""
    if config.tensorboard:
        require_library("tensorboardX")
    if config.track != "none":
        require_library(config.track)


def make_loggers(config: TrainConfig, run: Path, step: int) -> Iterator[Logger]:
    """The loggers that settings ask for."""
    if config.tensorboard:
        yield TensorBoard(run, step)
    if config.track != "none":
        yield Tracker(config.track, run.name, config.to_json())
