"""The folder of a sweep: what it holds, what is left to do, and the record of the commands that made it.

The folder of a job is the truth about it: a sweep that is started again inspects the folders and does what is missing.
``sweep.json`` says which commands made them, and why a job failed.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

from cramerl._files import write_json
from cramerl._folders import LOG_BYTES, inside, open_inside, parse_json
from cramerl.runs.config import TrainConfig
from cramerl.runs.folder import CONFIG, METRICS, RUN_FILES, RunFolder, is_log_row, load_group, lock_folder, read_object
from cramerl.runs.group import RunGroup
from cramerl.sweep.plan import (
    AXES,
    Identity,
    Job,
    Sweep,
    axes_between,
    folder_name,
    group_runs,
    identity,
    require_consistent,
    wanted_runs,
)

RECORD, LOGS = "sweep.json", "logs"
_FORMAT = 2
_ROW_BYTES = 4096  # an upper bound for one line of a log


class RunState(NamedTuple):
    """How far the runs in a folder are.

    Attributes:
        folder: the folder; from `find_runs`, relative to the folder of the sweep.
        group: their settings.
        step: agent steps that are logged.
        finished: whether the log holds everything that the settings ask for; a run that diverged is finished.
        has_checkpoint: whether there is a checkpoint to resume from.
        diverged: lanes of the runs that diverged.
    """

    folder: str
    group: RunGroup
    step: int
    finished: bool
    has_checkpoint: bool
    diverged: list[int]


class Plan(NamedTuple):
    """What a sweep asks for, compared with what its folder holds.

    Attributes:
        jobs: what is left to do, in order.
        done: jobs whose runs are finished.
        varied: settings in which runs of one agent in one environment may differ, and their values.
    """

    jobs: list[Job]
    done: list[Job]
    varied: dict[str, tuple[Any, ...]]


def log_file(out: Path, folder: str) -> Path:
    """Where the output of a job's process goes."""
    return inside(out, f"{LOGS}/{folder}.log")


def find_runs(out: Path) -> list[RunState]:
    """All runs in the folder of a sweep, whoever made them."""
    if out.exists() and not out.is_dir():
        raise ValueError(f"OUT must be a folder, {out} is a file")
    folders = [path.parent for path in sorted(out.glob(f"*/*/{CONFIG}"))]
    return [inspect_run(folder)._replace(folder=folder.relative_to(out).as_posix()) for folder in folders]


def inspect_run(folder: Path) -> RunState:
    """How far the run or group in a folder is."""
    group = load_group(folder)
    rows = last_rows(folder / METRICS, 2 * len(group))
    step = max((row["step"] for row in rows), default=0)
    last = [row for row in rows if row["step"] == step]
    lines = sum("charts/epsilon" in row for row in last)
    diverged = group.diverged(RunFolder(folder).metrics()) if lines < len(group) > 1 else []
    config = group.first
    evaluations = sum("eval/episodic_return" in row for row in last)
    evaluated = not config.eval_episodes or evaluations + len(diverged) == len(group)
    at_end = step >= config.steps or len(diverged) == len(group)
    finished = at_end and lines + len(diverged) == len(group) and evaluated
    return RunState(str(folder), group, step, finished, any(folder.glob("checkpoints/*/manifest.json")), diverged)


def make_plan(sweeps: Sweep | Sequence[Sweep], out: Path, stored: Collection[str] = ()) -> Plan:
    """Compare what a sweep, or several sweeps into one folder, ask for with what the folder holds.

    Args:
        sweeps: the runs to train.
        out: folder of the sweep; need not exist.
        stored: folders of jobs that have a checkpoint in a storage.
    """
    sweeps = [sweeps] if isinstance(sweeps, Sweep) else sweeps
    runs = [run for sweep in sweeps for run in wanted_runs(sweep)]
    found = [run._replace(has_checkpoint=run.has_checkpoint or run.folder in stored) for run in find_runs(out)]
    axes = {name: tuple(values) for name, values in read_record(out)["axes"].items()}
    for sweep in sweeps:
        axes |= sweep.varied
    if any(sweep.allow_variants for sweep in sweeps):
        axes |= axes_between(runs, (run.group for run in found))
    varied = {name: axes[name] for name in AXES if name in axes}
    chosen = {name for sweep in sweeps for settings in sweep.chosen.values() for name in settings}
    existing = {str(out / run.folder): run.group for run in found}
    require_consistent(runs, existing, varied, chosen, searched=any(sweep.variants for sweep in sweeps))
    matched, missing = match_runs(runs, found)
    started, longer, done = [], [], []
    for run, steps in matched:
        if run.finished and run.group.first.steps == steps:
            done.append(Job(run.folder, run.group, run.step, "resume"))
        else:
            (longer if run.finished else started).append(resume_job(run, steps, out))
    new, taken = [], {run.folder for run in found}
    for group in group_runs(missing, min(sweep.max_lanes for sweep in sweeps)):
        name = folder_name(group, varied)
        names = (name, *(f"{name}__{number}" for number in range(2, len(taken) + 3)))
        folder = next(name for name in names if name not in taken)
        taken.add(folder)
        if (out / folder / METRICS).exists():
            raise ValueError(f"{out / folder} holds {METRICS} but no {CONFIG}, and would be overwritten; move it away")
        _require_run_files(out / folder)
        new.append(Job(folder, group))
    return Plan([*started, *longer, *new], done, varied)


