"""Comparisons of two agents: which pairs are worth comparing, and by how much one is ahead."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

from cramerl.evidence.aggregates import Aggregates
from cramerl.evidence.scores import BestGroups, Series
from cramerl.evidence.statistics import Interval, bootstrap_interval
from cramerl.runs.config import AGENTS

_MOST_IN_PAIRS = 6


class Comparison(NamedTuple):
    """Two series on one game, with bootstrap intervals.

    Attributes:
        first: one series.
        second: the other one.
        env: the game, or None for the normalised scores of all games.
        difference: the first's mean score minus the second's.
        improvement: the probability that a run of the first beats a run of the second.
        whole: the difference of mean returns over the whole runs; None over several games.
    """

    first: Series
    second: Series
    env: str | None
    difference: Interval
    improvement: Interval
    whole: Interval | None


def compare(
    best: BestGroups, games: Sequence[str], series: Sequence[Series], aggregates: Aggregates | None, *, seed: int
) -> list[Comparison]:
    """Compare each pair worth comparing on each game, and over all games if there are several."""
    interval, found = partial(bootstrap_interval, seed=seed), []
    for pair in _pairs(best, games, series):
        samples: dict[str | None, Any] = {
            env: [[best[one, env].scores] for one in pair] for env in _common_games(best, games, *pair)
        }
        if aggregates is not None and len(aggregates.games) > 1 and all(one in aggregates.scores for one in pair):
            samples[None] = [aggregates.scores[one] for one in pair]
        for env, scores in samples.items():
            whole = None if env is None else interval("difference_of_means", *([best[one, env].whole] for one in pair))
            improvement = interval("probability_of_improvement", *scores)
            found.append(Comparison(*pair, env, interval("difference_of_means", *scores), improvement, whole))
    return found


def _pairs(best: BestGroups, games: Sequence[str], series: Sequence[Series]) -> Iterator[tuple[Series, Series]]:
    """U51 with S51, everyone with DQN and with C51, agents of other libraries, and variants with their plain form.

    Of several variants of the other agent, the one that agrees in all settings both have is taken, and the plain one.
    If an agent has no plain form on a game, each variant is compared with the earlier ones that differ least from it.
    """
    agents = list(dict.fromkeys(one.agent for one in series))
    wanted = [("u51", "s51"), ("l51", "s51")]
    for other in ("dqn", "c51"):
        wanted += [(one, other) for one in agents if one not in ("dqn", other)]
    wanted += _foreign_pairs(best, agents)
    for first, second in [*wanted, *((one, one) for one in agents)]:
        for one in (one for one in series if one.agent == first):
            others = [other for other in series if other.agent == second and _common_games(best, games, one, other)]
            alike = [other for other in others if other != one and _alike(best, games, one, other)]
            plain = [other for other in others if not other.variant]
            found = dict.fromkeys(other for other in [*alike, *plain] if other != one)
            if not found and first != second and len(others) == 1:
                found = dict.fromkeys(others)
            if first == second and not plain:
                found = dict.fromkeys(_nearest(one, others[: others.index(one)]))
            yield from ((one, other) for other in found)


def _foreign_pairs(best: BestGroups, agents: Sequence[str]) -> list[tuple[str, str]]:
    """Each pair of agents that cramerl does not have; of many, each with the one that is best most often."""
    foreign = [one for one in agents if one not in AGENTS]
    if len(foreign) <= _MOST_IN_PAIRS:
        return list(itertools.combinations(foreign, 2))
    leads: dict[str, tuple[float, str]] = {}
    for (one, env), group in best.items():
        if one.agent in foreign:
            leads[env] = max(leads.get(env, (-math.inf, "")), (group.score.estimate, one.agent))
    first = max(foreign, key=[agent for _, agent in leads.values()].count)
    return [(first, one) for one in foreign if one != first]


def _common_games(best: BestGroups, games: Sequence[str], one: Series, other: Series) -> list[str]:
    return [env for env in games if (one, env) in best and (other, env) in best]


def _alike(best: BestGroups, games: Sequence[str], one: Series, other: Series) -> bool:
    """Whether two series agree in the settings that distinguish either of them, as far as both have them."""
    env = _common_games(best, games, one, other)[0]
    own, others = (best[series, env].curves[0].learned_with for series in (one, other))
    named = {name for name, _ in (*one.settings, *other.settings)} & own.keys() & others.keys()
    return one.protocol == other.protocol and all(own[name] == others[name] for name in named)


def _nearest(one: Series, others: Sequence[Series]) -> list[Series]:
    """The series that differ from one in the fewest settings; of many values of a setting, the first and the last."""
    by_setting: dict[frozenset[str], list[Series]] = {}
    for other in others:
        differ = {name for name, _ in set(one.settings) ^ set(other.settings)}
        differ |= {"protocol"} if one.protocol != other.protocol else set()
        by_setting.setdefault(frozenset(differ), []).append(other)
    least = min(map(len, by_setting), default=0)
    chosen = {end for differ, alike in by_setting.items() if len(differ) == least for end in (alike[0], alike[-1])}
    return [other for other in others if other in chosen]
