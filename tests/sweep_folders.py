"""Folders of sweeps as `cramerl sweep` leaves them, without training."""

from __future__ import annotations

import json
from pathlib import Path

from cramerl.runs.config import TrainConfig
from cramerl.runs.group import RunGroup, as_group
from cramerl.runs.parsing import parse_seeds
from cramerl.sweep.folder import Plan, make_plan, write_record
from cramerl.sweep.plan import Sweep

GAME = "Breakout-MinAtar"


def asked(agents="s51", envs=GAME, seeds="0-1", **options) -> Sweep:
    return Sweep(tuple(agents.split(",")), tuple(envs.split(",")), parse_seeds(seeds), preset="smoke", **options)


def plan(sweep: Sweep, out: Path) -> Plan:
    return make_plan(sweep, out)


def put_run(
    out: Path, folder: str, runs: TrainConfig | RunGroup, step: int | None = None, *, score=1.0, checkpoint=True
) -> Path:
    """A run or group as `cramerl train` leaves it, with one line for each run and each hundred steps."""
    group, path = as_group(runs), out / folder
    path.mkdir(parents=True)
    (path / "config.json").write_text(json.dumps(group.to_json()))
    frames = 4 if group.first.env == "pong" else 1
    rows = [
        {"step": at, "frames": frames * at, "iteration": 0, **lane, "charts/epsilon": 0.1, "charts/episodes": 2}
        | {"charts/episodic_return": score}
        for at in range(100, (group.first.steps if step is None else step) + 1, 100)
        for lane in group.lanes
    ]
    (path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    if checkpoint:
        (path / "checkpoints" / "000001").mkdir(parents=True)
        (path / "checkpoints" / "000001" / "manifest.json").write_text("{}")
    return path


def put_sweep(sweep: Sweep, out: Path, **options) -> Plan:
    """Every job of a sweep, finished."""
    made = plan(sweep, out)
    for job in made.jobs:
        put_run(out, job.folder, job.group, **options)
    write_record(out, made, "cramerl sweep", [], {})
    return made


def diverge(log: Path, lane: dict[str, float], step: int) -> None:
    """Let a run diverge at a step: its lines end there, and the last one says so."""
    kept = []
    for line in log.read_text().splitlines():
        row = json.loads(line)
        its = all(row[name] == value for name, value in lane.items())
        if its and row["step"] == step:
            row = {name: value for name, value in row.items() if "/" not in name} | {"diverged": True}
        if not its or row["step"] <= step:
            kept.append(json.dumps(row) + "\n")
    log.write_text("".join(kept))
