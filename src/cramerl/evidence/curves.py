"""Learning curves read from the folders of runs: one for each seed, learning rate and mass penalty in them."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cramerl.evidence.protocols import PROTOCOL_SETTINGS, Protocol, ScoreKind
from cramerl.runs.config import AGENTS, TrainConfig, applies_to_agent
from cramerl.runs.folder import CONFIG, METRICS, SPEC, VERSIONS, RunFolder, read_object
from cramerl.runs.group import DIVERGED

SWEEP = "sweep.json"  # marks the folder of a study
Array = NDArray[np.float64]

_LANE = {"seed": "", "learning_rate": "learning_rates", "mass_penalty": "mass_penalties"}
_HUGE = 1e300  # no return is so large; larger integers are no floats
# Settings that change where a run is kept, how long it is or what is written of it, not what is learned.
_UNLEARNED = {
    *("agent", "env", "preset", "seed", "lanes", "learning_rates", "mass_penalties", "steps", "iteration_steps"),
    *("log_steps", "checkpoints", "tensorboard", "track", "replay_on", "eval_episodes"),
}


class Study(NamedTuple):
    """Runs that belong together: a folder, the name it goes by, and the command that made it where it is known."""

    folder: Path
    name: str
    command: str


@dataclass(frozen=True, eq=False)
class Curve:
    """One run: a row of each array for each line of its log.

    Attributes:
        agent: its agent.
        env: its environment.
        seed: its seed.
        settings: all settings, those of its lane put in.
        steps: (rows,) agent steps, increasing.
        frames: (rows,) emulator frames.
        returns: (rows,) mean return of the episodes that ended since the row before; NaN where none did.
        episodes: (rows,) how many these are.
        metrics: every other number of the log by its tag, (rows,), NaN where a row has none.
        source: folder of the run.
        study: the study it belongs to.
        versions: of the libraries.
        protocol: what its scores depend on.
        diverged: its loss or its weights stopped being finite, at its last row, before the end of the run.
    """

    agent: str
    env: str
    seed: int
    settings: dict[str, Any]
    steps: NDArray[np.int64]
    frames: NDArray[np.int64]
    returns: Array
    episodes: Array
    metrics: dict[str, Array]
    source: Path
    study: Study
    versions: dict[str, Any]
    protocol: Protocol
    diverged: bool = False

    @property
    def last_step(self) -> int:
        """Steps of the whole run; 0 for a log without rows."""
        return int(self.steps[-1]) if len(self.steps) else 0

    @property
    def learned_with(self) -> dict[str, Any]:
        """The settings that change what is learned and are no part of the protocol."""
        skipped = _UNLEARNED | set(PROTOCOL_SETTINGS)
        return {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in sorted(self.settings.items())
            if name not in skipped and applies_to_agent(name, self.agent)
        }


def read_curves(paths: Iterable[str | Path], *, scores: ScoreKind = "training") -> list[Curve]:
    """Every run below the paths.

    Args:
        paths: folders of runs, or folders with such folders below them.
        scores: "training", the episodes of training, or "evaluation", those played at the end of each iteration.

    Returns:
        One curve per seed, learning rate and mass penalty, in order of study, environment, agent and seed. A log
        without rows gives a curve without rows.
    """
    if scores not in ("training", "evaluation"):
        raise ValueError(f"scores must be training or evaluation, got {scores!r}")
    folders: dict[Path, Study] = {}
    for path in map(Path, paths):
        for folder in _run_folders(path):
            folders.setdefault(folder.resolve(), _study(folder, path))
    studies = _distinct_names(folders.values())
    curves = [curve for folder, study in folders.items() for curve in _read(folder, studies[study.folder], scores)]
    curves.sort(key=lambda c: (c.study.name, str(c.study.folder), c.env, _place(c.agent), c.seed, str(c.source)))
    _require_no_duplicates(curves)
    return curves


def final_score(curve: Curve, tail: float = 0.2, steps: int | None = None) -> float:
    """Mean return per episode over the last part of the steps; NaN if no episode ended there.

    A run that diverged has no score, NaN, whatever its returns were before: they are not what its settings come to.

    Args:
        curve: a run.
        tail: of its steps, in (0, 1].
        steps: where the run is taken to end, for a comparison with shorter ones; None: at its end.
    """
    rows = last_rows(curve, tail, steps)
    weights = curve.episodes[rows]
    if curve.diverged:
        return float("nan")
    return float(np.average(curve.returns[rows], weights=weights)) if weights.sum() > 0 else float("nan")


def area_under_curve(curve: Curve, steps: int | None = None) -> float:
    """Mean over steps of the return: each row stands for the steps since the last row in which an episode ended.

    NaN if no episode ended, or if the run diverged.
    """
    end = curve.last_step if steps is None else steps
    there = (curve.episodes > 0) & (curve.steps <= end)
    if curve.diverged or not there.any():
        return float("nan")
    spans = np.diff(curve.steps[there], prepend=0)
    return float(np.average(curve.returns[there], weights=spans))


def last_rows(curve: Curve, tail: float, steps: int | None = None) -> NDArray[np.bool_]:
    """Which rows have an episode that ended in the last part of the steps."""
    if not 0 < tail <= 1:
        raise ValueError(f"tail must be in (0, 1], got {tail!r}")
    end = curve.last_step if steps is None else steps
    start = end - tail * end
    return (curve.steps > start + 1e-9 * end) & (curve.steps <= end) & (curve.episodes > 0)


def common_steps(curves: Iterable[Curve]) -> int:
    """The number of steps all curves have: that of the shortest; those without rows or diverged do not count."""
    return min((curve.last_step for curve in curves if curve.last_step and not curve.diverged), default=0)


def require_one_protocol(env: str, curves: Iterable[Curve], advice: str = "") -> None:
    """Raise ValueError, with advice, where runs on a game were not played and scored in one way."""
    first_of: dict[Protocol, Curve] = {}
    for curve in curves:
        first_of.setdefault(curve.protocol, curve)
    if len(first_of) > 1:
        found = sorted(first_of)
        words = [f"{first_of[one].source.name} ({one.difference(found)})" for one in found[:2]]
        where = first_of[found[0]].study.name
        raise ValueError(
            f"runs on {env} in {where} must be of one protocol to be compared, got {' and '.join(words)}{advice}"
        )


def on_grid(curve: Curve, edges: Sequence[int] | NDArray[Any]) -> Array:
    """Mean return per episode between each two of the edges (steps), those without an end of an episode filled in.

    Gaps are filled linearly; before the first and after the last episode there is nothing: NaN.
    """
    edges = np.asarray(edges)
    there = curve.episodes > 0
    cells = np.searchsorted(edges, curve.steps[there], side="left") - 1
    inside = (cells >= 0) & (cells < len(edges) - 1)
    weights, values = curve.episodes[there][inside], curve.returns[there][inside]
    total = np.bincount(cells[inside], weights * values, minlength=len(edges) - 1)
    number = np.bincount(cells[inside], weights, minlength=len(edges) - 1)
    known = np.flatnonzero(number > 0)
    if not len(known):
        return np.full(len(edges) - 1, np.nan)
    every = np.arange(len(edges) - 1)
    return np.interp(every, known, total[known] / number[known], left=np.nan, right=np.nan)


def _place(agent: str) -> tuple[int, str]:
    return (AGENTS.index(agent) if agent in AGENTS else len(AGENTS), agent)


def _run_folders(path: Path) -> list[Path]:
    if not path.is_dir():
        raise ValueError(f"RUNS must be folders, {path} is {'none' if path.exists() else 'not there'}")
    found = []
    for place, below, files in os.walk(path):
        below.sort()
        if CONFIG in files and (METRICS in files or VERSIONS in files):
            found.append(Path(place))
            below.clear()  # checkpoints are no runs
    if not found:
        raise ValueError(f"RUNS must be folders of runs made by cramerl train or sweep, {path} holds none")
    return found


def _study(folder: Path, path: Path) -> Study:
    """The study of a run: the folder above it with a sweep.json, else the one it lies in."""
    folder, path = folder.resolve(), path.resolve()
    marked = next((above for above in (folder, *folder.parents) if (above / SWEEP).is_file()), None)
    place = marked or folder.parent
    command = read_object(place / SWEEP, lambda values: str(values.get("command", ""))) if marked else ""
    inside = place != path and place.is_relative_to(path)
    return Study(place, place.relative_to(path).as_posix() if inside else place.name or "runs", command)


def _distinct_names(studies: Iterable[Study]) -> dict[Path, Study]:
    """The studies by their folder; two of one name are numbered."""
    by_folder = {study.folder: study for study in reversed(list(studies))}
    seen: dict[str, int] = {}
    named = {}
    for folder in sorted(by_folder):
        study = by_folder[folder]
        seen[study.name] = number = seen.get(study.name, 0) + 1
        named[folder] = study if number == 1 else study._replace(name=f"{study.name} ({number})")
    return named


def _read(folder: Path, study: Study, scores: ScoreKind) -> Iterator[Curve]:
    written = read_object(folder / CONFIG, _with_defaults)
    versions = read_object(folder / VERSIONS, dict) if (folder / VERSIONS).is_file() else {}
    lanes: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in RunFolder(folder).metrics():
        lanes.setdefault(_lane_of(row, written, folder), []).append(row)
    for lane, rows in (lanes or {_lane_of({}, written, folder): []}).items():
        # Only the first lane is evaluated: no other one is missed there when it diverges.
        end = scores == "training" or lane == _lane_of({}, written, folder)
        rows = [row for row in rows if _is_of(row, scores) or (end and row.get(DIVERGED) is True)]
        settings = written | dict(zip(_LANE, lane, strict=True))
        settings |= {"lanes": 1, "learning_rates": (), "mass_penalties": ()}
        yield _curve(settings, rows, scores, folder, study, versions)


def _is_of(row: Mapping[str, Any], scores: ScoreKind) -> bool:
    return row.get(DIVERGED) is not True and ("eval/episodic_return" in row) == (scores == "evaluation")


def _with_defaults(values: dict[str, Any]) -> dict[str, Any]:
    """Settings with those that were not there yet when the run was made."""
    for name in ("agent", "env"):
        if not isinstance(values.get(name), str) or not values[name]:
            raise ValueError(f"it names no {name}, so it is no run of cramerl train")
    found = {setting.name: setting.default for setting in dataclasses.fields(TrainConfig)} | values
    found["base_distribution"] = found.pop("base_law", found["base_distribution"])
    if not isinstance(found["steps"], int):
        raise ValueError(f"its steps must be an integer, got {found['steps']!r}")
    return found


def _lane_of(row: Mapping[str, Any], settings: Mapping[str, Any], folder: Path) -> tuple[Any, ...]:
    """Seed, learning rate and mass penalty of a row; what it does not say is the first lane's."""
    lane = []
    for name, several in _LANE.items():
        first = next(iter(settings.get(several) or ()), settings[name])
        value = row.get(name, first)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise ValueError(f"{folder / METRICS} has a row whose {name} is no number: {value!r}")
        lane.append(value)
    return tuple(lane)


