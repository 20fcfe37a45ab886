"""The demonstration's last part: four agents learn MinAtar Breakout, and their curves are drawn.

A demonstration that was stopped goes on where it was; one that is finished is only drawn again.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from cramerl import plots
from cramerl.runs.folder import CONFIG, RunFolder
from cramerl.runs.presets import preset
from cramerl.runs.training import OnProgress, Run, resume, train

# What docs/study.md chose on this game; the preset's are for four.
_RATES = {"s51": 1e-4, "u51": 3e-4, "c51": 3e-4, "dqn": 1e-3}
AGENTS = tuple(_RATES)


class Curve(NamedTuple):
    """Mean return of the episodes that ended around each step."""

    agent: str
    steps: list[int]
    returns: list[float]

    @property
    def last(self) -> float:
        """Mean over the last tenth of the run."""
        tail = self.returns[-max(1, len(self.returns) // 10) :]
        return sum(tail) / len(tail)


def train_agent(agent: str, steps: int, out: Path, on_progress: OnProgress | None = None) -> Run:
    """Train one agent into ``out/AGENT``, or go on with what is there."""
    folder = out / agent
    # A tenth of MinAtar's usual million steps: exploration ends earlier too.
    changes = {"steps": steps, "exploration_decay_steps": max(1, steps // 3), "learning_rate": _RATES[agent]}
    config = preset("minatar", agent, "Breakout-MinAtar", **changes)
    if not (folder / CONFIG).exists():
        return train(config, folder, on_progress=on_progress)
    if RunFolder.open(folder).group.first != config:
        raise ValueError(f"{folder} holds a run of other settings: remove it, or choose another --out")
    return resume(folder, on_progress=on_progress)


def curve(run: Run) -> Curve:
    """The learning curve of a run."""
    rows = [row for row in run.rows if "charts/episodic_return" in row]
    return Curve(run.folder.name, [row["step"] for row in rows], [row["charts/episodic_return"] for row in rows])


def draw(curves: list[Curve], path: Path) -> Path:
    """The curves in one picture."""
    figure, ax = plots.new_figure(1, height=4.0)
    plots.draw_curves(ax, [c.steps for c in curves], [c.returns for c in curves], [c.agent for c in curves])
    ax.set_title("MinAtar Breakout, one seed each")
    return plots.save(figure, path)


def summary(curves: list[Curve]) -> dict[str, Any]:
    """The curves as plain values."""
    return {c.agent: {"steps": c.steps, "returns": c.returns, "last": c.last} for c in curves}
