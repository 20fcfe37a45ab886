"""What the agents of a report believe: one run of each is played for a short while, where its weights were kept.

Playing goes through games and files of all kinds, so whatever goes wrong is a sentence in the report and no error.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from cramerl.evidence.curves import Curve
from cramerl.evidence.scores import Cell, Summary
from cramerl.report.distributions import draw_distributions
from cramerl.report.figures import Figure
from cramerl.runs import agents
from cramerl.runs.folder import CONFIG, load_group
from cramerl.watch.play import Watched, record
from cramerl.watch.process import is_evaluation, read_evaluation
from cramerl.watch.recording import Recording

STEPS, MOST, SECONDS = 200, 12, 120.0
_SIGNED, _WITHOUT_LAW = ("s51", "u51"), "dqn"
_NO_WEIGHTS = "kept no weights to play with"


class DistributionPictures:
    """Pictures of the distributions that agents predict, as long as there is room and time.

    Args:
        steps: to play at most with each agent.
        most: pictures in the whole report.
        seconds: after which no further agent is played. Only this depends on the machine; it is far above what the
            pictures need.
        on_progress: is told what is being done.
    """

    def __init__(
        self,
        *,
        steps: int = STEPS,
        most: int = MOST,
        seconds: float = SECONDS,
        on_progress: Callable[[str], None] = lambda words: None,
    ):
        self.steps, self.most, self.seconds, self.on_progress = steps, most, seconds, on_progress
        self._made, self._spent, self._names = 0, 0.0, set[str]()

    def of_study(self, summary: Summary) -> tuple[list[Figure], list[str]]:
        """Pictures of one run of each agent on each game, and sentences on those there are none of."""
        figures, missing = [], dict[str, list[str]]()
        for cell in _in_order(summary):
            found = self._of_cell(cell)
            if isinstance(found, str):
                missing.setdefault(found, []).append(f"{cell.series.label} on {cell.env}")
            else:
                figures.append(found)
        if not figures and set(missing) == {_NO_WEIGHTS}:
            return [], [_none_at_all(summary)]
        return figures, [f"No picture of {_some(names)}: {reason}." for reason, names in missing.items()]

    def of_process(self, folder: Path) -> tuple[list[Figure], list[str]]:
        """A picture of the distributions that `cramerl evaluate` found, or a sentence."""
        try:
            recording = read_evaluation(folder)
            caption = f"{'; '.join(recording.facts).capitalize()}."
            return [draw_distributions(recording, self._name(folder.resolve().name), recording.title, caption)], []
        except Exception as error:
            return [], [f"No picture of the evaluation in {folder.name}: {_sentence(error, folder)}."]

    def _of_cell(self, cell: Cell) -> Figure | str:
        """A picture, or why there is none."""
        curve = next((one for one in sorted(cell.curves, key=lambda one: one.seed) if has_weights(one.source)), None)
        if curve is None:
            return _NO_WEIGHTS
        if cell.series.agent == _WITHOUT_LAW:
            return "it predicts means and no distributions"
        if self._made >= self.most:
            return f"a report has {self.most} at most"
        if self._spent > self.seconds:
            return f"the {self.seconds:g} seconds for pictures were spent"
        self.on_progress(f"{cell.series.label} plays {cell.env} ...")
        began = time.monotonic()
        try:
            recording = play(curve, self.steps)
            name = self._name(f"{cell.series.label}-{cell.env}")
            figure = draw_distributions(
                recording, name, f"{cell.series.label} on {cell.env}", _caption(curve, recording)
            )
        except Exception as error:
            return _sentence(error, curve.source)
        finally:
            self._spent += time.monotonic() - began
        self._made += 1
        return figure

    def _name(self, words: str) -> str:
        """A name for files and links that no other picture has."""
        stem = "distributions-" + (re.sub(r"[^\w.-]+", "-", words).strip("-.") or "picture")
        name = next(n for n in (stem, *(f"{stem}-{i}" for i in range(2, 1000))) if n not in self._names)
        self._names.add(name)
        return name


def has_weights(folder: Path) -> bool:
    """Whether there is a checkpoint in the folder of a run, or of a run below a folder."""
    return any(folder.rglob("checkpoints/*/manifest.json"))


def play(curve: Curve, steps: int) -> Recording:
    """A short while with the agent of a curve, always the same: seed 0, no random actions, on the host's processor."""
    group = load_group(curve.source)
    lane = group.lane_of(curve.settings) or 0
    with _on_host():
        agent = agents.load_agent(curve.source, lane=lane)
        return record([Watched(group.first.agent, group.configs[lane], agent)], epsilon=0.0, max_steps=steps)


def find_evaluations(paths: Iterable[Path]) -> tuple[list[Path], list[Path]]:
    """The paths that may hold runs, and the folders among and below all paths that `cramerl evaluate` wrote."""
    runs, evaluations = [], dict[Path, None]()
    for path in paths:
        found, has_run = [], False
        for place, below, files in os.walk(path):
            below.sort()
            found += [Path(place)] if is_evaluation(place) else []
            if CONFIG in files:
                has_run = True
                below.clear()
        evaluations |= dict.fromkeys(found)
        runs += [path] if has_run or not found else []
    return runs, list(evaluations)


def _on_host() -> AbstractContextManager[Any]:
    import jax

    try:
        return jax.default_device(jax.devices("cpu")[0])
    except RuntimeError:  # the environment allows another platform only
        return nullcontext()


def _in_order(summary: Summary) -> list[Cell]:
    """By game, agents whose masses may be negative first: they are what a reader looks for."""
    series = sorted(summary.series, key=lambda one: one.agent not in _SIGNED)
    keys = [(one, env) for env in summary.games for one in series]
    return [summary.cells[key] for key in keys if key in summary.cells]


def _caption(curve: Curve, recording: Recording) -> str:
    played = "; ".join(recording.facts[:1])
    return f"Seed {curve.seed} after {curve.last_step:,} steps of training plays without random actions: {played}."


def _none_at_all(summary: Summary) -> str:
    sums = any("dist/negative_mass" in curve.metrics for curve in summary.curves)
    more = ": of their distributions the records hold only means, which the table of diagnostics shows" if sums else ""
    return f"There are no pictures, for the runs kept no weights to play with{more}."


def _sentence(error: Exception, folder: Path) -> str:
    """What went wrong, in the words of the error, without places on somebody's machine."""
    if isinstance(error, ModuleNotFoundError):
        return f"{error.name} is not installed, which pip install 'cramerl[deep]' brings"
    words = " ".join(str(error).split()) or type(error).__name__
    for place in (str(folder), str(folder.resolve())):
        words = words.replace(place, folder.name)
    return words[:300].rstrip(". ")


def _some(names: Sequence[str], most: int = 5) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
