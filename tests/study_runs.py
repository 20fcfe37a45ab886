"""Folders of runs as `cramerl train` and `cramerl sweep` write them, without training."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from cramerl.evidence.curves import read_curves
from cramerl.evidence.summary import Scoring, Summary, summarise
from cramerl.reports.tables import Table, make_tables
from cramerl.runs.group import RunGroup
from cramerl.runs.presets import preset

_PLAIN_U51 = {"base_distribution": "uniform", "mean_weight": 0.0}


def write_run(
    folder: Path,
    agent: str = "s51",
    env: str = "Breakout-MinAtar",
    *,
    level: float = 10.0,
    rows: int = 10,
    steps: int = 1000,
    seeds: int = 1,
    **settings: Any,
) -> Path:
    """Write a run, or the runs of a group, whose returns rise to about ``level``; every row has two episodes.

    Several seeds, learning rates or mass penalties in a tuple are runs of one group. U51 and S51 are plain.
    """
    plain: dict[str, Any] = {"s51": {"next_distribution": "signed"}, "u51": _PLAIN_U51}.get(agent, {})
    several = {
        name: settings.pop(name) for name in ("learning_rate", "mass_penalty") if isinstance(settings.get(name), tuple)
    }
    if "v_max" in settings:
        settings = {"v_min": -10.0} | settings
    config = preset(None, agent, env, **{"steps": steps, "min_replay_steps": 1, **plain, **settings})
    group = RunGroup.of(config, seed=range(config.seed, config.seed + seeds), **several)
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(group.to_json()))
    (folder / "versions.json").write_text(json.dumps({"cramerl": "0.0", "device": "cpu: cpu"}))
    frames = 4 if config.preset == "paper" else 1
    lines = []
    for i, step in enumerate(np.linspace(0, steps, rows + 1)[1:]):
        for lane in group.lanes:
            noise = 0.05 * level * np.random.default_rng([lane["seed"], i]).normal()
            off = 200 * abs(lane.get("learning_rate", 5e-4) - 5e-4)
            score = level * (1 - np.exp(-3 * step / steps)) * (1 - off) + noise
            line = {"step": int(step), "frames": frames * int(step), "iteration": i // 5, **lane}
            line |= {"charts/episodes": 2, "charts/episodic_return": score, "losses/loss": 0.5, "dist/mass": 1.0}
            lines.append(line | {"dist/negative_mass": 0.01, "dist/clipped_mass": 0.001})
    write_rows(folder, lines)
    return folder


def read_rows(folder: Path) -> list[dict[str, Any]]:
    """The rows of a run's log."""
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def write_rows(folder: Path, rows: list[dict[str, Any]]) -> None:
    """Replace the rows of a run's log."""
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def row(step: int, value: float | None = None, episodes: int = 1, **more: Any) -> dict[str, Any]:
    """A row of a log; without a value no episode ended."""
    found = {"step": step, "frames": step, "seed": 0, "charts/episodes": episodes if value is not None else 0}
    return found | ({} if value is None else {"charts/episodic_return": value}) | more


def diverging(folder: Path, at: int = 500, **settings: Any) -> None:
    """Write runs of two learning rates, the second of which diverges."""
    write_run(folder, learning_rate=(5e-4, 1.0), **settings)
    rows = [row for row in read_rows(folder) if row["learning_rate"] < 1 or row["step"] < at]
    end = {"step": at, "frames": at, "iteration": 0, "learning_rate": 1.0, "seed": settings.get("seed", 0)}
    write_rows(folder, [*rows, end | {"diverged": True}])


def change_config(folder: Path, **values: Any) -> None:
    """Change settings in a run's config.json; None removes one."""
    file = folder / "config.json"
    config = json.loads(file.read_text()) | values
    file.write_text(json.dumps({name: value for name, value in config.items() if value is not None}))


def summary_of(*paths: Path, **scoring: Any) -> Summary:
    """The summary of the only study at some paths."""
    (summary,) = summarise(read_curves(paths), Scoring(**scoring))
    return summary


def tables_of(summary: Summary) -> dict[str, Table]:
    """The tables of a study by name: without the figures, which take longest."""
    return {table.name: table for table in make_tables(summary)}


def column(table: Table, i: int) -> list[str]:
    """The texts of a column of a table."""
    return [row[i] for row in table.rows]


def files(folder: Path) -> dict[str, bytes]:
    """The contents of all files below a folder."""
    found = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in found}
