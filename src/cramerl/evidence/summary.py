"""Everything a report says about a study in numbers: scores, aggregates, comparisons, and notes on what is missing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cramerl.evidence.aggregates import Aggregates, aggregate
from cramerl.evidence.comparisons import Comparison, compare
from cramerl.evidence.curves import TUNED, Curve, Study, common_steps, require_one_protocol
from cramerl.evidence.protocols import ScoreKind, ScoringProtocol
from cramerl.evidence.scores import BestGroups, ScoreGroup, Series, group_runs, setting_text
from cramerl.evidence.subjects import agent_order
from cramerl.runs.scores import MUCH_CUT, TAIL, in_tail

_MOST_REMARKS = 5
FEW_SEEDS = 5  # with fewer, a bootstrap has hardly anything to draw from


@dataclass(frozen=True)
class Scoring:
    """How runs are scored.

    Attributes:
        tail: the fraction of a run's steps, at its end, that is scored.
        kind: "training" for the episodes of training, "evaluation" for those played at the end of iterations.
        mix_protocols: show runs of different protocols on one game side by side; otherwise they are an error.
        unfinished: include unfinished runs, and score all runs on a game at the length of the shortest; otherwise
            unfinished runs are left out wherever others on the same game are finished.
        seed: seed of the bootstrap.
    """

    tail: float = TAIL
    kind: ScoreKind = "training"
    mix_protocols: bool = False
    unfinished: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.tail <= 1:
            raise ValueError(f"tail must be in (0, 1], got {self.tail!r}")


@dataclass(frozen=True, eq=False)
class Summary:
    """The scores of one study.

    Attributes:
        study: the study's folder, name and command.
        title: the study's name, with the family if its folder holds several.
        family: "Atari", "MinAtar" or "other".
        scoring: how runs were scored.
        games: environments in order.
        series: series in order.
        groups: every setting of every series on every game, except those with a run that diverged.
        diverged: every setting with a run that diverged: it has no mean score, and is never the best.
        best: for each series and game, the group with the best mean score.
        steps: for each game, the step at which runs are taken to end.
        protocols: for each game, how it was played and scored.
        aggregates: aggregates over games, or None if there are none.
        comparisons: comparisons of two series.
        everyone: the agents of all studies that were summarised together, in order.
        notes: sentences on what is missing or was chosen.
    """

    study: Study
    title: str
    family: str
    scoring: Scoring
    games: list[str]
    series: list[Series]
    groups: list[ScoreGroup]
    diverged: list[ScoreGroup]
    best: dict[tuple[Series, str], ScoreGroup]
    steps: dict[str, int]
    protocols: dict[str, list[ScoringProtocol]]
    aggregates: Aggregates | None
    comparisons: list[Comparison]
    everyone: list[str]
    notes: list[str]

    @property
    def curves(self) -> list[Curve]:
        """All runs that have a score."""
        return [curve for group in self.groups for curve in group.curves]

    @property
    def shown(self) -> list[ScoreGroup]:
        """The best groups by game, in the order of tables."""
        keys = [(series, env) for env in self.games for series in self.series]
        return [self.best[key] for key in keys if key in self.best]

    def tuned(self, *names: str) -> bool:
        """Whether several values of one of the settings were tried for some series on some game."""
        values: dict[Any, set[Any]] = {}
        for group in [*self.groups, *self.diverged]:
            for name in set(names) & group.curves[0].learned_with.keys():
                values.setdefault((group.series, group.env, name), set()).add(group.curves[0].learned_with[name])
        return any(len(found) > 1 for found in values.values())

    def best_along(self, series: Series, env: str, key: Callable[[ScoreGroup], Any]) -> dict[Any, ScoreGroup | None]:
        """For each value of ``key(group)``, in order, the best group of a series on a game; None if all diverged.

        Groups of other libraries have no settings, so they are left out.
        """
        found: dict[Any, list[ScoreGroup]] = {}
        for group in [*self.groups, *self.diverged]:
            if (group.series, group.env) == (series, env) and group.config is not None:
                found.setdefault(key(group), []).extend([group] if not group.diverged else [])
        return {at: max(found[at], key=lambda group: group.score.estimate, default=None) for at in sorted(found)}


def summarise(curves: Sequence[Curve], scoring: Scoring | None = None) -> list[Summary]:
    """Summarise each study among the curves; a folder with several families of environments gives one for each."""
    scoring = scoring or Scoring()
    members: dict[tuple[str, str], list[Curve]] = {}
    for curve in curves:
        members.setdefault((str(curve.study.folder), curve.protocol.family), []).append(curve)
    folders = [folder for folder, _ in members]
    everyone = sorted({curve.agent for curve in curves}, key=agent_order)
    found = []
    for (folder, family), its in members.items():
        name = its[0].study.name
        found.append(_summarise(its, f"{name}: {family}" if folders.count(folder) > 1 else name, scoring, everyone))
    if not any(summary.best for summary in found):
        diverged = sum(group.diverged for summary in found for group in summary.diverged)
        raise ValueError(
            f"no run has an episode that ended in the last {scoring.tail:g} of its steps"
            + (f" ({diverged} diverged)" if diverged else "")
        )
    return sorted(found, key=lambda summary: summary.title)


def _summarise(curves: list[Curve], title: str, scoring: Scoring, everyone: list[str]) -> Summary:
    study, family = curves[0].study, curves[0].protocol.family
    empty = [f"{curve.place}, seed {curve.seed}" for curve in curves if not curve.last_step]
    notes = [f"Left out because their logs have no rows with such scores: {_some(empty)}."] if empty else []
    curves = [curve for curve in curves if curve.last_step]
    if not scoring.unfinished:
        finished = {curve.env for curve in curves if curve.finished}
        left = [curve for curve in curves if curve.env in finished and not curve.finished]
        notes += _note_unfinished("Left out because they are not finished and others on the game are", left)
        curves = [curve for curve in curves if curve not in left]
    by_game = {env: [curve for curve in curves if curve.env == env] for env in sorted({c.env for c in curves})}
    notes += _note_foreign(curves)
    for env, its in by_game.items():
        _require_one_unit(env, its)
        if not scoring.mix_protocols:
            require_one_protocol(env, its, "; mix_protocols shows them side by side")
        ended = sorted((curve for curve in its if not curve.diverged), key=lambda curve: curve.last_step)
        if ended and ended[-1].last_step > 1.01 * ended[0].last_step:
            shortest, longest = ended[0], ended[-1]
            notes.append(
                f"{env}: runs have {shortest.last_step:,} to {longest.last_step:,} steps, so all are scored at "
                f"{shortest.last_step:,}, where the shortest ends ({shortest.place}, seed {shortest.seed})."
            )
    notes += _note_unfinished("Not finished", [curve for curve in curves if not curve.finished])
    steps = {env: common_steps(its) for env, its in by_game.items()}
    groups, without_score = group_runs(curves, steps, tail=scoring.tail, seed=scoring.seed, mixed=scoring.mix_protocols)
    scored, diverged = ([group for group in groups if bool(group.diverged) == bad] for bad in (False, True))
    tried: dict[tuple[Series, str], list[ScoreGroup]] = {}
    for group in scored:
        tried.setdefault((group.series, group.env), []).append(group)
    best = {key: max(its, key=lambda group: group.score.estimate) for key, its in tried.items()}
    games = [env for env in by_game if any(group.env == env for group in scored)]
    series = sorted({group.series for group in scored}, key=lambda one: one.order)
    protocols = {env: sorted({curve.protocol for curve in its}) for env, its in by_game.items()}
    notes += _note_cuts(curves, scoring.tail)
    notes += _note_scores(scored, diverged, without_score, best, scoring.tail)
    aggregates, more = None, []
    if not scoring.mix_protocols and len({one for env in games for one in protocols[env]}) > 1:
        more = ["There are no aggregates: games were played under different protocols (mix_protocols allows this)."]
    elif best:
        aggregates, more = aggregate(best, games, series, atari=family == "Atari", seed=scoring.seed)
    return Summary(
        study=study,
        title=title,
        family=family,
        scoring=scoring,
        games=games,
        series=series,
        groups=scored,
        diverged=diverged,
        best=best,
        steps=steps,
        protocols=protocols,
        aggregates=aggregates,
        comparisons=compare(best, games, series, aggregates, seed=scoring.seed),
        everyone=everyone,
        notes=notes + more,
    )


def _require_one_unit(env: str, curves: Sequence[Curve]) -> None:
    first_of: dict[str, Curve] = {}
    for curve in curves:
        first_of.setdefault(curve.unit, curve)
    if len(first_of) > 1:
        examples = [f"{curve.place} ({unit}s)" for unit, curve in sorted(first_of.items())]
        raise ValueError(f"runs on {env} must count in the same unit to be compared, got {' and '.join(examples)}")


def _note_foreign(curves: Sequence[Curve]) -> list[str]:
    """How logs of other libraries were read, and what they do not say."""
    unknown = sorted({curve.agent for curve in curves if not curve.protocol.known}, key=agent_order)
    notes = list(dict.fromkeys(remark for curve in curves for remark in curve.remarks))
    if len(notes) > _MOST_REMARKS:
        notes = [*notes[:_MOST_REMARKS], f"There are {len(notes) - _MOST_REMARKS:,} more such remarks."]
    if unknown:
        notes.insert(
            0,
            f"How the runs of {_some(unknown)} were played and scored is not known, because logs of other libraries do "
            "not say. Only who trained them can tell whether they may be compared.",
        )
    return notes


def _note_unfinished(words: str, curves: Iterable[Curve]) -> list[str]:
    names = dict.fromkeys(
        f"{curve.source.parent.name}/{curve.source.name} ({curve.last_step:,} of {curve.subject.steps or 0:,} steps)"
        for curve in curves
    )
    return [f"{words}: {_some(list(names))}."] if names else []


def _note_cuts(curves: Iterable[Curve], tail: float) -> list[str]:
    """Say which runs may have too low a score, because resets of their environments cut many episodes."""
    names = []
    for curve in curves:
        inside = in_tail(curve.steps, curve.last_step, tail)
        cut = float(np.nansum(curve.metrics.get("charts/episodes_cut", np.zeros(len(curve.steps)))[inside]))
        fraction = cut / max(cut + float(curve.episodes[inside].sum()), 1)
        if fraction > MUCH_CUT:
            names.append(f"{curve.agent} on {curve.env}, seed {curve.seed} ({fraction:.0%})")
    text = "Resets of the environments cut many episodes, so complete ones are too short and scores may be biased"
    return [f"{text}: {_some(names)}."] if names else []


def _note_scores(
    groups: list[ScoreGroup], diverged: list[ScoreGroup], without_score: list[Curve], best: BestGroups, tail: float
) -> list[str]:
    notes = []
    if without_score:
        names = [f"{curve.agent} on {curve.env}, seed {curve.seed}" for curve in without_score]
        notes.append(f"No score because no episode ended in the last {tail:g} of the steps: {_some(names)}.")
    if diverged:
        names = []
        for group in diverged:
            settings = group.curves[0].learned_with
            words = ", ".join(f"{name} {setting_text(settings[name])}" for name in TUNED if name in settings)
            seeds = f"{group.diverged} of {len(group.curves)} seeds"
            names.append(f"{group.series.label} on {group.env} with {words} ({seeds})")
        notes.append(f"Diverged, so these settings have no score and are never chosen: {_some(names)}.")
    if any(group.tried > 1 for group in best.values()):
        notes.append(
            "Several settings of an agent were tried on a game. Tables and curves show the best, chosen by the same "
            "scores, which is slightly optimistic; runs with other seeds at the chosen setting are a fairer test."
        )
    if single := sum(len(group.scores) == 1 for group in groups):
        notes.append(
            f"One seed, so no interval: this holds for {single} of {len(groups)} combinations of agent and game."
        )
    if any(1 < len(group.scores) < FEW_SEEDS for group in groups):
        notes.append(f"Fewer than {FEW_SEEDS} seeds: bootstrap intervals of so few runs are too narrow.")
    return notes


def _some(names: list[str], most: int = 5) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return "; ".join(names[:most]) + more