def _curve(
    settings: dict[str, Any],
    rows: list[dict[str, Any]],
    scores: ScoreKind,
    folder: Path,
    study: Study,
    versions: dict[str, Any],
) -> Curve:
    rows = sorted(rows, key=lambda row: row["step"])
    steps = np.array([row["step"] for row in rows], np.int64)
    if (np.diff(steps) <= 0).any():
        twice = int(steps[1:][np.diff(steps) <= 0][0])
        raise ValueError(f"{folder / METRICS} has step {twice} twice for seed {settings['seed']}")
    prefix = "charts" if scores == "training" else "eval"
    _require_scores(prefix, rows, folder)
    columns = _columns(rows)
    missing = np.full(len(rows), np.nan)
    returns = columns.pop(f"{prefix}/episodic_return", missing)
    # A log of another maker may not count its episodes: then each row counts the same.
    episodes = columns.pop(f"{prefix}/episodes", np.isfinite(returns).astype(np.float64))
    episodes = np.where(np.isfinite(returns) & np.isfinite(episodes), np.maximum(episodes, 0), 0.0)
    per_step = _frames_per_step(folder, columns.get("frames", missing), steps)
    frames = steps * int(per_step or 1)
    for name in ("step", "frames", *_LANE):
        columns.pop(name, None)
    try:
        protocol = Protocol.of(settings, scores, per_step)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{folder / CONFIG} cannot be used: {error}") from error
    return Curve(
        agent=settings["agent"],
        env=settings["env"],
        seed=int(settings["seed"]),
        settings=settings,
        steps=steps,
        frames=frames,
        returns=np.where(episodes > 0, returns, np.nan),
        episodes=episodes,
        metrics=columns,
        source=folder,
        study=study,
        versions=versions,
        protocol=protocol,
        diverged=any(row.get(DIVERGED) is True for row in rows),
    )


