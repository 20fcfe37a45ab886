"""The folder of a sweep: what is there, what is left to do, and the record of how it came about.

The truth about a cell is its own folder: a sweep that is started again looks at the folders and does what is missing.
``sweep.json`` says which commands made them, and why a cell failed.
"""

from __future__ import annotations

import dataclasses
import fcntl
import json
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from cramerl._files import write_json
from cramerl.runs.config import LANES, TrainConfig
from cramerl.runs.folder import CONFIG, METRICS, SPEC, TIMING, VERSIONS, WEIGHT_NORMS, RunFolder, read_object
from cramerl.runs.lanes import DIVERGED, diverged_lanes
from cramerl.runs.presets import applies
from cramerl.sweep.plan import (
    AXES,
    Cell,
    Identity,
    Sweep,
    axes_between,
    cells_of,
    identity,
    require_consistent,
    resume_arguments,
    train_arguments,
    wanted_runs,
)

RECORD, LOGS = "sweep.json", "logs"
_FORMAT = 1
_OURS = {CONFIG, SPEC, VERSIONS, METRICS, TIMING, WEIGHT_NORMS, "checkpoints", "tensorboard", ".lock"}
_ROW_BYTES = 4096  # more than a line of a log has


class Found(NamedTuple):
    """A cell that is there.

    Attributes:
        folder: below the folder of the sweep.
        config: its settings.
        step: agent steps that are logged.
        finished: everything its settings ask for is logged, of each lane to the end or to where it was lost.
        has_checkpoint: there is something to go on from.
        lost: numbers of the lanes whose loss or weights were not finite any more.
    """

    folder: str
    config: TrainConfig
    step: int
    finished: bool
    has_checkpoint: bool
    lost: list[int]


class Job(NamedTuple):
    """Something to do for one cell.

    Attributes:
        folder: below the folder of the sweep.
        arguments: the words after ``cramerl``.
        step: agent steps that are done.
        steps: agent steps there will be.
        runs: lanes; a step of each counts.
        fresh: the folder begins anew, and what an earlier attempt left there goes.
        can_go_on: stopped, it is resumed; without full checkpoints it begins anew.
    """

    folder: str
    arguments: list[str]
    step: int
    steps: int
    runs: int
    fresh: bool
    can_go_on: bool = True


class Plan(NamedTuple):
    """What a sweep comes to.

    Attributes:
        jobs: what is left to do, in order.
        done: folders of cells that are finished.
        cells: every cell that is asked for.
        varied: settings by which runs of one agent in one environment may differ, and values.
    """

    jobs: list[Job]
    done: list[str]
    cells: list[Cell]
    varied: dict[str, tuple[Any, ...]]


def require_folder(out: Path) -> None:
    """Refuse what is there and is no folder."""
    if out.exists() and not out.is_dir():
        raise ValueError(f"OUT must be a folder, {out} is a file")


def survey(out: Path) -> list[Found]:
    """The cells in the folder of a sweep, whoever made them."""
    require_folder(Path(out))
    folders = [path.parent for path in sorted(Path(out).glob(f"*/*/{CONFIG}"))]
    return [look_at(folder)._replace(folder=folder.relative_to(out).as_posix()) for folder in folders]


def look_at(folder: Path) -> Found:
    """One cell."""
    config = read_object(folder / CONFIG, TrainConfig.from_json)
    lanes = config.lane_settings
    rows = _last_rows(folder / METRICS, len(lanes) + 1)
    step = max((row["step"] for row in rows), default=0)
    last = [row for row in rows if row["step"] == step]
    lines = sum("charts/epsilon" in row for row in last)
    lost = _lost(folder, lanes) if lines < len(lanes) > 1 else []
    evaluated = not config.eval_episodes or 0 in lost or any("eval/episodic_return" in row for row in last)
    at_end = step >= config.steps or len(lost) == len(lanes)
    finished = at_end and lines + len(lost) == len(lanes) and evaluated
    return Found(str(folder), config, step, finished, any(folder.glob("checkpoints/*/manifest.json")), lost)


def _lost(folder: Path, lanes: list[dict[str, Any]]) -> list[int]:
    """Numbers of the lanes that a log says are lost, anywhere in it."""
    if not (folder / METRICS).exists():
        return []
    with (folder / METRICS).open(encoding="utf-8", errors="replace") as log:
        rows = [json.loads(line) for line in log if f'"{DIVERGED}": true' in line and line.endswith("\n")]
    return diverged_lanes(rows, lanes)


def last_speed(folder: Path) -> tuple[int, float]:
    """Steps that a cell has done, and how many it does in a second over all its lanes, as last logged."""
    rows = _last_rows(folder / TIMING, 1)
    return (rows[-1]["step"], float(rows[-1].get("charts/SPS", 0.0))) if rows else (0, 0.0)


