"""What a study found, in words: which agent is ahead, by how much, and what cannot be said."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal

from cramerl._arrays import Floats
from cramerl.evidence.scores import Series
from cramerl.evidence.statistics import Interval, bootstrap_interval
from cramerl.evidence.summary import FEW_SEEDS, Summary
from cramerl.reports.labels import Labels, short_labels
from cramerl.reports.tables import interval_text, number

_COUNTS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_MOST_GAMES = 4  # whose findings are told one by one if there is no scale that they share
_MOST_NAMES = 4
Difference = Literal["difference_of_means", "difference_of_iqms"]


def headline(summary: Summary) -> str:
    """The finding in a few sentences."""
    found = summary.aggregates
    names = {one: _name(label, one) for one, label in short_labels(summary.series).items()}
    if not summary.best:
        return "No run has a score."
    if found is not None and len(found.games) > 1 and len(found.scores) > 1:
        iqms = {one: its["iqm"] for one, its in found.intervals.items()}
        finding = _finding(iqms, found.scores, "difference_of_iqms", names, summary.scoring.seed)
        scale = "human-normalised" if "human" in found.scale else "normalised"
        return f"Over {count_text(len(found.games))} games, by the IQM of {scale} scores: {finding}"
    sentences = [_on_game(summary, env, names) for env in summary.games[:_MOST_GAMES]]
    left = len(summary.games) - _MOST_GAMES
    return " ".join([*sentences, f"Scores on {count_text(left)} more are below."] if left > 0 else sentences)


def count_text(number_of: int) -> str:
    """A number of things as a word, if it is small."""
    return _COUNTS[number_of] if number_of < len(_COUNTS) else str(number_of)


def _name(label: str, series: Series) -> str:
    """A name that can stand in a list: what distinguishes a variant is in brackets."""
    variant = label.removeprefix(series.agent).removeprefix(", ")
    return f"{series.agent} ({variant})" if variant else series.agent


def _on_game(summary: Summary, env: str, names: Labels) -> str:
    groups = {one: group for (one, game), group in summary.best.items() if game == env}
    scores = {one: group.score for one, group in groups.items()}
    runs = {one: [group.scores] for one, group in groups.items()}
    return f"On {env}: {_finding(scores, runs, 'difference_of_means', names, summary.scoring.seed)}"


def _finding(
    scores: Mapping[Series, Interval],
    runs: Mapping[Series, Sequence[Floats]],
    difference: Difference,
    names: Labels,
    seed: int,
) -> str:
    """Who is ahead and by how much."""
    order = sorted(scores, key=lambda one: -scores[one].estimate)
    first, *others = order
    if not others:
        single = "" if math.isfinite(scores[first].low) else " (one seed, so no interval)"
        return f"{names[first]} scores {interval_text(scores[first])}{single}."
    if not all(math.isfinite(scores[one].low) for one in order):
        return _without_intervals(order, scores, names)
    apart = {one: bootstrap_interval(difference, runs[first], runs[one], seed=seed) for one in others}
    tied = [one for one in others if apart[one].low <= 0]
    nearest = f"{interval_text(apart[others[0]])} above {names[others[0]]}"
    least = min(len(game) for games in runs.values() for game in games)
    few = f" These are few seeds ({least}), so the intervals are too narrow." if least < FEW_SEEDS else ""
    if not tied:
        return f"{names[first]} is ahead with {interval_text(scores[first])}, {nearest}, the next.{few}"
    text = f"{_some([names[one] for one in (first, *tied)])} cannot be told apart; {names[first]} is {nearest}."
    return text + _behind(first, [one for one in others if one not in tied], apart, names) + few


def _without_intervals(order: Sequence[Series], scores: Mapping[Series, Interval], names: Labels) -> str:
    """The scores of agents of which some have one seed."""
    single = [one for one in order if not math.isfinite(scores[one].low)]
    of_whom = "" if len(single) == len(order) else f" of {_some([names[one] for one in single])}"
    listed = [f"{names[one]} {number(scores[one].estimate)}" for one in order]
    return f"one seed{of_whom}, so the {count_text(len(order))} cannot be told apart: {', '.join(listed)}."


def _behind(first: Series, behind: Sequence[Series], apart: Mapping[Series, Interval], names: Labels) -> str:
    """By how much the others are behind the first; many are not listed."""
    if not behind:
        return ""
    if len(behind) > _MOST_NAMES:
        return f" The others are behind {names[first]}."
    return f" Behind {names[first]}: {_some([f'{names[one]} by {interval_text(apart[one])}' for one in behind])}."


def _some(names: Sequence[str]) -> str:
    """A list in words; of many names, the first and how many more."""
    left = len(names) - _MOST_NAMES
    shown = [*names[: _MOST_NAMES - 1], f"{count_text(left + 1)} more"] if left > 0 else list(names)
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"
