"""What training tells its caller: the progress, where a run is and what it logged, and that it diverged."""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

from cramerl import _svg
from cramerl.runs.config import LANE_SETTINGS
from cramerl.runs.scores import tail_score


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
    """A run, or a group of them, that has finished or was stopped. A notebook shows its learning curve.

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

    def __repr__(self) -> str:
        mean, episodes = tail_score(self.rows)
        score = f", mean return {mean:,.2f}" if episodes else ""
        return f"Run({str(self.folder)!r}, {'finished' if self.finished else 'stopped'} at step {self.step:,}{score})"

    def _repr_html_(self) -> str:
        """One line and the learning curve of each run."""
        lines: dict[tuple[Any, ...], list[tuple[float, float]]] = {}
        for row in self.rows:
            if row.get("charts/episodes"):
                lane = tuple(row.get(name) for name in LANE_SETTINGS)
                lines.setdefault(lane, []).append((row["step"], row["charts/episodic_return"]))
        return f"<div>{escape(repr(self))}</div>{_svg.curves(list(lines.values()))}"


OnProgress = Callable[[Status], None]
AfterCheckpoint = Callable[[Path], None]