def make_plan(sweep: Sweep, out: Path, is_gymnax: Callable[[str], bool], kept: Collection[str] = ()) -> Plan:
    """Compare what is asked for with what is there.

    Args:
        sweep: what is asked for.
        out: folder of the sweep; need not exist.
        is_gymnax: whether an environment, by its name, is a JAX program.
        kept: folders of cells whose checkpoints are kept in another place.
    """
    out, runs = Path(out), wanted_runs(sweep)
    found = [cell._replace(has_checkpoint=cell.has_checkpoint or cell.folder in kept) for cell in survey(out)]
    axes = {name: tuple(values) for name, values in read_record(out)["axes"].items()} | sweep.varied
    if sweep.allow_variants:
        axes |= axes_between(runs, (cell.config for cell in found))
    varied = {name: axes[name] for name in AXES if name in axes}
    chosen = {name for settings in sweep.chosen.values() for name in settings}
    there = {str(out / cell.folder): cell.config for cell in found}
    require_consistent(runs, there, varied, chosen, searched=bool(sweep.variants))
    needed, missing = _holders(runs, found)
    begun, longer, done = [], [], []
    for cell, steps in needed:
        if cell.finished and cell.config.steps == steps:
            done.append(cell.folder)
        else:
            (longer if cell.finished else begun).append(_going_on(cell, steps, out))
    new = cells_of(missing, is_gymnax, varied, sweep.max_lanes)
    cells = [*(Cell(cell.folder, dataclasses.replace(cell.config, steps=steps)) for cell, steps in needed), *new]
    for cell in new:
        if (out / cell.folder / CONFIG).exists():
            raise ValueError(f"{out / cell.folder} is where a run of this sweep goes, and holds another; move it away")
        if (out / cell.folder / METRICS).exists():
            raise ValueError(f"{out / cell.folder} holds {METRICS} and no {CONFIG}, and would be lost; move it away")
    jobs = [*begun, *longer, *(_beginning(cell, out) for cell in new)]
    return Plan(jobs, done, sorted(cells, key=lambda cell: cell.folder), varied)


def gone_on_with(job: Job, out: Path) -> Job:
    """A job whose process was lost, as it is to be begun again: from its checkpoint where it has written one."""
    path = out / job.folder
    if not (path / CONFIG).exists():
        return job
    found = look_at(path)
    if found.config.checkpoints != "full":
        return job
    words = resume_arguments(path, job.steps if job.steps > found.config.steps else None)
    return job._replace(arguments=words, step=found.step, fresh=False)


def clear_folder(path: Path) -> None:
    """Remove what an unfinished attempt left; a folder with anything else in it is refused."""
    _require_ours(path)
    if path.exists():
        with RunFolder(path).locked():
            shutil.rmtree(path)


@contextmanager
def locked(out: Path) -> Iterator[int]:
    """Keep other sweeps out of a folder. The descriptor may be given to children: they then keep it locked too."""
    require_folder(out)
    out.mkdir(parents=True, exist_ok=True)
    with (out / ".lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ValueError(
                f"another sweep is running in {out}, or its last runs are stopping; wait for it"
            ) from error
        yield file.fileno()


def read_record(out: Path) -> dict[str, Any]:
    """What ``sweep.json`` says; without one, nothing."""
    empty = {"format": _FORMAT, "commands": [], "axes": {}, "chosen": [], "cells": []}
    if not (out / RECORD).exists():
        return empty

    def checked(record: dict[str, Any]) -> dict[str, Any]:
        if record.get("format") != _FORMAT:
            raise ValueError(f"format must be {_FORMAT}, got {record.get('format')!r}")
        for name, value in empty.items():
            if not isinstance(record.get(name), type(value)):
                raise ValueError(f"{name} must be {type(value).__name__}, got {record.get(name)!r}")
        for name, values, kind, keys in (
            ("commands", record["commands"], str, ()),
            ("axes", record["axes"].values(), list, ()),
            ("chosen", record["chosen"], dict, ("agent", "env", "from")),
            ("cells", record["cells"], dict, ("folder", "agent", "env", "steps", "settings")),
        ):
            for value in values:
                if not isinstance(value, kind) or any(key not in value for key in keys):
                    needed = f" with {', '.join(keys)}" if keys else ""
                    raise ValueError(f"{name} must hold {kind.__name__}{needed}, got {value!r}")
        return record

    return read_object(out / RECORD, checked)


def write_record(out: Path, plan: Plan, command: str, chosen: list[dict[str, Any]], failed: Mapping[str, str]) -> None:
    """Write ``sweep.json``: commands, axes and choices so far, and every cell with what sets it apart.

    Args:
        out: folder of the sweep.
        plan: its cells, and what they may differ in.
        command: the command that asked; kept if there was anything to do, or to write down, for it.
        chosen: settings that were taken from another sweep, and why.
        failed: folders of cells that failed, with a sentence.
    """
    record = read_record(out)
    known = {cell["folder"] for cell in record["cells"]}
    new = plan.jobs or any(cell.folder not in known for cell in plan.cells)
    commands = [*record["commands"], *([command] if new and command not in record["commands"] else [])]
    axes = {name: [*dict.fromkeys([*record["axes"].get(name, []), *values])] for name, values in plan.varied.items()}
    cells = {cell["folder"]: _described(cell, out, plan.varied) for cell in record["cells"]}
    for cell in plan.cells:
        cells[cell.folder] = _cell_record(cell, plan.varied, failed)
    choices = {(choice["agent"], choice["env"], choice["from"]): choice for choice in [*record["chosen"], *chosen]}
    content = {"format": _FORMAT, "command": "; ".join(commands), "commands": commands, "axes": axes}
    content |= {"chosen": list(choices.values()), "cells": [cells[folder] for folder in sorted(cells)]}
    write_json(out / RECORD, content)


