"""Folders of runs of other libraries: Stable-Baselines3's monitors, and event files of TensorBoard."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from cramerl._folders import open_inside, parse_json, read_inside
from cramerl.evidence.foreign.event_files import read_scalars
from cramerl.evidence.foreign.run_logs import FILE_BYTES, Points, RunLog, RunName, name_text, number
from cramerl.evidence.foreign.tables import opened_rows
from cramerl.evidence.protocols import ScoreKind

TAGS: dict[ScoreKind, tuple[str, ...]] = {
    "training": ("charts/episodic_return", "rollout/ep_rew_mean"),
    "evaluation": ("eval/episodic_return", "eval/mean_reward"),
}
"""Tags of returns, the first that a run has is read: those of CleanRL and of Stable-Baselines3."""
_CLEANRL = re.compile(r"(.+?)__(.+)__(\d+)__\d+")
_SEED = re.compile(r"(?:seed[_-]?)?(\d+)", re.IGNORECASE)
_NUMBERED = re.compile(r"(.+)_(\d+)")
_MOVING_MEAN = "rollout/ep_rew_mean"
_MOST_TAGS = 10


def is_monitor(name: str) -> bool:
    """Whether a file has the name of a monitor of Stable-Baselines3."""
    return name == "monitor.csv" or name.endswith(".monitor.csv")


def is_event_file(name: str) -> bool:
    """Whether a file has the name of an event file of TensorBoard."""
    return "tfevents" in name


def read_monitors(folder: Path, files: Sequence[str]) -> RunLog:
    """The run of a folder with monitors, one for each of its parallel environments.

    A step is counted when its episode ends: lengths are added up in the order in which episodes ended in all of the
    files.
    """
    episodes, envs, remarks = [], set(), []
    for name in sorted(files):
        file = folder / name
        began, env = _monitor_header(folder, name)
        envs |= {env} if env else set()
        with opened_rows(file, folder) as (columns, rows):
            if missing := [column for column in "rlt" if column not in columns]:
                raise ValueError(f"{file} is not a monitor of Stable-Baselines3: it has no column {missing[0]!r}")
            places, before, last = [columns.index(column) for column in "rlt"], 0.0, 0.0
            for line, row in rows(places):
                try:
                    value, length, at = (number(row[place]) for place in places)
                    if not 1 <= length < 2**31 or not length.is_integer():
                        raise ValueError(f"the length of an episode must be a whole number from 1 on, got {length:g}")
                    if at < last:  # a monitor that was opened again: its clock starts anew
                        before, remarks = before + last, [_restarted(file)]
                    last = at
                    episodes.append((began + before + at, value, length))
                except ValueError as error:
                    raise ValueError(f"{file} line {line}: {error}") from None
    points, step = Points(), 0.0
    for _, value, length in sorted(episodes):
        step += length
        try:
            points.add(step, value)
        except ValueError as error:
            raise ValueError(f"{folder}: {error}") from None
    return points.log(_monitor_name(folder, envs), folder, remarks=remarks)


def _restarted(file: Path) -> str:
    return f"{file.parent.name}/{file.name}: the clock starts again, so episodes are taken in the order of the file."


def _monitor_header(folder: Path, name: str) -> tuple[float, str]:
    """When a monitor began, and its environment where that is known, from the comment in its first line."""
    with open_inside(folder, name, most=FILE_BYTES) as content:
        line = content.readline(1 << 16)
    if not line.startswith(b"#"):
        raise ValueError(f"{folder / name} is not a monitor of Stable-Baselines3: it does not begin with a comment")
    try:
        values = parse_json(line[1:])
        began, env = number(values.get("t_start")), values.get("env_id")
    except (ValueError, AttributeError):
        raise ValueError(f"{folder / name} is not a monitor of Stable-Baselines3: its comment is not JSON") from None
    return 0.0 if began != began else began, env if isinstance(env, str) else ""


def _monitor_name(folder: Path, envs: set[str]) -> RunName:
    path = folder.resolve()
    if (match := _SEED.fullmatch(path.name)) is None and (match := _NUMBERED.fullmatch(path.name)):
        return _name(path.parent.name, match[1], match[2])  # as RL Baselines3 Zoo names them
    found = _by_folders(folder)
    # The files know the environment, so folders may also be ENV/AGENT/SEED.
    return found._replace(agent=found.env, env=found.agent) if envs == {found.agent} else found


def read_event_files(folder: Path, files: Sequence[str], scores: ScoreKind, columns: Mapping[str, str]) -> RunLog:
    """The run of a folder with event files."""
    tags = (columns["return"],) if "return" in columns else TAGS[scores]
    content = {name: read_inside(folder, name, most=FILE_BYTES) for name in sorted(files)}
    found: dict[str, Points] = {}
    for name, data in content.items():
        for scalar in read_scalars(data, folder / name, tags):
            try:
                found.setdefault(scalar.tag, Points()).add(scalar.step, scalar.value)
            except ValueError as error:
                raise ValueError(f"{folder / name}, {scalar.tag}: {error}") from None
    tag = next((tag for tag in tags if tag in found), None)
    if tag is None:
        others = sorted({one.tag for name, data in content.items() for one in read_scalars(data, folder / name)})
        if others:
            more = f" and {len(others) - _MOST_TAGS} more" if len(others) > _MOST_TAGS else ""
            raise ValueError(
                f"{folder} has no scalars {' or '.join(tags)}; say which are returns, as in columns return=TAG; it "
                f"has: {', '.join(others[:_MOST_TAGS])}{more}"
            )
    remarks = ()
    if tag == _MOVING_MEAN:
        remarks = (
            f"{_MOVING_MEAN} of Stable-Baselines3 is the mean over the last 100 episodes, so curves lag behind; its "
            "monitor.csv has every episode.",
        )
    return (found[tag] if tag else Points()).log(_event_name(folder), folder, remarks=remarks)


def _event_name(folder: Path) -> RunName:
    path = folder.resolve()
    if match := _CLEANRL.fullmatch(path.name):
        env = f"ALE/{match[1]}" if path.parent.name == "ALE" else match[1]  # ALE/Pong-v5 makes a folder ALE
        return _name(match[2], env, match[3])
    # Stable-Baselines3 makes a folder such as DQN_1 in the one that it is given.
    inside = not _SEED.fullmatch(path.name) and _SEED.fullmatch(path.parent.name)
    return _by_folders(path.parent if inside else path)


def _by_folders(folder: Path) -> RunName:
    path = folder.resolve()
    match = _SEED.fullmatch(path.name)
    if match is None or len(path.parts) < 4:
        raise ValueError(
            f"{folder} must be named so that its agent, environment and seed are known: AGENT/ENV/SEED, or "
            "ENV__AGENT__SEED__TIME as CleanRL does it"
        )
    return _name(path.parent.parent.name, path.parent.name, match[1])


def _name(agent: str, env: str, seed: str) -> RunName:
    return RunName(name_text(agent, "agent"), name_text(env, "env"), int(seed))
