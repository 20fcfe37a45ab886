"""Folders of runs as `cramerl train` and `cramerl sweep` leave them, without training."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np

from cramerl.runs.presets import preset


def write_run(
    folder: Path,
    agent: str = "s51",
    env: str = "Breakout-MinAtar",
    *,
    level: float = 10.0,
    rows: int = 10,
    steps: int = 1000,
    **settings: Any,
) -> Path:
    """A run, or the lanes of one, whose returns rise to about ``level``; every row has two episodes; u51 is plain."""
    plain = {"base_distribution": "uniform", "mean_weight": 0.0} if agent == "u51" else {}
    config = preset(None, agent, env, **{"steps": steps, "min_replay_steps": 1, **plain, **settings})
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config.to_json()))
    (folder / "versions.json").write_text(json.dumps({"cramerl": "0.0", "device": "cpu: cpu"}))
    frames = 4 if config.preset == "paper" else 1
    lanes = itertools.product(
        range(config.seed, config.seed + config.lanes),
        config.learning_rates or (None,),
        config.mass_penalties or (None,),
    )
    lines = []
    for (seed, rate, penalty), (i, step) in itertools.product(lanes, enumerate(np.linspace(0, steps, rows + 1)[1:])):
        lane = {"seed": seed, "learning_rate": rate, "mass_penalty": penalty}
        row = {"step": int(step), "frames": frames * int(step), "iteration": i // 5}
        row |= {name: value for name, value in lane.items() if value is not None}
        noise = np.random.default_rng([seed, i]).normal()
        score = level * (1 - np.exp(-3 * step / steps)) * (1 - 200 * abs((rate or 5e-4) - 5e-4)) + 0.05 * level * noise
        row |= {"charts/episodes": 2, "charts/episodic_return": score, "losses/loss": 0.5, "dist/mass": 1.0}
        row |= {"dist/negative_mass": 0.01, "dist/clipped_mass": 0.001}
        lines.append((step, json.dumps(row) + "\n"))
    (folder / "metrics.jsonl").write_text("".join(line for _, line in sorted(lines, key=lambda one: one[0])))
    return folder


def write_rows(folder: Path, rows: list[dict[str, Any]]) -> None:
    """Put other rows in place of a run's."""
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def change_config(folder: Path, **values: Any) -> None:
    """Put other settings into a run's config.json, None to take one out."""
    file = folder / "config.json"
    config = json.loads(file.read_text()) | values
    file.write_text(json.dumps({name: value for name, value in config.items() if value is not None}))