def _cell_record(cell: Cell, varied: Collection[str], failed: Mapping[str, str]) -> dict[str, Any]:
    config = cell.config
    record: dict[str, Any] = {"folder": cell.folder, "agent": config.agent, "env": config.env}
    record |= {"seeds": list(range(config.seed, config.seed + config.lanes)), "steps": config.steps}
    record["settings"] = _apart(config, varied)
    return record | ({"failed": failed[cell.folder]} if cell.folder in failed else {})


def _described(record: dict[str, Any], out: Path, varied: Collection[str]) -> dict[str, Any]:
    """The record of a cell that is not asked for now, with its values of settings that have become axes since."""
    file = out / record["folder"] / CONFIG
    known = {name for name in varied if applies(name, record["agent"], record["env"])}
    if known <= set(record["settings"]) or not file.exists():
        return record
    return record | {"settings": _apart(read_object(file, TrainConfig.from_json), varied)}


def _apart(config: TrainConfig, varied: Collection[str]) -> dict[str, Any]:
    """What sets a cell apart: one value of each axis, or those of its lanes."""
    names = [name for name in varied if applies(name, config.agent, config.env)]
    several = {one: list(getattr(config, name)) for one, name in LANES.items()}
    return {name: several.get(name) or getattr(config, name) for name in names}


def _holders(runs: list[TrainConfig], found: list[Found]) -> tuple[list[tuple[Found, int]], list[TrainConfig]]:
    """The cells that hold runs, each with the steps it is to have (no fewer than it has), and runs that none holds."""
    holder_of: dict[Identity, int] = {}
    for number, cell in sorted(enumerate(found), key=lambda pair: not pair[1].finished):
        for run in cell.config.single_runs():
            holder_of.setdefault(identity(run), number)
    steps: dict[int, int] = {}
    missing = []
    for run in runs:
        number = holder_of.get(identity(run))
        if number is None:
            missing.append(run)
        else:
            steps[number] = max(steps.get(number, found[number].config.steps), run.steps)
    return [(found[number], most) for number, most in steps.items()], missing


def _going_on(cell: Found, steps: int, out: Path) -> Job:
    """Finish a cell, or make it longer. Lines that were logged are never given up where they cannot be had again."""
    path, config = out / cell.folder, cell.config
    if config.checkpoints == "full":
        lost = cell.finished or cell.step > config.iteration_steps
        if lost and not cell.has_checkpoint:
            raise ValueError(
                f"{path} has logged {cell.step} steps but has no checkpoint to go on from to {steps}; put its "
                "checkpoints back, or remove it to train it anew"
            )
        words = resume_arguments(path, steps if steps > config.steps else None)
        return Job(cell.folder, words, cell.step, steps, len(config.lane_settings), False)
    if cell.finished:
        raise ValueError(
            f"{path} is finished after {cell.step} steps and cannot be made longer, for its checkpoints are "
            f"{config.checkpoints!r}, not 'full'; take another folder, or --steps {config.steps}"
        )
    return _beginning(Cell(cell.folder, dataclasses.replace(config, steps=steps)), out)


def _beginning(cell: Cell, out: Path) -> Job:
    path = out / cell.folder
    _require_ours(path)
    words = train_arguments(cell.config, path)
    config = cell.config
    return Job(cell.folder, words, 0, config.steps, len(config.lane_settings), True, config.checkpoints == "full")


def _require_ours(path: Path) -> None:
    """Only what `cramerl train` writes may be in a folder that is to begin anew."""
    if not path.exists():
        return
    others = [entry.name for entry in path.iterdir() if entry.name not in _OURS] if path.is_dir() else [path.name]
    others = [name for name in others if not name.startswith(tuple(f".{Path(ours).stem}-" for ours in _OURS))]
    if others:
        raise ValueError(f"{path} is where a run of this sweep goes, and holds {sorted(others)[0]}; move it away")


def _last_rows(file: Path, lines: int) -> list[dict[str, Any]]:
    """Whole lines at the end of a log, at least so many where there are; one cut short by a crash is left out."""
    if not file.exists():
        return []
    with file.open("rb") as log:
        size = log.seek(0, 2)
        start = max(0, size - lines * _ROW_BYTES)
        log.seek(start)
        text = log.read().decode(errors="replace")
    whole = text.split("\n")[1 if start else 0 : -1]
    rows = []
    for line in whole:
        try:
            row = json.loads(line)
        except ValueError as error:
            raise ValueError(f"{file} holds a line that is not JSON: {error}") from error
        if isinstance(row, dict) and isinstance(row.get("step"), int):
            rows.append(row)
    return rows