def match_runs(runs: list[TrainConfig], found: list[RunState]) -> tuple[list[tuple[RunState, int]], list[TrainConfig]]:
    """Which folders hold the runs, each with the steps it is to have (no fewer than it has), and the missing runs."""
    state_of: dict[Identity, RunState] = {}
    for state in sorted(found, key=lambda state: not state.finished):
        for config in state.group.configs:
            state_of.setdefault(identity(config), state)
    matched: dict[str, tuple[RunState, int]] = {}
    for run in runs:
        if (state := state_of.get(identity(run))) is not None:
            _, steps = matched.get(state.folder, (state, state.group.first.steps))
            matched[state.folder] = state, max(steps, run.steps)
    return list(matched.values()), [run for run in runs if identity(run) not in state_of]


def resume_job(run: RunState, steps: int, out: Path) -> Job:
    """Finish a job, or make it longer. Logged lines that cannot be computed again are never given up."""
    path, group = out / run.folder, run.group.replace(steps=steps)
    job = Job(run.folder, group, run.step, "resume")
    if job.resumable:
        if (run.finished or run.step > group.first.iteration_steps) and not run.has_checkpoint:
            raise ValueError(
                f"{path} has logged {run.step} steps but has no checkpoint from which to continue to {steps}; restore "
                "its checkpoints, or remove the folder to train it again"
            )
        return job
    if run.finished:
        raise ValueError(
            f"{path} is finished after {run.step} steps and cannot be made longer, because its checkpoints are "
            f"{group.first.checkpoints!r}, not 'full'; use another folder, or --steps {run.group.first.steps}"
        )
    _require_run_files(path)
    return job._replace(step=0, start="restart")


def clear_folder(path: Path) -> None:
    """Remove what an unfinished attempt left; a folder that holds anything else is an error."""
    _require_run_files(path)
    if path.exists():
        with RunFolder(path).locked():
            shutil.rmtree(path)


def locked(out: Path) -> AbstractContextManager[int]:
    """Keep other sweeps out of a folder. Children that inherit the descriptor keep the lock too."""
    out.mkdir(parents=True, exist_ok=True)
    return lock_folder(out, f"another sweep is running in {out}, or its last runs are stopping; wait for it")


def read_record(out: Path) -> dict[str, Any]:
    """The content of ``sweep.json``; an empty record if there is none."""
    empty = {"format": _FORMAT, "commands": [], "axes": {}, "chosen": [], "jobs": []}

    def checked(record: dict[str, Any]) -> dict[str, Any]:
        if record.get("format") != _FORMAT:
            raise ValueError(f"format must be {_FORMAT}, got {record.get('format')!r}")
        needed = {"commands": (), "axes": (), "chosen": ("agent", "env", "from"), "jobs": ("folder", "agent", "env")}
        for name, keys in needed.items():
            values, kind = record.get(name), {"commands": str, "axes": list}.get(name, dict)
            items = values.values() if isinstance(values, dict) else values or ()
            good = (isinstance(item, kind) and all(key in item for key in keys) for item in items)
            if not isinstance(values, type(empty[name])) or not all(good):
                with_keys = f" with {', '.join(keys)}" if keys else ""
                raise ValueError(f"{name} must hold {kind.__name__}{with_keys}, got {values!r}")
        return record

    return read_object(out, RECORD, checked) if (out / RECORD).exists() else empty


def write_record(out: Path, plan: Plan, command: str, chosen: list[dict[str, Any]], failed: Mapping[str, str]) -> None:
    """Write ``sweep.json``: the commands, axes and choices so far, and the jobs; their settings are in their folders.

    Args:
        out: folder of the sweep.
        plan: its jobs, and the settings in which they may differ.
        command: the command that asked for them; recorded if there was something to do, or to record, for it.
        chosen: settings that were taken from another sweep, and why.
        failed: folders of jobs that failed, with the reason.
    """
    record, jobs = read_record(out), {}
    for job in (*plan.jobs, *plan.done):
        config = job.group.first
        jobs[job.folder] = {"folder": job.folder, "agent": config.agent, "env": config.env}
        jobs[job.folder] |= {"failed": failed[job.folder]} if job.folder in failed else {}
    before = {job["folder"]: job for job in record["jobs"]}
    new = plan.jobs or not jobs.keys() <= before.keys()
    commands = [*record["commands"], *([command] if new and command not in record["commands"] else [])]
    axes = {name: [*dict.fromkeys([*record["axes"].get(name, []), *values])] for name, values in plan.varied.items()}
    choices = {(choice["agent"], choice["env"], choice["from"]): choice for choice in [*record["chosen"], *chosen]}
    content = {"format": _FORMAT, "command": "; ".join(commands), "commands": commands, "axes": axes}
    content |= {"chosen": list(choices.values()), "jobs": [job for _, job in sorted((before | jobs).items())]}
    write_json(inside(out, RECORD), content)


def _require_run_files(path: Path) -> None:
    """Raise ValueError if a folder in which a run starts holds anything that `cramerl train` did not write."""
    if not path.exists():
        return
    others = [entry.name for entry in path.iterdir() if entry.name not in RUN_FILES] if path.is_dir() else [path.name]
    others = [name for name in others if not name.startswith(tuple(f".{Path(file).stem}-" for file in RUN_FILES))]
    if others:
        raise ValueError(f"{path} is where a run of this sweep belongs, but holds {sorted(others)[0]}; move it away")


def last_rows(file: Path, lines: int) -> list[dict[str, Any]]:
    """At least so many lines from the end of a log, if it has them; a line cut short by a crash is left out."""
    if not file.exists():
        return []
    with open_inside(file.parent, file.name, most=LOG_BYTES) as log:
        size = log.seek(0, 2)
        start = max(0, size - lines * _ROW_BYTES)
        log.seek(start)
        text = log.read().decode(errors="replace")
    try:
        rows = [parse_json(line) for line in text.split("\n")[1 if start else 0 : -1]]
    except ValueError as error:
        raise ValueError(f"{file} holds a line that is not JSON: {error}") from error
    return [row for row in rows if is_log_row(row)]
