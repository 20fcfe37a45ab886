"""Which logs of other libraries there are at some paths, and their learning curves."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from cramerl.deep.envs.names import is_minatar
from cramerl.evidence.curves import Curve, Study
from cramerl.evidence.foreign.columns import require_roles
from cramerl.evidence.foreign.dopamine import is_pickle, pickle_advice, read_dopamine
from cramerl.evidence.foreign.games import atari_game
from cramerl.evidence.foreign.run_folders import is_event_file, is_monitor, read_event_files, read_monitors
from cramerl.evidence.foreign.run_logs import RunLog
from cramerl.evidence.foreign.tables import TABLES, read_table
from cramerl.evidence.protocols import ScoreKind, ScoringProtocol
from cramerl.evidence.subjects import Subject, agent_order, seed_order

_MOST_AGENTS, _MOST_GAMES = 40, 200
_LONGEST_NAME = 50


class Log(NamedTuple):
    """A log of another library: a file that holds runs, or a folder of one run with the names of its files."""

    kind: str
    place: Path
    files: tuple[str, ...] = ()


def logs_in(folder: Path, files: Collection[str]) -> list[Log]:
    """The logs in a folder with these files. Tables and JSON may be anything, so they are read only if named."""
    kinds = (("monitors", is_monitor), ("events", is_event_file))
    found = [Log(kind, folder, tuple(sorted(filter(is_kind, files)))) for kind, is_kind in kinds]
    found = [log for log in found if log.files]
    return found[:1]  # of a run with both, the monitor has every episode


def pickles_in(folder: Path, files: Collection[str]) -> list[Path]:
    """Pickled logs in a folder, which are not read."""
    return [folder / name for name in sorted(files) if is_pickle(Path(name))]


def log_at(file: Path) -> Log:
    """The log that is a file, by its name."""
    if is_monitor(file.name):
        return Log("monitors", file.parent, (file.name,))
    if is_event_file(file.name):
        return Log("events", file.parent, (file.name,))
    if file.suffix in TABLES:
        return Log("table", file)
    if file.suffix == ".json":
        return Log("dopamine", file)
    if is_pickle(file):
        raise ValueError(pickle_advice(file))
    raise ValueError(
        f"{file} must be a folder of runs, a table ({', '.join(TABLES)}), an event file of TensorBoard, a monitor.csv "
        "or a JSON file of Dopamine's rows"
    )


def read_logs(
    logs: Iterable[Log], *, scores: ScoreKind = "training", columns: Mapping[str, str] | None = None
) -> list[Curve]:
    """The learning curves in logs of other libraries, as one study.

    Args:
        logs: from `logs_in` or `log_at`; what is named twice is read once.
        scores: which scalars of event files are read; other logs have one kind of returns.
        columns: the names of columns by what they mean (agent, env, seed, step, return, episodes). For event files,
            the tag of the return.

    Returns:
        One curve for each run, in order of environment, agent and seed. The order of rows does not matter.
    """
    columns = columns or {}
    require_roles(columns)
    places: dict[tuple[str, Path], Log] = {}
    for log in logs:
        key = (log.kind, log.place.resolve())
        names = tuple(sorted({*log.files, *(places[key].files if key in places else ())}))
        places[key] = log._replace(files=names)
    runs = [run for log in places.values() for run in _read(log, scores, columns)]
    for what, names, most in (
        ("agents", {run.name.agent for run in runs}, _MOST_AGENTS),
        ("games", {run.name.env for run in runs}, _MOST_GAMES),
    ):
        if len(names) > most:
            raise ValueError(
                f"a report may have at most {most} {what}, the logs have {len(names):,}, such as {min(names)} and "
                f"{max(names)}; is a column of runs or settings taken for that of {what}?"
            )
    study = _study([log.place for log in places.values()])
    curves = [_curve(run, study, scores) for run in runs]
    return sorted(curves, key=lambda c: (c.env, agent_order(c.agent), seed_order(c.seed), str(c.source)))


def _read(log: Log, scores: ScoreKind, columns: Mapping[str, str]) -> Sequence[RunLog]:
    if log.kind == "table":
        return read_table(log.place, columns)
    if log.kind == "dopamine":
        return read_dopamine(log.place)
    if log.kind == "events":
        return [read_event_files(log.place, log.files, scores, columns)]
    if scores == "evaluation":
        raise ValueError(f"{log.place}: monitors of Stable-Baselines3 hold training episodes, not evaluations")
    return [read_monitors(log.place, log.files)]


def _study(places: Sequence[Path]) -> Study:
    """The study that logs given together are: it has the names of the first ones."""
    names = [place.stem if place.is_file() else place.resolve().name for place in places]
    names = list(dict.fromkeys(name[:_LONGEST_NAME] for name in names))  # files of figures have this name
    more = f" and {len(names) - 2} more" if len(names) > 3 else ""
    shown = names[:2] if more else names
    return Study(places[0].resolve(), ", ".join(shown) + more, "")


def _curve(run: RunLog, study: Study, scores: ScoreKind) -> Curve:
    atari = atari_game(run.name.env) is not None
    family = "MinAtar" if is_minatar(run.name.env) else "Atari" if atari else "other"
    iterations = {"iteration": (run.steps - 1).astype(np.float64)} if run.unit == "iteration" else {}
    return Curve(
        subject=Subject(*run.name),
        steps=run.steps,
        frames=run.steps * (4 if atari and run.unit == "agent step" else 1),
        returns=run.returns,
        episodes=run.episodes,
        metrics=iterations,
        source=run.source,
        study=study,
        versions={},
        protocol=ScoringProtocol.unknown(family, scores),
        unit=run.unit,
        remarks=run.remarks,
    )
