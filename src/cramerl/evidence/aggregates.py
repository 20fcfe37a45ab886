"""Scores of several games on one scale, and their aggregates over games."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cramerl.deep.envs.names import game_name
from cramerl.evidence.published import RANDOM_HUMAN
from cramerl.evidence.scores import BestGroups, Series
from cramerl.evidence.statistics import Interval, bootstrap_interval, normalise

STATISTICS = ("iqm", "mean", "median", "optimality_gap")


class Aggregates(NamedTuple):
    """Scores on one scale, and their aggregates.

    Attributes:
        games: the games that every series here has played.
        scale: what the scores were divided by, in words.
        scores: for each series, one array of runs for each game.
        intervals: for each series, each of `STATISTICS` with its bootstrap interval.
    """

    games: list[str]
    scale: str
    scores: dict[Series, list[NDArray[np.float64]]]
    intervals: dict[Series, dict[str, Interval]]


def aggregate(
    best: BestGroups, games: Sequence[str], series: Sequence[Series], *, atari: bool, seed: int
) -> tuple[Aggregates | None, list[str]]:
    """Aggregate scores over games.

    Args:
        best: the scores.
        games: the games, in order.
        series: the series, in order.
        atari: whether these are Atari games, which have human-normalised scores.
        seed: seed of the bootstrap.

    Returns:
        The aggregates, or None if there is no common scale; and notes on what was left out.
    """
    human = atari and all(game_name(env) in RANDOM_HUMAN for env in games)
    if human:
        words = "human-normalised: 0 is random play, 1 a human tester, both measured with no-op starts"
        limits: Mapping[str, tuple[float, float]] = {env: RANDOM_HUMAN[game_name(env) or env] for env in games}
        notes = []
    else:
        limits, words, notes = _reference_scale(best, games)
    chosen, kept = full_table(best, [env for env in games if env in limits], series)
    if not kept:
        return None, [*notes, "There are no aggregates: no game is left on which scores have a common scale."]
    if len(kept) == 1 and not human:
        return None, [*notes, f"There are no aggregates: {kept[0].label} has nothing to be compared with."]
    left_games = [env for env in games if env in limits and env not in chosen]
    left = [one.label for one in series if one not in kept]
    if left_games:
        notes.append(f"Aggregates leave out {', '.join(left_games)}: not every agent in them has played these games.")
    if left:
        notes.append(f"Aggregates leave out {'; '.join(left)}: not all of {', '.join(chosen)} were played.")
    scores = {one: [normalise(best[one, env].scores, *limits[env]) for env in chosen] for one in kept}
    intervals = {
        one: {name: bootstrap_interval(name, runs, seed=seed) for name in STATISTICS} for one, runs in scores.items()
    }
    return Aggregates(chosen, words, scores, intervals), notes


def full_table(best: BestGroups, games: Sequence[str], series: Sequence[Series]) -> tuple[list[str], list[Series]]:
    """The games and series of the largest table of scores without gaps."""
    played = {one: frozenset(env for env in games if (one, env) in best) for one in series}
    options = {*played.values(), frozenset(games).intersection(*played.values())} - {frozenset()}

    def size(option: frozenset[str]) -> tuple[int, int, list[str]]:
        number = sum(option <= envs for envs in played.values())
        return (number * len(option), number, sorted(option))

    if not options:
        return [], []
    largest = max(options, key=size)
    return [env for env in games if env in largest], [one for one in series if largest <= played[one]]


def _reference_scale(best: BestGroups, games: Sequence[str]) -> tuple[dict[str, tuple[float, float]], str, list[str]]:
    """For each game (0, mean score of DQN), or of the best agent if DQN has not played them all."""
    dqn = Series("dqn")
    has_dqn = all((dqn, env) in best for env in games)
    limits, notes = {}, []
    for env in games:
        means = {one: group.score.estimate for (one, game), group in best.items() if game == env}
        reference = means[dqn] if has_dqn else max(means.values())
        if reference > 0:
            limits[env] = (0.0, reference)
        else:
            notes.append(f"Aggregates leave out {env}: the score to divide by, {reference:.4g}, is not positive.")
    if has_dqn:
        return limits, "scores divided by dqn's mean score on the same game", notes
    words = "scores divided by the best agent's mean score on the same game, because dqn has not played all of them"
    return limits, words, notes
