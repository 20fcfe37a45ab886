"""Scores of several games on one scale, and their aggregates over games."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from cramerl._arrays import Floats
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
    scores: dict[Series, list[Floats]]
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
    dqn = Series("dqn")
    has_dqn = all((dqn, env) in best for env in games)
    if human:
        scale = "human-normalised: 0 is random play, 1 a human tester, both measured with no-op starts"
    elif has_dqn:
        scale = "scores divided by dqn's mean score on the same game"
    else:
        scale = "scores divided by the best agent's mean score on the same game"
        if any((dqn, env) in best for env in games):
            scale += ", because dqn has not played all of them"
    limits: dict[str, tuple[float, float]] = {}  # of each game, the scores that become 0 and 1
    notes = []
    for env in games:
        means = {one: group.score.estimate for (one, game), group in best.items() if game == env}
        reference = means[dqn] if has_dqn else max(means.values())
        if human:
            limits[env] = RANDOM_HUMAN[game_name(env) or env]
        elif reference > 0:
            limits[env] = (0.0, reference)
        else:
            notes.append(f"Aggregates leave out {env}: the score to divide by, {reference:.4g}, is not positive.")
    chosen, kept = full_table(best, list(limits), series)
    if not kept:
        return None, [*notes, "There are no aggregates: no game is left on which scores have a common scale."]
    if len(kept) == 1 and not human:
        return None, [*notes, f"There are no aggregates: {kept[0].label} has nothing to be compared with."]
    if left := [env for env in limits if env not in chosen]:
        notes.append(f"Aggregates leave out {', '.join(left)}: not every agent in them has played these games.")
    if left := [one.label for one in series if one not in kept]:
        notes.append(f"Aggregates leave out {'; '.join(left)}: not all of {', '.join(chosen)} were played.")
    scores = {one: [normalise(best[one, env].scores, *limits[env]) for env in chosen] for one in kept}
    intervals = {
        one: {name: bootstrap_interval(name, runs, seed=seed) for name in STATISTICS} for one, runs in scores.items()
    }
    return Aggregates(chosen, scale, scores, intervals), notes


def full_table(best: BestGroups, games: Sequence[str], series: Sequence[Series]) -> tuple[list[str], list[Series]]:
    """The games and series of the largest table of scores without gaps."""
    played = {one: frozenset(env for env in games if (one, env) in best) for one in series}
    options = {*played.values(), frozenset(games).intersection(*played.values())} - {frozenset()}
    if not options:
        return [], []

    def size(option: frozenset[str]) -> tuple[int, int, list[str]]:
        number = sum(option <= envs for envs in played.values())
        return (number * len(option), number, sorted(option))

    largest = max(options, key=size)
    return [env for env in games if env in largest], [one for one in series if largest <= played[one]]
