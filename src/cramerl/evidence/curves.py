"""Learning curves read from the folders of runs, one for each run."""

from __future__ import annotations

import math
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cramerl._arrays import Floats
from cramerl.evidence.protocols import ScoreKind, ScoringProtocol
from cramerl.evidence.subjects import Subject, seed_order
from cramerl.runs.config import AGENTS, LANE_SETTINGS, SETTINGS, TrainConfig
from cramerl.runs.folder import CONFIG, METRICS, SPEC, VERSIONS, RunFolder, read_object
from cramerl.runs.group import DIVERGED, RunGroup
from cramerl.runs.scores import TAIL, in_tail

SWEEP = "sweep.json"
"""The file that marks the folder of a study."""
TUNED = tuple(name for name, setting in SETTINGS.items() if setting.scoring == "tuned")
"""Settings that are tuned for each agent: tables show the best values, figures show all of them."""

StepUnit = Literal["agent step", "iteration"]
_HUGE = 1e300  # larger than any return; integers beyond it do not fit a float


class Study(NamedTuple):
    """Runs that belong together: their folder, its name, and the command that made it where that is known."""

    folder: Path
    name: str
    command: str


@dataclass(frozen=True, eq=False)
class Curve:
    """The learning curve of one run: each array has one entry for each row of the log.

    Attributes:
        subject: what was trained on what.
        steps: (rows,) agent steps, increasing.
        frames: (rows,) emulator frames.
        returns: (rows,) mean return of the episodes that ended since the previous row; NaN if none did.
        episodes: (rows,) the number of these episodes.
        metrics: the log's other numbers by tag, (rows,); NaN where a row has none.
        source: folder of the run, or the file of another library's log.
        study: the study that the run belongs to.
        versions: versions of the libraries.
        protocol: what the scores depend on.
        diverged: whether the run ended early, at its last row, because its loss or weights were no longer finite.
        unit: what ``steps`` count.
        remarks: sentences on how the log was read.
    """

    subject: Subject
    steps: NDArray[np.int64]
    frames: NDArray[np.int64]
    returns: Floats
    episodes: Floats
    metrics: dict[str, Floats]
    source: Path
    study: Study
    versions: dict[str, Any]
    protocol: ScoringProtocol
    diverged: bool = False
    unit: StepUnit = "agent step"
    remarks: tuple[str, ...] = ()

    @property
    def config(self) -> TrainConfig:
        """The settings of a run of cramerl; ValueError for a run of another library."""
        if self.subject.config is None:
            raise ValueError(f"{self.source} is a log of another library, which has no settings of cramerl")
        return self.subject.config

    @property
    def agent(self) -> str:
        """The run's agent."""
        return self.subject.agent

    @property
    def env(self) -> str:
        """The run's environment."""
        return self.subject.env

    @property
    def seed(self) -> int | str:
        """The run's seed; in logs of other libraries it may be a word."""
        return self.subject.seed

    @property
    def place(self) -> str:
        """Where its log is, in short; of another library's folder AGENT/ENV/SEED, all three."""
        alone = self.subject.config is not None or self.source.suffix or "__" in self.source.name
        return self.source.name if alone else "/".join(self.source.parts[-3:])

    @property
    def last_step(self) -> int:
        """The step of the last row; 0 if the log has no rows."""
        return int(self.steps[-1]) if len(self.steps) else 0

    @property
    def finished(self) -> bool:
        """Whether the run did all its steps, or diverged; where nobody knows how many it should do, it did."""
        return self.diverged or self.subject.steps is None or self.last_step >= self.subject.steps

    @property
    def learned_with(self) -> dict[str, Any]:
        """The settings, by name, that change what is learned and are not part of the protocol."""
        return self.subject.learned_with


def read_curves(paths: Iterable[str | Path], *, scores: ScoreKind = "training") -> list[Curve]:
    """Read every run at or below the paths.

    Args:
        paths: folders of runs, or folders that contain such folders at any depth.
        scores: "training" for the episodes of training, "evaluation" for those played at the end of each iteration.

    Returns:
        One curve for each run, in order of study, environment, agent and seed. A log without rows gives a curve
        without rows.
    """
    if scores not in ("training", "evaluation"):
        raise ValueError(f"scores must be training or evaluation, got {scores!r}")
    found: dict[Path, Path] = {}  # the folder of each run, and the path at or below which it was found
    for path in map(Path, paths):
        runs = [folder for folder, files in walk_folders(path) if is_run(files)]
        if not runs:
            raise ValueError(f"{path} contains no runs made by cramerl train or cramerl sweep")
        for folder in runs:
            found.setdefault(folder.resolve(), path)
    studies = _find_studies(found)
    curves = [curve for folder, study in studies.items() for curve in _read_run(folder, study, scores)]
    curves.sort(
        key=lambda c: (
            c.study.name,
            str(c.study.folder),
            c.env,
            AGENTS.index(c.agent),
            seed_order(c.seed),
            str(c.source),
        )
    )
    require_different_runs(curves)
    return curves


