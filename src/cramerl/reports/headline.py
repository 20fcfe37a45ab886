"""What a study found, in words: which agent is ahead, by how much, and what cannot be said."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal

from cramerl._arrays import Floats
from cramerl.evidence.scores import Series
from cramerl.evidence.statistics import Interval, bootstrap_interval
from cramerl.evidence.summary import Summary
from cramerl.reports.labels import Labels, short_labels
from cramerl.reports.tables import interval_text, number

_COUNTS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_MOST_GAMES = 4  # whose findings are told one by one if there is no scale that they share
_MOST_NAMES = 4
# With fewer, percentile intervals of a bootstrap are too narrow.
_FEW_SEEDS = 10
Difference = Literal["difference_of_means", "difference_of_iqms"]


def headline(summary: Summary) -> str:
    """The finding in a few sentences."""
    found = summary.aggregates
    series = list(dict.fromkeys([*summary.series, *(group.series for group in summary.diverged)]))
    names = {one: _name(label, one) for one, label in short_labels(series).items()}
    if not summary.best:
        return "No run has a score."
    if len({one.protocol for one in summary.series}) > 1:
        return "These runs follow different protocols, so they are shown side by side and not ranked."
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
    lost = dict.fromkeys(group.series for group in summary.diverged if group.env == env and group.series not in groups)
    if not groups:
        return f"On {env}: no run has a score."
    scores = {one: group.score for one, group in groups.items()}
    runs = {one: [group.scores] for one, group in groups.items()}
    without = f" {_some([names[one] for one in lost])}: no score, because a run diverged." if lost else ""
    return f"On {env}: {_finding(scores, runs, 'difference_of_means', names, summary.scoring.seed)}{without}"


def _finding(
    scores: Mapping[Series, Interval],
    runs: Mapping[Series, Sequence[Floats]],
    difference: Difference,
    names: Labels,
    seed: int,
) -> str:
    """Who is ahead and by how much."""
    ordered = sorted(scores, key=lambda one: -scores[one].estimate)
    single = [one for one in ordered if not math.isfinite(scores[one].low)]
    first, *others = order = [one for one in ordered if one not in single] or ordered
    if len(scores) == 1:
        return f"{names[first]} scores {interval_text(scores[first])}{' (one seed, so no interval)' if single else ''}."
    if len(single) == len(scores):
        listed = [f"{names[one]} {number(scores[one].estimate)}" for one in order]
        return f"one seed, so the {count_text(len(order))} cannot be told apart: {', '.join(listed)}."
    unsettled = f" {_some([names[one] for one in single])}: one seed, so not compared." if single else ""
    least = min(len(game) for one in order for game in runs[one])
    few = f" These are few seeds ({least}), so the intervals are too narrow." if least < _FEW_SEEDS else ""
    if not others:
        return f"{names[first]} scores {interval_text(scores[first])}.{unsettled}{few}"
    apart = {one: bootstrap_interval(difference, runs[first], runs[one], seed=seed) for one in others}
    # The first was chosen from all by these scores, so a difference counts if it would among all pairs.
    level = 1 - 0.05 / math.comb(len(order), 2)
    surely = {one: bootstrap_interval(difference, runs[first], runs[one], seed=seed, level=level) for one in others}
    tied = [one for one in others if surely[one].low <= 0]
    nearest = f"{interval_text(apart[others[0]])} above {names[others[0]]}"
    if not tied:
        text = f"{names[first]} is ahead with {interval_text(scores[first])}, {nearest}, the next."
    else:
        text = f"{_some([names[one] for one in (first, *tied)])} cannot be told apart; {names[first]} is {nearest}."
        text += _behind(first, [one for one in others if one not in tied], apart, names)
    return text + unsettled + few


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