def _require_scores(prefix: str, rows: list[dict[str, Any]], folder: Path) -> None:
    """Episodes that ended have a score: rows that say otherwise are damaged, and must not change one in silence."""
    for row in [] if any(row.get(DIVERGED) is True for row in rows) else rows:
        episodes, score = (row.get(f"{prefix}/{name}") for name in ("episodes", "episodic_return"))
        none = episodes is None or episodes == 0
        for name, value in (("episodes", episodes), ("episodic_return", score)):
            least = 0.0 if name == "episodes" else -_HUGE
            missing = value is None or (isinstance(value, float) and math.isnan(value))
            fine = isinstance(value, (int, float)) and not isinstance(value, bool) and least <= value < _HUGE
            if not fine and not (missing and none):
                raise ValueError(
                    f"{folder / METRICS} has no number as {prefix}/{name} at step {row['step']}: {value!r}"
                )


def _columns(rows: list[dict[str, Any]]) -> dict[str, Array]:
    names = dict.fromkeys(name for row in rows for name in row)
    table = {}
    for name in names:
        values = [np.nan if row.get(name) is None else row[name] for row in rows]
        if all(type(value) in (int, float) for value in values):
            column = np.array(values, np.float64)
            table[name] = np.where(np.isfinite(column), column, np.nan)
    return table


def _frames_per_step(folder: Path, frames: Array, steps: NDArray[np.int64]) -> float | None:
    """Emulator frames of a step, from the log or the environment's description; None if neither says."""
    if len(steps) and steps[-1] > 0 and np.isfinite(frames[-1]):
        return round(frames[-1] / steps[-1])
    if (folder / SPEC).is_file():
        found = read_object(folder / SPEC, lambda values: values.get("frames_per_step"))
        return found if isinstance(found, int) and found > 0 else None
    return None


def _require_no_duplicates(curves: Iterable[Curve]) -> None:
    seen: dict[tuple[Any, ...], Curve] = {}
    for curve in (curve for curve in curves if curve.last_step):
        key = (curve.study.folder, curve.agent, curve.env, curve.seed, curve.protocol, repr(curve.learned_with))
        if key in seen:
            first, second = (f"{one.source.parent.name}/{one.source.name}" for one in (seen[key], curve))
            raise ValueError(
                f"{curve.agent} on {curve.env} with seed {curve.seed} is there twice with the same settings, in "
                f"{first} and {second}: take one of them away"
            )
        seen[key] = curve