def require_different_runs(curves: Iterable[Curve]) -> None:
    """Raise ValueError if two curves of a study are the same run: its seed would count twice."""
    seen: dict[tuple[Any, ...], Curve] = {}
    for curve in (curve for curve in curves if curve.last_step):
        key = (curve.study.folder, curve.agent, curve.env, curve.seed, curve.protocol, repr(curve.learned_with))
        twin = seen.setdefault(key, curve)
        if twin is not curve:
            first, second = (
                one.place if "/" in one.place else f"{one.source.parent.name}/{one.place}" for one in (twin, curve)
            )
            raise ValueError(
                f"{first} and {second} are the same run: {curve.agent} on {curve.env} with seed {curve.seed} and the "
                "same settings; remove one of them"
            )


def walk_folders(path: str | Path) -> Iterator[tuple[Path, Collection[str]]]:
    """Each folder at or below a path with the names of its files, in order.

    The folders inside a run are left out: they hold its checkpoints.
    """
    path = Path(path)
    if not path.is_dir():
        raise ValueError(f"{path} is not a folder" if path.exists() else f"{path} does not exist")
    for place, below, files in os.walk(path):
        below.sort()
        yield Path(place), files
        if is_run(files):
            below.clear()


def is_run(files: Collection[str]) -> bool:
    """Whether a folder with these files is the folder of a run."""
    return CONFIG in files and (METRICS in files or VERSIONS in files)


def final_score(curve: Curve, tail: float = TAIL, steps: int | None = None) -> float:
    """Mean return per episode over the last part of the steps; NaN if no episode ended there.

    A run that diverged has no score (NaN), whatever its returns were before: its settings do not work.

    Args:
        curve: a run.
        tail: the fraction of the steps that is scored, in (0, 1].
        steps: where the run is taken to end, to compare it with shorter ones; None for its last step.
    """
    rows = tail_rows(curve, tail, steps)
    if curve.diverged or not rows.any():
        return math.nan
    return float(np.average(curve.returns[rows], weights=curve.episodes[rows]))


def tail_rows(curve: Curve, tail: float = TAIL, steps: int | None = None) -> NDArray[np.bool_]:
    """Which rows lie in the last part of the steps and have an episode that ended; see `final_score`."""
    return in_tail(curve.steps, curve.last_step if steps is None else steps, tail) & (curve.episodes > 0)


def area_under_curve(curve: Curve, steps: int | None = None) -> float:
    """Mean return over steps: each row counts for the steps since the previous row in which an episode ended.

    NaN if no episode ended, or if the run diverged.
    """
    known = tail_rows(curve, 1.0, steps)
    if curve.diverged or not known.any():
        return math.nan
    return float(np.average(curve.returns[known], weights=np.diff(curve.steps[known], prepend=0)))


def common_steps(curves: Iterable[Curve]) -> int:
    """The last step of the shortest curve; curves that are empty or diverged do not count."""
    return min((curve.last_step for curve in curves if curve.last_step and not curve.diverged), default=0)


def require_one_protocol(env: str, curves: Iterable[Curve], advice: str = "") -> None:
    """Raise ValueError, ending in ``advice``, if runs on a game were not all played and scored in the same way."""
    first_of: dict[ScoringProtocol, Curve] = {}
    for curve in curves:
        first_of.setdefault(curve.protocol, curve)
    if len(first_of) > 1:
        found = sorted(first_of)
        examples = [f"{first_of[one].place} ({one.difference(found) or 'protocol known'})" for one in found[:2]]
        raise ValueError(
            f"runs on {env} in {first_of[found[0]].study.name} must share one protocol to be compared, got "
            f"{' and '.join(examples)}{advice}"
        )


def on_grid(curve: Curve, edges: Sequence[int] | NDArray[Any]) -> Floats:
    """Mean return per episode between each pair of neighbouring edges (steps).

    Intervals in which no episode ended are interpolated linearly; those before the first episode and after the last
    one are NaN.
    """
    edges = np.asarray(edges)
    intervals = len(edges) - 1
    known = curve.episodes > 0
    place = np.searchsorted(edges, curve.steps[known], side="left") - 1
    inside = (place >= 0) & (place < intervals)
    weights, values = curve.episodes[known][inside], curve.returns[known][inside]
    total = np.bincount(place[inside], weights * values, minlength=intervals)
    number = np.bincount(place[inside], weights, minlength=intervals)
    filled = np.flatnonzero(number > 0)
    if not len(filled):
        return np.full(intervals, np.nan)
    return np.interp(np.arange(intervals), filled, total[filled] / number[filled], left=np.nan, right=np.nan)


