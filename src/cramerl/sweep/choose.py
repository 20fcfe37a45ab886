"""Settings chosen by an earlier sweep: those of its best variant, for each agent and environment.

The seeds that chose may not report: the best of several variants looks better on them than it is.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from cramerl.evidence.curves import Curve, common_steps, final_score, read_curves, require_one_protocol
from cramerl.runs.presets import applies
from cramerl.sweep.folder import read_record, survey
from cramerl.sweep.plan import AXES

Variant = tuple[tuple[str, Any], ...]  # settings by name


class Choice(NamedTuple):
    """What was chosen for one agent in one environment.

    Attributes:
        agent: which.
        env: where.
        settings: the best variant's.
        score: its final score, a mean over seeds.
        seeds: those that chose.
        others: final scores of the other variants, the best first; NaN for one that has a run in whose last fifth no
            episode ended, None for one that failed or diverged.
    """

    agent: str
    env: str
    settings: dict[str, Any]
    score: float
    seeds: list[int]
    others: list[tuple[dict[str, Any], float | None]]

    def to_json(self, folder: Path) -> dict[str, Any]:
        """For the record of a sweep; JSON has no NaN."""
        others = [{"settings": s, "score": None if x is None or math.isnan(x) else x} for s, x in self.others]
        return self._asdict() | {"others": others, "from": str(folder)}


def best_of(folder: Path, agents: Iterable[str], envs: Collection[str], seeds: Collection[int]) -> list[Choice]:
    """The best variant of each agent in each environment: highest mean over seeds of the final score.

    A variant with a run that failed or diverged, or in whose last fifth no episode ended, is not chosen. All but those
    that failed must be finished, with the same seeds and of one protocol; they are scored where the shortest ends.

    Args:
        folder: an earlier sweep.
        agents: for which to choose.
        envs: likewise.
        seeds: that will report; none may have chosen.
    """
    if not (folder / "sweep.json").is_file():
        raise ValueError(f"best-of must be the folder of a sweep, {folder} has no sweep.json")
    record = read_record(folder)
    cells = {(folder / cell.folder).resolve(): cell for cell in survey(folder)}
    if not cells:
        raise ValueError(f"best-of must be a sweep that is done, {folder} has no run yet")
    begun = {cell.folder for cell in cells.values()}
    failed = {cell["folder"] for cell in record["cells"] if "failed" in cell}
    waiting = {
        (cell["agent"], cell["env"]): folder / cell["folder"]
        for cell in record["cells"]
        if cell["folder"] not in begun | failed
    }
    lost = [run for cell in cells.values() if cell.folder in failed for run in cell.config.single_runs()]
    curves = [c for c in read_curves([folder]) if c.source.resolve() in cells]
    choices = []
    for agent in agents:
        for env in envs:
            its = [c for c in curves if (c.agent, c.env) == (agent, env)]
            if (agent, env) in waiting:
                raise ValueError(f"{waiting[agent, env]} is not there yet: nothing can be chosen before it is")
            if not its:
                raise ValueError(f"best-of must have {agent} on {env}, {folder} has not")
            names = _varied(its, record["axes"])
            gone = [_variant(vars(run), names) for run in lost if (run.agent, run.env) == (agent, env)]
            gone += [_variant(vars(curve.config), names) for curve in its if curve.diverged]
            for curve in its:
                cell = cells[curve.source.resolve()]
                if not cell.finished and cell.folder not in failed:
                    raise ValueError(f"{folder / cell.folder} is not finished: nothing can be chosen before it is")
            choices.append(_choose(agent, env, its, names, set(gone)))
    again = sorted({seed for choice in choices for seed in choice.seeds} & set(seeds))
    if again:
        raise ValueError(
            f"seeds must differ from those that chose in {folder}, where the best looks better than it is; got "
            f"{', '.join(map(str, again[:5]))}{' ...' if len(again) > 5 else ''} again"
        )
    return choices


def describe(choice: Choice) -> str:
    """A choice in one line."""
    words = f"{choice.agent} on {choice.env}: {_settings_words(choice.settings)}, score {choice.score:,.2f}"
    tried = [f"{_settings_words(settings)} {_score_words(score)}" for settings, score in choice.others]
    return words + f" of {len(choice.seeds)} seeds" + (f" ({'; '.join(tried)})" if tried else "")


def _score_words(score: float | None) -> str:
    if score is None:
        return "failed"
    return "has no score: no episode ended in the last fifth of a run" if math.isnan(score) else f"{score:,.2f}"


def _choose(agent: str, env: str, curves: list[Curve], names: list[str], failed: set[Variant]) -> Choice:
    variants: dict[Variant, list[Curve]] = {}
    for curve in curves:
        variants.setdefault(_variant(vars(curve.config), names), []).append(curve)
    whole = {variant: its for variant, its in variants.items() if variant not in failed}
    if not whole:
        raise ValueError(f"every variant of {agent} on {env} failed or diverged: there is nothing to choose from")
    seeds = [sorted(curve.seed for curve in its) for its in whole.values()]
    if any(these != seeds[0] for these in seeds):
        raise ValueError(f"the variants of {agent} on {env} must have the same seeds to be compared, got {seeds}")
    runs = [curve for its in whole.values() for curve in its]
    require_one_protocol(env, runs)
    end = common_steps(runs)
    scores = {v: sum(final_score(curve, steps=end) for curve in its) / len(its) for v, its in whole.items()}
    unknown = [variant for variant, score in scores.items() if math.isnan(score)]
    if len(unknown) == len(scores):
        raise ValueError(
            f"every variant of {agent} on {env} failed, diverged or has a run in whose last fifth no episode ended: "
            "there is nothing to choose from"
        )
    known = [variant for variant in scores if variant not in unknown]
    best, *others = [*sorted(known, key=lambda variant: -scores[variant]), *unknown]
    tried: list[tuple[dict[str, Any], float | None]] = [(dict(variant), scores[variant]) for variant in others]
    tried += [(dict(variant), None) for variant in sorted(failed, key=str)]
    return Choice(agent, env, dict(best), scores[best], seeds[0], tried)


def _varied(curves: list[Curve], axes: Collection[str]) -> list[str]:
    """Settings that the sweep varied, or that differ between the runs of this agent here."""
    names = [name for name in AXES if applies(name, curves[0].agent, curves[0].env)]
    return [n for n in names if n in axes or len({_plain(getattr(curve.config, n)) for curve in curves}) > 1]


def _variant(settings: dict[str, Any], names: list[str]) -> Variant:
    return tuple((name, _plain(settings[name])) for name in names)


def _plain(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _settings_words(settings: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in settings.items()) or "settings as they were"