def _find_studies(folders: Mapping[Path, Path]) -> dict[Path, Study]:
    """The study of each run: the nearest folder above it with a sweep.json, or else the folder that contains it."""
    place_of: dict[Path, Path] = {}
    found: dict[Path, Study] = {}
    for run, path in folders.items():
        marked = next((above for above in (run, *run.parents) if (above / SWEEP).is_file()), None)
        place_of[run] = place = marked or run.parent
        if place not in found:
            command = read_object(place, SWEEP, lambda values: str(values.get("command", ""))) if marked else ""
            top = path.resolve()
            inside = place != top and place.is_relative_to(top)
            name = place.relative_to(top).as_posix() if inside else place.name or "runs"
            found[place] = Study(place, name, command)
    # If several studies have the same name, the later ones are numbered.
    names = [found[place].name for place in sorted(found)]
    for i, place in enumerate(sorted(found)):
        if number := names[:i].count(names[i]):
            found[place] = found[place]._replace(name=f"{names[i]} ({number + 1})")
    return {run: found[place] for run, place in place_of.items()}


def _read_run(folder: Path, study: Study, scores: ScoreKind) -> Iterator[Curve]:
    """The curve of a run, or of each run that was trained together in one folder."""

    def read_group(values: dict[str, Any]) -> RunGroup:
        for name in ("agent", "env"):
            if name not in values:
                raise ValueError(f"it has no {name}, so it was not written by cramerl train")
        return RunGroup.from_json(values)

    group = read_object(folder, CONFIG, read_group)
    versions = read_object(folder, VERSIONS, dict) if (folder / VERSIONS).is_file() else {}
    rows: list[list[dict[str, Any]]] = [[] for _ in group.configs]
    for row in RunFolder(folder).metrics():
        lane = group.lane_of(row)
        if lane is None:
            words = ", ".join(f"{name} {row[name]!r}" for name in LANE_SETTINGS if name in row)
            raise ValueError(f"{folder / METRICS} has a row of {words}, but {CONFIG} describes no such run")
        if row.get(DIVERGED) is True or ("eval/episodic_return" in row) == (scores == "evaluation"):
            rows[lane].append(row)
    for config, its_rows in zip(group.configs, rows, strict=True):
        yield _make_curve(config, its_rows, scores, folder, study, versions)


def _make_curve(
    config: TrainConfig,
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
        raise ValueError(f"{folder / METRICS} has step {twice} twice for seed {config.seed}")
    prefix = "charts" if scores == "training" else "eval"
    diverged = any(row.get(DIVERGED) is True for row in rows)
    if not diverged:
        _require_scores(prefix, rows, folder)
    columns: dict[str, Floats] = {}
    for name in dict.fromkeys(name for row in rows for name in row):
        values = [np.nan if row.get(name) is None else row[name] for row in rows]
        if all(type(value) in (int, float) for value in values):
            column = np.array(values, np.float64)
            columns[name] = np.where(np.isfinite(column), column, np.nan)
    missing = np.full(len(rows), np.nan)
    returns = columns.pop(f"{prefix}/episodic_return", missing)
    # Logs of other programs may not count their episodes: then each row counts the same.
    episodes = columns.pop(f"{prefix}/episodes", np.isfinite(returns).astype(np.float64))
    episodes = np.where(np.isfinite(returns) & np.isfinite(episodes), np.maximum(episodes, 0), 0.0)
    frames_per_step = _frames_per_step(folder, columns.get("frames", missing), steps)
    return Curve(
        subject=Subject.of(config),
        steps=steps,
        frames=steps * (frames_per_step or 1),
        returns=np.where(episodes > 0, returns, np.nan),
        episodes=episodes,
        metrics={name: values for name, values in columns.items() if name not in ("step", "frames", *SETTINGS)},
        source=folder,
        study=study,
        versions=versions,
        protocol=ScoringProtocol.of(config, scores, frames_per_step),
        diverged=diverged,
    )


def _require_scores(prefix: str, rows: list[dict[str, Any]], folder: Path) -> None:
    """Refuse damaged rows, in which episodes ended without a score: they would change the score unnoticed."""
    for row in rows:
        no_episodes = row.get(f"{prefix}/episodes") in (None, 0)
        for name, least in (("episodes", 0.0), ("episodic_return", -_HUGE)):
            value = row.get(f"{prefix}/{name}")
            missing = value is None or (isinstance(value, float) and math.isnan(value))
            valid = isinstance(value, (int, float)) and not isinstance(value, bool) and least <= value < _HUGE
            if not valid and not (missing and no_episodes):
                raise ValueError(
                    f"{folder / METRICS}: {prefix}/{name} at step {row['step']} is not a number: {value!r}"
                )


def _frames_per_step(folder: Path, frames: Floats, steps: NDArray[np.int64]) -> int | None:
    """Emulator frames of a step, from the log or the description of the environment; None if neither has them."""
    if len(steps) and steps[-1] > 0 and np.isfinite(frames[-1]):
        return round(frames[-1] / steps[-1])
    if (folder / SPEC).is_file():
        found = read_object(folder, SPEC, lambda values: values.get("frames_per_step"))
        return found if isinstance(found, int) and found > 0 else None
    return None
